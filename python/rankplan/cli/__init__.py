"""The command line of rankplan, one file per command."""

from __future__ import annotations

from rankplan.cli import signals

with signals.at_once():
    from rankplan.cli.commands import main

__all__ = ["main"]

"""The command line of rankplan, one file per command."""

from __future__ import annotations

import gc

from rankplan.cli import signals

gc.set_threshold(50_000)  # most of what a command creates stays until it ends, and has no cycles

with signals.at_once():
    from rankplan.cli.commands import main

__all__ = ["main"]

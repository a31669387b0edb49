"""The command line of rankplan, one file per command."""

from __future__ import annotations

from rankplan.cli import signals


def main() -> None:
    """Run ``rankplan``. Ctrl-C during its imports ends it at once."""
    with signals.at_once():
        from rankplan.cli.commands import main as commands

    commands(prog_name="rankplan")

"""The command line, in the process of the test."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result
from rankplan.cli import main


def run(*words: str, **options: Any) -> Result:
    """Run a command; an error that it does not report fails the test."""
    done = CliRunner().invoke(main, words, **options)
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done

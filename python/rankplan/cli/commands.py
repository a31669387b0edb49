"""The commands as one program."""

from __future__ import annotations

import io
import sys

import click

from rankplan.cli.common import Commands


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rankplan")
def main() -> None:
    """Decide where every process of a distributed RL job runs, check it, and launch it on Ray.

    Words after -- override values of the config: rankplan check verl.yaml -- trainer.nnodes=2 +a.b=3 ~c. Besides YAML,
    a config can be the shell script that launches the job; a script is never run.

    Exit codes: 0 success, 1 faults in the input or the run, 2 wrong usage; diff has its own.

    For shell completion, add eval "$(_RANKPLAN_COMPLETE=bash_source rankplan)" to ~/.bashrc, or use zsh_source or
    fish_source for these shells.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names may not fit the terminal's encoding

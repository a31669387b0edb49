"""The command line of rankplan, one file per command."""

from __future__ import annotations

import io
import sys

import click

from rankplan import interrupts
from rankplan.cli.arrange import arrange
from rankplan.cli.check import check
from rankplan.cli.common import OverridesAfterDashes
from rankplan.cli.convert import convert
from rankplan.cli.diff import diff
from rankplan.cli.env import env
from rankplan.cli.explain import explain
from rankplan.cli.inventory import inventory
from rankplan.cli.plan import plan
from rankplan.cli.replan import replan
from rankplan.cli.run import run
from rankplan.cli.schema import schema
from rankplan.cli.show import show
from rankplan.cli.tune import tune


@click.group(cls=OverridesAfterDashes, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rankplan")
def main() -> None:
    """Decide where every process of a distributed RL job runs, check it, and launch it on Ray.

    Words after -- override values of the config: rankplan check verl.yaml -- trainer.nnodes=2 +a.b=3 ~c. Besides YAML,
    a config can be TOML, or the shell script that launches the job; a script is never run.

    Exit codes: 0 success, 1 faults in the input or the run, 2 wrong usage; diff has its own.

    For shell completion, add eval "$(_RANKPLAN_COMPLETE=bash_source rankplan)" to ~/.bashrc, or use zsh_source or
    fish_source for these shells.
    """
    interrupts.imported()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names may not fit the terminal's encoding


main.add_command(check)
main.add_command(plan)
main.add_command(show)
main.add_command(run)
main.add_command(tune)
main.add_command(convert)
main.add_command(arrange)
main.add_command(replan)
main.add_command(diff)
main.add_command(env)
main.add_command(explain)
main.add_command(inventory)
main.add_command(schema)

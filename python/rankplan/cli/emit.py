"""``rankplan emit``: a plan as the file of a launcher."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from rankplan.cli.common import Choice, config_options, output_option, planned
from rankplan.cli.output import faults_end_it
from rankplan.config.text.files import write_whole
from rankplan.errors import PlacementError
from rankplan.plans.plan import Plan
from rankplan.targets.embedded import is_emitted
from rankplan.targets.emit import TARGETS
from rankplan.targets.emit import emit as emitted
from rankplan.targets.options import DEFAULT, KINDS


class Pair(click.ParamType):  # type: ignore[type-arg]
    """``LEVEL=LABEL``: two words."""

    name = "pair"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the words."""
        if isinstance(value, tuple):
            return value
        name, equals, rest = value.partition("=")
        if not (name and equals and rest) or any(word.split() != [word] for word in (name, rest)):
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, rest


@click.command()
@click.argument("file", metavar="PLAN", type=click.Path())
@click.option("--to", required=True, type=click.Choice(list(TARGETS)), help="Launcher to write for.")
@output_option("Write to this file instead of stdout.")
@click.option("--name", help="Name of the job and of everything in it (default: that of the base, or train).")
@click.option(
    "--command",
    "commands",
    multiple=True,
    metavar="[COMPONENT=]COMMAND",
    help="Command of a component, without Ray; repeatable. Without COMPONENT=, the command of all others, where {} "
    "stands for the component.",
)
@click.option("--entrypoint", metavar="COMMAND", help="Command of one driver on Ray, which launches the plan.")
@click.option("--base", metavar="FILE", type=click.Path(), help="Your own file of this kind, to merge into.")
@click.option("--image", help="Image of the containers.")
@click.option("--cpus", metavar="N", help="CPUs of a pod.")
@click.option("--memory", metavar="SIZE", help="Memory of a pod, e.g. 512Gi.")
@click.option("--namespace", help="Namespace of the objects.")
@click.option("--queue", metavar="NAME", help="Local queue of Kueue; needed for `keep` and `segment`.")
@click.option(
    "--level", "levels", type=Pair(), multiple=True, metavar="LEVEL=LABEL", help="Node label of a level; repeatable."
)
@click.option(
    "--resource-key",
    "resource_keys",
    type=Pair(),
    multiple=True,
    metavar="TYPE=KEY",
    help="Resource that counts accelerators of a type, e.g. NPU=huawei.com/Ascend910; repeatable.",
)
@click.option("--pin", is_flag=True, default=None, help="Use the hosts of the inventory only, each for its node rank.")
@click.option("--kind", type=click.Choice(KINDS), help="With kuberay: a RayJob (default), or a RayCluster.")
@click.option("--slurm-release", metavar="RELEASE", help="Release of Slurm, e.g. 24.05.")
@click.option("--segment-level", metavar="LEVEL", help="Level of Slurm's blocks (default: the innermost).")
@click.option("--port", type=click.IntRange(1, 65535), help="First rendezvous port (default: 29500).")
@config_options
def emit(*, file: str, to: str, output: str | None, choice: Choice, **given: Any) -> None:
    """Write a plan as the file of a launcher.

    PLAN is a config, a saved plan, or a file that this command has written. The file starts the same ranks on the same
    accelerators; what the launcher cannot do is an error, and nothing is written. Notes about what the file leaves open
    go to stderr.
    """
    with faults_end_it():
        plan = planned(file, choice)
        try:
            text = emitted(file if is_emitted(file) else plan, to, **keywords(plan, given))
        except PlacementError:
            raise
        except ValueError as error:  # options that do not fit the target
            raise click.UsageError(str(error)) from None
        if output is None:
            click.echo(text, nl=False)
        else:
            write_whole(Path(output), text)


def keywords(plan: Plan, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `rankplan.emit` that the options of the command state."""
    found = dict(given)
    found["command"] = dict(_command(text, list(plan)) for text in found.pop("commands"))
    return {**found, "levels": dict(found["levels"]), "resource_keys": dict(found["resource_keys"])}


def _command(text: str, components: list[str]) -> tuple[str, str]:
    """Return the component of a command, and the command."""
    name, equals, command = text.partition("=")
    return (name, command) if equals and (name in components or name.isidentifier()) else (DEFAULT, text)

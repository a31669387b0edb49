"""``rankplan emit``: a plan as the file of a launcher."""

from __future__ import annotations

from pathlib import Path

import click

from rankplan.cli.common import Choice, config_options, faults_end_it, planned
from rankplan.config.text.files import write_whole
from rankplan.errors import PlacementError
from rankplan.targets.emit import TARGETS
from rankplan.targets.emit import emit as emitted
from rankplan.targets.options import DEFAULT, JOB, KINDS


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
@click.option("--to", required=True, type=click.Choice(list(TARGETS)), help="The launcher.")
@click.option("-o", "--output", metavar="PATH", type=click.Path(), help="Write to this file instead of stdout.")
@click.option("--name", default="train", show_default=True, help="Name of the job and of everything in it.")
@click.option(
    "--command",
    "commands",
    multiple=True,
    metavar="[COMPONENT=]COMMAND",
    help="Command of a component, without Ray; repeatable. Without COMPONENT=, of all others: {} is the component.",
)
@click.option("--entrypoint", metavar="COMMAND", help="One driver, on Ray: it launches the plan.")
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
    "keys",
    type=Pair(),
    multiple=True,
    metavar="TYPE=KEY",
    help="Resource that counts accelerators of a type, e.g. NPU=huawei.com/Ascend910; repeatable.",
)
@click.option("--pin", is_flag=True, help="Use the hosts of the inventory only, each for its node rank.")
@click.option("--kind", type=click.Choice(KINDS), default=JOB, show_default=True, help="With kuberay: what to write.")
@click.option("--slurm-release", metavar="RELEASE", help="Release of Slurm, e.g. 24.05.")
@click.option("--segment-level", metavar="LEVEL", help="Level of Slurm's blocks (default: the innermost).")
@click.option("--port", type=click.IntRange(1, 65535), default=29500, show_default=True, help="First rendezvous port.")
@config_options
def emit(
    *,
    file: str,
    to: str,
    output: str | None,
    name: str,
    commands: tuple[str, ...],
    entrypoint: str | None,
    base: str | None,
    image: str | None,
    cpus: str | None,
    memory: str | None,
    namespace: str | None,
    queue: str | None,
    levels: tuple[tuple[str, str], ...],
    keys: tuple[tuple[str, str], ...],
    pin: bool,
    kind: str,
    slurm_release: str | None,
    segment_level: str | None,
    port: int,
    choice: Choice,
) -> None:
    """Write a plan as the file of a launcher.

    PLAN is a config or a saved plan. The file starts the same ranks on the same accelerators; what the launcher cannot
    do is an error, and nothing is written. Notes about what the file leaves open go to stderr.
    """
    with faults_end_it():
        plan = planned(file, choice)
        try:
            text = emitted(
                plan,
                to,
                name=name,
                entrypoint=entrypoint,
                command=dict(_command(text, list(plan)) for text in commands),
                base=base,
                image=image,
                cpus=cpus,
                memory=memory,
                namespace=namespace,
                queue=queue,
                levels=dict(levels),
                resource_keys=dict(keys),
                pin=pin,
                kind=kind,
                slurm_release=slurm_release,
                segment_level=segment_level,
                port=port,
            )
        except PlacementError:
            raise
        except ValueError as error:  # options that do not fit the target
            raise click.UsageError(str(error)) from None
        if output is None:
            click.echo(text, nl=False)
        else:
            write_whole(Path(output), text)


def _command(text: str, components: list[str]) -> tuple[str, str]:
    """Return the component of a command, and the command."""
    name, equals, command = text.partition("=")
    return (name, command) if equals and (name in components or name.isidentifier()) else (DEFAULT, text)

"""``rankplan exec``: become a rank of a plan, or start all ranks of a node, without Ray and without a shell."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence

import click

from rankplan.cli.common import (
    Choice,
    Component,
    InputFile,
    component_of,
    config_options,
    isolate_option,
    overrides,
    planned,
    set_option,
)
from rankplan.cli.output import cannot_start, faults_end_it, note
from rankplan.front.command import check_node_commands
from rankplan.front.job import is_saved, opened, unplaced_job
from rankplan.launchers.exec.node import run_ranks
from rankplan.launchers.exec.process import RankProcess, rank_process
from rankplan.launchers.node_commands import node_commands
from rankplan.launchers.node_processes import node_processes
from rankplan.nodes.node_rank import node_ranks
from rankplan.plans.plan import Plan


@click.command()
@click.argument("file", metavar="FILE", type=InputFile())
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--component", metavar="NAME", type=Component(), help="Component (optional if there is only one).")
@click.option("--rank", type=click.IntRange(0), help="Process rank within the component.")
@click.option("--rank-from", metavar="VARIABLE", help="Read the process rank from this variable, e.g. SLURM_PROCID.")
@click.option("--node", metavar="N", help="Start all ranks of this node: a rank, or a sum of products (4+2*1).")
@click.option(
    "--run", "runs", multiple=True, metavar="NAME=COMMAND", help="With --node: the command of a component; repeatable."
)
@click.option(
    "--master",
    "masters",
    multiple=True,
    metavar="[NAME=]HOST:PORT",
    help="MASTER_ADDR and MASTER_PORT; with --node, of one component; repeatable.",
)
@config_options
@set_option
@isolate_option
def exec(  # the name of the command
    *,
    file: str,
    command: tuple[str, ...],
    component: str | None,
    rank: int | None,
    rank_from: str | None,
    node: str | None,
    runs: tuple[str, ...],
    masters: tuple[str, ...],
    choice: Choice,
    isolate: bool | None,
) -> None:
    """Start one rank, or all ranks of a node, with the environment, devices and CPUs of the plan.

    FILE is a config or a saved plan. With --rank or --rank-from, this process becomes COMMAND. With --node, it starts
    the command of each component for each of its ranks on that node, forwards signals to them, and ends the others if
    one fails; the exit code is that of the first that failed. Without --run, it starts the commands of a job that start
    their processes themselves, such as accelerate launch and a server of vLLM. No shell reads the commands.

    Without --master, MASTER_ADDR and MASTER_PORT stay as the launcher has set them; a missing MASTER_ADDR is the
    address of rank 0's node in the inventory. In a node group with an interpreter, it replaces python in a command.
    """
    if (node is None) == (rank is None and rank_from is None) or (rank is not None and rank_from is not None):
        raise click.UsageError("use --rank R, --rank-from VARIABLE or --node N")
    with faults_end_it():
        plan = planned(file, choice, isolate=isolate)
        if node is not None and not runs and not is_saved(opened(file)):
            check_node_commands(unplaced_job(opened(file), dialect=choice.dialect, overrides=overrides()))
        if node is not None:
            sys.exit(_node(plan, file, node, command, runs, masters))
        number = rank if rank is not None else _rank_in(rank_from or "")
        _become(plan, component_of(plan, component, file), number, command, runs, masters)


def _become(
    plan: Plan, component: str, rank: int, command: tuple[str, ...], runs: tuple[str, ...], masters: tuple[str, ...]
) -> None:
    if not command or runs:
        raise click.UsageError("write the command of the rank after --; --run is for --node")
    if rank >= len(plan[component]):
        raise click.UsageError(f"{component} has ranks 0-{len(plan[component]) - 1}; there is no rank {rank}")
    if len(masters) > 1:
        raise click.UsageError("use --master once: a rank has one rendezvous")
    process = rank_process(plan, component, rank, os.environ, _address(masters[0]) if masters else None)
    try:
        process.become(command)
    except OSError as error:
        cannot_start(error, process.arguments(command)[0])


def _node(
    plan: Plan, file: str, node: str, command: tuple[str, ...], runs: tuple[str, ...], masters: tuple[str, ...]
) -> int:
    if command or not (runs or node_commands(plan)):
        raise click.UsageError("with --node, write --run NAME=COMMAND for each component")
    number, commands, addresses = _node_rank(node), _by_component(plan, file, runs, "--run"), {}
    if number >= plan.inventory.num_nodes:
        raise click.UsageError(f"the plan has nodes 0-{plan.inventory.num_nodes - 1}; there is no node {number}")
    for name, text in _by_component(plan, file, masters, "--master").items():
        addresses[name] = _address(text)
    if not runs:
        return _run(node_processes(plan, number, os.environ, addresses), f"no command of the job runs on node {number}")
    ranks: list[tuple[RankProcess, Sequence[str]]] = []
    for name, text in commands.items():
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise click.BadParameter(f"{name}: {error}", param_hint="--run") from None
        if not words:
            raise click.BadParameter(f"the command of {name} is empty", param_hint="--run")
        here = [row.rank for row in plan[name] if row.cluster_node_rank == number]
        ranks += [(rank_process(plan, name, rank, os.environ, addresses.get(name)), words) for rank in here]
    return _run(ranks, f"no rank of {' or '.join(commands)} runs on node {number}")


def _run(ranks: Sequence[tuple[RankProcess, Sequence[str]]], none: str) -> int:
    """Run the commands of a node until they have ended; ``none`` says that there are none."""
    if not ranks:
        raise click.UsageError(none)
    try:
        return run_ranks(ranks, note)
    except OSError as error:
        cannot_start(error, error.filename)


def _by_component(plan: Plan, file: str, options: tuple[str, ...], option: str) -> dict[str, str]:
    """Return the values of NAME=VALUE options by component."""
    found: dict[str, str] = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        name = component_of(plan, name, file, option)
        if name in found:
            raise click.BadParameter(f"{name} is given twice", param_hint=option)
        found[name] = value
    return found


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not re.fullmatch("[0-9]{1,5}", port, re.ASCII) or not 0 < int(port) < 1 << 16:
        raise click.BadParameter(f"{text!r} is not HOST:PORT with a port from 1 to 65535", param_hint="--master")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _node_rank(text: str) -> int:
    """Return a node rank, or the value of a sum of products as launchers fill them in: ``0+4*2+1``."""
    ranks = node_ranks(text, "--node")
    if len(ranks) != 1:
        found = "a range of node ranks" if ranks else "a node outside the plan"
        raise click.BadParameter(f"{text} is {found}; it must be one node rank", param_hint="--node")
    return ranks[0]


def _rank_in(variable: str) -> int:
    value = os.environ.get(variable)
    if value is None or not re.fullmatch("[0-9]{1,9}", value, re.ASCII):
        found = "is not set" if value is None else f"is {value!r}"
        raise click.BadParameter(f"{variable} {found}; it must be a process rank", param_hint="--rank-from")
    return int(value)

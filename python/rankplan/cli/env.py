"""``rankplan env``: the environment of one rank, to start it by hand or with another launcher."""

from __future__ import annotations

import json
import re
import shlex
import string
from collections.abc import Mapping

import click

from rankplan.cli.common import (
    Choice,
    Component,
    InputFile,
    component_of,
    config_options,
    format_option,
    isolate_option,
    planned,
)
from rankplan.cli.output import faults_end_it
from rankplan.environment import (
    MASTER_VARIABLES,
    PATH_VARIABLES,
    REFERENCE,
    planned_environment,
    prepends,
    rank_environment,
    refers,
)
from rankplan.errors import printable
from rankplan.hardware.egl import VARIABLES
from rankplan.hardware.policies import BOUND
from rankplan.plans.nearby import network_variables
from rankplan.plans.plan import Plan
from rankplan.render.rows import address

_ADDRESS, _PORT = MASTER_VARIABLES
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_IN_QUOTES = re.compile(REFERENCE + r'|([\\"$`])')
_ALIKE = frozenset(string.ascii_letters + string.digits + "_./:,@%+=^!?*[]{}#-")


@click.command()
@click.argument("file", metavar="FILE", type=InputFile())
@click.option("--component", metavar="NAME", type=Component(), help="Component (optional if there is only one).")
@click.option("--rank", type=int, required=True, help="Process rank within the component.")
@format_option("sh", "dotenv", "json")
@click.option("--master-addr", metavar="HOST", help="MASTER_ADDR (default: address in the inventory).")
@click.option("--master-port", metavar="PORT", type=click.IntRange(1, 65535), help="MASTER_PORT (default: omitted).")
@config_options
@isolate_option
def env(
    *,
    file: str,
    component: str | None,
    rank: int,
    form: str,
    master_addr: str | None,
    master_port: int | None,
    choice: Choice,
    isolate: bool | None,
) -> None:
    """Print the environment of one rank.

    FILE is a config or a saved plan. On the node of the rank, eval "$(rankplan env ...)" sets the environment: the
    variables of the node group (the shell expands references such as $NAME, and keeps the folders that PATH and other
    lists of folders have), the ranks and devices, and the rendezvous. Comments name the source of each variable. A
    launch first sets the variables that the driver forwards, which are not known here.

    MASTER_ADDR is the ip or hostname of rank 0's node in the inventory. A launch picks a free port for MASTER_PORT;
    this command only prints the port that you pass. If the component has a binding, a comment has the CPUs for taskset.

    dotenv omits values that bash, dash, docker --env-file and python-dotenv would read differently, such as values with
    blanks, quotes, backslashes or $. A comment names each omitted variable (json: a line on stderr).
    """
    with faults_end_it():
        plan = planned(file, choice, isolate=isolate)
        name = component_of(plan, component, file)
        if rank not in range(len(plan[name])):
            raise click.BadParameter(f"{name} has ranks 0-{len(plan[name]) - 1}", param_hint="--rank")
        environment, notes = _environment(plan, name, rank, master_addr, master_port)
        if form == "json":
            click.echo("\n".join(notes), err=True)
            click.echo(json.dumps(environment, indent=2, ensure_ascii=False))
            return
        lines, omitted = written(environment, form)
        for note in notes + omitted:
            click.echo(f"# {printable(note)}")
        for line in lines:
            click.echo(line, color=True)  # keep escape sequences in values


def written(environment: Mapping[str, str], form: str) -> tuple[list[str], list[str]]:
    """Return the lines that set the variables (``form`` is sh or dotenv), and a note for each variable left out."""
    lines, notes = [], []
    for name, value in environment.items():
        if not _NAME.fullmatch(name):
            notes.append(f"{name} is omitted: a shell cannot set this name; use --format json")
        elif form == "sh":
            lines.append(f"export {name}={_shell(name, value)}")
        elif all(letter in _ALIKE or (letter > "\x7f" and letter.isprintable()) for letter in value):
            # Docker keeps quotes and backslashes, so only a value that needs none is the same for all readers.
            lines.append(f"{name}={value}")
        else:
            notes.append(f"{name} is omitted: shells, docker and dotenv would disagree on its value; use sh or json")
    return lines, notes


def _environment(
    plan: Plan, component: str, rank: int, addr: str | None, port: int | None
) -> tuple[dict[str, str], list[str]]:
    """Return the environment and notes about it."""
    row = plan[component][rank]
    of_group, interpreter = plan.inventory.environment(row.cluster_node_rank, row.node_group_label)
    of_network = network_variables(plan[component], row)
    of_network = {name: value for name, value in of_network.items() if name not in of_group}
    first_node = plan[component][0].cluster_node_rank
    host = addr or address(plan.inventory, first_node)
    env_vars = of_network | _prepended(of_group)
    environment = rank_environment(row, master_addr=host or "", master_port=port or 0, env_vars=env_vars)

    where = address(plan.inventory, row.cluster_node_rank)
    notes = [f"{component} rank {rank}, on node {row.cluster_node_rank}{f' ({where})' if where else ''}"]
    if interpreter is not None:
        notes.append(f"interpreter: {interpreter}")
    if of_group:
        notes.append(f"from node group {row.node_group_label}: {' '.join(of_group)}")
    if of_network:
        notes.append(f"from the nearest network cards: {' '.join(of_network)}")
    notes.append(f"from the plan: {' '.join(planned_environment(row))}")
    notes += _start_notes(plan, component, rank)
    if host is None:
        del environment[_ADDRESS]
        notes.append(f"{_ADDRESS} is omitted: node {first_node} has no address in the inventory; pass --master-addr")
    if port is None:
        del environment[_PORT]
        notes.append(f"{_PORT} is omitted: pass --master-port, the same for every rank of {component}")
    return environment, notes


def _prepended(of_group: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a node group, with a reference to its old value in a list of folders that lacks one."""
    variables = dict(of_group)
    for name, value in of_group.items():
        if prepends(name, of_group, {}) and not refers(value, name):
            variables[name] = f"{value}:${{{name}}}"
    return variables


def _start_notes(plan: Plan, component: str, rank: int) -> list[str]:
    """Return how to start a rank so that it is bound as planned, and what only its node can tell."""
    notes = []
    bound = plan[component].bound(rank)
    if bound.cpus:
        notes.append(f"CPUs: start it with taskset --cpu-list {bound.cpus}")
    if bound.memory_nodes:
        policy = "membind" if bound.memory == BOUND else "preferred-many"
        notes.append(f"memory: start it with numactl --{policy}={bound.memory_nodes}")
    if plan[component].egl and plan[component][rank].num_accelerators:
        notes.append(f"{' and '.join(VARIABLES)} are omitted: a launch asks EGL on the node")
    return notes


def _shell(name: str, value: str) -> str:
    """Return a value quoted for a shell, which expands references to other variables.

    A list of folders that ends with the present one has no empty entry if there is none.
    """
    if not re.search(REFERENCE, value):
        return shlex.quote(value)
    present = f":${{{name}}}"
    if name in PATH_VARIABLES and value.endswith(present):
        return f'"{_IN_QUOTES.sub(_quoted, value.removesuffix(present))}${{{name}:+:${name}}}"'
    return f'"{_IN_QUOTES.sub(_quoted, value)}"'


def _quoted(found: re.Match[str]) -> str:
    """Return a reference or a special character for use between double quotes.

    A reference expands as in a launch: if NAME is unset, ``${NAME}`` is empty and ``$NAME`` is kept.
    """
    name, braced, special = found.groups()
    if special is not None:
        return f"\\{special}"
    if name is not None:
        return f"${{{name}-\\${name}}}" if _NAME.fullmatch(name) else f"\\${name}"
    return f"${{{braced}-}}" if _NAME.fullmatch(braced) else ""

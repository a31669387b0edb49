"""``rankplan env``: the environment of one rank, to start it by hand or with another launcher."""

from __future__ import annotations

import json
import re
import shlex

import click

from rankplan.cli.common import (
    Component,
    InventoryChoice,
    component_of,
    dialect_option,
    faults_end_it,
    inventory_options,
    isolate_option,
    planned,
)
from rankplan.environment import MASTER_VARIABLES, REFERENCE, rank_environment
from rankplan.plan import Plan
from rankplan.render.hosts import address

_ADDRESS, _PORT = MASTER_VARIABLES
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--component", metavar="NAME", type=Component(), help="The component; needed where there are several.")
@click.option("--rank", type=int, required=True, help="The process rank in the component.")
@click.option("--format", "form", type=click.Choice(["sh", "dotenv", "json"]), default="sh", show_default=True)
@click.option("--master-addr", metavar="HOST", help="MASTER_ADDR; without, the address that the inventory has.")
@click.option("--master-port", metavar="PORT", type=click.IntRange(1, 65535), help="MASTER_PORT; without, left out.")
@inventory_options
@dialect_option
@isolate_option
def env(
    file: str,
    component: str | None,
    rank: int,
    form: str,
    master_addr: str | None,
    master_port: int | None,
    choice: InventoryChoice,
    dialect_name: str | None,
    isolate: bool | None,
) -> None:
    """Print the environment of one rank of a config or a saved plan.

    On the node of the rank, eval "$(rankplan env ...)" sets it. It has the variables of the node group (what they take
    from other variables, $NAME, is left to the reader), of the plan, and of the rendezvous of the component.

    MASTER_ADDR is the ip or the hostname of rank 0's node, where the inventory has one. A launch picks a free
    MASTER_PORT there; here it is only what you give. What is left out is said in a comment, for json on the standard
    error.
    """
    with faults_end_it():
        plan = planned(file, choice, dialect_name, isolate)
        name = component_of(plan, component, file)
        if rank not in range(len(plan[name])):
            raise click.BadParameter(f"{name} has the ranks 0-{len(plan[name]) - 1}", param_hint="--rank")
        environment, notes = _environment(plan, name, rank, master_addr, master_port)
        if form == "json":
            for note in notes:
                click.echo(note, err=True)
            click.echo(json.dumps(environment, indent=2, ensure_ascii=False))
            return
        prefix, quoted = ("export ", _shell) if form == "sh" else ("", _dotenv)
        unsaid = [variable for variable in environment if not _NAME.fullmatch(variable)]
        for note in [*notes, *(f"no {variable}: not a name that can be set here; use json" for variable in unsaid)]:
            # Names come from configs and inventories: none of them may end the comment.
            click.echo("# " + "".join(letter if letter.isprintable() else "?" for letter in note))
        for variable, value in environment.items():
            if variable not in unsaid:
                # A value that has colours keeps them, wherever it goes.
                click.echo(f"{prefix}{variable}={quoted(value)}", color=True)


def _environment(
    plan: Plan, component: str, rank: int, addr: str | None, port: int | None
) -> tuple[dict[str, str], list[str]]:
    """Return the environment, and what is to be known beside it."""
    row, first = plan[component][rank], plan[component][0].cluster_node_rank
    env_vars, interpreter = plan.inventory.environment(row.cluster_node_rank, row.node_group_label)
    host = addr or address(plan.inventory, first)
    environment = rank_environment(row, master_addr=host or "", master_port=port or 0, env_vars=env_vars)
    where = address(plan.inventory, row.cluster_node_rank)
    notes = [f"{component} rank {rank}, on node {row.cluster_node_rank}{f' ({where})' if where else ''}"]
    if interpreter is not None:
        notes.append(f"its interpreter is {interpreter}")
    if host is None:
        del environment[_ADDRESS]
        notes.append(f"no {_ADDRESS}: the inventory has no address of node {first}; give --master-addr")
    if port is None:
        del environment[_PORT]
        notes.append(f"no {_PORT}: give --master-port, the same to all ranks of {component}")
    return environment, notes


def _shell(value: str) -> str:
    """Return a value as a shell takes it; what refers to a variable of the node is left for the shell to fill in."""
    if not REFERENCE.search(value):
        return shlex.quote(value)
    parts, end = [], 0
    for found in REFERENCE.finditer(value):
        parts += [_literal(value[end : found.start()]), _reference(found[1], found[2])]
        end = found.end()
    return f'"{"".join(parts)}{_literal(value[end:])}"'


def _reference(name: str | None, braced: str | None) -> str:
    """Return a reference as a launch reads it: without such a variable ``${NAME}`` is nothing, and ``$NAME`` itself."""
    if name is not None:
        return f"${{{name}-\\${name}}}" if _NAME.fullmatch(name) else f"\\${name}"
    return f"${{{braced}-}}" if _NAME.fullmatch(braced or "") else ""


def _literal(text: str) -> str:
    """Return a part of a text between double quotes."""
    return re.sub(r'([\\"$`])', r"\\\1", text)


def _dotenv(value: str) -> str:
    if re.fullmatch(r"[\w./:,@%+=-]*", value, re.ASCII):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'

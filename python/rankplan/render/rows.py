"""A plan for other programs: JSON, CSV, NumPy, and the hostfiles and rankfiles of Open MPI."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any, TextIO

from rankplan._core import RankSet
from rankplan.errors import RankplanError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.render.lines import coordinates_of
from rankplan.render.tables import is_bound

_COLUMNS = (
    "rank",
    "cluster_node_rank",
    "placement_node_rank",
    "local_rank",
    "local_world_size",
    "local_hardware_ranks",
    "devices",
    "accelerator_type",
    "visible_accelerators",
    "local_accelerator_rank",
    "isolate_accelerator",
    "node_group_label",
)


def plain_rows(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield every process of the plan, by component and rank.

    ``cpus`` is present if a component selects CPUs: a text such as ``0-7,16-23``, or ``None`` for any.
    ``coordinates`` has those of each slot, or is ``None`` if the component states no parallel sizes.
    """
    bound = is_bound(plan)
    for component, placements in plan.items():
        for row in placements:
            plain = {"component": component} | {name: getattr(row, name) for name in _COLUMNS}
            if bound:
                cpus = placements.cpus(row.rank)
                plain["cpus"] = None if cpus is None else str(cpus)
            yield plain | {"coordinates": coordinates_of(placements, row.rank)}


def write_json(plan: Plan, file: TextIO) -> None:
    """Write a JSON list, one process per line."""
    separator = "[\n"
    for row in plain_rows(plan):
        file.write(separator + json.dumps(row))
        separator = ",\n"
    file.write("\n]\n" if separator != "[\n" else "[]\n")


def write_csv(plan: Plan, file: TextIO) -> None:
    """Write CSV with a header; items of a list are separated by blanks, a device is ``node:local index``.

    Coordinates are ``kind:number``; those of several slots are separated by semicolons.
    """
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["component", *_COLUMNS, *(["cpus"] if is_bound(plan) else []), "coordinates"])
    for row in plain_rows(plan):
        slots = row.pop("coordinates") or []
        cells = [" ".join(map(_cell, value)) if isinstance(value, list) else value for value in row.values()]
        writer.writerow([*cells, ";".join(" ".join(map(_cell, slot.items())) for slot in slots)])


def npz(plan: Plan) -> bytes:
    """Return the columns of every component, named ``component.column``, as an ``.npz`` file.

    Raises `RankplanError` if NumPy is not installed.
    """
    try:
        import numpy
    except ImportError:
        raise RankplanError("NumPy is not installed; run pip install numpy") from None
    columns = {
        f"{name}.{key}": column for name, component in plan.items() for key, column in component.to_numpy().items()
    }
    file = io.BytesIO()
    numpy.savez(file, **columns)
    return file.getvalue()


def _cell(item: Any) -> str:
    return ":".join(map(str, item)) if isinstance(item, tuple) else str(item)


def hostfile(plan: Plan, component: str) -> Iterator[str]:
    """Yield ``host slots=n`` for each node, in rank order: n processes of the component run there.

    Raises `RankplanError` for a node without an address, for an address that Open MPI cannot read, and if ranks on a
    host are not consecutive.
    """
    seen = set()
    for node, rows in groupby(plan[component], key=lambda row: row.cluster_node_rank):
        host = _host(plan.inventory, node)
        if host is None:
            raise RankplanError(
                f"node {node} has no address\n"
                "help: add an `ip` or a `hostname` to each node of the inventory (--inventory), "
                "or use a rankfile, which numbers the hosts given to mpirun"
            )
        if host in seen:
            raise RankplanError(
                f"ranks of {component} on host {host} are not consecutive; a hostfile fills one host after another\n"
                "help: use a rankfile, which has one line per rank"
            )
        seen.add(host)
        yield f"{host} slots={sum(1 for _ in rows)}\n"


def rankfile(plan: Plan, component: str) -> Iterator[str]:
    """Yield ``rank n=host slot=m`` for each process.

    The host is an address, or ``+n`` with the node rank if a node has no address. A slot is a CPU core as Open MPI
    counts them, socket by socket; without a binding or without facts about the cores, it is the local rank. Raises
    `RankplanError` for an address that Open MPI cannot read.
    """
    nodes = {row.cluster_node_rank for row in plan[component]}
    hosts = {node: _host(plan.inventory, node) for node in nodes}
    relative = None in hosts.values()
    for row in plan[component]:
        node = row.cluster_node_rank
        slot = _cores(plan, component, row.rank) or row.local_rank
        yield f"rank {row.rank}={f'+n{node}' if relative else hosts[node]} slot={slot}\n"


def _cores(plan: Plan, component: str, rank: int) -> RankSet | None:
    """Return the numbers of the cores that a process is bound to, ``None`` if they are unknown."""
    found = plan[component]
    cpus, machine = found.cpus(rank), plan.inventory.node(found[rank].cluster_node_rank).machine
    if cpus is None or machine is None:
        return None
    return RankSet(number for number, core in enumerate(machine.ordered_cores()) if core & cpus) or None


def _host(inventory: Inventory, node_rank: int) -> str | None:
    """Return the address; blanks, line ends, = and # have a meaning in Open MPI's files."""
    host = address(inventory, node_rank)
    if host is not None and re.search(r"[\s=#]", host):
        raise RankplanError(
            f"Open MPI cannot read the address {host!r} of node {node_rank} as one host\n"
            "help: change its `ip` or `hostname` in the inventory"
        )
    return host


def address(inventory: Inventory, node_rank: int) -> str | None:
    """Return the address of a node for a launcher: its ip, else its hostname, else None."""
    node = inventory.node(node_rank)
    return node.ip or node.hostname

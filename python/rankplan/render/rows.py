"""A plan for other programs: JSON, CSV, NumPy, and the hostfiles and rankfiles of Open MPI."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from types import SimpleNamespace
from typing import Any

from rankplan._core import Placement, RankSet
from rankplan.errors import RankplanError
from rankplan.hardware.machine import Machine
from rankplan.memory.need import whole
from rankplan.memory.rows import ProcessNeeds
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.node import machine_of
from rankplan.plans.component import Component, reserves
from rankplan.plans.plan import Plan
from rankplan.render.lines import coordinates_of
from rankplan.render.tables import is_bound

_COLUMNS = (
    *("rank", "cluster_node_rank", "placement_node_rank", "local_rank", "local_world_size", "local_hardware_ranks"),
    *("devices", "accelerator_type", "visible_accelerators", "local_accelerator_rank", "isolate_accelerator"),
    "node_group_label",
)

_RESERVED = ("cpus_per_process", "host_memory_per_process")


def plain_rows(plan: Plan, needs: ProcessNeeds | None = None) -> Iterator[dict[str, Any]]:
    """Yield every process of the plan, by component and rank.

    ``cpus`` is present if a component selects CPUs: a text such as ``0-7,16-23``, or ``None`` for any.
    ``cpus_per_process`` and ``host_memory_per_process`` (MiB) are present if a component reserves any.
    ``coordinates`` has those of each slot, or is ``None`` if the component states no parallel sizes. With ``needs``,
    ``memory_lower``, ``memory_likely`` and ``memory_upper`` have bytes by phase, ``None`` where nothing is known, and
    ``memory_of`` is the memory of the accelerator, ``None`` if it is unknown.
    """
    bound, reserving = is_bound(plan), any(map(reserves, plan.values()))
    for component, placements in plan.items():
        amounts = {name: getattr(placements, name) for name in _RESERVED} if reserving else {}
        for row in placements:
            plain = {"component": component} | {name: getattr(row, name) for name in _COLUMNS}
            if bound:
                cpus = placements.cpus(row.rank)
                plain["cpus"] = None if cpus is None else str(cpus)
            yield (
                plain | amounts | {"coordinates": coordinates_of(placements, row.rank)} | _memory(needs, row, component)
            )


def _memory(needs: ProcessNeeds | None, row: Placement, component: str) -> dict[str, Any]:
    if needs is None:
        return {}
    phases = needs.of(row, component)
    worst = needs.worst(component, [row])
    return {
        "memory_lower": {phase: int(need.lower) for phase, need in phases.items()},
        "memory_likely": {phase: None if need.likely is None else int(need.likely) for phase, need in phases.items()},
        "memory_upper": {phase: whole(need.upper) for phase, need in phases.items()},
        "memory_of": None if worst is None or worst.card is None else int(worst.card[1]),
    }


def json_list(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a JSON list, one entry per line."""
    separator = "[\n"
    for entry in entries:
        yield separator + json.dumps(entry)
        separator = ",\n"
    yield "\n]\n" if separator != "[\n" else "[]\n"


def csv_rows(plan: Plan) -> Iterator[str]:
    """Yield CSV with a header; items of a list are separated by blanks, a device is ``node:local index``.

    Coordinates are ``kind:number``; those of several slots are separated by semicolons.
    """
    writer = csv.writer(SimpleNamespace(write=str), lineterminator="\n")  # writerow returns the line
    yield writer.writerow(["component", *_COLUMNS, *_more_columns(plan), "coordinates"])
    for row in plain_rows(plan):
        slots = row.pop("coordinates") or []
        cells = [" ".join(map(_cell, value)) if isinstance(value, list) else value for value in row.values()]
        yield writer.writerow([*map(_inert, cells), ";".join(" ".join(map(_cell, slot.items())) for slot in slots)])


def _more_columns(plan: Plan) -> list[str]:
    """Return the columns that only some plans have, as `plain_rows` does."""
    columns = ["cpus"] if is_bound(plan) else []
    return [*columns, *_RESERVED] if any(map(reserves, plan.values())) else columns


def _inert(cell: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula: OWASP's "CSV Injection" puts a quote before it."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def npz(plan: Plan, needs: ProcessNeeds | None) -> bytes:
    """Return the columns of every component, named ``component.column``, as an ``.npz`` file.

    With ``needs``, ``memory_lower.phase`` and ``memory_upper.phase`` are bytes by process, 0 where a process has no
    such phase, and infinite for no bound.

    Raises `RankplanError` if NumPy is not installed.
    """
    try:
        import numpy
    except ImportError:
        raise RankplanError("NumPy is not installed; run pip install numpy") from None
    columns = {name: component.to_numpy() for name, component in plan.items()}
    if needs is not None:
        columns = {name: columns[name] | _memory_columns(needs, name, component) for name, component in plan.items()}
    file = io.BytesIO()
    numpy.savez(file, **{f"{name}.{key}": values for name, found in columns.items() for key, values in found.items()})
    return file.getvalue()


def _memory_columns(needs: ProcessNeeds, name: str, component: Component) -> dict[str, Any]:
    import numpy

    found: dict[str, Any] = {}
    for first, times, phases in needs.runs(name, component):
        for phase in {phase: None for one in phases for phase in one}:
            bounds = [(one[phase].lower, one[phase].upper) if phase in one else (0.0, 0.0) for one in phases]
            for column, values in zip(("memory_lower", "memory_upper"), zip(*bounds, strict=True), strict=True):
                whole_column = found.setdefault(f"{column}.{phase}", numpy.zeros(len(component)))
                whole_column[first : first + times * len(phases)] = numpy.tile(values, times)
    return found


def _cell(item: Any) -> str:
    return ":".join(map(str, item)) if isinstance(item, tuple) else str(item)


def hostfile(plan: Plan) -> Iterator[str]:
    """Yield ``host slots=n`` for each node, in rank order: n processes of the only component run there.

    Raises `RankplanError` for a node without an address, and if ranks on a
    host are not consecutive.
    """
    (component,) = plan
    seen = set()
    for node, rows in groupby(plan[component], key=lambda row: row.cluster_node_rank):
        host = address(plan.inventory, node)
        if host is None:
            raise RankplanError(
                f"node {node} has no address\n"
                "help: add an `ip` or a `hostname` to each node of the inventory (--inventory), "
                "or use a rankfile in the allocation of a resource manager, whose hosts it numbers"
            )
        if host in seen:
            raise RankplanError(
                f"ranks of {component} on host {host} are not consecutive; a hostfile fills one host after another\n"
                "help: use a rankfile, which has one line per rank"
            )
        seen.add(host)
        yield f"{host} slots={sum(1 for _ in rows)}\n"


def rankfile(plan: Plan) -> Iterator[str]:
    """Yield ``rank n=host slot=m`` for each process of the only component.

    The host is an address, or ``+n`` with the node rank if a node has no address. A slot is a CPU core as Open MPI
    counts them, socket by socket; without a binding or without facts about the cores, it is the local rank.
    """
    (component,) = plan.values()
    hosts = {node: address(plan.inventory, node) for node in {row.cluster_node_rank for row in component}}
    relative = None in hosts.values()
    for row in component:
        node = row.cluster_node_rank
        slot = _cores(component, row.rank, machine_of(plan.inventory.node(node))) or row.local_rank
        yield f"rank {row.rank}={f'+n{node}' if relative else hosts[node]} slot={slot}\n"


def _cores(component: Component, rank: int, machine: Machine | None) -> RankSet | None:
    """Return the numbers of the cores that a process is bound to, ``None`` if they are unknown."""
    cpus = component.cpus(rank)
    if cpus is None or machine is None:
        return None
    return RankSet(number for number, core in enumerate(machine.ordered_cores()) if core & cpus) or None


def address(inventory: Inventory, node_rank: int) -> str | None:
    """Return the address of a node for a launcher: its ip, else its hostname, else None."""
    node = inventory.node(node_rank)
    return node.ip or node.hostname

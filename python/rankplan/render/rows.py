"""Rows of a plan for programs: JSON, CSV and NumPy."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any, TextIO

from rankplan.errors import RankplanError
from rankplan.plans.plan import Plan
from rankplan.render.groups import coordinates_of
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

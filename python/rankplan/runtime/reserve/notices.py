"""Notices: one named record per node of the accelerators that each job uses, which Ray deletes with the job.

A record is an empty placement group: it has no process, takes 3 ms, and Ray removes it as soon as the driver that made
it has ended, however it ended. Its only bundle takes a ten-thousandth of the resource that names its node, and nothing
that jobs ask for. Its name is the record, in JSON.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import placement_group_table

from rankplan._core import Placement, RankSet
from rankplan.errors import printable
from rankplan.frozen import frozen
from rankplan.runtime.nodes.nodes import Nodes, live_nodes
from rankplan.runtime.ray.answers import ranks_text
from rankplan.runtime.ray.asking import ask
from rankplan.runtime.ray.connection import Connection
from rankplan.runtime.reserve.groups import NamedGroups
from rankplan.words import listed, ranges_text, shown

_KEY = "rankplan notice"
_AMOUNT = 0.0001
_MOST_NODES = 4
_MOST_OVERLAPS = 4
_LONGEST = 120  # characters of a name in another job's record

Ranks = dict[int, RankSet]
"""The ranks that use each accelerator of a node, by local index."""


@frozen
class Overlap:
    """A component of another job, and its ranks on the accelerators that this job wants, by node rank."""

    holder: str
    component: str
    nodes: dict[int, Ranks]

    def __str__(self) -> str:
        ranks = RankSet(chain.from_iterable(chain.from_iterable(map(Ranks.values, self.nodes.values()))))
        places = [
            f"accelerator{'s' if len(used) > 1 else ''} {ranges_text(RankSet(used))} of node {node}"
            for node, used in self.nodes.items()
        ]
        used_places = listed(places, _MOST_NODES, noun="node")
        return f"{self.holder} uses {used_places} for {self.component} {ranks_text(ranks)}"


class Notice:
    """The records of some components of this job; ``withdraw`` removes them."""

    def __init__(self, connection: Connection, nodes: Nodes, components: Mapping[str, Iterable[Placement]]) -> None:
        self._nodes = nodes
        self._uses = {name: _uses(rows) for name, rows in components.items()}
        self._records = NamedGroups(connection)
        self._names: dict[int, str] = {}

    def post(self) -> None:
        """Record the used accelerators of each node."""
        names = {node_id: _own_resource(entry) for node_id, entry in live_nodes().items()}
        record = {_KEY: 1, "job": _job(), "by": _program(), "id": uuid.uuid4().hex[:8]}
        for node in sorted({node for nodes in self._uses.values() for node in nodes}):
            node_id = self._nodes.ids[node]
            if (resource := names.get(node_id)) is None:
                continue  # it has left the cluster, which the launch will report
            uses = {
                name: {index: str(ranks) for index, ranks in nodes[node].items()}
                for name, nodes in self._uses.items()
                if node in nodes
            }
            text = json.dumps({**record, "node": node_id, "uses": uses}, separators=(",", ":"))
            self._names[node] = text
            self._records.create(text, [{resource: _AMOUNT}])

    def overlaps(self) -> list[Overlap]:
        """Return the components of other jobs that use some of these accelerators.

        Of two jobs that start at the same time, at least one sees the other if both post before they look.
        """
        wanted: dict[str, tuple[int, set[int]]] = {}
        for uses in self._uses.values():
            for node, used in uses.items():
                wanted.setdefault(self._nodes.ids[node], (node, set()))[1].update(used)
        found: dict[tuple[str, str], dict[int, Ranks]] = {}
        for record in _records():
            if record.job == _job() or record.node not in wanted:
                continue
            node, indices = wanted[record.node]
            for component, used in record.uses.items():
                if both := {index: ranks for index, ranks in used.items() if index in indices}:
                    place = found.setdefault((f"job {record.job} ({record.by})", component), {})
                    place[node] = place.get(node, {}) | both
        return [Overlap(holder, name, dict(sorted(nodes.items()))) for (holder, name), nodes in sorted(found.items())]

    def leave(self, node: int) -> None:
        """Remove the record of a node, if there is one."""
        if (name := self._names.pop(node, None)) is not None:
            self._records.remove(name)

    def withdraw(self) -> None:
        """Remove the records; may be called again."""
        self._records.end()


def is_notice(name: str) -> bool:
    """Whether this is the name of a record."""
    return name.startswith(f'{{"{_KEY}":')


def _uses(rows: Iterable[Placement]) -> dict[int, Ranks]:
    """Return the accelerators that these processes use, by node rank."""
    ranks: dict[int, dict[int, list[int]]] = {}
    for row in rows:
        for node, index in row.devices if row.num_accelerators else ():
            ranks.setdefault(node, {}).setdefault(index, []).append(row.rank)
    return {node: {index: RankSet(users) for index, users in sorted(used.items())} for node, used in ranks.items()}


def overlap_lines(overlaps: Sequence[Overlap]) -> list[str]:
    """Return the overlaps as messages list them: the first ones, and how many more there are."""
    lines = [str(overlap) for overlap in overlaps[:_MOST_OVERLAPS]]
    left = len(overlaps) - _MOST_OVERLAPS
    if left > 0:
        lines.append(f"{left:,} more components of other jobs")
    return lines


@frozen
class _Record:
    """The uses of a node, by Ray's id of it, that the program ``by`` of a job has recorded: ranks by component."""

    node: str
    job: str
    by: str
    uses: dict[str, Ranks]

    @classmethod
    def read(cls, name: str) -> _Record | None:
        """Return the record that a name is, ``None`` if another program, or another version, has written it."""
        try:
            found = json.loads(name)
            node, job, by = (_text(found[key]) for key in ("node", "job", "by"))
            uses = {
                _text(component): {int(index): RankSet(_text(ranks, None)) for index, ranks in used.items()}
                for component, used in found["uses"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return cls(node, job, by, uses)


def _text(value: object, longest: int | None = _LONGEST) -> str:
    """Return a text without control characters, and not long. Raises ``TypeError`` for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"a text is expected, not {shown(value)}")
    return printable(value[:longest])


def _records() -> Iterator[_Record]:
    """Yield the records of all jobs."""
    for entry in ask(placement_group_table).values():
        if entry["state"] == "REMOVED" or not is_notice(entry["name"]):
            continue
        if (record := _Record.read(entry["name"])) is not None:
            yield record


def _own_resource(entry: Mapping[str, Any]) -> str | None:
    """Return the resource that every node has for itself, ``node:`` and its address."""
    names = (name for name in entry["Resources"] if name.startswith("node:") and not name.startswith("node:__"))
    return next(names, None)


def _job() -> str:
    return str(ray.get_runtime_context().get_job_id())


def _program() -> str:
    name = Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-c") else "python"
    return f"{name}, process {os.getpid()} on {socket.gethostname()}"

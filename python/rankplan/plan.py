"""The plan: the placements of all components over one inventory."""

from __future__ import annotations

import json
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, islice, zip_longest
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from rankplan._core import Placement, Placements, RankSet
from rankplan.config.models import ACCELERATOR, WHOLE_NODE, ClusterSection
from rankplan.errors import Diagnostic, PlacementError
from rankplan.files import write_whole
from rankplan.inventory import Inventory
from rankplan.occupancy import NodeKind, node_kinds, runs
from rankplan.words import did_you_mean

FORMAT = 1
"""Version of the file format; a reader refuses those it does not know."""


@dataclass(frozen=True, slots=True)
class Move:
    """A process that is elsewhere in the other plan, sees other devices, or is placed through another node group.

    Without ``before`` it appeared, without ``after`` it went.
    """

    component: str
    rank: int
    before: Placement | None
    after: Placement | None


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """What changes from one plan to another; false when nothing does."""

    moved: tuple[Move, ...]
    appeared: tuple[Move, ...]
    went: tuple[Move, ...]

    def __bool__(self) -> bool:
        return bool(self.moved or self.appeared or self.went)

    def __repr__(self) -> str:
        return f"<PlanDiff: {len(self.moved)} moved, {len(self.appeared)} appeared, {len(self.went)} went>"


@dataclass(frozen=True, slots=True)
class Sharing:
    """Which components use the same accelerators.

    ``kind`` is ``collocated`` when all components use the same ones, ``disaggregated`` when no two have one in common,
    else ``hybrid``. ``pairs`` has, for any two components that share, what they share: local indices by node rank.
    Components without accelerators do not count.
    """

    kind: str
    pairs: dict[tuple[str, str], dict[int, RankSet]]

    def __repr__(self) -> str:
        return f"<Sharing: {self.kind}, pairs: {len(self.pairs)}>"


@dataclass(frozen=True, slots=True)
class Oversubscription:
    """Accelerators that more than one process uses each, the same number of the same components.

    ``processes`` is how many of each component; ``accelerators`` are local indices by node rank.
    """

    processes: dict[str, int]
    accelerators: dict[int, RankSet]


class Plan(Mapping[str, Placements]):
    """Where every process of every component runs: a mapping from component to `Placements`, and the inventory.

    Raises ``ValueError`` for a slice of a component's rows.
    """

    def __init__(self, inventory: Inventory, components: Mapping[str, Placements]) -> None:
        self._inventory = inventory
        self._components = dict(components)
        for name, rows in self._components.items():
            if not rows.whole:
                raise ValueError(f"component {name!r}: a plan has all rows of a component, and this is a slice of them")

    @property
    def inventory(self) -> Inventory:
        """The nodes of the plan, and its node groups."""
        return self._inventory

    @property
    def components(self) -> list[str]:
        """Names of the components."""
        return list(self._components)

    def __getitem__(self, component: str) -> Placements:
        try:
            return self._components[component]
        except KeyError:
            help = did_you_mean(str(component), self._components, "the components are")
            raise KeyError(f"component {component!r} is not in the plan; {help}") from None

    def __contains__(self, component: object) -> bool:
        return component in self._components

    def __iter__(self) -> Iterator[str]:
        return iter(self._components)

    def __len__(self) -> int:
        return len(self._components)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return self._inventory == other._inventory and self._components == other._components

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {len(rows)}" for name, rows in islice(self._components.items(), 8))
        sizes += f" and {len(self) - 8} more" if len(self) > 8 else ""
        return f"<Plan of {sizes or 'nothing'} on {self._inventory.num_nodes} nodes>"

    def idle(self) -> dict[int, RankSet]:
        """Return the accelerators that no component uses: local indices by node rank."""
        used = RankSet()
        for rows in self._components.values():
            used = used | rows.accelerators()
        return self._inventory.core.by_node(self._inventory.core.accelerators() - used)

    def sharing(self) -> Sharing:
        """Return which components use the same accelerators."""
        used = {name: devices for name, rows in self._components.items() if (devices := rows.accelerators())}
        # Many components use the same accelerators: what two of them share is found once for all such pairs.
        shared: dict[tuple[RankSet, RankSet], dict[int, RankSet]] = {}
        pairs = {}
        for first, second in combinations(used, 2):
            key = used[first], used[second]
            if key not in shared and (both := key[0] & key[1]):
                shared[key] = self._inventory.core.by_node(both)
            if key in shared:
                pairs[first, second] = shared[key]
        if not pairs:
            return Sharing("disaggregated", pairs)
        return Sharing("collocated" if len(set(used.values())) == 1 else "hybrid", pairs)

    def oversubscribed(self) -> list[Oversubscription]:
        """Return the accelerators that more than one process uses, by who these are, in the order of the nodes."""
        crowds: dict[tuple[tuple[str, int], ...], dict[int, RankSet]] = {}
        for kind in self.node_kinds:
            users: dict[int, Counter[str]] = {}
            for stay in kind.stays:
                for index in chain.from_iterable(stay.devices) if stay.resource == ACCELERATOR else ():
                    users.setdefault(index, Counter())[stay.component] += 1
            here: dict[tuple[tuple[str, int], ...], list[int]] = {}
            for index in sorted(users):
                if users[index].total() > 1:
                    here.setdefault(tuple(users[index].items()), []).append(index)
            for crowd, indices in here.items():
                crowds.setdefault(crowd, {}).update(dict.fromkeys(kind.nodes, RankSet(indices)))
        return [Oversubscription(dict(crowd), dict(sorted(where.items()))) for crowd, where in crowds.items()]

    @cached_property
    def node_kinds(self) -> list[NodeKind]:
        """The nodes by what they have and what runs on them, equal ones together."""
        return node_kinds(self._inventory, self._components)

    def diff(self, other: Plan) -> PlanDiff:
        """Return what changes from this plan to the other: processes that move, appear or go."""
        moved: list[Move] = []
        appeared: list[Move] = []
        went: list[Move] = []
        for move in self.changes(other):
            (appeared if move.before is None else went if move.after is None else moved).append(move)
        return PlanDiff(tuple(moved), tuple(appeared), tuple(went))

    def changes(self, other: Plan) -> Iterator[Move]:
        """Yield what `diff` returns, component after component and in rank order, one process at a time."""
        for name in dict.fromkeys([*self._components, *other._components]):
            here, there = self._components.get(name), other._components.get(name)
            if here == there:
                continue
            for rank, (old, new) in enumerate(zip_longest(here or (), there or ())):
                if old is None or new is None or _place(old) != _place(new):
                    yield Move(name, rank, old, new)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON; the file is there whole or not at all. The same plan always gives the same bytes.

        Raises ``OSError`` when it cannot be written.
        """
        section = self._inventory.section
        content = {
            "rankplan": FORMAT,
            "inventory": self._inventory.to_dict(),
            "cluster": section.model_dump(mode="json") if section else None,
            "components": {name: _described(rows) for name, rows in self._components.items()},
        }
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
        write_whole(Path(path), f"{{\n{lines}\n}}\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a saved plan; it equals the one that was saved.

        Raises `PlacementError` (``invalid-plan``) when the file is not a plan of a known version or contradicts itself,
        ``OSError`` when it cannot be read.
        """
        file = os.fspath(path)
        text = Path(file).read_bytes()
        try:
            content = json.loads(text)
            found = content.get("rankplan") if isinstance(content, dict) else None
            if type(found) is not int or found != FORMAT:
                message = f"the file is not a plan of version {FORMAT}" + (
                    f" but of {found!r}" if found is not None else ""
                )
                raise _refused(message, file)
            inventory = Inventory.from_dict(content["inventory"])
            if content["cluster"] is not None:
                inventory = inventory.with_config(ClusterSection.model_validate(content["cluster"]))
            if not all(map(str.isprintable, content["components"])):
                raise _refused("the name of a component has what cannot be printed", file)
            rows = {name: _restored(inventory, state) for name, state in content["components"].items()}
        except JSONDecodeError as error:
            where = f"line {error.lineno}, column {error.colno}"
            raise _refused(f"the file is not a plan: its JSON breaks off or is wrong at {where}", file) from None
        except PlacementError as error:
            if error.code == "invalid-plan" and error.file:
                raise
            raise _refused(error.message, file) from None
        except KeyError as error:
            raise _refused(f"the file is not a plan: {error} is missing in its content", file) from None
        except (
            ValueError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as error:
            raise _refused(f"the file is not a plan: {type(error).__name__} in its content", file) from None
        return cls(inventory, rows)

    def __reduce__(self) -> tuple[type[Plan], tuple[Inventory, dict[str, Placements]]]:
        return type(self), (self._inventory, self._components)


def _place(row: Placement) -> tuple[int, list[tuple[int, int]], list[str], str, str]:
    seen = row.visible_accelerators, row.accelerator_type
    return row.cluster_node_rank, row.devices, *seen, row.node_group_label


def _refused(message: str, file: str) -> PlacementError:
    return PlacementError(
        [Diagnostic("invalid-plan", message, "make the plan again with `rankplan plan` or Plan.save", file=file)]
    )


def _described(rows: Placements) -> dict[str, Any]:
    groups, group_starts, nodes, starts, devices, elsewhere = rows.state()
    columns: dict[str, Any] = {
        "isolate_accelerator": rows.isolate_accelerator,
        "node_groups": groups,
        "group_starts": group_starts,
        "cluster_node_rank": _numbers("I", nodes),
        "device_starts": _numbers("I", starts),
        "devices": _numbers("H", devices),
    }
    return {**columns, "elsewhere": elsewhere} if elsewhere else columns


def _restored(inventory: Inventory, state: dict[str, Any]) -> Placements:
    groups = [(label, kind) for label, kind in state["node_groups"]]
    isolate = state["isolate_accelerator"]
    counted = inventory.pool(tuple(label for label, _ in groups)).groups
    # A process by node stands in whichever group it was selected through, whatever that group has.
    fits = all(kind in (WHOLE_NODE, known) for (_, kind), (_, known) in zip(groups, counted, strict=True))
    if not isinstance(isolate, bool) or not fits:
        raise ValueError("a component does not fit the node groups")
    columns = (
        groups,
        [(first, group) for first, group in state["group_starts"]],
        _bytes("I", state["cluster_node_rank"]),
        _bytes("I", state["device_starts"]),
        _bytes("H", state["devices"]),
        [(device, node) for device, node in state.get("elsewhere", ())],
    )
    rows = Placements.from_state(inventory.core, isolate, columns)
    if fault := _outside(inventory, rows):
        raise PlacementError([Diagnostic("invalid-plan", fault)])
    return rows


def _outside(inventory: Inventory, rows: Placements) -> str | None:
    """Return what is wrong between rows and node groups, which the core does not know, if anything."""
    if not len(rows):
        return "a component has no processes"
    configured = [(inventory.group(label), kind) for label, kind in rows.state()[0]]
    pieces = [dict(group.hardware.counts()) if group and group.hardware else {} for group, _ in configured]
    for node, _, (index, _, _, held) in runs(rows) if any(group for group, _ in configured) else ():
        group, kind = configured[index]
        if group and node not in group.node_ranks:
            return f"a process is on node {node}, which node group `{group.label}` does not have"
        if kind not in (ACCELERATOR, WHOLE_NODE) and max(array("H", held)) >= pieces[index].get(node, 0):
            return f"a process has a {kind} that is not there"
    return None


def _numbers(kind: str, column: bytes) -> list[int]:
    # Columns are little-endian 32-bit (I) and 16-bit (H) numbers, which is what `array` has on every platform of Ray.
    return array(kind, column).tolist()


def _bytes(kind: str, numbers: list[int]) -> bytes:
    if not set(map(type, numbers)) <= {int}:
        raise ValueError("a column holds more than numbers")
    return array(kind, numbers).tobytes()

"""The oracle of parallel groups: every slot, every coordinate and every group as a list.

Nothing here knows of runs or progressions. A slot is a tuple (process rank, node rank, local index or ``None``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import product
from typing import Any

Slot = tuple[int, int, int | None]
Sizes = dict[str, int]  # tp, cp, ep, etp, pp

DENSE = {"tp": "tp", "cp": "cp", "dp": "dp", "pp": "pp"}
EXPERTS = {"tp": "etp", "ep": "ep", "dp": "edp", "pp": "pp"}


def slots(rows: Sequence[Any]) -> list[Slot]:
    """Return the accelerators of the processes; one slot for a process without any, or with one that is shared."""
    users = Counter(device for row in rows if row.resource_type == "accelerator" for device in set(row.devices))
    found: list[Slot] = []
    for row in rows:
        devices = row.devices if row.resource_type == "accelerator" else []
        if not devices:
            found.append((row.rank, row.cluster_node_rank, None))
        elif any(users[device] > 1 for device in devices):
            found.append((row.rank, *devices[0]))
        else:
            found += [(row.rank, node, local) for node, local in devices]
    return found


def fits(count: int, sizes: Sizes) -> bool:
    """Return whether the sizes divide a number of slots."""
    dense, experts = sizes["tp"] * sizes["cp"] * sizes["pp"], sizes["etp"] * sizes["ep"] * sizes["pp"]
    return count % dense == 0 and (count % experts == 0 or sizes["ep"] * sizes["etp"] == 1)


def has_stages(count: int, sizes: Sizes, order: str) -> bool:
    """Return whether each slot has the same pipeline stage for attention and for experts."""
    try:
        coordinates(count, sizes, order)
    except ValueError:
        return False
    return True


def coordinates(count: int, sizes: Sizes, order: str) -> list[dict[str, int]]:
    """Return the coordinates of every slot, of attention and of experts: slots are counted in the order given.

    Without experts, all slots have the same part of them, and expert-data groups are data groups. Raises ``ValueError``
    if a slot has two pipeline stages.
    """
    found: list[dict[str, int]] = [{} for _ in range(count)]
    experts = sizes["ep"] * sizes["etp"] > 1
    for family in (DENSE, EXPERTS) if experts else (DENSE,):
        kinds = [family[name] for name in order.split("-") if name in family]
        known = {kind: sizes[kind] for kind in kinds if kind in sizes}
        (derived,) = set(kinds) - known.keys()
        model = 1
        for size in known.values():
            model *= size
        known[derived] = count // model
        # The last of `product` is the fastest.
        for slot, numbers in enumerate(product(*(range(known[kind]) for kind in reversed(kinds)))):
            here = dict(zip(reversed(kinds), numbers, strict=True))
            if here["pp"] != found[slot].get("pp", here["pp"]):
                raise ValueError("a slot has two pipeline stages")
            found[slot] |= here
    return found if experts else [each | {"etp": 0, "ep": 0, "edp": each["dp"]} for each in found]


def groups(kind: str, every: Sequence[dict[str, int]]) -> list[list[int]]:
    """Return the slots that differ in one coordinate only, group after group; one slot each if none differ in it."""
    if kind in ("etp", "ep") and not any(each[kind] for each in every):
        return [[slot] for slot in range(len(every))]
    without_experts = all(each["etp"] == each["ep"] == 0 and each["edp"] == each["dp"] for each in every)
    family = DENSE if kind in DENSE.values() or without_experts else EXPERTS
    kind = "dp" if without_experts and kind == "edp" else kind
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for slot, each in enumerate(every):
        together[tuple(each[other] for other in family.values() if other != kind)].append(slot)
    return sorted(together.values())


def crossing(members: Sequence[Sequence[int]], places: Sequence[Slot]) -> int:
    """Return how many groups have slots on several nodes."""
    return sum(len({places[slot][1] for slot in group}) > 1 for group in members)


def off_rails(members: Sequence[Sequence[int]], places: Sequence[Slot], kinds: Sequence[Any]) -> int:
    """Return how many groups have no node whose local indices contain those on each node of the same kind."""
    count = 0
    for group in members:
        on_node: dict[int, set[int | None]] = defaultdict(set)
        for slot in group:
            on_node[places[slot][1]].add(places[slot][2])
        by_kind: dict[Any, list[set[int | None]]] = defaultdict(list)
        for node, local in on_node.items():
            by_kind[kinds[node]].append(local - {None})
        count += any(not any(all(one >= other for other in sets) for one in sets) for sets in by_kind.values())
    return count


def rlinf_senders(senders: int, tp: int, receivers: int, receiver_tp: int, collocated: bool) -> list[list[int]]:
    """Return the slots that each sender sends to by RLinf's rule, those that do not exist included."""
    found = []
    for rank in range(senders):
        group, position, share = rank // tp, rank % tp, max(tp // receiver_tp, 1)
        engine, part = group * share + position % share, position // share
        if tp == 1:
            engine, part = rank // receiver_tp, rank % receiver_tp
        engines = [engine]
        if not collocated:
            times = receivers // senders if senders <= receivers else int(rank < receivers)
            engines = [engine + turn * share * (senders // tp) for turn in range(times)]
        found.append([one * receiver_tp + part for one in engines])
    return found

"""Weight maps for people and programs: a table, folded by node if it is long, and plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rankplan._core import RankSet
from rankplan.plans.weights import WeightMap
from rankplan.render.tables import MOST_ROWS, table
from rankplan.words import counted

if TYPE_CHECKING:
    from rich.table import Table

_NEAR = ("same device", "same node", "other node")


def weights_table(weights: WeightMap) -> Table:
    """Return a row per sender with its receivers; equal consecutive nodes are folded if there are many senders."""
    if len(weights) > MOST_ROWS:
        return _folded(weights)
    result = table(f"{weights.sender.name}#", "node#", "sends to", "nodes", "where")
    for slot, receivers in enumerate(weights):
        node, _ = weights.sender.layout.place(slot)
        nodes = RankSet({weights.receiver.layout.place(one)[0] for one in receivers})
        where = Counter(_near(weights, slot, one) for one in receivers)
        result.add_row(str(slot), str(node), _ranks(RankSet(receivers)), str(nodes) or "-", _counts(where))
    return result


def _folded(weights: WeightMap) -> Table:
    result = table(weights.sender.name, "nodes", "sends to", "nodes", "each", "where")
    for lines, (key, nodes) in enumerate(groupby(_nodes(weights), key=lambda node: node[0])):
        if lines == MOST_ROWS:
            result.add_row("and more lines")
            break
        _, senders, places, receivers, theirs = (list(part) for part in zip(*nodes, strict=True))
        each, where = key
        total = Counter({name: count * len(places) for name, count in where})
        result.add_row(
            _ranks(RankSet(slot for slots in senders for slot in slots)),
            str(RankSet(places)),
            _ranks(RankSet(slot for slots in receivers for slot in slots)),
            _ranks(RankSet(node for nodes_ in theirs for node in nodes_)),
            str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}",
            _counts(total),
        )
    return result


def _nodes(weights: WeightMap) -> Iterator[tuple[Any, list[int], int, list[int], set[int]]]:
    """Yield the senders of each node: a key that equal nodes share, slots, node, receivers, nodes of the receivers."""
    places = weights.sender.layout.place
    for node, group in groupby(range(len(weights)), key=lambda slot: places(slot)[0]):
        senders = list(group)
        sent = [weights[slot] for slot in senders]
        where = Counter(
            _near(weights, slot, one) for slot, receivers in zip(senders, sent, strict=True) for one in receivers
        )
        receivers = [one for each in sent for one in each]
        key = tuple(sorted(set(map(len, sent)))), tuple(sorted(where.items()))
        yield key, senders, node, receivers, {weights.receiver.layout.place(one)[0] for one in receivers}


def _near(weights: WeightMap, sender: int, receiver: int) -> str:
    here, there = weights.sender.layout.place(sender), weights.receiver.layout.place(receiver)
    return _NEAR[0 if here == there and here[1] is not None else 1 if here[0] == there[0] else 2]


def _counts(where: Counter[str]) -> str:
    named = [name for name in _NEAR if name in where]
    return ", ".join(f"{where[name]} {name}" if len(named) > 1 and where[name] else name for name in named) or "-"


def _ranks(ranks: RankSet) -> str:
    if len(ranks.ranges) <= 8:
        return str(ranks) or "-"
    return f"{ranks[0]}-{ranks[-1]}, not all"


def weights_line(weights: WeightMap) -> str:
    """Return how many receivers have a sender on their device or node."""
    total = len(weights.receivers)
    where = Counter(_near(weights, weights.sender_of(slot), slot) for slot in weights.receivers)
    words = ("on the sender's device", "on the sender's node", "on another node")
    found = ", ".join(f"{where[name]:,} {word}" for name, word in zip(_NEAR, words, strict=True) if where[name])
    return f"{counted(total, 'receiver')}: {found}"


def plain_weights(weights: WeightMap) -> Iterator[dict[str, Any]]:
    """Yield every sender with its receivers: slots, and the process ranks of slots."""
    sender, receiver = weights.sender.layout, weights.receiver.layout
    for slot, receivers in enumerate(weights):
        entry = {"slot": slot, "rank": sender.process_of(slot), "receivers": receivers}
        yield entry | {"receiver_ranks": [receiver.process_of(one) for one in receivers]}

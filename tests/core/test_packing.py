"""Taking accelerators, and the orders of nodes, compared with plain Python."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rankplan import Inventory
from rankplan._core import AddressKey, Free, RankSet, Short, Taken
from support.oracle_order import address_key, sort_key
from support.oracle_packing import Cluster, torn
from support.outcomes import some

COUNTS = st.lists(st.integers(0, 7), min_size=1, max_size=6)
SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=3)


def cluster(counts: Sequence[int], addresses: Sequence[str | None], ids: Sequence[list[str] | None] = ()) -> Inventory:
    entries: list[dict[str, Any]] = [
        {"ranks": rank, "accelerators": count} | ({"ip": addresses[rank]} if addresses[rank] else {})
        for rank, count in enumerate(counts)
    ]
    for entry, own in zip(entries, ids, strict=False):
        entry |= {"accelerator_ids": own} if own else {}
    return Inventory.from_dict({"nodes": entries})


def listed(found: Taken | Short) -> list[int] | None:
    if isinstance(found, Short):
        return None
    return [rank for first, last in found.ranges for rank in range(first, last + 1)]


WAYS = ("next", "packed", "steps", "ascending steps", "list")


def both(free: Free, model: Cluster, way: str, count: int, sizes: list[int]) -> tuple[list[int] | None, ...]:
    """Take accelerators of both in one of the ways."""
    if way == "next":
        return listed(free.next(count)), model.next(count)
    if way == "packed":
        return listed(free.packed(count)), model.packed(count)
    if way == "list":
        total = sum(sizes)
        found = listed(free.in_lists(total, [[(1, size) for size in sizes]]))
        return found, model.steps(sizes) or model.next(total)
    ascending = way == "ascending steps"
    found = listed(free.in_steps(count, sizes, ascending=ascending))
    return found, model.stepped(count, sizes, ascending=ascending)


@given(COUNTS, st.data())
def test_accelerators_are_taken_as_by_hand(counts: list[int], data: st.DataObject) -> None:
    total = sum(counts)
    holes = data.draw(st.sets(st.integers(0, total - 1))) if total else set()
    last = data.draw(st.permutations(range(len(counts))))
    inventory = cluster(counts, [f"10.0.0.{last[node]}" for node in range(len(counts))])
    ordered = data.draw(st.booleans())
    free = Free(inventory.core, RankSet(holes), "number" if ordered else None)
    model = Cluster.of(counts, holes, sorted(range(len(counts)), key=lambda node: last[node]) if ordered else ())
    for _ in range(data.draw(st.integers(1, 5))):
        count, sizes = data.draw(st.integers(0, 12)), data.draw(SIZES)
        mine, theirs = both(free, model, data.draw(st.sampled_from(WAYS)), count, sizes)
        assert mine == theirs
        assert free.left == model.left
    assert free.bundles(2) == sum(len(ranks) // 2 for ranks in model.free)


def test_no_bundles_are_taken_from_no_accelerators() -> None:
    free = Free(cluster([0, 0], [None, None]).core, RankSet())
    assert free.in_bundles(0, [2]) == Taken() and free.in_bundles(0, [2, 1]) == Taken()
    assert isinstance(free.in_bundles(1, [2]), Short)


@given(COUNTS, st.lists(st.tuples(SIZES, st.integers(1, 3)), min_size=1, max_size=4))
def test_bundles_are_on_the_first_nodes_with_room(counts: list[int], wanted: list[tuple[list[int], int]]) -> None:
    free, model = Free(cluster(counts, [None] * len(counts)).core, RankSet()), Cluster.of(counts)
    for sizes, times in some(wanted):
        count = sum(sizes) * times
        left = model.left
        found = free.in_bundles(count, sizes)
        if count > left:
            assert isinstance(found, Short) and (found.free, found.bundles, found.size) == (left, 0, None)
            continue  # asserted
        taken, number, size = model.bundles(sizes * times)
        if size is None:
            assert listed(found) == taken
        else:
            # The bundles before it stay taken.
            assert isinstance(found, Short) and (found.free, found.bundles, found.size) == (model.left, number, size)
        assert free.left == model.left


@given(COUNTS, SIZES, st.booleans())
def test_spread_bundles_are_on_nodes_of_their_own(counts: list[int], sizes: list[int], strict: bool) -> None:
    found = Free(cluster(counts, [None] * len(counts)).core, RankSet()).spread(sum(sizes), sizes, strict=strict)
    model = Cluster.of(counts)
    expected = None if sum(sizes) > model.left else model.spread(sizes, strict=strict)
    assert listed(found) == expected


@given(COUNTS, st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=5), st.integers(1, 6), st.data())
def test_what_was_taken_is_a_sequence_of_accelerators(
    counts: list[int], drawn: list[tuple[int, int]], each: int, data: st.DataObject
) -> None:
    total = sum(counts)
    ranges = [(first, min(first + more, total - 1)) for first, more in drawn if first < total]
    core = cluster(counts, [None] * len(counts)).core
    taken = Taken(ranges)
    ranks = [rank for first, last in ranges for rank in range(first, last + 1)]
    owners = [node for node, count in enumerate(counts) for _ in range(count)]
    nodes = [owners[rank] for rank in ranks]
    assert listed(taken) == ranks and len(taken) == len(ranks)
    assert list(taken.accelerators) == sorted({*ranks}) and list(taken.used_nodes(core)) == sorted({*nodes})
    assert taken.nodes(core, each) == nodes[::each]
    assert taken.torn(core, each) == torn(nodes, each)
    start, stop = data.draw(st.integers(0, 50)), data.draw(st.integers(0, 50))
    assert listed(taken.slice(start, stop)) == ranks[start:stop]
    assert listed(taken + taken) == ranks * 2
    assert pickle.loads(pickle.dumps(taken)) == taken
    for rank in ranks[:3]:
        assert core.resource(*core.place(rank)) == rank
    if ranks and len(ranks) % each == 0:
        assert str(taken.chunks(each)) == ",".join(str(RankSet(range(a, b + 1))) for a, b in taken.ranges)


def test_places_that_no_node_has_are_refused() -> None:
    core = Inventory.parse("2x2").core
    with pytest.raises(IndexError, match="node 1 has no accelerator 2"):
        core.resource(1, 2)
    with pytest.raises(IndexError, match="unknown accelerator 4"):
        core.place(4)
    with pytest.raises(ValueError, match="2-1 is no range"):
        Taken([(2, 1)])
    with pytest.raises(ValueError, match="unknown order of nodes"):
        core.order("name")
    with pytest.raises(ValueError, match="no node"):
        Taken.in_turn(RankSet(), 1)


IDS = st.lists(st.sampled_from(["0", "1", "01", "9", "10", "GPU-1", "gpu-0", "", "MIG", "٣"]), min_size=1, max_size=5)


@given(st.lists(IDS, min_size=1, max_size=4))
def test_accelerators_are_taken_by_their_ids(ids: list[list[str]]) -> None:
    own = [[f"{name}" for name in dict.fromkeys(names) if name] or ["x"] for names in ids]
    counts = [len(names) for names in own]
    core = cluster(counts, [None] * len(counts), own).core

    def key(name: str) -> tuple[int, int, str]:
        number = name.isascii() and name.isdigit()
        return (0, int(name), "") if number else (1, 0, name)

    starts = [sum(counts[:node]) for node in range(len(counts))]
    expected = [starts[node] + names.index(name) for node, names in enumerate(own) for name in sorted(names, key=key)]
    assert listed(Free(core, RankSet(), by_id=True).next(sum(counts))) == expected


OCTETS = st.sampled_from([0, 1, 9, 10, 100, 255, 256])
V4 = st.tuples(OCTETS, OCTETS, OCTETS).map(lambda parts: f"10.{parts[0]}.{parts[1]}.{parts[2]}")
GROUPS = st.lists(st.sampled_from(["", "0", "1", "ffff", "FE80", "10.0.0.9", "g", "12345"]), max_size=9).map(":".join)
PLAIN = st.sampled_from(
    ["node1", "node10", "node9", "node09", "n-1a", "10.0.0", "10.0.0.010", "[::1", "[]", "A9", "a%b"]
)
SCOPED = st.builds("{}%{}".format, GROUPS, st.sampled_from(["", "eth0", "0", "a%b", "a_b"]))
ADDRESSES = st.one_of(
    V4,
    GROUPS,
    GROUPS.map("[{}]".format),
    GROUPS.map("::ffff:{}".format),
    PLAIN,
    SCOPED,
    st.text("aZ09.-_:%[]", max_size=4),
)


@given(st.lists(ADDRESSES, min_size=1, max_size=7))
def test_addresses_are_sorted_as_in_python(addresses: list[str]) -> None:
    assume(not any(address.startswith("-") for address in addresses) and all(addresses))
    inventory = cluster([1] * len(addresses), addresses)
    ips = [str(inventory.node(rank).ip) for rank in range(len(addresses))]
    assert inventory.core.order("text") == sorted(range(len(ips)), key=lambda rank: ips[rank])
    keys = [address_key(ip) for ip in ips]
    assert inventory.core.order("number") == sorted(range(len(ips)), key=lambda rank: keys[rank])
    places = inventory.core.places("number", RankSet(range(len(ips))))
    assert places is not None
    distinct = sorted({*keys})
    assert places == {rank: distinct.index(key) for rank, key in enumerate(keys)}


@given(st.lists(ADDRESSES | st.text(max_size=4), max_size=7))
def test_keys_of_any_text_are_sorted_as_in_python(texts: list[str]) -> None:
    texts = [text.replace("\0", "") for text in texts]
    assert sorted(texts, key=AddressKey) == sorted(texts, key=address_key)
    assert len({AddressKey(text) for text in texts}) == len({address_key(text) for text in texts})


LABELS = st.fixed_dictionaries(
    {},
    optional={
        "NODE_RANK": st.sampled_from(["0", "1", "2", "10", "-1", "--1", "x", "1234567890"]),
        "nvlink_domain": st.sampled_from(["a", "b", "c"]),
        "topo_rank": st.sampled_from(["0", "1", "2", "-1", "x"]),
    },
)


@given(st.lists(LABELS, min_size=1, max_size=6), st.booleans(), st.data())
def test_labels_and_ids_are_sorted_as_in_python(labels: list[dict[str, str]], known: bool, data: st.DataObject) -> None:
    entries = [{"ranks": rank, "accelerators": 1, "labels": one} for rank, one in enumerate(labels)]
    inventory = Inventory.from_dict({"nodes": entries})
    ids = data.draw(st.permutations([f"{rank:02x}" for rank in range(len(labels))])) if known else []
    every = range(len(labels))
    some = data.draw(st.sets(st.sampled_from(every), min_size=1))
    for how in ("text", "id", "rank", "topology", "topology-id"):
        key = sort_key(inventory, how, ids, every)
        assert inventory.core.order(how, ids) == (None if key is None else sorted(every, key=key))
        key = sort_key(inventory, how, ids, some)
        places = inventory.core.places(how, RankSet(some), ids)
        assert (places is None) == (key is None)
        if places is not None and key is not None:
            distinct = sorted({key(node) for node in some})
            assert places == {node: distinct.index(key(node)) for node in sorted(some)}

"""Pools of a cluster section: every statement that cannot be true is a fault, with the others, at its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, Plan, check, plan

NODES = Inventory.uniform(4, 4)
PLACED = {"actor": "0-7", "critic": "0-7", "rollout": "8-11"}
"""Components, with their accelerators: nodes 0-1, 0-1 and 2. No process runs on node 3."""
ON = {"actor": set(range(8)), "critic": set(range(8)), "rollout": set(range(8, 12))}


def config(pools: Any) -> dict[str, Any]:
    return {"cluster": {"num_nodes": 4, "component_placement": PLACED, "pools": pools}}


def faults_of(pools: Any) -> list[tuple[str, str]]:
    """Return the paths below ``pools``, and the messages, of every fault; each has a help."""
    found = check(config(pools), NODES).faults
    assert all(one.path is not None and one.path.startswith("cluster.pools") and one.help for one in found)
    return [(str(one.path).removeprefix("cluster.pools"), one.message) for one in found]


NAMES = st.sampled_from(["a", "b", "c"])
POOL = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "components": st.lists(st.sampled_from([*PLACED, "reward"]), max_size=2, unique=True),
        "node_ranks": st.lists(st.integers(1, 4), max_size=2, unique=True),
        "protects": st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=2, unique=True),
        "min_accelerators": st.integers(1, 13),
        "max_accelerators": st.integers(1, 13),
    },
)


def wrong_alone(pools: list[dict[str, Any]]) -> set[str]:
    """Return the paths of what is wrong whatever the placement is."""
    wrong = set()
    filled = {pool["name"] for pool in pools if pool.get("components")}
    for index, pool in enumerate(pools):
        components, nodes, protects = (pool.get(key, []) for key in ("components", "node_ranks", "protects"))
        here = f"[{index}]"
        if pool["name"] in [other["name"] for other in pools[:index]]:
            wrong.add(f"{here}.name")
        wrong |= {f"{here}.components[{at}]" for at, name in enumerate(components) if name not in PLACED}
        if components:
            wrong |= {f"{here}.{key}" for key in ("node_ranks", "protects") if pool.get(key)}
        elif not (nodes and protects):
            wrong.add(here)
        if nodes and not components:
            wrong |= {f"{here}.{key}" for key in ("min_accelerators", "max_accelerators") if key in pool}
        if pool.get("min_accelerators", 1) > pool.get("max_accelerators", 99):
            wrong.add(f"{here}.min_accelerators")
        others = {other["name"] for other in pools if other is not pool and other.get("components")}
        for at, name in enumerate(protects):
            if name == pool["name"] or name not in filled & others:
                wrong.add(f"{here}.protects[{at}]")
        if 4 in nodes or any(set(nodes) & set(other.get("node_ranks", [])) for other in pools[:index]):
            wrong.add(f"{here}.node_ranks")
    return wrong


def wrong_placed(pools: list[dict[str, Any]]) -> set[str]:
    """Return the paths of what the placement breaks."""
    wrong = set()
    for index, pool in enumerate(pools):
        if set(pool.get("node_ranks", [])) & {0, 1, 2}:
            wrong.add(f"[{index}].node_ranks")
        size = len(set().union(*(ON[name] for name in pool.get("components", []))))
        if pool.get("components") and size < pool.get("min_accelerators", 1):
            wrong.add(f"[{index}].min_accelerators")
        elif pool.get("components") and size > pool.get("max_accelerators", 99):
            wrong.add(f"[{index}].max_accelerators")
    return wrong


@given(st.lists(POOL, max_size=4))
def test_what_cannot_be_true_is_a_fault(pools: list[dict[str, Any]]) -> None:
    assert {path for path, _ in faults_of(pools)} == (wrong_alone(pools) or wrong_placed(pools))


@st.composite
def true_pools(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw pools that can be true: their sizes hold, and at most one reserves the node without processes."""
    pools = []
    for name in draw(st.permutations("abc"))[: draw(st.integers(0, 3))]:
        components = draw(st.lists(st.sampled_from(sorted(PLACED)), min_size=1, unique=True))
        size = len(set().union(*(ON[component] for component in components)))
        limits = {"min_accelerators": st.integers(1, size), "max_accelerators": st.integers(size, 13)}
        pools.append({"name": name, "components": components} | draw(st.fixed_dictionaries({}, optional=limits)))
    if pools and draw(st.booleans()):
        protects = draw(st.lists(st.sampled_from([pool["name"] for pool in pools]), min_size=1, unique=True))
        reserve = {"name": "d", "node_ranks": [3], "protects": protects}
        pools.insert(draw(st.integers(0, len(pools))), reserve)
    return pools


@given(true_pools())
def test_a_plan_with_pools_can_be_saved_and_is_fine(pools: list[dict[str, Any]]) -> None:
    found = plan(config(pools), NODES)
    assert [pool.name for pool in found.rules.pools] == [one["name"] for one in pools]
    loaded = Plan.from_dict(found.to_dict())
    assert loaded == found and not check(loaded).faults
    assert not check(loaded.only("rollout")).faults
    fewer = Plan(loaded.inventory.first(3), [])
    assert Plan.from_dict(fewer.to_dict()) == fewer


RESERVE = {"name": "spare", "node_ranks": 3, "protects": ["train"]}
TRAIN = {"name": "train", "components": ["actor", "critic"]}
REFUSED: list[tuple[list[Any], str, str, str]] = [
    (
        [TRAIN, RESERVE | {"node_ranks": "1-3"}],
        "[1].node_ranks",
        "pool `spare` reserves nodes 1-2, in use by actor, critic, rollout",
        "reserve nodes without processes, or add nodes to the cluster",
    ),
    (
        [TRAIN, RESERVE | {"protects": ["train", "spare"]}],
        "[1].protects[1]",
        "pool `spare` protects itself",
        "name pools with components: train",
    ),
    (
        [TRAIN, {"name": "spare", "protects": ["train"]}],
        "[1]",
        "`node_ranks` is missing: pool `spare` protects others, but reserves no node",
        "add node_ranks, nodes without processes",
    ),
    (
        [TRAIN, {"name": "spare", "node_ranks": 3}],
        "[1]",
        "`protects` is missing: pool `spare` reserves nodes for no other pool",
        "add `protects` with the names of pools, or remove the pool: other spares are for every component",
    ),
    (
        [TRAIN | {"min_accelerators": 9}],
        "[0].min_accelerators",
        "pool `train` has 8 accelerators, less than min_accelerators 9",
        "give its components at least 9 accelerators, or lower min_accelerators to 8",
    ),
    (
        [TRAIN | {"max_accelerators": 4}],
        "[0].max_accelerators",
        "pool `train` has 8 accelerators, more than max_accelerators 4",
        "give its components at most 4 accelerators, or raise max_accelerators to 8",
    ),
    (
        [TRAIN, RESERVE | {"protects": ["trian"]}],
        "[1].protects[0]",
        "unknown pool `trian`",
        "did you mean `train`?",
    ),
    (
        [TRAIN, RESERVE, RESERVE | {"name": "other"}],
        "[2].node_ranks",
        "node 3 is in two reserves, `spare` and `other`",
        "give each reserve nodes of its own",
    ),
    (
        [TRAIN | {"node_ranks": 3}],
        "[0].node_ranks",
        "pool `train` has components; only a reserve without components has node_ranks",
        "state the reserve as a pool of its own",
    ),
    (
        [TRAIN, RESERVE | {"max_accelerators": 4}],
        "[1].max_accelerators",
        "`max_accelerators` has no effect: pool `spare` is a reserve",
        "remove max_accelerators",
    ),
    (
        [TRAIN, RESERVE, {"name": "more", "node_ranks": 2, "protects": ["spare"]}],
        "[2].protects[0]",
        "pool `spare` has no components that a reserve could protect",
        "name pools with components: train",
    ),
    ([{"name": "a"}], "[0]", "pool `a` has neither components nor node_ranks", "add the names of its components, "),
    (
        [TRAIN | {"min_accelerators": 9, "max_accelerators": 8}],
        "[0].min_accelerators",
        "min_accelerators 9 is more than max_accelerators 8",
        "use at most 8, or a larger max_accelerators",
    ),
    ([TRAIN, TRAIN], "[1].name", "two pools are named `train`", "give each pool a name of its own"),
]


@pytest.mark.parametrize(("pools", "path", "message", "help"), REFUSED, ids=[row[2] for row in REFUSED])
def test_each_message(pools: list[Any], path: str, message: str, help: str) -> None:
    (found,) = check(config(pools), NODES).faults
    assert (found.path, found.message) == (f"cluster.pools{path}", message)
    assert found.help is not None and found.help.startswith(help)


def test_a_pool_that_cannot_be_read_hides_no_other_fault() -> None:
    pools = [{"name": "train", "components": "actor"}, "spare", RESERVE | {"node_ranks": 9}, {"name": "a"}]
    assert [path for path, _ in faults_of(pools)] == ["[0].components", "[1]", "[2].node_ranks", "[3]"]
    assert faults_of("train") == [("", "`pools` is 'train'; it must be a list")]

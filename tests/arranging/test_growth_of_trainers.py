"""Plans of trainers that grow: only by what the trainer can run, on the nodes that a larger cluster has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import rankplan
from rankplan import Inventory, Parallel, Plan, replan
from rankplan.arranging.faults import POOL_KEYS
from rankplan.dialects import DIALECTS
from rankplan.errors import PlacementError
from rankplan.plans.component import used_nodes
from rankplan.render.changes import replan_lines
from support.paths import ROOT

_ONE = Parallel(dp=1)
_CONFIGS = [
    "areal.yaml",
    "ms_swift.yaml",
    "nemo_rl.yaml",
    "openrlhf.sh",
    "roll.yaml",
    "skyrl.sh",
    "slime.yaml",
    "slime-colocated.yaml",
]
_CONFIGS += ["verl.sh", "verl.yaml", "verl-topology/colocated.yaml", "verl-topology/separate.yaml"]


def cluster(size: int, count: int) -> Inventory:
    """Return nodes with addresses in the order of their ranks."""
    return with_addresses([size] * count, range(1, count + 1))


def with_addresses(sizes: Sequence[int], numbers: Iterable[int]) -> Inventory:
    entries = [
        {"ranks": rank, "accelerators": each, "hostname": f"h{rank}", "ip": f"10.0.0.{number}"}
        for rank, (each, number) in enumerate(zip(sizes, numbers, strict=True))
    ]
    return Inventory.from_dict({"nodes": entries})


@pytest.mark.parametrize("config", _CONFIGS)
def test_what_shares_a_pool_stays_there_and_what_grows_can_shrink_again(config: str) -> None:
    path = ROOT / "examples" / config
    sizes = [rank.num_accelerators for nodes, rank in rankplan.plan(path).inventory.stretches() for _ in nodes]
    sizes += [sizes[0]] * 4
    nodes = with_addresses(sizes, range(1, len(sizes) + 1))
    plan = rankplan.plan(path, nodes)
    answers = set()
    for name, part in plan.items():
        devices = part.rows.accelerators()
        others = [other for other, one in plan.items() if other != name and one.rows.accelerators() & devices]
        for count in (1, 2, 4, 8):
            try:
                found = replan(plan, nodes, grow={name: count})
            except PlacementError as refused:
                if "elsewhere" in refused.message:
                    answers.add("elsewhere")
                    assert others and set(POOL_KEYS[str(plan.dialect)]) <= set(str(refused.help).split("`"))
                continue
            larger = found.plan
            assert not others or plan.dialect not in POOL_KEYS
            assert bool(larger.requests) == bool(plan.requests) and larger.actors == plan.actors
            assert not any("`rankplan pin` cannot bind this plan" in line for line in replan_lines(found))
            assert replan(larger, nodes, shrink={name: count}).plan == plan
            answers.add("grown")
    assert answers, "every growth is refused for another reason"


_COLOCATED = [
    ("slime-colocated.yaml", "rollout", []),
    ("skyrl.sh", "generator", ["trainer.placement.colocate_all=true", "generator.inference_engine.num_engines=1"]),
    ("verl.yaml", "rollout", []),
    ("nemo_rl.yaml", "generation", ["policy.generation.colocated.enabled=true", "cluster.num_nodes=2"]),
]


@pytest.mark.parametrize(("config", "name", "overrides"), _COLOCATED)
def test_engines_that_a_trainer_places_with_others_do_not_shrink_alone(
    config: str, name: str, overrides: list[str]
) -> None:
    plan = rankplan.plan(ROOT / "examples" / config, overrides=overrides)
    wishes: list[Any] = [name, {name: 1}]
    for wish in wishes:
        with pytest.raises(PlacementError) as refused:
            replan(plan, plan.inventory, shrink=wish)
        assert f"{plan.dialect} runs {name} on the accelerators of" in refused.value.message
        assert set(POOL_KEYS[str(plan.dialect)]) <= set(str(refused.value.help).split("`"))


_SIZES: list[tuple[str, int, str, int, Callable[[int], list[str]]]] = [
    ("areal.yaml", 4, "rollout", 2, lambda groups: [f"rollout.backend=sglang:d{groups}t2"]),
    (
        "nemo_rl.yaml",
        4,
        "generation",
        2,
        lambda groups: [
            f"cluster.num_nodes={2 + groups // 2}",
            f"policy.generation.colocated.resources.num_nodes={groups // 2}",
        ],
    ),
    ("roll.yaml", 8, "actor_infer", 6, lambda groups: [f"actor_infer.device_mapping={_mapping(groups)}"]),
    ("skyrl.sh", 8, "generator", 2, lambda groups: [f"generator.inference_engine.num_engines={groups}"]),
    ("slime.yaml", 4, "rollout", 2, lambda groups: [f"rollout_num_gpus={2 * groups}"]),
    ("verl.yaml", 4, "reward", 2, lambda groups: [f"reward.reward_model.nnodes={groups // 2}"]),
]


def _mapping(groups: int) -> str:
    """Return ROLL's accelerators of engines of two: the first twelve, then whole nodes from the fourth one on."""
    return str([*range(12), *range(24, 24 + 2 * (groups - 6))])


def asked(plan: Plan) -> list[tuple[object, ...]]:
    """Return what each request of a plan asks for, without the nodes that it gets."""
    return [
        (one.component, one.name, one.strategy, one.accelerators, one.order, one.optional, one.cpus, one.memory)
        for one in plan.requests
    ]


@pytest.mark.parametrize(("config", "each", "name", "groups", "overrides"), _SIZES, ids=[one[0] for one in _SIZES])
def test_a_plan_that_has_grown_asks_for_what_the_larger_config_asks_for(
    config: str, each: int, name: str, groups: int, overrides: Callable[[int], list[str]]
) -> None:
    nodes = cluster(each, 8)
    path = ROOT / "examples" / config
    plan = rankplan.plan(path, nodes, overrides=overrides(groups))
    for more in (2, 4, 8):
        try:
            larger = replan(plan, nodes, grow={name: more}).plan
        except PlacementError as refused:
            assert "uses 1/4 of a node" in refused.message
            continue
        planned = rankplan.plan(path, nodes, overrides=overrides(groups + more))
        assert asked(larger) == asked(planned)
        in_use = used_nodes(larger.values())
        assert {node for request in larger.requests for node in request.nodes} == set(in_use)
        if config != "roll.yaml":  # whose roles without accelerators are on all nodes of the larger config
            assert asked(replan(planned, nodes, shrink={name: more}).plan) == asked(plan)


def test_new_nodes_come_where_the_trainer_sorts_them() -> None:
    """slime sorts all nodes by address: spares in front of those in use would move the actor."""
    nodes = with_addresses([4] * 7, [11, 12, 13, 5, 40, 7, 30])
    plan = rankplan.plan(ROOT / "examples" / "slime.yaml", nodes.reordered([0, 1, 2]))
    found = replan(plan, nodes, grow={"rollout": 4}).plan
    assert [found.inventory.node(rank).hostname for rank in range(5)] == ["h0", "h1", "h2", "h6", "h4"]
    assert found.requests[0].nodes == tuple(rank for rank in range(5) for _ in range(4))
    with pytest.raises(PlacementError, match="so that processes which stay would move") as refused:
        replan(plan, nodes, grow={"rollout": 6})
    assert refused.value.code == "order-not-kept"
    assert refused.value.help == "add spares that come after h2 in that order"


def test_what_the_trainer_would_ask_for_is_unknown() -> None:
    """A single bundle in a single group does not say whether AReaL makes a larger group or another one."""
    config = {
        "cluster": {"n_nodes": 2, "n_gpus_per_node": 1},
        "rollout": {"backend": "sglang:d1"},
        "actor": {"backend": "fsdp:d1"},
    }
    nodes = cluster(1, 4)
    plan = rankplan.plan(config, nodes)
    assert len(replan(plan, nodes, grow={"rollout": 1}).plan.requests) == 3
    grown = Plan(plan.inventory, [one.with_settings(parallel=_ONE) for one in plan.values()], None, "areal")
    assert not replan(grown, nodes, grow={"actor": 1}).plan.requests
    known = Plan(plan.inventory, grown.values(), None, "areal", plan.requests)
    with pytest.raises(PlacementError, match="what areal asks Ray for is unknown if actor has another size") as refused:
        replan(known, nodes, grow={"actor": 1})
    keys = "`actor.backend` and `rollout.backend`"
    assert refused.value.help == f"change {keys} in the config, and plan it again"


def test_the_keys_that_are_named_exist() -> None:
    for name, keys in POOL_KEYS.items():
        known = {key.path for key in DIALECTS[name].keys.keys}
        parts = ("actor", "rollout", "trainer")
        sections = {f"{part}.{path[2:]}" for path in known if path[:2] == "@." for part in parts}
        assert set(keys) <= known | sections


def test_what_a_failure_shrinks_asks_for_less() -> None:
    """The last engines leave with the nodes that are gone; without their order, the requests are unknown."""
    nodes = with_addresses([4] * 4, [1, 2, 3, 4])
    path = ROOT / "examples" / "slime.yaml"
    plan = rankplan.plan(path, nodes, overrides=["rollout_num_gpus=8"])
    smaller = replan(plan, nodes, without=["h3"], shrink=["rollout"]).plan
    assert asked(smaller) == asked(rankplan.plan(path, nodes))
    assert smaller.requests[0].nodes == tuple(rank for rank in range(3) for _ in range(4))
    moved = replan(plan, nodes, without=["h0"], shrink=["rollout"])
    assert [move.component for move in moved.moves] == ["actor"] * 4
    assert not moved.plan.requests
    assert any("`rankplan pin` cannot bind this plan" in line for line in replan_lines(moved))


def test_requests_that_do_not_follow_from_the_components_are_not_made_again() -> None:
    nodes = cluster(4, 8)
    path = ROOT / "examples" / "slime.yaml"
    plan, larger = (rankplan.plan(path, nodes, overrides=[f"rollout_num_gpus={gpus}"]) for gpus in (4, 8))
    strange = Plan(plan.inventory, plan.values(), None, "slime", larger.requests)
    with pytest.raises(PlacementError, match="what slime asks Ray for is unknown if rollout has another size"):
        replan(strange, nodes, grow={"rollout": 2})

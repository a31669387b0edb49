"""RLinf's placement classes: modes, rules of every role, what scripts read and write, and every error."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from rankplan import Inventory, Packed, PackedPlacementStrategy, Parallel, PlacementError, Plan, RankMap
from rankplan.rlinf import (
    HybridComponentPlacement,
    ModelParallelComponentPlacement,
    ModelParallelEvalComponentPlacement,
    MultiAgentModelParallelComponentPlacement,
    MultiAgentModelParallelEvalComponentPlacement,
    PlacementMode,
    RolloutSyncMode,
)
from rankplan.rlinf.dialect import DIALECT as rlinf
from rankplan.rlinf.job import roles_class
from support.commands import run

EIGHT = Inventory.uniform(1, 8)
SIXTEEN = Inventory.uniform(2, 8)
REJECTED = yaml.safe_load(Path(__file__).with_name("rejected.yaml").read_text())


def config(
    placement: dict[str, Any], actor: int = 1, rollout: int = 1, pipeline: int = 1, **more: Any
) -> dict[str, Any]:
    cluster = more.pop("cluster", {})
    return {
        "cluster": {"num_nodes": 1, "component_placement": placement} | cluster,
        "actor": {"model": {"tensor_model_parallel_size": actor}},
        "rollout": {"tensor_parallel_size": rollout, "pipeline_parallel_size": pipeline},
    } | more


def placed(*arguments: Any, inventory: Inventory = EIGHT, **keywords: Any) -> ModelParallelComponentPlacement:
    return ModelParallelComponentPlacement(config(*arguments, **keywords), inventory)


def devices(plan: Plan, name: str) -> list[list[int]]:
    """The accelerators of each process, counted over the nodes of 8."""
    return [[8 * node + index for node, index in row.devices] for row in plan[name]]


def packed(strategy: Any) -> tuple[int, int, int, int]:
    """The arguments of a packed strategy, by the names that RLinf's scripts read."""
    sizes = strategy._num_hardware_per_process, strategy._stride
    return strategy._start_hw_rank, strategy._end_hw_rank, *sizes


GROUPS = {
    "num_nodes": 2,
    "node_groups": [{"label": "a", "node_ranks": 0}, {"label": "b", "node_ranks": 1}],
}

# ---------------------------------------------------------------------------------------------------- rules by role


@pytest.mark.parametrize(
    ("actor", "rollout", "pipeline", "rows"),
    [
        (4, 2, 1, [[0, 2], [1, 3], [4, 6], [5, 7]]),
        (8, 2, 1, [[0, 4], [1, 5], [2, 6], [3, 7]]),
        (2, 2, 1, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (1, 4, 1, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (4, 2, 2, [[0, 2, 4, 6], [1, 3, 5, 7]]),
        (1, 2, 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    ],
)
def test_a_collocated_rollout_is_interleaved_so_that_the_actor_can_hand_over_its_weights(
    actor: int, rollout: int, pipeline: int, rows: list[list[int]]
) -> None:
    placement = placed({"actor,rollout,reward": "all"}, actor, rollout, pipeline)
    plan = placement.plan()
    assert (placement.placement_mode, placement.rollout_sync_mode) == (
        PlacementMode.COLLOCATED,
        RolloutSyncMode.COLLOCATED,
    )
    assert devices(plan, "rollout") == rows
    assert plan["rollout"].rule == Packed(0, 7, rollout * pipeline, max(actor // rollout, 1))
    assert plan["rollout"].parallel == Parallel(tp=rollout, pp=pipeline, order=Parallel.ENGINE_ORDER)
    assert plan["actor"].rule == plan["reward"].rule == Packed(0, 7, 1, 1)
    assert plan["actor"].parallel == Parallel(tp=actor)


def test_a_disaggregated_rollout_is_packed_and_other_roles_have_a_process_per_accelerator() -> None:
    sections = {
        "critic": {"model": {"tensor_model_parallel_size": 2}},
        "inference": {"model": {"tensor_model_parallel_size": 2}},
        "algorithm": {"recompute_logprobs": True},
    }
    roles = {"actor": "0-3", "rollout": "4-11", "inference": "12-13", "critic": "14-15", "reward": "0-3"}
    placement = placed(roles, 4, 2, inventory=SIXTEEN, cluster={"num_nodes": 2}, **sections)
    plan = placement.plan()
    assert (placement.placement_mode, placement.is_pipeline) == (PlacementMode.DISAGGREGATED, True)
    assert devices(plan, "rollout") == [[4, 5], [6, 7], [8, 9], [10, 11]]
    assert devices(plan, "inference") == [[12], [13]]
    assert {name: component.parallel.tp for name, component in plan.items()} == {
        "actor": 4,
        "rollout": 2,
        "inference": 2,
        "critic": 2,
        "reward": 1,
    }
    assert placement.has_dedicated_inference_for_role("actor")
    assert not placement.has_dedicated_inference_for_role("critic")
    with pytest.raises(PlacementError, match="the role is 'reward'; it must be actor or critic"):
        placement.has_dedicated_inference_for_role("reward")


@pytest.mark.parametrize(("policy", "rows"), [(False, [[2, 3], [4, 5]]), (True, [[0, 1], [2, 3], [4, 5]])])
def test_the_auto_scheduler_starts_the_actor_everywhere(policy: bool, rows: list[list[int]]) -> None:
    switches = {"auto_scheduler": True, "use_pre_process_policy": policy}
    roles = {"actor": "0-1", "rollout": "2-5", "inference": "6-7"}
    placement = placed(roles, 2, 2, cluster=switches, algorithm={"recompute_logprobs": True})
    plan = placement.plan()
    assert plan.mode is PlacementMode.AUTO and placement.rollout_sync_mode is RolloutSyncMode.DISAGGREGATED
    assert devices(plan, "actor") == [[rank] for rank in range(8)]
    assert devices(plan, "rollout") == rows
    assert (placement.rollout_world_size, placement.rollout_dp_size) == (2 * len(rows), len(rows))
    assert (placement.actor_world_size, placement.get_world_size("actor"), placement.actor_dp_size) == (2, 2, 1)


def test_the_data_size_may_change_with_the_accelerators_of_the_actor() -> None:
    batch = {"data": {"rollout_batch_size": 32}, "algorithm": {"group_size": 8, "n_minibatches": 4}}
    roles = {"actor": "0-3", "rollout": "4-7"}
    assert placed(roles, cluster={"auto_scheduler": True}, **batch).is_auto


def test_inference_takes_the_sizes_of_its_section_or_of_the_actor() -> None:
    roles = {"actor": "0-3", "rollout": "4-5", "actor_inference": "6-7"}
    algorithm = {"recompute_logprobs": True}
    alone = placed(roles, 2, algorithm=algorithm)
    assert (alone.inference_tp_size, alone.inference_pp_size, alone.inference_dp_size) == (2, 1, 1)
    section = placed(roles, 2, algorithm=algorithm, actor_inference={"model": {}})
    assert (section.inference_tp_size, section.inference_dp_size) == (1, 2)
    assert section.get_strategy("inference") is section.get_strategy("actor_inference")
    assert section.components == ["actor", "rollout", "actor_inference"]


def test_sizes_of_a_section_that_is_missing_are_unavailable() -> None:
    placement = placed({"actor,rollout,critic": "all"})
    assert placement.critic_world_size == 8 and placement.plan()["critic"].parallel == Parallel()
    with pytest.raises(AttributeError, match="the sizes of the critic are unknown"):
        placement.critic_tp_size  # noqa: B018


def test_expert_sizes_are_those_of_megatron() -> None:
    model = {"tensor_model_parallel_size": 4, "expert_model_parallel_size": 2}
    plan = ModelParallelComponentPlacement(config({"actor,rollout": "all"}) | {"actor": {"model": model}}, EIGHT).plan()
    assert plan["actor"].parallel == Parallel(tp=4, ep=2, etp=4)


# ----------------------------------------------------------------------------------------- what RLinf would drop


def test_node_groups_are_kept_and_modes_compare_accelerators() -> None:
    roles = {"actor": {"node_group": "a", "placement": "all"}, "rollout": {"node_group": "b", "placement": "all"}}
    placement = placed(roles, 2, inventory=SIXTEEN, cluster=GROUPS)
    assert placement.is_disaggregated
    assert devices(placement.plan(), "rollout") == [[rank] for rank in range(8, 16)]
    assert placement.get_strategy("rollout").node_group_label == "b"
    assert placement._rollout_gpus == list(range(8))


def test_one_set_of_accelerators_may_have_two_names() -> None:
    roles = {"actor": "8-15", "rollout": {"node_group": "b", "placement": "all"}}
    placement = placed(roles, 2, inventory=SIXTEEN, cluster=GROUPS)
    assert placement.is_collocated
    assert devices(placement.plan(), "rollout")[:2] == [[8], [9]]
    assert placement.plan()["rollout"].rule == Packed(0, 7, 1, 2)


def test_gaps_are_kept() -> None:
    roles = {"actor,rollout": "0-1,4-7,10-11", "reward": "0,2"}
    plan = placed(roles, 4, 2, inventory=Inventory.uniform(1, 16)).plan()
    assert devices(plan, "rollout") == [[0, 4], [1, 5], [6, 10], [7, 11]]
    assert devices(plan, "reward") == [[0], [2]]


def test_gaps_without_interleaving_stay_ranges() -> None:
    plan = placed({"actor": "6", "rollout": "0-1,4-5"}, 1, 2).plan()
    assert devices(plan, "rollout") == [[0, 1], [4, 5]]
    assert plan["rollout"].rule == RankMap.parse("0-1,4-5:0-1")


def test_process_ranks_are_kept() -> None:
    plan = placed({"actor": "0-3:0-1", "rollout": "4-7:0-1", "reward": "0-1:0-3"}, 2, 2).plan()
    assert devices(plan, "actor") == [[0, 1], [2, 3]]
    assert devices(plan, "rollout") == [[4, 5], [6, 7]]
    assert devices(plan, "reward") == [[0], [0], [1], [1]]


def test_engines_of_one_accelerator_may_share_it() -> None:
    assert devices(placed({"actor": "0-3", "rollout": "4-5:0-3"}).plan(), "rollout") == [[4], [4], [5], [5]]


def test_a_reward_may_run_on_nodes() -> None:
    plan = placed({"actor,rollout": "all", "reward": {"node_group": "node", "placement": "0:0-3"}}).plan()
    assert [row.devices for row in plan["reward"]] == [[]] * 4


# -------------------------------------------------------------------------------------------------- several rollouts


def several(placement: dict[str, Any], *sizes: int, **more: Any) -> MultiAgentModelParallelComponentPlacement:
    return MultiAgentModelParallelComponentPlacement(config(placement, *sizes, **more), EIGHT)


def test_further_rollouts_have_engines_of_their_own_size() -> None:
    roles = {"actor": "all", "rollout": "0-3", "rollout_judge": "4-7"}
    same = several(roles, 2, 1, rollout_judge={})
    assert (same.placement_mode, same.rollout_sync_mode) == (PlacementMode.COLLOCATED, RolloutSyncMode.DISAGGREGATED)
    assert packed(same.get_strategy("rollout_judge", PackedPlacementStrategy)) == (4, 7, 1, 2)
    assert same.get_strategy("rollout_judge").world_size == 4
    larger = several(roles, 2, 1, rollout_judge={"tensor_parallel_size": 2, "pipeline_parallel_size": 2})
    assert packed(larger.get_strategy("rollout_judge", PackedPlacementStrategy)) == (4, 7, 4, 1)
    assert larger.get_strategy("rollout", PackedPlacementStrategy) is larger.get_strategy("rollout")


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (None, "missing-key: `rollout_judge` is missing: the sizes of `rollout_judge` are unknown"),
        (
            {"tensor_parallel_size": 3},
            "parallel-not-divisible: `rollout_judge` has 4 accelerators, which is not a multi",
        ),
        (
            {"dp_size": 3},
            "parallel-not-divisible: `rollout_judge` has 4 accelerators, which is not a multiple of dp_size 3",
        ),
        ({"dp_size": "3"}, "invalid-value: `dp_size` is '3'; it must be a whole number of 1 or more"),
    ],
)
def test_engines_are_rejected_when_they_are_requested(section: dict[str, Any] | None, message: str) -> None:
    roles = {"actor": "all", "rollout": "0-3", "rollout_judge": "4-7"}
    placement = several(roles, **({} if section is None else {"rollout_judge": section}))
    with pytest.raises(PlacementError) as rejected:
        placement.get_strategy("rollout_judge", PackedPlacementStrategy)
    assert f"{rejected.value.code}: {rejected.value.message}".startswith(message)
    assert rejected.value.path.startswith("rollout_judge")


def test_only_packed_engines_exist() -> None:
    placement = several({"actor,rollout": "all", "judge": "0"}, judge={})
    with pytest.raises(PlacementError, match="it must be PackedPlacementStrategy"):
        placement.get_strategy("judge", rankplan.NodePlacementStrategy)
    with pytest.raises(PlacementError, match="unknown component `jugde`"):
        placement.get_strategy("jugde", PackedPlacementStrategy)


def test_evaluation_needs_only_a_rollout() -> None:
    alone = ModelParallelEvalComponentPlacement(config({"rollout": "0-3"}, 4, 2), EIGHT)
    assert devices(alone.plan(), "rollout") == [[0, 1], [2, 3]]
    assert alone.is_collocated and not hasattr(alone, "rollout_sync_mode")
    several = MultiAgentModelParallelEvalComponentPlacement(
        config({"rollout": "0-3", "judge": "4-7"}, rollout=2, judge={"tensor_parallel_size": 4}), EIGHT
    )
    assert packed(several.get_strategy("judge", PackedPlacementStrategy)) == (4, 7, 4, 1)


# ------------------------------------------------------------------------------------- what scripts and workers use


def test_scripts_replace_a_strategy_and_a_number_of_accelerators() -> None:
    placement = ModelParallelEvalComponentPlacement(config({"rollout": "all"}, rollout=2), EIGHT)
    strategy: Any = placement.get_strategy("rollout")
    half = PackedPlacementStrategy(
        strategy._start_hw_rank, strategy._end_hw_rank // 2, strategy._num_hardware_per_process, strategy._stride
    )
    placement._placements["rollout"] = half
    placement._rollout_num_gpus = 4
    assert devices(placement.plan(), "rollout") == [[0, 1], [2, 3]]
    assert (placement.rollout_world_size, placement.rollout_dp_size) == (4, 2)


def test_workers_read_names_with_an_underscore() -> None:
    placement = placed({"actor": "0-1", "rollout": "2-7"}, 2)
    assert placement._components == ["actor", "rollout"]
    assert (placement._actor_gpus, placement._inference_gpus) == ([0, 1], None)
    assert (placement._actor_num_gpus, placement._inference_num_gpus, placement._cluster_num_gpus) == (2, 0, 8)  # type: ignore[attr-defined]
    assert (placement._placement_mode, placement._rollout_sync_mode) == (
        PlacementMode.DISAGGREGATED,
        RolloutSyncMode.DISAGGREGATED,
    )
    assert rankplan.NodePlacementStrategy([0, 0])._node_ranks == [0, 0]


def test_a_placement_travels_to_workers() -> None:
    placement = several({"actor,reward": "all", "rollout": "0-3", "rollout_judge": "4-7"}, 2, rollout_judge={})
    again = pickle.loads(pickle.dumps(placement))
    assert again.plan() == placement.plan() and again.rollout_dp_size == placement.rollout_dp_size
    assert again.get_strategy("rollout_judge", PackedPlacementStrategy).world_size == 4


def test_hybrid_places_as_the_config_says() -> None:
    placement = HybridComponentPlacement(config({"actor,env": "0-3", "rollout": "2-7"}), EIGHT)
    assert placement.plan().mode is PlacementMode.HYBRID and placement._placement_mode is PlacementMode.HYBRID
    assert devices(placement.plan(), "rollout") == [[rank] for rank in range(2, 8)]


def test_omegaconf_gives_the_same() -> None:
    plain = config({"actor,rollout": "all"}, 4, 2) | {"tp": 4}
    plain["actor"]["model"]["tensor_model_parallel_size"] = "${tp}"
    conf = OmegaConf.create(plain)
    OmegaConf.set_struct(conf, True)
    assert ModelParallelComponentPlacement(conf, EIGHT).plan() == placed({"actor,rollout": "all"}, 4, 2).plan()  # type: ignore[arg-type]
    conf.actor.model.tensor_model_parallel_size = "${nothing}"
    with pytest.raises(PlacementError, match="`tensor_model_parallel_size` cannot be read"):
        ModelParallelComponentPlacement(conf, EIGHT)  # type: ignore[arg-type]


def test_faults_of_a_dict_are_in_its_order() -> None:
    with pytest.raises(PlacementError) as rejected:
        placed({"actor": "0-3", "rollout": "4-8", "env": "8"}, 0, 0)
    paths = [fault.path for fault in rejected.value.diagnostics]
    assert paths == [
        "cluster.component_placement.rollout",
        "cluster.component_placement.env",
        "actor.model.tensor_model_parallel_size",
        "rollout.tensor_parallel_size",
    ]


# --------------------------------------------------------------------------------------------- properties, and errors

DIVISORS = st.sampled_from([1, 2, 4, 8])


@given(actor=DIVISORS, rollout=DIVISORS, pipeline=st.sampled_from([1, 2]), nodes=st.sampled_from([2, 4]))
def test_engines_use_every_accelerator_of_the_rollout_once(actor: int, rollout: int, pipeline: int, nodes: int) -> None:
    keywords = {"inventory": Inventory.uniform(nodes, 8), "cluster": {"num_nodes": nodes}}
    stride = max(actor // rollout, 1)
    if rollout * pipeline * stride > 8:
        with pytest.raises(PlacementError) as rejected:
            placed({"actor,rollout": "all"}, actor, rollout, pipeline, **keywords)
        assert {fault.code for fault in rejected.value.diagnostics} == {"spans-nodes"}
        return
    rows = devices(placed({"actor,rollout": "all"}, actor, rollout, pipeline, **keywords).plan(), "rollout")
    assert sorted(rank for row in rows for rank in row) == list(range(8 * nodes))
    assert {len(row) for row in rows} == {rollout * pipeline}
    assert all(after - before == stride for row in rows for before, after in pairwise(row))


@pytest.mark.parametrize("case", REJECTED, ids=lambda case: case["faults"][0]["code"])
def test_every_fault_has_a_code_a_message_a_help_and_a_place(case: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(case["config"])
    with pytest.raises(PlacementError) as rejected:
        rlinf.plan(path, Inventory.parse(case.get("nodes", "1x8")))
    found = [
        {"code": f"{fault.code} at {fault.line}:{fault.column}", "message": fault.message, "help": fault.help}
        for fault in rejected.value.diagnostics
    ]
    assert found == case["faults"]


@pytest.mark.parametrize(
    ("refused", "kind"),
    [
        (lambda: rankplan.PackedPlacementStrategy(0, 1, 3), PlacementError),
        (lambda: rankplan.PackedPlacementStrategy(0, 9).get_placement(EIGHT), rankplan.ResourceOutOfRangeError),
        (lambda: rankplan.FlexiblePlacementStrategy([]), PlacementError),
        (lambda: rankplan.NodePlacementStrategy([-1]), PlacementError),
        (lambda: rankplan.ComponentPlacement({}, EIGHT), PlacementError),
        (lambda: placed({"actor,rollout": "all"}, 3), PlacementError),
        (lambda: placed({"actor,rollout": "all"}).get_strategy("env"), PlacementError),
        (lambda: placed({"actor,rollout": "all"}).has_dedicated_inference_for_role("env"), PlacementError),
    ],
)
def test_the_errors_of_rlinfs_classes_are_assertion_errors(refused: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind) as rejected:
        refused()
    again = pickle.loads(pickle.dumps(rejected.value))
    for error in (rejected.value, again):
        assert isinstance(error, AssertionError) and isinstance(error, ValueError)
        assert error.diagnostics == rejected.value.diagnostics  # type: ignore[attr-defined]


def test_other_errors_are_not() -> None:
    for refused in (
        lambda: rlinf.plan({}, EIGHT),
        lambda: rankplan.parse_placement(""),
        lambda: Inventory.parse("x"),
    ):
        with pytest.raises(ValueError) as rejected:
            refused()
        assert not isinstance(rejected.value, AssertionError)


# ------------------------------------------------------------------------------------------------------ command line

CONF = """\
cluster:
  num_nodes: 1
  component_placement: {actor: 0-3, rollout: 4-7}
actor: {model: {tensor_model_parallel_size: 2}}
rollout: {tensor_parallel_size: 2}
"""


def printed(*arguments: str) -> str:
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_component_placement_is_what_the_command_plans(tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(CONF.replace("actor: 0-3, rollout: 4-7", '"actor,rollout": all'))
    printed("plan", str(path), "--nodes", "1x8", "--save", str(tmp_path / "plan.json"))
    placement = rankplan.ComponentPlacement(path, EIGHT)
    plan = placement.plan()
    assert plan == Plan.load(tmp_path / "plan.json") and plan.mode is PlacementMode.COLLOCATED
    assert {name: len(rows) for name, rows in plan.items()} == {"actor": 8, "rollout": 4}
    for name in placement.components:
        assert placement.get_world_size(name) == placement.get_strategy(name).world_size == len(plan[name])
        assert plan[name].parallel.tp == 2
    stated = rankplan.rlinf.ComponentPlacement(path, EIGHT)  # as in RLinf
    assert stated.get_world_size("rollout") == 8 and stated.plan().mode is None


def test_a_subclass_may_replace_what_the_sections_decide() -> None:
    class Mine(rankplan.ComponentPlacement):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._placements["rollout"] = PackedPlacementStrategy(0, 7, 8)

    mine = Mine(config({"actor,rollout": "all"}, 2, 2), EIGHT)
    assert len(mine.plan()["rollout"]) == mine.get_world_size("rollout") == 1
    assert mine.plan()["actor"].parallel.tp == 2


def test_the_command_line_chooses_the_class_and_prints_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(CONF)
    assert "6 processes on 1 node, mode DISAGGREGATED\n" in printed("check", str(path), "--nodes", "1x8")
    shown = printed("plan", str(path), "--nodes", "1x8", "--save", str(tmp_path / "plan.json"))
    assert "\nmode: DISAGGREGATED\n" in shown
    saved = Plan.load(tmp_path / "plan.json")
    assert saved == rlinf.plan(path, EIGHT) and saved.mode is PlacementMode.DISAGGREGATED
    assert printed("plan", str(tmp_path / "plan.json")) == shown
    only_placements = "".join(CONF.splitlines(keepends=True)[:3])
    path.write_text(only_placements)
    assert printed("check", str(path), "--nodes", "1x8").endswith("8 processes on 1 node\n")


@pytest.mark.parametrize(
    ("sections", "kind"),
    [
        ({}, "ComponentPlacement"),
        ({"model": {"hidden": 8}}, "ComponentPlacement"),
        ({"rollout": {"backend": "mine"}, "actor": {"lr": 1}}, "ComponentPlacement"),
        ({"env": {"train": {}}, "rollout": {"tensor_parallel_size": 2}}, "HybridComponentPlacement"),
        ({"runner": {"task_type": "embodied"}}, "HybridComponentPlacement"),
        ({"runner": {"task_type": "sft"}, "actor": {"model": {}}}, "HybridComponentPlacement"),
        ({"rollout": {}, "actor": {"model": {"context_parallel_size": 1}}}, "ModelParallelComponentPlacement"),
        (
            {"rollout": {}, "actor": {"model": {}}, "runner": {"task_type": "reasoning"}},
            "ModelParallelComponentPlacement",
        ),
        ({"rollout": {"rollout_backend": "vllm"}}, "ModelParallelEvalComponentPlacement"),
        (
            {"rollout": {}, "actor": {}, "runner": {"task_type": "reasoning_eval"}},
            "ModelParallelEvalComponentPlacement",
        ),
        (
            {"rollout": {"tensor_parallel_size": 1, "use_fixed_worker": False}, "actor": {"model": {}}},
            "MultiAgentModelParallelComponentPlacement",
        ),
        (
            {"rollout": {"tensor_parallel_size": 1}, "rollout_server": {"port": 1}, "actor": {"model": {}}},
            "ModelParallelComponentPlacement",
        ),
    ],
)
def test_the_sections_decide_the_class(sections: dict[str, Any], kind: str) -> None:
    cluster = {"num_nodes": 1, "component_placement": {"actor,rollout,env": "all"}}
    found = roles_class(rlinf.read({"cluster": cluster} | sections).values.section)
    assert found.__name__.replace("Roles", "ComponentPlacement") == kind
    cluster = {"num_nodes": 1, "component_placement": {"actor,rollout,reward": "all", "rollout_judge": "0-3"}}
    found = roles_class(rlinf.read({"cluster": cluster} | sections).values.section)
    several = kind.replace("ModelP", "MultiAgentModelP").replace("MultiAgentMultiAgent", "MultiAgent")
    assert found.__name__.replace("Roles", "ComponentPlacement") == several


@pytest.mark.parametrize(
    ("critic", "own", "expected"),
    [
        (None, {"tensor_model_parallel_size": 2}, (2, 1)),
        (None, {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 2}, (1, 2)),
        ({"tensor_model_parallel_size": 2}, {"pipeline_model_parallel_size": 2}, (2, 2)),
        ({"pipeline_model_parallel_size": 2}, {"tensor_model_parallel_size": 1}, (1, 2)),
        ({"tensor_model_parallel_size": 2}, None, (2, 1)),
        (None, {"pipeline_model_parallel_size": 2}, None),
    ],
)
def test_the_inference_of_the_critic_has_its_own_sizes_or_the_critics(
    critic: dict[str, int] | None, own: dict[str, int] | None, expected: tuple[int, int] | None
) -> None:
    roles = {"actor,reward": "0-1", "rollout": "2-3", "critic_inference": "4-7"}
    given = {"critic": critic, "critic_inference": own}
    sections = {name: {"model": sizes} for name, sizes in given.items() if sizes is not None}
    if expected is None:
        with pytest.raises(PlacementError, match=r"`critic\.model` is missing"):
            placed(roles, **sections)
        return
    found = placed(roles, **sections).plan()["critic_inference"].parallel
    assert (found.tp, found.pp) == expected

"""verl's way in: pools, roles and engines, its own answers, its faults, and writing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import Component, Inventory, PlacementError, Plan
from rankplan.dialects.convert import convert
from rankplan.trainers.verl.dialect import DIALECT as verl
from support import oracle_verl
from support.configs import from_overrides, nodes
from support.goldens import check_verdict, lines, named

CONFIGS = [line for line in lines("verl_pools") if line["kind"] == "config"]

# A part of verl's refusal of something that rankplan places, and the difference.
PLACED = {
    "<Role.RewardModel: 5>": "verl-one-step-off-reward",
    "Total available GPUs": "verl-pool-of-a-disabled-reward-model",
    "'NoneType' object has no attribute 'pgs'": "verl-trtllm-hybrid",
    "Could not append to config": "verl-defaults-unread",
    "Key 'megatron' is not in struct": "verl-defaults-unread",
    "not implemented pipeline": "verl-engines-unchecked",
}
# A code for something that verl accepts, and the difference.
REJECTED = {
    "parallel-idle": "verl-idle",
    "spans-nodes": "verl-engine-over-nodes",
    "parallel-not-divisible": "verl-undivided-sizes",
    "not-multiple": "verl-unused-engines",
    "resource-out-of-range": "verl-engine-over-nodes",  # or of teachers that one_step_off ignores
    "invalid-value": "verl-idle",  # sizes of engines that never start
}


def config(line: dict[str, Any]) -> Any:
    """The config of a recorded line; ``entry`` and ``config_name`` stand for some of its keys."""
    name = line["config_name"] or ("" if line["entry"] == "ppo" else f"{line['entry']}_ppo_trainer")
    return from_overrides([f"hydra.job.config_name={name}", *line["overrides"]])


def engines(component: Component | None) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """Each engine of a component: its size, its processes and its accelerators."""
    rows = list(component or ())
    size = component.engines if component is not None else 1
    found = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [
        (sum(row.num_accelerators for row in one), len(one), [device for row in one for device in row.devices])
        for one in found
    ]


def recorded(line: dict[str, Any], kind: str, mode: str) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """The same as verl answered. It sorts the nodes of a pool by address as text; here they are in their own order."""
    answer = line["result"]
    found = []
    for one in answer["replicas"]:
        if (one["kind"], one["mode"]) == (kind, mode):
            ranks = answer["groups"][one["group"]]["ranks"][one["first"] : one["first"] + one["count"]]
            places = [(node, gpu) for _, _, node, gpu in ranks]
            servers = one["world"] // one["per_node"]  # trtllm has one server for all nodes of an engine
            found.append((one["world"], servers, sorted(places) if mode == "standalone" else places))
    return found


@pytest.mark.parametrize("line", CONFIGS, ids=[line["id"] for line in CONFIGS])
def test_verl_answers_the_same(line: dict[str, Any]) -> None:
    answer = line["result"]
    reason = answer.get("error", {}).get("cause", answer.get("error", {})).get("message", "")
    try:
        plan = verl.plan(config(line), nodes([gpus for _, gpus in line["cluster"]]))
    except PlacementError as error:
        check_verdict(line["id"], [] if reason else [REJECTED[fault.code] for fault in error.diagnostics])
        return
    check_verdict(line["id"], [next(name for part, name in PLACED.items() if part in reason)] if reason else [])
    if reason:
        return
    pool = next(one for one in answer["pools"] if one["name"] in ("global_pool", "trainer_pool"))
    each, order = pool["spec"][0], pool["sorted"]
    if order != sorted(order):
        named("verl-text-order")
    created = [(0, 0)] * sum(pool["spec"])
    for rank, (_, _, node, gpu) in enumerate(answer["groups"][0]["ranks"]):
        created[order[rank // each] * each + rank % each] = (node, gpu)
    assert [row.devices for row in plan["actor"]] == [[place] for place in created]
    assert {one.share for one in plan.values() if one.share is not None} <= {0.5, 0.3333, 0.1666, 0.1111}

    hybrid, alone = recorded(line, "rollout", "hybrid"), recorded(line, "rollout", "standalone")
    names = ("rollout", "rollout_standalone") if hybrid else ("rollout_standalone", "rollout")
    planned = engines(plan.get(names[0]))
    assert [one[:2] for one in planned] == [one[:2] for one in hybrid]
    assert [place for _, _, places in planned for place in places] == (created if hybrid else [])
    if alone and "teacher" not in {name.partition(".")[0] for name in plan}:
        assert [(size, count, sorted(places)) for size, count, places in engines(plan.get(names[1]))] == alone
    reward = recorded(line, "reward", "colocated") + recorded(line, "reward", "standalone")
    assert [one[:2] for one in engines(plan.get("reward"))] == [one[:2] for one in reward]
    teachers = [one for name, component in plan.items() if name.startswith("teacher") for one in engines(component)]
    if line["entry"] == "one_step_off" and teachers:
        named("verl-one-step-off-teachers")
    else:
        assert [one[:2] for one in teachers] == [one[:2] for one in recorded(line, "teacher", "colocated")]
    if line["entry"] == "ppo":
        assert ("ref" in plan) == ("actor_rollout_ref" in answer["roles"])


BASE = ["trainer.nnodes=2", "trainer.n_gpus_per_node=8", "algorithm.adv_estimator=grpo"]
TP = "actor_rollout_ref.rollout.tensor_model_parallel_size"

# Overrides, and the faults: path, code and message.
REFUSED: list[tuple[list[str], list[str]]] = [
    (
        [f"{TP}=6"],
        [
            f"{TP} spans-nodes: engine 1 of the rollout would need 6 accelerators (tensor_model_parallel_size 6) "
            "on nodes 0 and 1",
            f"{TP} parallel-idle: engines of 6 accelerators (tensor_model_parallel_size 6) leave 4 of 16 of the "
            "rollout's pool idle",
        ],
    ),
    (
        [f"{TP}=32"],
        [
            f"{TP} parallel-idle: an engine of the rollout needs 32 accelerators (tensor_model_parallel_size 32), more "
            "than the 16 accelerators of its pool: none would start"
        ],
    ),
    (
        [f"{TP}=12"],
        [
            f"{TP} not-multiple: an engine of 12 accelerators (tensor_model_parallel_size 12) cannot be divided into "
            "nodes of 8"
        ],
    ),
    (
        ["trainer.nnodes=two"],
        ["trainer.nnodes invalid-value: `nnodes` is 'two'; it must be a whole number of 1 or more"],
    ),
    (["trainer.nnodes=null"], ["trainer.nnodes invalid-value: `nnodes` is null; it must be a whole number"]),
    (
        ["trainer.nnodes=9999999999"],
        ["trainer.nnodes invalid-value: `nnodes` is 9999999999; it must be 1,048,576 or less"],
    ),
    (["trainer.nnode=2"], ["trainer.nnode unknown-key: unknown key `nnode`"]),
    (["trainer=4"], ["trainer invalid-value: `trainer` is 4; it must be a mapping"]),
    (["critic.enable=maybe"], ["critic.enable invalid-value: `enable` is 'maybe'; it must be true or false"]),
    (
        ["trainer.nnodes=3"],
        [
            "trainer.nnodes resource-out-of-range: the pool of trainer needs 3 nodes with 8 free accelerators each, "
            "but the cluster has 2 nodes with 8"
        ],
    ),
    (
        ["reward.reward_model.enable=true", "reward.reward_model.enable_resource_pool=true"],
        ["reward.reward_model missing-key: `nnodes` is missing: reward.reward_model has a pool of its own"],
    ),
    (
        ["model_engine=megatron", "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=3"],
        [
            "actor_rollout_ref.actor.megatron.tensor_model_parallel_size parallel-not-divisible: 16 processes are not "
            "a multiple of tp 3"
        ],
    ),
    (
        ["actor_rollout_ref.rollout.expert_parallel_size=3"],
        [
            "actor_rollout_ref.rollout.expert_parallel_size invalid-value: `expert_parallel_size` is 3; verl "
            "accepts 1, or tensor size x data size, which is 2"
        ],
    ),
]


@pytest.mark.parametrize(("words", "expected"), REFUSED, ids=[words[-1] for words, _ in REFUSED])
def test_faults_have_verls_keys(words: list[str], expected: list[str]) -> None:
    with pytest.raises(PlacementError) as caught:
        verl.plan(from_overrides([*BASE, *words]), Inventory.uniform(2, 8))
    found = [f"{one.path} {one.code}: {one.message}" for one in caught.value.diagnostics]
    assert found == expected
    assert all(one.help and one.line == 1 and one.column for one in caught.value.diagnostics)


def test_a_fault_is_in_the_file_where_the_value_is(tmp_path: Path) -> None:
    path = tmp_path / "verl.yaml"
    path.write_text(f"trainer: {{nnodes: 2}}\nactor_rollout_ref:\n  rollout: {{{TP.rpartition('.')[2]}: 6}}\n")
    with pytest.raises(PlacementError) as caught:
        verl.plan(path, Inventory.uniform(2, 8))
    assert {(one.line, one.column) for one in caught.value.diagnostics} == {(3, 41)}


def test_parallel_sizes_and_shares_reach_the_plan() -> None:
    words = [
        "model_engine=megatron",
        "actor_rollout_ref.actor.use_kl_loss=true",
        "algorithm.adv_estimator=gae",
        f"{TP}=4",
    ]
    words += [
        f"actor_rollout_ref.actor.megatron.{key}=2" for key in ("tensor_model_parallel_size", "context_parallel_size")
    ]
    plan = verl.plan(from_overrides([*BASE, *words]), Inventory.uniform(2, 8))
    assert list(plan) == ["actor", "ref", "critic", "rollout"]
    assert (plan["actor"].parallel.tp, plan["actor"].parallel.cp, plan["ref"].parallel.tp) == (2, 2, 2)
    assert [one.share for one in plan.values()] == [0.1111, 0.1111, 0.1111, None]
    assert str(plan["rollout"].parallel) == "tp 4" and len(plan["rollout"].groups("tp")) == 4


def test_fsdp_and_sequence_sizes_reach_the_plan() -> None:
    words = [
        "actor_rollout_ref.actor.fsdp_config.fsdp_size=8",
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2",
    ]
    actor = verl.plan(from_overrides([*BASE, *words]), Inventory.uniform(2, 8))["actor"]
    assert (actor.parallel.cp, actor.parallel.fsdp) == (2, 4)
    assert next(iter(actor.groups("fsdp"))) == range(0, 8, 2)


def test_interpolations_of_a_composed_config_are_resolved() -> None:
    words = ["trainer.nnodes=${oc.select:nodes.count,1}", "nodes.count=2", f"{TP}=${{nodes.tp}}", "nodes.tp=4"]
    plan = verl.plan(from_overrides(words), Inventory.uniform(2, 8))
    assert (len(plan["actor"]), len(plan["rollout"])) == (16, 4)


def test_a_script_chooses_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    words = "algorithm.adv_estimator=grpo trainer.nnodes=1 rollout.nnodes=1 "
    words += "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4"
    path.write_text(f"python3 -m verl --config-name='fully_async_ppo_megatron_trainer.yaml' {words}\n")
    plan = verl.plan(path, Inventory.uniform(2, 8))
    assert (plan["actor"].parallel.tp, str(plan["rollout"].used_nodes())) == (4, "1")
    path.write_text(f"python3 -m verl --config-name ppo_trainer {words.replace('rollout.nnodes=1', '')}\n")
    assert not verl.plan(path, Inventory.uniform(2, 8))["actor"].parallel.stated


def test_an_assumed_inventory_has_every_pool() -> None:
    words = [
        "reward.reward_model.enable=true",
        "reward.reward_model.enable_resource_pool=true",
        "reward.reward_model.nnodes=1",
    ]
    assumed = verl.assumed_inventory(from_overrides([*BASE, *words]))
    assert (assumed.num_nodes, assumed.node(0).num_accelerators) == (3, 8)


def test_an_assumed_inventory_is_not_larger_than_memory() -> None:
    with pytest.raises(
        PlacementError, match="the config needs 1,000,000,000,000 accelerators; at most 2,097,152 can be"
    ):
        verl.assumed_inventory(from_overrides(["trainer.nnodes=1000000", "trainer.n_gpus_per_node=1000000"]))


WRITTEN = [
    ["algorithm.adv_estimator=gae", f"{TP}=4"],
    ["model_engine=megatron", "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4", f"{TP}=16"],
    ["trainer.nnodes=1", "rollout.nnodes=1", "rollout.n_gpus_per_node=8"],
    ["actor_rollout_ref.actor.use_kl_loss=true", "reward.reward_model.enable=true"],
    [
        "trainer.nnodes=1",
        *(f"reward.reward_model.{one}" for one in ("enable=true", "enable_resource_pool=true", "nnodes=1")),
    ],
    ["actor_rollout_ref.actor.fsdp_config.fsdp_size=4", f"{TP}=2", "actor_rollout_ref.rollout.data_parallel_size=2"],
]


@pytest.mark.parametrize("words", WRITTEN, ids=lambda words: words[-1])
def test_a_written_config_plans_the_same(words: list[str]) -> None:
    plan = verl.plan(from_overrides([*BASE, *words]), Inventory.uniform(2, 8))
    conversion = convert(plan, "verl")
    assert conversion.omitted == ()
    again = verl.plan(conversion.config, Inventory.uniform(2, 8))
    assert {name: (list(one), one.parallel, one.share) for name, one in plan.items()} == {
        name: (list(one), one.parallel, one.share) for name, one in again.items()
    }


def test_what_verl_cannot_express_is_named() -> None:
    plan = verl.plan(from_overrides([*BASE, "trainer.nnodes=1"]), Inventory.uniform(2, 8))
    others = [Component.place(name, plan.inventory, ("cluster",), plan["actor"].rule) for name in ("env", "critic")]
    conversion = convert(Plan(plan.inventory, [*plan.values(), *others]), "verl")
    assert conversion.omitted == ("env: verl has no such role", "actor: its share, 0.3333 (verl: 0.1666)")
    assert convert(Plan(plan.inventory, others), "verl").omitted == (
        "env: verl has no such role",
        "critic: verl needs an actor",
    )


SIZES = st.sampled_from([1, 1, 2, 2, 3, 4, 8])
POOLS_OF = st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 4, 8]))
MODELS = st.builds(oracle_verl.Model, SIZES, st.sampled_from([1, 1, 2]), st.none() | POOLS_OF)
CASES = st.builds(
    oracle_verl.Case,
    st.lists(st.sampled_from([2, 4, 8, 8]), min_size=1, max_size=5).map(tuple),
    POOLS_OF,
    MODELS,
    st.none() | SIZES,
    st.none() | MODELS,
)


@settings(max_examples=300)
@given(CASES)
def test_random_jobs_are_placed_as_verl_places_them(case: oracle_verl.Case) -> None:
    config, inventory = from_overrides(case.words), nodes(case.cluster)
    try:
        expected = oracle_verl.placed(case)
    except oracle_verl.Refused:
        with pytest.raises(PlacementError) as caught:
            verl.plan(config, inventory)
        found = caught.value.diagnostics
        assert len({(one.path, one.code, one.message) for one in found}) == len(found)
        assert all(one.help for one in found)
        return
    plan = verl.plan(config, inventory)
    assert {name: [row.devices for row in component] for name, component in plan.items()} == expected


def test_the_oracle_answers_as_verl_did() -> None:
    """The recorded jobs with one pool and one kind of engine, so that random jobs have a true answer."""
    data = f"{TP.rpartition('.')[0]}.data_parallel_size"
    known = {"trainer.nnodes": 1, "trainer.n_gpus_per_node": 8, TP: 2, data: 1}
    special = {"reward.reward_model.enable", "distillation.enabled", "trainer.v1.trainer_mode"}
    special |= {"actor_rollout_ref.rollout.disaggregation.enabled"}
    compared = 0
    for line in CONFIGS:
        values = dict(word.lstrip("+").split("=", 1) for word in line["overrides"])
        others = [key for key in values if key.startswith(("trainer", "rollout", "actor_rollout_ref.rollout."))]
        sizes = {key for key in others if key.endswith(("nnodes", "n_gpus_per_node", "parallel_size"))}
        if line["entry"] != "ppo" or sizes - known.keys() or special & values.keys() or line["result"].get("error"):
            continue
        nnodes, each, tensor, replicas = (int(values.get(key, default)) for key, default in known.items())
        cluster = tuple(gpus for _, gpus in line["cluster"])
        case = oracle_verl.Case(cluster, (nnodes, each), oracle_verl.Model(tensor, replicas))
        try:
            rollout = oracle_verl.placed(case)["rollout"]
        except oracle_verl.Refused:
            continue  # a difference: idle accelerators, or a server over two nodes
        answers = recorded(line, "rollout", "hybrid")
        assert len(rollout) == sum(servers for _, servers, _ in answers)
        assert sum(map(len, rollout)) == sum(size for size, _, _ in answers)
        compared += 1
    assert compared > 50


ONE_POOL = ["trainer.nnodes=1", "trainer.n_gpus_per_node=4", f"{TP}=2"]
ASYNC = ["algorithm.adv_estimator=grpo", "trainer.nnodes=1", "rollout.nnodes=1", f"{TP}=4"]
# The program of a script, further overrides, and the processes and the components of its plan.
PROGRAMS: list[tuple[str, list[str], dict[str, int]]] = [
    ("verl.trainer.main_ppo", [], {"actor": 4, "critic": 4, "rollout": 2}),
    ("recipe.spin.main_spin", [], {"actor": 4, "ref": 4, "rollout": 2}),
    ("recipe/sppo/main_sppo.py", [], {"actor": 4, "rollout": 2}),
    ("recipe.prime.main_prime", [], {"actor": 4, "reward": 4, "rollout": 2}),
    ("recipe.prime.main_prime", ["reward_model.enable=false"], {"actor": 4, "rollout": 2}),
    ("recipe.entropy.main_entropy", ["reward_model.enable=true"], {"actor": 4, "critic": 4, "reward": 4, "rollout": 2}),
    (
        "recipe.partial_rollout.main_ppo",
        ["+async_training.partial_rollout=True"],
        {"actor": 4, "critic": 4, "rollout": 2},
    ),
    ("recipe.one_step_off_policy.main_ppo", ["critic.enable=false"], {"actor": 4, "rollout": 4}),
    ("verl.experimental.fully_async_policy.fully_async_main", ["critic.enable=false"], {"actor": 4, "rollout": 4}),
    ("my.trainer", ["algorithm.adv_estimator=grpo"], {"actor": 4, "rollout": 2}),
]


@pytest.mark.parametrize(
    ("program", "words", "expected"), PROGRAMS, ids=[" ".join([one, *more]) for one, more, _ in PROGRAMS]
)
def test_a_program_decides_the_roles(program: str, words: list[str], expected: dict[str, int], tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    start = f"-m {program}" if "/" not in program else program
    path.write_text(f"python3 {start} {' '.join([*ONE_POOL, *words])}\n")
    plan = verl.plan(path, Inventory.uniform(4, 8))
    assert {name: len(component) for name, component in plan.items()} == expected


SIZED: list[tuple[list[str], str, str]] = [
    (
        [
            "actor@actor_rollout_ref.actor=mlite_actor",
            *(f"actor_rollout_ref.actor.engine.{one}=2" for one in ("tp", "pp")),
        ],
        "tp 2 x pp 2",
        "a group choice",
    ),
    (
        [
            "actor@actor_rollout_ref.actor=megatron_actor",
            "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4",
        ],
        "tp 4",
        "",
    ),
    (["actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4"], "tp 4", "a section that only Megatron has"),
    (
        ["hydra.job.config_name=ppo_trainer", "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4"],
        "",
        "FSDP",
    ),
    (
        [
            "actor_rollout_ref.actor.strategy=fsdp_turbo",
            "actor_rollout_ref.actor.fsdp_config.turbo_config.distributed.ulysses_parallel_size=2",
            "actor_rollout_ref.actor.fsdp_config.turbo_config.distributed.fully_shard_parallel_size=8",
        ],
        "cp 2 x fsdp 4",
        "FSDP-Turbo",
    ),
]


@pytest.mark.parametrize(("words", "expected", "why"), SIZED, ids=[words[0] for words, _, _ in SIZED])
def test_the_engine_of_the_training_tells_its_sizes(words: list[str], expected: str, why: str) -> None:
    parallel = verl.plan(from_overrides([*BASE, *words]), Inventory.uniform(2, 8))["actor"].parallel
    assert (str(parallel) if parallel.stated else "") == expected, why


def test_an_engine_has_servers_of_rollout_n_gpus_per_node() -> None:
    words = [*BASE, f"{TP}=4", "actor_rollout_ref.rollout.n_gpus_per_node=2"]
    rollout = verl.plan(from_overrides(words), Inventory.uniform(2, 8))["rollout"]
    assert (len(rollout), rollout.engines, {row.num_accelerators for row in rollout}) == (8, 2, {2})


MODE = "trainer.v1.trainer_mode=separate_async"
STANDALONE = ["actor_rollout_ref.rollout.nnodes=1", "actor_rollout_ref.rollout.n_gpus_per_node=8"]
# Overrides, the nodes, and the only fault.
REFUSED_BY_VERL: list[tuple[list[str], list[int], str]] = [
    (
        [*BASE, MODE, *STANDALONE, "reward.reward_model.enable=true"],
        [8] * 4,
        "reward.reward_model.enable invalid-value: the reward model has no pool of its own; verl needs one if the "
        "rollout never pauses",
    ),
    (
        ["trainer.nnodes=1", "trainer.n_gpus_per_node='4'", MODE, "actor_rollout_ref.rollout.nnodes=1", *BASE[2:]],
        [8] * 4,
        "trainer.n_gpus_per_node invalid-value: `n_gpus_per_node` is '4'; it must be a whole number of 1 or more",
    ),
    (
        [*ASYNC, "critic.enable=true"],
        [8] * 4,
        "critic.enable invalid-value: this trainer has no critic: verl fails when it creates one",
    ),
    (
        [*ASYNC, "algorithm.adv_estimator=gae"],
        [8] * 4,
        "algorithm.adv_estimator invalid-value: this trainer has no critic: verl fails when it creates one",
    ),
    (
        [*ASYNC, "trainer.n_gpus_per_node=4", "rollout.nnodes=2", "rollout.n_gpus_per_node=4"],
        [4, 6, 2, 2],
        f"{TP} spans-nodes: engine 1 of the rollout needs 4 accelerators (tensor_model_parallel_size 4) on one node; 6 "
        "are free, but no node has that many",
    ),
    (
        [*BASE[:2], "algorithm.adv_estimator=grpo", "trainer.nnodes=1", "trainer.n_gpus_per_node=3"],
        [8],
        f"{TP} parallel-idle: engines of 2 accelerators (verl's default tensor_model_parallel_size 2; the file does "
        "not set it) leave 1 of 3 of the rollout's pool idle",
    ),
]


@pytest.mark.parametrize(("words", "counts", "expected"), REFUSED_BY_VERL, ids=[one[2][:40] for one in REFUSED_BY_VERL])
def test_what_verl_refuses_is_one_fault(words: list[str], counts: list[int], expected: str) -> None:
    with pytest.raises(PlacementError) as caught:
        verl.plan(from_overrides(words), nodes(counts))
    assert [f"{one.path} {one.code}: {one.message}" for one in caught.value.diagnostics] == [expected]


def test_a_program_with_a_placement_of_its_own_is_not_planned(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"python3 -m recipe.async_flow.grpo_main {' '.join(ONE_POOL)} async_resources.rollout.nnodes=1\n")
    with pytest.raises(PlacementError, match="places its processes by `async_resources`, which rankplan does not read"):
        verl.plan(path, Inventory.uniform(4, 8))


def test_a_critic_that_only_a_run_reveals_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    words = " ".join(word for word in ASYNC if "estimator" not in word)
    program = "python3 -m verl.experimental.fully_async_policy.fully_async_main"
    path.write_text(f"{program} {words} algorithm.adv_estimator=$(cat estimator)\n")
    assert "critic" in verl.plan(path, Inventory.uniform(2, 8))
    path.write_text(f"{program} {words}\n")
    with pytest.raises(PlacementError, match="verl's default estimator is gae"):
        verl.plan(path, Inventory.uniform(2, 8))


def test_what_verl_counts_or_ignores_is_a_warning() -> None:
    model = "reward.reward_model"
    read = verl.read(from_overrides([*BASE, f"{model}.enable_resource_pool=true", f"{model}.nnodes=2"]))
    verl.plan(read, Inventory.uniform(2, 8))
    (found,) = read.reader.warnings
    assert f"{found.path} {found.code}: {found.message}" == (
        "reward.reward_model.enable_resource_pool idle-accelerators: verl also counts the pool of the reward model, "
        "2 nodes with 8 accelerators, although it is disabled"
    )
    (found,) = verl.read(from_overrides([*BASE, "reward_model.enable=true"])).reader.warnings
    assert (
        found.message
        == "no reward model is placed: verl 0.9 takes it from `reward.reward_model`, not from `reward_model`"
    )


LABELS = """\
python3 -m verl.trainer.main_ppo model_engine=megatron algorithm.adv_estimator=grpo \\
  actor_rollout_ref.actor.optim.lr=1e-6 \\
  actor_rollout_ref.actor.megatron.param_offload=True \\
  actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 \\
  actor_rollout_ref.actor.megatron.expert_model_parallel_size=4 \\
  actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=8 \\
  actor_rollout_ref.rollout.name=vllm trainer.nnodes=8 trainer.n_gpus_per_node=%d
"""


def test_a_label_points_at_the_size_that_breaks(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(LABELS % 8)
    with pytest.raises(PlacementError) as caught:
        verl.plan(path, Inventory.uniform(8, 8))
    (found,) = caught.value.diagnostics
    assert (found.line, found.message) == (
        6,
        "64 processes are not a multiple of etp 4 x ep 4 x pp 8 = 128; etp is tp unless it is given, as in Megatron",
    )
    path.write_text(LABELS % 3)
    with pytest.raises(PlacementError) as caught:
        verl.plan(path, Inventory.uniform(8, 3))
    torn = [one for one in caught.value.diagnostics if one.code == "spans-nodes"]
    assert [(one.line, one.path) for one in torn] == [(None, TP)]  # no line sets it
    assert "verl's default tensor_model_parallel_size 2; the file does not set it" in torn[0].message


PARTITIONED = (
    "trainer.nnodes={} trainer.n_gpus_per_node={} rollout.nnodes={} rollout.n_gpus_per_node={} critic.enable=false "
    "actor_rollout_ref.rollout.tensor_model_parallel_size=2 async_training.hybrid_res_pool=true"
)


@pytest.mark.parametrize(
    ("sizes", "partition", "training", "rollout"),
    [
        ((2, 8, 1, 8), "8_4-4", [(0, 8), (1, 4)], [(1, 4)]),
        ((2, 8, 1, 8), "4-4_8", [(0, 4)], [(0, 4), (1, 8)]),
        ((2, 6, 2, 2), "6_6-2_2", [(0, 8), (1, 4)], [(1, 4)]),  # side by side on two nodes of 8, by parts of 2
    ],
)
def test_a_partition_divides_shared_nodes(
    sizes: tuple[int, ...], partition: str, training: list[tuple[int, int]], rollout: list[tuple[int, int]]
) -> None:
    config = from_overrides([*PARTITIONED.format(*sizes).split(), f"+actor_rollout_ref.partition={partition}"])
    planned = verl.plan(config, Inventory.uniform(2, 8))
    for name, places in (("actor", training), ("rollout", rollout)):
        nodes = Counter(node for row in planned[name] for node, _ in row.devices)
        assert sorted(nodes.items()) == places
    assert verl.assumed_inventory(config) == Inventory.uniform(2, 8)
    each, groups = {"8_4-4": (4, 3), "4-4_8": (4, 1), "6_6-2_2": (2, 6)}[partition]
    assert [len(request.accelerators) for request in planned.requests if request.component == "actor"] == [
        each
    ] * groups


@pytest.mark.parametrize(
    ("sizes", "partition", "message"),
    [
        ((2, 8, 1, 8), "8_8-8", "neither the 2 x 8 accelerators of trainer, nor"),
        ((2, 8, 2, 4), "8_4-4", "neither the 2 x 8"),  # which of the two is meant
        ((2, 8, 1, 8), "12-4", "has a part of 12 accelerators, but a node has 8"),
        ((2, 8, 1, 8), "8_x-4", "`partition` is '8_x-4'; it must be the parts"),
        ((2, 8, 1, 8), "8-4-4", "it must be the parts"),
        ((2, 8, 1, 8), "16-0", "it must be the parts"),
        ((2, 8, 1, 8), None, "`actor_rollout_ref.partition` is missing"),
    ],
)
def test_a_partition_that_does_not_fit_is_refused(sizes: tuple[int, ...], partition: str | None, message: str) -> None:
    words = PARTITIONED.format(*sizes).split()
    if partition is not None:
        words.append(f"+actor_rollout_ref.partition={partition}")
    with pytest.raises(PlacementError, match=message):
        verl.plan(from_overrides(words), Inventory.uniform(2, 8))
    off = [word for word in words if "hybrid_res_pool" not in word]
    assert "actor" in verl.plan(from_overrides(off), Inventory.uniform(3, 8))

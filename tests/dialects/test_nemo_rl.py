"""NeMo-RL's way in: nodes for training, inference and the reward model; files that extend others; its own answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from rankplan import Component, Inventory, PlacementError, arrange, load_config
from rankplan import plan as planned
from rankplan.trainers.nemo_rl.dialect import DIALECT as nemo_rl
from support.configs import from_overrides
from support.goldens import check_verdict, lines

CLUSTERS = [line for line in lines("nemo_rl_clusters") if line["kind"] != "file"]
FILES = {line["source"]: line["own"] for line in lines("nemo_rl_clusters") if line["kind"] == "file"}

KEYS = ("num_nodes", "gpus_per_node")

# A code for something that NeMo-RL accepts, and the difference.
REJECTED = {
    "parallel-idle": "nemo-rl-engine-size",
    "empty-placement": "nemo-rl-no-training",
    "not-multiple": "nemo-rl-segments",
}


def devices(component: Component) -> list[tuple[int, int]]:
    return [device for row in component for device in row.devices]


def config(line: dict[str, Any]) -> dict[str, Any]:
    """The config of a recorded line, with a section of its algorithm."""
    found: dict[str, Any]
    if line["kind"] == "shipped":
        keys = line["keys"]
        policy = {**keys["policy"], **({"generation": keys["generation"]} if "generation" in keys else {})}
        found = {"cluster": keys["cluster"], "policy": policy, line["algorithm"]: {}}
        clusters = line["result"].get("flat", line["result"])["clusters"]  # the recorded keys lack the teachers
        sizes = {one["name"].removeprefix("teacher_"): one for one in clusters if one["name"].startswith("teacher_")}
        nodes = {
            name: {"num_nodes": one["nodes"], "gpus_per_node": one["gpus_per_node"]} for name, one in sizes.items()
        }
        apart = {"enabled": True, "teacher_overrides": nodes}
        opd = {"enabled": True, "teacher_model_by_agent_name": {name: name for name in nodes}}
        return found | ({"on_policy_distillation": opd | {"non_colocated_teachers": apart}} if nodes else {})
    resources = {"num_nodes": line.get("inference_nodes"), "gpus_per_node": line.get("inference_gpus")}
    generation = {
        "backend": line.get("backend", "vllm"),
        "colocated": {"enabled": line["colocated"], "resources": resources},
        "vllm_cfg": {"tensor_parallel_size": line["tp"], "pipeline_parallel_size": line["pp"]},
    }
    cluster = {key: line[key] for key in ("num_nodes", "gpus_per_node", "segment_size")}
    found = {"cluster": cluster, "policy": {"generation": generation}, line["algorithm"]: {}}
    if "reward_nodes" in line:
        sizes = {"num_nodes": line["reward_nodes"], "gpus_per_node": line["reward_gpus"]}
        found["env"] = {"reward_model": {"enabled": True, "resources": sizes}}
    return found


@pytest.mark.parametrize("line", CLUSTERS, ids=[line["id"] for line in CLUSTERS])
def test_nemo_rl_answers_the_same(line: dict[str, Any]) -> None:
    asked = config(line)
    answer = line["result"].get("flat", line["result"])
    cluster = asked["cluster"]
    try:
        plan = nemo_rl.plan(asked, Inventory.uniform(cluster["num_nodes"] or 1, max(cluster["gpus_per_node"], 1)))
    except PlacementError as error:
        names = [
            "nemo-rl-backends" if str(fault.path).endswith("backend") else REJECTED[fault.code]
            for fault in (error.diagnostics if "error" not in answer else ())
        ]
        check_verdict(line["id"], names)
        return
    check_verdict(line["id"], ["unrelated-options"] if "error" in answer else [])
    if "error" in answer:
        assert "async_engine" in answer["error"]["message"] or "backend" in answer["error"]["message"]
        return
    training, *others = answer["clusters"]
    assert len(plan["policy"]) == training["nodes"] * training["gpus_per_node"]
    assert plan["policy"].share == pytest.approx(1 / training["shared_by"], abs=1e-3)
    for other in others:
        teacher = other["name"].startswith("teacher_")
        found = plan[other["name"].replace("_", ".", 1) if teacher else "generation"]
        assert sum(row.num_accelerators for row in found) == other["nodes"] * other["gpus_per_node"]
        assert found.share == pytest.approx(1 / other["shared_by"], abs=1e-3)
        assert not {*devices(found)} & {*devices(plan["policy"])}


def test_a_file_extends_others_as_nemo_rl_merges_them(tmp_path: Path) -> None:
    for name, own in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(yaml.safe_dump(own))
    checked = 0
    for line in CLUSTERS:
        if line["kind"] == "shipped":
            own = load_config(tmp_path / line["source"])
            assert own["cluster"] == line["keys"]["cluster"], line["source"]
            checked += 1
    assert checked > 200


def test_fields_of_a_child_or_a_parent_alone_are_enough(tmp_path: Path) -> None:
    """The dialect is recognised after files are merged, wherever its keys are; overrides change the merged config."""
    base = "cluster: {num_nodes: 1, gpus_per_node: 8}\npolicy: {dtensor_cfg: {enabled: true}, generation: {a: '???'}}\n"
    (tmp_path / "base.yaml").write_text(base)
    (tmp_path / "child.yaml").write_text("defaults: base.yaml\ngrpo: {num_prompts_per_step: 8}\n")
    (tmp_path / "grandchild.yaml").write_text("defaults: [child.yaml]\ncluster: {num_nodes: 2, gpus_per_node: '???'}\n")
    counts = {"child.yaml": 8, "grandchild.yaml": 16}
    for name, count in counts.items():
        assert {len(one) for one in planned(tmp_path / name).values()} == {count}
    assert len(planned(tmp_path / "child.yaml", overrides=["cluster.num_nodes=3"])["policy"]) == 24
    (tmp_path / "run.sh").write_text("uv run examples/run_grpo.py --config grandchild.yaml cluster.gpus_per_node=4\n")
    assert len(planned(tmp_path / "run.sh")["policy"]) == 8


def test_a_section_with_override_replaces_that_of_the_parents(tmp_path: Path) -> None:
    base = "cluster: {num_nodes: 2, gpus_per_node: 8, segment_size: 2}\npolicy: {generation: {}}\n"
    (tmp_path / "base.yaml").write_text(base)
    (tmp_path / "own.yaml").write_text(
        "defaults: base.yaml\ncluster: {_override_: true, gpus_per_node: 4, num_nodes: x}\n"
    )
    assert load_config(tmp_path / "own.yaml")["cluster"] == {"gpus_per_node": 4, "num_nodes": "x"}
    with pytest.raises(PlacementError, match=r"`num_nodes` is 'x'"):
        planned(tmp_path / "own.yaml")


def test_faults_are_in_the_file_that_has_the_value(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("cluster:\n  num_nodes: two\n  gpus_per_node: 8\n")
    (tmp_path / "own.yaml").write_text("defaults: base.yaml\ncluster: {gpus_per_node: eight}\n")
    with pytest.raises(PlacementError) as caught:
        nemo_rl.plan(tmp_path / "own.yaml", Inventory.uniform(2, 8))
    found = {(Path(one.file or "").name, one.line, one.column) for one in caught.value.diagnostics}
    assert found == {("base.yaml", 2, 14), ("own.yaml", 2, 26)}
    (tmp_path / "own.yaml").write_text("defaults: [./own.yaml, own.yaml]\ncluster: {gpus_per_node: 8}\n")
    with pytest.raises(PlacementError, match=r"`defaults` names own\.yaml, which cannot be read: it extends itself"):
        nemo_rl.plan(tmp_path / "own.yaml", Inventory.uniform(2, 8))


APART = ["cluster.num_nodes=4", "cluster.gpus_per_node=8", "policy.generation.colocated.enabled=false"]
RESOURCES = "policy.generation.colocated.resources"

REFUSED: list[tuple[list[str], str]] = [
    (
        [f"{RESOURCES}.gpus_per_node=8"],
        f"{RESOURCES} missing-key: `num_nodes` is missing: of 4 nodes, how many generate",
    ),
    (
        [f"{RESOURCES}.num_nodes=1", f"{RESOURCES}.gpus_per_node=4"],
        f"{RESOURCES}.gpus_per_node invalid-value: `gpus_per_node` is 4; it must be cluster.gpus_per_node, which is 8",
    ),
    (
        [f"{RESOURCES}.num_nodes=4", f"{RESOURCES}.gpus_per_node=8"],
        "cluster.num_nodes empty-placement: no nodes are left for training: inference takes 4 of 4",
    ),
    (
        [f"{RESOURCES}.num_nodes=1", f"{RESOURCES}.gpus_per_node=8", "cluster.segment_size=2"],
        "cluster.segment_size not-multiple: training has 3 nodes, which cannot be divided into segments of 2",
    ),
    (
        ["cluster.num_nodes=2", "grpo={}", "env.reward_model.resources.num_nodes=2"],
        "cluster.num_nodes empty-placement: no nodes are left for training: the reward model takes 2 of 2",
    ),
    (
        ["ppo={}", "policy.generation.backend=megatron"],
        "policy.generation.backend invalid-value: `backend` is 'megatron'; it must be vllm: ppo of NeMo-RL at 7ea279a "
        "generates with nothing else on nodes of its own",
    ),
    (["cluster.num_node=4"], "cluster.num_node unknown-key: unknown key `num_node`"),
]


@pytest.mark.parametrize(("words", "expected"), REFUSED, ids=[words[-1] for words, _ in REFUSED])
def test_faults_have_nemo_rls_keys(words: list[str], expected: str) -> None:
    with pytest.raises(PlacementError) as caught:
        nemo_rl.plan(from_overrides([*APART, *words]), Inventory.uniform(4, 8))
    found = [f"{one.path} {one.code}: {one.message}" for one in caught.value.diagnostics]
    assert expected in found
    assert all(one.help and one.column for one in caught.value.diagnostics)


def test_training_comes_before_inference_and_the_reward_model() -> None:
    words = [*APART, f"{RESOURCES}.num_nodes=1", f"{RESOURCES}.gpus_per_node=8", "env.reward_model.enabled=true"]
    words += ["policy.generation.vllm_cfg.tensor_parallel_size=4", "policy.dtensor_cfg.enabled=true"]
    words += ["policy.dtensor_cfg.tensor_parallel_size=8"]
    plan = nemo_rl.plan(from_overrides(words), Inventory.uniform(4, 8))
    assert {name: str(one.used_nodes()) for name, one in plan.items()} == {
        "policy": "0-1",
        "generation": "2",
        "reward_model": "3",
    }
    assert plan.inventory.facts is None and not plan.rules
    segmented = nemo_rl.plan(from_overrides([*words, "cluster.segment_size=2"]), Inventory.uniform(5, 8))
    assert segmented.inventory.num_nodes == 4 and segmented.inventory.facts is not None
    assert segmented.rules.segment == {"policy": 2}
    assert (str(plan["policy"].parallel), str(plan["generation"].parallel)) == ("tp 8", "tp 4")


def test_an_engine_on_several_nodes_is_a_segment() -> None:
    words = ["cluster.num_nodes=7", *APART[1:], f"{RESOURCES}.num_nodes=4", f"{RESOURCES}.gpus_per_node=8"]
    words += [
        "policy.generation.vllm_cfg.tensor_parallel_size=8",
        "policy.generation.vllm_cfg.pipeline_parallel_size=2",
    ]
    plan = nemo_rl.plan(from_overrides([*words, "cluster.segment_size=3"]), Inventory.uniform(7, 8))
    assert plan.rules.segment == {"policy": 3, "generation": 2}
    nodes = [{"ranks": rank, "accelerators": 8, "labels": {"nvlink": name}} for rank, name in enumerate("bbbbaaabb")]
    arranged = arrange(plan, Inventory.from_dict({"nodes": nodes, "levels": ["nvlink"]})).inventory
    assert [arranged.node(rank).labels["nvlink"] for rank in range(7)] == [*"aaabbbb"]


def test_the_segment_size_reaches_the_arrangement() -> None:
    domains = "abbab"
    nodes = [{"ranks": rank, "accelerators": 8, "labels": {"nvlink": name}} for rank, name in enumerate(domains)]
    cluster = Inventory.from_dict({"nodes": nodes}).with_levels(["nvlink"])
    for segment in (2, 4):
        content = {"cluster": {"num_nodes": 4, "gpus_per_node": 8, "segment_size": segment}, "policy": {}}
        plan = nemo_rl.plan(content, cluster)
        assert plan.rules.segment == {"policy": segment}
        if segment == 2:
            arranged = arrange(plan, cluster).inventory
            found = [arranged.node(rank).labels["nvlink"] for rank in range(4)]
            assert found[0] == found[1] and found[2] == found[3]
            assert [cluster.node(rank).labels["nvlink"] for rank in range(4)] == ["a", "b", "b", "a"]
        else:
            with pytest.raises(PlacementError, match="1 segment of 4 nodes"):
                arrange(plan, cluster)


def engine(words: list[str], algorithm: str = "grpo") -> tuple[int, int, str, float | None]:
    """The number of processes of ``generation`` on 2 nodes of 8, accelerators of each, sizes and share."""
    base = ["cluster.num_nodes=2", "cluster.gpus_per_node=8", f"{algorithm}={{}}"]
    found = nemo_rl.plan(from_overrides([*base, *words]), Inventory.uniform(2, 8))["generation"]
    return len(found), found[0].num_accelerators, str(found.parallel), found.share


SGLANG = ["policy.generation.backend=sglang", "policy.generation.sglang_cfg.tp_size=4"]
SERVER = "policy.generation.sglang_cfg.sglang_server_config"
TRTLLM = ["policy.generation.backend=trtllm", "policy.generation.trtllm_cfg.tensor_parallel_size=4"]
ALONE = ["policy.generation.colocated.enabled=false", f"{RESOURCES}.num_nodes=1", f"{RESOURCES}.gpus_per_node=8"]


def test_each_backend_has_its_own_sizes() -> None:
    vllm = "policy.generation.vllm_cfg.tensor_parallel_size=2"  # not read for the others
    assert engine([vllm]) == (8, 2, "tp 2", 0.5)
    of_engine = f"{SERVER}.num_gpus_per_engine=${{policy.generation.sglang_cfg.tp_size}}"
    assert engine([*SGLANG, vllm, of_engine, f"{SERVER}.num_gpus=16"]) == (4, 4, "tp 4", 0.5)
    assert engine([*SGLANG, f"{SERVER}.num_gpus=8"]) == (2, 4, "tp 4", 0.5)
    moe = "policy.generation.trtllm_cfg.moe_expert_parallel_size=2"
    assert engine([*TRTLLM, vllm, moe]) == (4, 4, "tp 4 x ep 2", 0.5)
    dynamo = ["policy.generation.backend=dynamo", *ALONE]
    assert engine([*dynamo, vllm]) == (4, 2, "tp 2", 1.0)
    megatron = ["policy.generation.backend=megatron", *ALONE, "policy.megatron_cfg.enabled=true"]
    student = [f"policy.megatron_cfg.{kind}_model_parallel_size=2" for kind in ("tensor", "pipeline", "expert")]
    own = "policy.generation.mcore_generation_config.tensor_model_parallel_size=4"
    found = engine([*megatron, *student, "policy.megatron_cfg.expert_tensor_parallel_size=1", own])
    assert found == (8, 1, "tp 4 x ep 2 x pp 2", 1.0)


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ([*SGLANG, f"{SERVER}.num_gpus=24"], f"{SERVER}.num_gpus"),
        ([*SGLANG, f"{SERVER}.num_gpus_per_engine=8"], f"{SERVER}.num_gpus_per_engine"),
        ([*SGLANG, *ALONE], "policy.generation.backend"),
        ([*TRTLLM, "policy.generation.trtllm_cfg.pipeline_parallel_size=2"], "policy.generation.trtllm_cfg"),
        ([*TRTLLM[:1], "policy.generation.trtllm_cfg.tensor_parallel_size=16"], "policy.generation.trtllm_cfg"),
        (["policy.generation.backend=dynamo"], "policy.generation.backend"),
    ],
)
def test_what_a_backend_cannot_do_is_one_fault(words: list[str], path: str) -> None:
    with pytest.raises(PlacementError) as caught:
        engine(words)
    assert [str(one.path).startswith(path) for one in caught.value.diagnostics] == [True]


def test_cross_tokenizer_distillation_starts_no_engines_and_leaves_room_for_its_teachers() -> None:
    words = ["cluster.gpus_per_node=8", "distillation={}", "policy.generation.vllm_cfg.tensor_parallel_size=16"]
    plan = nemo_rl.plan(from_overrides([*words, "teacher=null", "teachers=[{a: 1},{a: 2}]"]), Inventory.uniform(1, 8))
    assert {name: (len(one), round(one.share or 0, 3)) for name, one in plan.items()} == {"policy": (8, 0.333)}


@pytest.mark.parametrize("algorithm", ["sft", "dpo", "rm"])
def test_supervised_training_starts_no_engines(algorithm: str) -> None:
    words = ["cluster.gpus_per_node=8", f"{algorithm}={{}}", "policy.generation.vllm_cfg.tensor_parallel_size=16"]
    assert list(nemo_rl.plan(from_overrides(words), Inventory.uniform(1, 8))) == ["policy"]


@pytest.mark.parametrize(("nodes", "who"), [(3, "inference"), (1, "training")])
def test_a_cluster_that_is_too_small_is_one_fault_a_pool(nodes: int, who: str) -> None:
    words = [*APART, f"{RESOURCES}.num_nodes=2", f"{RESOURCES}.gpus_per_node=8", "grpo={}"]
    with pytest.raises(PlacementError) as caught:
        nemo_rl.plan(from_overrides(words), Inventory.uniform(nodes, 8))
    faults = [one.message for one in caught.value.diagnostics]
    assert faults[0].startswith(f"{who} needs 2 nodes with 8 free accelerators each")
    assert all("of its pool" not in one for one in faults)


OPD = "on_policy_distillation"
TEACHERS = ["grpo={}", f"{OPD}.enabled=true", f"{OPD}.non_colocated_teachers.enabled=true"]


def test_teachers_have_nodes_and_sizes_of_their_own() -> None:
    default = f"{OPD}.non_colocated_teachers.default_teacher_cfg"
    own = f"{OPD}.non_colocated_teachers.teacher_overrides.code"
    words = [*TEACHERS, *APART, f"{RESOURCES}.num_nodes=1", f"{RESOURCES}.gpus_per_node=8", "cluster.segment_size=1"]
    words += ["cluster.num_nodes=6", f"{OPD}.teacher_model_by_agent_name={{math: A, code: B, again: A}}"]
    words += [f"{default}.tensor_model_parallel_size=2", f"{own}.num_nodes=2", f"{own}.expert_model_parallel_size=4"]
    words += ["policy.megatron_cfg.enabled=true", "policy.megatron_cfg.expert_tensor_parallel_size=1"]
    plan = nemo_rl.plan(from_overrides(words), Inventory.uniform(6, 8))
    assert {name: (str(one.used_nodes()), str(one.parallel)) for name, one in plan.items()} == {
        "policy": ("0-1", "no sizes"),
        "generation": ("2", "no sizes"),
        "teacher.math": ("3", "tp 2"),
        "teacher.code": ("4-5", "tp 2 x ep 4"),
    }
    assert plan.rules.segment == {"policy": 1, "teacher.math": 1, "teacher.code": 2}


COUNT = st.integers(1, 4)


@given(
    COUNT,
    COUNT,
    st.booleans(),
    st.tuples(st.none() | st.integers(1, 3), st.none() | COUNT),
    st.none() | st.tuples(st.integers(1, 2), COUNT),
    st.lists(st.tuples(st.integers(1, 2), COUNT), max_size=2),
)
@example(2, 4, False, (None, 4), (2, 4), [])
def test_nodes_are_divided_as_nemo_rl_divides_them(
    nodes: int,
    each: int,
    colocated: bool,
    inference: tuple[int | None, int | None],
    reward: tuple[int, int] | None,
    teachers: list[tuple[int, int]],
) -> None:
    """NeMo-RL: ``grpo.setup``, retyped. A refusal names each value once, and never advises to use nothing."""
    keys = dict(zip(KEYS, inference, strict=True))
    config: dict[str, Any] = {"cluster": {"num_nodes": nodes, "gpus_per_node": each}, "grpo": {}}
    config["policy"] = {"generation": {"colocated": {"enabled": colocated, "resources": keys}}}
    if reward:
        sizes = dict(zip(KEYS, reward, strict=True))
        config["env"] = {"reward_model": {"resources": sizes}, "math": {}}
        config["data"] = {"default": {"env_name": "reward_model"}}
    overrides = {f"t{i}": {"num_nodes": n, "gpus_per_node": g} for i, (n, g) in enumerate(teachers)}
    apart = {"enabled": True, "teacher_overrides": overrides}
    names = {name: name for name in overrides}
    config[OPD] = {"enabled": True, "teacher_model_by_agent_name": names, "non_colocated_teachers": apart}
    wanted = divided(nodes, each, colocated, inference, reward, teachers)
    try:
        plan = nemo_rl.plan(config, Inventory.uniform(nodes, each))
    except PlacementError as error:
        assert wanted is None
        paths = [(one.path, one.message) for one in error.diagnostics]
        assert len({*paths}) == len(paths)
        assert not any(re.search(r"at most 0|of 0\b", f"{one.message} {one.help}") for one in error.diagnostics)
        return
    assert {name: len(one) for name, one in plan.items()} == wanted


def divided(
    nodes: int,
    each: int,
    colocated: bool,
    inference: tuple[int | None, int | None],
    reward: tuple[int, int] | None,
    teachers: list[tuple[int, int]],
) -> dict[str, int] | None:
    """The processes of each component, or ``None`` for a refusal."""
    reward_nodes, reward_gpus = reward or (0, 0)
    if reward_nodes > nodes or max([reward_gpus, *(gpus for _, gpus in teachers)]) > each:
        return None
    left = (1 if nodes == 1 else nodes - reward_nodes) - sum(count for count, _ in teachers)
    train = each - (reward_gpus if nodes == 1 else 0)
    others = {f"teacher.t{i}": n * g for i, (n, g) in enumerate(teachers)}
    others |= {"reward_model": reward_nodes * reward_gpus} if reward else {}
    if left <= 0:
        return None
    if colocated:
        return {"policy": left * train, "generation": left * train, **others} if train > 0 else None
    count, gpus = inference
    if left == 1:
        if count not in (None, 1) or gpus is None or train - gpus <= 0:
            return None
        return {"policy": train - gpus, "generation": gpus, **others}
    if count is None or gpus != each or left - count <= 0:
        return None
    return {"policy": (left - count) * each, "generation": count * each, **others}


def test_training_has_one_backend() -> None:
    config = {
        "cluster": {"num_nodes": 1, "gpus_per_node": 8},
        "policy": {"dtensor_cfg": {"enabled": True}, "megatron_cfg": {"enabled": True}},
    }
    with pytest.raises(PlacementError, match="NeMo-RL trains with one of them"):
        nemo_rl.plan(config, Inventory.uniform(1, 8))


@pytest.mark.parametrize(("sizes", "engines"), [({"gpus_per_server": 4}, 2), ({"gpus_per_server": 4, "tp_size": 2}, 4)])
def test_older_engines_of_sglang_state_their_gpus(sizes: dict[str, int], engines: int) -> None:
    config = {
        "cluster": {"num_nodes": 1, "gpus_per_node": 8},
        "policy": {"generation": {"backend": "sglang", "sglang_cfg": sizes}},
    }
    assert len(nemo_rl.plan(config, Inventory.uniform(1, 8))["generation"]) == engines

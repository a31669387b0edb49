"""NeMo-RL's way in: nodes for training, inference and the reward model; files that extend others; its own answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from rankplan import Component, Inventory, PlacementError, arrange, load_config
from rankplan.dialects import nemo_rl
from support.configs import from_overrides
from support.goldens import lines, named

CLUSTERS = [line for line in lines("nemo_rl_clusters") if line["kind"] != "file"]
FILES = {line["source"]: line["own"] for line in lines("nemo_rl_clusters") if line["kind"] == "file"}

# A code for something that NeMo-RL accepts, and the difference.
REJECTED = {
    "parallel-idle": "nemo-rl-engine-size",
    "empty-placement": "nemo-rl-no-training",
    "not-multiple": "nemo-rl-segments",
    "parallel-not-divisible": "nemo-rl-teachers",  # whose nodes are training's here
}


def devices(component: Component) -> list[tuple[int, int]]:
    return [device for row in component for device in row.devices]


def config(line: dict[str, Any]) -> dict[str, Any]:
    """The config of a recorded line, with a section of its algorithm."""
    if line["kind"] == "shipped":
        keys = line["keys"]
        policy = {**keys["policy"], **({"generation": keys["generation"]} if "generation" in keys else {})}
        return {"cluster": keys["cluster"], "policy": policy, line["algorithm"]: {}}
    resources = {"num_nodes": line.get("inference_nodes"), "gpus_per_node": line.get("inference_gpus")}
    generation = {
        "backend": line.get("backend", "vllm"),
        "colocated": {"enabled": line["colocated"], "resources": resources},
        "vllm_cfg": {"tensor_parallel_size": line["tp"], "pipeline_parallel_size": line["pp"]},
    }
    cluster = {key: line[key] for key in ("num_nodes", "gpus_per_node", "segment_size")}
    found: dict[str, Any] = {"cluster": cluster, "policy": {"generation": generation}, line["algorithm"]: {}}
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
        if "error" not in answer:
            for found in error.diagnostics:
                named(REJECTED[found.code])
        return
    if "error" in answer:
        assert "async_engine" in answer["error"]["message"] or "backend" in answer["error"]["message"]
        named("unrelated-options")
        return
    if any(one["name"].startswith("teacher") for one in answer["clusters"]):
        named("nemo-rl-teachers")
        return
    training, *others = answer["clusters"]
    assert len(plan["policy"]) == training["nodes"] * training["gpus_per_node"]
    assert plan["policy"].share == pytest.approx(1 / training["shared_by"], abs=1e-3)
    for inference in others:
        found = plan["generation"]
        assert sum(row.num_accelerators for row in found) == inference["nodes"] * inference["gpus_per_node"]
        assert found.share == pytest.approx(1 / inference["shared_by"], abs=1e-3)
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


def test_faults_are_in_the_file_that_has_the_value(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("cluster:\n  num_nodes: two\n  gpus_per_node: 8\n")
    (tmp_path / "own.yaml").write_text("defaults: base.yaml\ncluster: {gpus_per_node: eight}\n")
    with pytest.raises(PlacementError) as caught:
        nemo_rl.plan(tmp_path / "own.yaml", Inventory.uniform(2, 8))
    found = {(Path(one.file or "").name, one.line, one.column) for one in caught.value.diagnostics}
    assert found == {("base.yaml", 2, 14), ("own.yaml", 2, 26)}
    (tmp_path / "own.yaml").write_text("defaults: own.yaml\ncluster: {gpus_per_node: 8}\n")
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
        [f"on_policy_distillation.{key}=true" for key in ("enabled", "non_colocated_teachers.enabled")],
        "on_policy_distillation.non_colocated_teachers.enabled invalid-value: teachers of on-policy distillation have "
        "nodes of their own, which rankplan does not plan",
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
    assert plan.inventory.section is None
    segmented = nemo_rl.plan(from_overrides([*words, "cluster.segment_size=2"]), Inventory.uniform(5, 8))
    assert segmented.inventory.num_nodes == 4 and segmented.inventory.section is not None
    assert segmented.inventory.section.topology.segment == {"policy": 2}
    assert (str(plan["policy"].parallel), str(plan["generation"].parallel)) == ("tp 8", "tp 4")


def test_an_engine_on_several_nodes_is_a_segment() -> None:
    words = ["cluster.num_nodes=7", *APART[1:], f"{RESOURCES}.num_nodes=4", f"{RESOURCES}.gpus_per_node=8"]
    words += [
        "policy.generation.vllm_cfg.tensor_parallel_size=8",
        "policy.generation.vllm_cfg.pipeline_parallel_size=2",
    ]
    plan = nemo_rl.plan(from_overrides([*words, "cluster.segment_size=3"]), Inventory.uniform(7, 8))
    assert plan.inventory.section is not None
    assert plan.inventory.section.topology.segment == {"policy": 3, "generation": 2}
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
        assert plan.inventory.section is not None and plan.inventory.section.topology.segment == {"policy": segment}
        if segment == 2:
            arranged = arrange(plan, cluster).inventory
            found = [arranged.node(rank).labels["nvlink"] for rank in range(4)]
            assert found[0] == found[1] and found[2] == found[3]
            assert [cluster.node(rank).labels["nvlink"] for rank in range(4)] == ["a", "b", "b", "a"]
        else:
            with pytest.raises(PlacementError, match="1 segment of 4 nodes"):
                arrange(plan, cluster)

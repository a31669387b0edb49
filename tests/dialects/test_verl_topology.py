"""verl's draft of a placement block: its scenarios, and broken variants of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from rankplan import Component, PlacementError, Plan
from rankplan._core import Chunks
from rankplan.dialects import verl
from rankplan.dialects.convert import convert
from support.configs import from_overrides, nodes
from support.paths import ROOT, TESTS

EXAMPLES = ROOT / "examples" / "verl-topology"
BROKEN: list[dict[str, Any]] = yaml.safe_load((TESTS / "dialects" / "verl_topology.yaml").read_text())
SCENARIOS: list[tuple[str, dict[str, tuple[int, str]]]] = [
    ("sft", {"actor": (16, "0-1")}),
    ("colocated", {"actor": (16, "0-1"), "ref": (16, "0-1"), "rollout": (4, "0-1")}),
    ("separate", {"actor": (16, "0-1"), "critic": (16, "0-1"), "rollout": (3, "2-4"), "reward": (2, "5")}),
    ("spare", {"actor": (16, "0-1"), "rollout": (4, "2-3")}),
]


@pytest.mark.parametrize(("name", "expected"), SCENARIOS, ids=[name for name, _ in SCENARIOS])
def test_each_scenario_of_the_draft_is_an_example(name: str, expected: dict[str, tuple[int, str]]) -> None:
    reader = verl.read(EXAMPLES / f"{name}.yaml")
    plan = verl.plan(reader, verl.assumed_inventory(reader))
    assert {one: (len(component), str(component.used_nodes())) for one, component in plan.items()} == expected
    assert not reader.warnings


@pytest.mark.parametrize("row", BROKEN, ids=[f"{row['example']}-{row['other'][:30]}" for row in BROKEN])
def test_each_broken_variant_of_the_draft_is_a_fault(row: dict[str, Any], tmp_path: Path) -> None:
    text = (EXAMPLES / f"{row['example']}.yaml").read_text()
    assert row["part"] in text
    path = tmp_path / "conf.yaml"
    path.write_text(text.replace(row["part"], row["other"]))
    with pytest.raises(PlacementError) as caught:
        reader = verl.read(path)
        verl.plan(reader, verl.assumed_inventory(reader))
    assert [f"{one.line} {one.code}: {one.message} | {one.help}" for one in caught.value.diagnostics] == row["faults"]


WARNED = [
    (
        "attributes: {elastic: true, ",
        "attributes: {color: red, elastic: true, ",
        "`color` is not a key of verl's draft",
    ),
    (
        ", nnodes: 1, n_gpus_per_node: 4}",
        ", nnodes: 1, n_gpus_per_node: 4, note: x}",
        "`note` is not a key of verl's draft",
    ),
    (
        "worker: reward, config_key: reward.reward_model, resource_pool: reward_pool",
        None,
        "no model is on pool `reward_pool`",
    ),
]


@pytest.mark.parametrize(("part", "other", "message"), WARNED, ids=[one[2] for one in WARNED])
def test_what_the_draft_carries_through_is_a_warning(
    part: str, other: str | None, message: str, tmp_path: Path
) -> None:
    lines = (EXAMPLES / "separate.yaml").read_text().splitlines()
    kept = [line.replace(part, other or part) for line in lines if other is not None or part not in line]
    path = tmp_path / "conf.yaml"
    path.write_text("\n".join(kept))
    reader = verl.read(path)
    verl.plan(reader, verl.assumed_inventory(reader))
    (found,) = reader.warnings
    assert found.warning and found.line and found.message.startswith(message)


def test_a_smaller_cluster_than_the_draft_states_is_a_fault() -> None:
    path = EXAMPLES / "separate.yaml"
    for counts, message in (
        ([8, 8, 4, 4], "cluster `h20` needs nodes 2-5 with 4 accelerators, but 4 nodes exist"),
        ([8, 4, 4, 4, 4, 4], "cluster `h100` needs nodes 0-1 with 8 accelerators, but node 1 has 4"),
    ):
        with pytest.raises(PlacementError, match=message):
            verl.plan(path, nodes(counts))


@pytest.mark.parametrize("name", [name for name, _ in SCENARIOS])
def test_a_written_topology_plans_the_same(name: str) -> None:
    reader = verl.read(EXAMPLES / f"{name}.yaml")
    plan = verl.plan(reader, verl.assumed_inventory(reader))
    conversion = convert(plan, "verl", topology=True)
    assert conversion.omitted == ()
    again = verl.plan(conversion.config, plan.inventory)
    assert {name: (list(one), one.parallel, one.share) for name, one in plan.items()} == {
        name: (list(one), one.parallel, one.share) for name, one in again.items()
    }


def test_a_topology_of_todays_keys_has_the_same_pools() -> None:
    words = [
        "trainer.nnodes=1",
        "algorithm.adv_estimator=gae",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=4",
    ]
    words += [f"reward.reward_model.{one}" for one in ("enable=true", "enable_resource_pool=true", "nnodes=1")]
    plan = verl.plan(from_overrides(words), nodes([8, 8]))
    conversion = convert(plan, "verl", topology=True)
    assert conversion.omitted == ()
    assert [pool["name"] for pool in conversion.config["topology"]["device_pools"]] == ["actor_pool", "reward_pool"]
    again = verl.plan(conversion.config, plan.inventory)
    assert {name: list(one) for name, one in again.items()} == {name: list(one) for name, one in plan.items()}


def test_what_a_topology_cannot_express_is_named() -> None:
    plan = verl.plan(from_overrides(["trainer.nnodes=1", "algorithm.adv_estimator=grpo"]), nodes([8]))
    part = Component.place("critic", plan.inventory, ("cluster",), Chunks([0, 1], 1))
    env = Component.place("env", plan.inventory, ("cluster",), plan["actor"].rule)
    conversion = convert(Plan(plan.inventory, [*plan.values(), part, env]), "verl", topology=True)
    assert conversion.omitted == (
        "critic: it has a part of the accelerators of actor",
        "env: verl's draft has no such worker",
    )
    with pytest.raises(ValueError, match="only verl has a topology section"):
        convert(plan, "roll", topology=True)

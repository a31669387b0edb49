"""Whatever the values of the keys that place processes, every dialect plans or refuses with a place and a fix."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError
from rankplan.dialects import DIALECTS, dialect_of, mixed
from rankplan.dialects.schema import properties
from rankplan.testing import check_plan
from support.configs import from_overrides
from support.outcomes import at_least, outcome


def paths(schema: dict[str, object], prefix: str = "") -> list[str]:
    """Return the dotted paths that a schema describes."""
    found = []
    for key, value in schema.items():
        inner = value.get("properties") if isinstance(value, dict) else None
        found += paths(inner, f"{prefix}{key}.") if isinstance(inner, dict) else [prefix + key]
    return found


KEYS = [*paths(properties()), "trainer", "cluster.gpus_per_node", "cluster.n_nodes", "cluster.num_nodes", "cluster"]
VALUES = [
    "1",
    "2",
    "3",
    "8",
    "0",
    "-1",
    "null",
    "true",
    "x",
    "[1]",
    "{a: 1}",
    "1.5",
    "99999999999",
    "${a.b}",
    "fsdp:d4",
]
VALUES += ["sglang:d2t2", "fsdp:d99999999", "''"]
WORD = st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)).map("=".join)
WORDS = st.lists(WORD, min_size=1, max_size=8)
NODES = st.sampled_from([Inventory.uniform(2, 8), Inventory.uniform(3, 1), Inventory.uniform(1, 0)])


@pytest.mark.parametrize("name", [*DIALECTS, "detected"])
@given(words=WORDS, inventory=NODES)
def test_a_config_is_planned_or_refused(name: str, words: list[str], inventory: Inventory) -> None:
    check_answer(name, words, inventory)


PLANNED = {
    "rlinf": ["cluster.num_nodes=2", "cluster.component_placement={actor: 0-7, rollout: 8-15}"],
    "verl": ["trainer.nnodes=2", "trainer.n_gpus_per_node=8"],
    "nemo_rl": ["cluster.num_nodes=2", "cluster.gpus_per_node=8", "policy.generation.colocated.enabled=true"],
    "areal": ["cluster.n_nodes=2", "cluster.n_gpus_per_node=8", "rollout.backend='sglang:d4t2'"],
    "openrlhf": ["vllm.num_engines=8", "train.colocate_all=true", "algo.advantage.estimator=rloo"],
    "slime": ["actor_num_gpus_per_node=8", "rollout_num_gpus=8"],
    "roll": ["actor_train.device_mapping='[0, 1]'"],
    "skyrl": ["trainer.placement.colocate_all=false", "generator.inference_engine.num_engines=4"],
    "trl": ["use_vllm=true", "vllm_mode=colocate", "num_processes=8"],
    "prime_rl": ["deployment.num_infer_gpus=4", "inference={}", "trainer={}", "orchestrator={}"],
    "open_instruct": ["num_learners_per_node=[4]", "vllm_num_engines=4"],
    "ms_swift": ["rlhf_type=grpo", "train.gpus=4", "rollout.gpus=4"],
}
PLANNED |= dict.fromkeys(("easyr1", "rl_factory", "rllm", "vagen"), PLANNED["verl"])
PLANNED |= dict.fromkeys(("miles", "vime"), PLANNED["slime"])
PLANNED["marti"] = [f"{role}_num_gpus_per_node=2" for role in ("actor", "ref", "reward", "critic")]
PLANNED["marti"] += ["vllm_num_engines=2"]
"""For each dialect, a config that is planned on two nodes of 8."""


@pytest.mark.parametrize("name", DIALECTS)
@at_least(planned=0.2)
@given(words=st.lists(WORD, max_size=2))
def test_a_planned_config_with_other_keys_is_planned_or_refused(name: str, words: list[str]) -> None:
    check_answer(name, [*PLANNED[name], *words], Inventory.uniform(2, 8))


def check_answer(name: str, words: list[str], inventory: Inventory) -> None:
    try:
        config = from_overrides(words)
        dialect = dialect_of(config) if name == "detected" else DIALECTS[name]
        assert all(fault.help for _, fault in mixed(config))
        plan = dialect.plan(config, inventory)
    except PlacementError as error:
        assert all(fault.message and fault.help for fault in error.diagnostics), error
        assert error.render()
        outcome("refused")
    else:
        check_plan(plan)
        outcome("planned")

"""Compare the plan of every trainer with the one that RLinf's rule gives the same components, at 10,000 nodes and more.

``python benches/dialects.py`` prints, for each config and kind of inventory:

- the time of `rankplan.plan`, with its last request read and a new inventory each run, and that time as a multiple of
  RLinf's: an RLinf config with as many components and as many processes on the same nodes, in this same run;
- the same for ``pinned=True``;
- saving and loading the plan, as multiples of planning it;
- how much a node costs at 100,000 nodes, as a multiple of a node at 10,000, and RLinf's own growth beside it.

``--nodes`` changes the smaller size; ``--only verl,slime`` leaves the others out.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import rankplan
from rankplan import Inventory, Plan
from timing import once

CARDS = 8
RACK = 32
SAMPLES = 5


@dataclass(frozen=True)
class Case:
    """A config of a trainer for any number of nodes."""

    dialect: str
    shape: str
    config: Callable[[int], Mapping[str, Any]]


def verl(nodes: int) -> dict[str, Any]:
    """One pool: an actor with its reference model, and engines within a node."""
    return {
        "trainer": {"nnodes": nodes, "n_gpus_per_node": CARDS},
        "actor_rollout_ref": {"rollout": {"name": "vllm", "tensor_model_parallel_size": 4}},
        "algorithm": {"adv_estimator": "grpo"},
    }


def verl_apart(nodes: int) -> dict[str, Any]:
    """Two pools: a reward model has a quarter of the nodes, and engines of two nodes."""
    config = verl(nodes - nodes // 4)
    rollout = {"tensor_model_parallel_size": 2 * CARDS}
    pool = {"enable": True, "enable_resource_pool": True, "nnodes": nodes // 4, "n_gpus_per_node": CARDS}
    return {**config, "reward": {"reward_model": {**pool, "rollout": rollout}}}


def roll(nodes: int) -> dict[str, Any]:
    """Training and inference on the same devices, of one and of four devices a worker."""
    mapping = f"list(range(0,{nodes * CARDS}))"
    engine = {"strategy_name": "vllm", "strategy_config": {"tensor_parallel_size": 4}}
    return {
        "num_gpus_per_node": CARDS,
        "actor_train": {"device_mapping": mapping, "strategy_args": {"strategy_name": "megatron_train"}},
        "actor_infer": {"device_mapping": mapping, "strategy_args": engine},
    }


def roll_apart(nodes: int) -> dict[str, Any]:
    """Training on half of the devices, inference on the others, and processes without devices."""
    half = nodes // 2 * CARDS
    config = roll(nodes)
    config["actor_train"]["device_mapping"] = f"list(range(0,{half}))"
    config["actor_infer"]["device_mapping"] = f"list(range({half},{nodes * CARDS}))"
    return {**config, "rewards": {"sandbox": {"world_size": nodes}}}


def nemo_rl(nodes: int) -> dict[str, Any]:
    """Training and generation on the same nodes."""
    return {
        "cluster": {"num_nodes": nodes, "gpus_per_node": CARDS},
        "policy": {
            "megatron_cfg": {"enabled": True, "tensor_model_parallel_size": CARDS},
            "generation": {"backend": "vllm", "vllm_cfg": {"tensor_parallel_size": 4}},
        },
    }


def nemo_rl_apart(nodes: int) -> dict[str, Any]:
    """Generation on a quarter of the nodes, with engines of two nodes."""
    config = nemo_rl(nodes)
    own = {"enabled": False, "resources": {"num_nodes": nodes // 4, "gpus_per_node": CARDS}}
    engines = {"backend": "vllm", "colocated": own, "vllm_cfg": {"tensor_parallel_size": 2 * CARDS}}
    return {**config, "policy": {**config["policy"], "generation": engines}}


def areal(nodes: int) -> dict[str, Any]:
    """Engines of four cards on half of the nodes, training on the others."""
    half = nodes // 2 * CARDS
    return {
        "cluster": {"n_nodes": nodes // 2 * 2, "n_gpus_per_node": CARDS},
        "rollout": {"backend": f"sglang:d{half // 4}t4"},
        "actor": {"backend": f"megatron:d{half // 4}t4"},
    }


def slime(nodes: int) -> dict[str, Any]:
    """Training on half of the nodes, engines of four cards on the others."""
    half = nodes // 2
    return {
        "actor_num_nodes": half,
        "actor_num_gpus_per_node": CARDS,
        "rollout_num_gpus": half * CARDS,
        "rollout_num_gpus_per_engine": 4,
        "num_gpus_per_node": CARDS,
    }


def slime_colocated(nodes: int) -> dict[str, Any]:
    """Training on all nodes, with engines of two nodes on the same cards."""
    flags = {"rollout_num_gpus": nodes * CARDS, "rollout_num_gpus_per_engine": 2 * CARDS, "colocate": True}
    return {**slime(2 * nodes), **flags}


def openrlhf(nodes: int) -> dict[str, Any]:
    """Actor, reference model and engines on the same cards."""
    roles = {f"{role}.num_nodes": nodes for role in ("actor", "ref")}
    cards = {f"{role}.num_gpus_per_node": CARDS for role in ("actor", "ref")}
    engines = {"vllm.num_engines": nodes * 2, "vllm.tensor_parallel_size": 4}
    return nested({**roles, **cards, **engines, "algo.advantage.estimator": "rloo", "train.colocate_all": True})


def skyrl(nodes: int) -> dict[str, Any]:
    """The policy and its reference model on half of the nodes, engines of four cards on the others."""
    policy = {"trainer.placement.policy_num_nodes": nodes // 2, "trainer.placement.policy_num_gpus_per_node": CARDS}
    reference = {"trainer.placement.ref_num_nodes": nodes // 2, "trainer.placement.ref_num_gpus_per_node": CARDS}
    engine = "generator.inference_engine"
    engines = {f"{engine}.num_engines": nodes // 2 * 2, f"{engine}.tensor_parallel_size": 4}
    return nested({"trainer.placement.colocate_all": False, **policy, **reference, **engines})


CASES = (
    Case("verl", "one pool", verl),
    Case("verl", "two pools, engines of 2 nodes", verl_apart),
    Case("roll", "same devices", roll),
    Case("roll", "apart, with CPU workers", roll_apart),
    Case("nemo_rl", "same nodes", nemo_rl),
    Case("nemo_rl", "apart, engines of 2 nodes", nemo_rl_apart),
    Case("areal", "apart", areal),
    Case("slime", "apart", slime),
    Case("slime", "same cards, engines of 2 nodes", slime_colocated),
    Case("openrlhf", "same cards", openrlhf),
    Case("skyrl", "apart", skyrl),
)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys with dots as nested mappings."""
    found: dict[str, Any] = {}
    for path, value in flat.items():
        *parts, last = path.split(".")
        section = found
        for part in parts:
            section = section.setdefault(part, {})
        section[last] = value
    return found


def uniform(nodes: int) -> Inventory:
    """Return nodes without names."""
    return Inventory.uniform(nodes, CARDS)


def named(nodes: int) -> Inventory:
    """Return nodes with addresses, hostnames, and two levels of labels."""
    entries = [
        {
            "ranks": node,
            "accelerators": CARDS,
            "ip": f"10.{node >> 16}.{node >> 8 & 255}.{node & 255}",
            "hostname": f"node-{node}",
            "labels": {"block": f"b{node // RACK // 16}", "rack": f"r{node // RACK}"},
        }
        for node in range(nodes)
    ]
    return Inventory.from_dict({"levels": ["block", "rack"], "nodes": entries})


def as_rlinf(plan: Plan) -> dict[str, Any]:
    """Return an RLinf config with as many components, each with as many processes on the same resources."""
    placement = {
        name: {"node_group": ",".join(component.node_groups), "placement": f"{component.rule}:0-{len(component) - 1}"}
        for name, component in plan.items()
    }
    return {"cluster": {"num_nodes": plan.inventory.num_nodes, "component_placement": placement}}


def planning(config: Mapping[str, Any], inventory: Inventory, dialect: str, *, pinned: bool) -> Plan:
    """Return the plan of a config, with its last request read."""
    plan = rankplan.plan(config, inventory, dialect=dialect, pinned=pinned)
    if len(plan.requests):
        plan.requests[-1]
    return plan


def shortest(config: Mapping[str, Any], make: Callable[[], Inventory], dialect: str, *, pinned: bool = False) -> float:
    """Return the shortest time of several plans, each on an inventory of its own."""
    inventories = [make() for _ in range(SAMPLES)]
    return min(once(lambda it=it: planning(config, it, dialect, pinned=pinned)) for it in inventories)


def file_times(plan: Plan) -> tuple[float, float]:
    """Return the time of saving a plan and that of loading it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.json")
        saving = min(once(lambda: plan.save(path)) for _ in range(3))
        return saving, min(once(lambda: Plan.load(path)) for _ in range(3))


def row(case: Case, kind: Callable[[int], Inventory], small: int, large: int) -> str:
    """Return the row of a config on one kind of inventory."""
    config = case.config(small)
    plan = planning(config, kind(small), case.dialect, pinned=False)
    reference = as_rlinf(plan)

    def some() -> Inventory:
        return kind(small)

    def many() -> Inventory:
        return kind(large)

    own, rule = shortest(config, some, case.dialect), shortest(reference, some, "rlinf")
    pinned = shortest(config, some, case.dialect, pinned=True)
    saving, loading = file_times(plan)
    bigger = case.config(large)
    bigger_reference = as_rlinf(planning(bigger, many(), case.dialect, pinned=False))
    growth = shortest(bigger, many, case.dialect) / own * small / large
    rule_growth = shortest(bigger_reference, many, "rlinf") / rule * small / large
    return (
        f"{case.dialect:<9}{case.shape:<32}{kind.__name__:<9}{1000 * own:>9.2f} ms"
        f"{own / rule:>8.2f}{pinned / rule:>8.2f}{saving / own:>8.1f}{loading / own:>8.1f}"
        f"{growth:>8.2f}{rule_growth:>8.2f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    logging.getLogger("rankplan").setLevel(logging.ERROR)
    chosen = options.only.split(",") if options.only else {case.dialect for case in CASES}
    print(f"{options.nodes:,} and {10 * options.nodes:,} nodes x {CARDS}")
    print(f"{'':<50}{'plan':>12}{': RLinf':>8}{'pinned':>8}{'save':>8}{'load':>8}{'growth':>8}{'RLinf':>8}")
    for case in CASES:
        for kind in (uniform, named) if case.dialect in chosen else ():
            print(row(case, kind, options.nodes, 10 * options.nodes), flush=True)


if __name__ == "__main__":
    main()

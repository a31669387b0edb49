"""Random pairs of plans of one job, from small to tight ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import rankplan
from rankplan import Inventory, Plan

MODEL = {
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 192,
    "vocab_size": 1000,
}
EXPERTS = {**MODEL, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def hosts(nodes: int, each: int) -> Inventory:
    """Return nodes with names: h0, h1, ..."""
    return Inventory.from_dict(
        {"nodes": [{"ranks": rank, "accelerators": each, "hostname": f"h{rank}"} for rank in range(nodes)]}
    )


def planned(components: dict[str, Any], nodes: int = 2, each: int = 4, memory: str | None = None) -> Plan:
    """Return the plan of components, as a config states them."""
    cluster: dict[str, Any] = {"num_nodes": nodes, "component_placement": components}
    if memory is not None:
        cluster["accelerator_memory"] = memory
    return rankplan.plan({"cluster": cluster}, hosts(nodes, each))


def trainer(
    rng: random.Random, accelerators: int, first: int = 0, *, engine_model: Any = MODEL
) -> dict[str, Any] | None:
    """Return a trainer on some of the accelerators, with random sizes."""
    size = rng.choice([size for size in (2, 4, 8) if size <= accelerators])
    start = rng.choice(range(first, accelerators - size + 1)) if first <= accelerators - size else None
    if start is None:
        return None
    tp = rng.choice([tp for tp in (1, 2, 4) if size % tp == 0])
    pp = rng.choice([pp for pp in (1, 2, 4) if size % (tp * pp) == 0])
    return {"placement": f"{start}-{start + size - 1}", "parallel": {"tp": tp, "pp": pp}}


def tight_pair(rng: random.Random) -> tuple[Plan, Plan, dict[str, Any]]:
    """Return plans whose engines and trainers hardly fit on the way, and options of the transition."""
    nodes, each = rng.choice([(1, 4), (2, 2), (2, 4)])
    total = nodes * each
    sleep = rng.choice([None, "none", "host"])
    sizes = {name: rng.choice([10, 20, 30, 40]) for name in ("a", "b", "c")}
    kinds = {name: rng.choice(["resident", "engine"]) for name in sizes}
    names = [name for name in sizes if rng.random() < 0.75] or ["a"]

    def components() -> dict[str, Any]:
        placed = {}
        for name in names:
            each_takes = rng.choice([1, 1, 2])
            count = rng.randint(1, max(1, min(4, total // each_takes)))
            starts = rng.sample(range(total // each_takes), min(count, total // each_takes))
            ranks = sorted(index for start in starts for index in range(start * each_takes, (start + 1) * each_takes))
            memory: dict[str, Any] = {"resident": f"{sizes[name]} GiB"}
            if kinds[name] == "engine":
                memory = {"engine": "vllm", "params": sizes[name] * 2.5e8, "share": sizes[name] / 90, "length": 2048}
            if sleep is not None:
                memory["sleep"] = sleep
            parallel = {"tp": each_takes, "dp": len(ranks) // each_takes}
            entry: dict[str, Any] = {"placement": ",".join(map(str, ranks)), "memory": memory, "parallel": parallel}
            placed[name] = entry
        return placed

    memory = f"{rng.choice([50, 64, 80])} GiB"
    options: dict[str, Any] = {"serving": rng.choice([1, 1, 0, 2])}
    return fitting(components, nodes, each, memory), fitting(components, nodes, each, memory), options


def fitting(components: Callable[[], dict[str, Any]], nodes: int, each: int, memory: str) -> Plan:
    """Return a plan of random components that is not refused."""
    while True:
        plan = planned(components(), nodes, each, memory)
        if all(need.answer != "refused" for needs in plan.memory().values() for need in needs.values()):
            return plan


def trainer_pair(rng: random.Random) -> tuple[Plan, Plan, dict[str, Any]]:
    """Return plans of a trainer with other sizes on other accelerators, and perhaps of engines of its model."""
    nodes, each = rng.choice([(1, 8), (2, 4), (2, 8)])
    total = nodes * each
    model = rng.choice([MODEL, EXPERTS])
    memory = rng.choice(
        [
            {"training": "megatron", "model": model},
            {"training": "megatron", "model": model, "distributed_optimizer": False},
            {"training": "fsdp", "model": model},
            {"training": "deepspeed", "zero_stage": 2, "model": model},
            {"training": "megatron", "model": model, "lora": 8},
            {"forward": True, "model": model},
            {"training": "megatron", "params": 1e6},
            None,
        ]
    )
    with_engines = rng.random() < 0.5

    def components() -> dict[str, Any]:
        while True:
            entry = trainer(rng, total)
            if entry is not None:
                break
        size = int(entry["placement"].split("-")[1]) - int(entry["placement"].split("-")[0]) + 1
        if model is EXPERTS and memory is not None and "params" not in memory:
            sizes = entry["parallel"]
            fitting = [ep for ep in (1, 2, 4) if size % (ep * sizes["pp"]) == 0]
            sizes["ep"] = rng.choice(fitting)
        if memory is not None:
            entry["memory"] = memory
        placed = {"actor": entry}
        if with_engines:
            tp = rng.choice([1, 2, 4])
            count = rng.randint(1, total // tp)
            first = rng.randint(0, total // tp - count)
            engine = {"placement": f"{first * tp}-{(first + count) * tp - 1}", "parallel": {"tp": tp}}
            if memory is not None and "model" in memory:
                engine["memory"] = {"engine": "vllm", "model": model, "share": 0.3, "length": 1024}
            placed["rollout"] = engine
        return placed

    options: dict[str, Any] = {}
    if with_engines:
        options["costs"] = {"sync": {"from": "actor", "to": "rollout"}}
    return planned(components(), nodes, each, "80 GiB"), planned(components(), nodes, each, "80 GiB"), options

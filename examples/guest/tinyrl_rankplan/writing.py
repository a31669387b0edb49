"""Writes plans as TinyRL's configs."""

from __future__ import annotations

from typing import Any

from rankplan import Plan


def written(plan: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a config with the learner and the sampler, and why TinyRL cannot express other components."""
    nodes = plan.inventory.num_nodes
    each = max(spec.num_accelerators for _, spec in plan.inventory.stretches())
    config: dict[str, Any] = {"tinyrl": {"nodes": nodes, "gpus_per_node": each}}
    reasons = {}
    for name, component in plan.items():
        if name == "learner":
            config["learner"] = {"gpus": len(component), "tensor": component.parallel.tp}
        elif name == "sampler":
            engines = len(component) // component.engines
            config["sampler"] = {"engines": engines, "tensor": component.parallel.tp}
        else:
            reasons[name] = "TinyRL only has a learner and a sampler"
    if "learner" not in plan:
        return {}, reasons | dict.fromkeys(plan, "TinyRL always has a learner")
    config.setdefault("sampler", {"engines": 0})
    return config, reasons

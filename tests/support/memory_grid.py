"""Public estimators of memory (``memory_grid``), and what the calculation says about their questions."""

from __future__ import annotations

from typing import Any

from rankplan._core import training_memory
from rankplan.memory.settings import Training
from rankplan.plans.model import Model

STATES = ("weights", "gradients", "optimizer")


def training_of(row: dict[str, Any]) -> Training:
    """Return the trainer that an estimator was asked about; Megatron's two assume 32-bit gradients and Adam."""
    if row["estimator"].startswith("deepspeed"):
        return Training(
            framework="deepspeed",
            slots=row["nodes"] * row["gpus_per_node"],
            zero=int(row["estimator"][-1]),
            on_host=float(row["optimizer_offload"]),
            weights_on_host=row.get("param_offload", False),
        )
    return Training(
        framework="megatron",
        slots=row["accelerators"],
        tp=row["tp"],
        cp=row["cp"],
        pp=row["pp"],
        chunks=row["vpp"],
        ep=row["ep"],
        etp=row["etp"],
        gradient=4.0,
        distributed=row["distributed_optimizer"],
        sequence_parallel=True,
        recompute="selective",
        tokens=row["seq"] * row["micro_batch"],
        length=row["seq"],
        micro_batches=row["micro_batches"],
    )


def bounds(row: dict[str, Any], *names: str) -> tuple[float, float]:
    """Return the bounds of some parts of the fullest stage."""
    stages = training_memory(Model.of(row["model"]), training_of(row))
    lower, upper = (max(sum(part[at] for part in one[0] if part[0] in names) for one in stages) for at in (2, 3))
    return lower, upper

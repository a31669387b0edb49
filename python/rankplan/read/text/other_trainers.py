"""Trainers whose processes are all alike, so that nothing is placed: what starts them, and what tells their configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PASS_A_JOB = "pass the config or the script of an RL job: of verl, slime, NeMo-RL or another system that rankplan reads"

_PROGRAMS = {
    "llamafactory-cli": "LLaMA-Factory",
    "llamafactory.cli": "LLaMA-Factory",
    "axolotl": "Axolotl",
    "axolotl.cli.train": "Axolotl",
    "swift": "ms-swift",
    "xtuner": "XTuner",
    "tune": "torchtune",
    "torchtitan.train": "torchtitan",
    "composer": "Composer",
}
_KEYS: Mapping[str, tuple[frozenset[str], ...]] = {
    "LLaMA-Factory": (frozenset({"stage", "finetuning_type"}), frozenset({"model_name_or_path", "template", "stage"})),
    "Axolotl": (frozenset({"base_model", "micro_batch_size"}), frozenset({"base_model", "datasets", "adapter"})),
    "Accelerate": (frozenset({"compute_environment", "distributed_type"}),),
    "DeepSpeed": (frozenset({"zero_optimization"}), frozenset({"train_micro_batch_size_per_gpu"})),
}
"""Keys at the top of a config, any of which sets tells its trainer."""


def trainer_of_program(program: str) -> str | None:
    """Return the trainer that a program starts, ``None`` for any other program."""
    return _PROGRAMS.get(program)


def trainer_of_config(config: Mapping[str, Any]) -> str | None:
    """Return the trainer that a config is of, ``None`` for any other config."""
    keys = set(map(str, config))
    return next((name for name, sets in _KEYS.items() if any(needed <= keys for needed in sets)), None)

"""NeMo-RL as a dialect."""

from __future__ import annotations

from rankplan.sdk import Dialect, Program, Tried
from rankplan.trainers.nemo_rl.keys import KEYS

DIALECT = Dialect(
    name="nemo_rl",
    system="NeMo-RL",
    keys=KEYS,
    job="rankplan.trainers.nemo_rl.job:NemoRlJob",
    resized="rankplan.trainers.nemo_rl.resizing:resized",
    has_own_nodes="rankplan.trainers.nemo_rl.resizing:has_segments",
    programs=(  # examples/run_*.py; SFT, DPO and reward models train on a cluster of nodes that rankplan places, too
        Program(
            r"(.*\.)?run_(vlm_)?(grpo|ppo|sft|dpo|rm|distillation|xtoken_\w*distillation)(_\w+)?",
            tells=False,
        ),
    ),
    resembles=("segment_size",),
    tried=Tried("0.6.0", "nemo_rl/package_info.py"),
)

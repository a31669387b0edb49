"""ms-swift as a dialect."""

from __future__ import annotations

from rankplan.sdk import Dialect, Program
from rankplan.trainers.ms_swift.keys import KEYS

DIALECT = Dialect(
    name="ms_swift",
    system="ms-swift",
    keys=KEYS,
    job="rankplan.trainers.ms_swift.job:job_of",
    resized="rankplan.trainers.ms_swift.resizing:resized",
    programs=(
        Program(r"megatron rlhf", takes=("flags",), beside=("use_ray",)),
        Program(r"(megatron|swift) (pt|sft)", "supervised fine-tuning (SFT)"),
        Program(r"swift rlhf", "a job of torchrun, whose placement rankplan does not read", is_rl=True),
        Program(r"swift (rollout|deploy|app|web-ui)", "serving of a model"),
        Program(r"swift (infer|sample)", "generation only"),
        Program(r"swift eval", "evaluation"),
        Program(r"(megatron|swift) (export|merge-lora)", "preparation of data or checkpoints"),
        Program(r"swift\.ray\.megatron\.pipeline", takes=("flags",), beside=()),
    ),
    trainer="megatron rlhf",
)

"""ms-swift as a dialect."""

from __future__ import annotations

from typing import Literal

from rankplan.sdk import Dialect, Program, Tried
from rankplan.trainers.ms_swift.keys import KEYS

_WAYS: tuple[Literal["file", "flags"], ...] = ("file", "flags")
"""A YAML as the first word, and flags over it."""

DIALECT = Dialect(
    name="ms_swift",
    system="ms-swift",
    keys=KEYS,
    job="rankplan.trainers.ms_swift.job:job_of",
    resized="rankplan.trainers.ms_swift.resizing:resized",
    programs=(
        Program(r"megatron rlhf", takes=_WAYS, beside=("use_ray",)),
        Program(r"swift rlhf", takes=_WAYS),
        Program(r"(.*\.)?swift\.cli\.(_megatron\.)?rlhf", takes=_WAYS),
        Program(r"(megatron|swift) (pt|sft)", "supervised fine-tuning (SFT)"),
        Program(r"swift rollout", "serving of a model", takes=_WAYS, part="server"),
        Program(r"swift (deploy|app|web-ui)", "serving of a model"),
        Program(r"swift (infer|sample)", "generation only"),
        Program(r"swift eval", "evaluation"),
        Program(r"(megatron|swift) (export|merge-lora)", "preparation of data or checkpoints"),
        Program(r"swift\.ray\.megatron\.pipeline", takes=("flags",), beside=()),
    ),
    trainer="megatron rlhf",
    tried=Tried("4.6.0", "swift/version.py"),
)

"""open-instruct as a dialect."""

from __future__ import annotations

from rankplan.sdk import Dialect, Program
from rankplan.trainers.open_instruct.keys import KEYS, MASON

_REMOVED = "ppo_|grpo_vllm_|online_dpo_|rejection_sampling"

DIALECT = Dialect(
    name="open_instruct",
    system="open-instruct",
    keys=KEYS,
    job="rankplan.trainers.open_instruct.job:LearnersJob",
    resized="rankplan.trainers.open_instruct.resizing:resized",
    programs=(
        Program(r"(.*\.)?mason", "a launch on Beaker of an unread command", takes=("flags",), part=MASON, tells=False),
        Program(r"(.*\.)?open_instruct\.benchmark_generators", "a measurement of engines"),
        Program(r"(.*\.)?open_instruct\.(finetune|olmo_core_finetune)", "supervised fine-tuning (SFT)"),
        Program(r"(.*\.)?open_instruct\.dpo\w*", "preference training (DPO)"),
        Program(r"(.*\.)?open_instruct\.reward_modeling\w*", "the training of a reward model"),
        Program(rf"(.*\.)?open_instruct\.({_REMOVED})\w*", "a trainer that open-instruct no longer has", is_rl=True),
        Program(r"(.*\.)?(open_instruct\.)?grpo_fast", takes=("flags", "file")),
        Program(r"(.*\.)?open_instruct\.grpo", takes=("flags", "file")),
    ),
    trainer="open_instruct/grpo_fast.py",
)

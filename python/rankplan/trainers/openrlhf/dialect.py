"""OpenRLHF as a dialect."""

from __future__ import annotations

from rankplan.sdk import Dialect, Program, Tried
from rankplan.trainers.openrlhf.keys import KEYS

DIALECT = Dialect(
    name="openrlhf",
    system="OpenRLHF",
    keys=KEYS,
    job="rankplan.trainers.openrlhf.job:OpenrlhfJob",
    resized="rankplan.dialects.placing.resizing:as_larger_groups",
    programs=(  # openrlhf/cli
        Program(r"openrlhf\.cli\.train_(?!(sft|dpo|kto|rm|prm|kd|ppo)$)\w+", released=r"openrlhf\.cli\.train_ppo_ray"),
        Program(r"openrlhf\.cli\.train_ppo", "PPO in the processes of `deepspeed`, without Ray", is_rl=True),
        Program(r"openrlhf\.cli\.train_sft", "supervised fine-tuning (SFT)"),
        Program(r"openrlhf\.cli\.train_(dpo|kto)", "preference training (DPO)"),
        Program(r"openrlhf\.cli\.train_(rm|prm)", "the training of a reward model"),
        Program(r"openrlhf\.cli\.train_kd", "knowledge distillation"),
        Program(r"openrlhf\.cli\.serve_\w+", "serving of a model"),
        Program(r"openrlhf\.cli\.(batch_inference|interactive_chat)", "generation only"),
        Program(r"openrlhf\.cli\.lora_combiner", "preparation of data or checkpoints"),
    ),
    trainer="openrlhf.cli.train_ppo_ray",
    tried=Tried("0.11.2", "version.txt", named=r"\bopenrlhf-nightly['\"]", project="setup.py"),
)

"""TRL as a dialect."""

from __future__ import annotations

from typing import Literal

from rankplan.sdk import Dialect, Program, Tried
from rankplan.trainers.trl.keys import KEYS

CLASSES = ("GRPO", "GMPO", "GRPOWithReplayBuffer", "RLOO", "OnlineDPO", "NashMD", "XPO", "AsyncGRPO")
"""The online trainers, as the names of their configs and trainers begin: GMPO and the replay buffer are GRPO's own."""
_ONLINE = r"(grpo|gspo|rloo|online_dpo|nash_md|xpo|async_grpo)(_\w+)?"
_IMPORTS = (
    r"^\s*(?:from|import)\s+trl\b",
    rf"\b(?:{'|'.join(CLASSES)})Trainer\b",
)
_FLAGS: tuple[Literal["flags"]] = ("flags",)

DIALECT = Dialect(
    name="trl",
    system="TRL",
    keys=KEYS,
    job="rankplan.trainers.trl.job:TrlJob",
    unplaced="rankplan.trainers.trl.no_job:unplaced",
    programs=(  # trl/cli, trl/scripts, examples/scripts; open-r1
        Program(r"trl (grpo|rloo)", takes=_FLAGS),
        Program(r"trl sft", "supervised fine-tuning (SFT)"),
        Program(r"trl (dpo|kto|orpo|cpo)", "preference training (DPO)"),
        Program(r"trl reward", "the training of a reward model"),
        Program(r"trl vllm-serve", "serving of a model", takes=_FLAGS, part="server"),
        Program(r"trl\.scripts\.vllm_serve", "serving of a model", takes=_FLAGS, part="server"),
        Program(r"vllm serve", "serving of a model", tells=False, takes=_FLAGS, part="server"),
        Program(r"trl\.scripts\.(grpo|rloo)", takes=_FLAGS),
        Program(rf"((.*\.)?examples\.)scripts\.{_ONLINE}", takes=_FLAGS),
        Program(r"(.*\.)?open_r1\.grpo", takes=_FLAGS),
        Program(r".*", takes=_FLAGS, imports=_IMPORTS),
    ),
    trainer="trl grpo",
    starts="processes",
    tried=Tried("1.10.0.dev0", "VERSION", named=r"name = .trl['\"]", project="pyproject.toml"),
    writers={"": "rankplan.trainers.trl.writing:written"},
)

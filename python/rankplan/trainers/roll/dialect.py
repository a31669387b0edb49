"""ROLL as a dialect."""

from __future__ import annotations

from rankplan.sdk import Dialect, Program, Tried
from rankplan.trainers.roll.keys import KEYS

DIALECT = Dialect(
    name="roll",
    system="ROLL",
    keys=KEYS,
    job="rankplan.trainers.roll.job:RollJob",
    resized="rankplan.trainers.roll.requests:resized",
    has_own_nodes="rankplan.trainers.roll.requests:has_own_nodes",
    programs=(  # examples/start_*_pipeline.py
        Program(
            r"(.*\.)?start_\w+_pipeline",
            tells=False,
            released=r"(.*\.)?start_((agentic|rlvr)(_rollout|_vl)?|dpo|sft|(onpolicy_)?distill(_vl)?)_pipeline",
        ),
    ),
    trainer="start_rlvr_pipeline.py",
    writers={"": "rankplan.trainers.roll.writing:written"},
    tried=Tried("0.3.0", "setup.py", named=r"name=.roll['\"]"),
)

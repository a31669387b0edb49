"""verl as a dialect."""

from __future__ import annotations

from rankplan.sdk import Dialect, Program, Tried
from rankplan.trainers.verl.keys import KEYS, OWN_CONFIGS

DIALECT = Dialect(
    name="verl",
    system="verl",
    keys=KEYS,
    job="rankplan.trainers.verl.job:job_of",
    resized="rankplan.trainers.verl.resizing:resized",
    writers={
        "": "rankplan.trainers.verl.writing:written",
        "topology": "rankplan.trainers.verl.topology_writing:topology_written",
    },
    programs=(  # the entry points in verl/trainer and verl/experimental
        Program(r"verl\.(trainer|experimental)\..*sft\w*", "supervised fine-tuning (SFT)"),
        Program(r"verl\.\w*trainer\.main_generation\w*", "generation only"),
        Program(r"verl\.\w*trainer\.main_eval\w*", "evaluation"),
        Program(r"verl\.(model_merger|utils)\b.*", "preparation of data or checkpoints"),
        Program(r"verl\..*", configs=OWN_CONFIGS),
    ),
    trainer="verl.trainer.main_ppo",
    unplaced="rankplan.trainers.verl.no_job:other_task",
    resembles=("resource_pool_spec",),
    tried=Tried("0.10.0.dev", "verl/version/version"),
)

"""Dialects whose modules plan by themselves."""

from __future__ import annotations

from rankplan.dialects.interface.dialect import Dialect
from rankplan.dialects.keys.key import anything
from rankplan.dialects.keys.table import KeyTable
from rankplan.read.text.programs import Program
from rankplan.trainers.verl.keys import KEYS as VERL_KEYS

PLACEMENT = anything("cluster.component_placement", "the placement of each component", tells="others")

RLINF = Dialect(
    name="rlinf",
    system="RLinf",
    keys=KeyTable((PLACEMENT,), "rankplan.rlinf.memory:RLINF", never=""),
    planner="rankplan.rlinf.dialect",
    writers={"": "rankplan.rlinf.dialect:written"},
    no_groups="RLinf places its processes by node itself: use `rankplan run`",
)

_WRITING = "rankplan.trainers.verl.writing"

VERL = Dialect(
    name="verl",
    system="verl",
    keys=VERL_KEYS,
    planner="rankplan.trainers.verl.dialect",
    writers={
        "": "rankplan.trainers.verl.dialect:written",
        "topology": "rankplan.trainers.verl.writing:topology_written",
    },
    programs=(  # the entry points in verl/trainer and verl/experimental
        Program(r"verl\.(trainer|experimental)\..*sft\w*", "supervised fine-tuning (SFT)"),
        Program(r"verl\.\w*trainer\.main_generation\w*", "generation only"),
        Program(r"verl\.\w*trainer\.main_eval\w*", "evaluation"),
        Program(r"verl\.(model_merger|utils)\b.*", "preparation of data or checkpoints"),
        Program(r"verl\..*"),
    ),
    trainer="verl.trainer.main_ppo",
    unplaced="rankplan.trainers.verl.no_job:fine_tuning",
    resembles=("resource_pool_spec",),
)

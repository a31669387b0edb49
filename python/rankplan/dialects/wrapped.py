"""Dialects whose modules plan by themselves."""

from __future__ import annotations

from rankplan.dialects.interface.dialect import Dialect
from rankplan.dialects.keys.key import anything
from rankplan.dialects.keys.table import KeyTable
from rankplan.trainers.roll.keys import KEYS as ROLL_KEYS
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
    resembles=("resource_pool_spec",),
)

ROLL = Dialect(
    name="roll",
    system="ROLL",
    keys=ROLL_KEYS,
    planner="rankplan.trainers.roll.dialect",
    writers={"": "rankplan.trainers.roll.dialect:written"},
)

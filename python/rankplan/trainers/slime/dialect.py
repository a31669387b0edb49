"""slime as a dialect."""

from __future__ import annotations

from rankplan.dialects.interface.dialect import Dialect
from rankplan.trainers.slime.keys import KEYS

DIALECT = Dialect(
    name="slime",
    system="slime",
    keys=KEYS,
    job="rankplan.trainers.slime.job:SlimeJob",
    writers={"": "rankplan.trainers.slime.writing:written"},
)

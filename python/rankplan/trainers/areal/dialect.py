"""AReaL as a dialect."""

from __future__ import annotations

from rankplan.sdk import Dialect
from rankplan.trainers.areal.keys import KEYS

DIALECT = Dialect(
    name="areal",
    system="AReaL",
    keys=KEYS,
    job="rankplan.trainers.areal.job:ArealJob",
    resized="rankplan.trainers.areal.resizing:resized",
)

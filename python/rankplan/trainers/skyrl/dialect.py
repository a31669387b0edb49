"""SkyRL as a dialect."""

from __future__ import annotations

from rankplan.dialects.interface.dialect import Dialect
from rankplan.trainers.skyrl.keys import KEYS

DIALECT = Dialect(
    name="skyrl",
    system="SkyRL",
    keys=KEYS,
    job="rankplan.trainers.skyrl.job:SkyrlJob",
)

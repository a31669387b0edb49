"""OpenRLHF as a dialect."""

from __future__ import annotations

from rankplan.dialects.interface.dialect import Dialect
from rankplan.trainers.openrlhf.keys import KEYS

DIALECT = Dialect(
    name="openrlhf",
    system="OpenRLHF",
    keys=KEYS,
    job="rankplan.trainers.openrlhf.job:OpenrlhfJob",
)

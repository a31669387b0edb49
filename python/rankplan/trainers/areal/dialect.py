"""AReaL as a dialect."""

from __future__ import annotations

from rankplan.sdk import Dialect, Tried
from rankplan.trainers.areal.keys import KEYS

DIALECT = Dialect(
    name="areal",
    system="AReaL",
    keys=KEYS,
    job="rankplan.trainers.areal.job:ArealJob",
    resized="rankplan.trainers.areal.resizing:resized",
    tried=Tried("1.0.4", "pyproject.toml", named=r"name = .areal['\"]"),
)

"""slime as a dialect."""

from __future__ import annotations

from rankplan.sdk import Dialect, Program, Tried
from rankplan.trainers.slime.keys import KEYS

DIALECT = Dialect(
    name="slime",
    system="slime",
    keys=KEYS,
    job="rankplan.trainers.slime.job:SlimeJob",
    resized="rankplan.trainers.slime.resizing:resized",
    programs=(Program(r"(.*\.)?train(_async)?", tells=False),),
    writers={"": "rankplan.trainers.slime.writing:written"},
    tried=Tried("0.3.1", "setup.py", named=r"name=.slime['\"]"),
)

"""The tables: names and defaults of each system's own configuration, and of the code that reads it."""

from __future__ import annotations

from rankplan.dialects.memory.rules import Table
from rankplan.dialects.memory.tables.areal import AREAL
from rankplan.dialects.memory.tables.nemo_rl import NEMO_RL
from rankplan.dialects.memory.tables.openrlhf import OPENRLHF
from rankplan.dialects.memory.tables.rlinf import RLINF
from rankplan.dialects.memory.tables.roll import ROLL
from rankplan.dialects.memory.tables.skyrl import SKYRL
from rankplan.dialects.memory.tables.slime import SLIME
from rankplan.dialects.memory.tables.verl import VERL

MEMORY: dict[str, Table] = {
    "verl": VERL,
    "nemo_rl": NEMO_RL,
    "roll": ROLL,
    "slime": SLIME,
    "areal": AREAL,
    "openrlhf": OPENRLHF,
    "skyrl": SKYRL,
    "rlinf": RLINF,
}
"""The table of each dialect."""

"""The tables: names and defaults of each system's own configuration, and of the code that reads it."""

from __future__ import annotations

from rankplan.dialects.memory.areal import AREAL
from rankplan.dialects.memory.nemo_rl import NEMO_RL
from rankplan.dialects.memory.openrlhf import OPENRLHF
from rankplan.dialects.memory.rlinf import RLINF
from rankplan.dialects.memory.roll import ROLL
from rankplan.dialects.memory.rules import Table
from rankplan.dialects.memory.skyrl import SKYRL
from rankplan.dialects.memory.slime import SLIME
from rankplan.dialects.memory.verl import VERL

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

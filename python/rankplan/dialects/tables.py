"""The keys of each dialect but RLinf's, one table a dialect: where a key is, its type, and what it decides.

Recognition, the detection of typos, ``rankplan schema`` and the tables of the guide use these tables. A config may have
any other key: it belongs to the trainer.
"""

from __future__ import annotations

from rankplan.dialects.keys.table import KeyTable
from rankplan.trainers.areal.keys import KEYS as AREAL
from rankplan.trainers.nemo_rl.keys import KEYS as NEMO_RL
from rankplan.trainers.openrlhf.keys import KEYS as OPENRLHF
from rankplan.trainers.roll.keys import KEYS as ROLL
from rankplan.trainers.skyrl.keys import KEYS as SKYRL
from rankplan.trainers.slime.keys import KEYS as SLIME
from rankplan.trainers.verl.keys import KEYS as VERL

TABLES: dict[str, KeyTable] = {
    "nemo_rl": NEMO_RL,
    "areal": AREAL,
    "skyrl": SKYRL,
    "verl": VERL,
    "openrlhf": OPENRLHF,
    "slime": SLIME,
    "roll": ROLL,
}
"""The table of each dialect but RLinf, whose keys are the models of `rankplan.read`; the first that recognises a
config is used."""

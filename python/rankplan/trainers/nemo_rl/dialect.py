"""NeMo-RL as a dialect."""

from __future__ import annotations

from rankplan.dialects.interface.dialect import Dialect
from rankplan.trainers.nemo_rl.keys import KEYS

DIALECT = Dialect(
    name="nemo_rl",
    system="NeMo-RL",
    keys=KEYS,
    job="rankplan.trainers.nemo_rl.job:NemoRlJob",
    resembles=("segment_size",),
)

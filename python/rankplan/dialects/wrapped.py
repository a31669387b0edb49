"""RLinf as a dialect. Its own module plans its configs, which are not read by keys."""

from __future__ import annotations

from rankplan.dialects.interface.dialect import Dialect
from rankplan.dialects.keys.key import anything
from rankplan.dialects.keys.table import KeyTable

PLACEMENT = anything("cluster.component_placement", "the placement of each component", tells="others")

RLINF = Dialect(
    name="rlinf",
    system="RLinf",
    keys=KeyTable((PLACEMENT,), "rankplan.rlinf.memory:RLINF", never=""),
    planner="rankplan.rlinf.dialect",
    writers={"": "rankplan.rlinf.dialect:written"},
    no_groups="RLinf places its processes by node itself: use `rankplan run`",
)

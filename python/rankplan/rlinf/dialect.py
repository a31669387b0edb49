"""RLinf as a dialect: a ``cluster`` section with ``component_placement``, which is also rankplan's own language."""

from __future__ import annotations

from rankplan.dialects.interface.cluster import ClusterForms
from rankplan.dialects.interface.dialect import Dialect
from rankplan.dialects.interface.tried import Tried
from rankplan.rlinf.keys import KEYS

DIALECT = Dialect(
    name="rlinf",
    system="RLinf",
    keys=KEYS,
    job="rankplan.rlinf.job:RlinfJob",
    writers={"": "rankplan.rlinf.writing:written"},
    no_groups="RLinf places its processes by node itself: use `rankplan run`",
    cluster=ClusterForms(
        read="rankplan.rlinf.section:stated_cluster",
        schema="rankplan.rlinf.schema:section_schema",
        inventory="rankplan.rlinf.clusters:inventory_of",
    ),
    tried=Tried("0.4.0", "pyproject.toml", named=r"name = .rlinf['\"]"),
)

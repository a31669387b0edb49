"""What the keys of every dialect say about memory."""

from __future__ import annotations

from rankplan.dialects.keys.roles import Role
from rankplan.dialects.tables import TABLES
from rankplan.rlinf.memory import RLINF

MEMORY: dict[str, tuple[Role, ...]] = {name: table.roles for name, table in TABLES.items()} | {"rlinf": RLINF}
"""The roles of each dialect."""

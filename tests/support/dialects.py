"""The tables of keys of the dialects that rankplan has itself."""

from __future__ import annotations

from rankplan.dialects import OWN, recognisers
from rankplan.dialects.built_in import DIALECTS
from rankplan.dialects.keys.roles import Role
from rankplan.dialects.keys.table import KeyTable

TABLES: dict[str, KeyTable] = {dialect.name: dialect.keys for dialect in recognisers()}
MEMORY: dict[str, tuple[Role, ...]] = {name: DIALECTS[name].keys.roles for name in (*TABLES, OWN)}

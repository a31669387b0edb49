"""What a config knows of the system that it is written for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankplan.frozen import frozen

if TYPE_CHECKING:
    from rankplan.dialects.keys.table import KeyTable


@frozen
class System:
    """The name of a dialect, what messages call its system, and the table of its keys."""

    dialect: str = ""
    title: str = ""
    keys: KeyTable | None = None


NO_SYSTEM = System()
"""That of values which no dialect reads."""

"""The default worker of ``rankplan run``."""

from __future__ import annotations

import os

from rankplan.runtime.group.worker import Worker


class RollCall(Worker):
    """Reports its process id."""

    def run(self) -> int:
        """Return the process id."""
        return os.getpid()

"""The worker of ``rankplan run`` when no other is given."""

from __future__ import annotations

import os

from rankplan.runtime.worker import Worker


class RollCall(Worker):
    """Answers when it is called, and does nothing else."""

    def run(self) -> int:
        """Return the process id."""
        return os.getpid()

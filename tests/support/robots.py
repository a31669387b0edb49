"""A hardware model and its worker, in a module that the ranks import."""

from __future__ import annotations

import os

from rankplan import HardwareConfig, Worker

RANK_AT_IMPORT = os.environ.get("RANK")


class Lamp(HardwareConfig):
    watts: int


class Lighter(Worker):
    def lamps(self) -> list[tuple[str, int, str | None]]:
        return [(type(lamp).__module__, lamp.watts, RANK_AT_IMPORT) for lamp in self.hardware]

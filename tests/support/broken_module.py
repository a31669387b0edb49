"""A module that cannot be imported in rank 1."""

from __future__ import annotations

import os

from rankplan import Worker

if os.environ.get("RANK") == "1":
    raise ImportError("libmodel.so.2: cannot open shared object file")


class Broken(Worker):
    def run(self) -> None: ...

"""A worker whose module notes where it was imported."""

from __future__ import annotations

import os
from typing import Any

from rankplan import Worker

IMPORTED = sorted(os.sched_getaffinity(0))
NAMES = ("NCCL_IB_HCA", "UCX_NET_DEVICES", "MUJOCO_EGL_DEVICE_ID")


class Placed(Worker):
    """Tells on which CPUs its module was imported, and its variables."""

    def run(self) -> dict[str, Any]:
        environment = {name: os.environ[name] for name in NAMES if name in os.environ}
        return {"imported": IMPORTED, "environment": environment}

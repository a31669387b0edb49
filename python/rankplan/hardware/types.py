"""The types of hardware, other than accelerators, whose pieces have a model of their own: robots, for example."""

from __future__ import annotations

HARDWARE_TYPES = ["Franka"]
"""Every type: that of rankplan, and those that `rankplan.register_hardware` adds.

Node groups and nodes may have pieces of any other type, too.
"""

"""The rooms of the package."""

from __future__ import annotations

# A room may use itself and the rooms before it. A room is a folder; ``rankplan`` is the folder of the package itself.
ROOMS = [
    "rankplan",
    "hardware",
    "nodes.topology",
    "nodes",
    "plans",
    "memory",
    "read.text.shell",
    "read.text",
    "read",
    "read.inventories",
    "dialects.keys",
    "dialects.memory",
    "starting",
    "targets",
    "arranging",
    "dialects.rlinf",
    "dialects",
    "tuning",
    "testing",
    "render",
    "render.map",
    "runtime.ray",
    "runtime.nodes",
    "runtime.rank",
    "runtime.reserve",
    "runtime",
    "runtime.group",
    "front",
    "editor",
    "runtime.live",
    "cli",
]

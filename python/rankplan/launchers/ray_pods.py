"""Ray in the pods of a launcher without Ray of its own: a head on the first node of the plan, and the driver there."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rankplan.launchers.draft import Draft
from rankplan.launchers.pods import NODE_RANK, PLAN_FILE
from rankplan.launchers.ray import CHECK, PORT, TOKEN
from rankplan.launchers.scripts import Verbatim
from rankplan.launchers.trainer import driver, driver_read
from rankplan.plans.plan import Plan

_STAYS = "; exec sleep infinity"
"""After a driver whose pods would be started again when they end."""
_DRIVER = re.compile(rf"^if \(\({NODE_RANK} == [0-9]+\)\); then (?:exec )?(.*?)(?:{re.escape(_STAYS)})?; fi$", re.M)
_HEAD = "ray start --head"


def ray_command(draft: Draft, addresses: Mapping[int, str], *, restarted: bool = False) -> list[str]:
    """Return the command of each pod, before the kubelet expands it; ``addresses`` are those of the nodes by rank.

    The pod of the first node starts Ray's head and, once that answers, the driver: its end is that of the job. The
    others join. Ray ends on them when the head is gone, which is no failure; a node that ends before it is one.
    ``restarted``: pods that end are started again, so that of the driver stays once it has succeeded.
    """
    first = min(addresses)
    is_first = f"(({NODE_RANK} == {first}))"
    started = driver(draft, PLAN_FILE)
    lines = [
        "set -e",
        *TOKEN,
        f"export RAY_ADDRESS={addresses[first]}:{PORT}",
        f"if {is_first}; then {_HEAD} --port={PORT}; fi",
        f'until {CHECK} "$RAY_ADDRESS"; do sleep 2; done',
        f"if {is_first}; then {f'{started}{_STAYS}' if restarted else f'exec {started}'}; fi",
        'ray start --address="$RAY_ADDRESS" --block || true',
        "# without its head, Ray has ended with the job; else this node has failed",
        f'! {CHECK} "$RAY_ADDRESS"',
    ]
    return ["bash", "-c", "\n".join([*lines, ""])]


def entrypoint_read(plan: Plan, script: str) -> Verbatim | None:
    """Return the driver that the script of a pod starts, ``None`` if there is none."""
    for line in _DRIVER.finditer(script):
        if not line[1].startswith(_HEAD):
            return driver_read(plan, line[1], PLAN_FILE)
    return None

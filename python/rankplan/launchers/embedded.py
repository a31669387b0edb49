"""The plan in a file: its digest, and no names of machines where the file says shapes."""

from __future__ import annotations

from typing import Any

from rankplan._core import RankSet
from rankplan.nodes.facts import SLURM_NAME
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.words import natural

_OF_A_MACHINE = ("hostname", "ip", "accelerator_ids")
_OF_A_DEVICE = ("id", "uuid")
_DIGITS = 16


def portable(plan: Plan) -> Plan:
    """Return the plan for any machines of these shapes: without hostnames, addresses and ids of devices.

    Names that the plan excludes become ``node-3`` and ``node-3/2``. Labels, levels and hardware facts stay. Spares are
    left out: no name tells which machines they are.
    """
    content = (plan if plan.job is None else plan.with_job(plan.job.without_spares())).to_dict()
    content["inventory"]["nodes"] = _merged([_anonymous(entry) for entry in content["inventory"]["nodes"]])
    if content["cluster"] is not None and content["cluster"].get("exclude"):
        content["cluster"]["exclude"] = _renamed(plan.inventory, content["cluster"]["exclude"])
    return Plan.from_dict(content)


def _anonymous(entry: dict[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in entry.items() if key not in _OF_A_MACHINE}
    if SLURM_NAME in found.get("labels", ()):
        found["labels"] = {key: value for key, value in found["labels"].items() if key != SLURM_NAME}
    if isinstance(devices := found.get("accelerators"), list):
        found["accelerators"] = [
            {key: value for key, value in one.items() if key not in _OF_A_DEVICE} for one in devices
        ]
        if not any(found["accelerators"]):
            found["accelerators"] = len(devices)
    return found


def _merged(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return entries that differ only in their ranks as one."""
    alike: dict[str, tuple[dict[str, Any], list[RankSet]]] = {}
    for entry in entries:
        kind = repr(sorted((key, repr(value)) for key, value in entry.items() if key != "ranks"))
        alike.setdefault(kind, (entry, []))[1].append(RankSet(str(entry["ranks"])))
    return [{**entry, "ranks": str(ranks[0].union(*ranks[1:]))} for entry, ranks in alike.values()]


def _renamed(inventory: Inventory, names: list[str]) -> list[str]:
    """Return the names of excluded hardware without those of machines; a domain keeps its name."""
    found: set[str] = set()
    for name in names:
        if "=" in name and not any(name in (node.hostname, node.ip) for _, node in inventory.stretches()):
            found.add(name)
            continue
        for node, local in inventory.names.marks([name])[0].items():
            found.update([f"node-{node}"] if local is None else (f"node-{node}/{index}" for index in local))
    return sorted(found, key=natural)


def plan_text(plan: Plan) -> str:
    """Return the text of a saved plan. It says nothing about the files of who emits it."""
    from rankplan.plans import plan_file

    job = None if plan.job is None else plan.job.without_base()
    known = plan.mode, plan.dialect, plan.requests, plan.rules, job, plan.actors
    return plan_file.content(plan.inventory, plan, *known).text()


def digest(text: str) -> str:
    """Return the digest of the text of a plan: ``sha256:`` and 16 digits."""
    import hashlib  # a file that is no launcher's needs only its mark

    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"

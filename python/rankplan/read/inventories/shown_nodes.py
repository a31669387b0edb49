"""A node as a scheduler shows it, and what is left of it beside the jobs that run there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankplan.frozen import frozen


@frozen
class ShownNode:
    """A node as Slurm or Kubernetes shows it.

    ``name`` is what the scheduler calls it, ``entry`` the entry of an inventory without its rank, ``problem`` why it is
    not healthy, ``in_use`` what jobs have there.
    """

    name: str
    entry: dict[str, Any]
    problem: str | None = None
    in_use: str | None = None


@dataclass
class Usage:
    """What the jobs on a node hold: accelerators, CPUs, MiB of memory; and what they are called."""

    accelerators: int = 0
    cpus: float = 0
    memory: int = 0
    jobs: str = ""


def beside_jobs(entry: Mapping[str, Any], usage: Usage) -> tuple[dict[str, Any], str | None]:
    """Return the entry of a node without what its jobs hold, and a text that says it; ``None`` if they hold nothing.

    A node is taken if no accelerator, no CPU or no memory is left. Otherwise it has fewer of them: a scheduler gives
    a job some of the accelerators that are left, and numbers them anew.
    """
    total = entry["accelerators"]
    left = max(0, total - usage.accelerators)
    amounts = {"cpus": usage.cpus, "reservable_memory": usage.memory}
    remaining = {key: entry[key] - held for key, held in amounts.items() if key in entry}
    if (total and not left) or any(amount <= 0 for amount in remaining.values()):
        return {**entry, "taken": usage.jobs}, "in use"
    if left == total:
        return {**entry, **remaining}, None
    return {**entry, **remaining, "accelerators": left}, f"{left} of {total} accelerators free"

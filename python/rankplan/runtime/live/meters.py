"""The memory of the accelerators of a plan while a program runs: a process of Ray on each node reads its driver.

A reading is the number of bytes that all processes together use on an accelerator. The largest one counts. A driver
does not tell which part of the plan a process belongs to: trainers start processes of several components in one bundle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from rankplan.runtime.live.binding import Binding
from rankplan.runtime.live.faults import silent_drivers
from rankplan.runtime.nodes.nodes import pinned
from rankplan.runtime.nodes.sampler import Metered, Sampler
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import Fault, outcomes
from rankplan.runtime.ray.asking import ask
from rankplan.runtime.ray.connection import joined
from rankplan.runtime.ray.head import Head


class Meters:
    """The samplers of the nodes of a plan whose accelerators it uses."""

    def __init__(self, binding: Binding, actors: Sequence[Any], ranks: Sequence[int]) -> None:
        self._binding, self._actors, self._ranks = binding, actors, ranks

    def check(self) -> None:
        """Raise `ClusterError` with every node whose driver does not tell what is used."""
        answers = outcomes([actor.problem.remote() for actor in self._actors], timeouts.ENVIRONMENT)
        reasons = []
        for rank, answer in zip(self._ranks, answers, strict=True):
            if isinstance(answer, str) and not answer:
                continue
            reason = answer.reason if isinstance(answer, Fault) else answer or "it did not start a process"
            reasons.append(f"{self._binding.name(rank)}: {reason}")
        if reasons:
            raise silent_drivers(reasons)

    def cards(self) -> dict[tuple[int, int], Metered]:
        """Return what was read of each accelerator, by node rank and local index, so far as its node tells it."""
        answers = outcomes([actor.cards.remote() for actor in self._actors], timeouts.ANSWER)
        metered: dict[tuple[int, int], Metered] = {}
        for rank, answer in zip(self._ranks, answers, strict=True):
            if isinstance(answer, list):
                metered |= {(rank, index): card for index, card in enumerate(answer) if card is not None}
        return metered


@contextmanager
def metered(binding: Binding, head: Head) -> Iterator[Meters]:
    """Read the memory of the accelerators of a plan during the ``with``, in a job of this process.

    Raises `ClusterError` if a node has other accelerators than NVIDIA's, or no driver that tells.
    """
    inventory = binding.plan.inventory
    used: set[int] = set()
    for component in binding.plan.values():
        used |= component.inventory.core.by_node(component.rows.accelerators()).keys()
    ranks = sorted(used)
    kinds = {rank: inventory.node(rank).accelerator_type for rank in ranks}
    others = [f"{binding.name(rank)} has {kind}" for rank, kind in kinds.items() if kind != "NV_GPU"]
    if others:
        raise silent_drivers(others)
    with joined(head):
        sampler = ray.remote(num_cpus=0)(Sampler)

        def start() -> list[Any]:
            return [
                sampler.options(scheduling_strategy=pinned(binding.nodes.ids[rank])).remote(
                    inventory.node(rank).accelerator_ids
                )
                for rank in ranks
            ]

        meters = Meters(binding, ask(start), ranks)
        meters.check()
        yield meters

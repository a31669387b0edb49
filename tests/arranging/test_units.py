"""The units by which a component grows: how much work it takes to find the processes that share no resources."""

from __future__ import annotations

import pytest
from rankplan import Chunks, Component, Inventory, Parallel
from rankplan.arranging import units
from rankplan.arranging.units import Cell


class Counted(int):
    """A resource rank that counts how often it is looked up."""

    lookups = 0

    def __hash__(self) -> int:
        Counted.lookups += 1
        return int(self)


def lookups(count: int, resources: list[int], monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the look-ups of resources for a cell of so many processes of an accelerator."""
    inventory = Inventory.uniform(count // 4, 4)
    component = Component.place("rollout", inventory, ("cluster",), Chunks(resources, 1), parallel=Parallel(tp=4))
    lists = [[Counted(rank)] for rank in resources]
    monkeypatch.setattr(units, "lists_of", lambda component: lists)
    Counted.lookups = 0
    assert Cell.of(component, 4).processes > 0
    return Counted.lookups


@pytest.mark.parametrize("shape", ["scattered", "reversed", "in halves"])
def test_the_work_is_linear_in_the_processes(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def resources(count: int) -> list[int]:
        if shape == "scattered":  # every second resource, then the others: no part follows on from itself
            return [*range(0, count, 2), *range(1, count, 2)]
        return list(range(count))[::-1] if shape == "reversed" else [*range(count // 2, count), *range(count // 2)]

    few, many = (lookups(count, resources(count), monkeypatch) for count in (400, 3200))
    assert many <= 9 * few

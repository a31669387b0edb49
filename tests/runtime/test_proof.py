"""Differences between the devices that a driver shows and those of the plan."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from rankplan import ComponentPlacement, Inventory, PackedPlacementStrategy, RankReport
from rankplan._core import RankSet
from rankplan.environment import planned_environment
from rankplan.runtime.group.launch import unbound_text
from rankplan.runtime.rank.spec import RankSpec, differences, shared_devices

A, B, C = (f"GPU-abababab-abab-abab-abab-ababababab0{card}" for card in range(3))
ROW = PackedPlacementStrategy(0, 1, 2).get_placement(Inventory.uniform(1, 2))[0]


def found(planned: tuple[str, ...], shown: tuple[str, ...], proof: str = "devices", **more: str) -> list[str]:
    """Return the differences of a rank with these planned and shown devices."""
    spec = RankSpec("actor", ROW, {}, "here", uuids=planned, proof=proof)
    environment = planned_environment(ROW)
    report = RankReport("actor", 0, 0, 1, (), proof, shown, node_id="here", environment=environment, **more)  # type: ignore[arg-type]
    return list(differences(spec, report))


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        ([A, B], None),
        ([B, A], f"the driver shows its devices in the order {B}, {A}, expected {A}, {B}; set CUDA_DEVICE_ORDER to"),
        (
            [A],
            f"the driver shows 1 of 2 devices, without {B}; CUDA ignores a mask from its first invalid id on: CUDA",
        ),
        ([], f"the driver shows 0 of 2 devices, without {A}, {B}; CUDA ignores a mask from its first invalid id on"),
        ([A, C], f"the driver shows {A}, {C}, expected {A}, {B}; set CUDA_DEVICE_ORDER to PCI_BUS_ID"),
        ([A, B, C], f"the driver shows {A}, {B}, {C}, expected {A}, {B}; "),
    ],
    ids=["as planned", "another order", "a typo", "none", "another card", "one more"],
)
def test_the_devices_of_the_driver(shown: list[str], message: str | None) -> None:
    given = found((A, B), tuple(shown))
    assert not given if message is None else (len(given) == 1 and given[0].startswith(message))


def test_a_driver_that_does_not_answer_is_a_difference() -> None:
    assert found((A,), (), driver_problem="x") == ["the driver does not tell its devices: x"]


def test_what_was_not_asked_or_is_not_known_is_no_difference() -> None:
    assert found((A,), (), "environment") == found((), (A,)) == []


class Case(NamedTuple):
    placement: str
    visibility: str
    shared: list[tuple[int, int, str]]


@pytest.mark.parametrize(
    "case",
    [
        Case("0-1", "own", [(1, 0, A)]),
        Case("0:0-1", "own", []),  # the plan shares it
        Case("0-1", "node", []),  # all see all
    ],
)
def test_two_ranks_on_one_card(case: Case) -> None:
    entry = {"placement": case.placement, "visibility": case.visibility}
    config = {"cluster": {"num_nodes": 1, "component_placement": {"actor": entry}}}
    rows = list(ComponentPlacement(config, Inventory.uniform(1, 2)).plan()["actor"])
    assert list(shared_devices(rows, [(A,), (A,)])) == case.shared
    assert list(shared_devices(rows, [(A,), (B,)])) == []


def test_ranks_that_are_not_bound_are_named() -> None:
    one = RankReport("actor", 0, 0, 1, (), planned_cpus=RankSet("0-3"), cpus=RankSet("0-3"))
    two = RankReport("actor", 1, 0, 2, (), planned_cpus=RankSet("4-7"), cpus=RankSet("0-7"), planned_memory="bind 0")
    assert unbound_text([one]) == "" and one.is_bound and not two.is_bound
    assert unbound_text([one, two]) == (
        "ranks 1 are not bound as planned; rank 1 has CPUs 0-7, planned 4-7 and memory none, planned bind 0"
    )

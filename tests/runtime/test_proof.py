"""Differences between the devices that a driver shows and those of the plan."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from rankplan import ComponentPlacement, Inventory
from rankplan._core import RankSet
from rankplan.hardware.driver import Shown, plain
from rankplan.runtime.rank.proof import driver_differences, shared_devices
from rankplan.runtime.rank.report import RankReport, unbound_text
from rankplan.runtime.rank.settings import RankSettings

A, B, C = (f"GPU-abababab-abab-abab-abab-ababababab0{card}" for card in range(3))
MASK = "CUDA_VISIBLE_DEVICES=0,o,2"


def differences(planned: tuple[str, ...], shown: Shown | None) -> list[str]:
    return list(driver_differences(RankSettings(uuids=planned), shown, MASK))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([A, B], None),
        ([B, A], f"the driver shows its devices in the order {B}, {A}, expected {A}, {B}; set CUDA_DEVICE_ORDER to"),
        ([A], f"the driver shows 1 of 2 devices, without {B}; CUDA ignores a mask from its first invalid id on: C"),
        ([], f"the driver shows 0 of 2 devices, without {A}, {B}; CUDA ignores a mask from its first invalid id on"),
        ([A, C], f"the driver shows {A}, {C}, expected {A}, {B}; set CUDA_DEVICE_ORDER to PCI_BUS_ID"),
        ([A, B, C], f"the driver shows {A}, {B}, {C}, expected {A}, {B}; "),
    ],
    ids=["as planned", "another order", "a typo", "none", "another card", "one more"],
)
def test_the_devices_of_the_driver(found: list[str], message: str | None) -> None:
    given = differences((A, B), Shown(tuple(map(plain, found))))
    assert not given if message is None else (len(given) == 1 and given[0].startswith(message))


def test_a_driver_that_does_not_answer_is_a_difference() -> None:
    assert differences((A,), Shown(problem="x")) == ["the driver does not tell its devices: x"]


def test_what_was_not_asked_or_is_not_known_is_no_difference() -> None:
    assert differences((A,), None) == differences((), Shown((plain(A),))) == []


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
    assert unbound_text([one]) == "" and one.bound and not two.bound
    assert unbound_text([one, two]) == (
        "ranks 1 are not bound as planned; rank 1 has CPUs 0-7, planned 4-7 and memory none, planned bind 0"
    )

"""Several threads use plans and strategies at once; the core works while other threads run Python."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from rankplan import (
    ComponentPlacement,
    FlexiblePlacementStrategy,
    Inventory,
    NodePlacementStrategy,
    PackedPlacementStrategy,
    PlacementError,
    Plan,
)

THREADS = 8
TIMES = 40
INVENTORY = Inventory.uniform(num_nodes=64, num_accelerators=8)
CONFIG = {
    "cluster": {"num_nodes": 64, "component_placement": {"actor": "0-255:0-127,256-511:128-639", "rollout": "all"}}
}


def hammer(work: Callable[[int], Any]) -> list[Any]:
    """Call ``work`` ``TIMES`` times on each of eight threads that start together; return all answers."""
    together = threading.Barrier(THREADS)

    def thread(number: int) -> list[Any]:
        together.wait()
        return [work(number * TIMES + time) for time in range(TIMES)]

    with ThreadPoolExecutor(THREADS) as pool:
        return [answer for answers in pool.map(thread, range(THREADS)) for answer in answers]


@pytest.mark.parametrize(
    "strategy",
    [
        ComponentPlacement(CONFIG, INVENTORY).get_strategy("actor"),
        FlexiblePlacementStrategy([[rank] for rank in range(512)]),
        NodePlacementStrategy(list(range(64))),
        PackedPlacementStrategy(0, 511, 2, 2),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_one_strategy_answers_eight_threads_alike(strategy: Any) -> None:
    expected = {isolate: strategy.get_placement(INVENTORY, isolate_accelerator=isolate) for isolate in (True, False)}
    visible = {isolate: [row.visible_accelerators for row in rows] for isolate, rows in expected.items()}

    def ask(time: int) -> None:
        isolate = time % 2 == 0
        rows = strategy.get_placement(INVENTORY, isolate_accelerator=isolate)
        assert rows == expected[isolate]
        assert rows[time % len(rows)].visible_accelerators == visible[isolate][time % len(rows)]

    assert len(hammer(ask)) == THREADS * TIMES


def test_one_plan_is_read_by_eight_threads(tmp_path: Any) -> None:
    plan = ComponentPlacement(CONFIG, INVENTORY).plan()
    devices, sharing = [row.devices for row in plan["actor"]], plan.sharing()

    def read(time: int) -> None:
        file = tmp_path / f"{threading.get_ident()}.json"
        assert plan["actor"][time].devices == devices[time]
        assert plan.sharing() == sharing and plan.idle() == {}
        if time % 10 == 0:
            plan.save(file)
            assert Plan.load(file) == plan

    hammer(read)


def test_faults_of_eight_threads_do_not_mix() -> None:
    def refuse(time: int) -> None:
        config = {"cluster": {"num_nodes": 64, "component_placement": {"actor": f"0-{512 + time}"}}}
        with pytest.raises(PlacementError) as caught:
            ComponentPlacement(config, INVENTORY)
        assert f"{512 + time}" in caught.value.message and caught.value.render()

    hammer(refuse)


def test_python_runs_while_the_core_works() -> None:
    """Threads never switch in Python code here, so this one runs only while the other is in the core or has ended."""
    strategy = PackedPlacementStrategy(0, 511)
    ended = threading.Event()

    def place() -> None:
        for _ in range(1000):
            strategy.get_placement(INVENTORY)
        ended.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    try:
        thread = threading.Thread(target=place)
        thread.start()
        assert not ended.is_set()
    finally:
        sys.setswitchinterval(interval)
        thread.join()

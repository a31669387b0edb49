"""Reserved launches on a real Ray cluster: shares, the same rows as without, and refusals at once, node by node."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from textwrap import dedent
from typing import Any

import pytest
import ray
from rankplan import (
    Cluster,
    FlexiblePlacementStrategy,
    Inventory,
    LaunchError,
    NodePlacementStrategy,
    PackedPlacementStrategy,
    PlacementStrategy,
    WorkerGroup,
)
from rankplan.runtime.reserve import reserve
from rankplan.runtime.seats import find_seats
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from runtime_workers import FailsToStart, Reader

NODES = {
    "nodes": [
        {"ranks": 0, "accelerators": 4},
        {"ranks": 1, "accelerator_ids": ["6", "4"]},
        {"ranks": 2},
        {"ranks": 3, "accelerators": 2, "accelerator_type": "NPU"},
    ]
}
ALL = PackedPlacementStrategy(0, 7)
SIX = PackedPlacementStrategy(0, 5)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.simulate(Inventory.from_dict(NODES)) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def nothing_reserved() -> Iterator[None]:
    """Hold that every placement group is gone when the groups of a test are."""
    yield
    assert groups() == []


def groups() -> list[dict[str, Any]]:
    """The placement groups that are there."""
    return [entry for entry in placement_group_table().values() if entry["state"] != "REMOVED"]


@ray.remote(num_gpus=1, num_cpus=2)
class Other:
    """An actor that is not ours."""

    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


def refused(cluster: Cluster, strategy: PlacementStrategy, share: float, name: str = "late") -> LaunchError:
    """Launch what does not fit; it must be said at once, and leave what is there as it is."""
    before, started = len(groups()), time.monotonic()
    with pytest.raises(LaunchError) as caught:
        Reader.create_group().launch(cluster, strategy, name=name, reserve=share)
    assert time.monotonic() - started < 20
    assert len(groups()) == before
    return caught.value


def table(text: str) -> str:
    return dedent(text).strip()


def test_a_reserved_group_has_the_same_rows_and_environment(cluster: Cluster) -> None:
    strategy = FlexiblePlacementStrategy([[0, 1], [2], [2], [4, 5], [6]])
    with (
        Reader.create_group().launch(cluster, strategy, name="plain") as plain,
        Reader.create_group().launch(cluster, strategy, name="reserved", reserve=0.5) as reserved,
    ):
        assert reserved.placements == plain.placements
        assert reserved.environment().wait() == plain.environment().wait()
        assert reserved.at_import().wait() == reserved.environment().wait()
        assert reserved.node_id().wait() == plain.node_id().wait()
        assert [report.accelerators for report in reserved.verify()] == [("0", "1"), ("2",), ("2",), ("6", "4"), ("0",)]


def test_there_is_one_placement_group_a_node_pinned_to_it(cluster: Cluster) -> None:
    with Reader.create_group().launch(cluster, FlexiblePlacementStrategy([[0, 1], [1], [5], [7]]), reserve=0.4):
        found = {next(iter(entry["bundles_to_node_id"].values())): entry for entry in groups()}
        assert all(set(entry["bundles_to_node_id"].values()) == {node} for node, entry in found.items())
        bundles = [list(found[cluster.node_ids[node]]["bundles"].values()) for node in (0, 1, 3)]
    assert len(found) == 3
    assert bundles == [
        [{"GPU": 0.4}, {"GPU": 0.8}, {"CPU": 0.8}],
        [{"GPU": 0.4}, {"CPU": 0.4}],
        [{"NPU": 0.4}, {"CPU": 0.4}],
    ]


def test_two_components_share_accelerators_and_a_third_is_refused(cluster: Cluster) -> None:
    with (
        Reader.create_group().launch(cluster, ALL, name="actor", reserve=0.8),
        Reader.create_group().launch(cluster, ALL, name="rollout", reserve=0.2) as rollout,
    ):
        error = refused(cluster, PackedPlacementStrategy(3, 6), 0.1, "third")
        assert str(error) == table("""
            third cannot reserve its shares (reserve=0.1), so the group is not launched:
              node  resource          needed  present  taken
              0     accelerator 3     0.1     1        0.8 by actor, 0.2 by rollout
              1     accelerators 0-1  0.1     1        0.8 by actor, 0.2 by rollout
              3     accelerator 0     0.1     1        0.8 by actor, 0.2 by rollout
            reserve less, end what holds the rest, place it elsewhere, or launch without reserve
        """)
        assert (error.component, error.rank, error.node) == ("third", 0, 0)
        rollout.shutdown()
        with Reader.create_group().launch(cluster, PackedPlacementStrategy(3, 6), name="third", reserve=0.1) as third:
            assert len(third.verify()) == 4


def test_an_accelerator_that_is_taken_is_refused_although_others_are_free(cluster: Cluster) -> None:
    """Ray counts four accelerators on the node, and would give the one that is meant twice."""
    with Reader.create_group().launch(cluster, PackedPlacementStrategy(1, 1), name="actor", reserve=1):
        error = refused(cluster, PackedPlacementStrategy(0, 1), 0.5)
    assert "0     accelerator 1  0.5     1        1 by actor" in str(error)
    assert (error.rank, error.node) == (0, 0)


def test_two_threads_do_not_both_get_one_accelerator(cluster: Cluster) -> None:
    outcomes: list[WorkerGroup | LaunchError] = []

    def launch(name: str) -> None:
        try:
            outcomes.append(Reader.create_group().launch(cluster, PackedPlacementStrategy(2, 2), name, reserve=0.6))
        except LaunchError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=launch, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    groups = [outcome for outcome in outcomes if isinstance(outcome, WorkerGroup)]
    (error,) = (outcome for outcome in outcomes if isinstance(outcome, LaunchError))
    assert f"accelerator 2  0.6     1        0.6 by {groups[0].component}" in str(error)
    assert len(groups) == 1
    groups[0].shutdown()


def test_what_others_take_from_ray_is_in_the_table(cluster: Cluster) -> None:
    pin = {"ray.io/node-id": cluster.node_ids[0]}
    trainer = placement_group([{"GPU": 2}, {"CPU": 100}], name="trainer", bundle_label_selector=[pin, pin])
    other = Other.options(label_selector=pin).remote()
    assert ray.get(other.node.remote()) == cluster.node_ids[0]
    try:
        accelerators = refused(cluster, PackedPlacementStrategy(0, 3), 1.0)
        cpus = refused(cluster, NodePlacementStrategy([0] * 54), 0.5)
    finally:
        remove_placement_group(trainer)
        ray.kill(other)
    assert "0     GPU       4       4        2 by placement group trainer, 1 by others" in str(accelerators)
    assert "0     CPU       27      128      100 by placement group trainer, 2 by others" in str(cpus)
    assert str(accelerators).count("\n") == str(cpus).count("\n") == 3, "what is not short is not in the table"


def test_a_component_alone_can_be_too_much(cluster: Cluster) -> None:
    error = refused(cluster, NodePlacementStrategy([2, *[1] * 200]), 1.0, "agent")
    assert str(error) == table("""
        agent cannot reserve its shares (reserve=1), so the group is not launched:
          node  resource  needed  present  taken
          1     CPU       200     128      0
        reserve less, end what holds the rest, place it elsewhere, or launch without reserve
    """)
    assert (error.rank, error.node) == (0, 1)


def test_processes_that_share_an_accelerator_share_it_evenly(cluster: Cluster) -> None:
    strategy = FlexiblePlacementStrategy([[0], [1], [1], [1]])
    error = refused(cluster, strategy, 0.5)
    assert str(error) == (
        "late: 3 processes share accelerator 1 of node 0, and each is to reserve 0.5 of it (reserve); use 0.3333 or "
        "less, or give each process an accelerator of its own"
    )
    assert (error.rank, error.node) == (1, 0)
    with Reader.create_group().launch(cluster, strategy, reserve=0.3333) as group:
        assert len(group.verify()) == 4


@pytest.mark.parametrize("shares", [(0.2, 0.8), (0.5, 0.3, 0.2), (0.2, 0.4, 0.4), (0.0001, 0.9999)])
def test_shares_may_come_in_any_order(cluster: Cluster, shares: tuple[float, ...]) -> None:
    """Left alone, Ray puts four shares of 0.2 on one accelerator, and none is left for a fourth of 0.8."""
    four = PackedPlacementStrategy(0, 3)
    with ExitStack() as stack:
        for share in shares:
            group = Reader.create_group().launch(cluster, four, name=f"takes {share}", reserve=share)
            assert len(stack.enter_context(group).verify()) == 4


def test_shares_are_kept_apart_right_after_others_were_given_back(cluster: Cluster) -> None:
    """What is not in Ray's view yet it tries again after a second: too late to keep shares apart."""
    seats = find_seats(cluster, cluster.inventory, "actor", list(ALL.get_placement(cluster)))
    for _ in range(5):
        with ExitStack() as stack:
            for share in (0.9, 0.2, 0.8):
                held = reserve(cluster, "actor", seats, share)
                held.release() if share == 0.9 else stack.callback(held.release)


def test_shares_of_several_components_leave_whole_accelerators(cluster: Cluster) -> None:
    with ExitStack() as stack:
        for share in (0.3, 0.7):
            for index in range(3):
                rows = PackedPlacementStrategy(index, index)
                stack.enter_context(Reader.create_group().launch(cluster, rows, f"{share} {index}", reserve=share))
        whole = Reader.create_group().launch(cluster, PackedPlacementStrategy(3, 3), name="whole", reserve=1.0)
        assert len(stack.enter_context(whole).verify()) == 1


def test_what_is_free_in_pieces_is_not_blamed_on_others(cluster: Cluster) -> None:
    pin = {"ray.io/node-id": cluster.node_ids[0]}
    small = placement_group([{"GPU": 0.2}] * 4, name="small", bundle_label_selector=[pin] * 4)
    assert small.wait(60)
    try:
        error = refused(cluster, PackedPlacementStrategy(0, 3), 0.8, "actor")
    finally:
        remove_placement_group(small)
    assert "0     all                        enough is free, but in pieces" in str(error)


def test_where_others_leave_no_room_to_fill_nothing_is_in_the_way(cluster: Cluster) -> None:
    """Exact halves on node 0 are kept apart by what is larger than a half, and what would fill node 1 does not fit."""
    pin = {"ray.io/node-id": cluster.node_ids[1]}
    trainer = placement_group([{"GPU": 0.5}], name="trainer", bundle_label_selector=[pin])
    assert trainer.wait(60)
    try:
        rows = FlexiblePlacementStrategy([[0], [0], [1], [1], [4], [5]])
        with Reader.create_group().launch(cluster, rows, reserve=0.25) as group:
            assert group.world_size == 6
    finally:
        remove_placement_group(trainer)


def test_what_was_shut_down_can_be_reserved_at_once(cluster: Cluster) -> None:
    for _ in range(3):
        with Reader.create_group().launch(cluster, SIX, reserve=1.0) as group:
            group.shutdown()


def test_what_others_give_back_meanwhile_can_be_reserved(cluster: Cluster) -> None:
    other = Other.options(label_selector={"ray.io/node-id": cluster.node_ids[0]}).remote()
    assert ray.get(other.node.remote()) == cluster.node_ids[0]
    end = threading.Timer(2.0, ray.kill, [other])
    end.start()
    with Reader.create_group().launch(cluster, PackedPlacementStrategy(0, 3), reserve=1.0) as group:
        end.join()
        assert len(group.verify()) == 4


def test_a_launch_that_fails_gives_back_what_it_reserved(cluster: Cluster) -> None:
    with pytest.raises(LaunchError, match="no weights for rank 2"):
        FailsToStart.create_group("raise", 2).launch(cluster, SIX, reserve=1.0)
    assert groups() == []


@pytest.mark.parametrize("share", [0, -1, 1.5, 2, 0.00001, 0.12345, float("nan"), True, "1", [1]])
def test_what_is_no_share_is_refused(cluster: Cluster, share: Any) -> None:
    with pytest.raises(ValueError, match=r"^reserve is .*; it must be a share of an accelerator from 0.0001 to 1"):
        Reader.create_group().launch(cluster, SIX, reserve=share)

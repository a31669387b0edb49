"""What `rankplan pin` sees of a run in the tables and claims of a head, without a cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from rankplan import Inventory, Plan, Request, plan
from rankplan.runtime.live.binding import Binding
from rankplan.runtime.live.watch import Watch
from rankplan.runtime.nodes.nodes import Nodes
from rankplan.runtime.ray import timeouts
from rankplan_hook.names import METADATA
from support.claims import pins_of
from support.configs import from_overrides
from support.live_tables import MINE, Cluster

FIRST, SECOND = "10.0.0.9", "10.0.0.10"


class Head:
    """The tables and the key-value store of a head."""

    address = "10.0.0.1:6379"

    def __init__(self, found: Cluster, claims: dict[str, Any]) -> None:
        self._found, self._claims = found, claims

    def tables(self) -> Any:
        return self._found.tables()

    def values(self, prefix: str) -> dict[str, bytes]:
        return {f"{prefix}claim/{key}": json.dumps(value).encode() for key, value in self._claims.items()}


def pinned(
    found: Cluster,
    requests: list[Request],
    claims: dict[str, Any],
    *,
    strict: bool = False,
    head: type[Head] = Head,
    only: str | None = None,
) -> Watch:
    """A run of a plan of eight ranks, or ``only`` of one component, with these requests, which has been looked at."""
    content = [{"ranks": rank, "ip": address, "accelerators": 4} for rank, address in enumerate((SECOND, FIRST))]
    config = from_overrides(["trainer.nnodes=2", "trainer.n_gpus_per_node=4", "algorithm.adv_estimator=grpo"])
    named = plan(config, Inventory.from_dict({"nodes": content}))
    components = named.values() if only is None else [named[only]]
    planned = Plan(named.inventory, components, named.mode, named.dialect, requests)
    nodes = Nodes((found.ids[SECOND], found.ids[FIRST]), planned.inventory)
    binding = Binding("run", planned, nodes, pins_of(requests), {})
    watch = Watch(binding, head(found, claims), lambda told: None, 600.0, strict=strict)  # type: ignore[arg-type]
    watch.look()
    return watch


def test_a_group_that_came_again_is_where_its_claim_says() -> None:
    """Groups of equal size without names: the first one was removed, and asked for again after the second."""
    found = Cluster([(SECOND, 4), (FIRST, 4)])
    claims: dict[str, Any] = {"0/0": {"job": MINE, "group": "ff" * 18}}
    for key, address in (("1/0", FIRST), ("0/1", SECOND)):
        group = found.group([address] * 4, [1] * 4)
        claims[key] = {"job": MINE, "group": group}
        for bundle in range(4):
            found.actor(address, [bundle], group=group, bundle=bundle)
    watch = pinned(found, [Request("actor", None, (1,) * 4, (node,) * 4) for node in range(2)], claims)
    live = watch.seen.live
    assert live is not None and live.compared is not None
    assert live.compared.on_nodes == live.compared.ranks > 0
    assert watch.seen.faults == {}


@pytest.mark.parametrize("swapped", [False, True])
def test_an_actor_without_a_group_belongs_to_the_place_that_it_claimed(swapped: bool) -> None:
    found = Cluster([(SECOND, 4), (FIRST, 4)])
    for address in (FIRST, SECOND) if swapped else (SECOND, FIRST):
        found.actor(address, range(4))
    claims = {f"0.{entry}/0": {"job": MINE, "actor": f"{entry:032x}"} for entry in range(2)}
    watch = pinned(found, [Request("actor", None, (4, 4), (0, 1), None)], claims)
    assert bool(watch.seen.faults) is swapped
    assert {fault.code for fault in watch.seen.faults.values()} <= {"wrong-place"}


@pytest.mark.parametrize("strict", [False, True])
def test_other_accelerators_than_planned_are_a_fault_if_they_must_not_be(strict: bool) -> None:
    found = Cluster([(SECOND, 4), (FIRST, 4)])
    claims: dict[str, Any] = {}
    for number, address in enumerate((SECOND, FIRST)):
        group = found.group([address] * 4, [1] * 4)
        claims[f"{number}/0"] = {"job": MINE, "group": group}
        for bundle in range(4):
            found.actor(address, [3 - bundle if number else bundle], group=group, bundle=bundle)
    requests = [Request("actor", None, (1,) * 4, (node,) * 4) for node in range(2)]
    watch = pinned(found, requests, claims, strict=strict)
    live = watch.seen.live
    assert live is not None and live.compared is not None
    assert live.compared.on_nodes == live.compared.ranks > live.compared.on_accelerators
    assert [fault.code for fault in watch.seen.faults.values()] == ["wrong-place"] * len(live.differences) * strict
    if strict:
        (first, *_) = watch.seen.faults.values()
        assert first.message == f"actor ranks 4-7: planned node 1 ({FIRST}): 0-3, found node 1 ({FIRST}): 3,2,1,0"


class Ended(Head):
    """The head after the job of a run has ended: Ray has removed its groups."""

    def tables(self) -> Any:
        before = super().tables()
        jobs = [replace(job, ended=True, metadata={METADATA: "run"}) for job in before.jobs if job.job_id == MINE]
        return replace(before, groups=(), jobs=tuple(jobs))

    def groups(self) -> Any:
        return super().tables().groups

    def actor_ids(self, job_id: str) -> list[str]:
        return [actor.actor_id for actor in super().tables().actors if actor.job_id == job_id]


@pytest.mark.parametrize("hooked", [False, True])
def test_a_group_without_the_hook_is_told_though_it_was_gone_before_the_next_look(hooked: bool) -> None:
    found = Cluster([(SECOND, 4), (FIRST, 4)])
    group = found.group([SECOND] * 4, [1] * 4, name="first")
    claims = {"0/0": {"job": MINE, "group": group}} if hooked else {}
    requests = [Request("actor", None, (1,) * 4, (node,) * 4) for node in range(2)]
    watch = pinned(found, requests, claims, head=Ended)
    assert watch.finish(0)
    (fault,) = watch.seen.faults.values()
    expected = (
        "the command did not ask for actor 4 bundles of 1",
        "placement group `first` was created without the hook",
    )
    assert fault.message == expected[not hooked]


def test_a_claim_counts_once_ray_has_its_group_or_its_actor() -> None:
    """A process may end between a claim and its request, and Ray may never have heard of it."""
    found = Cluster([(SECOND, 4), (FIRST, 4)])
    claims: dict[str, Any] = {"0/0": {"job": MINE, "group": "ff" * 18}, "1/0": {"job": MINE}}
    requests = [Request("actor", None, (1,) * 4, (node,) * 4) for node in range(2)]
    watch = pinned(found, requests, claims, head=Ended)
    assert watch.finish(0) and watch.pinned == (0, 2)
    claims["0/0"]["group"] = found.group([SECOND] * 4, [1] * 4)
    assert watch.finish(0) and watch.pinned == (1, 2)
    assert watch.seen.faults == {}, "both have come"


def test_a_look_at_ending_actors_does_not_replace_one_at_all_of_them() -> None:
    """Engines of two bundles: one whose second actor has ended is up, but its accelerators are not told any more."""

    def tables(*ended: int) -> Cluster:
        found = Cluster([(SECOND, 4), (FIRST, 4)])
        for number, address in enumerate((SECOND, FIRST)):
            group = found.group([address] * 4, [1] * 4)
            for bundle in range(4):
                if 4 * number + bundle not in ended:
                    found.actor(address, [bundle], group=group, bundle=bundle)
        return found

    first = tables()
    claims = {f"{number}/0": {"job": MINE, "group": group.group_id} for number, group in enumerate(first._groups)}
    requests = [Request("rollout", None, (1,) * 4, (node,) * 4) for node in range(2)]
    watch = pinned(first, requests, claims, only="rollout")
    for ended in ([1], [1, 3], [1, 3, 5, 7], list(range(8))):
        watch._head._found = tables(*ended)  # type: ignore[attr-defined]
        watch.look()
        live = watch.seen.live
        assert live is not None and live.compared is not None
        assert live.compared.on_accelerators == live.compared.ranks == 4 and live.differences == ()
    live = pinned(tables(1, 3), requests, claims, only="rollout").seen.live
    assert live is not None and live.compared is not None and live.differences == ()
    counts = live.compared
    assert (counts.up, counts.on_nodes, counts.on_accelerators, counts.untold) == (4, 4, 2, 2)


@pytest.mark.parametrize("in_time", [True, False])
def test_the_report_waits_for_what_is_free_on_the_nodes(monkeypatch: pytest.MonkeyPatch, in_time: bool) -> None:
    """The actor of an engine holds one of its two bundles; the other accelerator is told once nothing else is free."""
    found = Cluster([(SECOND, 4), (FIRST, 4)])
    claims: dict[str, Any] = {}
    for number, address in enumerate((SECOND, FIRST)):
        claims[f"{number}/0"] = {"job": MINE, "group": (group := found.group([address] * 4, [1] * 4))}
        for bundle in (0, 2, 3) if number else range(4):
            found.actor(address, [bundle], group=group, bundle=bundle)
    found.task(FIRST, -1.0)
    requests = [Request("rollout", None, (1,) * 4, (node,) * 4) for node in range(2)]
    watch = pinned(found, requests, claims, only="rollout")
    reported = []
    monkeypatch.setattr(watch, "_up", lambda: reported.append(watch.seen.live))
    watch.look()
    assert watch.seen.live is not None and watch.seen.seconds is not None and not reported
    if in_time:
        found.task(FIRST, 1.0)
    else:
        monkeypatch.setattr(timeouts, "FREE", 0.0)
    for _ in range(2):
        watch.look()
    (live,) = reported
    assert live is not None and live.compared is not None and live.compared.ranks == 4
    assert live.compared.untold == int(not in_time)


def test_ranks_that_do_not_come_up_in_time_are_in_the_report() -> None:
    found = Cluster([(SECOND, 4), (FIRST, 4)])
    claims = {}
    for number, address in enumerate((SECOND, FIRST)):
        claims[f"{number}/0"] = {"job": MINE, "group": found.group([address] * 4, [1] * 4)}
    for bundle in range(3):
        found.actor(SECOND, [bundle], group=claims["0/0"]["group"], bundle=bundle)
    watch = pinned(found, [Request("actor", None, (1,) * 4, (node,) * 4) for node in range(2)], claims, only="actor")
    assert watch.seen.live is None and watch.seen.partial is None
    watch._timeout = 0.0
    watch.look()
    partial = watch.seen.partial
    assert watch.seen.live is None and partial is not None and partial.compared is not None
    assert (partial.compared.up, partial.compared.ranks) == (3, 8)
    assert [(one.kind, str(one.ranks)) for one in partial.differences] == [("not-running", "3"), ("not-running", "4-7")]

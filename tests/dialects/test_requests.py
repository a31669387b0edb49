"""What trainers ask Ray for, against recorded runs of their own code; and plans in whole steps, to bind them to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from math import lcm
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError, Plan, Request, plan, requests
from rankplan._core import Free, RankSet, Short, Taken
from support.configs import from_overrides, nodes
from support.goldens import lines
from support.oracle_packing import fits, pieces
from support.recorded_trainers import cluster, config, in_order

LINES = lines("trainer_requests")
QUESTIONS = list({(line["trainer"], str(line["question"])): line for line in LINES}.values())
STEPPED = [line for line in LINES if line["trainer"] in ("openrlhf", "skyrl", "slime", "areal")]


def ids(found: Sequence[dict[str, Any]]) -> list[str]:
    return [line["id"] for line in found]


def bundles(asked: dict[str, Any]) -> list[int]:
    return [int(bundle["GPU"]) for bundle in each_bundle(asked)]


def each_bundle(asked: dict[str, Any]) -> list[dict[str, float]]:
    return [bundle for times, bundle in asked["bundles"] for _ in range(times)]


def agrees(line: dict[str, Any], found: Sequence[Request], *, cpus: bool = True) -> None:
    """Compare sizes, CPUs, names and order with what the trainer asked for.

    An unfinished run asked for the first of them. ``cpus``: those of the nodes are known, of which ROLL takes half.
    """
    recorded = line["alone"]["requests"]
    certain = [one for one in found if not one.optional]
    if line["trainer"] == "areal":
        # The recording asks for the rollout first; `PPOTrainer.__init__` starts it last.
        certain.sort(key=lambda one: one.component != "rollout")
        if line["question"]["ref"]:
            named_last = [one for one in certain if one.component == "ref"]
            certain = [one for one in certain if one.component != "ref"] + named_last
    assert len(certain) == len(recorded) or "error" in line["alone"]
    for mine, theirs in zip(certain, recorded, strict=False):
        assert list(mine.accelerators) == bundles(theirs)
        assert mine.strategy == theirs["strategy"]
        assert re.fullmatch(mine.name, theirs["name"]) if mine.name is not None else not theirs["name"]
        assert len(mine.nodes) == len(mine.accelerators)
        if line["trainer"] != "areal":  # the recording states a CPU for each worker
            assert list(mine.cpus) in ([one["CPU"] for one in each_bundle(theirs)], [None] * len(mine.cpus))
            assert (mine.cpus[0] is None) == (line["trainer"] == "roll" and not cpus)


@pytest.mark.parametrize("line", QUESTIONS, ids=ids(QUESTIONS))
def test_a_trainer_asks_for_what_was_recorded(line: dict[str, Any], tmp_path: Path) -> None:
    agrees(line, requests(config(line, tmp_path), dialect=line["trainer"]), cpus=False)


def places(found: Plan) -> dict[str, list[list[list[Any]]]]:
    """The address and the GPU of each accelerator of each process."""
    ips = {rank: spec.ip for ranks, spec in found.inventory.stretches() for rank in ranks}
    return {name: [[[ips[node], gpu] for node, gpu in row.devices] for row in one] for name, one in found.items()}


@pytest.mark.parametrize("line", LINES, ids=ids(LINES))
def test_accelerators_of_other_jobs_are_skipped(line: dict[str, Any], tmp_path: Path) -> None:
    """The plan is the recorded one, which was made without them, and its requests are on its nodes.

    ROLL numbers accelerators, and skips those of other jobs only in a pinned plan.
    """
    inventory = cluster(line)
    order = line.get("order")
    inventory = in_order(inventory, order if order == "text" else "number")
    asked: dict[str, Any] = {"dialect": line["trainer"], "pinned": line["trainer"] == "roll"}
    if "plan_in_order" not in line:
        with pytest.raises(PlacementError):
            plan(config(line, tmp_path), inventory, **asked)
        return
    found = plan(config(line, tmp_path), inventory, **asked)
    agrees(line, found.requests)
    if order != "id":
        theirs = line["plan_in_order"]
        mine = places(found)
        assert {name: mine[name] for name in theirs} == theirs
        ips = {rank: spec.ip for ranks, spec in found.inventory.stretches() for rank in ranks}
        certain = [one for one in found.requests if not one.optional]
        on = sorted([ips[node] for node in one.nodes] for one in certain)
        assert on == sorted(one["nodes"] for one in line["groups"])


def torn_groups(found: Plan) -> dict[str, int]:
    """The number of tensor groups and engine processes of each component that are on several nodes."""
    count: dict[str, int] = {}
    for name, one in found.items():
        owners = [node for row in one for node, _ in row.devices]
        size = max(one.parallel.tp, len(one[0].devices))
        groups = [owners[start : start + size] for start in range(0, len(owners), size)]
        count[name] = sum(len({*group}) > 1 for group in groups)
    return count


UNEVEN_ENGINE = "slime-14-other-jobs"
"""The trainer runs, but no node has as many accelerators left as a process of its engine."""


@pytest.mark.parametrize("line", STEPPED, ids=ids(STEPPED))
def test_whole_steps_tear_nothing_that_fits(line: dict[str, Any], tmp_path: Path) -> None:
    """A plan is refused where the trainer's code fails. Whole steps may fit where other sizes do not."""
    found: dict[bool, Plan] = {}
    for pinned in (False, True):
        with suppress(PlacementError):
            found[pinned] = plan(config(line, tmp_path), cluster(line), dialect=line["trainer"], pinned=pinned)
    assert (False in found) == ("plan_in_order" in line)
    assert (True in found) == ("error" not in line["alone"] and line["id"] != UNEVEN_ENGINE)
    if "aligned" in line:
        assert not any(torn for torn, _ in line["aligned_torn"].values())
        assert not any(torn_groups(found[True]).values())
    if True in found:
        agrees(line, found[True].requests)
    if True in found and False in found:
        assert sum(torn_groups(found[True]).values()) <= sum(torn_groups(found[False]).values())


POWERS = st.sampled_from([1, 2, 4, 8])


def engines_before_an_actor(trainer: str, engines: list[int], groups: list[int]) -> Any:
    """A config of a trainer with engines of these sizes, all equal, and a model with these tensor groups, likewise."""
    tensor, size = engines[0], groups[0]
    if trainer == "areal":
        rollout = {"backend": f"sglang:d{len(engines)}t{tensor}"}
        return {"rollout": rollout, "actor": {"backend": f"megatron:d{len(groups)}t{size}"}}
    if trainer == "skyrl":
        placement = {"colocate_all": False, "policy_num_nodes": len(groups), "policy_num_gpus_per_node": size}
        inference = {"num_engines": len(engines), "tensor_parallel_size": tensor}
        trained = {"placement": placement, "algorithm": {"use_kl_loss": False}}
        return {"trainer": trained, "generator": {"inference_engine": inference}}
    return {
        "actor": {"num_nodes": len(groups), "num_gpus_per_node": size},
        "ds": {"tensor_parallel_size": size},
        "vllm": {"num_engines": len(engines), "tensor_parallel_size": tensor},
        "algo": {"kl": {"init_coef": 0}, "advantage": {"estimator": "rloo"}},
        "reward": {"remote_url": "http://rewards:5000"},
    }


@given(
    st.sampled_from(["areal", "openrlhf", "skyrl"]),
    st.lists(POWERS, min_size=2, max_size=2),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.lists(st.integers(0, 1), min_size=4, max_size=4),
)
@example("areal", [1, 4], [1], [0], [0, 0, 0, 0])
@example("openrlhf", [1, 4], [1], [0], [0, 0, 0, 0])
@example("skyrl", [1, 4], [1], [0], [0, 0, 0, 0])
def test_pools_with_small_steps_leave_room_for_larger_ones(
    trainer: str, sizes: list[int], engines_on: list[int], groups_on: list[int], spare: list[int]
) -> None:
    """Nodes on which all engines and groups fit, each on one node; engines take their accelerators first."""
    rooms = list(spare)
    for node in engines_on:
        rooms[node] += sizes[0]
    for node in groups_on:
        rooms[node] += sizes[1]
    engines, groups = [sizes[0]] * len(engines_on), [sizes[1]] * len(groups_on)
    found = plan(engines_before_an_actor(trainer, engines, groups), nodes(rooms), dialect=trainer, pinned=True)
    assert not any(torn_groups(found).values())


COUNTS = st.lists(st.integers(0, 6), min_size=1, max_size=5)
SIZES = st.sets(st.integers(1, 6), max_size=3)


def without(counts: list[int], data: st.DataObject) -> tuple[Inventory, list[list[int]]]:
    """Uneven nodes with some accelerators left out, and the resource ranks that are left on each."""
    starts = [sum(counts[:node]) for node in range(len(counts))]
    all_ = [(node, index) for node, count in enumerate(counts) for index in range(count)]
    lost = data.draw(st.sets(st.sampled_from(all_))) if all_ else set()
    inventory = nodes(counts).without([f"node-{node}/{index}" for node, index in lost])
    left = [
        [starts[node] + index for index in range(count) if (node, index) not in lost]
        for node, count in enumerate(counts)
    ]
    return inventory, left


@given(COUNTS, SIZES, st.lists(st.integers(1, 12), min_size=1, max_size=3), st.booleans(), st.data())
def test_pools_take_whole_steps_and_skip_what_is_left_out(
    counts: list[int], sizes: set[int], wanted: list[int], ascending: bool, data: st.DataObject
) -> None:
    inventory, left = without(counts, data)
    free = Free(inventory.core, inventory.excluded_accelerators)
    for count in wanted:
        rooms = [len(ranks) for ranks in left]
        found = free.in_steps(count, list(sizes), ascending=ascending)
        assert isinstance(found, Short) == (sum(rooms) < count)
        if isinstance(found, Short):
            continue
        taken = [rank for first, last in found.ranges for rank in range(first, last + 1)]
        owner = {rank: node for node, ranks in enumerate(left) for rank in ranks}
        on = [owner[rank] for rank in taken]  # a KeyError: left out, or taken before
        assert len({*taken}) == count
        assert not ascending or on == sorted(on)
        seen = dict.fromkeys(on)
        assert on == [node for node in seen for _ in range(on.count(node))], "engines are grouped by node"
        if count <= max(rooms):
            assert len(seen) == 1
        tried = sorted({size for size in sizes if size > 1} | {lcm(*sizes)}, reverse=True)
        largest = next((size for size in tried if fits(rooms, pieces(count, size))), 1)
        steps = [on[start : start + largest] for start in range(0, count, largest)]
        assert all(len({*step}) == 1 for step in steps), "whole steps of this size fit"
        left = [[rank for rank in ranks if rank not in taken] for ranks in left]


@given(COUNTS, st.lists(st.integers(1, 4), max_size=4))
def test_steps_are_found_in_order_if_there_are_any(rooms: list[int], steps: list[int]) -> None:
    core = nodes(rooms).core
    found = Free(core, RankSet()).in_lists(sum(steps), [[(1, step) for step in steps]])
    possible = fits(rooms, steps)
    assert not possible or isinstance(found, Taken)
    if possible and isinstance(found, Taken):
        starts = [sum(steps[:index]) for index in range(len(steps))]
        on = [{*found.slice(start, start + step).nodes(core)} for start, step in zip(starts, steps, strict=True)]
        assert all(len(several) == 1 for several in on)
        order = [node for several in on for node in several]
        assert order == sorted(order)
    elif isinstance(found, Taken):
        assert found == Free(core, RankSet()).next(sum(steps))


WORDS = ["trainer.nnodes=2", "trainer.n_gpus_per_node=2", "algorithm.adv_estimator=grpo"]


def test_a_pinned_plan_has_nodes_in_the_order_of_its_trainer() -> None:
    entries = [{"ranks": rank, "ip": ip, "accelerators": 2} for rank, ip in enumerate(("10.0.0.9", "10.0.0.10"))]
    inventory = Inventory.from_dict({"nodes": entries})
    text, given_ = ["10.0.0.10", "10.0.0.9"], ["10.0.0.9", "10.0.0.10"]
    slime = {"actor_num_nodes": 1, "actor_num_gpus_per_node": 4, "colocate": True}
    for content, order in ((from_overrides(WORDS), text), (slime, given_)):
        for pinned, expected in ((False, given_), (True, order)):
            found = plan(content, inventory, pinned=pinned)
            assert [found.inventory.node(rank).ip for rank in range(2)] == expected


def test_a_note_names_the_first_group_of_a_pinned_plan_that_is_on_several_nodes(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (path := tmp_path / "train.sh").write_text(
        "python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1 --actor.num_gpus_per_node 4"
        " --ds.tensor_parallel_size 2 --algo.kl.init_coef 0 --algo.advantage.estimator rloo"
        " --reward.remote_url http://rewards:5000\n"
    )
    for nodes_, notes in (([2, 2], []), ([3, 1], ["tensor group 1 (ranks 2-3) spans nodes 0-1"])):
        caplog.clear()
        plan(path, nodes(nodes_), pinned=True)
        spans = [one.getMessage() for one in caplog.records if "group-spans" in one.getMessage()]
        assert [one.split("actor: ")[1] for one in spans] == notes
        plan(path, nodes(nodes_))
        assert len(caplog.records) == len(notes)


def test_rlinf_and_drafts_ask_for_nothing() -> None:
    config = {"cluster": {"num_nodes": 1, "component_placement": {"actor": "0-3"}}}
    assert requests(config, "1x4") == requests(config, "1x4", pinned=True) == ()


def test_a_saved_plan_knows_its_requests(tmp_path: Path) -> None:
    found = plan(from_overrides(WORDS), "2x2")
    names = ["global_poolverl_group_2_2:0", "global_poolverl_group_2_2:1"]
    assert found.dialect == "verl" and [one.name for one in found.requests] == names
    found.save(path := tmp_path / "plan.json")
    assert requests(path) == found.requests == requests(found)
    with pytest.raises(ValueError, match="pinned and model apply to configs"):
        plan(path, pinned=True)
    content = found.to_dict()
    del content["dialect"], content["requests"]
    assert Plan.from_dict(content).requests == ()


@pytest.mark.parametrize(
    ("bundles", "message"),
    [
        ([[1, 1, 2]], "a bundle is on node 2, but the plan has 2"),
        ([[1, 1, None]], "a bundle has no node"),
        ([], "requests[0].bundles"),
        ([[0, 1, 0]], "requests[0].bundles"),
    ],
)
def test_damaged_requests_are_refused(bundles: Any, message: str) -> None:
    content = plan(from_overrides(WORDS), "2x2").to_dict() | {"rankplan": 2}
    content["requests"] = [{"component": "actor", "bundles": bundles}]
    with pytest.raises(PlacementError) as caught:
        Plan.from_dict(content)
    assert caught.value.code == "invalid-plan" and message in caught.value.render()


def test_a_request_whose_name_is_no_pattern_is_refused() -> None:
    content = plan(from_overrides(WORDS), "2x2").to_dict()
    content["requests"][0].pop("names")
    content["requests"][0]["name"] = "a(b"
    with pytest.raises(PlacementError, match=r"requests\[0\].name: `name` is 'a\(b', which is no regular expression"):
        Plan.from_dict(content)

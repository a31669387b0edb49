"""What the tables of a head say of accelerators, and what differs from a plan, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, Plan, RankSet, plan
from rankplan.cli import main
from rankplan.cli.output import table_lines
from rankplan.runtime.live.compare import compare
from rankplan.runtime.live.devices import entered
from rankplan.runtime.live.picture import drawn
from rankplan.runtime.live.report import actor_table, live_lines, plain
from rankplan.runtime.nodes.probe import Process
from rankplan.runtime.ray.tables import NodeEntry
from rankplan.runtime.usage.look import look, short
from rankplan.runtime.usage.model import Live
from support.configs import from_overrides
from support.live_tables import MINE, OTHER, Cluster
from support.outcomes import some

HEAD, FIRST, SECOND, THIRD = "10.0.0.1", "10.0.0.9", "10.0.0.10", "10.0.0.12"
VERL = ["trainer.nnodes=2", "trainer.n_gpus_per_node=4", "algorithm.adv_estimator=grpo"]
TENSOR = "actor_rollout_ref.rollout.tensor_model_parallel_size=2"


def nodes(*addresses: str, count: int = 4) -> Cluster:
    return Cluster([(HEAD, 0), *((address, count) for address in addresses)])


def verl(*addresses: str) -> Plan:
    """The plan on these nodes, as saved: in this order."""
    content = [{"ranks": rank, "ip": address, "accelerators": 4} for rank, address in enumerate(addresses)]
    return plan(from_overrides([*VERL, TENSOR]), Inventory.from_dict({"nodes": content}))


def pools(found: Cluster, *addresses: str, actors: int = 4) -> None:
    """Ask for the groups of `verl`, and start actors in the first bundles of each."""
    for number, address in enumerate(addresses):
        name = f"global_poolverl_group_4_4:{number}"
        group = found.group([address] * 4, [1] * 4, name=name, strategy="STRICT_PACK")
        for bundle in range(actors):
            found.actor(address, [bundle], group=group, bundle=bundle, class_name="WorkerDict")


def seen(found: Cluster, planned: Plan | None = None) -> Live:
    live = look(found.tables(), "10.0.0.1:6379", None if planned is None else planned.inventory)
    return live if planned is None else compare(live, planned, "plan.json")


def table(live: Live, **options: Any) -> list[list[str]]:
    return [line.split() for line in table_lines(actor_table(live, **options))[1:]]


def differences(live: Live) -> list[str]:
    lines = live_lines(live)
    return lines[next(at for at, line in enumerate(lines) if line.startswith("differs")) :]


def test_nodes_are_in_the_order_of_addresses_or_of_the_plan() -> None:
    found = nodes(SECOND, FIRST)
    assert [node.spec.ip for node in seen(found).nodes] == [HEAD, FIRST, SECOND]
    live = seen(found, verl(SECOND, FIRST))
    assert [(node.rank, node.spec.ip) for node in live.nodes] == [(0, SECOND), (1, FIRST), (2, HEAD)]
    missing = seen(nodes(SECOND), verl(SECOND, FIRST))
    assert [(node.rank, node.spec.ip) for node in missing.nodes] == [(0, SECOND), (2, HEAD)]


def test_a_node_that_has_left_is_not_shown_and_contradictory_ranks_are_ignored() -> None:
    found = nodes(FIRST)
    labels = {"rankplan.io/node-rank": "5"}
    found._nodes.append(NodeEntry("ff", SECOND, "gone", False, {}, {}))
    found._nodes.append(NodeEntry("ee", THIRD, "late", True, {"GPU": 2}, labels))
    assert [node.spec.ip for node in seen(found).nodes] == [HEAD, FIRST, THIRD]


@pytest.mark.parametrize(("job", "text"), [("02000000", "02"), ("00010000", "0001"), ("00000000", "00")])
def test_jobs_have_short_numbers(job: str, text: str) -> None:
    assert short(job) == text


def test_actors_show_what_they_hold_or_could_use() -> None:
    found = nodes(FIRST, count=8)
    group = found.group([FIRST], [8])
    found.actor(FIRST, {0: 0.01}, group=group, bundle=0, class_name="RollWorker")
    found.actor(FIRST, group=group, bundle=0, class_name="Server")
    live = seen(found)
    assert [(actor.reserved, actor.accelerators) for actor in live.actors] == [(False, RankSet("0-7"))] * 2
    assert {row[2] for row in table(live)} == {"(#0-7)"}
    assert not live.idle


def test_a_bundle_whose_accelerators_ray_hides_has_a_question_mark() -> None:
    found = nodes(FIRST, count=8)
    group = found.group([FIRST], [4])
    found.actor(FIRST, group=group, bundle=0, class_name="Server")
    live = seen(found)
    assert live.actors[0].accelerators is None and live.hidden() == {1: 4.0}
    assert table(live)[0][2] == "(?)"


def test_idle_accelerators_name_their_bundles_and_tasks() -> None:
    found = nodes(FIRST, SECOND, THIRD)
    pools(found, FIRST, actors=2)
    found.actor(SECOND, [1])
    found.task(SECOND, 1.0)
    live = seen(found)
    lines = "\n".join(live_lines(live))
    assert "node 1: #2-3 (held by bundles 2-3 of global_poolverl_group_4_4:0, no actor)" in lines
    assert "node 2: #0,2-3 (1 held by tasks)" in lines
    assert "node 3: #0-3" in lines
    assert live.hidden() == {1: 2.0, 2: 1.0} and live.hidden(but=MINE[:2]) == {2: 1.0}
    assert live.node[2].free == 2.0 and live.node[2].untold == 1.0


def test_the_last_open_bundle_of_a_full_node_has_what_is_left() -> None:
    found = nodes(FIRST)
    pools(found, FIRST, actors=3)
    assert seen(found).groups[0].held == tuple(map(RankSet, ("0", "1", "2", "3")))


def test_an_accelerator_of_two_jobs_is_doubled_and_shares_of_one_job_are_not() -> None:
    found = nodes(FIRST)
    found.actor(FIRST, {0: 0.5}, class_name="Mine")
    found.actor(FIRST, {0: 0.4}, class_name="Mine")
    assert not seen(found).doubled
    found.actor(FIRST, {0: 0.1}, job=OTHER, class_name="Theirs")
    (one,) = seen(found).doubled
    assert (one.node, one.accelerator) == (1, 0)
    assert "  node 1: #0 is used by Mine (job 02, pid 1000), Mine (job 02, pid 1001), Theirs (job 09, pid 1002)" in (
        live_lines(seen(found))
    )


def test_groups_that_ray_cannot_place_wait() -> None:
    found = nodes(FIRST)
    found.group([None, None], [8, 8], name="large", state="PENDING", scheduling="INFEASIBLE")
    found.group([None], [1], state="PENDING", scheduling="QUEUED")
    live = seen(found)
    assert [group.name for group in live.waiting] == ["large"]
    assert "waits: large (job 02, PENDING, 2 bundles of 8): no node has the resources at all" in live_lines(live)
    found.actor(None, wants=2.0, class_name="Waiting")
    assert table(seen(found))[0] == ["-", "-", "-", "02", "-", "Waiting", "-", "PENDING_CREATION", "-"]


def test_a_plan_that_is_kept_has_no_differences() -> None:
    found = nodes(FIRST, SECOND)
    pools(found, SECOND, FIRST)
    live = seen(found, verl(SECOND, FIRST))
    assert differences(live) == ["differs from plan.json: no (12 ranks on their nodes)"]
    assert live.compared is not None
    counts = live.compared.ranks, live.compared.up, live.compared.on_nodes, live.compared.on_accelerators
    assert counts == (12, 12, 12, 12)
    assert [group.component for group in live.groups] == ["actor", "actor"]
    assert dict(live.actors[5].ranks) == {"actor": RankSet("5"), "rollout": RankSet("2")}
    assert table(live)[5][3:7] == ["02", "actor", "5", "+1"]


def test_ranks_follow_the_order_in_which_the_trainer_sorts_its_groups() -> None:
    """verl sorts groups by address as text: the first group it asked for has the last ranks."""
    found = nodes(FIRST, SECOND)
    pools(found, FIRST, SECOND)
    assert not seen(found, verl(SECOND, FIRST)).differences


def test_ranks_elsewhere_are_one_line_a_run() -> None:
    found = nodes(FIRST, SECOND, THIRD)
    pools(found, SECOND, THIRD)
    live = seen(found, verl(SECOND, FIRST))
    assert differences(live) == [
        "differs from plan.json: 6 of 12 ranks",
        "  actor 4-7     planned node 1 (10.0.0.9): 0-3   runs on node 3 (10.0.0.12): #0-3",
        "  rollout 2-3   planned node 1 (10.0.0.9): 0-3   runs on node 3 (10.0.0.12): #0-3",
    ]
    assert live.compared is not None and live.compared.on_nodes == 6


def test_ranks_that_do_not_run_tell_why() -> None:
    found = nodes(FIRST, SECOND)
    pools(found, SECOND, actors=2)
    lines = differences(seen(found, verl(SECOND, FIRST)))
    assert lines[0] == "differs from plan.json: 9 of 12 ranks"
    assert lines[1].endswith("does not run: no actor is in its bundle")
    assert lines[2].endswith("does not run: nothing asked for it")
    found.group([None] * 4, [1] * 4, name="global_poolverl_group_4_4:1", state="PENDING", scheduling="NO_RESOURCES")
    lines = differences(seen(found, verl(SECOND, FIRST)))
    assert lines[2].endswith("does not run: no node has the resources free")
    gone = differences(seen(nodes(SECOND), verl(SECOND, FIRST)))
    assert "planned node 1 (10.0.0.9), which is not in the cluster: 0-3" in gone[2]


def test_what_the_plan_lacks_is_not_planned() -> None:
    found = nodes(FIRST, SECOND, THIRD)
    pools(found, SECOND, FIRST)
    found.group([THIRD, THIRD], [1, 1], name="elastic")
    found.actor(THIRD, [3], class_name="Judge")
    assert differences(seen(found, verl(SECOND, FIRST)))[1:] == [
        "  not planned   placement group `elastic` with 2 accelerators on node 3",
        "  not planned   1 actor of class Judge without a group",
    ]


def test_actors_without_a_group_are_compared_by_their_nodes(tmp_path: Path) -> None:
    """OpenRLHF with one accelerator a node: Ray tells the class of each actor, and no order."""
    (path := tmp_path / "train.sh").write_text(
        "python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 2 --actor.num_gpus_per_node 1 --vllm.num_engines 1 "
        "--ref.num_nodes 1 --ref.num_gpus_per_node 2 --vllm.tensor_parallel_size 2 --reward.remote_url http://r "
        "--algo.advantage.estimator rloo --rollout.n_samples_per_prompt 4\n"
    )
    content = [{"ranks": rank, "ip": address, "accelerators": 3} for rank, address in enumerate((FIRST, SECOND))]
    planned = plan(path, Inventory.from_dict({"nodes": content}))
    alone = next(one for one in planned.requests if one.strategy is None)
    assert (alone.component, alone.accelerators) == ("actor", (1, 1))
    found = nodes(FIRST, SECOND, count=3)
    ips = [FIRST, SECOND]
    for one in planned.requests:
        if one is not alone:
            found.group([ips[node] for node in one.nodes], one.accelerators)
    free = iter([2, 2])
    for node in reversed(alone.nodes):
        found.actor(ips[node], [next(free)], class_name="PolicyModelActor")
    live = seen(found, planned)
    assert live.compared is not None and live.compared.claimed == live.compared.groups
    assert [one for one in live.differences if one.component == "actor" and one.kind == "node"] == []
    actors = [dict(actor.ranks) for actor in live.actors]
    assert sorted(str(one["actor"]) for one in actors) == ["0", "1"]


def test_without_requests_only_places_are_compared() -> None:
    content = verl(SECOND, FIRST).to_dict()
    del content["requests"], content["dialect"]
    old = Plan.from_dict(content)
    found = nodes(FIRST, SECOND)
    pools(found, SECOND, FIRST)
    assert differences(seen(found, old)) == ["differs from plan.json: no (places only)"]
    other = nodes(FIRST, SECOND, THIRD)
    pools(other, SECOND, THIRD)
    assert differences(seen(other, old)) == [
        "differs from plan.json:",
        "  planned node 1 (10.0.0.9): 0-3   no actor holds them",
        "  not planned                      node 3 (10.0.0.12): #0-3",
    ]


def test_the_job_that_asks_for_what_is_planned_is_compared() -> None:
    found = nodes(FIRST, SECOND, THIRD)
    found.actor(THIRD, [0], job=OTHER)
    pools(found, SECOND, FIRST)
    found.group([THIRD], [1], job=OTHER)
    live = seen(found, verl(SECOND, FIRST))
    assert live.compared is not None and live.compared.job == MINE[:2] and not live.differences
    chosen = compare(live, verl(SECOND, FIRST), "plan.json", OTHER[:2])
    assert chosen.compared is not None and chosen.compared.claimed == 0


@given(st.text(max_size=80), st.text(max_size=200), st.booleans())
def test_names_of_programs_are_printed_safely(name: str, class_name: str, planned: bool) -> None:
    found = nodes(FIRST, SECOND)
    pools(found, SECOND, FIRST)
    found.group([None], [8], name=name, state="PENDING", scheduling="NO_RESOURCES")
    found.actor(FIRST, {0: 0.01}, job=OTHER, name=name, class_name=class_name)
    live = seen(found, verl(SECOND, FIRST) if planned else None)
    for line in some([*table_lines(actor_table(live)), *live_lines(live)]):
        assert line.isprintable()
    for suffix in (".svg", ".html"):
        drawn(live, suffix).encode()
    json.dumps(plain(live))


def test_many_actors_are_folded_and_lines_are_cut() -> None:
    found = Cluster([(f"10.0.{at // 200}.{at % 200 + 1}", 8) for at in range(100)])
    for number, address in enumerate(found.ids):
        group = found.group([address] * 8, [1] * 8, name=f"pool:{number}")
        for bundle in range(8):
            found.actor(address, [bundle], group=group, bundle=bundle)
    rows = table(seen(found))
    assert len(rows) == 100
    assert rows[0] == ["0", "10.0.0.1", "#0-7", "02", "-", "Worker", "-", "8", "processes", "pool:0[0-7]"]
    found = nodes(*(f"10.0.1.{at}" for at in range(1, 60)))
    for at in range(1, 60):
        found.actor(f"10.0.1.{at}", {0: 0.5}, job=MINE)
        found.actor(f"10.0.1.{at}", {0: 0.5}, job=OTHER)
    assert live_lines(seen(found))[-1] == "and 19 more"


def test_the_map_marks_what_differs() -> None:
    found = nodes(FIRST, SECOND, THIRD)
    found.actor(FIRST, [0], job=OTHER, class_name="Theirs")
    pools(found, SECOND, THIRD)
    live = seen(found, verl(SECOND, FIRST))
    for suffix, mark in ((".svg", "#c4162a"), (".html", '"bar band marked"')):
        text = drawn(live, suffix)
        assert text.count(mark) == 6 + (mark in drawn(seen(found), suffix))
        for part in (
            "! 4",
            "job 09: Theirs",
            "planned node 1 (10.0.0.9): 0-3, found node 3",
            "differs from plan.json: 6",
        ):
            assert part in text
    assert "! and a red frame" not in drawn(seen(found), ".svg")


def test_all_shows_actors_without_accelerators() -> None:
    found = nodes(FIRST)
    found.actor(HEAD, class_name="TaskRunner")
    live = seen(found)
    assert table(live) == [] and plain(live)["actors"] == []
    assert table(live, everything=True)[0][:6] == ["0", HEAD, "-", "02", "-", "TaskRunner"]
    assert plain(live, everything=True)["actors"][0]["class_name"] == "TaskRunner"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--watch", "0"], 2, "Invalid value for '--watch'"),
        (["--watch", "inf"], 2, "not a finite number of seconds"),
        (["--watch", "1", "-o", "live.svg"], 2, "--watch prints; remove -o"),
        (["--dialect", "verl"], 2, "apply to FILE, which is missing"),
        (["plan.json", "--dialect", "verl"], 2, "plan.json is a saved plan"),
        (["none.yaml", "--ray", "127.0.0.2:9"], 1, "none.yaml: No such file"),
        (["plan.json", "--ray", "127.0.0.2:9"], 1, "no Ray cluster answers at 127.0.0.2:9"),
        (["--ray", "ray://127.0.0.2:9"], 1, "is a Ray Client address"),
    ],
)
def test_wrong_usage(
    words: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verl(SECOND, FIRST).save(tmp_path / "plan.json")
    done = CliRunner().invoke(main, ["live", *words])
    assert (done.exit_code, message in done.output) == (code, True), done.output


def test_processes_are_those_of_actors_or_of_nobody() -> None:
    """A process that descends from an actor is its own; one of another pid namespace may be any actor's."""
    found = nodes(FIRST)
    found.actor(FIRST, [0], class_name="Server")
    found.actor(FIRST, [1])
    live = seen(found)
    told = {
        1: [
            Process(0, 77, 100, (1000, 1)),  # a child of the first actor
            Process(1, 1000, 100, (1,)),  # the first actor on the accelerator of the second
            Process(1, 88, None, None),  # of another namespace
            Process(2, 99, 5, (1,)),
        ]
    }
    after = entered(live, {1: live.node[1].spec}, told, {2: "node 2: its driver does not tell"})
    owners = [(one.pid, one.actor_id is not None, one.elsewhere) for one in after.processes]
    assert owners == [(77, True, False), (1000, True, False), (88, False, True), (99, False, False)]
    assert not after.doubled  # both actors are of one job
    lines = live_lines(after)
    assert "no actor's: node 1: 1: pid 88 of another pid namespace" in lines
    assert "no actor's: node 1: 2: pid 99, 5 MiB" in lines
    assert "devices: node 2: its driver does not tell" in lines
    stranger = entered(live, {}, {1: [Process(0, 99, 5, (1,))]}, {})
    assert [(one.accelerator, one.users) for one in stranger.doubled] == [
        (0, ("Server (job 02, pid 1000)", "pid 99, no actor's"))
    ]
    assert plain(after)["processes"][0]["pid"] == 77 and plain(after)["silent"]

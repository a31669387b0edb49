"""slime's document on its placement group, statement by statement."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import rankplan
from rankplan import Inventory, Plan
from rankplan.dialects.placing.orders import bundle_order
from rankplan.environment import MASTER_VARIABLES, rank_environment
from rankplan.runtime.rank.ports import FIRST, free_block
from rankplan.trainers.slime.engines import EngineProcess, dist_init_addrs, engine_processes
from rankplan.trainers.slime.job import layout
from support.statements import Statement, refusal

APART = {"actor_num_nodes": 1, "actor_num_gpus_per_node": 8, "rollout_num_gpus": 4}
TOGETHER = {"actor_num_nodes": 1, "actor_num_gpus_per_node": 8, "colocate": True}
LARGE_ENGINE = {**APART, "rollout_num_gpus": 16, "rollout_num_gpus_per_engine": 16}


def plan(flags: dict[str, Any], nodes: int = 3) -> Plan:
    return rankplan.plan(flags, Inventory.uniform(nodes, 8), dialect="slime")


def shares(flags: dict[str, Any]) -> dict[str, float | None]:
    return {name: component.share for name, component in plan(flags).items()}


def devices(flags: dict[str, Any], name: str) -> list[tuple[int, int]]:
    """Return the accelerators of a component, process by process."""
    used: list[tuple[int, int]] = []
    for row in plan(flags)[name]:
        used += row.devices
    return used


def order(*bundles: tuple[str, int]) -> list[tuple[str, int]]:
    """Return bundles, each the address of its node and the id of its GPU, in the order in which ranks take them."""
    indices = bundle_order((index, address, gpu) for index, (address, gpu) in enumerate(bundles))
    return [bundles[index] for index in indices]


def engine_addresses() -> list[str]:
    """Return where the processes of an engine over two nodes meet."""
    nodes = [{"ranks": rank, "accelerators": 8, "ip": f"10.0.0.{rank + 1}"} for rank in range(3)]
    inventory = Inventory.from_dict({"nodes": nodes})
    rollout = rankplan.plan(LARGE_ENGINE, inventory, dialect="slime")["rollout"]
    ports = [range(20_000, 20_004), range(20_100, 20_104)]
    return dist_init_addrs(engine_processes(rollout), inventory, ports)


def avoids_a_used_port(port: int) -> bool:
    """Return whether a block of ports avoids one that is in use."""
    with socket.socket() as server:
        server.bind(("0.0.0.0", port))
        start = free_block(range(port, port + 20), 4)
    return start is not None and port < start


def without_lookups() -> bool:
    """Return whether the name of a host is sorted although no lookup would answer."""
    return order(("b.invalid", 0), ("a.invalid", 0)) == [("a.invalid", 0), ("b.invalid", 0)]


STATEMENTS = [
    # the group
    Statement("one group reserves the GPUs of all sides", lambda: len([*plan(APART).requests]), 1),
    Statement("it has a bundle for each GPU", lambda: next(iter(plan(APART).requests)).accelerators, (1,) * 12),
    Statement("a bundle has a CPU", lambda: next(iter(plan(APART).requests)).cpus, (1.0,) * 12),
    Statement("its bundles are packed", lambda: next(iter(plan(APART).requests)).strategy, "PACK"),
    Statement("actors stay in their bundle", lambda: plan(APART)["actor"][3].devices, [(0, 3)]),
    Statement("the training has an actor for each GPU", lambda: len(plan(APART)["actor"]), 8),
    Statement("its ranks follow the order of the bundles", lambda: devices(APART, "actor"), [(0, i) for i in range(8)]),
    Statement(
        "a manager and a lock run beside it",
        lambda: [one.name for one in plan(APART).actors],
        ["rollout manager", "engine lock"],
    ),
    # how many GPUs, and which
    Statement("debug_train_only: GPUs of the actor", lambda: layout({**APART, "debug_train_only": True}), (8, 0)),
    Statement("debug_train_only: no rollout", lambda: [*plan({**APART, "debug_train_only": True})], ["actor"]),
    Statement("debug_rollout_only: GPUs of the rollout", lambda: layout({**APART, "debug_rollout_only": True}), (4, 0)),
    Statement("debug_rollout_only: no training", lambda: [*plan({**APART, "debug_rollout_only": True})], ["rollout"]),
    Statement(
        "the first flag counts if both are set",
        lambda: refusal(plan, {**APART, "debug_train_only": True, "debug_rollout_only": True}),
        ["invalid-value"],
        differs="documented-debug-flags",
    ),
    Statement("colocated: GPUs of the actor, offset 0", lambda: layout(TOGETHER), (8, 0)),
    Statement(
        "colocated: a larger rollout adds no GPUs",
        lambda: layout({**TOGETHER, "rollout_num_gpus": 16}),
        (16, 0),
        differs="slime-colocate",
    ),
    Statement("else: the sum, and the rollout after the actor", lambda: layout(APART), (12, 8)),
    Statement("the nodes of the actor multiply", lambda: layout({**APART, "actor_num_nodes": 2}), (20, 16)),
    Statement("the rollout starts at the offset", lambda: devices(APART, "rollout"), [(1, i) for i in range(4)]),
    # the order of the bundles
    Statement(
        "addresses are compared as numbers",
        lambda: order(("10.0.0.10", 0), ("10.0.0.9", 0)),
        [("10.0.0.9", 0), ("10.0.0.10", 0)],
    ),
    Statement(
        "GPUs of a node ascend", lambda: order(("10.0.0.1", 3), ("10.0.0.1", 1)), [("10.0.0.1", 1), ("10.0.0.1", 3)]
    ),
    Statement(
        "nodes come before GPUs", lambda: order(("10.0.0.2", 0), ("10.0.0.1", 7)), [("10.0.0.1", 7), ("10.0.0.2", 0)]
    ),
    Statement("names are looked up", without_lookups, True, differs="slime-lookups"),
    Statement(
        "names are compared by characters",
        lambda: order(("n10", 0), ("n9", 0)),
        [("n9", 0), ("n10", 0)],
        differs="slime-names",
    ),
    Statement(
        "the order does not depend on that of Ray",
        lambda: order(("10.0.0.1", 0), ("10.0.0.2", 0)) == order(("10.0.0.2", 0), ("10.0.0.1", 0)),
        True,
    ),
    Statement("the plan asks for that order", lambda: next(iter(plan(APART).requests)).order, "number"),
    # colocated
    Statement(
        "colocated: both sides use the same GPUs",
        lambda: devices(TOGETHER, "actor") == devices(TOGETHER, "rollout"),
        True,
    ),
    Statement("colocated: the plan says so", lambda: plan(TOGETHER).sharing().kind, "collocated"),
    Statement(
        "colocated: an actor has 0.8 of a GPU", lambda: shares(TOGETHER)["actor"], 0.4, differs="documented-shares"
    ),
    Statement("colocated: an engine has 0.2 of a GPU", lambda: shares(TOGETHER)["rollout"], 0.2),
    Statement(
        "colocated: the shares fit on a GPU", lambda: plan({**TOGETHER, "use_critic": True}).check_shares(), None
    ),
    # disaggregated
    Statement("apart: no GPU is shared", lambda: plan(APART).sharing().kind, "disaggregated"),
    Statement(
        "apart: the first bundles train", lambda: devices(APART, "actor")[-1] < devices(APART, "rollout")[0], True
    ),
    Statement("apart: an actor has 0.8 of a GPU", lambda: shares(APART)["actor"], 0.4, differs="documented-shares"),
    Statement("apart: an engine has 0.2 of a GPU", lambda: shares(APART)["rollout"], 0.2),
    # training and rollout
    Statement("rank 0 has the address and the port", lambda: MASTER_VARIABLES, ("MASTER_ADDR", "MASTER_PORT")),
    Statement(
        "every rank gets them",
        lambda: rank_environment(plan(APART)["actor"][5], master_addr="10.0.0.1", master_port=20_000, env_vars={})[
            "MASTER_PORT"
        ],
        "20000",
    ),
    Statement(
        "an engine of two GPUs has one process",
        lambda: len(plan({**APART, "rollout_num_gpus_per_engine": 2})["rollout"]),
        2,
    ),
    Statement(
        "engines use the sorted bundles",
        lambda: plan({**APART, "rollout_num_gpus_per_engine": 2})["rollout"][1].devices,
        [(1, 2), (1, 3)],
    ),
    Statement(
        "an engine over nodes has a process on each",
        lambda: [row.cluster_node_rank for row in plan(LARGE_ENGINE)["rollout"]],
        [1, 2],
    ),
    Statement(
        "its processes know their place",
        lambda: engine_processes(plan(LARGE_ENGINE)["rollout"]),
        [EngineProcess(0, 0, 1), EngineProcess(0, 1, 1)],
    ),
    Statement("they meet on the first node", engine_addresses, ["10.0.0.2:20000"] * 2),
    # ports
    Statement("ports are consecutive and free", lambda: avoids_a_used_port(23_400), True),
    Statement("they start at 10000", lambda: FIRST, 20_000, differs="documented-ports"),
]


@pytest.mark.parametrize("statement", STATEMENTS, ids=[statement.says for statement in STATEMENTS])
def test_a_statement_of_slime(statement: Statement) -> None:
    assert statement.result() == statement.answer


@pytest.mark.parametrize(("flags", "codes"), [(APART, []), (TOGETHER, ["invalid-value"])])
def test_what_is_apart_trains_asynchronously(flags: dict[str, Any], codes: list[str], tmp_path: Any) -> None:
    """The document says that separate GPUs are what an asynchronous training needs; slime refuses others."""
    words = " ".join(f"--{key.replace('_', '-')} {'' if value is True else value}" for key, value in flags.items())
    script = tmp_path / "run.sh"
    script.write_text(f"python3 train_async.py {words}\n")
    report = rankplan.check(script, "2x8")
    assert [fault.code for fault in report.faults] == codes

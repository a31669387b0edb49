"""ROLL's document on the configuration of resources, statement by statement."""

from __future__ import annotations

from typing import Any

import pytest
import rankplan
from rankplan import Inventory, Plan
from rankplan.trainers.roll.device_mapping import parse_device_mapping
from support.statements import Statement, refusal

COMPLETE: dict[str, Any] = {
    "num_gpus_per_node": 8,
    "actor_train": {"device_mapping": "list(range(0,16))"},
    "actor_infer": {"num_gpus_per_worker": 2, "device_mapping": "list(range(0,12))"},
    "rewards": {"code_sandbox": {"world_size": 8}},
}
"""The example at the end of the document."""

EIGHT = "list(range(0,8))"


def plan(nodes: int = 3, **roles: Any) -> Plan:
    return rankplan.plan(roles, Inventory.uniform(nodes, 8), dialect="roll")


def mapped(**mappings: str) -> Plan:
    """Return the plan of roles with only a ``device_mapping``."""
    return plan(**{role: {"device_mapping": mapping} for role, mapping in mappings.items()})


def engine(name: str, each: int = 1, mapping: str = EIGHT, **config: int) -> dict[str, Any]:
    """Return a role with a strategy."""
    strategy = {"strategy_name": name, "strategy_config": config}
    return {"device_mapping": mapping, "num_gpus_per_worker": each, "strategy_args": strategy}


def workers(role: dict[str, Any]) -> tuple[int, int]:
    """Return the number of workers of a role, and the accelerators of each."""
    rows = plan(actor_train=role)["actor_train"]
    return len(rows), rows[0].num_accelerators


def devices(role: Any) -> list[int]:
    """Return the accelerators of a role of a plan, counted over nodes of 8."""
    used: list[int] = []
    for row in role:
        used += [8 * node + index for node, index in row.devices]
    return used


def apart() -> Plan:
    return mapped(actor_train="list(range(0,16))", actor_infer="list(range(16,24))")


def split() -> Plan:
    return mapped(actor_train="list(range(0,4))", actor_infer="list(range(4,8))")


def together() -> Plan:
    return mapped(actor_train=EIGHT, actor_infer=EIGHT)


def complete() -> Plan:
    return plan(2, **COMPLETE)


STATEMENTS = [
    # device_mapping
    Statement("a role states the GPUs of its workers", lambda: devices(mapped(a="[3, 1]")["a"]), [3, 1]),
    Statement("a text is what Python makes of it", lambda: parse_device_mapping("list(range(0,16))"), [*range(16)]),
    Statement(
        "any expression of a list: a slice", lambda: parse_device_mapping("list(range(16))[8:]"), [*range(8, 16)]
    ),
    Statement(
        "any expression of a list: loops and conditions",
        lambda: parse_device_mapping("[8 * n + i for n in range(2) for i in range(8) if i < 2]"),
        [0, 1, 8, 9],
    ),
    Statement(
        "any expression of a list: functions",
        lambda: parse_device_mapping("sorted(sum([[3], [1]], [])) + list(reversed(range(int(8 / 4), len([0] * 4))))"),
        [1, 3, 3, 2],
    ),
    Statement(
        "any expression: also those that call other functions",
        lambda: refusal(parse_device_mapping, "[*map(int, [0])]"),
        ["syntax"],
        differs="roll-eval",
    ),
    Statement("numbers are ranks in the whole cluster", lambda: mapped(a="[9]")["a"][0].devices, [(1, 1)]),
    Statement("the example needs 24 GPUs", lambda: sum(map(len, (devices(role) for role in apart().values()))), 24),
    Statement("its actor_train has 0 to 15", lambda: devices(apart()["actor_train"]), [*range(16)]),
    Statement("its actor_infer has 16 to 23", lambda: devices(apart()["actor_infer"]), [*range(16, 24)]),
    # CPUs
    Statement("world_size alone makes workers without GPUs", lambda: len(plan(box={"world_size": 8})["box"]), 8),
    Statement(
        "they have no accelerator", lambda: {row.num_accelerators for row in plan(box={"world_size": 8})["box"]}, {0}
    ),
    Statement(
        "num_gpus_per_worker does not count for them",
        lambda: len(plan(box={"world_size": 8, "num_gpus_per_worker": 4})["box"]),
        8,
    ),
    # together and apart
    Statement("together: roles use the same GPUs", lambda: together().sharing().kind, "collocated"),
    Statement(
        "together: in turns, as processes of their own", lambda: [len(role) for role in together().values()], [8, 8]
    ),
    Statement("together: each has a share", lambda: [role.share for role in together().values()], [0.5, 0.5]),
    Statement("apart: roles use other GPUs", lambda: split().sharing().kind, "disaggregated"),
    Statement(
        "apart: 0-3 train, 4-7 generate",
        lambda: [devices(role) for role in split().values()],
        [[0, 1, 2, 3], [4, 5, 6, 7]],
    ),
    # flexible roles
    Statement("roles differ in their number of GPUs", lambda: [len(role) for role in apart().values()], [16, 8]),
    Statement(
        "roles differ in their engine",
        lambda: sorted(plan(a=engine("vllm"), b=engine("sglang", 2))),
        ["a", "b"],
    ),
    Statement(
        "roles differ in num_gpus_per_worker",
        lambda: [role[0].num_accelerators for role in complete().values()],
        [1, 2, 0],
    ),
    Statement("training has one GPU per worker", lambda: workers(engine("megatron_train", 2)), (8, 1)),
    Statement(
        "training has one GPU per worker, also without a strategy",
        lambda: workers({"device_mapping": EIGHT, "num_gpus_per_worker": 2}),
        (4, 2),
        differs="documented-training-workers",
    ),
    Statement("vllm: GPUs follow from the sizes", lambda: workers(engine("vllm", tensor_parallel_size=2)), (4, 2)),
    Statement(
        "vllm: tensor size times pipeline size",
        lambda: workers(engine("vllm", tensor_parallel_size=2, pipeline_parallel_size=2)),
        (2, 4),
    ),
    Statement(
        "vllm: the written number does not count", lambda: workers(engine("vllm", 8, tensor_parallel_size=2)), (4, 2)
    ),
    Statement("sglang: as written", lambda: workers(engine("sglang", 4)), (2, 4)),
    # how many workers
    Statement(
        "world_size is the quotient", lambda: workers({"device_mapping": EIGHT, "num_gpus_per_worker": 4}), (2, 4)
    ),
    Statement(
        "a written world_size does not count", lambda: workers({"device_mapping": EIGHT, "world_size": 3}), (8, 1)
    ),
    Statement(
        "the number must divide the GPUs",
        lambda: refusal(plan, a={"device_mapping": EIGHT, "num_gpus_per_worker": 3}),
        ["not-multiple"],
    ),
    # the complete example
    Statement("complete: nodes of 8", lambda: refusal(plan, **COMPLETE | {"num_gpus_per_node": 4}), ["invalid-value"]),
    Statement("complete: 16 workers train", lambda: len(complete()["actor_train"]), 16),
    Statement("complete: 6 workers of 2 generate", lambda: devices(complete()["actor_infer"][4:]), [8, 9, 10, 11]),
    Statement("complete: 8 workers run code", lambda: len(complete()["rewards.code_sandbox"]), 8),
]


@pytest.mark.parametrize("statement", STATEMENTS, ids=[statement.says for statement in STATEMENTS])
def test_a_statement_of_roll(statement: Statement) -> None:
    assert statement.result() == statement.answer

"""The file of a plan: written and read by the core, small for large plans, with every fault."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError, Plan, Request
from rankplan._core import Requests
from rankplan.memory.settings import ENGINES, FRAMEWORKS, OPTIMIZERS, PRECISIONS, RECOMPUTE, SLEEP
from support.goldens import lines
from support.jobs import altered
from support.paths import ROOT
from support.recorded_trainers import cluster, config

OLDER = lines("plans_version_2")
EVERY_PART = next(line["plan"] for line in OLDER if line["id"] == "every-part")
LINES = lines("trainer_requests")
QUESTIONS = list({(line["trainer"], str(line["question"])): line for line in LINES}.values())


def same_everywhere(plan: Plan, folder: Path) -> None:
    """Assert that a plan comes back from a file, a mapping and a pickle, and that equal plans give equal bytes."""
    first, second = folder / "first.json", folder / "second.json"
    plan.save(first)
    loaded = Plan.load(first)
    loaded.save(second)
    assert loaded == plan == Plan.from_dict(plan.to_dict()) == pickle.loads(pickle.dumps(plan))
    assert loaded.requests.rows == plan.requests.rows
    assert first.read_bytes() == second.read_bytes()
    assert json.loads(first.read_text()) == json.loads(json.dumps(plan.to_dict()))


# ---------------------------------------------------------------------------------------------------- version 2


OLDER_SHARES = {"slime": {"actor": 1.0, "rollout": 1.0}, "slime-colocated": {"actor": 0.8}}
"""Shares that plans of version 2 have, and that are now what slime's actors ask for."""


def older(request: Request) -> Request:
    """Return a request as plans of version 2 have it: nothing else is known of its bundles."""
    return altered(request, amounts=[], order="rank" if request.order == "rank-cpus" else request.order)


@pytest.mark.parametrize("line", OLDER, ids=[line["id"] for line in OLDER])
def test_a_plan_of_version_2_is_read(line: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(line["plan"]))
    loaded = Plan.load(file)
    assert loaded == Plan.from_dict(line["plan"])
    if line["config"] is not None:
        planned = rankplan.plan(ROOT / "examples" / line["config"], loaded.inventory)
        requests = map(older, planned.requests)
        shares = OLDER_SHARES.get(line["id"], {})
        components = [
            component.with_settings(share=shares.get(name, component.share)) for name, component in planned.items()
        ]
        assert loaded == Plan(planned.inventory, components, planned.mode, planned.dialect, requests, planned.rules)
    same_everywhere(loaded, tmp_path)
    # only the requests are written otherwise
    now = json.loads(json.dumps(loaded.to_dict()))
    assert {**now, "rankplan": 2, "requests": None} == {**line["plan"], "requests": now.get("requests") and None}
    assert len(loaded.requests) == len(line["plan"].get("requests", []))


def test_the_requests_of_version_2_are_one_by_one() -> None:
    assert [*Plan.from_dict(EVERY_PART).requests] == [
        Request("a", "x:0", (1, 1, 1, 1), (0, 0, 1, 1), None, order="text"),
        Request("a", "x:1", (1, 1, 1, 1), (2, 2, 2, 2), order="number"),
        Request("", None, (8,), (), optional=True),
    ]


# ----------------------------------------------------------------------------------------------- there and back


def test_plans_of_every_trainer_come_back(tmp_path: Path) -> None:
    """Some questions ask for more than their cluster has."""
    refused = 0
    trainers = set()
    for line in QUESTIONS:
        try:
            plan = rankplan.plan(config(line, tmp_path), cluster(line), dialect=line["trainer"])
        except PlacementError:
            refused += 1
            continue
        trainers.add(plan.dialect)
        same_everywhere(plan, tmp_path)
    assert len(trainers) == 7 and refused < len(QUESTIONS) / 2, (refused, len(QUESTIONS))


NODES = 5
NAMES = st.sampled_from(["a:0", "a:1", "a:2", "a:9", "a:10", "p0v_8:0", "p1v_8:0", "a01", r"\-1", "é7", ""])


@st.composite
def any_request(draw: st.DrawFn) -> Request:
    """Draw a request for any bundles on any nodes."""
    bundles = draw(st.lists(st.tuples(st.integers(0, 8), st.integers(0, NODES - 1)), min_size=1, max_size=6))
    optional = draw(st.booleans())
    return Request(
        draw(st.sampled_from(["a", "b", ""])),
        draw(st.none() | NAMES),
        tuple(size for size, _ in bundles),
        () if optional else tuple(node for _, node in bundles),
        draw(st.sampled_from(["PACK", "STRICT_PACK", None])),
        optional,
        draw(st.sampled_from([None, "text", "number", "id", "topology", "topology-id", "rank"])),
    )


@given(st.lists(any_request().flatmap(lambda one: st.lists(st.just(one), min_size=1, max_size=3)), max_size=6))
def test_any_requests_come_back(parts: list[list[Request]]) -> None:
    requests = [request for part in parts for request in part]
    inventory = Inventory.uniform(NODES, 8)
    plan = Plan(inventory, [], dialect="verl", requests=requests)
    content = json.loads(json.dumps(plan.to_dict()))
    loaded = Plan.from_dict(content)
    assert loaded == plan and [*loaded.requests] == requests
    assert loaded.to_dict() == content


VERL = {
    "trainer": {"nnodes": 2_000, "n_gpus_per_node": 8},
    "actor_rollout_ref": {"rollout": {"name": "vllm", "tensor_model_parallel_size": 4}},
    "algorithm": {"adv_estimator": "grpo"},
}


def test_the_file_of_a_large_plan_is_small(tmp_path: Path) -> None:
    plan = rankplan.plan(VERL, "2000x8")
    same_everywhere(plan, tmp_path)
    assert len(plan.requests) == 2_000 and len(plan.to_dict()["requests"]) == 1
    assert (tmp_path / "first.json").stat().st_size < 1_000


def test_every_node_of_a_large_plan_comes_back(tmp_path: Path) -> None:
    nodes = [{"ranks": node, "accelerators": 8, "hostname": f"h{node}", "ip": f"10.0.0.{node}"} for node in range(200)]
    config = {**VERL, "trainer": {"nnodes": 200, "n_gpus_per_node": 8}}
    same_everywhere(rankplan.plan(config, Inventory.from_dict({"nodes": nodes})), tmp_path)


def test_what_is_equal_is_written_alike() -> None:
    requests = Requests([Request("a", f"x:{number}", (1,), (0,)) for number in range(3)])
    inventory = Inventory.uniform(1, 1)
    parts = requests[:1] + requests[1:]
    assert Plan(inventory, [], requests=parts).to_dict() == Plan(inventory, [], requests=requests).to_dict()


# -------------------------------------------------------------------------------------------------------- faults


def changed(change: Callable[[dict[str, Any]], object], content: dict[str, Any] = EVERY_PART) -> dict[str, Any]:
    content = copy.deepcopy(content)
    change(content)
    return content


def faults(content: Any) -> list[str]:
    with pytest.raises(PlacementError) as refused:
        Plan.from_dict(content)
    assert {fault.code for fault in refused.value.diagnostics} == {"invalid-plan"}
    assert all(fault.help for fault in refused.value.diagnostics)
    return [f"{fault.path}: {fault.message}" for fault in refused.value.diagnostics]


def at(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return the change of the value at a path."""

    def change(content: dict[str, Any]) -> None:
        here: Any = content
        for key in path[:-1]:
            here = here[key]
        here[path[-1]] = value

    return change


# What a change of one value is answered with: rows that a comparison with the reader of version 2 has found.
CHANGES: list[tuple[Callable[[dict[str, Any]], None], list[str]]] = [
    (at("rankplan", value=True), [": the file is not a plan of version 3, but of version true"]),
    (at("rankplan", value=2.0), [": the file is not a plan of version 3, but of version 2.0"]),
    (at("cluster", value=3), ["cluster: `cluster` is 3; it must be a mapping"]),
    (at("dialect", value=""), ["dialect: `dialect` is ''; it must be a name"]),
    (at("requests", value=None), ["requests: `requests` is null; it must be a list"]),
    (at("inventory", "nodes", value=[]), ["inventory.nodes: `nodes` is empty"]),
    (at("inventory", value={"node": []}), ["inventory: the inventory has no `nodes`"]),
    (at("inventory", "levels", value=3), ["inventory.levels: `levels` is 3; it must be a list"]),
    (
        at("cluster", "num_nodes", value=2**70),
        [f"cluster.num_nodes: `num_nodes` is {2**70}; it must be 16777216 or less"],
    ),
    (at("components", "a", "share", value=0), ["components.a.share: `share` is 0; it must be more than 0.0"]),
    (at("components", "a", "share", value="x"), ["components.a.share: `share` is 'x'; it must be a number"]),
    (
        at("components", "a", "by_node", value="maybe"),
        ["components.a.by_node: `by_node` is 'maybe'; it must be true or false"],
    ),
    (
        at("components", "a", "binding", value=None),
        ["components.a.binding: `binding` is null; it must be none, node, socket, exclusive or core-complex"],
    ),
    (
        at("components", "a", "engines", value=1.5),
        ["components.a.engines: `engines` is 1.5; it must be a whole number"],
    ),
    (
        at("components", "a", "parallel", value=3),
        ["components.a.parallel: `parallel` is 3; it must be a mapping of sizes"],
    ),
    (
        at("components", "a", "parallel", value={"order": "tp"}),
        ["components.a.parallel.order: `order` is 'tp'; it must name tp, cp, ep, dp and pp once each, fastest first"],
    ),
    (at("components", "a", "parallel", value="t2x"), ["components.a.parallel: unknown size `x`"]),
    (
        at("components", "a", "parallel", value={"tp": 3}),
        ["components.a.parallel: a group of tp 3 does not fill processes of 2 devices; 1 is idle"],
    ),
    (
        at("components", "a", "memory", value={"training": "megatrn"}),
        ["components.a.memory.training: `training` is 'megatrn'; it must be megatron, fsdp or deepspeed"],
    ),
    (
        at("components", "a", "memory", "share", value=0.5),
        ["components.a.memory.share: `share` says nothing about `training`"],
    ),
    (
        at("components", "a", "memory", value={"training": "fsdp", "model": "Qwen/x"}),
        ["components.a.memory.model: model 'Qwen/x' is in no table, and there is no such file or folder"],
    ),
    (
        at("cluster", "node_groups", 0, "label", value="node"),
        ["cluster.node_groups[0].label: the label `node` is reserved: it always means all nodes, counted as nodes"],
    ),
    (
        at("cluster", "node_groups", 0, "node_ranks", value="0-3"),
        ["cluster.node_groups[0].node_ranks: node_ranks 0-3 are out of range: the cluster has 3 nodes, ranks 0-2"],
    ),
    (
        at("cluster", "node_groups", 0, "env_configs", value=[{"node_ranks": "all", "env_vars": {"RANK": 1, "A": []}}]),
        [
            "cluster.node_groups[0].env_configs[0].env_vars.RANK: variable `RANK` is set by the plan",
            "cluster.node_groups[0].env_configs[0].env_vars.A: variable `A` is []; it must be text",
        ],
    ),
    (
        at("cluster", "node_groups", 0, "hardware", value={"type": "Arm", "configs": [{"node_rank": 2}, {"node": 1}]}),
        ["cluster.node_groups[0].hardware.configs[1]: `node_rank` is missing"],
    ),
    (
        at("cluster", "topology", "keep", value={"a": {"tp": "rack", "zz": "rack"}, "a+b": {"tp": "rack"}}),
        [
            "cluster.topology.keep.a.zz: unknown kind of group `zz`",
            "cluster.topology.keep.a+b.tp: `+` joins components for `world` only, not for tp",
        ],
    ),
    (
        at("cluster", "topology", "segment", value={"a": {"rack": 0}}),
        ["cluster.topology.segment.a.rack: `rack` is 0; it must be a whole number of 1 or more"],
    ),
    (
        at("cluster", "topology", "levels", value=["node", "node"]),
        [
            "cluster.topology.levels[0]: the level `node` is always the innermost one",
            "cluster.topology.levels[1]: the level `node` is always the innermost one",
        ],
    ),
    (
        at("cluster", "pools", value=[{"name": "p", "components": ["a"]}, {"name": "r", "node_ranks": 2}]),
        ["cluster.pools[1]: `protects` is missing: pool `r` reserves nodes for no other pool"],
    ),
    (
        at("cluster", "host_memory", value="80"),
        ["cluster.host_memory: `host_memory` is '80'; it must be a size from 1 MiB to 1 EiB"],
    ),
    (at("cluster", "exclud", value=[]), ["cluster.exclud: unknown key `exclud`"]),
    (
        at("components", "b", "rule", "packed", value=[0, 7, 2]),
        ["components.b.rule.packed: `packed` is [0, 7, 2]; it must be a list of 4 values"],
    ),
    (
        at("components", "b", "rule", "packed", 3, value=-1),
        ["components.b.rule.packed[3]: `packed[3]` is -1; it must be 0 or more"],
    ),
    (
        at("components", "b", "rule", value={}),
        ["components.b.rule: a rule must have one of `map`, `chunks` and `packed`"],
    ),
    (
        at("components", "c", "beside", "z", "rule", "map", value="é"),
        ["components.c.beside.z.rule: expected resource ranks, found `é`"],
    ),
    (
        at("components", "c", "beside", "z", value={}),
        [
            "components.c.beside.z: `node_groups` is missing",
            "components.c.beside.z: `rule` is missing",
        ],
    ),
    (
        at("requests", 0, "bundles", 1, value=[4]),
        ["requests[0].bundles[1]: `bundles[1]` is [4]; it must be a list of 3 values"],
    ),
    (at("requests", 0, "bundles", 0, 0, value="2_0"), ["requests[0].bundles[0][0]: '2_0' is not a whole number"]),
    (
        at("requests", 1, "order", value="x"),
        ["requests[1].order: `order` is 'x'; it must be text, number, id, topology, topology-id, rank or rank-cpus"],
    ),
    (at("requests", 2, "bundles", 0, 2, value=0), ["requests[2].bundles: an optional request has no nodes"]),
    (at("requests", 0, "zzz", value=1), ["requests[0].zzz: unknown key `zzz`"]),
    (at("requests", 0, value=[1]), ["requests[0]: `requests[0]` is [1]; it must be a mapping"]),
]


@pytest.mark.parametrize(("change", "found"), CHANGES, ids=[found[0] for _, found in CHANGES])
def test_a_changed_value_is_refused(change: Callable[[dict[str, Any]], None], found: list[str]) -> None:
    assert faults(changed(change)) == found


def test_the_faults_of_all_parts_are_found_in_the_order_of_the_file() -> None:
    def change(content: dict[str, Any]) -> None:
        at("components", "a", "rule", "map", value="0-")(content)
        at("components", "b", "memory", value={})(content)
        at("components", "d", "rule", "chunks", value="90,91")(content)
        at("requests", 1, "name", value="a(b")(content)
        at("requests", 0, "bundles", 0, 2, value=7)(content)

    paths = [fault.partition(": ")[0] for fault in faults(changed(change))]
    assert paths == [
        "requests[0].bundles",
        "requests[1].name",
        "components.a.rule",
        "components.b.memory",
        "components.d.rule",
    ]
    nodes = changed(at("inventory", "nodes", 0, "accelerators", value=-1), changed(change))
    assert [fault.partition(": ")[0] for fault in faults(nodes)] == [
        "inventory.nodes[0].accelerators",
        "components.a.rule",
    ]


def test_faults_of_the_cluster_hide_none_of_components() -> None:
    def change(content: dict[str, Any]) -> None:
        at("cluster", "exclude", value=[3])(content)
        at("components", "a", "memory", value={})(content)

    assert [fault.partition(": ")[0] for fault in faults(changed(change))] == [
        "cluster.exclude[0]",
        "components.a.memory",
    ]


def test_every_stage_of_deepspeed_comes_back() -> None:
    for stage in range(4):
        settings = {"training": "deepspeed", "params": 7e9, "zero_stage": stage}
        plan = Plan.from_dict(changed(at("components", "a", "memory", value=settings)))
        memory = plan["a"].memory
        assert memory is not None and memory.zero_stage == stage


WORDS = {
    "training": FRAMEWORKS,
    "engine": ENGINES,
    "precision": PRECISIONS,
    "cache_precision": PRECISIONS,
    "optimizer": OPTIMIZERS,
    "recompute": RECOMPUTE,
    "sleep": SLEEP,
}


@pytest.mark.parametrize(("key", "words"), WORDS.items(), ids=WORDS)
def test_the_core_knows_the_words_of_memory(key: str, words: Collection[str]) -> None:
    *first, last = words
    (found,) = faults(changed(at("components", "a", "memory", value={key: 1})))
    assert found.endswith(f"`{key}` is 1; it must be {', '.join(first)} or {last}")


def test_names_in_a_row_are_checked_as_expressions() -> None:
    content = Plan.from_dict(EVERY_PART).to_dict()
    names = {"before": "a{3,", "first": 3, "after": "}"}
    row = {"component": "a", "names": names, "groups": 3, "bundles": [[1, 1]], "nodes": [[0, 3, 1]]}
    assert Plan.from_dict({**content, "requests": [row]}).requests[2].name == "a{3,5}"
    names["first"] = 1
    (found,) = faults({**content, "requests": [row]})
    assert found.startswith("requests[0].names: `names` is 'a{3,1}', which is no regular expression: min repeat")


@pytest.mark.parametrize("text", ['{"rankplan": 3, "cluster": null, "a": "\\ud800"}', '{"a":' * 300 + "1" + "}" * 300])
def test_json_that_the_core_leaves_to_python_is_refused_alike(text: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(PlacementError, match="the file is not a plan"):
        Plan.load(file)


def test_a_name_of_python_alone_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(changed(lambda content: content["components"].update({"\ud800": 1}))))
    with pytest.raises(PlacementError, match=r"the component name '\\ud800' contains unprintable characters"):
        Plan.load(file)

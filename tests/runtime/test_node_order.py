"""Node order: as a function of what is known about the nodes, and on raylets that are started by hand."""

from __future__ import annotations

import ctypes
import logging
import random
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import ray
from rankplan import Cluster, ClusterError, ComponentPlacement, Inventory, NodeSpec, PlacementError, RankSet
from rankplan.hardware.nvml import Fabric, fabrics
from rankplan.nodes.facts import ClusterFacts
from rankplan.runtime.group.group import WorkerGroup
from rankplan.runtime.group.job import launch
from rankplan.runtime.nodes import simulate
from rankplan.runtime.nodes.nodes import AS_RLINF, FoundNode, MissingRanks, in_order
from rankplan.runtime.ray import internals as ray_internals
from rankplan.runtime.ray import timeouts
from support.raylets import ONE_WORKER_AT_A_TIME


def node(
    ip: str,
    hostname: str = "host",
    variable: str | None = None,
    label: str | None = None,
    fault: str | None = None,
    **labels: str,
) -> FoundNode:
    error = None if fault is None else ClusterError(fault)
    spec = NodeSpec(ranks=RankSet(), ip=ip, hostname=hostname, labels=labels)
    return FoundNode(f"{ip}-{hostname}", spec, variable, label, fault=error)


def ordered(nodes: list[FoundNode], num_nodes: int | None = None) -> tuple[list[str], str]:
    found, source = in_order(nodes, num_nodes)
    return [str(node.spec.ip) for node in found], source


def test_rank_variables_come_first() -> None:
    nodes = [node("10.0.0.1", variable="1", label="0"), node("10.0.0.2", variable="0", label="1")]
    assert ordered(nodes) == (["10.0.0.2", "10.0.0.1"], "the node rank variables")


def test_labels_come_second() -> None:
    nodes = [node("10.0.0.1", label="1"), node("10.0.0.2", label="0")]
    assert ordered(nodes) == (["10.0.0.2", "10.0.0.1"], "the Ray label rankplan.io/node-rank")


def test_addresses_are_compared_as_numbers() -> None:
    expected = ["10.0.0.2", "10.0.0.9", "10.0.0.10", "10.0.1.1", "fe80::9", "fe80::10", "fe80:0:0:1::"]
    shuffled = random.Random(1).sample(expected, len(expected))
    assert ordered([node(ip) for ip in shuffled]) == (expected, "the node addresses")


RLINF = ClusterFacts(order="rlinf")


def test_hostnames_are_in_natural_order() -> None:
    names = ["a2-rack1", "a10-rack1", "a10-rack2", "a10-rack11", "b"]
    nodes, _ = in_order([node("10.0.0.1", name) for name in reversed(names)], None)
    assert [item.spec.hostname for item in nodes] == names


def test_addresses_that_are_names_come_last() -> None:
    assert ordered([node("node10"), node("node9"), node("10.0.0.1")])[0] == ["10.0.0.1", "node9", "node10"]


def test_domains_come_one_after_another_if_the_topology_decides() -> None:
    nodes = [
        node("10.0.0.1", block="b10", nvlink="a"),
        node("10.0.0.2", block="b9", nvlink="b"),
        node("10.0.0.3"),
        node("10.0.0.4", block="b9", nvlink="a"),
        node("10.0.0.5", block="b10", nvlink="a"),
        node("10.0.0.6", block="b9", nvlink="b", topo_rank="0"),
        node("10.0.0.10", block="b9"),
        node("10.0.0.9", block="b9"),
    ]
    levels = ("block", "nvlink")
    for shuffled in (random.Random(seed).sample(nodes, len(nodes)) for seed in range(5)):
        found, source = in_order(shuffled, None, ClusterFacts(order="topology", levels=levels))
        hosts = [str(item.spec.ip).rpartition(".")[2] for item in found]
        # domain b of b9 has the only explicit rank; nodes without a label come last
        assert hosts == ["6", "2", "4", "9", "10", "1", "5", "3"]
        assert source == "the topology (block, nvlink), then the node addresses"
        found, source = in_order(shuffled, None, ClusterFacts(order="topology"))
        assert str(found[0].spec.ip) == "10.0.0.1" and "no levels detected" in source


def test_ranks_come_before_the_topology() -> None:
    nodes = [node("10.0.0.1", variable="1", rack="a"), node("10.0.0.2", variable="0", rack="b")]
    assert in_order(nodes, None, ClusterFacts(order="topology", levels=("rack",)))[1] == "the node rank variables"


def test_levels_are_detected_from_the_labels_of_the_nodes() -> None:
    cliques = [node(f"10.0.0.{index}", **{"nvidia.com/gpu.clique": f"u.{3 - index}"}) for index in range(3)]
    found, source = in_order(cliques, 2, ClusterFacts(order="topology"))
    assert [str(item.spec.ip) for item in found] == ["10.0.0.2", "10.0.0.1", "10.0.0.0"]
    assert source == "the topology (nvidia.com/gpu.clique), then the node addresses"


def test_without_nvml_there_is_no_fabric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert fabrics() == []


def test_the_fabric_is_read_from_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with the names, structures and versions of nvidia-ml-py; a uuid may contain zeros."""
    uuid = bytes([15, 0, *range(14)])

    class Info(ctypes.Structure):
        _fields_: ClassVar = [
            ("version", ctypes.c_uint),
            ("clusterUuid", ctypes.c_char * 16),
            ("status", ctypes.c_uint),
            ("cliqueId", ctypes.c_uint32),
            ("state", ctypes.c_uint8),
            ("healthMask", ctypes.c_uint32),
        ]

    def fill(handle: int, reference: Any) -> None:
        info = reference._obj
        if info.version != 0x02000000 | ctypes.sizeof(info):
            raise OSError("wrong version")
        ctypes.memmove(ctypes.addressof(info) + Info.clusterUuid.offset, uuid, 16)
        info.state, info.cliqueId = 3, handle

    nvml = SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index + 7,
        c_nvmlGpuFabricInfoV_t=Info,
        nvmlGpuFabricInfo_v2=0x02000000 | ctypes.sizeof(Info),
        nvmlGpuFabricInfo_v3=0x03000028,
        nvmlDeviceGetGpuFabricInfoV=fill,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert fabrics() == [Fabric(3, uuid, 7), Fabric(3, uuid, 8)]

    def refuse(handle: int, reference: Any) -> None:
        raise OSError("not supported")

    nvml.nvmlDeviceGetGpuFabricInfoV = refuse
    assert fabrics() == []


def test_rlinfs_order_starts_with_the_driver_and_compares_text() -> None:
    nodes = [node(ip) for ip in ("10.0.0.9", "10.0.0.10", "10.0.0.2", "10.0.1.1")]
    ordered, source = in_order(nodes, None, RLINF, "10.0.0.2-host")
    assert [item.spec.ip for item in ordered] == ["10.0.0.2", "10.0.0.10", "10.0.0.9", "10.0.1.1"]
    assert source == AS_RLINF
    ranks = [node("10.0.0.1", variable="1"), node("10.0.0.2", variable="0")]
    assert [item.spec.ip for item in in_order(ranks, None, RLINF, "10.0.0.1-host")[0]] == [
        "10.0.0.2",
        "10.0.0.1",
    ]


def test_rlinfs_order_keeps_accelerator_types_together() -> None:
    def of(ip: str, kind: str | None) -> FoundNode:
        found = {} if kind is None else {"accelerator_type": kind, "accelerator_ids": ("0",)}
        return FoundNode(ip, NodeSpec(ranks=RankSet(), ip=ip, hostname="host", **found))

    nodes = [of("4", "NPU"), of("3", "NV_GPU"), of("2", "NPU"), of("5", None), of("1", "NV_GPU")]
    assert [item.node_id for item in in_order(nodes, None, RLINF, "5")[0]] == ["5", "1", "3", "2", "4"]


def ranked(kind: str, ranks: list[str | None]) -> list[FoundNode]:
    return [node(f"10.0.0.{index}", **{kind: rank}) for index, rank in enumerate(ranks)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (
            ["0", None, None],
            r"is set on 1 of 3 nodes, but not on 10.0.0.1 \(host\), 10.0.0.2 \(host\); set it on every",
        ),
        (["0", "1", "1"], r"different on every node, but 10.0.0.1 \(host\) has '1', 10.0.0.2 \(host\) has '1'$"),
        (["0", "1", "0+1"], r"but 10.0.0.1 \(host\) has '1', 10.0.0.2 \(host\) has '0\+1'$"),
        (["0-1", "0-1", "0-1"], r"but 10.0.0.0 \(host\) has '0-1', 10.0.0.1 \(host\) has '0-1', 10.0.0.2"),
        (
            ["0-3", "0-3", "3"],
            r"but 10.0.0.0 \(host\) has '0-3', 10.0.0.1 \(host\) has '0-3', 10.0.0.2 \(host\) has '3'$",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["variable", "label"])
def test_node_ranks_are_set_on_all_nodes_and_unique(kind: str, ranks: list[str | None], message: str) -> None:
    for num_nodes in (None, 1, 3):
        with pytest.raises(ClusterError, match=message) as caught:
            in_order(ranked(kind, ranks), num_nodes)
        assert not isinstance(caught.value, MissingRanks), "waiting for more nodes would not help"


@pytest.mark.parametrize("text", ["two", "02", "-2", "9" * 5000, "", "4+", "2-0"])
@pytest.mark.parametrize("kind", ["variable", "label"])
def test_what_is_no_node_rank_is_reported_for_each_node(kind: str, text: str) -> None:
    with pytest.raises(PlacementError) as caught:
        in_order(ranked(kind, [text, "1", text]), None)
    assert [fault.code for fault in caught.value.diagnostics] == ["bad-node-rank"] * 2
    first, second = (fault.message for fault in caught.value.diagnostics)
    assert first.startswith("10.0.0.0 (host): ") and second.startswith("10.0.0.2 (host): ")
    assert ("RANKPLAN_NODE_RANK" if kind == "variable" else "rankplan.io/node-rank") in first


@pytest.mark.parametrize("kind", ["variable", "label"])
def test_sums_of_products_are_ranks_and_none_is_outside(kind: str) -> None:
    nodes = ranked(kind, ["0+1*2+1", "none", "0+1*2+0", "1", "0*7"])
    for num_nodes in (None, 4):
        assert ordered(nodes, num_nodes)[0] == ["10.0.0.4", "10.0.0.3", "10.0.0.2", "10.0.0.0"]
    with pytest.raises(MissingRanks, match=r"no node has rank 0; no node has one"):
        in_order(ranked(kind, ["none", "none"]), None)


@pytest.mark.parametrize("kind", ["variable", "label"])
def test_nodes_with_one_range_divide_it_along_the_network(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    found = [("10.0.0.1", "r2"), ("10.0.0.2", "r1"), ("10.0.0.9", "r2"), ("10.0.0.10", "r1"), ("10.0.0.3", None)]
    texts = ["1-4"] * 4 + ["0"]
    nodes = [
        node(ip, **{kind: text}, **({} if rack is None else {"rack": rack}))  # type: ignore[arg-type]
        for (ip, rack), text in zip(found, texts, strict=True)
    ]
    for seed in range(5):
        shuffled = random.Random(seed).sample(nodes, len(nodes))
        by_rank, _ = in_order(shuffled, 5, ClusterFacts(levels=("rack",)))
        assert [str(one.spec.ip).rpartition(".")[2] for one in by_rank] == ["3", "2", "10", "1", "9"]
    with pytest.raises(MissingRanks, match="no node has rank 4; the ranks are 0-3"):
        in_order(nodes[1:], 5, ClusterFacts(levels=("rack",)))
    assert caplog.messages == []
    in_order(nodes, 5, ClusterFacts())
    assert "nodes of ranks 1-4 have no labels of the network; addresses decide" in caplog.messages[0]


@pytest.mark.parametrize("kind", ["variable", "label"])
def test_ranks_that_the_plan_does_not_use_may_be_missing(kind: str) -> None:
    nodes = ranked(kind, ["2", "none", "0", "7"])
    found, _ = in_order(nodes, 4, needed=RankSet([0, 2]))
    assert [one.node_id[:8] for one in found] == ["10.0.0.2", "", "10.0.0.0", "", "10.0.0.3"]
    assert [one.spec.healthy for one in found] == [True, False, True, False, True]
    with pytest.raises(MissingRanks, match="no node has rank 1; the ranks are 0,2,7"):
        in_order(nodes, 4, needed=RankSet("0-2"))


@pytest.mark.parametrize(
    ("ranks", "num_nodes", "missing"),
    [
        (["0", "1", "3"], 3, "no node has rank 2; the ranks are 0-1,3"),
        (["0", "1", "3"], None, "no node has rank 2; the ranks are 0-1,3"),
        (["1"], None, "no node has rank 0; the ranks are 1"),
        (["3", "4"], 3, "no node has rank 0-2; the ranks are 3-4"),
        (["4294967294"], None, "no node has rank 0-4294967293; the ranks are 4294967294"),
    ],
)
@pytest.mark.parametrize("kind", ["variable", "label"])
def test_a_missing_rank_may_still_join(kind: str, ranks: list[str | None], num_nodes: int | None, missing: str) -> None:
    with pytest.raises(MissingRanks, match=missing):
        in_order(ranked(kind, ranks), num_nodes)


@pytest.mark.parametrize("kind", ["variable", "label"])
def test_ranks_beyond_the_number_of_nodes_do_not_matter(kind: str) -> None:
    assert ordered(ranked(kind, ["7", "1", "0"]), 2)[0] == ["10.0.0.2", "10.0.0.1", "10.0.0.0"]


def test_nodes_that_cannot_be_used_have_their_place() -> None:
    by_address = [node("10.0.0.3"), node("10.0.0.2", fault="no rankplan"), node("10.0.0.1")]
    assert ordered(by_address)[0] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    by_label = [node("10.0.0.3", label="1"), node("10.0.0.2", label="0", fault="no rankplan")]
    assert ordered(by_label)[0] == ["10.0.0.2", "10.0.0.3"]
    by_variable = [node("10.0.0.2", fault="no rankplan"), node("10.0.0.3", variable="0")]
    assert ordered(by_variable)[0] == ["10.0.0.3", "10.0.0.2"]


def test_a_large_cluster_gets_a_short_message() -> None:
    nodes = [node(f"10.0.0.{index}", variable="0" if index == 0 else None) for index in range(200)]
    with pytest.raises(ClusterError, match=r"on 1 of 200 nodes, .* and 195 more") as caught:
        in_order(nodes, None)
    assert len(str(caught.value)) < 400


# ------------------------------------------------------------------------------------------------- on real raylets


class Started:
    """Raylets of given addresses, labels and variables, and a driver that is connected to them."""

    def __init__(self, raylets: simulate.Raylets) -> None:
        self.raylets = raylets
        self.told: list[str] = []
        ray.init(address=raylets.address, logging_level=logging.WARNING)

    def add(self, host: int, **options: Any) -> None:
        """Let another node join."""
        with simulate._environment(self.raylets._start_environment()):
            self.raylets._cluster.add_node(**by_hand(host, **options))

    @contextmanager
    def late(self, **arguments: Any) -> Iterator[Future[list[int]]]:
        """Begin `hosts` in a thread, and continue when it waits."""
        waiting = Event()
        self.told = []

        def on_progress(message: str) -> None:
            self.told.append(message)
            if message.startswith("waiting"):
                waiting.set()

        with ThreadPoolExecutor(1) as threads:
            found = threads.submit(self.hosts, on_progress=on_progress, **arguments)
            found.add_done_callback(lambda _: waiting.set())
            assert waiting.wait(240)
            if found.done():
                found.result()
            yield found

    def hosts(self, **arguments: Any) -> list[int]:
        """The last numbers of the addresses, by node rank, as a driver that connects finds them."""
        with Cluster(**arguments) as cluster:
            return [int(str(cluster.inventory.node(rank).ip).rpartition(".")[2]) for rank in range(cluster.num_nodes)]


def by_hand(host: int, *, env_vars: Mapping[str, str] | None = None, **options: Any) -> dict[str, Any]:
    variables = {**ONE_WORKER_AT_A_TIME, **(env_vars or {})}
    where = {"node_ip_address": f"127.0.0.{host}", "env_vars": variables}
    return {"num_cpus": 1, "object_store_memory": 80 << 20, **where, **options}


@contextmanager
def started(*nodes: dict[str, Any]) -> Iterator[Started]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            simulate, "_node_options", lambda _, rank: nodes[rank] | (ray_internals.SIMULATED_HEAD if not rank else {})
        )
        raylets = simulate.Raylets(Inventory.uniform(len(nodes), 0))
        raylets.start(lambda _: None)
    try:
        yield Started(raylets)
    finally:
        ray.shutdown()
        raylets.close()


@pytest.mark.long
def test_raylets_without_ranks_are_in_the_order_of_their_addresses(caplog: pytest.LogCaptureFixture) -> None:
    """One cluster that grows: the head is its last node, and the driver runs there."""
    caplog.set_level(logging.INFO, "rankplan")
    with started(by_hand(100), by_hand(10), by_hand(9)) as nodes:
        assert [nodes.hosts() for _ in range(2)] == [[9, 10, 100]] * 2
        logged = "3 nodes, in the order of the node addresses: 127.0.0.9 ("
        assert [message.startswith(logged) for message in caplog.messages] == [True, True]

        assert nodes.hosts(num_nodes=2) == nodes.hosts(cluster_cfg={"num_nodes": 2}) == [9, 10]
        warnings = caplog.records[-2:]
        assert {warning.levelno for warning in warnings} == {logging.WARNING}
        assert warnings[0].getMessage().startswith("using 2 of 3 nodes (num_nodes); not used: 127.0.0.100 (")
        own = 'the node of this program is not used; node_order="rlinf" puts it first'
        assert warnings[1].getMessage() == own
        assert nodes.hosts(node_order="rlinf") == [100, 10, 9]
        assert nodes.hosts(node_order="rlinf", num_nodes=1) == [100]
        assert own not in caplog.messages[-2:]

        with nodes.late(num_nodes=4) as late:
            nodes.add(2)
            assert late.result(60) == [2, 9, 10, 100]
        assert nodes.told[0] == "waiting for nodes: 3 of 4 have joined"
        assert "probing 4 nodes" in nodes.told

        nodes.add(3, env_vars={"RLINF_NODE_RANK": "0"})
        with pytest.raises(ClusterError) as refused:
            nodes.hosts()
        first, rest = str(refused.value).split(", but not on ")
        assert first == "RANKPLAN_NODE_RANK or RLINF_NODE_RANK is set on 1 of 5 nodes"
        assert [f"127.0.0.{host} (" in rest for host in (2, 3, 9, 10, 100)] == [True, False, True, True, True]
        assert rest.endswith("; set it on every node before its `ray start`, or on none")


@pytest.mark.long
def test_raylets_with_a_rank_label_are_in_its_order(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rankplan")
    label = "rankplan.io/node-rank"
    with started(by_hand(5, labels={label: "1", "rack": "r1"}), by_hand(6, labels={label: "0"})) as nodes:
        assert nodes.hosts() == [6, 5]
        assert caplog.messages[-1].startswith(f"2 nodes, in the order of the Ray label {label}: 127.0.0.6 (")
        with Cluster() as cluster:
            assert [cluster.inventory.node(rank).labels for rank in range(2)] == [{}, {"rack": "r1"}]
        nodes.add(7, labels={label: "1"})
        with pytest.raises(ClusterError, match=rf"{label} must be different on every node, but 127.0.0") as refused:
            nodes.hosts()
        assert "127.0.0.5 (" in str(refused.value) and "127.0.0.7 (" in str(refused.value)
        assert "127.0.0.6 (" not in str(refused.value)


@pytest.mark.long
def test_the_order_does_not_depend_on_who_joined_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four nodes start, and two are used: those with the lowest addresses, which join last."""
    monkeypatch.setattr(timeouts, "LAST_JOIN", 20.0)
    with started(by_hand(100), by_hand(9)) as nodes:
        with nodes.late(num_nodes=2) as late:
            nodes.add(3)
            nodes.add(2)
            assert late.result(100) == [2, 3]
        assert "waiting for nodes: more than 2 may be joining" in nodes.told
        monkeypatch.setattr(timeouts, "LAST_JOIN", 1.0)  # all nodes are older by now
        told: list[str] = []
        assert nodes.hosts(num_nodes=2, on_progress=told.append) == [2, 3]
        assert told == ["probing 4 nodes"]


@pytest.mark.long
def test_a_rank_on_the_only_node_is_left_over(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node with the first rank may still join: the only node is used once it has been alone for a while."""
    with started(by_hand(10, env_vars={"RLINF_NODE_RANK": "3"})) as nodes:
        monkeypatch.setattr(timeouts, "LAST_JOIN", 20.0)
        with nodes.late(num_nodes=1) as late:
            assert late.result(60) == [10]
        assert any(message.startswith("waiting for nodes: RANKPLAN_NODE_RANK or") for message in nodes.told)
        source = "RANKPLAN_NODE_RANK or RLINF_NODE_RANK"
        advice = "if it is left over from another cluster, unset it and start Ray again"
        (warning,) = caplog.messages
        assert warning.startswith("127.0.0.10 (")
        assert warning.endswith(f") is the only node, and used as node 0 despite its rank 3 ({source}); {advice}")
        assert nodes.hosts() == [10]
        nodes.add(9, env_vars={"RANKPLAN_NODE_RANK": "0"})
        assert nodes.hosts(num_nodes=1) == [9], "with two nodes, ranks count"


@pytest.mark.long
def test_nodes_that_are_not_needed_may_join_first() -> None:
    """Two of four nodes are used; they join last, one after the other, and their ranks decide."""
    ranks = [{"env_vars": {"RANKPLAN_NODE_RANK": str(rank)}} for rank in range(4)]
    with started(by_hand(10, **ranks[2]), by_hand(11, **ranks[3])) as nodes:
        with nodes.late(num_nodes=2) as late:
            nodes.add(13, **ranks[0])
            nodes.add(12, **ranks[1])
            assert late.result(60) == [13, 12]
        assert next(message for message in nodes.told if message.startswith("waiting")).endswith(
            "no node has rank 0-1; the ranks are 2-3"
        )


@pytest.mark.long
def test_a_rank_that_is_missing_is_waited_for() -> None:
    """Three of four nodes have joined, and the fourth has one of the three ranks that are used."""
    ranks = [{"env_vars": {"RANKPLAN_NODE_RANK": str(rank)}} for rank in range(4)]
    with started(by_hand(10, **ranks[0]), by_hand(11, **ranks[3]), by_hand(12, **ranks[1])) as nodes:
        with pytest.raises(ClusterError, match=r"^after 10 s, .*: no node has rank 2; the ranks are 0-1,3; start the"):
            nodes.hosts(num_nodes=3, timeout=10)
        with nodes.late(num_nodes=3) as late:
            nodes.add(2, **ranks[2])
            assert late.result(60) == [10, 12, 2]
        assert "waiting for nodes: RANKPLAN_NODE_RANK or RLINF_NODE_RANK: no node has rank 2; the ranks are 0-1,3" in (
            nodes.told
        )


@pytest.mark.long
def test_a_broken_node_is_skipped_if_it_is_not_needed(caplog: pytest.LogCaptureFixture) -> None:
    broken = {"labels": {"rankplan.io/accelerator-type": "GPU"}}
    with started(by_hand(10), by_hand(11), by_hand(12, **broken)) as nodes:
        assert nodes.hosts(num_nodes=2) == [10, 11]
        warning = "an unused node cannot run rankplan: node 127.0.0.12 "
        assert [message.startswith(warning) for message in caplog.messages] == [False, True]
        for arguments in ({}, {"num_nodes": 3}):
            with pytest.raises(ClusterError, match=r"^node 127.0.0.12 .*: unknown accelerator type 'GPU'"):
                nodes.hosts(**arguments)
        caplog.clear()
        nodes.add(9, **broken)
        assert nodes.hosts(num_nodes=2) == [10, 11]
        assert [message.startswith("an unused node cannot run") for message in caplog.messages][-2:] == [True, True]
        with pytest.raises(ClusterError, match=r"^node 127.0.0.9 .*: unknown accelerator type 'GPU'"):
            nodes.hosts(num_nodes=3)


@pytest.mark.long
def test_raylets_in_the_order_of_the_topology() -> None:
    """Domains from a label, from NeMo-RL's resource, and from Slurm's variables."""
    clique, slurm = "nvidia.com/gpu.clique", {"SLURM_TOPOLOGY_ADDR_PATTERN": "switch.node"}
    with started(
        by_hand(5, labels={clique: "u.9"}, env_vars={**slurm, "SLURM_TOPOLOGY_ADDR": "leaf2.n5"}),
        by_hand(6, labels={clique: "u.10"}, env_vars={**slurm, "SLURM_TOPOLOGY_ADDR": "leaf1.n6"}),
        by_hand(7, resources={"nvlink_domain_5c89": 1, "topo_rank": 4}),
    ) as nodes:
        assert nodes.hosts() == [5, 6, 7]
        assert nodes.hosts(node_order="topology") == [6, 5, 7]
        section = {"num_nodes": 2, "topology": {"order": "topology", "levels": [clique]}}
        assert nodes.hosts(cluster_cfg=section) == [5, 6]
        with Cluster(node_order="topology") as cluster:
            inventory = cluster.inventory
        assert inventory.levels == ("slurm/switch-0", clique)
        assert [inventory.node(rank).labels for rank in range(3)] == [
            {clique: "u.10", "slurm/switch-0": "leaf1"},
            {clique: "u.9", "slurm/switch-0": "leaf2"},
            {"nvlink_domain": "5c89", "topo_rank": "4"},
        ]
        assert Inventory.from_dict(inventory.to_dict()) == inventory
    with pytest.raises(ValueError, match="node_order is 'rack'; it must be address, topology or rlinf"):
        Cluster(node_order="rack")


@pytest.mark.long
def test_a_broken_node_may_be_the_one_with_the_missing_rank() -> None:
    variables = [{"env_vars": {"RANKPLAN_NODE_RANK": str(rank)}} for rank in range(3)]
    broken = {**variables[1], "labels": {"rankplan.io/accelerator-type": "GPU"}}
    with started(by_hand(10, **variables[0]), by_hand(11, **broken), by_hand(12, **variables[2])) as nodes:
        assert nodes.hosts(num_nodes=1) == [10]
        with pytest.raises(ClusterError, match=r"^node 127.0.0.11 .*: unknown accelerator type 'GPU'"):
            nodes.hosts(num_nodes=2, timeout=5)


@pytest.mark.long
def test_a_node_outside_the_plan_and_a_rank_that_it_does_not_use() -> None:
    """A head without a rank, and a plan on nodes 0 and 2: no node has rank 1."""
    section = {"num_nodes": 3, "component_placement": {"env": {"node_group": "node", "placement": "0,2"}}}
    plan = ComponentPlacement({"cluster": section}, Inventory.uniform(3, 0)).plan()
    texts = ["none", "0+2*1", "0+2*0"]
    with started(*(by_hand(10 - host, env_vars={"RANKPLAN_NODE_RANK": text}) for host, text in enumerate(texts))):
        with pytest.raises(ClusterError, match="num_nodes is 2, but the plan has 3 nodes"):
            Cluster(num_nodes=2, plan=plan)
        with Cluster(plan=plan) as cluster:
            assert [cluster.inventory.node(rank).ip for rank in range(3)] == ["127.0.0.8", None, "127.0.0.9"]
            groups = launch(plan, cluster)
            assert [report.node_rank for report in WorkerGroup.verify(groups["env"])] == [0, 2]
            assert [cluster.refresh().node(rank).healthy for rank in range(3)] == [True, False, True]
        with pytest.raises(ClusterError, match="no node has rank 1; the ranks are 0,2"):
            Cluster(num_nodes=3, timeout=5)

"""Which node is node 0: as a function of what is known of the nodes, and on raylets that are started by hand."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest
import ray
from rankplan import Cluster, ClusterError, Inventory
from rankplan.runtime import simulate
from rankplan.runtime.node_order import NodeFacts, in_order


def node(ip: str, hostname: str = "host", variable: str | None = None, label: str | None = None) -> NodeFacts:
    return NodeFacts(f"{ip}-{hostname}", ip, hostname, variable, label, "NO_ACCEL", None, (), {})


def addresses(nodes: list[NodeFacts]) -> list[str]:
    return [node.ip for node in nodes]


def test_rank_variables_come_first() -> None:
    nodes, source = in_order([node("10.0.0.1", variable="1", label="0"), node("10.0.0.2", variable="0", label="1")])
    assert (addresses(nodes), source) == (["10.0.0.2", "10.0.0.1"], "the node rank variables")


def test_labels_come_second() -> None:
    nodes, source = in_order([node("10.0.0.1", label="1"), node("10.0.0.2", label="0")])
    assert (addresses(nodes), source) == (["10.0.0.2", "10.0.0.1"], "the Ray label rankplan.io/node-rank")


def test_addresses_are_numbers() -> None:
    ordered = ["10.0.0.2", "10.0.0.9", "10.0.0.10", "10.0.1.1", "fe80::9", "fe80::10", "fe80:0:0:1::"]
    shuffled = random.Random(1).sample(ordered, len(ordered))
    nodes, source = in_order([node(ip) for ip in shuffled])
    assert (addresses(nodes), source) == (ordered, "the node addresses")


def test_hostnames_are_in_natural_order() -> None:
    names = ["a2-rack1", "a10-rack1", "a10-rack2", "a10-rack11", "b"]
    nodes, _ = in_order([node("10.0.0.1", name) for name in reversed(names)])
    assert [item.hostname for item in nodes] == names


def test_addresses_that_are_names_come_last() -> None:
    nodes, _ = in_order([node("node10"), node("node9"), node("10.0.0.1")])
    assert addresses(nodes) == ["10.0.0.1", "node9", "node10"]


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (
            ["0", None, None],
            r"is set on 1 of 3 nodes, but not on 10.0.0.1 \(host\), 10.0.0.2 \(host\); set it on every",
        ),
        (["0", "1", "1"], r"the ranks 0-2, each once, but 10.0.0.1 \(host\) has '1', 10.0.0.2 \(host\) has '1'"),
        (["0", "1", "3"], r"the ranks 0-2, each once, but 10.0.0.2 \(host\) has '3'"),
        (["1"], r"must give the one node the rank 0, but 10.0.0.0 \(host\) has '1'"),
        (["0", "1", "two"], r"but 10.0.0.2 \(host\) has 'two'"),
        (["0", "1", "02"], r"but 10.0.0.2 \(host\) has '02'"),
        (["0", "1", ""], r"but 10.0.0.2 \(host\) has ''"),
    ],
)
@pytest.mark.parametrize("kind", ["variable", "label"])
def test_node_ranks_are_all_or_none_and_each_once(kind: str, ranks: list[str | None], message: str) -> None:
    nodes = [node(f"10.0.0.{index}", **{kind: rank}) for index, rank in enumerate(ranks)]  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match=message):
        in_order(nodes)


def test_a_large_cluster_gets_a_short_message() -> None:
    nodes = [node(f"10.0.0.{index}", variable="0" if index == 0 else None) for index in range(200)]
    with pytest.raises(ClusterError, match=r"on 1 of 200 nodes, .* and 195 more") as caught:
        in_order(nodes)
    assert len(str(caught.value)) < 400


# ------------------------------------------------------------------------------------------------- on real raylets


class Started:
    """Raylets of given addresses, labels and variables, and a driver that is connected to them."""

    def __init__(self, raylets: simulate.Raylets) -> None:
        self.raylets = raylets
        ray.init(address=raylets.address, logging_level=logging.WARNING)

    def add(self, host: int, **options: Any) -> None:
        """Let another node join."""
        with simulate._environment(self.raylets._start_environment()):
            self.raylets._cluster.add_node(**by_hand(host, **options))

    def hosts(self, **arguments: Any) -> list[int]:
        """The last numbers of the addresses, by node rank, as a driver that connects finds them."""
        with Cluster(**arguments) as cluster:
            return [int(str(cluster.inventory.node(rank).ip).rpartition(".")[2]) for rank in range(cluster.num_nodes)]


def by_hand(host: int, **options: Any) -> dict[str, Any]:
    return {"num_cpus": 1, "node_ip_address": f"127.0.0.{host}", "object_store_memory": 80 << 20, **options}


@contextmanager
def started(*nodes: dict[str, Any]) -> Iterator[Started]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            simulate, "_node_options", lambda _, rank: nodes[rank] | (simulate._HEAD_OPTIONS if not rank else {})
        )
        raylets = simulate.Raylets(Inventory.uniform(len(nodes), 0), lambda _: None)
    try:
        yield Started(raylets)
    finally:
        ray.shutdown()
        raylets.close()


def test_raylets_without_ranks_are_in_the_order_of_their_addresses(caplog: pytest.LogCaptureFixture) -> None:
    """One cluster that grows: the head is its last node, and the driver runs there."""
    caplog.set_level(logging.INFO, "rankplan")
    with started(by_hand(100), by_hand(10), by_hand(9)) as nodes:
        assert [nodes.hosts() for _ in range(2)] == [[9, 10, 100]] * 2
        ordered = "3 node(s), in the order of the node addresses: 127.0.0.9 ("
        assert [message.startswith(ordered) for message in caplog.messages] == [True, True]

        assert nodes.hosts(num_nodes=2) == nodes.hosts(cluster_cfg={"num_nodes": 2}) == [9, 10]
        warning = caplog.records[-1]
        assert warning.levelno == logging.WARNING
        assert warning.getMessage().startswith("2 of 3 nodes are used (num_nodes), all but: 127.0.0.100 (")

        waiting, told = Event(), []

        def on_progress(message: str) -> None:
            told.append(message)
            waiting.set()

        with ThreadPoolExecutor(1) as threads:
            late = threads.submit(nodes.hosts, num_nodes=4, on_progress=on_progress)
            assert waiting.wait(60)
            nodes.add(2)
            assert late.result(60) == [2, 9, 10, 100]
        assert told[0] == "waiting for nodes: 3 of 4 are there"
        assert set(told[1:-1]) <= {told[0]} and told[-1] == "looking at 4 nodes"

        nodes.add(3, env_vars={"RLINF_NODE_RANK": "0"})
        with pytest.raises(ClusterError) as refused:
            nodes.hosts()
        first, rest = str(refused.value).split(", but not on ")
        assert first == "RANKPLAN_NODE_RANK or RLINF_NODE_RANK is set on 1 of 5 nodes"
        assert [f"127.0.0.{host} (" in rest for host in (2, 3, 9, 10, 100)] == [True, False, True, True, True]
        assert rest.endswith("; set it on every node before its ray start, or on none")


def test_raylets_with_a_rank_label_are_in_its_order(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rankplan")
    label = "rankplan.io/node-rank"
    with started(by_hand(5, labels={label: "1", "rack": "r1"}), by_hand(6, labels={label: "0"})) as nodes:
        assert nodes.hosts() == [6, 5]
        assert caplog.messages[-1].startswith(f"2 node(s), in the order of the Ray label {label}: 127.0.0.6 (")
        with Cluster() as cluster:
            assert [cluster.inventory.node(rank).labels for rank in range(2)] == [{}, {"rack": "r1"}]
        nodes.add(7, labels={label: "1"})
        with pytest.raises(
            ClusterError, match=rf"{label} must give the 3 nodes the ranks 0-2, each once, but 127.0.0"
        ) as refused:
            nodes.hosts()
        assert "127.0.0.5 (" in str(refused.value) and "127.0.0.7 (" in str(refused.value)
        assert "127.0.0.6 (" not in str(refused.value)

"""Which node is node 0."""

from __future__ import annotations

import random

import pytest
from rankplan import ClusterError
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

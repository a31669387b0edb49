"""PyTorch's recorded NUMA bindings, line by line: rankplan agrees, or a named difference explains why not."""

from __future__ import annotations

from typing import Any

import pytest
from rankplan._core import RankSet, cpu_list
from rankplan.hardware.machine import Machine
from rankplan.hardware.policies import BY_SOCKET, CORE_COMPLEX, EXCLUSIVE, POLICIES, Unmet, near_cpus
from support.goldens import lines, named

Line = dict[str, Any]
LINES = list(lines("numa_policies"))


def cpus(text: str) -> RankSet:
    found = cpu_list(text)
    assert found is not None
    return found


def machine(tree: Line) -> Machine:
    """Return the facts of a line, as the reader would find them in its files."""
    allowed = cpus(tree["allowed"])
    nodes = {int(node): cpus(text) for node, text in tree["nodes"].items()}
    packages = {name: cpus(text) for name, text in tree["packages"].items()}
    sockets = [[node for node, here in nodes.items() if here and here[0] in held] for held in packages.values()]
    levels = [cache["level"] for cache in tree["caches"] if cache["type"] != "Instruction"]
    largest = [cache for cache in tree["caches"] if cache["type"] != "Instruction" and cache["level"] == max(levels)]
    return Machine(
        {node: here & allowed for node, here in nodes.items()},
        {},
        tuple(RankSet(socket) for socket in sockets if socket),
        tuple(cpus(text) for text in tree["cores"]),
        tuple(cpus(text) for text in (largest[0]["shared"] if largest else [])),
    )


def difference(policy: str, tree: Line, index: int, ours: RankSet | Unmet, peer: Any) -> str | None:
    """Return the name of the difference that explains another answer."""
    numa = tree["gpus"][index]
    several = sum(bool(text) for text in tree["nodes"].values()) > 1
    if isinstance(peer, str):
        return named("numa-minus-one") if numa == -1 and several and isinstance(ours, Unmet) else None
    message = peer["error"]["message"]
    if policy == BY_SOCKET and ("empty sequence" in message or "CPUs corresponding to" in message):
        return named("numa-empty-node") if isinstance(ours, RankSet) else None
    if policy in (EXCLUSIVE, CORE_COMPLEX) and "numa_node'" in message and numa is not None:
        return named("numa-one-unknown") if isinstance(ours, RankSet) else None
    return None


def seen(line: Line) -> set[str]:
    """Compare a line and return the differences found."""
    tree, found = line["tree"], set()
    facts = machine(tree)
    for policy in POLICIES[1:]:
        answers = line["result"][policy]
        assert isinstance(answers, list)
        for index, (ours, peer) in enumerate(zip(near_cpus(policy, facts, tree["gpus"]), answers, strict=True)):
            same = isinstance(ours, Unmet) if isinstance(peer, dict) else ours == cpus(peer)
            if not same:
                name = difference(policy, tree, index, ours, peer)
                assert name, (line["id"], policy, index, ours, peer)
                found.add(name)
    return found


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["id"])
def test_the_policies_agree_with_pytorch(line: Line) -> None:
    seen(line)


def test_every_difference_occurs() -> None:
    assert set().union(*map(seen, LINES)) == {"numa-minus-one", "numa-empty-node", "numa-one-unknown"}

"""The seconds of weights between components, against every layout in plain Python."""

from __future__ import annotations

from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError, tune

LEVELS = ["block", "nvlink"]


def cluster(nodes: int, each: int, per_nvlink: int, per_block: int) -> Inventory:
    labels = [
        {"nvlink": str(node // per_nvlink), "block": str(node // (per_nvlink * per_block))} for node in range(nodes)
    ]
    entries = [{"ranks": node, "accelerators": each, "labels": one} for node, one in enumerate(labels)]
    return Inventory.from_dict({"nodes": entries, "levels": LEVELS})


def seconds_of_weights(places: list[range], each: int, domains: dict[str, int], bandwidth: dict[str, float]) -> float:
    """Return the seconds of one byte between the two places; ``domains`` has the nodes of a domain by level."""
    nodes = {accelerator // each for place in places for accelerator in place}
    for level, size in domains.items():
        if level in bandwidth and len({node // size for node in nodes}) == 1:
            return 1 / bandwidth[level]
    return 1 / bandwidth.get("network", min(bandwidth.values()))


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[int]]:
    each, nodes = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 8))
    names = ["actor", "rollout", "env"][: draw(st.integers(2, 3))]
    components = {}
    for name in names:
        sizes = draw(st.sets(st.integers(1, each * nodes), min_size=1, max_size=4))
        components[name] = {"seconds": {size: draw(st.integers(1, 40)) for size in sorted(sizes)}, "sizes": "measured"}
    known = draw(st.sets(st.sampled_from(["node", "nvlink", "block", "network"]), min_size=1))
    rates = sorted((draw(st.integers(1, 20)) / 20 for _ in known), reverse=True)
    ordered = [level for level in ("node", "nvlink", "block", "network") if level in known]
    costs = {
        "batches": draw(st.sampled_from([1, 2, 8, 64])),
        "sharing": "disaggregated",
        "components": components,
        "after": {"rollout": ["actor"]} if draw(st.booleans()) else {},
        "sync": {"from": "actor", "to": "rollout", "bytes": 1},
        "bandwidth": dict(zip(ordered, rates, strict=True)),
    }
    return costs, [nodes, each, draw(st.integers(1, 3)), draw(st.integers(1, 3))]


@given(cases())
def test_the_layout_and_the_sizes_are_the_best_with_the_weights(case: tuple[dict[str, Any], list[int]]) -> None:
    costs, (nodes, each, per_nvlink, per_block) = case
    domains = {"node": 1, "nvlink": per_nvlink, "block": per_nvlink * per_block}
    names, batches, best = list(costs["components"]), costs["batches"], None
    prices = {}
    for sizes in product(*(costs["components"][name]["seconds"] for name in names)):
        times = {
            name: costs["components"][name]["seconds"][size] / batches for name, size in zip(names, sizes, strict=True)
        }
        if sum(sizes) > nodes * each:
            continue
        chain = times["actor"] + times["rollout"] if costs["after"] else max(times["actor"], times["rollout"])
        seconds = max(chain, times.get("env", 0)) + (batches - 1) * max(times.values())
        for order in permutations(range(len(names))):
            places, start = {}, 0
            for index in order:
                places[names[index]] = range(start, start + sizes[index])
                start += sizes[index]
            far = seconds_of_weights([places["actor"], places["rollout"]], each, domains, costs["bandwidth"])
            prices[tuple((name, places[name].start, len(places[name])) for name in names)] = seconds + far
    best = min(prices.values(), default=None)
    inventory = cluster(nodes, each, per_nvlink, per_block)
    if best is None:
        with pytest.raises(PlacementError):
            tune(costs, inventory)
        return
    found = tune(costs, inventory).best
    ranks = {name: sorted(found.accelerators[name]) for name in names}
    assert found.seconds == pytest.approx(prices[tuple((name, ranks[name][0], len(ranks[name])) for name in names)])
    assert found.seconds == pytest.approx(best)


def test_a_smaller_rollout_stays_within_the_block_of_the_actor() -> None:
    costs = {
        "batches": 8,
        "sharing": "disaggregated",
        "components": {
            "actor": {"seconds": {8: 40}, "sizes": "measured"},
            "rollout": {"seconds": {8: 44, 24: 40}, "sizes": "measured"},
        },
        "sync": {"from": "actor", "to": "rollout", "bytes": 100e9},
        "bandwidth": {"node": 400e9, "block": 100e9, "network": 10e9},
    }
    found = tune(costs, cluster(4, 8, 1, 2)).best
    assert (found.schedule.sizes, found.seconds) == ({"actor": 8, "rollout": 8}, 45)
    assert "weights take 1 s" in found.why
    costs["bandwidth"] = {"node": 400e9, "network": 100e9}
    assert tune(costs, cluster(4, 8, 1, 2)).best.schedule.sizes == {"actor": 8, "rollout": 24}


def test_the_measured_number_that_decides_counts_the_weights() -> None:
    one = {"seconds": {4: 10, 8: 8}, "sizes": "measured"}
    costs = {
        "components": {"actor": one, "rollout": one},
        "sync": {"from": "actor", "to": "rollout", "bytes": 4e9},
        "bandwidth": {"node": 1e9},
    }
    found = tune(costs, Inventory.uniform(1, 8))
    assert [one.seconds for one in found.ranking] == [14, 16]
    assert found.sensitivity is not None and found.sensitivity.limit == pytest.approx(12, abs=1e-3)


def test_a_level_that_the_inventory_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = """\
components: {a: {seconds: {4: 3}}, b: {seconds: {4: 3}}}
sync: {from: a, to: b, bytes: 1000}
bandwidth:
  node: 400
  blok: 100
"""
    Path("costs.yaml").write_text(text)
    with pytest.raises(PlacementError) as refused:
        tune("costs.yaml", cluster(2, 4, 1, 1))
    (fault,) = refused.value.diagnostics
    assert (fault.code, fault.message, fault.help) == (
        "unknown-level",
        "unknown level `blok`",
        "did you mean `block`?",
    )
    assert (fault.line, fault.column) == (5, 9)

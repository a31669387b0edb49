"""The keys that RLinf's section and a job file share, in a mapping that is no section."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankplan._core import RankSet
from rankplan.memory.settings import GIB
from rankplan.nodes.groups import NodeEnvironment, NodeGroup
from rankplan.plans.rules import Pool
from rankplan.read.shared import SHARED_KEYS, Shared, read_shared
from rankplan.read.text.reader import Reader
from rankplan.read.values import stated_values

TEXT = """
job: run.sh
exclude: node-3
accelerator_memory: 80 GiB
topology:
  levels: [block, rack]
  keep: {actor: {tp: rack}}
node_groups:
  - {label: train, node_ranks: all, env_configs: [{node_ranks: 0, env_vars: [{A: 1}]}]}
pools: [{name: small, components: [actor], max_accelerators: 8}]
"""


def shared(content: Any, num_nodes: int | None = 4, components: tuple[str, ...] = ("actor",)) -> tuple[Shared, Reader]:
    """Return what a mapping or a file states, and its reader."""
    reader = Reader.load(content)
    return read_shared(reader, stated_values(reader, SHARED_KEYS), num_nodes, components), reader


def test_they_become_facts_and_rules_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "run.job.yaml").write_text(TEXT)
    stated, reader = shared(tmp_path / "run.job.yaml")
    assert not reader.faults and stated.groups_known and not stated.lost_groups
    facts, rules = stated.facts, stated.rules
    assert facts.node_groups == (NodeGroup("train", RankSet("0-3"), (NodeEnvironment(RankSet("0"), {"A": "1"}),)),)
    assert (facts.exclude, facts.levels, facts.accelerator_memory) == (("node-3",), ("block", "rack"), 80 * GIB)
    assert rules.keep == {"actor": {"tp": "rack"}} and rules.pools == (Pool("small", ("actor",), None, 8),)
    place = rules.where("keep", "actor", "tp")
    assert (place.path, place.line, place.column) == ("topology.keep.actor.tp", 7, 22)


def test_nothing_stated_is_nothing() -> None:
    assert shared({"job": "run.sh", "topology": None})[0] == Shared()


def test_every_fault_has_its_place_and_the_rest_is_read(tmp_path: Path) -> None:
    faulty = TEXT.replace("tp: rack", "tq: rack").replace("80 GiB", "80").replace("label: train", "labl: train")
    (tmp_path / "run.job.yaml").write_text(faulty.replace("[actor]", "[critic]").replace("node-3", "3"))
    stated, reader = shared(tmp_path / "run.job.yaml")
    assert [(fault.line, fault.path, fault.code) for fault in reader.refusal().diagnostics] == [
        (3, "exclude", "invalid-value"),
        (4, "accelerator_memory", "invalid-value"),
        (7, "topology.keep.actor.tq", "unknown-key"),
        (9, "node_groups[0].labl", "unknown-key"),
        (10, "pools[0].components[0]", "unknown-component"),
    ]
    assert stated.facts.levels == ("block", "rack") and stated.facts.node_groups == ()
    assert stated.facts.exclude == () and stated.lost_groups == frozenset()


def test_the_nodes_and_components_may_be_unknown() -> None:
    content = {
        "pools": [{"name": "a", "components": ["x"]}, {"name": "b", "node_ranks": "9-10", "protects": ["a"]}],
        "node_groups": [{"label": "far", "node_ranks": 9}],
    }
    assert not shared(content, None, ())[1].faults
    assert [fault.path for fault in shared(content)[1].faults] == [
        "pools[0].components[0]",
        "pools[1].node_ranks",
        "node_groups[0].node_ranks",
    ]


def test_every_fault_of_a_list_is_found_and_what_is_valid_stays() -> None:
    content = {
        "exclude": [1, "node-3", ""],
        "topology": {"keep": {"actor": {"tp": "rack", "tq": "rack"}}, "cap": {"rack": 0}, "segment": 2},
        "node_groups": [
            {"label": "a", "node_ranks": 0, "env_configs": [{"node_ranks": 0, "env_vars": {"A": None, "RANK": 1}}]},
            {"label": "b", "node_ranks": "x"},
            {"label": "c", "node_ranks": "all"},
        ],
        "pools": [{"name": "p", "components": [None]}, {"name": "q", "components": ["actor"]}],
    }
    stated, reader = shared(content)
    assert [fault.path for fault in reader.refusal().diagnostics] == [
        "exclude[0]",
        "exclude[2]",
        "topology.keep.actor.tq",
        "topology.cap.rack",
        "node_groups[0].env_configs[0].env_vars.A",
        "node_groups[0].env_configs[0].env_vars.RANK",
        "node_groups[1].node_ranks",
        "pools[0].components[0]",
    ]
    assert stated.facts.exclude == () and stated.lost_groups == {"b"} and stated.groups_known
    without_variables = NodeGroup("a", RankSet("0"), (NodeEnvironment(RankSet("0")),))
    assert stated.facts.node_groups == (without_variables, NodeGroup("c", RankSet("0-3")))
    assert stated.rules.keep == {"actor": {"tp": "rack"}} and stated.rules.segment == 2 and not stated.rules.cap
    assert stated.rules.pools == (Pool("q", ("actor",)),)

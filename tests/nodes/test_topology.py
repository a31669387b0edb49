"""Levels and domains: from labels, from the files and variables of each source, and as an order of nodes."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import ComponentPlacement, Inventory, PlacementError, Plan, load_config
from rankplan.hardware.nvml import Fabric
from rankplan.nodes.topology import Domains, detect, natural_order
from rankplan.nodes.topology.sources import fabric_labels, nemo_rl_labels, slurm_labels
from rankplan.read.inventories.topology_files import hostlist, read_kueue, read_slurm
from rankplan.rlinf import with_section
from support.outcomes import some
from support.paths import TOPOLOGY

RECORDED = load_config(TOPOLOGY / "labels.yaml").to_dict()


def inventory(*labels: dict[str, str], levels: list[str] | None = None) -> Inventory:
    nodes = [{"ranks": rank, "accelerators": 8, "labels": known} for rank, known in enumerate(labels)]
    return Inventory.from_dict({"nodes": nodes, **({} if levels is None else {"levels": levels})})


def parts(found: Domains) -> list[list[int]]:
    return [nodes for nodes in found.nodes() if nodes]


# ------------------------------------------------------------------------------------------------------------ domains


def test_a_domain_is_its_labels_from_the_outermost_level_inwards() -> None:
    """One NVLink domain in two blocks is two domains."""
    known = inventory(
        {"block": "b0", "nvlink": "a"},
        {"block": "b1", "nvlink": "a"},
        {"block": "b0", "nvlink": "a"},
        levels=["block", "nvlink"],
    )
    block, nvlink = known.domains
    assert (block.level, list(block.ids), block.names) == ("block", [0, 1, 0], (("b0",), ("b1",)))
    assert (list(nvlink.ids), nvlink.names, nvlink.parents) == ([0, 1, 0], (("b0", "a"), ("b1", "a")), (0, 1))
    assert (nvlink.text(1), nvlink.sizes(), len(nvlink)) == ("b1/a", [2, 1], 2)


def test_nodes_without_a_label_are_domains_of_their_own_sorted_last() -> None:
    known = inventory({"rack": "b"}, {}, {"rack": "a"}, {}, levels=["rack"])
    (rack,) = known.domains
    assert list(rack.ids) == [1, 2, 0, 3]
    assert rack.names == (("a",), ("b",), (None,), (None,))
    assert rack.text(3) == "no label"


def test_explicit_ranks_do_not_order_nodes_without_a_label() -> None:
    known = inventory({"topo_rank": "5"}, {"topo_rank": "1"}, {"rack": "a"}, levels=["rack"])
    assert list(known.domains[0].ids) == [1, 2, 0]


@pytest.mark.parametrize(
    ("text", "is_rank"), [("7", True), ("999999999", True), ("1000000000", False), ("+7", False), ("", False)]
)
def test_a_rank_has_at_most_nine_digits_and_nothing_else(text: str, is_rank: bool) -> None:
    known = inventory({"rack": "r1"}, {"rack": "r2", "topo_rank": text}, levels=["rack"])
    assert list(known.domains[0].ids) == ([1, 0] if is_rank else [0, 1])


def test_domains_are_in_natural_order() -> None:
    known = inventory(*({"rack": name} for name in ("r10", "r9", "r2", "R1")), levels=["rack"])
    assert [name for (name,) in known.domains[0].names] == ["R1", "r2", "r9", "r10"]


def test_an_explicit_rank_orders_domains_before_those_without() -> None:
    known = inventory(
        {"rack": "a"},
        {"rack": "b", "topo_rank": "7"},
        {"rack": "c", "topo_rank": "3"},
        {"rack": "c", "topo_rank": "9"},
        levels=["rack"],
    )
    assert [name for (name,) in known.domains[0].names] == ["c", "b", "a"]
    assert list(known.domains[0].ids) == [2, 1, 0, 0]


NAMES = st.sampled_from(["a", "b", "r2", "r10"])
LABELLED = st.lists(st.dictionaries(st.sampled_from(["x", "y", "z"]), NAMES, max_size=3), min_size=1, max_size=9)


def model(labels: list[dict[str, str]], levels: list[str]) -> list[list[tuple[Any, ...]]]:
    """Return the domain of each node at each level, as a tuple; a missing label is the node itself."""
    return [
        [tuple(known.get(key, (node,)) for key in levels[: depth + 1]) for node, known in enumerate(labels)]
        for depth in range(len(levels))
    ]


@given(labels=LABELLED)
def test_domains_are_those_of_the_tuples(labels: list[dict[str, str]]) -> None:
    levels = ["x", "y", "z"]
    known = inventory(*labels)
    for found, tuples in zip(some(known.domains_at(levels)), model(labels, levels), strict=True):
        same = {(a, b): found.ids[a] == found.ids[b] for a in range(len(labels)) for b in range(len(labels))}
        assert same == {(a, b): tuples[a] == tuples[b] for a, b in same}
        assert sorted(set(found.ids)) == list(range(len(found)))


@given(labels=LABELLED)
def test_the_order_keeps_every_domain_together(labels: list[dict[str, str]]) -> None:
    levels = ["x", "y", "z"]
    order = natural_order(labels, levels)
    assert sorted(order) == list(range(len(labels)))
    for found in inventory(*labels).domains_at(levels):
        sequence = [found.ids[node] for node in order]
        assert sequence == sorted(sequence)


def test_ranges_of_equal_nodes_are_not_expanded() -> None:
    entries = [
        {"ranks": f"{first}-{first + 99_999}", "labels": {"rack": f"r{first}"}} for first in range(0, 900_000, 100_000)
    ]
    known = Inventory.from_dict({"levels": ["rack"], "nodes": entries})
    assert known.domains[0].sizes() == [100_000] * 9


# ----------------------------------------------------------------------------------------------------------- inventory


def test_levels_are_stated_or_detected_and_are_saved(tmp_path: Path) -> None:
    stated = inventory({"rack": "a", "nvidia.com/gpu.clique": "c.0"}, levels=["rack"])
    detected = inventory({"rack": "a", "nvidia.com/gpu.clique": "c.0"})
    assert (stated.levels, detected.levels) == (("rack",), ("nvidia.com/gpu.clique",))
    assert inventory({"rack": "a"}).levels == () and "levels" not in inventory({"rack": "a"}).to_dict()
    for known in (stated, detected):
        known.save(tmp_path / "nodes.yaml")
        loaded = Inventory.load(tmp_path / "nodes.yaml")
        assert loaded == known == pickle.loads(pickle.dumps(known)) and loaded.levels == known.levels
    assert stated != detected
    section = {"num_nodes": 1, "topology": {"levels": ["nvidia.com/gpu.clique", "rack"]}}
    assert with_section(stated, section).levels == ("nvidia.com/gpu.clique", "rack")
    assert stated.with_levels([]).levels == ()


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        (["rak"], "no node has the label `rak`\nhelp: did you mean `rack`?"),
        (["rack", "rack"], "level `rack` is listed twice\nhelp: list each level once, outermost first"),
        (["node"], "the level `node` is always the innermost one\nhelp: remove it, or rename the label"),
        ([3], "3 is not a level\nhelp: write the key of a node label"),
        (
            "rack",
            "`levels` is 'rack'; it must be a list\nhelp: write a list of label keys, outermost first",
        ),
    ],
)
def test_levels_that_are_rejected(levels: Any, message: str) -> None:
    with pytest.raises(PlacementError) as refused:
        inventory({"rack": "a"}, levels=levels)
    assert message in str(refused.value)
    with pytest.raises(PlacementError) as refused:
        with_section(inventory({"rack": "a"}), {"num_nodes": 1, "topology": {"levels": levels}})
    assert message in str(refused.value) and (refused.value.path or "").startswith("cluster.topology.levels")


# ------------------------------------------------------------------------------------------------------------- sources


def test_levels_whose_labels_are_cut_off_stay_those_of_the_cluster(tmp_path: Path) -> None:
    nodes = [{"ranks": "0-1", "accelerators": 8}, {"ranks": "2-3", "accelerators": 8, "labels": {"rack": "a"}}]
    inventory = Inventory.from_dict({"levels": ["rack"], "nodes": nodes})
    first = inventory.first(2)
    assert first.levels == ("rack",) and first.to_dict()["levels"] == []
    section = {"num_nodes": 2, "topology": {"levels": ["rack"]}, "component_placement": {"actor": "0-15"}}
    plan = ComponentPlacement({"cluster": section}, inventory).plan()
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan == plan.on(plan.inventory)


def test_a_level_that_only_nodes_beyond_the_section_have_is_unknown() -> None:
    labels: list[dict[str, str]] = [{"zone": "z"}, {"zone": "z", "rack": "a"}]
    inventory = Inventory.from_dict({"nodes": [{"ranks": rank, "labels": each} for rank, each in enumerate(labels)]})
    section = {"num_nodes": 1, "topology": {"levels": ["rack"]}, "component_placement": {"actor": "0"}}
    with pytest.raises(PlacementError) as refused:
        ComponentPlacement({"cluster": section}, inventory)
    assert [(one.code, one.path) for one in refused.value.diagnostics] == [
        ("unknown-level", "cluster.topology.levels[0]")
    ]


@pytest.mark.parametrize("source", RECORDED)
def test_levels_are_detected_from_recorded_labels(source: str) -> None:
    nodes, levels = RECORDED[source]["nodes"], RECORDED[source]["levels"]
    assert detect(Counter(key for known in nodes for key in known)) == tuple(levels)
    assert inventory(*nodes).levels == tuple(levels)


@pytest.mark.parametrize(
    ("address", "pattern", "labels"),
    [
        (
            "root_switch.CELL1.iswi1r4s0c1l1.belenos386",
            "switch.switch.switch.node",
            {"slurm/switch-0": "iswi1r4s0c1l1", "slurm/switch-1": "CELL1", "slurm/switch-2": "root_switch"},
        ),
        ("b7.gpu-012.example.com", "block.node", {"slurm/block-0": "b7"}),
        ("s[0-1].leaf3.n1", "switch.switch.node", {"slurm/switch-0": "leaf3", "slurm/switch-1": "s[0-1]"}),
        ("traverse-k01g2", "node", {}),
        ("", "", {}),
        ("leaf3", "switch.node", {}),
        ("a.b", "ring.node", {}),
    ],
)
def test_the_variables_of_slurm(address: str, pattern: str, labels: dict[str, str]) -> None:
    variables = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern, "HOME": "/"}
    assert slurm_labels(variables) == labels
    assert slurm_labels({}) == {}


def test_the_resources_of_nemo_rl() -> None:
    resources = {"GPU": 8.0, "nvlink_domain_5c89-ab": 1.0, "topo_rank": 12.0, "node:10.0.0.1": 1.0}
    assert nemo_rl_labels(resources) == {"nvlink_domain": "5c89-ab", "topo_rank": "12"}
    assert nemo_rl_labels({"GPU": 8.0}) == {}


UUID = bytes.fromhex("0f884867ba2f42949155b495ff367eea")
CLIQUE = {"nvidia.com/gpu.clique": "0f884867-ba2f-4294-9155-b495ff367eea.1"}


@pytest.mark.parametrize(
    ("gpus", "labels"),
    [
        ([Fabric(3, UUID, 1)] * 4, CLIQUE),
        ([Fabric(3, bytes(16), 0)] * 8, {}),
        ([Fabric(2, UUID, 1)], {}),
        ([Fabric(2, bytes(16), 0), Fabric(3, UUID, 1)], CLIQUE),
        ([Fabric(3, b"\0" + UUID[1:], 0)], {"nvidia.com/gpu.clique": "00884867-ba2f-4294-9155-b495ff367eea.0"}),
        ([], {}),
    ],
)
def test_what_nvml_reports_of_the_fabric(gpus: list[Fabric], labels: dict[str, str]) -> None:
    assert fabric_labels(gpus) == labels


@pytest.mark.parametrize("other", [Fabric(3, UUID, 2), Fabric(3, UUID[::-1], 1), Fabric(3, bytes(16), 0)])
def test_gpus_of_a_node_that_disagree_are_an_error(other: Fabric) -> None:
    with pytest.raises(ValueError, match=r"GPU 0 is in NVLink domain 0f88.*\.1, GPU 1 in .*; the GPUs of a node"):
        fabric_labels([Fabric(3, UUID, 1), other])


def test_the_switches_of_topology_conf() -> None:
    labels = read_slurm(TOPOLOGY / "tree.conf")
    assert list(labels) == ["n1", "n2", "n3", "n4", "n5", "n6", "n10"]
    assert labels["n3"] == {"slurm/switch-0": "leaf2", "slurm/switch-1": "cell1", "slurm/switch-2": "root"}
    # a leaf beside a switch with leaves stands for the level between
    assert labels["n10"] == {"slurm/switch-0": "cell2", "slurm/switch-1": "cell2", "slurm/switch-2": "root"}


def test_the_blocks_of_topology_conf() -> None:
    labels = read_slurm(TOPOLOGY / "block.conf")
    assert labels["gpu04"] == {"slurm/block-0": "b2", "slurm/block-1": "b1..b2"}
    assert labels["gpu05"] == {"slurm/block-0": "b3", "slurm/block-1": "b3"}


def test_the_topologies_of_topology_yaml() -> None:
    path = TOPOLOGY / "topology.yaml"
    tree, blocks = read_slurm(path), read_slurm(path, "topo2")
    assert tree == read_slurm(path, "topo1") and list(tree) == ["node01", "node02", "node03", "node04"]
    assert tree["node03"] == {"slurm/switch-0": "s2", "slurm/switch-1": "sw_root"}
    assert blocks["node16"] == {"slurm/block-0": "b4", "slurm/block-1": "b1..b4"}
    assert blocks["node20"] == {"slurm/block-0": "b5", "slurm/block-1": "b5"}
    with pytest.raises(PlacementError, match="unknown topology `topo3`\nhelp: did you mean `topo2`"):
        read_slurm(path, "topo3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SwitchName=a Switches=b", "unknown switch `b`, a child of `a`"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]", "node `n1` is below switches `a` and `b`"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "topology.conf:2: `a` is defined twice"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a Nodes=n", "switch `a` is below itself"),
        ("SwitchName=a Switches=c\nSwitchName=b Switches=c\nSwitchName=c Nodes=n", "`c` is a child of `a` and of `b`"),
        ("BlockName=a Nodes=n1\nBlockName=b Nodes=n1", "node `n1` is in blocks `a` and `b`"),
        ("BlockName=a Nodes=n1\nBlockSizes=4,x", "topology.conf:2: 'x' is not a block size"),
        ("BlockName=a Nodes=n1\nBlockSizes=", "topology.conf:2: '' is not a block size"),
        ("SwitchName=a Nodes=" + "n[0-9]" * 30, "stands for too many names"),
        ("Nodes=n1", "line 1 names no switch and no block\nhelp: start the line with SwitchName= or BlockName="),
        (
            "SwitchNam=a Nodes=n1",
            "'SwitchNam=a', which is not a known setting\nhelp: did you mean `SwitchName`",
        ),
        ("SwitchName a", "line 1 has 'SwitchName', which is not a known setting\nhelp: write KEY=VALUE"),
        ("SwitchName=a Nodes=n[1-", "'n[1-' is not a list of names\nhelp: close every bracket"),
        ("SwitchName=a Nodes=n[3-1]", "'3-1' is not a range of numbers"),
        ("SwitchName=a Nodes=n[1-999999999]", "'n[1-999999999]' stands for too many names"),
        ("# nothing", "the file has no switches and no blocks with nodes"),
    ],
)
def test_a_faulty_topology_conf_is_rejected(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_text(text)
    with pytest.raises(PlacementError) as refused:
        read_slurm(path)
    assert message in str(refused.value) and refused.value.code == "invalid-value"


@pytest.mark.parametrize(
    "text",
    [
        "a: 1",
        "- {tree: 1}",
        "- 1",
        "[",
        "- {topology: a, flat: true}",
        "- {topology: a, tree: 1}",
        "- {topology: a, tree: {switches: [{nodes: n0}]}}",
        "- {topology: a, tree: {switches: [{switch: s, nodes: n0}, {switch: s, nodes: n1}]}}",
        "- {topology: a, block: {blocks: [{block: b, nodes: n0}, {block: b, nodes: n1}]}}",
        "- {topology: a, block: {block_sizes: 1.5, blocks: [{block: b, nodes: n0}]}}",
    ],
)
def test_a_faulty_topology_yaml_is_rejected(text: str, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(text)
    with pytest.raises(PlacementError):
        read_slurm(path)


def test_lists_of_names() -> None:
    assert hostlist("node[01-03,7],login,a[1-2]b[3-4]") == [
        *("node01", "node02", "node03", "node7", "login"),
        *("a1b3", "a1b4", "a2b3", "a2b4"),
    ]
    assert hostlist("") == []
    assert hostlist("n" + "[0]" * 2000) == ["n" + "0" * 2000]


def test_a_topology_of_kueue(tmp_path: Path) -> None:
    levels = read_kueue(TOPOLOGY / "kueue.yaml")
    assert levels == ("cloud.provider.com/topology-block", "cloud.provider.com/topology-rack")
    path = tmp_path / "kueue.yaml"
    for text, message in (
        ("kind: Pod", "the file is not a Topology object of Kueue"),
        ("kind: Topology\nspec: {levels: []}", "the file is not a Topology object of Kueue"),
        ("kind: Topology\nspec: {levels: [{nodeLabel: 3}]}", "`nodeLabel` is 3; it must be the key of a label"),
        ("kind: Topology\nspec: {levels: [{nodeLabel: node}]}", "`nodeLabel` is 'node'; it must be the key of a label"),
        ("kind: Topology\nspec: {levels: [{nodeLabel: a}, {nodeLabel: a}]}", "level `a` is listed twice"),
    ):
        path.write_text(text)
        with pytest.raises(PlacementError, match=message):
            read_kueue(path)


def test_labels_are_added_by_the_names_of_the_nodes() -> None:
    known = Inventory.from_dict(
        {
            "nodes": [
                {"ranks": 0, "hostname": "n1.example.com", "labels": {"own": "x"}},
                {"ranks": 1, "hostname": "n4"},
                {"ranks": 2, "ip": "10.0.0.9"},
                {"ranks": "3-4"},
            ]
        }
    )
    labels = {
        "n1": {"slurm/switch-0": "a"},
        "n4.example.com": {"slurm/switch-0": "b"},
        "node-3": {"slurm/switch-0": "c"},
    }
    found, unknown = known.with_labels(labels)
    assert [found.node(rank).labels for rank in range(5)] == [
        {"own": "x", "slurm/switch-0": "a"},
        {"slurm/switch-0": "b"},
        {},
        {"slurm/switch-0": "c"},
        {},
    ]
    assert list(unknown) == [2, 4] and found.levels == ("slurm/switch-0",)

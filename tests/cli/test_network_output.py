"""What the commands print about the network: spans at every level, what must be kept, excluded hardware, the tree."""

from __future__ import annotations

from math import lcm, prod
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import ComponentPlacement, Inventory, PlacementError, Plan
from rankplan.rlinf.dialect import DIALECT as rlinf
from support.commands import run
from support.paths import TOPOLOGY

NODES = """\
levels: [block, nvlink]
nodes:
  - {ranks: 0, accelerators: 4, labels: {block: b0, nvlink: a}}
  - {ranks: 1, accelerators: 4, labels: {block: b0, nvlink: b}}
  - {ranks: 2, accelerators: 4, labels: {block: b0, nvlink: a}}
  - {ranks: 3, accelerators: 4, labels: {block: b1, nvlink: a}}
"""
CONFIG = """\
cluster:
  num_nodes: 4
  topology: {keep: KEEP}
  component_placement:
    actor: {placement: all, parallel: {tp: 4, ep: 8}}
"""


@pytest.fixture(autouse=True)
def files(own_folder: Path) -> None:
    Path("nodes.yaml").write_text(NODES)
    keeping("{}")


def keeping(keep: str) -> None:
    Path("conf.yaml").write_text(CONFIG.replace("KEEP", keep))


def test_check_prints_the_spans_of_every_kind_at_every_level() -> None:
    done = run("check", "conf.yaml", "--inventory", "nodes.yaml")
    assert done.exit_code == 0
    assert done.stdout == (
        "conf.yaml: fine, 1 component, 16 processes on 4 nodes\n"
        "actor: 4 tp groups within nodes; 2 ep groups across nodes\n"
        "  nvlink: 4 tp groups within domains; 4 dp groups across domains; 2 ep groups across domains; "
        "4 of 8 edp groups cross a domain\n"
        "  block: 4 tp groups within domains; 4 dp groups across domains; 1 of 2 ep groups cross a domain; "
        "4 of 8 edp groups cross a domain\n"
        "warning[group-spans]: actor: expert group 1 (ranks 8-15) spans two block domains: node 2 (b0), node 3 (b1)\n"
        " --> conf.yaml:5:29  cluster.component_placement.actor.parallel\n"
        "  |\n"
        "5 |     actor: {placement: all, parallel: {tp: 4, ep: 8}}\n"
        "  |                             ^^^^^^^^\n"
        "  |\n"
        "  = help: `rankplan arrange` looks for an order of the nodes with fewer crossings\n"
        "warning[group-spans]: actor: 2 of 2 expert groups span nvlink domains; the first is group 0 (ranks 0-7): "
        "node 0 (a), node 1 (b)\n"
        " --> conf.yaml:5:29  cluster.component_placement.actor.parallel\n"
        "  |\n"
        "5 |     actor: {placement: all, parallel: {tp: 4, ep: 8}}\n"
        "  |                             ^^^^^^^^\n"
        "  |\n"
        "  = help: `rankplan arrange` looks for an order of the nodes with fewer crossings\n"
    )


def test_domains_with_the_same_label_are_told_apart_by_their_parents() -> None:
    """Node 2 is in domain a of block b0, node 3 in domain a of block b1."""
    keeping("{actor: {ep: nvlink}}")
    Path("nodes.yaml").write_text(NODES.replace("nvlink: b}", "nvlink: a}"))
    done = run("check", "conf.yaml", "--inventory", "nodes.yaml")
    assert "actor: expert group 1 (ranks 8-15) spans two nvlink domains: node 2 (b0/a), node 3 (b1/a)\n" in done.stdout


def test_keep_turns_crossings_into_errors() -> None:
    keeping("{actor: {tp: node, ep: nvlink, pp: rack}, critic: {tp: node}}")
    for command in ("check", "plan", "show"):
        done = run(command, "conf.yaml", "--inventory", "nodes.yaml")
        assert done.exit_code == 1
        found = [line for line in done.output.splitlines() if line.startswith(("error", " -->", "  = help"))]
        assert found == [
            "error[group-spans]: actor: 2 of 2 expert groups span nvlink domains; the first is group 0 (ranks 0-7): "
            "node 0 (a), node 1 (b)",
            " --> conf.yaml:3:43  cluster.topology.keep.actor.ep",
            "  = help: `rankplan arrange` looks for an order of the nodes with fewer crossings",
            "error[unknown-level]: unknown level `rack`",
            " --> conf.yaml:3:55  cluster.topology.keep.actor.pp",
            "  = help: the levels are: block, nvlink, node",
            "error[unknown-component]: unknown component `critic`",
            " --> conf.yaml:3:62  cluster.topology.keep.critic",
            "  = help: the components are: actor",
        ]


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ("{actor: {ep: node}}", "2 of 2 expert groups span nodes; the first is group 0 (ranks 0-7): nodes 0-1"),
        (
            "{actor: {edp: block}}",
            "4 of 8 expert-data groups span block domains; the first is group 4 (ranks 4,12)",
        ),
        ("{actor: {dp: block}}", "4 of 4 data groups span block domains"),
        ("{actor: {dp: nvlink}}", "ranks 0,4,8,12): nodes 0,2 (b0/a), node 1 (b0/b), node 3 (b1/a)"),
        ("{actor: {tp: node, pp: block, cp: nvlink}}", None),
        ("{actor: {tp: 3}}", "`tp` is 3; it must be a level"),
        ("{actor: tp}", "`actor` is 'tp'; it must be a mapping of kinds of groups to levels"),
        ("{actor: {tpp: node}}", "unknown kind of group `tpp`"),
        ("[actor]", "`keep` is ['actor']; it must be a mapping"),
    ],
)
def test_what_keep_accepts(keep: str, message: str | None) -> None:
    keeping(keep)
    done = run("check", "conf.yaml", "--inventory", "nodes.yaml")
    assert done.exit_code == (message is not None)
    assert (message or "") in done.stdout


def test_levels_are_not_checked_on_nodes_whose_labels_are_unknown() -> None:
    keeping("{actor: {tp: node, ep: nvlink}}, levels: [block, nvlink]")
    assert run("check", "conf.yaml", "--nodes", "4x4").exit_code == 0
    assert run("check", "conf.yaml").exit_code == 0
    done = run("check", "conf.yaml", "--nodes", "4x2")
    assert done.exit_code == 1 and "2 of 2 tensor groups span nodes" in done.stdout
    Path("bare.yaml").write_text("nodes: [{ranks: 0-3, accelerators: 4}]\n")
    done = run("check", "conf.yaml", "--inventory", "bare.yaml")
    assert done.exit_code == 1 and "unknown level `nvlink`" in done.stdout


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("order: rack", "`order` is 'rack'; it must be address or topology"),
        ("segment: 0", "`segment` is 0; it must be a whole number of 1 or more"),
        ("segment: {actor: 1.5}", "`actor` is 1.5; it must be a whole number of 1 or more"),
        ("segment: {actr: 2}", "unknown component `actr`"),
        ("segment: {actor: {block: 4, nvlink: 3}}", "4 nodes in a block cannot be divided into segments of 3"),
        ("segment: {actor: {blok: 4}}", "unknown level `blok`"),
        ("segment: x", "`segment` is 'x'; it must be a whole number of 1 or more"),
        ("levels: [blok]", "no node has the label `blok`\n"),
        ("level: [block]", "unknown key `level`"),
    ],
)
def test_faults_of_the_topology(key: str, message: str) -> None:
    keeping(f"{{}}, {key}")
    done = run("check", "conf.yaml", "--inventory", "nodes.yaml")
    assert done.exit_code == 1 and message in done.stdout
    assert " --> conf.yaml:3:" in done.stdout


def test_a_saved_plan_keeps_its_topology_and_levels() -> None:
    keeping("{actor: {tp: node}}, levels: [nvlink], order: topology, segment: 1")
    assert run("plan", "conf.yaml", "--inventory", "nodes.yaml", "--save", "plan.json").exit_code == 0
    plan = Plan.load("plan.json")
    assert plan.rules.segment == 1
    assert plan.inventory.levels == ("nvlink",)
    plan.check_keep()
    assert plan["actor"].spans("ep", "nvlink").crossing == 1
    with pytest.raises(PlacementError, match="unknown level `block`"):
        plan["actor"].spans("ep", "block")


def test_run_starts_nothing_if_a_group_crosses_what_must_be_kept() -> None:
    keeping("{actor: {ep: nvlink}}")
    done = run("run", "conf.yaml", "--nodes", "nodes.yaml", "--simulate")
    assert done.exit_code == 1 and "2 of 2 expert groups span nvlink domains" in done.stderr
    keeping("{actor: {ep: node}}")
    done = run("run", "conf.yaml", "--nodes", "4x4", "--simulate")
    assert done.exit_code == 1 and "2 of 2 expert groups span nodes" in done.stderr
    done = run("run", "conf.yaml", "--nodes", "4x4", "--simulate", "--without", "node-9")
    assert done.exit_code == 1 and "unknown node or accelerator 'node-9'" in done.stderr


def test_check_keep_has_the_path_of_the_rule() -> None:
    keeping("{actor: {ep: nvlink}}")
    plan = rlinf.plan("conf.yaml", Inventory.load("nodes.yaml"))
    with pytest.raises(PlacementError) as refused:
        plan.check_keep()
    assert (refused.value.code, refused.value.path) == ("group-spans", "cluster.topology.keep.actor.ep")


def test_without_leaves_hardware_out() -> None:
    Path("small.yaml").write_text("cluster: {num_nodes: 4, component_placement: {actor: all, env: 0}}\n")
    for names, rows in ((["node-1"], 12), (["nvlink=a"], 4), (["node-0/3", "node-2"], 11)):
        options = [part for name in names for part in ("--without", name)]
        done = run("check", "small.yaml", "--inventory", "nodes.yaml", *options)
        if "nvlink=a" in names:
            assert done.exit_code == 1 and "resource rank 0 is excluded: node 0" in done.stdout
        else:
            assert f"small.yaml: fine, 2 components, {rows + 1} processes on 3 of 4 nodes\n" in done.stdout
            assert "idle" not in done.stdout
    done = run("check", "small.yaml", "--inventory", "nodes.yaml", "--without", "node-7")
    assert done.exit_code == 1 and "unknown node or accelerator 'node-7'" in done.stdout


def test_without_on_a_saved_plan_names_what_the_plan_uses() -> None:
    Path("small.yaml").write_text("cluster: {num_nodes: 4, component_placement: {actor: 0-11}}\n")
    run("plan", "small.yaml", "--inventory", "nodes.yaml", "--save", "plan.json")
    assert run("plan", "plan.json", "--without", "node-3").exit_code == 0
    done = run("plan", "plan.json", "--without", "node-1")
    assert done.exit_code == 1 and "resource ranks 4-7 are excluded: node 1" in done.stderr


# ----------------------------------------------------------------------------------------------------------- inventory


def test_the_tree_of_an_inventory() -> None:
    Path("nodes.yaml").write_text(
        NODES + "  - {ranks: 4-6, accelerators: 2, unhealthy: 1}\n  - {ranks: 7, hostname: cpu, labels: {block: b1}}\n"
    )
    done = run("inventory", "--inventory", "nodes.yaml", "--without", "node-1", "-o", "saved.yaml")
    assert done.stdout == (
        "8 nodes, 22 NV_GPU; levels: block, nvlink\n"
        "  block b0: 3 nodes\n"
        "    nvlink a: nodes 0,2\n"
        "    nvlink b: node 1; excluded: node 1\n"
        "  block b1: 2 nodes\n"
        "    nvlink a: node 3\n"
        "    no nvlink: node 7 (cpu)\n"
        "  no block: nodes 4-6; excluded: accelerator 1 of node 4, accelerator 1 of node 5, accelerator 1 of node 6\n"
    )
    assert Inventory.load("saved.yaml") == Inventory.load("nodes.yaml").without(["node-1"])


def test_an_inventory_from_slurms_file() -> None:
    done = run("inventory", "--slurm", str(TOPOLOGY / "topology.yaml"), "--topology", "topo2", "-o", "saved.yaml")
    assert done.stderr == "assuming 8 accelerators on each node; set another number with --accelerators\n"
    assert done.stdout.splitlines()[:3] == [
        "20 nodes, 160 NV_GPU; levels: slurm/block-1, slurm/block-0",
        "  slurm/block-1 b1..b4: 16 nodes",
        "    slurm/block-0 b1: nodes 0-3 (node01, node02, node03, node04)",
    ]
    saved = Inventory.load("saved.yaml")
    assert saved.node(19).hostname == "node20" and saved.levels == ("slurm/block-1", "slurm/block-0")
    done = run("inventory", "--inventory", "nodes.yaml", "--slurm", str(TOPOLOGY / "tree.conf"))
    assert "does not list 4 nodes (0-3); each is a domain of its own" in done.stderr


def test_the_levels_of_kueue() -> None:
    labels = "labels: {cloud.provider.com/topology-rack: r1, cloud.provider.com/topology-block: b1}"
    Path("nodes.yaml").write_text(f"nodes: [{{ranks: 0-1, accelerators: 8, {labels}}}]\n")
    done = run("inventory", "--inventory", "nodes.yaml", "--kueue", str(TOPOLOGY / "kueue.yaml"))
    assert done.stdout.splitlines()[1:] == [
        "  cloud.provider.com/topology-block b1: 2 nodes",
        "    cloud.provider.com/topology-rack r1: nodes 0-1",
    ]
    Path("bare.yaml").write_text("nodes: [{ranks: 0-1, accelerators: 8}]\n")
    done = run("inventory", "--inventory", "bare.yaml", "--kueue", str(TOPOLOGY / "kueue.yaml"))
    assert done.exit_code == 1 and "no node has the label `cloud.provider.com/topology-block`" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the nodes with --nodes, --ray, --slurm or --kubernetes"),
        (["--inventory", "a.yaml", "--ray", "b"], "use only one of --nodes and --ray"),
        (["--inventory", "a.yaml", "--nodes", "2x8"], "use --nodes once; --inventory is its other name"),
        (
            ["--inventory", "a.yaml", "--accelerators", "4"],
            "use --accelerators only if Slurm's topology alone lists the nodes",
        ),
        (["--inventory", "a.yaml", "--topology", "b"], "--topology chooses a topology of --slurm"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    done = run("inventory", *arguments)
    assert done.exit_code == 2 and message in done.stderr


def test_nodes_without_known_labels_are_a_flat_tree() -> None:
    Path("nodes.yaml").write_text("nodes: [{ranks: 0-99, accelerators: 8}]\n")
    done = run("inventory", "--inventory", "nodes.yaml")
    assert done.stdout == "100 nodes, 800 NV_GPU; levels: none\n  nodes 0-99\n"


# --------------------------------------------------------------------------------------------------------------- spans


@given(
    labels=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), min_size=1, max_size=6),
    sizes=st.sampled_from(["{tp: 2}", "{tp: 2, ep: 4}", "{pp: 2, cp: 2}", "{tp: 4, pp: 2}"]),
    level=st.sampled_from(["outer", "inner"]),
)
def test_spans_are_counted_as_if_every_group_was_expanded(
    labels: list[tuple[str, str]], sizes: str, level: str
) -> None:
    nodes = [
        {"ranks": rank, "accelerators": 4, "labels": {"outer": outer, "inner": inner}}
        for rank, (outer, inner) in enumerate(labels)
    ]
    inventory = Inventory.from_dict({"levels": ["outer", "inner"], "nodes": nodes})
    parallel = dict(part.split(": ") for part in sizes.strip("{}").split(", "))
    entry = {"placement": "all", "parallel": {kind: int(size) for kind, size in parallel.items()}}
    config = {"cluster": {"num_nodes": len(labels), "component_placement": {"actor": entry}}}
    dense = [int(size) for kind, size in parallel.items() if kind != "ep"]
    experts = [int(size) for kind, size in parallel.items() if kind in ("ep", "pp")]
    if 4 * len(labels) % lcm(prod(dense), prod(experts)):
        with pytest.raises(PlacementError) as refused:
            ComponentPlacement(config, inventory)
        assert refused.value.code == "parallel-not-divisible"
        return
    actor = ComponentPlacement(config, inventory).plan()["actor"]
    domain = [pair[:1] if level == "outer" else pair for pair in labels]
    for kind in ("tp", "cp", "dp", "pp", "ep", "edp"):
        found = actor.spans(kind, level)
        crossing = [len({domain[actor.layout.place(slot)[0]] for slot in group}) > 1 for group in actor.groups(kind)]
        assert (found.crossing, found.within) == (sum(crossing), len(crossing) - sum(crossing))
        assert found.first_crossing == (crossing.index(True) if any(crossing) else None)


# ----------------------------------------------------------------------------------------------------------------- map


def test_the_map_frames_domains_and_connects_the_nodes_of_crossing_groups() -> None:
    assert run("show", "conf.yaml", "--inventory", "nodes.yaml", "-o", "map.svg").exit_code == 0
    picture = ElementTree.parse("map.svg").getroot()
    space = {"svg": "http://www.w3.org/2000/svg"}
    frames = [box(one) for one in picture.findall(".//svg:rect[@class='frame']", space)]
    cards = [box(one) for one in picture.findall(".//svg:rect[@class='card']", space)]
    names = [one.text for one in picture.findall("svg:text", space) if (one.text or "").startswith(("block", "nvlink"))]
    assert names == ["block b0", "block b1", "nvlink a", "nvlink b", "nvlink a", "nvlink a"]
    inside = [[index for index, card in enumerate(cards) if within(card, frame)] for frame in frames]
    assert inside == [[0, 1, 2], [3], [0], [1], [2], [3]]
    assert [[within(inner, outer) for inner in frames[2:]] for outer in frames[:2]] == [
        [True, True, True, False],
        [False, False, False, True],
    ]
    lines = picture.findall("svg:g[@class='crossing']", space)
    assert [line.findtext("svg:title", namespaces=space) for line in lines] == [
        "actor: expert group 0 on nodes 0-1 crosses nvlink domains",
        "actor: expert group 1 on nodes 2-3 crosses nvlink domains",
    ]
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    assert all(x >= 0 and y >= 0 and x + w <= width and y + h <= height for x, y, w, h in frames + cards)


def box(rect: ElementTree.Element) -> tuple[float, float, float, float]:
    x, y, width, height = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
    return x, y, width, height


def within(inner: tuple[float, ...], outer: tuple[float, ...]) -> bool:
    starts = outer[0] < inner[0] and outer[1] < inner[1]
    return starts and inner[0] + inner[2] < outer[0] + outer[2] and inner[1] + inner[3] < outer[1] + outer[3]


def test_the_map_on_a_terminal_has_headings_for_domains() -> None:
    done = run("show", "conf.yaml", "--inventory", "nodes.yaml")
    assert done.stdout.splitlines()[3:16] == [
        "network: 2 block domains, 3 nvlink domains, 4 nodes",
        "  block b0    3 nodes: actor; crossed by expert groups of actor",
        "    nvlink a  ##  2 nodes: actor; crossed by expert groups of actor",
        "    nvlink b  #   1 node: actor; crossed by expert groups of actor",
        "  block b1    1 node: actor; crossed by expert groups of actor",
        "    nvlink a  #   1 node: actor; crossed by expert groups of actor",
        "  each node: # in use",
        "actor: expert group 1 (ranks 8-15) spans two block domains: node 2 (b0), node 3",
        "  (b1)",
        "actor: 2 of 2 expert groups span nvlink domains; the first is group 0 (ranks",
        "  0-7): node 0 (a), node 1 (b)",
        "",
        "block b0",
    ]
    kept = [line for line in done.stdout.splitlines()[15:] if line.lstrip().startswith(("node", "block", "nvlink"))]
    assert kept == [
        *("block b0", "  nvlink a", "node 0  4 x NV_GPU", "  nvlink b", "node 1  4 x NV_GPU"),
        *("  nvlink a", "node 2  4 x NV_GPU", "block b1", "  nvlink a", "node 3  4 x NV_GPU"),
    ]
    Path("small.yaml").write_text("cluster: {num_nodes: 4, component_placement: {actor: 0-11}}\n")
    done = run("show", "small.yaml", "--inventory", "nodes.yaml", "--without", "node-3", "--without", "node-3/1")
    assert "node 3  4 x NV_GPU, excluded\n" in done.stdout and "idle:" not in done.stdout
    assert "block" not in run("show", "small.yaml", "--nodes", "4x4").stdout

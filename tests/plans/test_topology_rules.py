"""The rules of ``cluster.topology``: a plan that breaks one is refused, everywhere alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, Plan, arrange
from rankplan._core import Chunks
from rankplan.cli import main
from rankplan.errors import PlacementError
from rankplan.plans.component import Component
from rankplan.rlinf import with_section
from support.rules import rules_in

LEVELS = ("block", "nvlink")


def cluster(labels: list[tuple[str, str]]) -> Inventory:
    entries = [
        {"ranks": rank, "accelerators": 1, "hostname": f"n{rank}", "labels": dict(zip(LEVELS, pair, strict=True))}
        for rank, pair in enumerate(labels)
    ]
    return Inventory.from_dict({"levels": list(LEVELS), "nodes": entries})


def plan(nodes: Inventory, sizes: dict[str, int], topology: dict[str, Any] | None = None) -> Plan:
    """Return components with a process on each of so many nodes, one after another."""
    used = nodes.first(sum(sizes.values()))
    section = {"num_nodes": used.num_nodes, "component_placement": {}, "topology": topology or {}}
    used = with_section(used, section)
    parts, first = [], 0
    for name, count in sizes.items():
        rule = Chunks(list(range(first, first + count)), 1)
        parts.append(Component.place(name, used, ("cluster",), rule))
        first += count
    return Plan(used, parts, rules=rules_in(section))


def divided(ranks: list[int], parts: int) -> Iterator[list[int]]:
    size = len(ranks) // parts
    return (ranks[at : at + size] for at in range(0, len(ranks), size))


@given(st.data())
def test_what_is_stated_holds_or_is_refused(data: st.DataObject) -> None:
    """Plain Python looks at every set; `arrange` finds nodes with which the same rules hold, or proves that none do."""
    draw = data.draw
    labels = draw(st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("abc")), min_size=4, max_size=8))
    nodes = cluster(labels)
    sizes = {"actor": draw(st.sampled_from([2, 4])), "rollout": draw(st.integers(1, 4))}
    if sum(sizes.values()) > len(labels):
        sizes = {"actor": 2, "rollout": 1}
    ranks = {"actor": list(range(sizes["actor"]))}
    ranks["rollout"] = list(range(sizes["actor"], sum(sizes.values())))
    ranks["actor + rollout"] = [*chain.from_iterable(ranks.values())]
    who, level = draw(st.sampled_from(sorted(ranks))), draw(st.sampled_from(LEVELS))
    depth = LEVELS.index(level) + 1
    if draw(st.booleans()):
        name = "actor" if who == "rollout" else who.replace("actor + rollout", "all")
        size = 2 if len(ranks[who]) % 2 == 0 or name == "actor" else 1
        topology: dict[str, Any] = {"segment": {name: {level: size}}}
        chosen = ranks["actor"] if name == "actor" else ranks[who]
        ways = [[chosen[at : at + size] for at in range(0, len(chosen), size)]]
    else:
        most = draw(st.integers(1, 4))
        topology = {"keep": {who: {"world": level if most == 1 else {level: most}}}}
        ways = [list(divided(ranks[who], parts)) for parts in range(1, most + 1) if len(ranks[who]) % parts == 0]

    def holds(nodes: Inventory) -> bool:
        paths = [[node.labels[level] for level in LEVELS] for node in map(nodes.node, range(nodes.num_nodes))]
        return any(all(len({tuple(paths[rank][:depth]) for rank in one}) == 1 for one in way) for way in ways)

    # The sets of a way have the same size, and nodes outside them can be anywhere.
    domains = Counter(pair[:depth] for pair in labels).values()
    possible = any(sum(count // len(way[0]) for count in domains) >= len(way) for way in ways)
    stated = plan(nodes, sizes, topology)
    if holds(nodes):
        stated.check_keep()
    else:
        with pytest.raises(PlacementError) as refused:
            stated.check_keep()
        (fault,) = refused.value.diagnostics
        assert fault.code == ("segment-incomplete" if "segment" in topology else "group-spans")
        assert fault.path is not None and fault.path.startswith(f"cluster.topology.{next(iter(topology))}.")
    try:
        arranged = arrange(stated, nodes).inventory
    except PlacementError as refusal:
        assert not possible and "ended early" not in refusal.message
    else:
        assert possible
        assert holds(arranged)
        plan(arranged, sizes, topology).check_keep()


NODES = """\
levels: [block, nvlink]
nodes:
  - {ranks: 0-1, accelerators: 2, labels: {block: x, nvlink: a}}
  - {ranks: 2-3, accelerators: 2, labels: {block: x, nvlink: b}}
  - {ranks: 4-5, accelerators: 2, labels: {block: y, nvlink: a}}
"""
CONFIG = """\
cluster:
  num_nodes: 6
  topology: RULES
  component_placement: {actor: 0-7, rollout: 8-11}
"""


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("{segment: 4}", "6 nodes cannot be divided into segments of 4"),
        ("{segment: 3}", "2 of 2 segments span nvlink domains; the first is segment 0 (nodes 0-2): nodes 0-1 (a), "),
        ("{segment: {actor: {block: 4, nvlink: 2}}}", None),
        ("{segment: {actor: {block: 4, nvlink: 4}}}", "actor: segment 0 (nodes 0-3) spans two nvlink domains: "),
        ("{keep: {actor: {world: block}, rollout: {world: nvlink}}}", None),
        ("{keep: {actor: {world: {block: 1, nvlink: 2}}}}", None),
        (
            "{keep: {actor: {world: nvlink}}}",
            "actor: its 4 nodes span two nvlink domains: nodes 0-1 (a), nodes 2-3 (b)",
        ),
        (
            "{keep: {actor+rollout: {world: block}}}",
            "actor + rollout: their nodes span two block domains: nodes 0-3",
        ),
        ("{keep: {all: {world: {nvlink: 2}}}}", "unknown component `all`"),
        ("{cap: {nvlink: 1}}", "2 nodes of nvlink domain x/a, and 2 more domains are in use; `cap` allows 1"),
        ("{cap: {nvlink: 2}}", None),
        ("{segment: {actor: {rak: 2}}, keep: {actr: {world: block}}, cap: {blok: 2}}", "unknown level `rak`"),
        ("{segment: {actor: {block: 0, nvlink: x}}}", "`nvlink` is 'x'; it must be a whole number of 1 or more"),
        ("{keep: {actor: {world: {nvlink: 0, block: -1}}}}", "`block` is -1; it must be a whole number of 1 or more"),
        ("{keep: {actor+rollout: {ep: nvlink}}}", "`+` joins components for `world` only, not for ep"),
        ("{prefer: {actor: {world: {nvlink: 2}}}}", "`world` is {'nvlink': 2}; it must be a level"),
        ("{balance: {actor: 3}}", "`actor` is 3; it must be a level"),
        ("{cap: {nvlink: true}}", "`nvlink` is true; it must be a whole number of 1 or more"),
    ],
)
def test_commands_refuse_alike(tmp_path: Path, rules: str, message: str | None) -> None:
    (tmp_path / "nodes.yaml").write_text(NODES)
    (tmp_path / "conf.yaml").write_text(CONFIG.replace("RULES", rules))
    for command in ("check", "plan", "show"):
        done = CliRunner().invoke(main, [command, str(tmp_path / "conf.yaml"), "--inventory", f"{tmp_path}/nodes.yaml"])
        assert done.exit_code == (message is not None), done.output
        assert (message or "") in done.output and ("conf.yaml:3:" in done.output) == (message is not None)


def test_an_unmet_preference_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(NODES)
    (tmp_path / "conf.yaml").write_text(CONFIG.replace("RULES", "{prefer: {actor: {world: nvlink}}}"))
    done = CliRunner().invoke(main, ["check", str(tmp_path / "conf.yaml"), "--inventory", f"{tmp_path}/nodes.yaml"])
    assert done.exit_code == 0
    assert "warning[group-spans]: actor: its 4 nodes span two nvlink domains: nodes 0-1 (a), nodes 2-3" in done.stdout
    assert "conf.yaml:3:" in done.stdout

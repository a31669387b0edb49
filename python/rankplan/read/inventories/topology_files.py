"""Slurm's ``topology.conf``, ``topology.yaml`` and ``scontrol show topology`` as labels of nodes; Kueue's levels.

Nodes below switches get ``slurm/switch-0`` (their leaf switch), ``slurm/switch-1`` and so on; nodes in blocks get
``slurm/block-0``, and ``slurm/block-1`` and so on for the larger block sizes. Source: topology.conf(5),
topology.yaml(5) and scontrol(1) of Slurm. Kueue's ``Topology`` object lists keys of node labels, of which the last
stands for the node.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from rankplan.errors import Diagnostic, PlacementError
from rankplan.files import read_text
from rankplan.kinds import KUEUE_TOPOLOGY, SLURM_TOPOLOGY
from rankplan.nodes.facts import NODE_LEVEL
from rankplan.nodes.topology.sources import BLOCK, HOSTNAME, SWITCH
from rankplan.read.text.document import Document, Section
from rankplan.read.text.load import load_config
from rankplan.words import did_you_mean, path_text, shown

Labels = dict[str, dict[str, str]]
"""The labels of each node, by its name."""

_MOST_NAMES = 1 << 20
"""The most names of a list, and of all switches or blocks together: ten times as many as a large cluster has."""

_TOO_MANY = f"list at most {_MOST_NAMES:,} names"
_KEYS = ("SwitchName", "Switches", "Nodes", "LinkSpeed", "BlockName", "BlockSizes")
_SHOWN = ("Level", "BlockIndex", "BlockSize", "AggregatedBlock")
"""Keys that only ``scontrol show topology`` writes."""


@dataclass
class _Topology:
    """Switches, or blocks in order: the nodes of each, the switches below each, the sizes of blocks."""

    nodes: dict[str, list[str]] = field(default_factory=dict)
    below: dict[str, list[str]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    listed: int = 0
    shown: bool = False
    """Whether this is what ``scontrol`` shows: a switch lists the nodes of the switches below it, too."""

    def add(self, name: str, nodes: Any, below: Any) -> None:
        """Add a switch or a block. Raises `PlacementError` if its name is taken, or a list is damaged."""
        if name in self.nodes:
            raise _refusal(f"`{name}` is defined twice", "give each switch and block its own name")
        self.below[name] = hostlist(str(below or ""))
        self.nodes[name] = hostlist(str(nodes or ""))
        self.listed += len(self.below[name]) + len(self.nodes[name])
        if self.listed > _MOST_NAMES:
            raise _refusal(f"the lists up to `{name}` have {self.listed:,} names", _TOO_MANY)


def read_slurm(path: str | os.PathLike[str], topology: str | None = None, *, text: str | None = None) -> Labels:
    """Return the labels of the nodes in a ``topology.conf`` or ``topology.yaml``, known by its suffix.

    ``topology`` is the name of one in a ``topology.yaml``; by default it is the first with switches or blocks, the
    cluster's default before others. ``text`` is read in place of the content of the file. Raises `PlacementError` for a
    file that is neither, or that contradicts itself; ``OSError`` if it cannot be read.
    """
    file = os.fspath(path)
    try:
        return _labels(file, read_text(file) if text is None else text, topology)
    except PlacementError as error:
        faults = error.diagnostics
    raise PlacementError(replace(one, file=file) for one in faults)


def _labels(file: str, text: str, topology: str | None) -> Labels:
    if Path(file).suffix in (".yaml", ".yml"):
        switches, blocks = _of_yaml(Document(file, text).value(), topology)
    elif topology is not None:
        raise _refusal(f"unknown topology `{topology}`", "a topology.conf has one topology, without a name")
    else:
        switches, blocks = _of_conf(text)
    found, known = (blocks, _larger(blocks)) if blocks.nodes else (switches, _above(switches))
    labels: Labels = {}
    for name, nodes in found.nodes.items():
        for node in nodes:
            if node in labels and found is blocks:
                message = f"node `{node}` is in blocks `{labels[node][BLOCK + '0']}` and `{name}`"
                raise _refusal(message, "put each node into one block")
            if node in labels:
                message = f"node `{node}` is below switches `{labels[node][SWITCH + '0']}` and `{name}`"
                raise _refusal(message, "connect each node to one leaf switch")
            labels[node] = known[name]
    if not labels:
        raise _refusal("the file has no switches and no blocks with nodes", SLURM_TOPOLOGY.help)
    return labels


def _of_conf(text: str) -> tuple[_Topology, _Topology]:
    switches = _Topology()
    blocks = _Topology()
    for number, line in _lines(text):
        try:
            _add_line(line, number, switches, blocks)
        except PlacementError as error:
            raise PlacementError(replace(fault, line=number) for fault in error.diagnostics) from None
    if switches.shown:
        # What Slurm shows of a switch has the nodes of all those below it, too.
        listed = {name: set(nodes) for name, nodes in switches.nodes.items()}
        for name, below in switches.below.items():
            inside = set[str]().union(*(listed.get(other, ()) for other in below))
            switches.nodes[name] = [node for node in switches.nodes[name] if node not in inside]
    return switches, blocks


def _settings(line: str, number: int) -> dict[str, str]:
    """Return the ``KEY=VALUE`` words of a line, with keys in lower case."""
    known = {key.lower() for key in (*_KEYS, *_SHOWN)}
    settings: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if not equals or key.lower() not in known:
            help = did_you_mean(key, _KEYS) if equals else "write KEY=VALUE"
            raise _refusal(f"line {number} has {shown(word)}, which is not a known setting", help)
        settings[key.lower()] = value
    return settings


def _add_line(line: str, number: int, switches: _Topology, blocks: _Topology) -> None:
    words = _settings(line, number)
    names = words.get("switchname") or words.get("blockname") or ""
    if any(key.lower() in words for key in _SHOWN):
        switches.shown = True
        if "blocksize" in words:
            blocks.sizes = sorted({*blocks.sizes, *_sizes([words["blocksize"]])})
        if "aggregatedblock" in words:
            return
    if words and not names and "blocksizes" not in words:
        message = f"line {number} names no switch and no block"
        raise _refusal(message, "start the line with SwitchName= or BlockName=")
    topology = blocks if "blockname" in words else switches
    for name in hostlist(names):
        topology.add(name, words.get("nodes"), words.get("switches"))
    if "blocksizes" in words:
        blocks.sizes = _sizes(words["blocksizes"].split(","))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line, without comments; a line that ends in a backslash continues."""
    start, kept = 1, ""
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].rstrip()
        kept = kept or line[:0]
        if line.endswith("\\"):
            kept += line[:-1]
            continue
        yield start if kept else number, kept + line
        start, kept = number + 1, ""
    if kept:
        yield start, kept


def _of_yaml(content: Any, wanted: str | None) -> tuple[_Topology, _Topology]:
    if not isinstance(content, list):
        raise PlacementError([SLURM_TOPOLOGY.fault(content)])
    topologies: dict[str, tuple[_Topology, _Topology]] = {}
    defaults: list[str] = []
    for topology in content:
        if not isinstance(topology, Mapping) or "topology" not in topology:
            raise _refusal(f"{shown(topology)} is not a topology", "write `- topology: NAME` and its tree or block")
        name = str(topology["topology"])
        switches = _rows(topology, "tree", "switches", "switch")
        blocks = _rows(topology, "block", "blocks", "block")
        if switches is None and blocks is None:
            continue
        topologies[name] = switches or _Topology(), blocks or _Topology()
        if topology.get("cluster_default") is True:
            defaults.append(name)
    if wanted is not None and wanted not in topologies:
        raise _refusal(f"unknown topology `{wanted}`", did_you_mean(wanted, topologies, "those with nodes are"))
    chosen = wanted or next(iter([*defaults, *topologies]), None)
    return (_Topology(), _Topology()) if chosen is None else topologies[chosen]


def _rows(topology: Mapping[str, Any], kind: str, key: str, word: str) -> _Topology | None:
    """Return the switches or the blocks of a topology, ``None`` if it is of another kind."""
    section = topology.get(kind)
    rows = section.get(key) if isinstance(section, Mapping) else None
    if not isinstance(section, Mapping) or not isinstance(rows, list):
        return None
    found = _Topology()
    for row in (row for row in rows if isinstance(row, Mapping)):
        name = row.get(word)
        if name is None or isinstance(name, (list, Mapping)) or not str(name):
            raise _refusal(f"{shown(row)} is not a {word}: it has no name", f"write `{word}: NAME`")
        found.add(str(name), row.get("nodes"), row.get("children"))
    sizes = section.get("block_sizes")
    found.sizes = _sizes(sizes if isinstance(sizes, list) else [] if sizes is None else [sizes])
    return found


def _sizes(sizes: Sequence[Any]) -> list[int]:
    """Return block sizes as numbers."""
    texts = [str(size).strip() for size in sizes]
    wrong = next((text for text in texts if not re.fullmatch("[1-9][0-9]{0,7}", text)), None)
    if wrong is not None:
        raise _refusal(f"{shown(wrong)} is not a block size", "write numbers of nodes, e.g. 4,16")
    return sorted(map(int, texts))


def _above(switches: _Topology) -> Labels:
    """Return the labels of the nodes on each switch.

    A switch has the level above its highest child. Where a switch has a child more than one level below, the child also
    stands for the levels between.
    """
    parents = _parents(switches)
    heights = dict.fromkeys(switches.below, 0)
    paths: dict[str, list[str]] = {}
    for leaf in switches.below:
        path = paths[leaf] = [leaf]
        while (above := parents.get(path[-1])) is not None:
            if above in path:
                raise _refusal(f"switch `{leaf}` is below itself", "remove one of its children")
            heights[above] = max(heights[above], len(path))
            path.append(above)
    labels: Labels = {}
    for leaf, path in paths.items():
        ends = [*(heights[name] for name in path[1:]), heights[path[-1]] + 1]
        switch_at: dict[int, str] = {}
        for name, end in zip(path, ends, strict=True):
            switch_at |= dict.fromkeys(range(heights[name], end), name)
        # a node may be on a switch that also has switches
        switch_at |= dict.fromkeys(range(heights[leaf]), leaf)
        labels[leaf] = {f"{SWITCH}{level}": name for level, name in switch_at.items()}
    return labels


def _parents(switches: _Topology) -> dict[str, str]:
    """Return the switch above each one that has one."""
    parents: dict[str, str] = {}
    for name, children in switches.below.items():
        for child in children:
            if child not in switches.below:
                help = did_you_mean(child, switches.below)
                raise _refusal(f"unknown switch `{child}`, a child of `{name}`", help)
            if child in parents:
                message = f"switch `{child}` is a child of `{parents[child]}` and of `{name}`"
                raise _refusal(message, "give each switch one parent")
            parents[child] = name
    return parents


def _larger(blocks: _Topology) -> Labels:
    """Return the labels of the nodes in each block: consecutive blocks make up the larger ones."""
    names = list(blocks.nodes)
    base, larger = (blocks.sizes[0], blocks.sizes[1:]) if blocks.sizes else (1, [])
    labels: Labels = {}
    for index, name in enumerate(names):
        labels[name] = {f"{BLOCK}0": name}
        for level, size in enumerate(larger, 1):
            count = max(size // base, 1)
            together = names[index // count * count :][:count]
            labels[name][f"{BLOCK}{level}"] = "..".join(dict.fromkeys((together[0], together[-1])))
    return labels


_LIST = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")


def hostlist(text: str) -> list[str]:
    """Return the names of a list such as ``node[01-03,7],login``. Raises `PlacementError` for any other text."""
    names: list[str] = []
    if not text.isprintable():
        raise _refusal(f"{shown(text)} contains unprintable characters", "write names of letters, digits, - and .")
    if set("[]") & set(_BRACKET.sub("", text)):
        help = "close every bracket; `scontrol` cuts lines, unless SLURM_TOPO_LEN is large"
        raise _refusal(f"{shown(text)} is not a list of names", help)
    for part in filter(None, map(str.strip, _LIST.findall(text))):
        names += _expanded(part, _MOST_NAMES - len(names))
    return names


def _expanded(part: str, most: int) -> list[str]:
    """Return the names that a part with brackets stands for."""
    first, *texts = _BRACKET.split(part)  # names and the content of brackets in turn
    brackets = [_ranges(content) for content in texts[::2]]
    if prod(sum(last - first + 1 for first, last, _ in ranges) for ranges in brackets) > most:
        raise _refusal(f"{shown(part)} stands for too many names", _TOO_MANY)
    found = [first]
    for ranges, after in zip(brackets, texts[1::2], strict=True):
        numbers = [f"{number:0{width}}{after}" for first, last, width in ranges for number in range(first, last + 1)]
        found = [before + number for before in found for number in numbers]
    return found


def _ranges(content: str) -> list[tuple[int, int, int]]:
    """Return the first and the last number of each range in brackets, and the number of digits."""
    found = []
    for piece in content.split(","):
        numbers = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", piece)
        first, last = (numbers[1], numbers[2] or numbers[1]) if numbers else ("1", "0")
        if int(first) > int(last):
            raise _refusal(f"{shown(piece)} is not a range of numbers", "write ranges such as [0-3,8]")
        found.append((int(first), int(last), len(first)))
    return found


def _refusal(message: str, help: str) -> PlacementError:
    return PlacementError([Diagnostic("invalid-value", message, help)])


def read_kueue(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the levels of a ``Topology`` object, outermost first, without the level of the node.

    Raises `PlacementError` for any other file, ``OSError`` if it cannot be read.
    """
    content = load_config(path, kind=KUEUE_TOPOLOGY)
    spec = content.get("spec")
    rows = spec.get("levels") if isinstance(spec, Section) else None
    if content.get("kind") != "Topology" or not isinstance(rows, list) or not rows:
        message = KUEUE_TOPOLOGY.instead(content) or f"the file is not {KUEUE_TOPOLOGY.name}"
        raise PlacementError([_fault(content, (), message, KUEUE_TOPOLOGY.help)])
    levels = []
    for index, row in enumerate(rows):
        key = row.get("nodeLabel") if isinstance(row, Section) else None
        if not isinstance(key, str) or not key.strip() or not key.isprintable() or key == NODE_LEVEL:
            message = f"`nodeLabel` is {shown(key)}; it must be the key of a label"
            raise PlacementError([_fault(content, ("spec", "levels", index), message, "write nodeLabel: KEY")])
        if key in levels:
            message = f"level `{key}` is listed twice"
            raise PlacementError([_fault(content, ("spec", "levels", index), message, "list each level once")])
        levels.append(key)
    return tuple(levels[:-1] if levels[-1] == HOSTNAME else levels)


def _fault(content: Section, path: tuple[str | int, ...], message: str, help: str) -> Diagnostic:
    return content.document.locate(path, Diagnostic("invalid-value", message, help, path=path_text(path)))

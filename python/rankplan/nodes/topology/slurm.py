"""Slurm's ``topology.conf`` and ``topology.yaml`` as labels of nodes.

Nodes below switches get ``slurm/switch-0`` (their leaf switch), ``slurm/switch-1`` and so on; nodes in blocks get
``slurm/block-0``, and ``slurm/block-1`` and so on for the larger block sizes. Source: topology.conf(5) and
topology.yaml(5) of Slurm.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from rankplan._core import MAX_NODES
from rankplan.config.text.document import Document
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.topology.sources import BLOCK, SWITCH
from rankplan.words import did_you_mean, shown

Labels = dict[str, dict[str, str]]
"""The labels of each node, by its name."""

_KEYS = ("SwitchName", "Switches", "Nodes", "LinkSpeed", "BlockName", "BlockSizes")


@dataclass
class _Tree:
    """Switches and their children: switches or nodes."""

    switches: dict[str, list[str]] = field(default_factory=dict)
    nodes: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class _Blocks:
    """Blocks and their nodes in order, and the sizes of the base block and of larger ones."""

    nodes: dict[str, list[str]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)


def read_slurm(path: str | os.PathLike[str], topology: str | None = None) -> Labels:
    """Return the labels of the nodes in a ``topology.conf`` or ``topology.yaml``, known by its suffix.

    ``topology`` is the name of one in a ``topology.yaml``; by default it is the first with switches or blocks, the
    cluster's default before others. Raises `PlacementError` for a file that is neither, or that contradicts itself;
    ``OSError`` if it cannot be read.
    """
    file = os.fspath(path)
    try:
        text = Path(file).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _refusal(file, "the file is not UTF-8", "save the file as UTF-8") from None
    if Path(file).suffix in (".yaml", ".yml"):
        part = _of_yaml(file, text, topology)
    elif topology is not None:
        raise _refusal(file, f"unknown topology `{topology}`", "a topology.conf has one topology, without a name")
    else:
        part = _of_conf(file, text)
    labels = _of_tree(part, file) if isinstance(part, _Tree) else _of_blocks(part, file)
    if not labels:
        help = "pass Slurm's topology.conf or topology.yaml with switches or blocks"
        raise _refusal(file, "the file has no switches and no blocks with nodes", help)
    return labels


def _of_conf(file: str, text: str) -> _Tree | _Blocks:
    tree, blocks = _Tree(), _Blocks()
    for number, line in _lines(text):
        words = dict(_words(line, file, number))
        if not words:
            continue
        names = words.get("switchname") or words.get("blockname")
        if names is None and "blocksizes" not in words:
            message = f"line {number} names no switch and no block"
            raise _refusal(file, message, "start the line with SwitchName= or BlockName=", number)
        for name in hostlist(names, file, number) if names else ():
            if name in (tree.nodes if "switchname" in words else blocks.nodes):
                raise _refusal(file, f"`{name}` is defined twice", "give each switch and block its own name", number)
            if "blockname" in words:
                blocks.nodes[name] = hostlist(words.get("nodes", ""), file, number)
            else:
                tree.switches[name] = hostlist(words.get("switches", ""), file, number)
                tree.nodes[name] = hostlist(words.get("nodes", ""), file, number)
        if "blocksizes" in words:
            blocks.sizes = _sizes(words["blocksizes"].split(","), file, number)
    return blocks if blocks.nodes else tree


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


def _words(line: str, file: str, number: int) -> Iterator[tuple[str, str]]:
    for word in line.split():
        key, equals, value = word.partition("=")
        if not equals or key.lower() not in map(str.lower, _KEYS):
            help = "write KEY=VALUE" if not equals else did_you_mean(key, _KEYS)
            raise _refusal(file, f"line {number} has {shown(word)}, which is not a known setting", help, number)
        yield key.lower(), value


def _of_yaml(file: str, text: str, name: str | None) -> _Tree | _Blocks:
    content = Document(file, text).value()
    if not isinstance(content, list):
        raise _refusal(file, "the file is not a list of topologies", "pass Slurm's topology.yaml")
    found: dict[str, _Tree | _Blocks] = {}
    defaults: list[str] = []
    for one in content:
        if not isinstance(one, Mapping) or "topology" not in one:
            raise _refusal(file, f"{shown(one)} is not a topology", "write `- topology: NAME` and its tree or block")
        part = _part(one, file)
        if part is not None:
            found[str(one["topology"])] = part
            defaults += [str(one["topology"])] if one.get("cluster_default") is True else []
    if name is not None and name not in found:
        raise _refusal(file, f"unknown topology `{name}`", did_you_mean(name, found, "those with nodes are"))
    chosen = name or next(iter([*defaults, *found]), None)
    return _Tree() if chosen is None else found[chosen]


def _part(topology: Mapping[str, Any], file: str) -> _Tree | _Blocks | None:
    """Return the switches or the blocks of a topology, ``None`` if it has neither."""
    if (rows := _rows(topology, "tree", "switches")) is not None:
        tree = _Tree()
        for name, row in _named(rows, "switch", file):
            tree.switches[name] = hostlist(str(row.get("children") or ""), file)
            tree.nodes[name] = hostlist(str(row.get("nodes") or ""), file)
        return tree
    if (rows := _rows(topology, "block", "blocks")) is not None:
        sizes = topology["block"].get("block_sizes")
        listed = sizes if isinstance(sizes, list) else [] if sizes is None else [sizes]
        blocks = {name: hostlist(str(row.get("nodes") or ""), file) for name, row in _named(rows, "block", file)}
        return _Blocks(blocks, _sizes(listed, file))
    return None


def _rows(topology: Mapping[str, Any], kind: str, key: str) -> list[Mapping[str, Any]] | None:
    """Return the switches or the blocks of a topology, ``None`` if it is of another kind."""
    section = topology.get(kind)
    rows = section.get(key) if isinstance(section, Mapping) else None
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else None


def _named(rows: Sequence[Mapping[str, Any]], key: str, file: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each switch or block with its name."""
    seen: set[str] = set()
    for row in rows:
        name = row.get(key)
        if name is None or isinstance(name, (list, Mapping)) or not str(name):
            raise _refusal(file, f"{shown(row)} is not a {key}: it has no name", f"write `{key}: NAME`")
        if str(name) in seen:
            raise _refusal(file, f"`{name}` is defined twice", "give each switch and block its own name")
        seen.add(str(name))
        yield str(name), row


def _sizes(sizes: Sequence[Any], file: str, line: int | None = None) -> list[int]:
    """Return block sizes as numbers."""
    texts = [str(size).strip() for size in sizes]
    wrong = next((text for text in texts if not re.fullmatch("[1-9][0-9]{0,7}", text)), None)
    if wrong is not None:
        raise _refusal(file, f"{shown(wrong)} is not a block size", "write numbers of nodes, e.g. 4,16", line)
    return sorted(map(int, texts))


def _of_tree(tree: _Tree, file: str) -> Labels:
    """Return the labels of the nodes below switches.

    A switch has the level above its highest child. Where a switch has a child more than one level below, the child also
    stands for the levels between.
    """
    parents: dict[str, str] = {}
    for name, children in tree.switches.items():
        for child in children:
            if child not in tree.switches:
                help = did_you_mean(child, tree.switches)
                raise _refusal(file, f"unknown switch `{child}`, a child of `{name}`", help)
            if child in parents:
                message = f"switch `{child}` is a child of `{parents[child]}` and of `{name}`"
                raise _refusal(file, message, "give each switch one parent")
            parents[child] = name
    heights = dict.fromkeys(tree.switches, 0)
    for leaf in tree.switches:
        path = list(_upwards(leaf, parents))
        if len(path) > len(set(path)):
            raise _refusal(file, f"switch `{leaf}` is below itself", "remove one of its children")
        for height, name in enumerate(path):
            heights[name] = max(heights[name], height)
    labels: Labels = {}
    for leaf, nodes in tree.nodes.items():
        above: dict[str, str] = {}
        for name in _upwards(leaf, parents):
            end = heights[parents[name]] if name in parents else heights[name] + 1
            above |= {f"{SWITCH}{level}": name for level in range(heights[name], end)}
        # a node may be on a switch that also has switches
        above |= {f"{SWITCH}{level}": leaf for level in range(heights[leaf])}
        for node in nodes:
            if node in labels:
                message = f"node `{node}` is below switches `{labels[node][SWITCH + '0']}` and `{leaf}`"
                raise _refusal(file, message, "connect each node to one leaf switch")
            labels[node] = above
    return labels


def _upwards(name: str, parents: Mapping[str, str]) -> Iterator[str]:
    """Yield a switch and the switches above it; one of them twice if they form a ring."""
    seen = {name}
    yield name
    while name in parents:
        name = parents[name]
        yield name
        if name in seen:
            return
        seen.add(name)


def _of_blocks(blocks: _Blocks, file: str) -> Labels:
    """Return the labels of the nodes in blocks: consecutive blocks make up the larger ones."""
    names = list(blocks.nodes)
    base, larger = (blocks.sizes[0], blocks.sizes[1:]) if blocks.sizes else (1, [])
    labels: Labels = {}
    for index, name in enumerate(names):
        known = {f"{BLOCK}0": name}
        for level, size in enumerate(larger, 1):
            count = max(size // base, 1)
            together = names[index // count * count :][:count]
            known[f"{BLOCK}{level}"] = "..".join(dict.fromkeys((together[0], together[-1])))
        for node in blocks.nodes[name]:
            if node in labels:
                message = f"node `{node}` is in blocks `{labels[node][BLOCK + '0']}` and `{name}`"
                raise _refusal(file, message, "put each node into one block")
            labels[node] = known
    return labels


_LIST = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")


def hostlist(text: str, file: str = "", line: int | None = None) -> list[str]:
    """Return the names of a list such as ``node[01-03,7],login``. Raises `PlacementError` for any other text."""
    names: list[str] = []
    if set("[]") & set(_BRACKET.sub("", text)):
        raise _refusal(file, f"{shown(text)} is not a list of names", "close every bracket", line)
    for part in _LIST.findall(text):
        names += _expanded(part.strip(), file, line, MAX_NODES - len(names))
    return names


def _expanded(part: str, file: str, line: int | None, most: int) -> list[str]:
    """Return the names that a part with brackets stands for."""
    if not part:
        return []
    texts = _BRACKET.split(part)  # names and the content of brackets in turn
    brackets = [_ranges(content, file, line) for content in texts[1::2]]
    if prod(sum(last - first + 1 for first, last, _ in ranges) for ranges in brackets) > most:
        raise _refusal(file, f"{shown(part)} stands for too many names", f"list at most {MAX_NODES:,} nodes", line)
    names = texts[:1]
    for ranges, after in zip(brackets, texts[2::2], strict=True):
        numbers = [f"{number:0{width}}{after}" for first, last, width in ranges for number in range(first, last + 1)]
        names = [before + number for before in names for number in numbers]
    return names


def _ranges(content: str, file: str, line: int | None) -> list[tuple[int, int, int]]:
    """Return the first and the last number of each range in brackets, and the number of digits."""
    found = []
    for piece in content.split(","):
        numbers = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", piece)
        first, last = (numbers[1], numbers[2] or numbers[1]) if numbers else ("1", "0")
        if int(first) > int(last):
            raise _refusal(file, f"{shown(piece)} is not a range of numbers", "write ranges such as [0-3,8]", line)
        found.append((int(first), int(last), len(first)))
    return found


def _refusal(file: str, message: str, help: str, line: int | None = None) -> PlacementError:
    return PlacementError([Diagnostic("invalid-value", message, help, file=file or None, line=line)])

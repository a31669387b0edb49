"""What hovering over a config shows: the plan of a component, and what a key decides."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import yaml

from rankplan.editor.checked import Checked
from rankplan.editor.keys import dialect_at, keys_at
from rankplan.errors import KeyPath
from rankplan.plans.plan import Plan
from rankplan.plans.rules import component_names
from rankplan.render.lines import group_lines, sizes_text
from rankplan.words import by_nodes, counted, nodes_text


def path_at(root: yaml.Node | None, line: int, column: int) -> KeyPath:
    """Return the keys and indexes that lead to a position of a file."""
    path: list[str | int] = []
    part = _part_at(root, (line, column))
    while part is not None:
        path.append(part.name)
        part = _part_at(part.value, (line, column))
    return tuple(path)


class _Part(NamedTuple):
    """An entry of a mapping, or an item of a list: its key or index, its value, and the positions it reaches over."""

    name: str | int
    value: yaml.Node
    start: tuple[int, int]
    end: tuple[int, int]


def _part_at(node: yaml.Node | None, position: tuple[int, int]) -> _Part | None:
    """Return the part of a mapping or a list that a position is in: the last one, if aliases make them overlap."""
    parts = [part for part in _parts(node) if part.start <= position <= part.end]
    return parts[-1] if parts else None


def _parts(node: yaml.Node | None) -> Iterator[_Part]:
    """Yield the entries of a mapping or the items of a list, and nothing for a scalar."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            # An alias is where its anchor is, so the value may end before its key.
            end = max(_position(key.end_mark), _position(value.end_mark))
            yield _Part(str(key.value), value, _position(key.start_mark), end)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield _Part(index, item, _position(item.start_mark), _position(item.end_mark))


def _position(mark: yaml.Mark) -> tuple[int, int]:
    return mark.line, mark.column


def component_at(path: KeyPath, names: Collection[str]) -> list[str]:
    """Return the components that a path is about: the innermost part that names some, or a flat key that starts so."""
    for end in range(len(path), 0, -1):
        parts = component_names(str(path[end - 1]))
        dotted = [".".join(map(str, path[start:end])) for start in range(end)]
        named = [name for name in names if name in parts or name in dotted]
        if named:
            return named
    flat = str(path[-1]).lstrip("-").replace("-", "_") if len(path) == 1 else ""
    starting = [name for name in names if flat.startswith(f"{name}_")]
    return [max(starting, key=len)] if starting else []


def hover_text(buffer: Checked, line: int, column: int, dialect: str | None = None) -> str | None:
    """Return what is known of a position, as Markdown; ``None`` if nothing is."""
    path = path_at(buffer.root, line, column)
    if not path:
        return None
    parts = []
    about = keys_at(dialect_at(buffer.config, dialect), path[:-1]).get(str(path[-1]))
    if about:
        parts.append(f"`{path[-1]}`: {about}")
    if (plan := buffer.report.plan) is not None:
        parts += [component_text(plan, name) for name in component_at(path, tuple(plan))]
    return "\n\n".join(parts) or None


def component_text(plan: Plan, name: str) -> str:
    """Return where a component runs: its processes, nodes and accelerators, its sizes and what its groups cross."""
    component = plan[name]
    accelerators = component.rows.accelerators()
    counts = [counted(len(component), "process", "processes"), f"on {nodes_text(component.used_nodes())}"]
    lines = [f"**{name}**: {' '.join(counts)}, {counted(len(accelerators), 'accelerator')}"]
    if accelerators:
        lines.append(f"- accelerators: {by_nodes(plan.inventory.core.by_node(accelerators))}")
    if component.parallel.stated:
        lines.append(f"- {sizes_text(component)}")
    lines += [f"- {line.removeprefix(f'{name}: ').strip()}" for line in group_lines(plan.only(name))]
    return "\n".join(lines)

"""What hovering over a config shows: the plan of a component, and what a key decides."""

from __future__ import annotations

from collections.abc import Collection

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
    node, here = root, (line, column)
    while isinstance(node, yaml.CollectionNode):
        pairs = node.value if isinstance(node, yaml.MappingNode) else [(one, one) for one in node.value]
        inner = None
        for index, (key, value) in enumerate(pairs):
            ends = max((one.end_mark.line, one.end_mark.column) for one in (key, value))
            if (key.start_mark.line, key.start_mark.column) <= here <= ends:
                inner = (str(key.value) if isinstance(node, yaml.MappingNode) else index, value)
        if inner is None:
            break
        path.append(inner[0])
        node = inner[1]
    return tuple(path)


def component_at(path: KeyPath, names: Collection[str]) -> list[str]:
    """Return the components that a path is about: the innermost part that names some, or a flat key that starts so."""
    for end in range(len(path), 0, -1):
        parts = component_names(str(path[end - 1]))
        dotted = [".".join(map(str, path[start:end])) for start in range(end)]
        if found := [name for name in names if name in parts or name in dotted]:
            return found
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
    lines += [f"- {one.removeprefix(f'{name}: ').strip()}" for one in group_lines(plan.only(name))]
    return "\n".join(lines)

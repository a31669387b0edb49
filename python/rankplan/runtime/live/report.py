"""What runs on a cluster as text and as plain values. Names come from programs: they are printed safely, and cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rankplan._core import RankSet
from rankplan.errors import printable
from rankplan.render.tables import MOST_ROWS, table
from rankplan.runtime.usage.model import Difference, Doubled, Idle, Live, LiveActor, LiveGroup, LiveNode, LiveProcess
from rankplan.words import counted, nodes_text

if TYPE_CHECKING:
    from rich.table import Table

_LONGEST = 60
_MOST_LINES = 40
_NOBODY = "-"


def cut(text: str, most: int = _LONGEST) -> str:
    """Return a name from the cluster in at most so many columns, with control characters escaped."""
    text = printable(text[: most + 1])
    return text if len(text) <= most else f"{text[: most - 3]}..."


def actor_table(live: Live, *, everything: bool = False) -> Table:
    """Return a row for each actor that uses accelerators, or of ``everything``; equal ones of a node are folded.

    More than 64 actors are folded by node, class and group.
    """
    actors = [actor for actor in live.actors if everything or actor.uses]
    rows: dict[Any, list[LiveActor]] = {}
    is_folded = len(actors) > MOST_ROWS
    for actor in sorted(actors, key=_by_place):
        unique: Any = actor.actor_id
        if is_folded:
            unique = next(iter(actor.ranks), ""), actor.reserved
        row = (actor.node, actor.job, actor.class_name, actor.group, actor.state, unique)
        rows.setdefault(row, []).append(actor)
    result = table("node#", "address", "acc", "job", "component", "class", "name", "pid#", "bundle")
    for of_row in rows.values():
        result.add_row(*_cells(live, of_row))
    return result


def _by_place(actor: LiveActor) -> tuple[Any, ...]:
    """Return what actors are sorted by: their node, with those that have none last, their accelerators, their group."""
    node = (actor.node is None, actor.node or 0)
    first_accelerator = min(actor.accelerators or (), default=-1)
    bundle = (actor.group or "", actor.bundle or 0)
    return (*node, first_accelerator, actor.job, *bundle, not actor.reserved, actor.actor_id)


def _cells(live: Live, actors: Sequence[LiveActor]) -> Iterator[str]:
    """Yield the cells of a row: of one actor, or of several equal ones."""
    first = actors[0]
    several = len(actors) > 1
    yield _NOBODY if first.node is None else str(first.node)
    yield _NOBODY if first.node is None else str(live.inventory.node(first.node).ip)
    yield _accelerators(live, actors)
    yield cut(first.job)
    yield _component(actors)
    yield cut(first.class_name)
    yield _NOBODY if several or not first.name else cut(first.name)
    if first.pid is None:
        yield first.state
    elif several:
        yield counted(len(actors), "process", "processes")
    else:
        yield str(first.pid)
    yield _bundles(live, actors)


def _accelerators(live: Live, actors: Sequence[LiveActor]) -> str:
    """Return ``0-3``, or ``(0-7)`` for those of the bundle of actors that reserve none, ``(?)`` if Ray hides them."""
    first = actors[0]
    if first.node is None or not first.uses:
        return _NOBODY
    accelerators = RankSet().union(*[actor.accelerators or RankSet() for actor in actors])
    if not accelerators:
        return "(?)"
    text = live.ids(first.node, accelerators)
    return text if first.reserved else f"({text})"


def _bundles(live: Live, actors: Sequence[LiveActor]) -> str:
    """Return the group of these actors, with the bundles that they are in: ``POOL[0-3]``."""
    group = live.group.get(actors[0].group or "")
    if group is None:
        return _NOBODY
    bundles = RankSet(actor.bundle for actor in actors if actor.bundle is not None)
    return f"{cut(group.title)}[{bundles}]" if bundles else cut(group.title)


def _component(actors: Sequence[LiveActor]) -> str:
    """Return the component that the bundles of these actors are for, with its ranks, and the number of others there."""
    ranks: dict[str, RankSet] = {}
    for actor in actors:
        for name, of_actor in actor.ranks.items():
            ranks[name] = ranks.get(name, RankSet()) | of_actor
    if not ranks:
        return _NOBODY
    first = next(iter(ranks))
    text = f"{cut(first)} {ranks[first]}"
    return text if len(ranks) == 1 else f"{text} +{len(ranks) - 1}"


def live_lines(live: Live) -> list[str]:
    """Return the lines below the table: what waits, is idle or used twice, and the differences from the plan."""
    lines = [f"waits: {text}" for text in _few([_waiting(live, group) for group in live.waiting])]
    idle = _few([_idle_text(live, alike) for alike in _alike(live)])
    lines.append(f"idle: {'; '.join(idle)}" if idle else "idle: none")
    if live.doubled:
        lines += ["doubled:", *_few([_doubled_line(live, doubled) for doubled in live.doubled])]
    else:
        lines.append("doubled: none")
    strangers = [process for process in live.processes if process.actor_id is None]
    lines += [f"no actor's: {text}" for text in _few([_stranger(live, process) for process in strangers])]
    lines += [f"devices: {printable(text)}" for text in live.silent]
    return lines + difference_lines(live)


def _doubled_line(live: Live, doubled: Doubled) -> str:
    accelerator = live.ids(doubled.node, RankSet([doubled.accelerator]))
    users = ", ".join(map(cut, doubled.users))
    return f"  node {doubled.node}: {accelerator} is used by {users}"


def _stranger(live: Live, process: LiveProcess) -> str:
    memory = "" if process.memory is None else f", {process.memory:,} MiB"
    where = " of another pid namespace" if process.elsewhere else ""
    accelerator = live.ids(process.node, RankSet([process.accelerator]))
    return f"node {process.node}: {accelerator}: pid {process.pid}{where}{memory}"


def _waiting(live: Live, group: LiveGroup) -> str:
    bundles = counted(len(group.bundles), "bundle")
    sizes = "/".join(str(size) for size in dict.fromkeys(group.bundles))
    return f"{cut(group.title)} (job {group.job}, {group.state}, {bundles} of {sizes}): {group.waits}"


class _Alike(NamedTuple):
    """Nodes of which the same is idle, and what is idle of the first of them."""

    nodes: RankSet
    idle: Idle


def _alike(live: Live) -> list[_Alike]:
    """Return what is idle, with the nodes where the same is; nodes with bundles or tasks are listed alone."""
    nodes: dict[Any, list[int]] = {}
    first: dict[Any, Idle] = {}
    for idle in live.idle:
        is_unheld = not idle.bundles and not idle.in_tasks
        key = (idle.accelerators,) if is_unheld else (idle.node, idle.accelerators)
        nodes.setdefault(key, []).append(idle.node)
        first.setdefault(key, idle)
    return [_Alike(RankSet(nodes[key]), idle) for key, idle in first.items()]


def _idle_text(live: Live, alike: _Alike) -> str:
    """Return ``node 1: 2-3 (held by bundles 2-3 of POOL, no actor)``."""
    idle = alike.idle
    holders = []
    if idle.bundles:
        texts = []
        for group, bundles in idle.bundles.items():
            noun = "bundle" if len(bundles) == 1 else "bundles"
            owner = cut(live.group[group].title) if group in live.group else "another job"
            texts.append(f"{noun} {bundles} of {owner}")
        count = "" if idle.in_bundles == len(idle.accelerators) else f"{idle.in_bundles} "
        holders.append(f"{count}held by {' and '.join(texts)}, no actor")
    if idle.in_tasks:
        holders.append(f"{idle.in_tasks:g} held by tasks")
    text = f"{nodes_text(alike.nodes)}: {live.ids(idle.node, idle.accelerators)}"
    return f"{text} ({'; '.join(holders)})" if holders else text


def _few(lines: Sequence[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    if len(lines) <= _MOST_LINES:
        return list(lines)
    return [*lines[:_MOST_LINES], f"and {len(lines) - _MOST_LINES:,} more"]


def difference_lines(live: Live) -> list[str]:
    """Return the differences from the plan, one a line, with a title that counts the ranks; none without a plan."""
    compared = live.compared
    if compared is None:
        return []
    title = f"differs from {cut(compared.name)}:"
    total = compared.ranks
    if not compared.differences:
        places = "their nodes" if total != 1 else "its node"
        scope = f"{counted(total, 'rank')} on {places}" if total else "places only"
        return [f"{title} no ({scope})"]
    if total:
        differing = sum(map(len, compared.differing.values()))
        title += f" {differing} of {counted(total, 'rank')}"
    rows = [_difference(difference) for difference in compared.differences]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return [title, *_few(["  " + "   ".join(_padded(row, widths)).rstrip() for row in rows])]


def _padded(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yield the cells of a row, padded to their columns; a column that is empty in all rows is left out."""
    for cell, width in zip(row, [*widths, 0], strict=True):
        if width or cell:
            yield cell.ljust(width)


_VERBS = {"node": "runs on ", "accelerators": "runs on ", "not-running": "does not run: "}
"""What ranks with a difference of a kind do, in front of what was found."""


def _difference(difference: Difference) -> tuple[str, str, str]:
    """Return the ranks, what is planned for them, and what was found instead."""
    ranks = f"{cut(difference.component)} {difference.ranks}" if difference.component else ""
    if difference.kind == "group-spans":
        return ranks, difference.found, ""
    planned = f"planned {difference.planned}" if difference.planned else "not planned"
    return ranks, planned, f"{_VERBS.get(difference.kind, '')}{printable(difference.found)}"


def plain(live: Live, *, everything: bool = False) -> dict[str, Any]:
    """Return what runs as plain values, for JSON. Accelerators are local indices, null if Ray hides them."""
    values: dict[str, Any] = {
        "address": live.address,
        "nodes": [_plain_node(node) for node in live.nodes],
        "jobs": [_fields(job, "job", "entrypoint", "address", "pid") for job in live.jobs],
        "groups": [_plain_group(group) for group in live.groups],
        "actors": [_plain_actor(actor) for actor in live.actors if everything or actor.uses],
        "idle": [_plain_idle(idle) for idle in live.idle],
        "doubled": [
            {"node": doubled.node, "accelerator": doubled.accelerator, "users": list(doubled.users)}
            for doubled in live.doubled
        ],
    }
    if live.processes or live.silent:
        names = ("node", "accelerator", "pid", "memory", "actor_id", "elsewhere")
        values["processes"] = [_fields(process, *names) for process in live.processes]
        values["silent"] = list(live.silent)
    if live.compared is not None:
        counts = ("name", "job", "ranks", "up", "on_nodes", "on_accelerators", "untold", "groups", "claimed")
        values["plan"] = _fields(live.compared, *counts)
        values["differences"] = [_plain_difference(difference) for difference in live.compared.differences]
    return values


def _fields(record: object, *names: str) -> dict[str, Any]:
    """Return the fields of a record that have these names."""
    return {name: getattr(record, name) for name in names}


def _plain_node(node: LiveNode) -> dict[str, Any]:
    return {
        "node": node.rank,
        "node_id": node.node_id,
        "address": node.spec.ip,
        "hostname": node.spec.hostname,
        "accelerators": node.spec.num_accelerators,
        "type": node.spec.accelerator_type,
        "ids": list(node.spec.accelerator_ids) if node.ids_known else None,
        "free": node.free,
        "held_by_tasks": node.untold,
    }


def _plain_group(group: LiveGroup) -> dict[str, Any]:
    return {
        **_fields(group, "group_id", "name", "job", "state", "strategy", "detached"),
        "waits": group.waits or None,
        "component": group.component,
        "bundles": [
            {"accelerators": size, "node": node, "held": _list(held)}
            for size, node, held in zip(group.bundles, group.nodes, group.held, strict=True)
        ],
    }


def _plain_actor(actor: LiveActor) -> dict[str, Any]:
    names = ("actor_id", "class_name", "name", "job", "state", "pid", "node", "amount", "reserved", "detached")
    return {
        **_fields(actor, *names),
        "accelerators": _list(actor.accelerators),
        "group": actor.group,
        "bundle": actor.bundle,
        "ranks": {name: list(ranks) for name, ranks in actor.ranks.items()},
    }


def _plain_idle(idle: Idle) -> dict[str, Any]:
    return {
        "node": idle.node,
        "accelerators": list(idle.accelerators),
        "bundles": {group: list(bundles) for group, bundles in idle.bundles.items()},
        "in_bundles": idle.in_bundles,
        "in_tasks": idle.in_tasks,
    }


def _plain_difference(difference: Difference) -> dict[str, Any]:
    return {
        "kind": difference.kind,
        "component": difference.component or None,
        "ranks": list(difference.ranks),
        "planned": difference.planned or None,
        "found": difference.found,
    }


def _list(accelerators: RankSet | None) -> list[int] | None:
    return None if accelerators is None else list(accelerators)

"""What runs on a cluster as text and as plain values. Names come from programs: they are printed safely, and cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rankplan._core import RankSet
from rankplan.errors import printable
from rankplan.render.tables import MOST_ROWS, table
from rankplan.runtime.usage.model import Difference, Idle, Live, LiveActor, LiveGroup
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
    few = len(actors) <= MOST_ROWS
    for actor in sorted(actors, key=lambda actor: _place(live, actor)):
        unique: Any = actor.actor_id if few else (next(iter(actor.ranks), ""), actor.reserved)
        rows.setdefault((actor.node, actor.job, actor.class_name, actor.group, actor.state, unique), []).append(actor)
    result = table("node#", "address", "acc", "job", "component", "class", "name", "pid#", "bundle")
    for here in rows.values():
        result.add_row(*_cells(live, here))
    return result


def _place(live: Live, actor: LiveActor) -> tuple[Any, ...]:
    first = min(actor.accelerators or (), default=-1)
    group = actor.group or "", actor.bundle or 0
    return actor.node is None, actor.node or 0, first, actor.job, *group, not actor.reserved, actor.actor_id


def _cells(live: Live, actors: Sequence[LiveActor]) -> Iterator[str]:
    """Yield the cells of a row: of one actor, or of several equal ones."""
    one = actors[0]
    yield _NOBODY if one.node is None else str(one.node)
    yield _NOBODY if one.node is None else str(live.inventory.node(one.node).ip)
    yield _accelerators(live, actors)
    yield cut(one.job)
    yield _component(actors)
    yield cut(one.class_name)
    several = len(actors) > 1
    yield _NOBODY if several or not one.name else cut(one.name)
    process = one.state if one.pid is None else str(one.pid)
    yield counted(len(actors), "process", "processes") if several and one.pid is not None else process
    group = live.group.get(one.group or "")
    bundles = RankSet(actor.bundle for actor in actors if actor.bundle is not None)
    yield _NOBODY if group is None else cut(group.title) + (f"[{bundles}]" if bundles else "")


def _accelerators(live: Live, actors: Sequence[LiveActor]) -> str:
    """Return ``0-3``, or ``(0-7)`` for those of the bundle of actors that reserve none, ``(?)`` if Ray hides them."""
    one = actors[0]
    if one.node is None or not one.uses:
        return _NOBODY
    known = [actor.accelerators for actor in actors if actor.accelerators is not None]
    text = live.ids(one.node, RankSet().union(*known)) if any(known) else "?"
    return text if one.reserved and text != "?" else f"({text})"


def _component(actors: Sequence[LiveActor]) -> str:
    """Return the component that the bundles of these actors are for, with its ranks, and the number of others there."""
    ranks: dict[str, RankSet] = {}
    for actor in actors:
        for name, held in actor.ranks.items():
            ranks[name] = ranks.get(name, RankSet()) | held
    if not ranks:
        return _NOBODY
    name, held = next(iter(ranks.items()))
    return f"{cut(name)} {held}" + (f" +{len(ranks) - 1}" if len(ranks) > 1 else "")


def live_lines(live: Live) -> list[str]:
    """Return the lines below the table: what waits, is idle or used twice, and the differences from the plan."""
    lines = [f"waits: {text}" for text in _few([_waiting(live, group) for group in live.waiting])]
    idle = _few([_idle(live, one) for one in _alike(live)])
    lines += [f"idle: {'; '.join(idle)}" if idle else "idle: none"]
    if live.doubled:
        places = (f"node {one.node}: {live.ids(one.node, RankSet([one.accelerator]))}" for one in live.doubled)
        users = (", ".join(map(cut, one.users)) for one in live.doubled)
        lines += ["doubled:", *_few([f"  {place} is used by {who}" for place, who in zip(places, users, strict=True)])]
    else:
        lines.append("doubled: none")
    strangers = [one for one in live.processes if one.actor_id is None]
    for one in _few([_stranger(live, process) for process in strangers]):
        lines.append(f"no actor's: {one}")
    lines += [f"devices: {printable(text)}" for text in live.silent]
    return lines + difference_lines(live)


def _stranger(live: Live, process: Any) -> str:
    memory = "" if process.memory is None else f", {process.memory:,} MiB"
    where = " of another pid namespace" if process.elsewhere else ""
    accelerator = live.ids(process.node, RankSet([process.accelerator]))
    return f"node {process.node}: {accelerator}: pid {process.pid}{where}{memory}"


def _waiting(live: Live, group: LiveGroup) -> str:
    bundles = counted(len(group.bundles), "bundle")
    sizes = "/".join(str(size) for size in dict.fromkeys(group.bundles))
    return f"{cut(group.title)} (job {group.job}, {group.state}, {bundles} of {sizes}): {group.waits}"


def _alike(live: Live) -> Iterator[tuple[RankSet, Idle]]:
    """Yield what is idle, with the nodes where the same is; nodes with bundles or tasks are apart."""
    nodes: dict[Any, list[int]] = {}
    first: dict[Any, Idle] = {}
    for one in live.idle:
        key = (one.accelerators,) if not one.bundles and not one.in_tasks else (one.node, one.accelerators)
        nodes.setdefault(key, []).append(one.node)
        first.setdefault(key, one)
    return ((RankSet(nodes[key]), one) for key, one in first.items())


def _idle(live: Live, found: tuple[RankSet, Idle]) -> str:
    """Return ``node 1: 2-3 (held by bundles 2-3 of POOL, no actor)``."""
    nodes, one = found
    holders = []
    total, count = len(one.accelerators), one.in_bundles
    if one.bundles:
        texts = [
            f"{'bundle' if len(held) == 1 else 'bundles'} {held} of "
            + (cut(live.group[group].title) if group in live.group else "another job")
            for group, held in one.bundles.items()
        ]
        some = "" if count == total else f"{count} "
        holders.append(f"{some}held by {' and '.join(texts)}, no actor")
    if one.in_tasks:
        holders.append(f"{one.in_tasks:g} held by tasks")
    more = f" ({'; '.join(holders)})" if holders else ""
    return f"{nodes_text(nodes)}: {live.ids(one.node, one.accelerators)}{more}"


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
    name, total = cut(compared.name), compared.ranks
    if not compared.differences:
        told = f"{counted(total, 'rank')} on {'its node' if total == 1 else 'their nodes'}" if total else "places only"
        return [f"differs from {name}: no ({told})"]
    ranks = sum(map(len, compared.differing.values()))
    title = f"differs from {name}: {ranks} of {counted(total, 'rank')}" if total else f"differs from {name}:"
    rows = [_difference(one) for one in compared.differences]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return [title, *_few(["  " + "   ".join(_padded(row, widths)).rstrip() for row in rows])]


def _padded(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    return (cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True) if width or cell)


def _difference(one: Difference) -> tuple[str, str, str]:
    who = f"{cut(one.component)} {one.ranks}" if one.component else ""
    if one.kind == "group-spans":
        return who, one.found, ""
    planned = f"planned {one.planned}" if one.planned else "not planned"
    verb = {"node": "runs on ", "accelerators": "runs on ", "not-running": "does not run: "}.get(one.kind, "")
    return who, planned, f"{verb}{printable(one.found)}"


def plain(live: Live, *, everything: bool = False) -> dict[str, Any]:
    """Return what runs as plain values, for JSON. Accelerators are local indices, null if Ray hides them."""
    found: dict[str, Any] = {
        "address": live.address,
        "nodes": [
            {
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
            for node in live.nodes
        ],
        "jobs": [{name: getattr(job, name) for name in ("job", "entrypoint", "address", "pid")} for job in live.jobs],
        "groups": [
            {
                "group_id": group.group_id,
                "name": group.name,
                "job": group.job,
                "state": group.state,
                "strategy": group.strategy,
                "detached": group.detached,
                "waits": group.waits or None,
                "component": group.component,
                "bundles": [
                    {"accelerators": size, "node": node, "held": _list(held)}
                    for size, node, held in zip(group.bundles, group.nodes, group.held, strict=True)
                ],
            }
            for group in live.groups
        ],
        "actors": [_plain_actor(actor) for actor in live.actors if everything or actor.uses],
        "idle": [
            {
                "node": one.node,
                "accelerators": list(one.accelerators),
                "bundles": {group: list(held) for group, held in one.bundles.items()},
                "in_bundles": one.in_bundles,
                "in_tasks": one.in_tasks,
            }
            for one in live.idle
        ],
        "doubled": [
            {"node": one.node, "accelerator": one.accelerator, "users": list(one.users)} for one in live.doubled
        ],
    }
    names = ("node", "accelerator", "pid", "memory", "actor_id", "elsewhere")
    if live.processes or live.silent:
        found["processes"] = [{name: getattr(one, name) for name in names} for one in live.processes]
        found["silent"] = list(live.silent)
    if (compared := live.compared) is not None:
        counts = ("name", "job", "ranks", "up", "on_nodes", "on_accelerators", "untold", "groups", "claimed")
        found["plan"] = {name: getattr(compared, name) for name in counts}
        found["differences"] = [
            {
                "kind": one.kind,
                "component": one.component or None,
                "ranks": list(one.ranks),
                "planned": one.planned or None,
                "found": one.found,
            }
            for one in compared.differences
        ]
    return found


def _plain_actor(actor: LiveActor) -> dict[str, Any]:
    names = ("actor_id", "class_name", "name", "job", "state", "pid", "node", "amount", "reserved", "detached")
    found = {name: getattr(actor, name) for name in names}
    ranks: Mapping[str, list[int]] = {name: list(held) for name, held in actor.ranks.items()}
    return found | {
        "accelerators": _list(actor.accelerators),
        "group": actor.group,
        "bundle": actor.bundle,
        "ranks": ranks,
    }


def _list(accelerators: RankSet | None) -> list[int] | None:
    return None if accelerators is None else list(accelerators)

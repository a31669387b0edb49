"""The map of what runs: a plan of the places that were found, drawn like any other, with differing ranks marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeAlias

from rankplan._core import CLUSTER, Chunks, RankSet
from rankplan.errors import PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component
from rankplan.plans.plan import Plan
from rankplan.render.map.model import Notes
from rankplan.render.map.page import page
from rankplan.render.map.svg import svg
from rankplan.runtime.live.report import cut, live_lines
from rankplan.runtime.usage.model import Difference, Live, LiveActor

_Places: TypeAlias = Sequence[Sequence[tuple[int, int]]]
"""The accelerators of each rank: node ranks and local indices."""


def drawn(live: Live, suffix: str) -> str:
    """Return the map of what runs as ``.svg`` or ``.html``.

    Ranks of the plan are where they were found; one that is elsewhere, or does not run, is marked. Other actors are
    components of their own, by job and class.
    """
    healthy = [live.inventory.node(rank).changed(healthy=True) for rank in range(live.inventory.num_nodes)]
    inventory = live.inventory.updated(healthy)
    components: list[Component] = []
    tips: dict[str, list[str]] = {}
    for name, places, texts in [*_planned(live), *_others(live)]:
        component = _component(name, inventory, places)
        if component is not None:
            components.append(component)
            tips[name] = texts
    marked: dict[str, RankSet] = {}
    if live.compared is not None:
        marked = {name: ranks for name, ranks in live.compared.differing.items() if name in tips}
    legend = ["! and a red frame: not as planned"] if marked else []
    notes = Notes((*live_lines(live), *legend), tips, marked)
    plan = Plan(inventory, components)
    title = f"live: {live.address}"
    return svg(plan, title, notes=notes) if suffix == ".svg" else page(plan, title, notes=notes)


def _component(name: str, inventory: Inventory, places: _Places) -> Component | None:
    """Return the component with these places, ``None`` if they are none that a plan could have."""
    try:
        resources = [inventory.core.resource(*place) for place in chain.from_iterable(places)]
        rule = Chunks(resources, len(places[0]))
        return Component.place(name, inventory, (CLUSTER,), rule)
    except (PlacementError, IndexError):
        return None


def _planned(live: Live) -> Iterator[tuple[str, _Places, list[str]]]:
    """Yield the components of the plan whose ranks are told: each rank's accelerators, and what is known of it."""
    compared = live.compared
    if compared is None:
        return
    actors: dict[tuple[str, int], list[LiveActor]] = {}
    for actor in live.actors:
        for name, ranks in actor.ranks.items():
            for rank in ranks:
                actors.setdefault((name, rank), []).append(actor)
    for name, places in compared.places.items():
        differences = [difference for difference in compared.differences if difference.component == name]
        if list(places) == list(range(len(compared.plan[name]))):
            texts = [_text(rank, actors.get((name, rank), ()), differences) for rank in places]
            yield name, list(places.values()), texts


def _text(rank: int, actors: Sequence[LiveActor], differences: Sequence[Difference]) -> str:
    """Return one line about a rank: the actors in its bundle, and what differs."""
    texts = [cut(actor.title) for actor in actors[:2]]
    for difference in differences:
        if rank not in difference.ranks:
            continue
        if difference.kind == "group-spans":
            texts.append(difference.found)
        else:
            texts.append(f"planned {difference.planned}, found {difference.found}")
    return "; ".join(texts) or "no actor"


def _others(live: Live) -> Iterator[tuple[str, _Places, list[str]]]:
    """Yield the actors that are no rank of the plan, by job, class and number of accelerators."""
    groups: dict[tuple[str, int], list[LiveActor]] = {}
    for actor in live.actors:
        if actor.node is not None and actor.accelerators and not actor.ranks:
            kind = actor.class_name if actor.reserved else f"({actor.class_name})"
            name = cut(f"job {actor.job}: {kind}")
            groups.setdefault((name, len(actor.accelerators)), []).append(actor)
    first_sizes: dict[str, int] = {}
    for (name, size), actors in groups.items():
        has_other_size = first_sizes.setdefault(name, size) != size
        title = f"{name} x{size}" if has_other_size else name
        places = [[(actor.node or 0, index) for index in actor.accelerators or ()] for actor in actors]
        yield title, places, [cut(actor.title) for actor in actors]

"""The network on a map: frames around the nodes of a domain, and lines between the nodes of a crossing group."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from rankplan._core import RankSet
from rankplan.frozen import frozen
from rankplan.plans.crossings import NEAR, WORDS
from rankplan.plans.plan import Plan
from rankplan.render.map.text import clean, ranks_text

_MOST_LINES = 12


@frozen
class Frame:
    """Neighbouring nodes of one domain: the first and the last, by their index on the map."""

    depth: int
    name: str
    first: int
    last: int


@frozen
class Line:
    """A group that crosses a domain: its nodes, by their index on the map, and its description."""

    component: int
    nodes: tuple[int, ...]
    text: str


@frozen
class Network:
    """The frames, outermost first, and the lines of a map. Empty if nodes are folded or the network is unknown."""

    depth: int
    frames: tuple[Frame, ...]
    lines: tuple[Line, ...]
    more: str = ""

    def opening(self, index: int) -> list[Frame]:
        """Return the frames whose first node is this one, outermost first."""
        return [frame for frame in self.frames if frame.first == index]

    def closing(self, index: int) -> int:
        """Return how many frames have this node as their last."""
        return sum(frame.last == index for frame in self.frames)

    def crossing(self, index: int) -> list[Line]:
        """Return the lines of a node."""
        return [line for line in self.lines if index in line.nodes]


NO_NETWORK = Network(0, (), ())


def network_of(plan: Plan, shown: Sequence[int], components: Collection[str]) -> Network:
    """Return the network of a plan, for the nodes and the components that its map shows."""
    domains = plan.inventory.domains
    if not domains or list(shown) != list(range(plan.inventory.num_nodes)):
        return NO_NETWORK
    frames = []
    for depth, level in enumerate(domains):
        for domain, nodes in groupby(range(len(shown)), key=level.ids.__getitem__):
            held = list(nodes)
            if (label := level.names[domain][-1]) is not None:
                frames.append(Frame(depth, clean(f"{level.level} {label}"), held[0], held[-1]))
    lines = list(_lines(plan, components))
    more = f"and {len(lines) - _MOST_LINES} more crossing groups" if len(lines) > _MOST_LINES else ""
    return Network(len(domains), tuple(frames), tuple(lines[:_MOST_LINES]), more)


def _lines(plan: Plan, components: Collection[str]) -> Iterator[Line]:
    """Yield the groups that cross a domain of the innermost level; groups on the same nodes are one line."""
    level = plan.inventory.domains[-1]
    for index, name in enumerate(components):
        component = plan[name]
        for kind in NEAR if component.parallel.stated else ():
            if not component.spans(kind, level.level).crossing:
                continue
            groups = component.groups(kind)
            alike: dict[tuple[int, ...], list[int]] = {}
            for number in range(len(groups)):
                nodes = RankSet(component.layout.place(slot)[0] for slot in groups[number])
                if len({level.ids[node] for node in nodes}) > 1:
                    alike.setdefault(tuple(nodes), []).append(number)
            for together, numbers in alike.items():
                noun, verb = ("group", "crosses") if len(numbers) == 1 else ("groups", "cross")
                found = f"{clean(name)}: {WORDS[kind]} {noun} {ranks_text(RankSet(numbers), 24)}"
                yield Line(index, together, f"{found} on nodes {RankSet(together)} {verb} {level.level} domains")

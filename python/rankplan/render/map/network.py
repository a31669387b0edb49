"""The network on a map: frames around the nodes of a domain, and lines between the nodes of a crossing group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from rankplan._core import RankSet
from rankplan.plans.crossings import WORDS
from rankplan.plans.plan import Plan
from rankplan.render.map.markup import SOFT, attributes, fill
from rankplan.render.map.model import MOST_COMPONENTS, Map, clean, ranks_text

HEAD, FOOT = 18, 6
"""Height of the name above the nodes of a frame, and of the space below them."""
LANE = 10
"""Width between two lines."""

_KINDS = ("tp", "cp", "etp", "ep")
_MOST_LINES = 12


@dataclass(frozen=True, slots=True)
class Frame:
    """Neighbouring nodes of one domain: the first and the last, by their index on the map."""

    depth: int
    name: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Line:
    """A group that crosses a domain: its nodes, by their index on the map, and its description."""

    component: int
    nodes: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
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

    @property
    def inset(self) -> float:
        """The width between the frames of two levels; all of them fit into the margin of the picture."""
        return min(5.0, 14 / max(self.depth, 1))

    @property
    def right(self) -> int:
        """The space that lines take beside the nodes, in addition to the margin."""
        return (len(self.lines) + 1) * LANE if self.lines else 0


NOTHING = Network(0, (), ())


def network_of(plan: Plan, picture: Map) -> Network:
    """Return the network of a plan, for the nodes that its map shows."""
    shown = {node.rank: index for index, node in enumerate(picture.nodes)}
    domains = plan.inventory.domains
    if not domains or len(shown) < plan.inventory.num_nodes:
        return NOTHING
    frames = []
    for depth, level in enumerate(domains):
        for domain, nodes in groupby(range(len(shown)), key=level.ids.__getitem__):
            held = list(nodes)
            if (label := level.names[domain][-1]) is not None:
                frames.append(Frame(depth, clean(f"{level.level} {label}"), held[0], held[-1]))
    lines = list(_lines(plan))
    more = f"and {len(lines) - _MOST_LINES} more crossing groups" if len(lines) > _MOST_LINES else ""
    return Network(len(domains), tuple(frames), tuple(lines[:_MOST_LINES]), more)


def _lines(plan: Plan) -> Iterator[Line]:
    """Yield the groups that cross a domain of the innermost level; groups on the same nodes are one line."""
    level = plan.inventory.domains[-1]
    for index, (name, component) in enumerate(list(plan.items())[:MOST_COMPONENTS]):
        for kind in _KINDS if component.parallel.stated else ():
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


def drawn(
    network: Network, boxes: Sequence[tuple[float, float]], left: float, right: float
) -> tuple[list[str], list[str]]:
    """Return the frames, which belong behind the nodes, and the lines, which belong before them.

    ``boxes`` has the top and the bottom of each node, ``left`` and ``right`` are their sides.
    """
    frames = []
    for frame in network.frames:
        inside = network.depth - frame.depth
        above = sum(1 for other in network.opening(frame.first) if other.depth >= frame.depth)
        below = sum(1 for other in network.frames if other.last == frame.last and other.depth >= frame.depth)
        top, bottom = boxes[frame.first][0] - above * HEAD, boxes[frame.last][1] + below * FOOT
        x, width = left - inside * network.inset, right - left + 2 * inside * network.inset
        place = attributes(x=f"{x:g}", y=f"{top:g}", width=f"{width:g}", height=f"{bottom - top:g}", rx=6)
        look = attributes(class_="frame", fill="none", stroke="#8a94a3", stroke_dasharray="6 3")
        text = attributes(x=f"{x + 8:g}", y=f"{top + 13:g}", class_="soft", font_size=11, fill=SOFT)
        frames.append(f"<rect{look}{place}/>\n<text{text}>{escape(frame.name)}</text>")
    lines = []
    for lane, line in enumerate(network.lines, 1):
        x = right + network.depth * network.inset + lane * LANE
        middles = [(boxes[node][0] + boxes[node][1]) / 2 + lane * 3 - 12 for node in line.nodes]
        path = "".join(f"M{right:g} {y:g}H{x:g}" for y in middles) + f"M{x:g} {middles[0]:g}V{middles[-1]:g}"
        style = attributes(d=path, stroke=fill(line.component), stroke_width=2.5, fill="none")
        lines.append(f'<g class="crossing"><title>{escape(line.text)}</title><path{style}/></g>')
    return frames, lines

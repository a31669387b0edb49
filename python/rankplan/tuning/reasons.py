"""Why a schedule takes as long as it does, in words."""

from __future__ import annotations

from rankplan.tuning.costs import Costs
from rankplan.tuning.schedule import Schedule, pace


def reason(costs: Costs, node: Schedule, seconds: float) -> str:
    """Return what the seconds of a schedule consist of."""
    transfers = transfers_of(costs, node, seconds)
    text = _part(node, times_of(costs, node), costs)
    return text + (f"; weights take {transfers:.3g} s" if transfers > 1e-6 * seconds else "")


def transfers_of(costs: Costs, node: Schedule, seconds: float) -> float:
    """Return the seconds that weights take, out of those of an iteration."""
    return seconds - pace(node, times_of(costs, node), costs).iteration


def times_of(costs: Costs, node: Schedule) -> dict[str, float]:
    """Return the seconds of an iteration of each component in a schedule."""
    return {name: costs.components[name].times.seconds(size) or 0.0 for name, size in node.sizes.items()}


def _part(node: Schedule, times: dict[str, float], costs: Costs) -> str:
    if node.kind == "leaf":
        return f"{node.component} {_text(times[node.component])}"
    if node.kind == "then":
        parts = [
            f"({_part(child, times, costs)})" if child.kind == "pipe" else _part(child, times, costs)
            for child in node.children
        ]
        return "in turn: " + " + ".join(parts) + (", each loaded for its turn" if node.switching else "")
    slowest = max(node.children, key=lambda child: pace(child, times, costs, root=False).period)
    period = pace(slowest, times, costs, root=False).period * costs.batches
    others = [child for child in node.children if child is not slowest]
    waits = [_wait(child, 1 - _work(child, times, costs) / period if period else 0.0) for child in others]
    sets = "set" if len(list(slowest.leaves())) > 1 else "sets"
    return f"{_short(slowest)} {sets} the pace with {_text(period)}; " + ", ".join(waits)


def _wait(node: Schedule, share: float) -> str:
    return f"{_short(node)} {'wait' if len(list(node.leaves())) > 1 else 'waits'} {share:.0%} of the time"


def _work(node: Schedule, times: dict[str, float], costs: Costs) -> float:
    return pace(node, times, costs, root=False).period * costs.batches


def _short(node: Schedule) -> str:
    return " and ".join(leaf.component for leaf in node.leaves())


def _text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 100 else f"{seconds:.3g} s"

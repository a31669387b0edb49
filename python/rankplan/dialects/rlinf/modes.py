"""RLinf's placement modes, and the rules that decide between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto

from rankplan._core import RankSet
from rankplan.errors import Diagnostic
from rankplan.plans.component import PlacementMode as PlacementMode


class RolloutSyncMode(Enum):
    """How the rollout gets the actor's weights: within each accelerator, or from other accelerators."""

    COLLOCATED = auto()
    DISAGGREGATED = auto()


APART = (
    ("actor", "rollout"),
    ("actor", "inference"),
    ("rollout", "inference"),
    ("critic", "actor"),
    ("critic", "rollout"),
    ("critic", "critic_inference"),
    ("rollout", "critic_inference"),
)
"""The roles that share no accelerator in disaggregated mode."""

AUTO_ORDER = ("actor", "rollout", "inference")


def overlaps(used: Mapping[str, RankSet], names: Mapping[str, str]) -> Iterator[tuple[str, Diagnostic]]:
    """Yield each role that shares accelerators with another although neither mode lets it, and the fault.

    ``used`` has the accelerators of each role, counted over the cluster; ``names`` are the components of the roles.
    """
    for first, second in APART:
        if shared := used.get(first, RankSet()) & used.get(second, RankSet()):
            one, other = names[first], names[second]
            message = f"`{one}` and `{other}` share {accelerators(shared)} of the cluster"
            if (first, second) == ("actor", "rollout"):
                message += f", but `{one}` uses {used[first]} and `{other}` uses {used[second]}"
                help = "give both the same accelerators (collocated) or no common ones (disaggregated)"
            else:
                message += ", which disaggregated mode does not allow"
                help = "give each accelerators of its own"
            yield second, Diagnostic("mode-unclear", message, help)


def out_of_order(used: Mapping[str, RankSet], names: Mapping[str, str], total: int) -> tuple[str, Diagnostic] | None:
    """Return the first role that is not where ``AUTO`` needs it, and the fault.

    The roles must follow each other from accelerator 0 to the last one.
    """
    roles = [role for role in AUTO_ORDER if role in used]
    help = f"place {', then '.join(f'`{names[role]}`' for role in roles)}, without gaps, on accelerators 0-{total - 1}"
    end = 0
    for role in roles:
        ranges = used[role].ranges
        if len(ranges) > 1 or ranges[0][0] != end:
            message = (
                f"`{names[role]}` uses {used[role]}, but auto_scheduler needs it on consecutive accelerators from {end}"
            )
            return role, Diagnostic("auto-order", message, help)
        end = ranges[0][1] + 1
    if end == total:
        return None
    message = f"`{names[roles[-1]]}` ends at accelerator {end - 1}, but auto_scheduler needs all {total} of the cluster"
    return roles[-1], Diagnostic("auto-order", message, help)


def accelerators(ranks: RankSet) -> str:
    """Return accelerators as messages name them."""
    return f"accelerator{'s' if len(ranks) > 1 else ''} {ranks}"

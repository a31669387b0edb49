"""What the nodes of a plan cannot reserve of what its trainer asks for: CPUs, memory and custom resources.

The core counts (`reserving.rs`); a node whose amounts are unknown may have any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rankplan._core import RankSet
from rankplan.errors import Diagnostic
from rankplan.plans.plan import Plan
from rankplan.plans.requests import Actors
from rankplan.words import amount_text, nodes_text

CODE = "never-reserved"
_CURES = {
    "CPU": "give Ray more CPUs there (`ray start --num-cpus`, Slurm's --cpus-per-task, the limits of pods), or use "
    "fewer accelerators of a node",
    "memory": "give Ray more memory there (`ray start --memory`, Slurm's --mem, the limits of pods), or ask for less",
}


class _Lack(NamedTuple):
    """Something that cannot be reserved; see `Requests.lacking`.

    ``asking`` is a kind and a name. ``room`` is the number of bundles, and for how many there is room. ``nodes`` have
    what they have and would need. ``is_final``: it can never be reserved, wherever Ray puts it.
    """

    asking: tuple[str, str]
    room: tuple[int, int] | None
    resource: str
    needed: float
    present: float
    nodes: list[tuple[float, float, RankSet]]
    is_final: bool


def reservation_faults(plan: Plan, *, bound: bool = False) -> list[Diagnostic]:
    """Return what of the requests and actors of a plan can never be reserved.

    ``bound``: they will be bound to the nodes of the plan, and Ray cannot place them elsewhere.
    """
    return [_fault(plan, lack) for lack in _lacks(plan) if _is_certain(plan, lack, bound=bound)]


def reservation_warnings(plan: Plan) -> list[Diagnostic]:
    """Return what cannot be reserved on the nodes of a plan, though Ray may find other nodes."""
    return [_fault(plan, lack, warning=True) for lack in _lacks(plan) if not _is_certain(plan, lack, bound=False)]


def _is_certain(plan: Plan, lack: _Lack, *, bound: bool) -> bool:
    """Whether no node of Ray can help.

    Actors without accelerators may be on nodes that the plan does not have, such as a head without GPUs, and nothing
    binds them.
    """
    kind, _ = lack.asking
    if kind in ("actor", "beside"):
        return False
    if kind == "all":
        elsewhere = [actors for actors in plan.actors if actors.component is None]
        return lack.needed - sum(amount for _, amount in _held(plan, elsewhere, lack.resource)) > lack.present
    return bound or lack.is_final


def _lacks(plan: Plan) -> list[_Lack]:
    return [_Lack(*lack) for lack in plan.lacking()]


def _fault(plan: Plan, lack: _Lack, *, warning: bool = False) -> Diagnostic:
    help = _CURES.get(lack.resource) or f"start Ray with it: --resources='{{\"{lack.resource}\": {lack.needed:g}}}'"
    return Diagnostic(CODE, _message(plan, lack), help, warning=warning)


def _message(plan: Plan, lack: _Lack) -> str:
    kind, name = lack.asking
    owner = name or "the cluster"
    needed = amount_text(lack.resource, lack.needed)
    if kind == "nodes":
        return _short_nodes(lack, "bundles ask for")
    if kind == "there":
        return _short_nodes(lack, f"{name}s ask for beside the groups")
    if kind == "beside":
        return f"a node has at most {lack.present:g} left beside the groups, but the {name} asks for {needed}"
    if kind == "all":
        return f"the trainer asks for {needed}, but its nodes have {lack.present:g}: {_parts(plan, lack)}"
    if kind == "bundles" and lack.room is not None:
        count, room = lack.room
        each = amount_text(lack.resource, lack.needed / count)
        message = f"{owner} asks for {count} bundles with {each} each, but the nodes have room for {room}"
        return f"{message}: {_short_nodes(lack, 'accelerators need')}"
    what = {"bundle": f"a bundle of {owner}", "group": f"a group of {owner}, which must be on one node,"}
    asking = what.get(kind, f"the {name}")
    return f"{asking} asks for {needed}, but no node has more than {lack.present:g}"


def _short_nodes(lack: _Lack, need: str) -> str:
    """Return the nodes that have too little, with what each has and needs."""
    texts = []
    for present, needed, nodes in lack.nodes:
        each, whose = ("has", "its") if len(nodes) == 1 else ("have", "their")
        texts.append(
            f"{nodes_text(nodes)} {each} {present:g} of the {amount_text(lack.resource, needed)} that {whose} {need}"
        )
    return "; ".join(texts)


def _parts(plan: Plan, lack: _Lack) -> str:
    """Return how the amount of all is divided between the groups and the actors."""
    actors = list(_held(plan, plan.actors, lack.resource))
    groups = lack.needed - sum(amount for _, amount in actors)
    parts = [f"{groups:g} for its groups", *(f"{amount:g} for the {name}" for name, amount in actors)]
    return ", ".join(parts)


def _held(plan: Plan, several: Iterable[Actors], resource: str) -> Iterator[tuple[str, float]]:
    """Yield the name of the actors that last, and what they hold together."""
    for actors in several:
        amounts = {"CPU": actors.cpus, "memory": actors.memory, **actors.resources}
        amount = amounts.get(resource)
        if amount and not actors.brief:
            yield actors.name, amount * actors.count * _times(plan, actors)


def _times(plan: Plan, actors: Actors) -> int:
    """Return how often a plan has the number of these actors."""
    if actors.component is not None:
        return len(plan[actors.component]) if actors.component in plan else 0
    return plan.inventory.num_nodes if actors.each_node else 1

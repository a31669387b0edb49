"""What a group says about its ranks, each text from its facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rankplan._core import Placement, RankSet
from rankplan.runtime.ray.answers import ranks_text
from rankplan.words import listed, nodes_text


def may_run(component: str, rows: Sequence[Placement], lost: str | None, orphaned: float) -> str:
    """Return that ranks may still run after they were to be killed. ``lost`` is what has happened to Ray, if known.

    Without a head, they end ``orphaned`` seconds after their driver.
    """
    who = ranks_text(row.rank for row in rows)
    where = nodes_text(RankSet(row.cluster_node_rank for row in rows))
    text = f"{component}: {who} on {where} may still run"
    if lost is None:
        return f"{text}: Ray has not confirmed their end; check these nodes"
    return f"{text}: {lost}, so that nothing can end them; they end themselves {orphaned:g} s after this program"


class Undone(NamedTuple):
    """What is not done, and what to do if ranks are dead; ``{who}`` stands for those that need not wait then."""

    text: str
    advice: str


NOT_RESTARTED = Undone("the group is not restarted", "restart it again: then {who} end at once")

TRANSITION_STOPS = Undone("the transition stops here", "restart the group, and make a new transition")


def died_meanwhile(component: str, dead: RankSet, leaving: RankSet, undone: Undone) -> str:
    """Return that ranks died while others, which leave, finished their calls; ``undone`` is what is not done."""
    text = f"{component}: {ranks_text(dead)} died while {ranks_text(leaving)} finished their calls, so {undone.text}"
    return f"{text}; {undone.advice.format(who='these')}"


def calls_failed(component: str, row: Placement, reason: str, undone: Undone) -> str:
    """Return that a rank that leaves has not finished its calls."""
    text = f"{component} rank {row.rank}, which the plan lacks, did not finish its calls: it {reason}"
    return f"{text}, so {undone.text}; {undone.advice.format(who='the others')}"


def calls_go_on(component: str, ranks: RankSet, timeout: float, undone: Undone) -> str:
    """Return that calls on ranks that leave take too long."""
    text = f"{component}: calls on {ranks_text(ranks)}, which the plan lacks, did not end within {timeout:g} s"
    return f"{text}, so {undone.text}; end these calls first, or allow more time (timeout)"


def changed_in_part(component: str, rank: int) -> str:
    """Return that a transition keeps some slots of a process and not the others."""
    text = f"{component} rank {rank}: the transition keeps some of its slots, but starts or ends others"
    return f"{text}; a process starts and ends as a whole: shut the group down and launch the plan after"


def not_before(component: str, rank: int) -> str:
    """Return that a rank runs that the plan before a transition has elsewhere, or not at all."""
    text = f"{component} rank {rank} runs at a place, or with coordinates, that the plan before does not have"
    return f"{text}; make the transition from the plan that the group runs"


def dead_before(component: str, rank: int) -> str:
    """Return that a rank is dead that the transition counts on."""
    text = f"{component} rank {rank} is dead, and the transition does not count it as lost"
    return f"{text}; restart the group first, or make the transition with `without` and its node"


def not_running(component: str, ranks: RankSet) -> str:
    """Return that ranks do not run that the transition counts on."""
    text = f"{component} lacks {ranks_text(ranks)}, which the plan before has"
    return f"{text}; make the transition from the plan that the group runs"


def no_group(component: str) -> str:
    """Return that a component changes whose group is not given."""
    return f"groups lacks {component}, which changes; pass its running group: groups={{{component!r}: group}}"


def other_name(key: str, planned: str) -> str:
    """Return that the group of another component is given."""
    return f"groups has the group of {planned} as {key}; name each group like its component"


def unknown_group(name: str, components: Sequence[str]) -> str:
    """Return that a group is given that the plans do not have."""
    return f"groups has {name}, which the plan before lacks; it has {', '.join(components) or 'nothing'}"


def starts_anew(component: str) -> str:
    """Return that only the plan after has a component."""
    text = f"{component} is only in the plan after, so it has no group yet"
    return f"{text}; apply a transition without it, then launch(transition.after.only({component!r}), cluster)"


def other_clusters(first: str, second: str) -> str:
    """Return that two groups run on two clusters."""
    return f"{first} and {second} run on different clusters; pass groups that one Cluster has launched"


def wrong_call(given: str, steps: Sequence[str]) -> str:
    """Return that no step has this name."""
    return f"calls has {given}, which is no step; the steps are {', '.join(steps)}"


def not_callable(step: str, given: str) -> str:
    """Return that what is given for a step cannot be called."""
    return f"calls[{step!r}] is {given}; pass a function of the step"


def lacks_calls(steps: Sequence[str], names: Sequence[str]) -> str:
    """Return that steps lack what only the trainer can do."""
    functions = ", ".join(f"{name!r}: function" for name in names)
    return f"{listed(steps, 4)}: only the trainer can do that; pass calls={{{functions}}}, each a function of the step"


def stopped(at: Sequence[str], reason: str, done: int, steps: int, running: Sequence[str], ways: str) -> str:
    """Return where a transition has stopped, why, and what runs now."""
    where = listed([f"`{step}`" for step in at], 4) or "its end"
    text = f"the transition stopped at {where}: {reason}\n  {done} of {steps} steps are done"
    return f"{text}\n  running: {', '.join(running) or 'nothing'}\n  {ways}"

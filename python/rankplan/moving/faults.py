"""The faults of transitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rankplan.errors import Diagnostic
from rankplan.nodes.node import NodeSpec
from rankplan.words import counted, did_you_mean, listed, shown


def nothing_in_common(before: Sequence[str], after: Sequence[str]) -> Diagnostic:
    """Return the fault of two plans without a common component."""
    message = f"the plans have no component in common: {', '.join(before) or 'none'}, and {', '.join(after) or 'none'}"
    return Diagnostic("other-job", message, "pass two plans of one job, such as a plan and what replan made of it")


def other_dialect(before: str, after: str) -> Diagnostic:
    """Return the fault of plans of two trainers."""
    message = f"the plan before is of {before}, the plan after of {after}"
    return Diagnostic("other-job", message, "pass two plans of one job")


def other_model(component: str, before: str, after: str) -> Diagnostic:
    """Return the fault of a component that has another model in the plan after."""
    message = f"`{component}` is {before} in the plan before, but {after} in the plan after"
    return Diagnostic("other-job", message, "pass two plans of one job: no state of one model serves another")


def other_use(component: str, before: str, after: str) -> Diagnostic:
    """Return the fault of a component whose memory is of another kind in the plan after."""
    message = f"`{component}` is {before} in the plan before, but {after} in the plan after"
    return Diagnostic("other-job", message, "pass two plans of one job, with the same `memory` but for its sizes")


def other_hardware(before: NodeSpec, after: NodeSpec) -> Diagnostic:
    """Return the fault of a node that has other accelerators in the plan after."""
    have = [f"{counted(node.num_accelerators, 'accelerator')} ({node.accelerator_type})" for node in (before, after)]
    message = f"node {after.name} has {have[0]} in the plan before, but {have[1]} in the plan after"
    return Diagnostic(
        "plan-mismatch", message, "plan again on the inventory that is right: `rankplan plan --inventory`"
    )


def other_accelerators(node: str, before: str, after: str) -> Diagnostic:
    """Return the fault of a node whose accelerators are of another model in the plan after."""
    message = f"node {node} has accelerators of model {before} in the plan before, but {after} in the plan after"
    help = "give a machine that was replaced another hostname, or plan again on the inventory that is right"
    return Diagnostic("plan-mismatch", message, help)


def placed_on_dead(component: str, rank: int, node: str) -> Diagnostic:
    """Return the fault of a process that the plan after places on hardware that is out of use."""
    message = f"the plan after places {component} rank {rank} on {node}, which is out of use"
    help = "repair the plan first: `rankplan replan PLAN --without NODE --save AFTER`"
    return Diagnostic("excluded-resource", message, help)


def stuck(where: str, needed: int, size: int, steps: Sequence[str], *, host: bool = False) -> Diagnostic:
    """Return the fault of steps that no order makes possible; ``where`` is the accelerator that lacks the bytes."""
    message = (
        f"no order is safe: {where} has {_gib(size)}, but {' and '.join(steps)} need at least {_gib(needed)} together,"
        f" {_gib(needed - size)} more"
    )
    help = "set `memory: {sleep: host}` for one of these components, or go through a plan that frees them first"
    if host:
        help = "free memory of the host, or go through a plan that stops one of these components first"
    return Diagnostic("transition-stuck", message, help)


def not_serving(component: str, serving: int) -> Diagnostic:
    """Return the fault of instances that cannot keep serving while the others change."""
    message = f"no order keeps {counted(serving, 'instance')} of {component} serving"
    return Diagnostic("transition-stuck", message, "lower `serving`, or go through a plan with more instances")


def waiting_for_each_other(instances: Sequence[str]) -> Diagnostic:
    """Return the fault of instances each of which must end before another one begins."""
    message = f"no order is safe: {listed(instances, 6)} wait for each other"
    return Diagnostic("transition-stuck", message, "go through a plan that stops one of them first")


def no_order_found(components: Sequence[str]) -> Diagnostic:
    """Return the fault of many instances for which the search has found no order."""
    message = (
        f"no safe order was found for the instances of {', '.join(components)}; they are too many to try all orders"
    )
    return Diagnostic("transition-stuck", message, "go through a plan that changes fewer instances at a time")


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def bad_serving(serving: object) -> Diagnostic:
    """Return the fault of a number of serving instances that is no whole number."""
    message = f"`serving` is {shown(serving)}; it must be a whole number of 0 or more"
    return Diagnostic("invalid-value", message, "write 1 to keep one instance of each component serving")


def bad_names(names: object) -> Diagnostic:
    """Return the fault of a wrong ``names``."""
    message = f"`names` is {shown(names)}; it must be free or as planned"
    return Diagnostic("invalid-value", message, 'write names="as planned" to keep all numbers')


def unknown_cost(component: str, known: Iterable[str]) -> Diagnostic:
    """Return the fault of costs of a component that neither plan has."""
    help = did_you_mean(component, known, "the components are")
    return Diagnostic("unknown-component", f"unknown component `{component}`", help)


def unknown_level(level: str, known: Iterable[str]) -> Diagnostic:
    """Return the fault of the bandwidth of an unknown level."""
    return Diagnostic("unknown-level", f"unknown level `{level}`", did_you_mean(level, known, "the levels are"))


def bandwidth_of_what() -> Diagnostic:
    """Return the fault of a bandwidth that may be meant for the whole of a component."""
    message = "`bandwidth` needs `bandwidth_of: accelerator`: here it is that of one accelerator, in each direction"
    return Diagnostic("missing-key", message, "add `bandwidth_of: accelerator`")


def syncs_itself(component: str) -> Diagnostic:
    """Return the fault of a component that would get weights from itself."""
    message = f"`sync` is from `{component}` to itself; it must name who sends weights, and another one who gets them"
    return Diagnostic("invalid-value", message, "write the trainer in `from`: {from: actor, to: rollout}")


def two_senders(component: str, first: str, second: str) -> Diagnostic:
    """Return the fault of a component that would get weights from two others."""
    message = f"`sync` has two senders for `{component}`: `{first}` and `{second}`; it must have one"
    return Diagnostic("invalid-value", message, "remove one of them")


def not_a_name(value: str, known: Iterable[str]) -> Diagnostic:
    """Return the fault of instances that no component has."""
    help = did_you_mean(value.partition("/")[0], known, "the components are")
    return Diagnostic("unknown-component", f"unknown instances {shown(value)}", f"write rollout or rollout/2-3; {help}")


def bad_asleep(asleep: object) -> Diagnostic:
    """Return the fault of a wrong ``asleep``."""
    message = f"`asleep` is {shown(asleep)}; it must be two lists: what sleeps before, and what sleeps after"
    return Diagnostic("invalid-value", message, 'write asleep=(["rollout/2-3"], ["actor"])')


def dead_and_asleep() -> Diagnostic:
    """Return the fault of dead hardware in a transition that only puts instances to sleep and wakes them."""
    message = "`asleep` keeps the plan, but `without` names dead hardware"
    return Diagnostic("invalid-value", message, "pass the repaired plan as the plan after, or leave out one of the two")


def other_places() -> Diagnostic:
    """Return the fault of two plans in a transition that only puts instances to sleep and wakes them."""
    message = "`asleep` is for one plan, but the plans before and after differ"
    return Diagnostic("invalid-value", message, "pass the same plan twice, or leave out `asleep`")

"""The faults of arranging and replanning, as functions of facts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rankplan._core import RankSet
from rankplan.dialects import DIALECTS, family_of
from rankplan.errors import Diagnostic, KeyPath
from rankplan.plans.node_order import ORDER_WORDS
from rankplan.plans.requests import NodeOrder
from rankplan.words import counted, did_you_mean, listed, must_be, nodes_text, path_text, shown

ADD_SPARES = "add spare nodes to the inventory"

NAMELESS_HELP = "give the nodes of the inventory hostnames or addresses, and plan on it"

RESTORE_HELP = "write names that the plan excludes: node-3"


def nameless_node_lost(ranks: RankSet) -> Diagnostic:
    """Return the fault of lost node ranks whose nodes have neither hostname nor address."""
    message = f"{nodes_text(ranks)} {_have(ranks)} no hostname and no address, so that no spare can be told from it"
    return Diagnostic("too-few-nodes", message, NAMELESS_HELP)


def nameless_nodes_reordered(nodes: RankSet) -> Diagnostic:
    """Return the fault of nodes without names that a file would list in other ranks."""
    message = f"{nodes_text(nodes)} would get other ranks, but {_have(nodes)} no hostname and no address"
    help = "give the nodes of the inventory hostnames or addresses, so that the file says which machine each is"
    return Diagnostic("invalid-value", message, help)


def _have(nodes: RankSet) -> str:
    return "has" if len(nodes) == 1 else "have"


POOL_KEYS: Mapping[str, tuple[str, ...]] = {
    "areal": ("actor.backend", "rollout.backend"),
    "nemo_rl": ("cluster.num_nodes",),
    "openrlhf": ("actor.num_nodes", "vllm.num_engines"),
    "skyrl": ("trainer.placement.policy_num_nodes", "generator.inference_engine.num_engines"),
    "slime": ("actor_num_nodes",),
    "verl": ("trainer.nnodes",),
}
"""The keys by which a trainer sizes the pool that components share, by dialect.

These trainers run engines that share a pool only there. ROLL is not among them: each of its roles names its devices.
"""


def pool_keys(dialect: str | None) -> tuple[str, ...]:
    """Return the `POOL_KEYS` of a dialect: of a fork, those that it has for its parent's. None for another dialect."""
    keys = POOL_KEYS.get(dialect or "", ())
    if keys or dialect is None:
        return keys
    parent = family_of(dialect)[-1]
    fork = DIALECTS[dialect].keys.fork if parent != dialect else None
    return () if fork is None else tuple(map(fork.place, POOL_KEYS.get(parent, ())))


def outside_of_pool(dialect: str, name: str, others: Sequence[str], change: str) -> Diagnostic:
    """Return the fault of a component that shares a pool with others, and cannot ``grow`` or ``shrink`` alone."""
    keys = " and ".join(f"`{key}`" for key in pool_keys(dialect))
    reason = "it cannot run more of it elsewhere" if change == "grow" else "it cannot run less of it alone"
    message = f"{dialect} runs {name} on the accelerators of {', '.join(others)}; {reason}"
    return Diagnostic("invalid-value", message, f"change {keys} in the config, and plan it again")


def not_in_order(
    dialect: str | None, order: NodeOrder, ranks: Sequence[int], names: str, *, is_fixed: bool
) -> Diagnostic:
    """Return the fault of node ranks that cannot be repaired in the order of their trainer.

    ``names`` are the nodes in that order.
    """
    sorting = f"{dialect or 'the trainer'} sorts the nodes of {nodes_text(RankSet(ranks))} by {ORDER_WORDS[order]}"
    if is_fixed:
        message = f"{sorting} ({names}), so that survivors would move"
        return Diagnostic("order-not-kept", message, "let them move (without `--fixed`), or add spares in between")
    message = f"{sorting} ({names}); in that order, no spares keep all rules"
    help = "add spares that come where the lost nodes were, or plan the config again with --pinned"
    return Diagnostic("order-not-kept", message, help)


def not_grown_in_order(
    dialect: str | None, order: NodeOrder, ranks: Sequence[int], names: str, last: str
) -> Diagnostic:
    """Return the fault of growth on nodes that its trainer would sort before others, so that processes would move.

    ``names`` are the nodes in the order of the trainer, ``last`` is the last one of those that stay.
    """
    sorting = f"{dialect or 'the trainer'} sorts the nodes of {nodes_text(RankSet(ranks))} by {ORDER_WORDS[order]}"
    message = f"{sorting} ({names}), so that processes which stay would move"
    return Diagnostic("order-not-kept", message, f"add spares that come after {last} in that order")


def requests_unknown(dialect: str | None, name: str) -> Diagnostic:
    """Return the fault of a component whose trainer asks Ray for something unknown once it has another size."""
    message = f"what {dialect or 'the trainer'} asks Ray for is unknown if {name} has another size"
    return Diagnostic("invalid-value", message, f"{_change(dialect)}, and plan it again")


def requests_lost(dialect: str | None) -> str:
    """Return the note about a plan of another size, or with other accelerators, whose trainer asks Ray for others."""
    unknown = f"what {dialect or 'the trainer'} asks Ray for is unknown"
    return f"`rankplan pin` cannot bind this plan: {unknown}; {_change(dialect)}, and plan it again"


def _change(dialect: str | None) -> str:
    """Return the request to change the keys that size the pool of a trainer."""
    keys = pool_keys(dialect)
    return f"change {' and '.join(f'`{key}`' for key in keys)} in the config" if keys else "change the config alike"


def with_inventory(fault: Diagnostic) -> Diagnostic:
    """Return a fault whose help asks for the nodes of the cluster instead of more spares: none were stated.

    Some plans have a node rank for every node of their cluster, others know only the nodes that their config asks for.
    """
    if fault.help is None or ADD_SPARES not in fault.help:
        return fault
    known = "state the nodes of the cluster, of which the plan knows no others (`--inventory` or `--ray`)"
    return replace(fault, help=fault.help.replace(ADD_SPARES, known))


def not_in_line(dialect: str | None, order: NodeOrder, rules: Sequence[KeyPath]) -> Diagnostic:
    """Return the fault of rules that no nodes keep once the trainer has sorted them."""
    names = listed([f"`{path_text(path)}`" for path in rules], 8)
    sorting = f"{dialect or 'the trainer'} sorts the nodes of a pool by {ORDER_WORDS[order]}"
    message = f"{sorting}; in that order, no nodes of the inventory keep {names}"
    help = "add nodes, or state smaller sets or an outer level; addresses that follow each other in a domain help most"
    return Diagnostic("order-not-kept", message, help)


def not_a_plan(file: str) -> Diagnostic:
    """Return the fault of a config, or the job file of one, where a saved plan is changed."""
    help = f"save its plan first: rankplan plan {file} --save plan.json"
    message = "this is no saved plan; `replan` repairs a plan that is saved"
    return Diagnostic("invalid-plan", message, help, file=file)


def no_components() -> Diagnostic:
    """Return the fault of a plan that cannot be repaired because it has no components."""
    return Diagnostic("plan-mismatch", "the plan has no components", "plan a config that has components")


def beside_itself() -> Diagnostic:
    """Return the fault of a plan that is among those of other jobs."""
    help = "leave it out: `beside` takes the plans of other jobs"
    return Diagnostic("invalid-value", "`beside` has the plan itself", help)


def another_cluster() -> Diagnostic:
    """Return the fault of an inventory that has no node of the plan."""
    help = "pass the inventory of the cluster that the plan was made for"
    return Diagnostic("plan-mismatch", "no node of the plan is in the inventory", help)


def sizes_help(what: str) -> str:
    """Return how ``shrink`` or ``grow`` is written."""
    return f'write the number of data groups by component: {what}={{"rollout": 2}}'


def unknown_to_resize(name: object, what: str, components: Collection[str]) -> Diagnostic:
    """Return the fault of a component that the plan lacks; ``what`` is ``shrink`` or ``grow``."""
    help = did_you_mean(str(name), components, "the components are")
    return Diagnostic("unknown-component", f"unknown component `{name}` to {what}", help)


def wrong_number(name: str, number: object) -> Diagnostic:
    """Return the fault of a component's number of data groups."""
    return must_be((name,), number, "a whole number of 1 or more", "write a number of data groups")


def not_excluded(name: object, excluded: Sequence[str]) -> Diagnostic:
    """Return the fault of a name to bring back that the plan does not exclude."""
    help = f"the plan excludes {', '.join(excluded)}" if excluded else "the plan excludes nothing"
    return Diagnostic("invalid-value", f"the plan does not exclude {shown(name)}", help)


def hardware_lost(name: str, kind: str, nodes: RankSet) -> Diagnostic:
    """Return the fault of configured hardware, such as robots, of lost nodes."""
    message = f"{name} uses the {kind} of {nodes_text(nodes)}, which no other node has"
    return Diagnostic("no-spare", message, "repair the node, or plan without it")


def hardware_not_grown(name: str, kind: str) -> Diagnostic:
    """Return the fault of growth of a component on configured hardware."""
    message = f"{name} uses the {kind} of its nodes, which no other node has"
    return Diagnostic("invalid-value", message, "add its hardware to the config, and plan again")


def unknown_groups(name: str, processes: int) -> Diagnostic:
    """Return the fault of a component with so many processes whose data groups are not known."""
    message = f"the number of data groups of {name} is unknown: no parallel size above 1 is stated"
    return Diagnostic(
        "invalid-value", message, f"state it: `parallel: {{dp: {processes}}}` if each process is a data group"
    )


def inside_of_dp(name: str, kind: str, order: str) -> Diagnostic:
    """Return the fault of a component whose last data group is not its last ranks, because a kind comes after dp."""
    message = f"the last data group of {name} is not its last ranks: {kind} comes after dp"
    return Diagnostic("invalid-value", message, f"use an order with dp last, such as {order}")


def part_of_a_step(name: str, part: str, step: int) -> Diagnostic:
    """Return the fault of growth that fills no whole nodes, as ``step`` data groups do: one uses a ``part``."""
    message = f"one data group of {name} uses {part}"
    return Diagnostic("invalid-value", message, _grow_by(step))


def part_of_groups_together(name: str, step: int) -> Diagnostic:
    """Return the fault of growth by a part of the data groups that go together."""
    return Diagnostic("invalid-value", _together(name, step), _grow_by(step))


def _grow_by(step: int) -> str:
    return f"grow by {step}, {2 * step}, ..."


def _together(name: str, groups: int) -> str:
    return f"{counted(groups, 'data group')} of {name} go together"


def several_node_groups(name: str, label: str) -> Diagnostic:
    """Return the fault of growth in a node group after which a component counts those of others."""
    message = f"{name} counts the resources of several node groups, `{label}` not as the last"
    return Diagnostic("invalid-value", message, "give it a node group of its own")


def no_larger_rule(name: str, resources: int) -> Diagnostic:
    """Return the fault of a component that no rule expresses with so many more resources."""
    message = f"no rule can express {name} with {counted(resources, 'more resource')}"
    return Diagnostic("invalid-value", message, "plan it again, with more data groups")


def nothing_left(name: str, groups: int) -> Diagnostic:
    """Return the fault of a component that would lose all of its data groups."""
    message = f"{name} has {counted(groups, 'data group')}; at least one must stay"
    help = f"shrink by at most {groups - 1}" if groups > 1 else f"remove `--shrink {name}`"
    return Diagnostic("invalid-value", message, help)


def shrinks_together(name: str, groups: int, total: int) -> Diagnostic:
    """Return the fault of a component that would lose a part of the data groups that go together."""
    return Diagnostic("invalid-value", _together(name, groups), _shrink_by(range(groups, total, groups)))


def node_is_shared(name: str, sizes: Sequence[int]) -> Diagnostic:
    """Return the fault of data groups that stay on a node of others that go; ``sizes`` are possible."""
    message = f"data groups of {name} that stay are on a node of those that go"
    return Diagnostic("invalid-value", message, _shrink_by(sizes))


def _shrink_by(sizes: Sequence[int]) -> str:
    """Return the help that names the first of the numbers by which a component can shrink."""
    return f"shrink by {' or '.join(map(str, sizes[:2]))}" if sizes else "shrink another component"


def no_smaller_rule(name: str, processes: int) -> Diagnostic:
    """Return the fault of a component whose first processes no rule expresses."""
    message = f"no rule can express the first {counted(processes, 'process', 'processes')} of {name}"
    return Diagnostic("invalid-value", message, "shrink by another number")


def uneven_cells(name: str, sizes: Sequence[int]) -> Diagnostic:
    """Return the fault of nodes or segments with different numbers of data groups, of which some would be chosen."""
    message = f"nodes or segments of {name} have different numbers of data groups: {', '.join(map(str, sizes))}"
    return Diagnostic("invalid-value", message, _WITHOUT_RENUMBER)


def no_rule_without(name: str, groups: int, obstacle: str | None) -> Diagnostic:
    """Return the fault of a component that cannot lose chosen data groups; ``obstacle`` says why, if it is known."""
    message = obstacle or f"no rule can express {name} without {counted(groups, 'data group')}"
    return Diagnostic("invalid-value", message, _WITHOUT_RENUMBER)


_WITHOUT_RENUMBER = "shrink without `--renumber`"

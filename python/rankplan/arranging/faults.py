"""The faults of arranging and replanning, as functions of facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, KeyPath
from rankplan.plans.node_order import ORDER_WORDS
from rankplan.plans.requests import NodeOrder
from rankplan.words import listed, nodes_text, path_text

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


def outside_of_pool(dialect: str, name: str, others: Sequence[str], change: str) -> Diagnostic:
    """Return the fault of a component that shares a pool with others, and cannot ``grow`` or ``shrink`` alone."""
    keys = " and ".join(f"`{key}`" for key in POOL_KEYS[dialect])
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
    keys = POOL_KEYS.get(dialect or "")
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

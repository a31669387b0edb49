"""The commands of a job that start their processes themselves, as processes of one node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from rankplan.environment import MASTER_VARIABLES, RANK_VARIABLES
from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.launchers.exec.process import RankProcess, rank_process
from rankplan.launchers.node_commands import At, Share, Start, starts_of, values
from rankplan.launchers.options import Options
from rankplan.plans.plan import Plan

_IN_FOLDER = ("bash", "-c", 'cd "$1" && shift && exec "$@"', "bash")

Addresses = Mapping[str, tuple[str, int]]
"""The address of the first node of components, and the port of their rendezvous."""


def node_processes(
    plan: Plan, node: int, given: Mapping[str, str], masters: Addresses
) -> list[tuple[RankProcess, Sequence[str]]]:
    """Return the commands of a plan on a node, servers first, with the environment ``given``.

    Addresses that ``masters`` lacks are those of the inventory. Raises `PlacementError` for nodes on which a command
    cannot start, and for a missing address (``emit-no-address``).
    """
    draft = Draft(plan, Options())
    processes = list(_processes(draft, node, given, masters))
    draft.finish()
    return processes


def _processes(
    draft: Draft, node: int, given: Mapping[str, str], masters: Addresses
) -> Iterator[tuple[RankProcess, Sequence[str]]]:
    for start in starts_of(draft):
        for number, share in enumerate(start.shares):
            if share.node != node:
                continue
            port = masters[start.name][1] if start.name in masters else start.port
            at = At(str(number), _address(draft, masters), _of(share), str)
            values_of = values(replace(start, port=port), draft.plan, at)
            command = ["".join(parts) for parts in start.command.filled(values_of)]
            filled = start.command.filled_variables(values_of)
            own = {name: "".join(parts) for name, parts in filled.items()} | {**share.mask}
            folder = start.command.folder
            yield (
                _process(draft.plan, start, share, own, given),
                (command if folder is None else [*_IN_FOLDER, folder, *command]),
            )


def _of(share: Share) -> Callable[[str, Callable[[Share], str]], str]:
    """Return the function that returns a value of this share."""
    return lambda _, value_of: value_of(share)


def _address(draft: Draft, masters: Addresses) -> Callable[[int], str]:
    """Return the function that returns the address of a node."""
    stated = {draft.plan[name][0].cluster_node_rank: host for name, (host, _) in masters.items()}

    def address(node: int) -> str:
        record = draft.plan.inventory.node(node)
        found = stated.get(node) or record.ip or record.hostname
        if found is None:
            names = (name for name, rows in draft.plan.items() if rows[0].cluster_node_rank == node)
            draft.refuse(faults.no_address(node, next(names, None)))
        return found or ""

    return address


def _process(plan: Plan, start: Start, share: Share, own: Mapping[str, str], given: Mapping[str, str]) -> RankProcess:
    """Return the process of a command with its ``own`` variables: as one of its ranks, but for what only a rank has."""
    process = rank_process(plan, start.name, share.rank, given)
    of_rank = (*RANK_VARIABLES, *MASTER_VARIABLES)
    environment = {name: value for name, value in process.environment.items() if name not in of_rank}
    return replace(process, environment={**environment, **own}, serves=start.command.serves)

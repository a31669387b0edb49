"""The commands of a job that start their processes themselves, on the nodes of a plan; see `NodeCommand`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from rankplan.accelerators import vendor
from rankplan.frozen import frozen
from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.launchers.options import Options
from rankplan.launchers.scripts import quoted
from rankplan.plans.node_command import (
    NODE_RANK,
    PORT,
    PROCESSES,
    AddressField,
    EndpointsField,
    Field,
    GroupField,
    NodeCommand,
    PortField,
    RankValueField,
    SizeField,
    field_of,
)
from rankplan.plans.plan import Plan

if TYPE_CHECKING:
    from rankplan._core import Placement

HERE = "127.0.0.1"
"""The address of a node for a command that runs on this node alone."""
_NUMBER = "([0-9]{1,5})"


@frozen
class Share:
    """What a command starts at a time: on one of its nodes, or for one process.

    It has the variables that show its accelerators, and so many processes. ``rank`` is that of the first one,
    ``position`` how many others of their component are before it on the node.
    """

    node: int
    mask: Mapping[str, str]
    processes: int
    rank: int
    position: int = 0


@frozen
class Start:
    """A command with what it starts on its nodes, in the order of their ranks. ``port`` is that of its rendezvous."""

    command: NodeCommand
    shares: tuple[Share, ...]
    port: int

    @property
    def name(self) -> str:
        """The first component that the command starts."""
        return self.command.components[0]

    @property
    def nodes(self) -> list[int]:
        """The node ranks."""
        return list(dict.fromkeys(share.node for share in self.shares))

    @property
    def first(self) -> int:
        """The rank of its first node."""
        return self.shares[0].node


class At(NamedTuple):
    """Where a command is filled in: the rank of its share, the address of a node, and what else a share decides.

    ``of_share`` gets the name of a value and the function that returns it for a share. Values are words of a shell,
    which ``quote`` makes of a text, or texts.
    """

    rank: str
    address: Callable[[int], str]
    of_share: Callable[[str, Callable[[Share], str]], str]
    quote: Callable[[str], str] = quoted


def has_node_commands(plan: Plan, options: Options) -> bool:
    """Whether a file starts the commands of the job of a plan, once on each node, as nothing else is stated."""
    return bool(node_commands(plan)) and not options.commands and options.entrypoint is None


def node_commands(plan: Plan) -> Sequence[NodeCommand]:
    """Return the commands of the job all of whose components the plan has, servers first."""
    commands = () if plan.job is None else plan.job.commands
    return [command for command in commands if all(name in plan for name in command.used)]


def starts_of(draft: Draft) -> list[Start]:
    """Return the commands of a plan with their nodes. Nodes that a command cannot start on are faults of the draft."""
    starts = []
    for command in node_commands(draft.plan):
        start = start_of(draft.plan, command, draft.options.port)
        if start is None:
            draft.refuse(faults.returning_ranks(command.components[0]))
            continue
        if len(start.nodes) > 1 and not command.per_process and not command.has(NODE_RANK):
            draft.refuse(faults.one_node_only(" ".join(command.words[:2]), start.nodes))
        counts = {share.processes for share in start.shares}
        if len(counts) > 1 and command.has(PROCESSES):
            most = max(start.shares, key=lambda share: share.processes)
            least = min(start.shares, key=lambda share: share.processes)
            draft.refuse(faults.unequal_nodes(start.name, (most.node, most.processes), (least.node, least.processes)))
        others = {name: size for name, size in command.sizes.items() if len(draft.plan[name]) != size}
        for name, size in others.items():
            draft.refuse(faults.other_processes(name, len(draft.plan[name]), size))
        if not others:
            starts.append(start)
    return starts


def start_of(plan: Plan, command: NodeCommand, port: int) -> Start | None:
    """Return a command with its nodes; ``None`` if ranks of its components return to an earlier node.

    The component with index i has its rendezvous at ``port`` + i.
    """
    together: dict[int, dict[str, list[Placement]]] = {}
    for name in command.components:
        before = None
        seen: set[int] = set()
        for row in plan[name]:
            node = row.cluster_node_rank
            if node != before and node in seen:
                return None
            seen.add(node)
            before = node
            share = len(together) if command.per_process else node
            together.setdefault(share, {}).setdefault(name, []).append(row)
    shares = tuple(_share_of(plan, rows, serves=command.serves) for rows in together.values())
    return Start(command, shares, port + list(plan).index(command.components[0]))


def _share_of(plan: Plan, rows: Mapping[str, Sequence[Placement]], *, serves: bool) -> Share:
    """Return what a command starts for the processes of components on one node.

    It sees the devices of the first component first. A server gives its engines consecutive devices. Of n processes of
    a trainer that divide a model, process r has every n-th one from r on (ms-swift: ``patch_mp_ddp``).
    """
    own: list[int] = []
    for some in rows.values():
        devices = [[index for _, index in row.devices] for row in some]
        in_turns = devices if serves else zip_longest(*devices)
        own += (index for turn in in_turns for index in turn if index is not None)
    all_rows = [row for some in rows.values() for row in some]
    first, last = all_rows[0], all_rows[-1]
    ids = plan.inventory.node(first.cluster_node_rank).accelerator_ids
    mask = _mask(last.accelerator_type, [ids[index] for index in dict.fromkeys(own)])
    return Share(first.cluster_node_rank, mask, len(all_rows), first.rank, first.local_rank)


def _mask(kind: str, ids: Sequence[str]) -> dict[str, str]:
    row = vendor(kind)
    if row is None or not ids:
        return {}
    return {name: value for name, value in row.showing(ids).items() if name != row.noset_env_var}


def shell_text(start: Start, plan: Plan, at: At, mask: Mapping[str, str]) -> str:
    """Return the text of a shell that becomes a command in its folder, with its variables and its mask.

    The values of ``at`` and ``mask`` are words of the shell.
    """
    command = start.command
    folder = "" if command.folder is None else f"cd {quoted(command.folder)} && "
    values_of = values(start, plan, at)
    filled = sorted(command.filled_variables(values_of).items())  # as the file of a plan has them
    variables = {name: _word(parts) for name, parts in filled} | {**mask}
    assignments = "".join(f"{name}={value} " for name, value in variables.items())
    words = " ".join(_word(parts) for parts in command.filled(values_of))
    return f"{folder}{assignments}exec {words}"


def values(start: Start, plan: Plan, at: At) -> Callable[[str], Sequence[str]]:
    """Return the function that returns the values of each field of a command; see `NodeCommand.filled`."""
    constants = {
        "nodes": str(len(start.nodes)),
        "processes": str(sum(share.processes for share in start.shares)),
        "node_rank": "0" if len(start.shares) == 1 else at.rank,
        "port": str(start.port),
    }

    def values_of(name: str) -> Sequence[str]:
        if name in constants:
            return [constants[name]]
        if name == "node_processes":
            return [at.of_share("processes", lambda share: str(share.processes))]
        field = field_of(name)
        if isinstance(field, SizeField):
            return []
        if isinstance(field, EndpointsField):
            rows = plan[field.component]
            return [f"{at.address(row.cluster_node_rank)}:{field.first_port + row.local_rank}" for row in rows]
        return [_value(field, start, plan, at)]

    return values_of


def _value(field: Field | None, start: Start, plan: Plan, at: At) -> str:
    """Return the value of a field that has one."""
    match field:
        case PortField(first):
            return at.of_share("ports", lambda share: str(first + share.position))
        case RankValueField(texts):
            return at.of_share("values", lambda share: at.quote(texts[share.rank]))  # `starts_of` has counted them
        case GroupField(size, head):
            if not head:
                return at.of_share("ranks", lambda share: str(share.rank % size))
            return at.of_share("heads", lambda share: at.address(_head(start, share, size)))
        case AddressField(component, user):
            node = plan[component][0].cluster_node_rank
            is_local = user == "first node" or (user == "all nodes" and len(start.nodes) == 1)
        case _:
            node, is_local = start.first, len(start.nodes) == 1
    return HERE if node == start.first and is_local else at.address(node)


def _head(start: Start, share: Share, size: int) -> int:
    """Return the node of the first process in the group of a process."""
    return start.shares[share.rank - share.rank % size].node


def _word(parts: Sequence[str]) -> str:
    """Return a word for a shell, of a text and the value of a field by turns; a value that needs quotes has them."""
    if len(parts) == 1:
        return quoted(parts[0])
    texts = [quoted(text) if text else "" for text in parts[::2]]
    return "".join(text + value for text, value in zip(texts, [*parts[1::2], ""], strict=True))


def port_in(plan: Plan, text: str) -> dict[str, int]:
    """Return the first port of a file with the commands of a plan; nothing if no command has a rendezvous."""
    for command in node_commands(plan):
        before = _before_port(command)
        stated = None if before is None else re.search(rf"\b{re.escape(before)}{_NUMBER}\b", text)
        if stated is not None:
            return {"port": int(stated[1]) - list(plan).index(command.components[0])}
    return {}


def _before_port(command: NodeCommand) -> str | None:
    """Return what stands before the port of a command: its flag, or its variable; ``None`` without a rendezvous."""
    variable = next((name for name, value in command.variables.items() if value == PORT), None)
    if variable is not None:
        return f"{variable}="
    words = list(command.words)
    return f"{words[words.index(PORT) - 1].lstrip('-')} " if PORT in words else None


def uncovered(plan: Plan) -> str | None:
    """Return a component that no command of the job starts, ``None`` if all are started."""
    started = {name for command in node_commands(plan) for name in command.starts}
    return next((name for name in plan if name not in started), None)

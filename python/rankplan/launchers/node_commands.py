"""The commands of a job that start their processes themselves, on the nodes of a plan; see `NodeCommand`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rankplan.accelerators import vendor
from rankplan.frozen import frozen
from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.launchers.options import Options
from rankplan.launchers.scripts import quoted
from rankplan.plans.node_command import NODE_RANK, PORT, PROCESSES, NodeCommand, address_in
from rankplan.plans.plan import Plan

HERE = "127.0.0.1"
"""The address of a node for a command that runs on this node alone."""
_NUMBER = "([0-9]{1,5})"


@frozen
class Share:
    """What a command has on one of its nodes: the variables that show its accelerators, and its processes."""

    node: int
    mask: Mapping[str, str]
    processes: int


@frozen
class Start:
    """A command with its nodes, in the order of their ranks. ``port`` is that of its rendezvous."""

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
        return [share.node for share in self.shares]

    @property
    def first(self) -> int:
        """The rank of its first node."""
        return self.shares[0].node


class At(NamedTuple):
    """Where a command is filled in: the rank of its node, its processes there, and the address of a node."""

    rank: str
    processes: str
    address: Callable[[int], str]


def has_node_commands(plan: Plan, options: Options) -> bool:
    """Whether a file starts the commands of the job of a plan, once on each node, as nothing else is stated."""
    return bool(node_commands(plan)) and not options.commands and options.entrypoint is None


def node_commands(plan: Plan) -> Sequence[NodeCommand]:
    """Return the commands of the job whose components the plan has, servers first."""
    commands = () if plan.job is None else plan.job.commands
    return [command for command in commands if all(name in plan for name in command.components)]


def starts_of(draft: Draft) -> list[Start]:
    """Return the commands of a plan with their nodes. Nodes that a command cannot start on are faults of the draft."""
    starts = []
    for command in node_commands(draft.plan):
        start = start_of(draft.plan, command, draft.options.port)
        if start is None:
            draft.refuse(faults.returning_ranks(command.components[0]))
            continue
        if len(start.shares) > 1 and not command.has(NODE_RANK):
            draft.refuse(faults.one_node_only(" ".join(command.words[:2]), start.nodes))
        counts = {share.processes for share in start.shares}
        if len(counts) > 1 and command.has(PROCESSES):
            most = max(start.shares, key=lambda share: share.processes)
            least = min(start.shares, key=lambda share: share.processes)
            draft.refuse(faults.unequal_nodes(start.name, (most.node, most.processes), (least.node, least.processes)))
        starts.append(start)
    return starts


def start_of(plan: Plan, command: NodeCommand, port: int) -> Start | None:
    """Return a command with its nodes; ``None`` if ranks of its components return to an earlier node.

    The component with index i has its rendezvous at ``port`` + i.
    """
    devices: dict[int, dict[str, None]] = {}
    kinds: dict[int, str] = {}
    counts: dict[int, int] = {}
    for name in command.components:
        before = None
        seen: set[int] = set()
        for row in plan[name]:
            node = row.cluster_node_rank
            if node != before and node in seen:
                return None
            seen.add(node)
            before = node
            ids = plan.inventory.node(node).accelerator_ids
            own = [ids[index] for _, index in row.devices]
            devices.setdefault(node, {}).update(dict.fromkeys(own))
            kinds[node] = row.accelerator_type
            counts[node] = counts.get(node, 0) + 1
    shares = tuple(Share(node, _mask(kinds[node], list(ids)), counts[node]) for node, ids in devices.items())
    return Start(command, shares, port + list(plan).index(command.components[0]))


def _mask(kind: str, ids: Sequence[str]) -> dict[str, str]:
    row = vendor(kind)
    if row is None or not ids:
        return {}
    return {name: value for name, value in row.showing(ids).items() if name != row.noset_env_var}


def shell_text(start: Start, plan: Plan, at: At, mask: Mapping[str, str]) -> str:
    """Return the text of a shell that becomes a command in its folder, with its variables and this mask.

    The values of the mask and those of ``at`` are words of the shell.
    """
    command = start.command
    folder = "" if command.folder is None else f"cd {quoted(command.folder)} && "
    value_of = values(start, plan, at)
    filled = sorted(command.filled_variables(value_of).items())  # as the file of a plan has them
    variables = {name: _word(parts) for name, parts in filled} | {**mask}
    assignments = "".join(f"{name}={value} " for name, value in variables.items())
    words = " ".join(_word(parts) for parts in command.filled(value_of))
    return f"{folder}{assignments}exec {words}"


def values(start: Start, plan: Plan, at: At) -> Callable[[str], str]:
    """Return the function that returns the value of each field of a command; see `NodeCommand.filled`."""
    total = sum(share.processes for share in start.shares)
    is_alone = len(start.shares) == 1
    numbers = {
        "nodes": str(len(start.shares)),
        "processes": str(total),
        "node_processes": at.processes,
        "node_rank": "0" if is_alone else at.rank,
        "port": str(start.port),
    }

    def value_of(name: str) -> str:
        if name in numbers:
            return numbers[name]
        address = address_in(name)
        node = start.first if address is None else plan[address.component][0].cluster_node_rank
        is_local = is_alone or (address is not None and not address.by_all)
        return HERE if node == start.first and is_local else at.address(node)

    return value_of


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

"""ms-swift's older way on Ray: groups of processes with ranks of their own, on nodes with enough GPUs.

Rank r of ``device_groups`` is GPU r % n of node r // n, where n is ``nproc_per_node``: ms-swift shows it by its number.
Each node is a placement group of one bundle with n GPUs, a half of the CPUs of its node and one more, so that Ray has
no room for two of them on a node. A second group for each node, of a quarter of its CPUs and one, is always there, also
if no group of processes is on CPUs.

Follows ``ResourceManager.__init__`` (`swift/ray_utils/resource_manager.py`, 3602360). ``ranks`` are parsed, never run.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rankplan import RankSet, Requests
from rankplan.sdk import Config, Job, NodeOrder, Placer, Taken, Where
from rankplan.sdk.words import whole_number
from rankplan.trainers.ms_swift import group_faults, keys

_PER_NODE = "nproc_per_node"
_OTHER_KEYS = (_PER_NODE, "nnodes")
_CPU = "CPU"
_MOST = 1 << 20
"""The most ranks of a group."""


class Group(NamedTuple):
    """A group of processes: its ranks, or the number of its processes on CPUs."""

    name: str
    ranks: Sequence[int]
    processes: int
    where: Where


class GroupsJob(Job):
    """The groups of a config with ``device_groups``."""

    states_memory = False

    def __init__(self, config: Config) -> None:
        self.where = config.key_place(keys.DEVICE_GROUPS)
        self.per_node = 1
        self.groups: list[Group] = []
        if not config[keys.USE_RAY]:
            config.faults.add(self.where, group_faults.ignored())
            return
        section = _section(config)
        if section is None:
            config.faults.add(config.where(keys.DEVICE_GROUPS), group_faults.not_groups())
            return
        per_node = whole_number(section.get(_PER_NODE))
        if per_node is None or per_node < 1:
            config.faults.add(self._at(config, _PER_NODE), group_faults.no_processes(section.get(_PER_NODE)))
            return
        self.per_node = per_node
        self._read(config, section)

    def _at(self, config: Config, *path: str) -> Where:
        """Return the place of a part of the groups, which may stand in one text."""
        if not isinstance(config.raw(keys.DEVICE_GROUPS), Mapping):
            return config.where(keys.DEVICE_GROUPS)
        return config.place_of((*config.path(keys.DEVICE_GROUPS), *path))

    def _read(self, config: Config, section: Mapping[Any, Any]) -> None:
        """Read the groups in their order: a number of ranks follows the last rank of the group before."""
        devices: set[str] = set()
        owners: dict[int, str] = {}
        last = -1
        for key, group in section.items():
            if key in _OTHER_KEYS:
                continue
            name = str(key)
            stated = group if isinstance(group, Mapping) else {}
            missing = [part for part in ("device", "ranks", "workers") if part not in stated]
            if missing:
                config.faults.add(self._at(config, name), group_faults.incomplete(name, missing))
                continue
            device = str(group["device"]).upper()
            ranks_at = self._at(config, name, "ranks")
            if device == _CPU:
                self._read_cpus(config, name, group["ranks"], ranks_at)
                continue
            devices.add(device)
            ranks = _ranks(group["ranks"], last + 1)
            if not ranks:
                fault = group_faults.no_ranks(name)
                if ranks is None:
                    fault = group_faults.unread_ranks(name, group["ranks"])
                config.faults.add(ranks_at, fault)
                continue
            last = ranks[-1]
            if len(set(ranks)) < len(ranks) or not owners.keys().isdisjoint(ranks):
                twice = next(rank for rank in ranks if rank in owners or ranks.count(rank) > 1)
                config.faults.add(ranks_at, group_faults.rank_twice(twice, owners.get(twice, name), name))
                continue
            owners |= dict.fromkeys(ranks, name)
            self.groups.append(Group(name, ranks, len(ranks), ranks_at))
        if len(devices) != 1 and not config.faults:
            config.faults.add(self.where, group_faults.several_devices(sorted(devices)))
        self._check_nodes(config, owners)

    def _read_cpus(self, config: Config, name: str, ranks: Any, at: Where) -> None:
        """Read a group on CPUs, whose workers this version cannot start."""
        if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
            config.faults.add(at, group_faults.cpu_ranks(name, ranks))
            return
        config.faults.warn(at, group_faults.no_cpu_workers(name))
        self.groups.append(Group(name, (), ranks, at))

    def _check_nodes(self, config: Config, owners: Mapping[int, str]) -> None:
        """Record a rank beyond the nodes that ms-swift counts: all ranks, divided by those of a node."""
        nodes = self.nodes
        beyond = next((rank for rank in owners if rank // self.per_node >= nodes or rank < 0), None)
        if beyond is not None and not config.faults:
            at = next(group.where for group in self.groups if group.name == owners[beyond])
            config.faults.add(at, group_faults.rank_beyond(beyond, self.per_node, nodes))

    @property
    def nodes(self) -> int:
        """The nodes that the groups have."""
        return -(-sum(len(group.ranks) for group in self.groups) // self.per_node)

    def node_order(self) -> NodeOrder:
        """Return the variable ``NODE_RANK``; without it, the nodes are not sorted."""
        return "rank"

    def size(self) -> tuple[int, int]:
        """Return the nodes, each with the processes of a node, or 8 accelerators."""
        return max(self.nodes, 1), max(self.per_node, self.usual_accelerators if self.nodes > 1 else 1)

    def place(self, placer: Placer) -> None:
        """Place each group on the GPUs of its ranks, and record the two placement groups of each node."""
        users = [group.name for group in self.groups if group.ranks]
        sizes = placer.inventory.core.nodes_by_size()
        large = sum(len(ranks) for size, ranks in sizes.items() if size >= self.per_node)
        if large < self.nodes:
            placer.reject(self.where, group_faults.few_nodes(self.nodes, self.per_node, large))
            return
        taken = placer.spread(
            [self.per_node] * self.nodes,
            users[0],
            self.where,
            lambda short: group_faults.few_free(self.nodes, self.per_node, short.bundles),
            strict=True,
        )
        if not taken:
            return
        nodes = taken.nodes(placer.inventory.core, self.per_node)
        self._reject_other_devices(placer, taken, nodes)
        placer.requests += _requests(placer, users[0], self.per_node, nodes)
        for group in self.groups:
            if group.ranks:
                own = Taken()
                for rank in group.ranks:
                    own += taken.slice(rank, rank + 1)
                placer.component(group.name, own, group.where)
            else:
                each = group.processes // len(nodes) + 1
                used = nodes[: -(-group.processes // each)]
                placer.without_accelerators(group.name, group.processes, group.where, RankSet(used))

    def _reject_other_devices(self, placer: Placer, taken: Taken, nodes: Sequence[int]) -> None:
        """Record nodes whose first GPUs are not those of one placement group: a process sees GPUs by their numbers."""
        core = placer.inventory.core
        expected = Taken([(core.resource(node, 0), core.resource(node, self.per_node - 1)) for node in nodes])
        if expected.accelerators != taken.accelerators:
            placer.reject(self.where, group_faults.other_devices(self.per_node))


def _section(config: Config) -> Mapping[Any, Any] | None:
    """Return the groups: a section, or a text of JSON in a flag."""
    value = config.raw(keys.DEVICE_GROUPS)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, Mapping) else None


def _requests(placer: Placer, component: str, per_node: int, nodes: Sequence[int]) -> Requests:
    """Return a group of GPUs for each node, then one of CPUs for each; amounts that nodes do not state are unknown.

    A group of CPUs is on its own node, or else on the first one that has as many left.
    """
    by_cpus = placer.inventory.core.nodes_by_cpus()

    def cpus_of(node: int) -> int | None:
        amount = next((amount for amount, ranks in by_cpus if node in ranks), None)
        return None if amount is None else int(amount)

    cpus = [cpus_of(node) for node in nodes]
    used: Counter[int] = Counter()
    requests = Requests()
    for node, amount in zip(nodes, cpus, strict=True):
        half = None if amount is None else amount // 2 + 1
        used[node] += half or 0
        bundle = [(1, per_node, (half, None, ()))]
        requests += Requests.of_rows([(component, "PACK", False, "rank", bundle, None, 1, [(node, 1, 1)])])
    for node, amount in zip(nodes, cpus, strict=True):
        quarter = None if amount is None else amount // 4 + 1
        home = node
        if quarter is not None:
            others = (
                other for other in range(placer.inventory.num_nodes) if (cpus_of(other) or 0) - used[other] >= quarter
            )
            has_room = (amount or 0) - used[node] >= quarter
            home = node if has_room else next(others, node)
            used[home] += quarter
        bundle = [(1, 0, (quarter, None, ()))]
        requests += Requests.of_rows([(component, "PACK", False, None, bundle, None, 1, [(home, 1, 1)])])
    return requests


def _ranks(value: Any, first: int) -> Sequence[int] | None:
    """Return the ranks of a group: those that follow a number of them, a list, or a text of Python that makes one."""
    number = whole_number(value)
    if number is not None:
        return range(first, first + number) if 0 <= number <= _MOST else None
    if isinstance(value, str):
        try:
            return _evaluated(ast.parse(value.strip(), mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    is_list = isinstance(value, Sequence) and all(isinstance(rank, int) for rank in value)
    return list(value) if is_list else None


def _evaluated(node: ast.expr) -> list[int]:
    """Return the numbers of an expression of ``list``, ``range``, lists and ``+``. Raises ``ValueError``."""
    if isinstance(node, ast.List | ast.Tuple):
        return [_number(item) for item in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _evaluated(node.left) + _evaluated(node.right)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
        raise ValueError
    if node.func.id == "list" and len(node.args) == 1:
        return _evaluated(node.args[0])
    if node.func.id != "range" or not 1 <= len(node.args) <= 3:
        raise ValueError
    numbers = range(*map(_number, node.args))
    if len(numbers) > _MOST:
        raise ValueError
    return list(numbers)


def _number(node: ast.expr) -> int:
    """Return a whole number, which may have a sign. Raises ``ValueError`` for any other expression."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise ValueError

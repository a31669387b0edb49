"""slime: flags for the size of each side, and one pool of GPUs in a stable order that the sides are cut from.

The actor has the first GPUs, one per process. A critic shares them; with ``critic_num_nodes`` or
``critic_num_gpus_per_node``, which older versions of slime have, it has the next GPUs to itself. The rollout's engines
start at the rollout's offset: after the training, or at the first GPU if colocated. An engine larger than a node has
one process per node.

The pool is on the first nodes of the inventory, as many as it needs. Their GPUs are in the order of slime, node by
node; nodes are in rank order unless every node has an address. slime reserves whole GPUs, and its processes ask for
shares of them, colocated or not: 0.4 for one of the actor and of the critic, 0.2 for an engine. Faults are
``resource-out-of-range`` for too few GPUs and ``spans-nodes`` for a rollout process that would need two nodes, among
others.

Follows slime's ``create_placement_groups``, ``allocate_train_group`` and ``start_rollout_servers`` (624b824).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rankplan import Actors, Inventory, Parallel
from rankplan.sdk import Config, Job, Key, NodeOrder, Placer, Sizes, Taken, Where, must_be
from rankplan.sdk.placing import check_addresses
from rankplan.sdk.words import misspelt
from rankplan.trainers.slime import faults, keys
from rankplan.trainers.slime.dialect import DIALECT

_HOLDERS = ("rollout manager", "engine lock")
"""Actors that hold a CPU each beside the group, which takes one for each of its GPUs (``RolloutManager``)."""


_TRAINING_SHARE = 0.4
"""What a process of the actor, and of the critic, asks for of its GPU (``allocate_train_group``)."""

_ENGINE_SHARE = 0.2
"""What a process of an engine asks for of its first GPU (``ServerGroup.start_engines``)."""


class _Side(NamedTuple):
    """The components that share GPUs, and their number."""

    users: list[str]
    gpus: int


class _LastNode(NamedTuple):
    """A component, and its node that slime sorts behind its others."""

    component: str
    node: int


class SlimeJob(Job):
    """The sides that slime's flags describe, and the parallel sizes of the training and of an engine.

    Sides are numbers of GPUs: 0 for a side that does not run here.
    """

    sorts_first = True

    def __init__(self, config: Config) -> None:
        self._config = config
        _reject_flags(config)
        self._read_training(config)
        self._read_rollout(config)
        self.parallel = config.parallel(keys.TRAINING)
        self.engine = self._engine_sizes(config)

    def _read_training(self, config: Config) -> None:
        """Read which sides run, and the number of GPUs of the training (slime: ``create_placement_groups``)."""
        self.train_only = config.get(keys.TRAIN_ONLY, config.stated(keys.DEBUG_DATA))
        self.rollout_only = config[keys.ROLLOUT_ONLY]
        self.colocate = config[keys.COLOCATE]
        self.external = config.get(keys.EXTERNAL, config.stated(keys.ENGINE_ADDRESSES))
        # With debug_rollout_only, slime ignores colocate (`slime_validate_args`, then `train` of train_async.py).
        if self.colocate and not self.rollout_only and config.program.rpartition(".")[2] == "train_async":
            config.faults.add(config.where(keys.COLOCATE), faults.colocated_async())
        has_critic = config.get(keys.USE_CRITIC, config[keys.ESTIMATOR] == "ppo")
        self.doubtful = any(fault.code != "duplicate-key" for fault in config.faults)
        self._contradicts = self.rollout_only and config[keys.TRAIN_ONLY]
        nodes, each = config[keys.ACTOR_NODES], config[keys.ACTOR_GPUS]
        self.actor, self.critic = nodes * each, 0
        # A slime whose critic shares the actor's GPUs sets these flags too, to the actor's sizes; it also has
        # `megatron_config_path`.
        is_separate = config.stated(keys.CRITIC_NODES) or config.stated(keys.CRITIC_GPUS)
        self.critic_shares = not is_separate or config.has(keys.MEGATRON_CONFIG)
        if has_critic:
            if not self.critic_shares:
                nodes, each = config.get(keys.CRITIC_NODES, nodes), config.get(keys.CRITIC_GPUS, each)
            self.critic = nodes * each

    def _read_rollout(self, config: Config) -> None:
        """Read the number of GPUs of the rollout and of all sides, and where the rollout starts."""
        training = self.actor if self.critic_shares else self.actor + self.critic
        self.rollout = 0
        if not self.train_only and not self.external:
            self.rollout = config.get(keys.ROLLOUT_GPUS, training)
            if not (config.stated(keys.ROLLOUT_GPUS) or self.colocate or self.doubtful):
                config.faults.add(config.place, faults.no_rollout_gpus())
        self.rollout_offset = 0
        if self.rollout_only and not self.train_only:
            self.num_gpus = training if self.external else self.rollout
            self.actor = self.critic = 0
        elif self.train_only or (self.colocate and not self.external):
            self.num_gpus = max(training, self.rollout)
        else:
            self.num_gpus, self.rollout_offset = training + self.rollout, training
        self.per_engine = config[keys.ENGINE_GPUS]
        self.per_node = config.get(keys.NODE_GPUS, 0)

    def _engine_sizes(self, config: Config) -> Sizes:
        """Return the sizes of an engine; its tensor size follows from its GPUs (slime: ``_compute_server_args``)."""
        stated = config.parallel(keys.ENGINE, order=Parallel.ENGINE_ORDER)
        gpus, stages, experts = self.per_engine, stated.parallel.pp, stated.parallel.ep
        tensor = gpus // stages
        for name, size, whole in (("pp", stages, gpus), ("ep", experts, tensor)):
            if whole % size or not whole:
                config.faults.add(stated.places[name], faults.undivided_engine(whole, size, name))
                return stated
        places = dict(stated.places)
        if config.stated(keys.ENGINE_GPUS):
            places = {"tp": config.where(keys.ENGINE_GPUS), **places}
        etp = tensor // experts if experts > 1 else 1
        parallel = Parallel(tp=tensor, pp=stages, ep=experts, etp=etp, order=Parallel.ENGINE_ORDER)
        paths = {"tp": config.path(keys.ENGINE_GPUS), **stated.keys}
        return Sizes(parallel, stated.where, places, paths)

    def size(self) -> tuple[int, int]:
        """Return the nodes with enough GPUs: ``num_gpus_per_node`` per node (default 8)."""
        each = self.per_node or self.usual_accelerators
        return max(1, -(-self.num_gpus // each)), each

    def place(self, placer: Placer) -> None:
        """Place ``actor``, ``critic`` and ``rollout``."""
        if self._contradicts:
            placer.reject(self._config.where(keys.ROLLOUT_ONLY), faults.both_only())
        elif not (self.actor or self.critic or self.rollout):
            placer.reject(self._config.place, faults.no_gpus())
        placer.finish()
        colocated = bool((self.actor or self.critic) and self.rollout) and self.rollout_offset == 0
        pool = self._take(placer, colocated=colocated)
        each = self._per_process(placer, pool)
        placer.finish()
        first = "actor" if self.actor else "critic" if self.critic else "rollout"
        placer.ask(first, pool, order="number", cpus=1)
        for name in _HOLDERS:
            placer.hold(Actors(name, cpus=1))
        critic = 0 if self.critic_shares else self.actor
        self._place_training(placer, "actor", pool.slice(0, self.actor))
        self._place_training(placer, "critic", pool.slice(critic, critic + self.critic))
        rollout = pool.slice(self.rollout_offset, self.rollout_offset + self.rollout)
        sizes = _decisive(self.engine, self.rollout)
        engines = self.per_engine // each
        self._check_addresses(placer, rollout, each)
        placer.component("rollout", rollout, sizes.where, each, sizes=sizes, share=_ENGINE_SHARE, engines=engines)

    def _place_training(self, placer: Placer, name: str, taken: Taken) -> None:
        sizes = _decisive(self.parallel, len(taken))
        placer.component(name, taken, sizes.where, sizes=sizes, share=_TRAINING_SHARE)

    def _check_addresses(self, placer: Placer, rollout: Taken, each: int) -> None:
        """Warn of an engine that gets the address of another node, or the ports of another process.

        slime counts processes, each of ``each`` GPUs, instead of asking where they are.
        """
        if not rollout:
            return
        node_gpus = self.per_node or self.usual_accelerators
        together = max(1, node_gpus // self.per_engine)
        where, help = self._config.where(keys.ENGINE_GPUS), faults.whole_nodes(node_gpus)
        check_addresses(placer, self._config.system, rollout, each, together, node_gpus, where, help)

    def _take(self, placer: Placer, *, colocated: bool) -> Taken:
        """Take the GPUs of all sides; too few are a fault, with those that there are."""
        sides = self._sides()
        if placer.has_several_groups([side.users for side in sides]):
            return self._take_apart(placer, sides)
        present = placer.free_for(*self._names())
        if self.num_gpus <= present:
            return self._taken(placer)
        critic = 0 if self.critic_shares else self.critic
        parts = [("actor", self.actor), ("critic", critic), ("rollout", self.rollout)]
        needed = [f"{name} {count}" for name, count in parts if count]
        if colocated:
            needed.append("colocated")
        defaults_of = None
        if self.actor and not self._config.stated(keys.ACTOR_GPUS):
            defaults_of = self._config.system
        placer.reject(self._counting(), faults.too_few_gpus(self.num_gpus, needed, present, defaults_of))
        return placer.take(present, "", self._counting(), node_by_node=True, users=self._names())

    def _names(self) -> list[str]:
        """Return the names of all components."""
        sizes = {"actor": self.actor, "critic": self.critic, "rollout": self.rollout}
        return [name for name, size in sizes.items() if size]

    def _sides(self) -> list[_Side]:
        """Return the components that share GPUs, and their number, in the order of the GPUs."""
        if not self.rollout_offset:
            return [_Side(self._names(), self.num_gpus)]
        sides = [_Side(["actor"], self.actor), _Side(["critic"], self.critic)]
        if self.critic_shares:
            sides = [_Side(["actor", "critic"] if self.critic else ["actor"], self.rollout_offset)]
        sides.append(_Side(["rollout"], self.rollout))
        return [side for side in sides if side.gpus]

    def _take_apart(self, placer: Placer, sides: Sequence[_Side]) -> Taken:
        """Take the GPUs of each side from its node group.

        slime has one placement group for all sides, whose nodes it sorts. So the nodes of a side must come before those
        of the next one in its order.
        """
        pool = Taken()
        last: _LastNode | None = None
        order = placer.inventory.core.order(self.node_order()) or range(placer.inventory.num_nodes)
        place = {node: index for index, node in enumerate(order)}
        for side in sides:
            name = side.users[0]
            whole = self._steps_of(name, placer.pool_for(*side.users).largest)
            by_node = not placer.packing.whole
            taken = placer.take(side.gpus, name, self._counting(), whole=whole, node_by_node=by_node, users=side.users)
            pool += taken
            nodes = sorted(taken.used_nodes(placer.inventory.core), key=place.__getitem__)
            if not nodes:
                continue
            if last is not None and place[nodes[0]] < place[last.node]:
                first, second = (_address(placer.inventory, node) for node in (last.node, nodes[0]))
                fault = faults.order_of_groups(self._config.system, (last.component, name), (first, second))
                placer.reject_group(side.users, fault)
            last = _LastNode(name, nodes[-1])
        return pool

    def _steps_of(self, component: str, largest: int) -> set[int]:
        """Return the sizes of the groups of a component that should stay on a node with so many GPUs."""
        if component == "rollout":
            return {min(self.per_engine, self.per_node or largest)}
        sizes = self.parallel.parallel
        return {sizes.tp, sizes.tp * sizes.cp}

    def _taken(self, placer: Placer) -> Taken:
        """Take the GPUs of all sides in their order; pinned, tensor and context groups and engine processes are whole.

        Apart, the sizes of the training are tried before the engines, which come next in whole processes.
        """
        if not placer.packing.whole:
            return placer.take(self.num_gpus, "", self._counting(), node_by_node=True, users=self._names())
        sizes = self.parallel.parallel
        trains = self.actor or self.critic
        training = {sizes.tp, sizes.tp * sizes.cp} if trains else set[int]()
        engine = min(self.per_engine, self.per_node or placer.pool_for(*self._names()).largest)
        if not (self.rollout and self.rollout_offset):
            whole = training | ({engine} if self.rollout else set())
            return placer.take(self.num_gpus, "", self._counting(), whole=whole, users=self._names())
        rollout = _steps(self.rollout, engine)
        # the larger size is a multiple of the other one
        sizes_of_steps = sorted((size for size in training if 1 < size <= self.num_gpus), reverse=True)
        lists = [_steps(self.rollout_offset, size) + rollout for size in (*sizes_of_steps, 1)]
        return placer.lists(self.num_gpus, [[(1, self.num_gpus)], *lists], users=self._names())

    def node_order(self) -> NodeOrder:
        """Return addresses as numbers (``sort_key``)."""
        return "number"

    def _counting(self) -> Where:
        """Return the place of the flag that gives the larger side its GPUs."""
        flags: list[Key[Any]] = [keys.ACTOR_NODES, keys.ACTOR_GPUS]
        flags.insert(0 if self.rollout > self.actor else len(flags), keys.ROLLOUT_GPUS)
        return next((self._config.where(flag) for flag in flags if self._config.stated(flag)), self._config.place)

    def _per_process(self, placer: Placer, pool: Taken) -> int:
        """Return the number of GPUs per rollout process, and record why engines cannot be divided so."""
        engine, offset, core = self.per_engine, self.rollout_offset, placer.inventory.core
        rollout = pool.slice(offset, offset + self.rollout)
        if not rollout:
            return 1
        largest = rollout.largest_node(core)
        each = min(engine, self.per_node or largest)
        if engine % each:
            placer.reject(self._config.where(keys.ENGINE_GPUS), faults.uneven_processes(engine, each))
            return each
        if self.rollout % engine:
            placer.reject(self._config.where(keys.ROLLOUT_GPUS), faults.uneven_engines(self.rollout, engine))
        torn = rollout.torn(core, each)
        if torn is not None:
            whole = (size for size in range(each - 1, 0, -1) if each % size == 0 and rollout.torn(core, size) is None)
            flag = keys.NODE_GPUS if engine > each or each > largest else keys.ENGINE_GPUS
            shares_node = offset > 0 and pool.slice(offset - 1, offset + 1).torn(core, 2) is None
            before = offset if shares_node else 0
            fault = faults.torn_process(torn, each, help=f"set {flag.path} to {next(whole)}", before=before)
            placer.reject(self._config.where(flag), fault)
        return each


def _reject_flags(config: Config) -> None:
    """Record flags that are written twice, likely typos, and switches without a value."""
    known = {key.path for key in config.keys}
    missing = sorted(key.path for key in keys.NAMED if not config.has(key))
    for written in map(str, config.section):
        flag = config.flag_name(written)
        if flag not in known:
            near = misspelt(flag, missing)
            if near is not None:
                config.faults.add(config.named(written), faults.misspelt_flag(written, near))
        elif config.flags[flag] != written:
            config.faults.add(config.value_place(written), faults.same_flag(written, config.flags[flag]))
    for key in (key for key in keys.NAMED if key.is_switch and config.has(key)):
        before = len(config.faults)
        is_empty = not config.stated(key) and len(config.faults) == before
        if is_empty:
            fault = must_be(config.path(key), None, "true or false", "write true or false")
            config.faults.add(config.where(key), fault)


def _decisive(sizes: Sizes, count: int) -> Sizes:
    """Return sizes whose faults are at the size by which the GPUs cannot be divided, else at the largest one."""
    breaking = sizes.parallel.breaking(count)
    if breaking == "etp" and "etp" not in sizes.places:
        breaking = "ep"
    if breaking not in sizes.places:
        breaking = max(sizes.places, key=lambda kind: getattr(sizes.parallel, kind), default=None)
    where = sizes.where if breaking is None else sizes.places[breaking]
    return replace(sizes, where=where, places={})


def _address(inventory: Inventory, node: int) -> str:
    """Return the address of a node, or else its name."""
    spec = inventory.node(node)
    return spec.ip or spec.name


def _steps(count: int, size: int) -> list[tuple[int, int]]:
    """Return a number of GPUs as steps of a size, with their number; the last one may be smaller."""
    return [(count // size, size), (1 if count % size else 0, count % size)]


def layout(flags: Any) -> tuple[int, int]:
    """Return the number of GPUs of all sides together, and the position of the rollout's first GPU among them.

    Raises `PlacementError` with every fault.
    """
    read = DIALECT.read(flags)
    read.reader.finish()
    job: SlimeJob = read.values
    return job.num_gpus, job.rollout_offset

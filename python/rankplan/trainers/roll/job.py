"""ROLL: roles with a ``device_mapping`` over the cluster's accelerators, or with a ``world_size`` on its CPUs.

A role's accelerators are cut into consecutive chunks in the order written, ``num_gpus_per_worker`` per worker. The
strategy vllm replaces that number by the product of its parallel sizes; all others except sglang and hf_infer, by 1. A
chunk may span nodes; the worker runs on the node of its first accelerator. In a role with only a ``world_size``, rank r
runs on node r mod the number of nodes. The name of a nested role is its dotted path.

The highest accelerator of all roles decides the number of nodes; ``num_nodes`` counts only without one. A reference
model, teachers and a critic are roles that may be configured without being started.

Follows ROLL's ``WorkerConfig.__post_init__``, ``RLVRConfig.__post_init__``, ``RLVRPipeline.__init__``,
``AgenticPipeline.__init__``, ``DPOPipeline.__init__`` and ``ResourceManager.allocate_placement_group`` (8eb27cc).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rankplan import Diagnostic, Faults, Inventory, Parallel, PlacementError, RankSet
from rankplan.sdk import Config, Job, Key, NodeOrder, Placer, Sizes, Taken, Where
from rankplan.sdk.nodes import first_nodes, reordered
from rankplan.sdk.placing import MAX_PROCESSES
from rankplan.sdk.words import unresolved
from rankplan.trainers.roll import faults, keys
from rankplan.trainers.roll.device_mapping import devices_of
from rankplan.trainers.roll.requests import Nodes, requests_on
from rankplan.trainers.roll.vendored import always_starts_reference

_VLLM = "vllm"
_SGLANG = "sglang"
_POLICIES = ("actor_train", "actor_infer", "reference")
"""Roles whose models ROLL downloads, in each of its pipelines (``BasePipeline.download_models``)."""
_CPUS_OF_DOWNLOADS = 3
"""CPUs of a node with which half of them, less those of workers, suffice for a task."""
_AS_STATED = frozenset({"hf_infer", _SGLANG})
"""Strategies that use ``num_gpus_per_worker`` as stated."""

_SIZES: Mapping[str, Mapping[str, Key[Any] | Sequence[Key[Any]]]] = {
    _VLLM: keys.VLLM_SIZES,
    _SGLANG: keys.SGLANG_SIZES,
}
"""The keys of parallel sizes of engines, by strategy; the others have Megatron's."""


class _Role(NamedTuple):
    """A role: the accelerators of its workers, or a number of workers without any.

    ``where`` is the place of the key that states them. ``gpus_per_worker`` and ``sizes`` are those of its strategy.
    """

    name: str
    where: Where
    devices: Taken | None = None
    world_size: int = 0
    gpus_per_worker: int = 1
    sizes: Sizes = Sizes()
    is_sglang: bool = False

    @property
    def highest(self) -> int | None:
        """The highest accelerator of the role, if it has any."""
        return None if self.devices is None else self.devices.accelerators[-1]


class _Strategy(NamedTuple):
    """The accelerators of a worker, the stated sizes that decide their number, and the parallel sizes."""

    gpus_per_worker: int
    decided_by: Sequence[faults.Stated]
    sizes: Sizes


class RollJob(Job):
    """The roles that a ROLL config starts, and its sizes, ``None`` where they are missing or invalid.

    ``highest`` is the highest accelerator of all roles that are configured.
    """

    finds_all = True

    def __init__(self, config: Config) -> None:
        configured = list(_configured_roles(config))
        numbers = [role.highest for role in configured if role.highest is not None]
        self.highest = max(numbers, default=None)
        not_started = _not_started(config, {role.name for role in configured})
        self.roles = [role for role in configured if role.name not in not_started]
        self.num_nodes = _number_unless_unresolved(config, keys.NUM_NODES)
        self.num_nodes_at = config.where(keys.NUM_NODES)
        self.gpus_per_node = _number_unless_unresolved(config, keys.GPUS_PER_NODE)
        self.gpus_per_node_at = config.where(keys.GPUS_PER_NODE)

    def size(self) -> tuple[int, int]:
        """Return the nodes up to the highest accelerator, else ``num_nodes``; of 8 accelerators each by default."""
        each = self.usual_accelerators if self.gpus_per_node is None else self.gpus_per_node
        if self.highest is None:
            return self.num_nodes or 1, each
        return self.highest // max(each, 1) + 1, each

    def node_order(self) -> NodeOrder | None:
        """Return the nodes' own ``NODE_RANK``; without it, ROLL sorts them by their CPUs."""
        return "rank-cpus"

    def inventory(self, inventory: Inventory, collector: Faults, *, pinned: bool) -> Inventory:
        """Return the nodes that the config uses: for a pinned plan, nodes that have all accelerators free."""
        nodes = self._fitting(inventory, collector, pinned=pinned)
        if pinned:
            self._check_whole(nodes, collector)
        return nodes

    def _with_whole_nodes_first(self, inventory: Inventory, gpus_per_node: int | None) -> Inventory:
        """Return the nodes in their order, with those last that ROLL cannot have.

        Its groups take ``num_gpus_per_node`` accelerators of a node, and its workers the first ones, whatever Ray gives
        (``ResourceManager.__init__``, ``Cluster._create_workers``). Nodes with a ``NODE_RANK`` keep their order.
        """
        core = inventory.core
        if core.order("rank") is not None:
            return inventory
        marked = RankSet(inventory.marks)
        sizes = core.nodes_by_size()
        if gpus_per_node:
            fitting = sizes.get(gpus_per_node, RankSet())
        else:
            fitting = RankSet().union(*(sizes[size] for size in sizes if size))
        every = RankSet(f"0-{inventory.num_nodes - 1}")
        others = every - fitting
        if not marked and not others:
            return inventory
        order = [*(fitting - marked), *(fitting & marked), *(others - marked), *(others & marked)]
        return inventory if order == [*every] else reordered(inventory, order)

    def _with_fewest_cpus_first(self, inventory: Inventory, gpus_per_node: int | None) -> Inventory:
        """Return the nodes with those first that ROLL takes of more than it needs: the ones with the fewest CPUs.

        It sorts them before it takes the first ones (``ResourceManager.__init__``). They keep their order if it needs
        all, if CPUs are unknown, and if the nodes have a ``NODE_RANK``, which must be those of the nodes that it takes.
        """
        core = inventory.core
        wanted = self._num_nodes(inventory)
        sizes = core.nodes_by_size()
        usable = RankSet().union(*(nodes for size, nodes in sizes.items() if size and gpus_per_node in (None, size)))
        usable -= RankSet(inventory.marks)
        if wanted is None or wanted >= len(usable) or usable != RankSet(range(len(usable))):
            return inventory
        if core.order("rank") is not None:
            return inventory
        order: list[int] = []
        for cpus, nodes in sorted(core.nodes_by_cpus(), key=lambda entry: entry[0] or 0):
            if cpus is None and nodes & usable:
                return inventory
            order += nodes & usable
        others = range(len(usable), inventory.num_nodes)
        return inventory if order == sorted(order) else reordered(inventory, [*order, *others])

    def _fitting(self, cluster: Inventory, collector: Faults, *, pinned: bool) -> Inventory:
        """Return the nodes that the config uses, and record a fault if they contradict it."""
        each = self.gpus_per_node
        inventory = self._with_whole_nodes_first(cluster, each) if pinned else cluster
        inventory = self._with_fewest_cpus_first(inventory, each)
        num_nodes = self._num_nodes(inventory)
        if num_nodes is not None and num_nodes != inventory.num_nodes:
            try:
                inventory = first_nodes(inventory, num_nodes)
            except PlacementError as error:
                collector.add_all(self.num_nodes_at, error)
        if each is None:
            return inventory
        others = _other_sizes(inventory, each)
        if others:
            first = min(others)
            fitting = self._fitting_size(cluster, pinned=pinned)
            fault = faults.other_gpus_per_node(each, first, others[first], fitting=fitting)
            collector.add(self.gpus_per_node_at, fault)
        return inventory

    def _num_nodes(self, inventory: Inventory) -> int | None:
        """Return the number of nodes that the config uses, of these in their order."""
        return self.num_nodes if self.highest is None else nodes_up_to(inventory, self.highest)

    def _fitting_size(self, cluster: Inventory, *, pinned: bool) -> int | None:
        """Return the largest ``num_gpus_per_node`` that all nodes have which the config would use with it."""
        for each in sorted(cluster.core.nodes_by_size(), reverse=True):
            ordered = self._with_whole_nodes_first(cluster, each) if pinned else cluster
            num_nodes = min(self._num_nodes(ordered) or ordered.num_nodes, ordered.num_nodes)
            if each and not _other_sizes(ordered.first(num_nodes), each):
                return each
        return None

    def _check_whole(self, inventory: Inventory, collector: Faults) -> None:
        """Raise the fault of nodes that are not wholly free: Ray would wait, or ROLL would use what others hold."""
        marked = [node for node in inventory.marks if inventory.node(node).num_accelerators]
        if not marked:
            return
        each = inventory.node(marked[0]).num_accelerators
        without_accelerators = inventory.core.nodes_by_size().get(0, RankSet())
        with_accelerators = inventory.num_nodes - len(without_accelerators)
        free_nodes = with_accelerators - len(marked)
        states_devices = self.highest is not None
        taken_nodes = self.num_nodes or with_accelerators
        if self.highest is not None:
            taken_nodes = self.highest // each + 1  # also beyond the cluster
        fault = faults.nodes_not_free(taken_nodes, each, free_nodes, states_devices=states_devices)
        highest = [role.where for role in self.roles if role.devices and role.highest == self.highest]
        collector.add(next(iter(highest), self.num_nodes_at), fault)
        collector.finish()

    def place(self, placer: Placer) -> None:
        """Place every role on its accelerators, or on nodes in turn, and record what ROLL asks Ray for."""
        self._place_roles(placer)
        if placer.faults:
            return  # a number of accelerators that no node has is no size of a bundle
        core = placer.inventory.core
        nodes = [Nodes(role.name, role.devices.used_nodes(core)) for role in self.roles if role.devices]
        sizes = sorted(size for size in core.nodes_by_size() if size)
        if len(sizes) > 1 and nodes:
            placer.faults.warn(self.gpus_per_node_at, faults.uneven_nodes(sizes))
        placer.requests += requests_on(placer.inventory, nodes, self.gpus_per_node)
        self._check_downloads(placer)

    def _place_roles(self, placer: Placer) -> None:
        users = self._most_users()
        every = RankSet(f"0-{placer.inventory.num_nodes - 1}")
        for role in self.roles:
            placer.facts[role.name] = {"name": role.name}
            if role.devices is None:
                placer.without_accelerators(role.name, role.world_size, role.where, every)
            elif not placer.lacks_accelerators(role.where):
                share = placer.share(users[role.name])
                sizes = role.sizes
                placer.component(role.name, role.devices, role.where, role.gpus_per_worker, sizes=sizes, share=share)
                self._check_engines(placer, role)

    def _most_users(self) -> dict[str, int]:
        """Return, by role with accelerators, how many roles use the one of its accelerators that most roles use."""
        devices = {role.name: role.devices for role in self.roles if role.devices}
        return dict(zip(devices, Taken.most_users(list(devices.values())), strict=True))

    def _check_downloads(self, placer: Placer) -> None:
        """Record the fault of nodes whose CPUs do not suffice for a worker and a task that downloads its model."""
        downloading = self._downloading_nodes(placer.inventory)
        for cpus, nodes in placer.inventory.core.nodes_by_cpus():
            waiting = nodes & downloading
            if cpus is not None and cpus < _CPUS_OF_DOWNLOADS and waiting:
                placer.faults.add(self.gpus_per_node_at, faults.no_cpu_for_downloads(waiting, cpus))

    def _downloading_nodes(self, inventory: Inventory) -> RankSet:
        """Return the nodes on which ROLL certainly starts a task that downloads models: those of policies."""
        policies = (role.devices for role in self.roles if role.name in _POLICIES and role.devices)
        return RankSet().union(*(devices.used_nodes(inventory.core) for devices in policies))

    def _check_engines(self, placer: Placer, role: _Role) -> None:
        """Warn of an engine of SGLang over n nodes that are not the nodes n * worker to n * worker + n - 1, wholly.

        ROLL looks there for the accelerators 0 (``SgLangStrategy.initialize`` in roll/distributed/strategy, 8eb27cc).
        """
        each, core = role.gpus_per_worker, placer.inventory.core
        if not role.is_sglang or not role.devices or placer.faults or role.devices.torn(core, each) is None:
            return
        for row in placer.components[-1]:
            nodes = RankSet(node for node, _ in row.devices)
            count = len(nodes)
            expected = RankSet(range(row.rank * count, (row.rank + 1) * count))
            first_accelerators = [node for node, index in row.devices if index == 0]
            if count > 1 and RankSet(first_accelerators) != expected:
                placer.faults.warn(role.where, faults.engine_off_its_nodes(role.name, row.rank, nodes, expected))
                return


def _other_sizes(inventory: Inventory, each: int) -> dict[int, int]:
    """Return the first node of each number of accelerators but this one, with that number."""
    return {nodes[0]: size for size, nodes in inventory.core.nodes_by_size().items() if size not in (0, each)}


def nodes_up_to(inventory: Inventory, highest: int) -> int:
    """Return the number of nodes up to this accelerator (``RLVRConfig.__post_init__``); all if they have too few."""
    core = inventory.core
    if highest not in core.accelerators():
        return inventory.num_nodes
    node, _ = core.place(highest)
    return node + 1


def _number_unless_unresolved(config: Config, key: Key[int | None]) -> int | None:
    """Return a number; ``None`` if it is missing, or an interpolation that only the run resolves."""
    return None if unresolved(config.raw(key)) else config[key]


def _configured_roles(config: Config) -> Iterator[_Role]:
    """Yield the roles that the config states, whether they are started or not, and record the faults of others."""
    names: set[str] = set()
    _reject_typos(config, keys.KEYS.known[()])
    for path, section in keys.roles(config.section):
        role = config.inside(path, section)
        name = ".".join(map(str, path))
        has_devices = role.stated(keys.DEVICES)
        has_world_size = role.stated(keys.WORLD_SIZE)
        _reject_typos(role, keys.KEYS.known[keys.ROLE])
        if not has_devices and not has_world_size:
            continue  # a disabled role
        fault = _name_fault(name, path, names)
        if fault is not None:
            config.faults.add(role.place, fault)
            continue
        names.add(name)
        read = _on_accelerators(role, name) if has_devices else _on_nodes(role, name)
        if read is not None:
            yield read
    if not names and not config.faults:
        config.faults.add(config.place, faults.no_roles())


def _reject_typos(config: Config, known: Collection[str]) -> None:
    """Record likely typos of known keys that the section does not have."""
    section = config.section
    missing = [key for key in known if key not in section]
    for name in section:
        if name not in known:
            config.reject_misspelt(str(name), missing)


def _reject_sisters(settings: Config, strategy: str) -> None:
    """Record sizes of a strategy under the names that another strategy has for them.

    Each strategy passes its settings on to the arguments of its engine, which take no others
    (``VllmStrategy.initialize``, ``MegatronInferStrategy.__init__``).
    """
    if strategy == _VLLM:
        own = [key.name for key in keys.VLLM_SIZES.values()]
    elif strategy.startswith("megatron"):
        own = [key.name for key in keys.MEGATRON_SIZES.values()]
    else:
        return
    settings.reject_sisters(own)


def _name_fault(name: str, path: Sequence[str | int], names: Collection[str]) -> Diagnostic | None:
    """Return the fault of the name of a role, ``None`` if it is good; ``names`` are those of earlier roles."""
    if isinstance(path[-1], int):
        return faults.roles_in_list(str(path[-2]))
    if not all(path):
        return faults.empty_role_name(name)
    if not name.isprintable():
        return faults.unprintable_role_name(name)
    return faults.two_roles(name) if name in names else None


def _on_nodes(role: Config, name: str) -> _Role | None:
    """Return a role with only a ``world_size``, ``None`` if it is invalid."""
    workers = role[keys.WORLD_SIZE]
    where = role.where(keys.WORLD_SIZE)
    if workers is None:
        return None
    if workers > MAX_PROCESSES:
        role.faults.add(where, faults.too_many_workers(workers))
        return None
    return _Role(name, where, world_size=workers)


def _on_accelerators(role: Config, name: str) -> _Role | None:
    """Return a role with a ``device_mapping``, ``None`` if it or its strategy is invalid."""
    where = role.where(keys.DEVICES)
    devices = _devices(role, where)
    strategy = _strategy(role)
    if not devices or strategy is None:
        return None
    each = strategy.gpus_per_worker
    if len(devices) % each:
        decided_by = strategy.decided_by
        breaks = decided_by[0] if len(devices) % strategy.sizes.parallel.tp else decided_by[-1]
        role.faults.add(breaks.where, faults.undivided(len(devices), each, decided_by))
        return None
    is_sglang = role.raw(keys.STRATEGY_NAME) == _SGLANG
    return _Role(name, where, devices, 0, each, strategy.sizes, is_sglang)


def _devices(role: Config, where: Where) -> Taken:
    """Return the accelerators of a role in the order written, none if they are invalid."""
    mapping = role[keys.DEVICES]
    if unresolved(mapping):
        role.faults.add(where, faults.unknown_devices(mapping))
        return Taken()
    try:
        devices = devices_of(mapping)
    except PlacementError as error:
        role.faults.add_all(where, error)
        return Taken()
    if not devices:
        role.faults.add(where, faults.no_devices())
    return devices


def _strategy(role: Config) -> _Strategy | None:
    """Return what the strategy of a role says about its workers, ``None`` if it is invalid."""
    _reject_typos(role.section_at(keys.STRATEGY), keys.KEYS.known[tuple(keys.STRATEGY_OF_ROLE.split("."))])
    name = role.raw(keys.STRATEGY_NAME)
    if not isinstance(name, (str, type(None))) or unresolved(name):
        role.faults.add(role.where(keys.STRATEGY_NAME), faults.no_strategy_name(name))
        return None
    settings = _settings(role, is_vllm=name == _VLLM)
    _reject_sisters(settings, name or "")
    count = len(role.faults)
    order = Parallel.ENGINE_ORDER if name in _SIZES else Parallel.ORDER
    sizes = settings.parallel(_SIZES.get(name or "", keys.MEGATRON_SIZES), order=order)
    if len(role.faults) > count:
        return None
    if name == _VLLM:
        return _Strategy(sizes.parallel.dense, _sizes_above_one(settings, sizes), sizes)
    if role.stated(keys.STRATEGY) and name not in _AS_STATED:
        return _Strategy(1, (), sizes)
    count = len(role.faults)
    each = role[keys.GPUS_PER_WORKER]
    if len(role.faults) > count:
        return None
    key = keys.GPUS_PER_WORKER
    return _Strategy(each, [faults.Stated(key.name, role.raw(key), role.where(key))], sizes)


def _settings(role: Config, *, is_vllm: bool) -> Config:
    """Return the section with the sizes of a strategy; that of another one than vLLM may be anything."""
    if is_vllm:
        settings = role.section_at(keys.STRATEGY_CONFIG)
        _reject_typos(settings, [key.name for key in keys.VLLM_SIZES.values()])
        return settings
    section = role.raw(keys.STRATEGY_CONFIG)
    path = role.path(keys.STRATEGY_CONFIG)
    return role.inside(path, section if isinstance(section, Mapping) else {})


def _sizes_above_one(settings: Config, sizes: Sizes) -> list[faults.Stated]:
    """Return the sizes of an engine of vLLM that decide how many accelerators it has."""
    stated = []
    for kind, key in keys.VLLM_SIZES.items():
        if getattr(sizes.parallel, kind) > 1:
            stated.append(faults.Stated(key.name, settings.raw(key), settings.where(key)))
    return stated


def _not_started(config: Config, names: Collection[str]) -> set[str]:
    """Return the roles that are configured, but not started.

    Only the pipelines of PPO and of on-policy distillation leave roles out; others start every role (preference
    training, distillation, supervised fine-tuning). On-policy distillation trains the student and has no critic.
    Teachers take the place of the reference model (``PPOConfig._handle_opd_mapping``, ``reference_configs``).
    """
    distils = "student_train" in names
    has_teacher_as_reference = config[keys.TEACHERS_ARE_REFERENCE]
    if not distils and "actor_infer" not in names:
        return set()
    teachers = {name for name in names if name.split(".")[0] == "teacher"}
    if has_teacher_as_reference and keys.REFERENCE.name in names:
        config.faults.add(config.where(keys.REFERENCE), faults.reference_beside_teachers())
    reference = {keys.REFERENCE.name}
    not_started: set[str] = set()
    if teachers:
        not_started |= reference
    if not _starts_reference(config, has_teachers=distils or has_teacher_as_reference):
        not_started |= teachers or reference
    if distils or config[keys.ADVANTAGE_ESTIMATOR] != "gae":
        not_started.add(keys.CRITIC.name)
    return not_started


def _starts_reference(config: Config, *, has_teachers: bool) -> bool:
    """Return whether a pipeline starts a reference model, or the teachers in its place.

    An actor with an adapter is its own reference without it.
    """
    if config.stated(keys.ENVIRONMENTS) and always_starts_reference(config.file):
        return True
    if config.under("actor_train").stated(keys.ADAPTER):
        return False
    return has_teachers or _is_compared(config)


def _is_compared(config: Config) -> bool:
    """Return whether the policy is compared with a reference model (``PPOConfig.__post_init__``)."""
    flags = [config[keys.ENABLE_REFERENCE], config[keys.USE_KL_LOSS]]
    return config[keys.KL_COEFFICIENT] > 0 or any(flags)

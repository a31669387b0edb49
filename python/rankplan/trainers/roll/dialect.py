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
from functools import partial
from itertools import chain, groupby
from typing import Any

from rankplan._core import MAX_PROCESSES, WHOLE_NODE, RankSet, Requests, Taken
from rankplan.dialects.memory.read import MemoryReader
from rankplan.dialects.placing.placer import Packing, Placer
from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.facts import NO_FACTS
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import ENGINE_ORDER, MEGATRON, NO_SIZES, ORDER, Parallel
from rankplan.plans.node_order import reordered
from rankplan.plans.plan import Plan
from rankplan.plans.requests import NodeOrder
from rankplan.read.components import ASSUMED, assumed, lacks_accelerators, resource_lists
from rankplan.read.text.reader import Config, Reader
from rankplan.read.text.unresolved import RESOLVE, unresolved
from rankplan.trainers.roll.device_mapping import devices_of, parse_device_mapping
from rankplan.trainers.roll.keys import KEYS
from rankplan.trainers.roll.roles import ROLE, is_role, roles
from rankplan.words import counted, must_be, shown

__all__ = ["assumed_inventory", "node_order", "parse_device_mapping", "plan", "read", "written"]

_AS_WRITTEN = frozenset({"hf_infer", "sglang"})
"""Strategies that use ``num_gpus_per_worker`` as written."""

_CONFIG = ("strategy_args", "strategy_config")
_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size")
_ENGINES: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {"tp": (_PARALLEL[0],), "pp": (_PARALLEL[1],)},
    "sglang": {"tp": (_PARALLEL[0], "tp_size"), "pp": (_PARALLEL[1], "pp_size")},
}
"""The keys of parallel sizes by strategy; the others have Megatron's."""


@frozen
class _Role:
    """A role; ``devices`` is ``None`` if it only has a ``world_size``, which is 0 otherwise."""

    name: str
    path: KeyPath
    devices: Taken | None = None
    world_size: int = 0
    per_worker: int = 1
    parallel: Parallel = NO_SIZES

    @property
    def highest(self) -> int | None:
        """The highest accelerator of the role, if it has any."""
        return self.devices.accelerators[-1] if self.devices else None


class _Job:
    """The roles that a ROLL config starts, and its sizes, ``None`` where they are missing or invalid.

    ``highest`` is the highest accelerator of all roles that are configured.
    """

    def __init__(self, reader: Reader) -> None:
        configured = list(_roles(reader))
        self.highest = max((role.highest for role in configured if role.highest is not None), default=None)
        unused = _unused(reader, {role.name for role in configured})
        self.roles = [role for role in configured if role.name not in unused]
        self.num_nodes = _optional(reader, "num_nodes", 1)
        self.per_node = _optional(reader, "num_gpus_per_node", 0)


read = partial(Reader.of, state=_Job)


def plan(
    config: Config | Reader, inventory: Inventory, *, isolate_accelerator: bool = True, pinned: bool = False
) -> Plan:
    """Return the plan of a ROLL config on an inventory.

    Accelerators are counted node by node over the inventory, of which the first nodes are used, and
    ``num_gpus_per_node`` must match the nodes. The roles on the most crowded accelerator of a role have equal shares.

    ROLL numbers the accelerators of the nodes that it gets: a ``pinned`` plan takes nodes that have all of theirs free.
    Raises `PlacementError` with every fault.
    """
    reader = read(config).fork()
    job: _Job = reader.state
    inventory = _fitting(reader, job, _whole_first(job, inventory) if pinned else inventory)
    if pinned:
        _check_whole(reader, job, inventory)
    placer = Placer(reader, inventory, Packing(pinned=pinned), isolate=isolate_accelerator)
    placing = [role for role in job.roles if role.devices]
    users = dict(zip(placing, Taken.most_users([role.devices or Taken() for role in placing]), strict=True))
    for role in job.roles:
        placer.facts[role.name] = {"name": role.name}
        if role.devices is None:
            every = RankSet(f"0-{inventory.num_nodes - 1}")
            placer.without_accelerators(role.name, role.world_size, (*role.path, "world_size"), every)
            continue
        path = (*role.path, "device_mapping")
        if not lacks_accelerators(reader, inventory, path):
            placer.component(
                role.name,
                role.devices,
                path,
                role.per_worker,
                sizes=role.parallel,
                sizes_at=(*role.path, *_CONFIG),
                share=placer.share(users[role]),
            )
    for request in _requests(job, inventory):
        placer.requests += request
    return placer.plan("roll", MemoryReader(reader, KEYS.roles))


def _requests(job: _Job, inventory: Inventory) -> Iterator[Requests]:
    """Yield the requests: a bundle of ``num_gpus_per_node`` on each node (``ResourceManager.__init__``).

    A node belongs to the first role that has accelerators there. Nodes in a row with the same role and as many
    accelerators are asked for together.
    """
    core = inventory.core
    sizes = {each: nodes for each, nodes in core.nodes_by_size().items() if each}
    left = RankSet().union(*sizes.values())
    owned: list[tuple[str, RankSet]] = []
    for role in job.roles:
        if role.devices:
            owned.append((role.name, role.devices.used_nodes(core) & left))
            left -= owned[-1][1]
    rows = [
        (first, last, each, name)
        for name, nodes in (*owned, ("", left))
        for each, of_size in sizes.items()
        for first, last in (nodes & of_size).ranges
    ]
    for first, last, each, name in sorted(rows):
        size = each if job.per_node is None else job.per_node
        if size:
            nodes_in_row = (first, last - first + 1, 1)
            yield Requests.of_rows([(name, "PACK", False, "rank", [(1, size)], None, last - first + 1, [nodes_in_row])])


def node_order(config: Config | Reader) -> NodeOrder | None:
    """Return the nodes' own ``NODE_RANK``; without it, ROLL numbers them as it gets them."""
    return "rank"


def assumed_inventory(config: Config | Reader) -> Inventory:
    """Return the smallest inventory that fits the config: ``num_gpus_per_node`` accelerators per node (default 8).

    Raises `PlacementError` with every fault of an invalid config.
    """
    reader = read(config)
    job: _Job = reader.state
    each = ASSUMED if job.per_node is None else job.per_node
    needed = (job.num_nodes or 1) if job.highest is None else job.highest // max(each, 1) + 1
    inventory = assumed(reader, needed, each)
    if reader.faults:
        plan(reader, inventory)  # raises these faults, and those that depend on an inventory
    return inventory


def written(planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a ROLL config for the components that ROLL can express, and why it cannot express the others."""
    config: dict[str, Any] = dict.fromkeys(("num_nodes", "num_gpus_per_node"))
    inexpressible: dict[str, str] = {}
    cluster, highest = planned.inventory.without_groups(), -1
    for name, component in planned.items():
        try:
            lists = resource_lists(component, cluster)
        except ValueError as error:
            inexpressible[name] = str(error)
            continue
        sizes = {len(resources) for resources in lists}
        if component[0].resource_type == WHOLE_NODE:
            role: dict[str, Any] = {"world_size": len(component)}
        elif len(sizes) == 1:
            role = {"device_mapping": _mapping_text([rank for resources in lists for rank in resources])}
            role |= _sizes(component.parallel, sizes.pop())
        else:
            inexpressible[name] = "its processes have different numbers of accelerators"
            continue
        *sections, last = name.split(".")
        inner = config
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict) or is_role(inner):
                break
        if not isinstance(inner, dict) or is_role(inner) or last in inner:
            inexpressible[name] = "its name is already a key of the config"
        else:
            inner[last] = role
            if component[0].resource_type != WHOLE_NODE:
                highest = max(highest, *chain.from_iterable(lists))
    needed = planned.inventory.num_nodes if highest < 0 else _needed(planned.inventory, highest)
    counts = {spec.num_accelerators for nodes, spec in planned.inventory.stretches() if nodes[0] < needed}
    sizes_of_nodes = {"num_nodes": needed, "num_gpus_per_node": counts.pop() if len(counts) == 1 else None}
    return {key: value for key, value in (config | sizes_of_nodes).items() if value is not None}, inexpressible


def _sizes(parallel: Parallel, each: int) -> dict[str, Any]:
    """Return the accelerators per worker, by the strategy that has these sizes if one does."""
    if parallel.order == ENGINE_ORDER and each == parallel.tp * parallel.pp == parallel.dense:
        return _stated("vllm", _ENGINES["vllm"], parallel)  # whose workers have as many accelerators
    if parallel.order == ORDER and parallel.dense * parallel.expert > 1 == each:
        return _stated("megatron_train", MEGATRON, parallel)
    return {"num_gpus_per_worker": each} if each > 1 else {}


def _stated(name: str, keys: Mapping[str, Sequence[str]], parallel: Parallel) -> dict[str, Any]:
    stated = {kind for kind in keys if getattr(parallel, kind) > 1 or (kind == "etp" and parallel.ep > 1)}
    config = {keys[kind][0]: getattr(parallel, kind) for kind in keys if kind in stated}
    return {"strategy_args": {"strategy_name": name, **({"strategy_config": config} if config else {})}}


def _mapping_text(devices: list[int]) -> str:
    """Return a ``device_mapping``: runs of at least three as ranges, other ranks one by one."""
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(devices), lambda pair: pair[1] - pair[0])]
    parts: list[str] = []
    for long, several in groupby(runs, lambda run: len(run) > 2):
        found = list(several)
        ranges = [f"list(range({run[0]},{run[-1] + 1}))" for run in found]
        parts += ranges if long else [str(list(chain.from_iterable(found)))]
    return " + ".join(parts)


def _roles(reader: Reader) -> Iterator[_Role]:
    names: set[str] = set()
    _reject_misspelt(reader, reader.content, (), ())
    for path, values in roles(reader.content):
        name = ".".join(map(str, path))
        mapping = reader.value(values, "device_mapping", path)
        world_size = reader.value(values, "world_size", path)
        _reject_misspelt(reader, values, (ROLE,), path)
        if mapping is None and world_size is None:
            continue  # a disabled role
        if (fault := _name_fault(name, path, names)) is not None:
            reader.add(path, fault)
            continue
        names.add(name)
        if mapping is None:
            role = _on_nodes(reader, name, path, world_size)
        else:
            role = _on_accelerators(reader, name, path, values, mapping)
        if role is not None:
            yield role
    if not names and not reader.faults:
        message = "no role has a `device_mapping` or a `world_size`"
        reader.add((), Diagnostic("missing-key", message, "add roles such as actor_train: {device_mapping: ...}"))


def _name_fault(name: str, path: KeyPath, names: set[str]) -> Diagnostic | None:
    if isinstance(path[-1], int):
        message = f"`{path[-2]}` is a list; roles must be keys of a mapping"
        return Diagnostic("invalid-value", message, "write `name: {device_mapping: ...}` for each role")
    if not all(path):
        return Diagnostic("empty-name", f"the role name {shown(name)} has an empty part", "name the role")
    if not name.isprintable():
        return Diagnostic("invalid-value", f"{shown(name)} is not a valid role name", "rename the role")
    if name in names:
        return Diagnostic("duplicate-component", f"two roles are named `{name}`", "rename one of them")
    return None


def _on_nodes(reader: Reader, name: str, path: KeyPath, world_size: Any) -> _Role | None:
    workers = reader.number(world_size, (*path, "world_size"), 1)
    if workers is not None and workers > MAX_PROCESSES:
        message = f"{workers:,} workers; a component has at most {MAX_PROCESSES:,}"
        reader.add((*path, "world_size"), Diagnostic("too-many-processes", message, "split the role"))
        return None
    return None if workers is None else _Role(name, path, world_size=workers)


def _on_accelerators(reader: Reader, name: str, path: KeyPath, values: Mapping[Any, Any], mapping: Any) -> _Role | None:
    devices, where = Taken(), (*path, "device_mapping")
    try:
        if unresolved(mapping):
            message = f"{shown(mapping)} contains an unresolved interpolation"
            raise PlacementError([Diagnostic("syntax", message, RESOLVE)])
        devices = devices_of(mapping)
        if not devices:
            message = "the role has no accelerators"
            reader.add(where, Diagnostic("empty-placement", message, "list some, or remove the role"))
    except PlacementError as error:
        reader.add_all(where, error)
    strategy = _strategy(reader, values, path)
    if not devices or strategy is None:
        return None
    per_worker, parallel = strategy
    if len(devices) % per_worker:
        below = len(devices) // per_worker * per_worker
        fitting = " or ".join(str(count) for count in (below, below + per_worker) if count)
        sizes = [name for name, kind in zip(_PARALLEL, ("tp", "pp"), strict=True) if getattr(parallel, kind) > 1]
        engine = reader.value(reader.section_at((*path, "strategy_args")), "strategy_name", path) == "vllm"
        keys = [(*_CONFIG, key) for key in sizes] if engine else [("num_gpus_per_worker",)]
        given = " x ".join(f"{key[-1]} {reader.at((*path, *key))}" for key in keys)
        message = f"{len(devices)} accelerators cannot be divided into workers of {per_worker} ({given})"
        help = f"list {fitting} accelerators, or change {' or '.join(key[-1] for key in keys)}"
        breaks = keys[-1] if engine and len(devices) % parallel.tp == 0 else keys[0]
        reader.add((*path, *breaks), Diagnostic("not-multiple", message, help))
        return None
    return _Role(name, path, devices, 0, per_worker, parallel)


def _strategy(reader: Reader, values: Mapping[Any, Any], path: KeyPath) -> tuple[int, Parallel] | None:
    """Return the number of accelerators per worker, by the strategy of the role, and its parallel sizes."""
    inner = (*path, "strategy_args")
    strategy = reader.mapping(values, "strategy_args", path)
    _reject_misspelt(reader, strategy, (ROLE, "strategy_args"), inner)
    name = reader.value(strategy, "strategy_name", inner)
    if not isinstance(name, (str, type(None))) or unresolved(name):
        help = RESOLVE if unresolved(name) else "write a name such as vllm"
        reader.add((*inner, "strategy_name"), must_be("`strategy_name`", name, "text", help))
        return None
    if name == "vllm":
        settings = reader.mapping(strategy, "strategy_config", inner)
        _reject_misspelt(reader, settings, (ROLE, *_CONFIG), (*path, *_CONFIG))
    else:
        found = reader.value(strategy, "strategy_config", inner)
        settings = found if isinstance(found, Mapping) else {}
    keys, order = _ENGINES.get(name or "", MEGATRON), ENGINE_ORDER if name in _ENGINES else ORDER
    parallel = reader.sizes_in(settings, keys, (*path, *_CONFIG), order)
    if parallel is None:
        return None
    if name == "vllm":
        return parallel.dense, parallel
    if reader.value(values, "strategy_args", path) is not None and name not in _AS_WRITTEN:
        return 1, parallel
    written = reader.value(values, "num_gpus_per_worker", path)
    per_worker = 1 if written is None else reader.number(written, (*path, "num_gpus_per_worker"), 1)
    return None if per_worker is None else (per_worker, parallel)


def _reject_misspelt(reader: Reader, mapping: Mapping[Any, Any], section: KeyPath, path: KeyPath) -> None:
    """Record likely typos of the keys of a section that are not given."""
    known = KEYS.known[section]
    missing = [key for key in known if key not in mapping]
    for key in mapping:
        if key not in known:
            reader.reject_misspelt(str(key), missing, (*path, str(key)))


def _optional(reader: Reader, key: str, least: int) -> int | None:
    value = reader.value(reader.content, key, ())
    return None if value is None or unresolved(value) else reader.number(value, (key,), least)


def _whole_first(job: _Job, inventory: Inventory) -> Inventory:
    """Return the nodes in their order, with those last that ROLL cannot have.

    Its groups take ``num_gpus_per_node`` accelerators of a node, and its workers the first ones, whatever Ray gives
    (``ResourceManager.__init__``, ``Cluster._create_workers``). Nodes with a ``NODE_RANK`` keep their order.
    """
    core, marks = inventory.core, RankSet(inventory.marks)
    if core.order("rank") is not None:
        return inventory
    sizes = core.nodes_by_size()
    fitting = (
        sizes.get(job.per_node, RankSet())
        if job.per_node
        else RankSet().union(*(sizes[size] for size in sizes if size))
    )
    every = RankSet(f"0-{inventory.num_nodes - 1}")
    others = every - fitting
    wanted = [*(fitting - marks), *(fitting & marks), *(others - marks), *(others & marks)]
    return inventory if not (marks or others) or wanted == [*every] else reordered(inventory, wanted)


def _check_whole(reader: Reader, job: _Job, inventory: Inventory) -> None:
    """Raise the fault of nodes that are not wholly free: Ray would wait, or ROLL would use what others hold."""
    marked = [node for node in inventory.marks if inventory.node(node).num_accelerators]
    if not marked:
        return
    each, whole = inventory.node(marked[0]).num_accelerators, inventory.num_nodes - len(marked)
    message = f"ROLL takes all {each} accelerators of {counted(inventory.num_nodes, 'node')}, but "
    message += (
        f"only {counted(whole, 'node')} of the cluster {'has' if whole == 1 else 'have'}" if whole else "no node has"
    )
    help = "use a larger cluster, or wait for other jobs"
    if whole and job.highest is not None:
        help = f"use accelerators up to {whole * each - 1}, or a larger cluster, or wait for other jobs"
    highest = (role for role in job.roles if role.highest is not None and role.highest == job.highest)
    path = next(((*role.path, "device_mapping") for role in highest), ("num_nodes",))
    reader.add(path, Diagnostic("resource-out-of-range", f"{message} all of them free", help))
    reader.finish()


def _fitting(reader: Reader, job: _Job, inventory: Inventory) -> Inventory:
    """Return the nodes that the config uses, and record a fault if they contradict it."""
    num_nodes = job.num_nodes if job.highest is None else _needed(inventory, job.highest)
    if num_nodes not in (None, inventory.num_nodes):
        try:
            inventory = inventory.with_facts(NO_FACTS, num_nodes)
        except PlacementError as error:
            reader.add_all(("num_nodes",), error)
    each = job.per_node
    if each is not None:
        others = {nodes[0]: size for size, nodes in inventory.core.nodes_by_size().items() if size not in (0, each)}
        if others:
            first = min(others)
            has = counted(others[first], "accelerator")
            message = f"num_gpus_per_node is {each}, but node {first} has {has}"
            help = f"write {others[first]}, remove the key if nodes differ, or use another cluster"
            reader.add(("num_gpus_per_node",), Diagnostic("invalid-value", message, help))
    return inventory


def _needed(inventory: Inventory, highest: int) -> int:
    """Return the number of nodes up to this accelerator (``RLVRConfig.__post_init__``); all if they have too few."""
    core = inventory.core
    if highest not in core.accelerators():
        return inventory.num_nodes
    node, _ = core.place(highest)
    return node + 1


def _unused(reader: Reader, names: Collection[str]) -> set[str]:
    """Return the roles that are configured, but not started.

    Only the pipelines of PPO and of on-policy distillation leave roles out; others start every role (preference
    training, distillation, supervised fine-tuning). On-policy distillation trains the student and has no critic.
    Teachers take the place of the reference model (``PPOConfig._handle_opd_mapping``, ``reference_configs``).
    """
    distils, mixed = "student_train" in names, reader.switch(("use_opd",))
    if not distils and "actor_infer" not in names:
        return set()
    teachers = {name for name in names if name.split(".")[0] == "teacher"}
    if mixed and "reference" in names:
        message, help = "with use_opd, the teacher is the reference model", "remove `reference`"
        reader.add(("reference",), Diagnostic("invalid-value", message, help))
    lora = reader.at(("actor_train", "model_args", "lora_target")) is not None
    unused = {"reference"} if teachers else set()
    if lora or not (distils or mixed or _compares(reader)):
        unused |= teachers or {"reference"}
    if distils or reader.at(("adv_estimator",)) not in (None, "gae"):
        unused.add("critic")
    return unused


def _compares(reader: Reader) -> bool:
    """Return whether the policy is compared with a reference model (``PPOConfig.__post_init__``)."""
    flags = [reader.switch((key,)) for key in ("enable_reference", "use_kl_loss")]
    return reader.coefficient(("init_kl_coef",), 0.2) > 0 or any(flags)

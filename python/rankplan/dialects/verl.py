"""verl: pools of ``n_gpus_per_node`` accelerators on ``nnodes`` nodes, roles on them, and engines of their sizes.

The training has one process per accelerator: worker r of a pool with P per node is on its node r // P. Actor, critic
and reference model are one Ray actor in verl, and share its part of the accelerator here. The rollout's engines take
consecutive accelerators of the same pool (hybrid), or have accelerators of their own (``rollout.nnodes`` at the top of
the config, or ``trainer.v1.trainer_mode: separate_async``). A reward model and teachers have engines too.

In pool order, each pool takes the first nodes with enough free accelerators. The components are ``actor``, ``ref``,
``critic``, ``rollout``, ``rollout_standalone``, ``reward`` and ``teacher``, as far as the config has them. Faults are
``resource-out-of-range`` for pools that do not fit, ``spans-nodes`` and ``parallel-idle`` for engines that verl would
start on a wrong node, or not at all.

Follows verl's ``ResourcePoolManager.create_resource_pool`` and ``RayResourcePool.get_placement_groups`` (b178a3c).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rankplan.config.text.faults import KeyPath
from rankplan.config.text.reader import Reader
from rankplan.dialects.keys import VERL
from rankplan.dialects.pools import Engine, Job, Pools, engine_faults, engine_sizes
from rankplan.errors import Diagnostic
from rankplan.parallel import ENGINE_ORDER, MEGATRON, NO_SIZES, Parallel
from rankplan.plans.component import Component
from rankplan.plans.configured import ASSUMED
from rankplan.plans.plan import Plan
from rankplan.words import must_be, path_text

__all__ = ["assumed_inventory", "plan", "read", "written"]

_SHARED, _ALONE = 3, 2
"""``max_colocate_count`` of verl's pools, and of those that an engine has for itself."""

_ACTOR: KeyPath = ("actor_rollout_ref",)
_ROLLOUT: KeyPath = (*_ACTOR, "rollout")
_REWARD: KeyPath = ("reward", "reward_model")
_TEACHERS: KeyPath = ("distillation",)
_CONFIG_NAME: KeyPath = ("hydra", "job", "config_name")
"""The config that the command line chooses: its defaults are Megatron's, or those of an asynchronous trainer."""

_POOL = ("nnodes", "n_gpus_per_node")
_APART = ("fully_async", "one_step_off")
"""Configs of verl whose rollout has nodes of its own."""

_HYBRID = ("use_trainer_do_validate", "use_dynamic_resource_scheduling")
"""Switches of fully_async with which the trainer generates, too."""

_NAMES = {"tp": "tensor", "cp": "context", "ep": "expert", "pp": "pipeline"}
_TITAN = {kind: (f"{name}_parallel_size",) for kind, name in _NAMES.items()}
_VEOMNI = {"cp": ("ulysses_parallel_size",), "ep": ("expert_parallel_size",)}
_KEYS = {"tp": "tensor_model_parallel_size", "dp": "data_parallel_size", "pp": "pipeline_model_parallel_size"}
_TRAINING = ("actor", "critic", "ref")


class _Job(Job):
    """The pools and the roles of a verl config."""

    keys = VERL

    def __init__(self, reader: Reader) -> None:
        name = str(reader.at(_CONFIG_NAME))
        self.apart = bool({"rollout", "async_training"} & set(reader.content)) or any(one in name for one in _APART)
        mode = reader.at(("trainer", "v1", "trainer_mode"))
        self.separate = not self.apart and mode == "separate_async"
        switches = [reader.switch(("async_training", key)) for key in _HYBRID]
        self.hybrid = not self.apart or any(switches)
        self.trainer = _pool(reader, ("trainer",), 1)
        own = ("rollout",) if self.apart else _ROLLOUT
        least = 0 if self.apart and self.hybrid else 1
        default = 1 if self.apart else 0
        self.rollout = _pool(reader, own, default, least) if self.apart or self.separate else (0, 0)
        self.rewarded = reader.switch((*_REWARD, "enable"))
        self.reward_pool = self.rewarded and reader.switch((*_REWARD, "enable_resource_pool"))
        self.reward = _pool(reader, _REWARD, 0, 1) if self.reward_pool else self.trainer
        self.teaching = reader.switch((*_TEACHERS, "enabled"))
        self.teachers = _pool(reader, _TEACHERS, 0, 1) if self.teaching else (0, 0)
        self.critic = reader.switch(
            ("critic", "enable"), default=reader.at(("algorithm", "adv_estimator")) in (None, "gae")
        )
        self.reference = _has_reference(reader)

    def size(self) -> tuple[int, int]:
        """Return as many nodes as the pools have, each with as many accelerators as the largest pool has per node."""
        pools = [self.trainer, self.rollout, self.teachers, self.reward if self.reward_pool else (0, 0)]
        return sum(nodes for nodes, _ in pools), max(each for nodes, each in pools if nodes)

    def place(self, pools: Pools) -> None:
        """Place the training and its engines, the reward model, the teachers, and engines with nodes of their own."""
        reader = pools.reader
        trainer = _taken(pools, self.trainer, ("trainer",))
        reward = _taken(pools, self.reward, _REWARD) if self.reward_pool and not self.apart else trainer
        if self.apart and self.reward_pool:
            _standalone(pools, "reward", self.reward, (*_REWARD, "rollout"), _REWARD)
        teachers = _taken(pools, self.teachers, _TEACHERS) if self.teaching else []
        if trainer:
            roles = [("actor", (*_ACTOR, "actor")), ("ref", (*_ACTOR, "ref")), ("critic", ("critic",))]
            present = {"actor": True, "ref": self.reference, "critic": self.critic}
            for name, path in roles:  # verl makes one Ray actor of them
                if present[name]:
                    sizes, where = _training_at(reader, path, len(trainer))
                    share = pools.share(_SHARED * sum(present.values()))
                    pools.place(name, trainer, where, parallel=sizes, share=share)
            if self.hybrid:
                pools.engines("rollout", trainer, self.trainer[1], _engine_at(reader, _ROLLOUT), None)
            if self.rewarded and reward and not self.apart:
                engine = _engine_at(reader, (*_REWARD, "rollout"))
                pools.engines("reward", reward, self.reward[1], engine, pools.share(_SHARED))
        if teachers:
            _place_teachers(pools, teachers, self.teachers[1])
        if self.rollout[0]:
            name = "rollout_standalone" if self.hybrid else "rollout"
            _standalone(pools, name, self.rollout, _ROLLOUT, ("rollout",) if self.apart else _ROLLOUT)


read, plan, assumed_inventory = _Job.read, _Job.plan, _Job.assumed_inventory


def _pool(reader: Reader, path: KeyPath, nodes: int, least: int = 1) -> tuple[int, int]:
    """Return the number of nodes of a pool, and of its accelerators on each."""
    default = reader.size(("trainer", "n_gpus_per_node"), ASSUMED) if path == _ROLLOUT else ASSUMED
    section = reader.section_at(path)
    for key in _POOL:
        if key in section and reader.at((*path, key)) is None:
            reader.add((*path, key), must_be((key,), None, "a whole number", "write a number such as 1"))
    each = reader.size((*path, "n_gpus_per_node"), default)
    if reader.at((*path, "nnodes")) is None and nodes < least:
        message = f"`nnodes` is missing: {path_text(path)} has a pool of its own"
        reader.add(path, Diagnostic("missing-key", message, "add `nnodes: 1`"))
    return reader.size((*path, "nnodes"), nodes, least), each


def _has_reference(reader: Reader) -> bool:
    """Return whether there is a reference model (verl: ``need_reference_policy``)."""
    model: KeyPath = (*_ACTOR, "model")
    ranks = reader.size((*model, "lora_rank"), 0, 0), reader.size((*model, "lora", "rank"), 0, 0)
    if any(ranks) or reader.at((*model, "lora_adapter_path")) is not None:
        return False  # the actor without its adapter is the reference model
    return reader.switch((*_ACTOR, "actor", "use_kl_loss")) or reader.switch(("algorithm", "use_kl_in_reward"))


def _taken(pools: Pools, size: tuple[int, int], path: KeyPath) -> list[int]:
    """Take the accelerators of a pool; too few are a fault."""
    where = (*path, "nnodes") if pools.reader.at((*path, "nnodes")) is not None else path
    return pools.nodes(*size, f"the pool of {path_text(path)}", where)


def _place_teachers(pools: Pools, pool: list[int], per_node: int) -> None:
    """Place the engines of every teacher, one after the other on their pool."""
    reader, path = pools.reader, (*_TEACHERS, "teacher_models")
    names = [name for name, teacher in reader.section_at(path).items() if isinstance(teacher, Mapping)]
    several = [name for name in names if name != "teacher_model"]  # the default, replaced by named ones
    start = 0
    for name in several or names:
        engine = _engine_at(reader, (*path, name, "inference"))
        replicas = 0 if several else len(pool) // engine.size
        replicas = reader.size((*path, name, "num_replicas"), replicas, 0) or replicas
        chosen = pool[start : start + replicas * engine.size]
        start += replicas * engine.size
        pools.engines(f"teacher.{name}" if several else "teacher", chosen, per_node, engine, pools.share(_SHARED))
    if not reader.faults and start != len(pool):
        message = f"the teachers need {start} accelerators, but their pool has {len(pool)}"
        help = "change num_replicas, their sizes, or nnodes and n_gpus_per_node of distillation"
        code = "parallel-idle" if start < len(pool) else "resource-out-of-range"
        reader.add(path, Diagnostic(code, message, help))


def _standalone(pools: Pools, name: str, size: tuple[int, int], sizes: KeyPath, path: KeyPath) -> None:
    """Place engines that each have nodes of their own."""
    engine, (nodes, per_node) = _engine_at(pools.reader, sizes), size
    each, total = min(per_node, engine.size), nodes * per_node
    if total > pools.free.left:
        _taken(pools, size, path)
        return
    virtual = [rank // per_node for rank in range(total)]
    found = engine_faults(name, engine.size, each, virtual, engine.keys)
    if faults := [fault for fault in found if fault.code != "spans-nodes"]:
        for fault in faults:
            pools.reader.add(engine.path, fault)
        return
    taken: list[int] = []
    for _ in range(total // each):
        # An engine on its own takes room where it finds it: a node of the config may be a part of a real one.
        if (chunk := pools.free.together(each)) is None:
            _taken(pools, size, path)
            return
        taken += chunk
    more = {"share": pools.share(_ALONE), "engines": engine.size // each}
    pools.place(name, taken, engine.where, each, parallel=engine.parallel, **more)


def _engine_at(reader: Reader, path: KeyPath) -> Engine:
    """Return the engine that the sizes in a section make; a tensor size that is not given is 2, as in verl."""
    sizes = {name: reader.size((*path, key), 2 if name == "tp" else 1) for name, key in _KEYS.items()}
    tp, dp, pp = sizes.values()
    experts = reader.size((*path, "expert_parallel_size"), 1)
    total = tp * dp * pp
    keys = " x ".join(f"{_KEYS[name]} {size}" for name, size in sizes.items() if size > 1 or name == "tp")
    largest = max(sizes, key=lambda name: (sizes[name], name == "tp"))
    if reader.switch((*path, "disaggregation", "enabled")):
        inner = (*path, "disaggregation")
        decode = reader.size((*inner, "decode_replicas"), 1) * reader.size(
            (*inner, "decode_tensor_model_parallel_size"), tp
        )
        prefill = reader.size((*inner, "prefill_replicas"), 1)
        keys = f"prefill {prefill} x {tp} + decode {decode}"
        return Engine(prefill * tp + decode, keys, NO_SIZES, inner, inner)
    if experts not in (1, tp * dp) and reader.at((*path, "name")) != "trtllm":
        message = f"`expert_parallel_size` is {experts}; verl accepts 1, or tensor size x data size, which is {tp * dp}"
        fault = Diagnostic("invalid-value", message, f"use 1 or {tp * dp}")
        reader.add_once((*path, "expert_parallel_size"), fault)
    parallel = engine_sizes(tp, pp, experts if experts == tp * dp else 1)
    return Engine(total, keys, parallel, (*path, _KEYS[largest]), path)


def _training_at(reader: Reader, role: KeyPath, world: int) -> tuple[Parallel, KeyPath]:
    """Return the parallel sizes of a training role with ``world`` accelerators, and the path of its sizes.

    The reference model has the actor's sizes unless its own are given.
    """
    default = "megatron" if "megatron" in str(reader.at(_CONFIG_NAME)) else "fsdp"
    engine = str(reader.at((*role, "strategy")) or reader.at(("model_engine",)) or default)
    if role[-1] == "ref" and reader.at((*role, "strategy")) is None:
        engine = str(reader.at((*role[:-1], "actor", "strategy")) or engine)
    paths = [role, (*role[:-1], "actor")] if role[-1] == "ref" else [role]
    for path in paths:
        parallel, where = _training(reader, path, engine, world)
        if parallel.stated:
            return parallel, where
    return NO_SIZES, role


def _training(reader: Reader, role: KeyPath, engine: str, world: int) -> tuple[Parallel, KeyPath]:
    if engine == "megatron":
        return reader.sizes((*role, "megatron"), MEGATRON), (*role, "megatron")
    if engine == "torchtitan":
        return reader.sizes((*role, "torchtitan"), _TITAN), (*role, "torchtitan")
    if engine == "veomni":
        where: KeyPath = (*role, "veomni")
        sizes = reader.sizes(where, _VEOMNI)
        return _sharded(reader, replace(sizes, etp=1), (*where, "fsdp_size"), world), where
    where = (*role, "fsdp_config")
    ulysses = reader.size((*role, "ulysses_sequence_parallel_size"), 1)
    ulysses = reader.size((*where, "ulysses_sequence_parallel_size"), ulysses)
    sizes = Parallel(cp=ulysses) if ulysses > 1 else NO_SIZES
    path: KeyPath = (*role, "ulysses_sequence_parallel_size") if ulysses > 1 else (*where, "fsdp_size")
    return _sharded(reader, sizes, (*where, "fsdp_size"), world), path


def _sharded(reader: Reader, sizes: Parallel, path: KeyPath, world: int) -> Parallel:
    """Return sizes with the shard groups of FSDP: ``fsdp_size`` consecutive accelerators, all of them below 1.

    Follows verl's ``create_device_mesh``.
    """
    value = reader.at(path)
    size = reader.size(path, -1, -1) if value is not None else -1
    if not 0 < size < world or size % sizes.cp:
        return sizes
    return replace(sizes, fsdp=size // sizes.cp)


def written(planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a verl config for the components that verl can express, and why it cannot express the others."""
    reasons: dict[str, str] = {}
    shapes: dict[str, tuple[int, int]] = {}
    actor = planned.get("actor")
    for name, component in planned.items():
        counts = [row.num_accelerators for row in component]
        shape = _shape(component)
        if name not in (*_TRAINING, "rollout", "reward"):
            reasons[name] = "verl has no such role"
        elif shape is None:
            reasons[name] = "its accelerators are not as many on each node, in order"
        elif name in _TRAINING and set(counts) != {1}:
            reasons[name] = "its processes do not have one accelerator each"
        elif len(set(counts)) > 1:
            reasons[name] = "its processes have different numbers of accelerators"
        elif actor is None:
            reasons[name] = "verl needs an actor"
        elif name in ("critic", "ref") and _devices(component) != _devices(actor):
            reasons[name] = "verl places it on the actor's accelerators"
        else:
            shapes[name] = shape
    if actor is None or "actor" not in shapes:
        return {}, reasons | dict.fromkeys(shapes, "verl needs an actor")
    return _config(planned, shapes), reasons


def _config(planned: Plan, shapes: dict[str, tuple[int, int]]) -> dict[str, Any]:
    actor = planned["actor"]
    nodes, each = shapes["actor"]
    config: dict[str, Any] = {
        "algorithm": {"adv_estimator": "gae" if "critic" in shapes else "grpo"},
        "trainer": {"nnodes": nodes, "n_gpus_per_node": each},
        "actor_rollout_ref": {"actor": _training_keys(actor)},
    }
    roles = config["actor_rollout_ref"]
    if "ref" in shapes:
        roles["actor"]["use_kl_loss"] = True
        roles["ref"] = _training_keys(planned["ref"])
    if "critic" in shapes:
        config["critic"] = {"enable": True, **_training_keys(planned["critic"])}
    rollout = planned.get("rollout") if "rollout" in shapes else None
    roles["rollout"] = _engine_keys(rollout) if rollout is not None else {"tensor_model_parallel_size": 1}
    if rollout is not None and set(_devices(rollout)) != set(_devices(actor)):
        config["rollout"] = dict(zip(_POOL, shapes["rollout"], strict=True))
    config["actor_rollout_ref"] = {name: keys for name, keys in roles.items() if keys}
    if "reward" in shapes:
        reward: dict[str, Any] = {"enable": True, "rollout": _engine_keys(planned["reward"])}
        if set(_devices(planned["reward"])) != set(_devices(actor)):
            reward |= {"enable_resource_pool": True, **dict(zip(_POOL, shapes["reward"], strict=True))}
        config["reward"] = {"reward_model": reward}
    return config


def _training_keys(component: Component) -> dict[str, Any]:
    sizes = component.parallel
    if {sizes.tp, sizes.pp, sizes.ep, sizes.etp} == {1}:
        sharding = sizes.fsdp * sizes.cp if sizes.fsdp > 1 else -1
        fsdp = {"fsdp_config": {"fsdp_size": sharding}} if 0 < sharding < len(component) else {}  # as `_sharded` reads
        return {"ulysses_sequence_parallel_size": sizes.cp, **fsdp} if sizes.cp > 1 else fsdp
    stated = {keys[0]: getattr(sizes, name) for name, keys in MEGATRON.items()}
    return {
        "strategy": "megatron",
        "megatron": {key: size for key, size in stated.items() if size > 1 or "expert" in key},
    }


def _engine_keys(component: Component) -> dict[str, int]:
    """Return the sizes of an engine; accelerators beyond its tensor and pipeline size are data parallel."""
    sizes = component.parallel
    total = component[0].num_accelerators * component.engines
    known = sizes.stated or sizes.order == ENGINE_ORDER  # a dialect states the sizes of engines
    tensor = sizes.tp if known and total % (sizes.tp * sizes.pp) == 0 else total
    data = total // (tensor * sizes.pp) if tensor == sizes.tp else 1
    stages = sizes.pp if tensor == sizes.tp else 1
    engine = {"tp": tensor, "dp": data, "pp": stages}
    keys = {_KEYS[kind]: size for kind, size in engine.items() if size > 1 or kind == "tp"}
    return keys | ({"expert_parallel_size": sizes.ep} if sizes.ep > 1 else {})


def _devices(component: Component) -> list[tuple[int, int]]:
    return [device for row in component for device in row.devices]


def _shape(component: Component) -> tuple[int, int] | None:
    """Return the nodes and the accelerators on each, ``None`` if the accelerators are not in such an order."""
    devices = _devices(component)
    nodes = list(dict.fromkeys(node for node, _ in devices))
    each, rest = divmod(len(devices), len(nodes)) if nodes else (0, 1)
    if rest or any(node != nodes[position // each] for position, (node, _) in enumerate(devices)):
        return None
    return len(nodes), each

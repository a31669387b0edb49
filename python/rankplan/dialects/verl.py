"""verl: pools of ``n_gpus_per_node`` accelerators on ``nnodes`` nodes, roles on them, and engines of their sizes.

The training has one process per accelerator: worker r of a pool with P per node is on its node r // P. Actor, critic
and reference model are one Ray actor in verl, and share its part of the accelerator here. The rollout's engines take
consecutive accelerators of the same pool (hybrid), or have accelerators of their own (``rollout.nnodes`` at the top of
the config, or ``trainer.v1.trainer_mode: separate_async``). A reward model and teachers have engines too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from rankplan.config.section import Config
from rankplan.config.text.faults import KeyPath
from rankplan.dialects.pools import Pools, engine_faults
from rankplan.dialects.reading import MEGATRON, KeyReader, SizeReader
from rankplan.dialects.verl_sizes import CONFIG_NAME, Engine, engine_at, training_at
from rankplan.dialects.verl_writing import written
from rankplan.errors import Diagnostic
from rankplan.nodes.inventory import Inventory
from rankplan.plans.configured import ASSUMED
from rankplan.plans.plan import Plan
from rankplan.words import path_text

__all__ = ["assumed_inventory", "plan", "read", "recognised", "written"]

_SHARED, _ALONE = 3, 2
"""``max_colocate_count`` of verl's pools, and of those that an engine has for itself."""

_ACTOR: KeyPath = ("actor_rollout_ref",)
_ROLLOUT: KeyPath = (*_ACTOR, "rollout")
_REWARD: KeyPath = ("reward", "reward_model")
_POOL = ("nnodes", "n_gpus_per_node")
_APART = ("fully_async", "one_step_off")
"""Configs of verl whose rollout has nodes of its own."""

_HYBRID = ("use_trainer_do_validate", "use_dynamic_resource_scheduling")
"""What makes the trainer of fully_async generate too."""
_ENGINE = ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size", "expert_parallel_size")
_MEGATRON = tuple(key for keys in MEGATRON.values() for key in keys)


class _Reading(SizeReader):
    """A verl config, and the pools that it asks for."""

    known: ClassVar[Mapping[KeyPath, Collection[str]]] = {
        (): (
            "actor_rollout_ref",
            "trainer",
            "critic",
            "reward",
            "rollout",
            "distillation",
            "algorithm",
            "model_engine",
        ),
        ("trainer",): _POOL,
        ("rollout",): _POOL,
        _ACTOR: ("actor", "rollout", "ref", "model"),
        _ROLLOUT: (*_POOL, *_ENGINE),
        (*_ACTOR, "actor"): ("ulysses_sequence_parallel_size",),
        (*_ACTOR, "actor", "fsdp_config"): ("fsdp_size", "ulysses_sequence_parallel_size"),
        (*_ACTOR, "actor", "megatron"): _MEGATRON,
        (*_ACTOR, "ref", "megatron"): _MEGATRON,
        ("critic", "megatron"): _MEGATRON,
        ("reward",): ("reward_model",),
        _REWARD: (*_POOL, "enable", "enable_resource_pool", "rollout"),
        (*_REWARD, "rollout"): _ENGINE,
        ("distillation",): (*_POOL, "enabled", "teacher_models"),
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        name = str(self.at(CONFIG_NAME))
        self.apart = bool({"rollout", "async_training"} & set(self.content)) or any(one in name for one in _APART)
        mode = self.at(("trainer", "v1", "trainer_mode"))
        self.separate = not self.apart and mode == "separate_async"
        switches = [self.switch(("async_training", key)) for key in _HYBRID]
        self.hybrid = not self.apart or any(switches)
        self.trainer = self.pool(("trainer",), 1)
        own = ("rollout",) if self.apart else _ROLLOUT
        least = 0 if self.apart and self.hybrid else 1
        default = 1 if self.apart else 0
        self.rollout = self.pool(own, default, least) if self.apart or self.separate else (0, 0)
        self.rewarded = self.switch((*_REWARD, "enable"))
        self.reward_pool = self.rewarded and self.switch((*_REWARD, "enable_resource_pool"))
        self.reward = self.pool(_REWARD, 0, 1) if self.reward_pool else self.trainer
        self.teaching = self.switch(("distillation", "enabled"))
        self.teachers = self.pool(("distillation",), 0, 1) if self.teaching else (0, 0)
        self.critic = self.switch(("critic", "enable"), self.at(("algorithm", "adv_estimator")) in (None, "gae"))
        self.reference = self._has_reference()

    def pool(self, path: KeyPath, nodes: int, least: int = 1) -> tuple[int, int]:
        """Return the number of nodes of a pool, and of its accelerators on each."""
        default = self.size(("trainer", "n_gpus_per_node"), ASSUMED) if path == _ROLLOUT else ASSUMED
        section = self.section(path)
        for key in _POOL:
            if key in section and self.at((*path, key)) is None:
                fault = Diagnostic(
                    "invalid-value", f"`{key}` is null; it must be a whole number", "write a number such as 1"
                )
                self.add_in_config((*path, key), fault)
        each = self.size((*path, "n_gpus_per_node"), default)
        if self.at((*path, "nnodes")) is None and nodes < least:
            message = f"`nnodes` is missing: {path_text(path)} has a pool of its own"
            self.add_in_config(path, Diagnostic("missing-key", message, "add `nnodes: 1`"))
        return self.size((*path, "nnodes"), nodes, least), each

    def _has_reference(self) -> bool:
        model: KeyPath = (*_ACTOR, "model")
        ranks = self.size((*model, "lora_rank"), 0, 0), self.size((*model, "lora", "rank"), 0, 0)
        if any(ranks) or self.at((*model, "lora_adapter_path")) is not None:
            return False  # the actor without its adapter is the reference model
        return self.switch((*_ACTOR, "actor", "use_kl_loss")) or self.switch(("algorithm", "use_kl_in_reward"))


def recognised(config: Mapping[Any, Any]) -> bool:
    """Return whether a config is written for verl: it has ``actor_rollout_ref``, or the sizes of a trainer's pool."""
    trainer = config.get("trainer") if "trainer" in config else None
    return "actor_rollout_ref" in config or (isinstance(trainer, Mapping) and any(key in trainer for key in _POOL))


def read(config: Config | KeyReader) -> _Reading:
    """Read a config; one that is already read is returned. Raises `PlacementError` if it is not a mapping."""
    return _Reading.of(config)


def plan(config: Config | KeyReader, inventory: Inventory, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of a verl config on an inventory.

    In pool order, each pool takes the first nodes with enough free accelerators. The components are ``actor``, ``ref``,
    ``critic``, ``rollout``, ``rollout_standalone``, ``reward`` and ``teacher``, as far as the config has them. Raises
    `PlacementError` with every fault, among them ``resource-out-of-range`` for pools that do not fit, ``spans-nodes``
    and ``parallel-idle`` for engines that verl would start on a wrong node, or not at all.
    """
    reading = read(config).for_inventory(inventory)
    planner = _Planner(reading, inventory, isolate_accelerator)
    trainer = planner.pool("trainer", reading.trainer)
    reward = planner.pool("reward", reading.reward, _REWARD) if reading.reward_pool and not reading.apart else trainer
    if reading.apart and reading.reward_pool:
        planner.standalone("reward", reading.reward, (*_REWARD, "rollout"), _REWARD)
    teachers = planner.pool("teachers", reading.teachers, ("distillation",)) if reading.teaching else []
    if trainer:
        planner.training(trainer)
        if reading.hybrid:
            planner.engines("rollout", trainer, reading.trainer[1], engine_at(reading, _ROLLOUT), None)
        if reading.rewarded and reward and not reading.apart:
            sizes = engine_at(reading, (*_REWARD, "rollout"))
            planner.engines("reward", reward, reading.reward[1], sizes, planner.share(_SHARED))
    if teachers:
        planner.teachers(teachers)
    if reading.rollout[0]:
        name = "rollout_standalone" if reading.hybrid else "rollout"
        planner.standalone(name, reading.rollout, _ROLLOUT, ("rollout",) if reading.apart else _ROLLOUT)
    reading.finish()
    return Plan(inventory, planner.components)


class _Planner(Pools):
    reader: _Reading

    def pool(self, name: str, size: tuple[int, int], path: KeyPath | None = None) -> list[int]:
        """Take the accelerators of a pool; too few are a fault."""
        path = (name,) if path is None else path
        where = (*path, "nnodes") if self.reader.at((*path, "nnodes")) is not None else path
        return self.nodes(*size, f"the pool of {path_text(path)}", where)

    def training(self, pool: list[int]) -> None:
        """Place the roles that verl makes one Ray actor of."""
        roles: list[tuple[str, KeyPath]] = [("actor", (*_ACTOR, "actor"))]
        roles += [("ref", (*_ACTOR, "ref"))] if self.reader.reference else []
        roles += [("critic", ("critic",))] if self.reader.critic else []
        for name, path in roles:
            sizes, where = training_at(self.reader, path, len(pool))
            self.place(name, pool, where, parallel=sizes, share=self.share(_SHARED * len(roles)))

    def engines(self, name: str, pool: list[int], per_node: int, engine: Engine, share: float | None) -> None:
        """Place engines one after the other on a pool."""
        each = min(per_node, engine.size)
        faults = engine_faults(name, engine.size, each, self.free.node_of(pool), engine.keys)
        for fault in faults:
            self.reader.add_in_config(engine.path, fault)
        if not faults:
            self.place(
                name, pool, engine.where, each, parallel=engine.parallel, share=share, engines=engine.size // each
            )

    def teachers(self, pool: list[int]) -> None:
        """Place the engines of every teacher, one after the other on their pool."""
        path: KeyPath = ("distillation", "teacher_models")
        names = [name for name, teacher in self.reader.section(path).items() if isinstance(teacher, Mapping)]
        several = [name for name in names if name != "teacher_model"]  # the default, replaced by named ones
        start = 0
        for name in several or names:
            engine = engine_at(self.reader, (*path, name, "inference"))
            replicas = 0 if several else len(pool) // engine.size
            replicas = self.reader.size((*path, name, "num_replicas"), replicas, 0) or replicas
            chosen = pool[start : start + replicas * engine.size]
            start += replicas * engine.size
            self.engines(
                f"teacher.{name}" if several else "teacher",
                chosen,
                self.reader.teachers[1],
                engine,
                self.share(_SHARED),
            )
        if not self.reader.faults and start != len(pool):
            message = f"the teachers need {start} accelerators, but their pool has {len(pool)}"
            help = "change num_replicas, their sizes, or nnodes and n_gpus_per_node of distillation"
            code = "parallel-idle" if start < len(pool) else "resource-out-of-range"
            self.reader.add_in_config(path, Diagnostic(code, message, help))

    def standalone(self, name: str, size: tuple[int, int], sizes: KeyPath, path: KeyPath) -> None:
        """Place engines that each have nodes of their own."""
        engine, (nodes, per_node) = engine_at(self.reader, sizes), size
        each, total = min(per_node, engine.size), nodes * per_node
        if total > self.free.left:
            self.pool(name, (nodes, per_node), path)
            return
        faults = engine_faults(name, engine.size, each, range(0), engine.keys) if not total else []
        virtual = [rank // per_node for rank in range(total)]
        faults = faults or [
            one for one in engine_faults(name, engine.size, each, virtual, engine.keys) if one.code != "spans-nodes"
        ]
        for fault in faults:
            self.reader.add_in_config(engine.path, fault)
        taken: list[int] = []
        for _ in range(0 if faults else total // each):
            # An engine on its own takes room where it finds it: a node of the config may be a part of a real one.
            found = self.free.together(each)
            if found is None:
                self.pool(name, (nodes, per_node), path)
                return
            taken += found
        if taken:
            share = self.share(_ALONE)
            self.place(
                name, taken, engine.where, each, parallel=engine.parallel, share=share, engines=engine.size // each
            )


def assumed_inventory(config: Config | KeyReader) -> Inventory:
    """Return as many nodes as the pools have, each with as many accelerators as the largest pool has per node.

    Raises `PlacementError` with every fault of an invalid config.
    """
    reading = read(config)
    reading.finish()
    pools = [reading.trainer, reading.rollout, reading.teachers, reading.reward if reading.reward_pool else (0, 0)]
    nodes, each = sum(nodes for nodes, _ in pools), max(each for nodes, each in pools if nodes)
    return reading.fork().assumed(nodes, each)

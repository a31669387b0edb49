"""verl: pools of ``n_gpus_per_node`` accelerators on ``nnodes`` nodes, roles on them, and engines of their sizes.

The training has one process per accelerator: worker r of a pool with P per node is on its node r // P. Actor, critic
and reference model are one Ray actor in verl, and share its part of the accelerator here. The rollout's engines take
consecutive accelerators of the same pool (hybrid), or have accelerators of their own (``rollout.nnodes`` at the top of
the config, or ``trainer.v1.trainer_mode: separate_async``). A reward model and teachers have engines too.

Follows verl's ``ResourcePoolManager.create_resource_pool`` and ``RayResourcePool.get_placement_groups``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from rankplan.config.text.faults import KeyPath
from rankplan.config.text.reader import Config, Reader
from rankplan.dialects.keys import VERL
from rankplan.dialects.pools import Pools, engine_faults
from rankplan.dialects.verl_sizes import CONFIG_NAME, Engine, engine_at, training_at
from rankplan.dialects.verl_writing import written
from rankplan.errors import Diagnostic
from rankplan.nodes.inventory import Inventory
from rankplan.plans.configured import ASSUMED, assumed, for_inventory
from rankplan.plans.plan import Plan
from rankplan.words import must_be, path_text

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
"""Switches of fully_async with which the trainer generates, too."""


class _Job:
    """The pools and the roles of a verl config."""

    def __init__(self, reader: Reader) -> None:
        name = str(reader.at(CONFIG_NAME))
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
        self.teaching = reader.switch(("distillation", "enabled"))
        self.teachers = _pool(reader, ("distillation",), 0, 1) if self.teaching else (0, 0)
        self.critic = reader.switch(
            ("critic", "enable"), default=reader.at(("algorithm", "adv_estimator")) in (None, "gae")
        )
        self.reference = _has_reference(reader)


def _pool(reader: Reader, path: KeyPath, nodes: int, least: int = 1) -> tuple[int, int]:
    """Return the number of nodes of a pool, and of its accelerators on each."""
    default = reader.size(("trainer", "n_gpus_per_node"), ASSUMED) if path == _ROLLOUT else ASSUMED
    section = reader.section_at(path)
    for key in _POOL:
        if key in section and reader.at((*path, key)) is None:
            reader.add_in_config((*path, key), must_be((key,), None, "a whole number", "write a number such as 1"))
    each = reader.size((*path, "n_gpus_per_node"), default)
    if reader.at((*path, "nnodes")) is None and nodes < least:
        message = f"`nnodes` is missing: {path_text(path)} has a pool of its own"
        reader.add_in_config(path, Diagnostic("missing-key", message, "add `nnodes: 1`"))
    return reader.size((*path, "nnodes"), nodes, least), each


def _has_reference(reader: Reader) -> bool:
    """Return whether there is a reference model (verl: ``need_reference_policy``)."""
    model: KeyPath = (*_ACTOR, "model")
    ranks = reader.size((*model, "lora_rank"), 0, 0), reader.size((*model, "lora", "rank"), 0, 0)
    if any(ranks) or reader.at((*model, "lora_adapter_path")) is not None:
        return False  # the actor without its adapter is the reference model
    return reader.switch((*_ACTOR, "actor", "use_kl_loss")) or reader.switch(("algorithm", "use_kl_in_reward"))


recognised = VERL.recognises
read = partial(VERL.read, state=_Job)


def plan(config: Config | Reader, inventory: Inventory, *, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of a verl config on an inventory.

    In pool order, each pool takes the first nodes with enough free accelerators. The components are ``actor``, ``ref``,
    ``critic``, ``rollout``, ``rollout_standalone``, ``reward`` and ``teacher``, as far as the config has them. Raises
    `PlacementError` with every fault, among them ``resource-out-of-range`` for pools that do not fit, ``spans-nodes``
    and ``parallel-idle`` for engines that verl would start on a wrong node, or not at all.
    """
    reader = for_inventory(read(config), inventory)
    job: _Job = reader.state
    planner = _Planner(reader, inventory, isolate=isolate_accelerator)
    trainer = planner.pool("trainer", job.trainer)
    reward = planner.pool("reward", job.reward, _REWARD) if job.reward_pool and not job.apart else trainer
    if job.apart and job.reward_pool:
        planner.standalone("reward", job.reward, (*_REWARD, "rollout"), _REWARD)
    teachers = planner.pool("teachers", job.teachers, ("distillation",)) if job.teaching else []
    if trainer:
        planner.training(trainer)
        if job.hybrid:
            planner.engines("rollout", trainer, job.trainer[1], engine_at(reader, _ROLLOUT), None)
        if job.rewarded and reward and not job.apart:
            sizes = engine_at(reader, (*_REWARD, "rollout"))
            planner.engines("reward", reward, job.reward[1], sizes, planner.share(_SHARED))
    if teachers:
        planner.teachers(teachers)
    if job.rollout[0]:
        name = "rollout_standalone" if job.hybrid else "rollout"
        planner.standalone(name, job.rollout, _ROLLOUT, ("rollout",) if job.apart else _ROLLOUT)
    reader.finish()
    return Plan(inventory, planner.components)


class _Planner(Pools):
    def __init__(self, reader: Reader, inventory: Inventory, *, isolate: bool) -> None:
        super().__init__(reader, inventory, isolate=isolate)
        self.job: _Job = reader.state

    def pool(self, name: str, size: tuple[int, int], path: KeyPath | None = None) -> list[int]:
        """Take the accelerators of a pool; too few are a fault."""
        path = (name,) if path is None else path
        where = (*path, "nnodes") if self.reader.at((*path, "nnodes")) is not None else path
        return self.nodes(*size, f"the pool of {path_text(path)}", where)

    def training(self, pool: list[int]) -> None:
        """Place the roles that verl makes one Ray actor of."""
        roles: list[tuple[str, KeyPath]] = [("actor", (*_ACTOR, "actor"))]
        roles += [("ref", (*_ACTOR, "ref"))] if self.job.reference else []
        roles += [("critic", ("critic",))] if self.job.critic else []
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
        names = [name for name, teacher in self.reader.section_at(path).items() if isinstance(teacher, Mapping)]
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
                self.job.teachers[1],
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


def assumed_inventory(config: Config | Reader) -> Inventory:
    """Return as many nodes as the pools have, each with as many accelerators as the largest pool has per node.

    Raises `PlacementError` with every fault of an invalid config.
    """
    reader = read(config)
    reader.finish()
    job: _Job = reader.state
    pools = [job.trainer, job.rollout, job.teachers, job.reward if job.reward_pool else (0, 0)]
    nodes, each = sum(nodes for nodes, _ in pools), max(each for nodes, each in pools if nodes)
    return assumed(reader, nodes, each)

"""verl: pools of ``n_gpus_per_node`` accelerators on ``nnodes`` nodes, roles on them, and engines of their sizes.

The training has one process per accelerator: worker r of a pool with P per node is on its node r // P. Actor, critic
and reference model are one Ray actor in verl, and share its part of the accelerator here. The rollout's engines take
consecutive accelerators of the same pool (hybrid), or have accelerators of their own (``rollout.nnodes`` at the top of
the config, or ``trainer.v1.trainer_mode: separate_async``). A reward model and teachers have engines too.

In pool order, each pool takes the first nodes with enough free accelerators. The components are ``actor``, ``ref``,
``critic``, ``rollout``, ``rollout_standalone``, ``reward`` and ``teacher``, as far as the config has them. Faults are
``resource-out-of-range`` for pools that do not fit, ``spans-nodes`` and ``parallel-idle`` for engines that verl would
start on a wrong node, or not at all.

EasyR1, a fork, has its keys in ``worker``. There is a critic only with the estimator gae, and a reference model unless
``algorithm.disable_kl`` is set (EasyR1: ``RayPPOTrainer.__init__``, b44b311).

The program that a script starts decides some roles (`rankplan.trainers.verl.programs`). A config with a ``topology``
section follows a draft of verl's (`rankplan.trainers.verl.topology`).

Follows verl's ``ResourcePoolManager.create_resource_pool``, ``RayResourcePool.get_placement_groups``,
``PPOTrainer._init_resource_pool_mgr`` and ``RolloutReplica.__init__`` (1dda039).
"""

from __future__ import annotations

from collections.abc import Mapping

from rankplan._core import Short, Taken
from rankplan.dialects.memory.read import MemoryReader
from rankplan.dialects.placing.engines import division_fault, idle_fault
from rankplan.dialects.placing.job import Job
from rankplan.dialects.placing.placer import Placer
from rankplan.errors import Diagnostic, KeyPath
from rankplan.nodes.inventory import Inventory
from rankplan.plans.requests import NodeOrder, repeated
from rankplan.read.components import ASSUMED
from rankplan.read.text.reader import Config, Reader
from rankplan.trainers.verl.keys import KEYS
from rankplan.trainers.verl.programs import program_of
from rankplan.trainers.verl.sizes import CONFIG_NAME, OWN_CONFIGS, engine_at, engine_name, training_at
from rankplan.trainers.verl.topology import Topology
from rankplan.trainers.verl.writing import written
from rankplan.words import counted, must_be, path_text

__all__ = ["assumed_inventory", "node_order", "plan", "read", "written"]

_SHARED, _ALONE = 3, 2
"""``max_colocate_count`` of verl's pools, and of those that an engine has for itself."""

_ACTOR: KeyPath = ("actor_rollout_ref",)
_ROLLOUT: KeyPath = (*_ACTOR, "rollout")
_REWARD: KeyPath = ("reward", "reward_model")
_OLD_REWARD: KeyPath = ("reward_model",)
_TEACHERS: KeyPath = ("distillation",)
_WORKER_KEYS = {
    "strategy",
    "micro_batch_size",
    "micro_batch_size_per_gpu",
    "use_dynamic_bsz",
    "megatron",
    "param_offload",
}
_WORKER_MODEL = {"fsdp_config", "use_remove_padding", "input_tokenizer"}
"""Keys of a reward model with a worker per accelerator, in ``reward_model`` and its ``model``: before verl 0.7.1."""
_ESTIMATOR: KeyPath = ("algorithm", "adv_estimator")
_CRITIC: KeyPath = ("critic", "enable")
_WITH_CRITIC = (None, "gae", "masked_gae", "bi_level_gae", "turn_wise_gae")
"""Estimators that need a critic; all but verl's own are VAGEN's."""
_EASY = "worker"
"""The section of EasyR1 that verl does not have."""

_POOL = ("nnodes", "n_gpus_per_node")
_APART = ("fully_async", "one_step_off")
"""Configs of verl whose rollout has nodes of its own."""

_HYBRID = ("use_trainer_do_validate", "use_dynamic_resource_scheduling")
"""Switches of fully_async with which the trainer generates, too."""


class _Job(Job):
    """The pools and the roles of a verl config."""

    name, keys = "verl", KEYS

    def __init__(self, reader: Reader) -> None:
        self.topology = Topology.read(reader)
        if self.topology is not None:
            return
        self.program = program_of(reader.program)
        if key := self.program.unread:
            message = f"`{reader.program}` places its processes by `{key}`, which rankplan does not read"
            help = "write the placement as a `cluster` section, or start verl.trainer.main_ppo"
            reader.add((key,), Diagnostic("unknown-key", message, help))
        self.easy = _EASY in reader.content or reader.program == "verl.trainer.main"
        self.apart = self._is_apart(reader)
        mode = reader.at(("trainer", "v1", "trainer_mode"))
        version = reader.switch(("trainer", "use_v1"), default=True)
        self.separate = not self.apart and mode == "separate_async" and version
        switches = [reader.switch(("async_training", key)) for key in _HYBRID]
        self.hybrid = not self.apart or any(switches)
        self.trainer = _pool(reader, ("trainer",), 1)
        own = ("rollout",) if self.apart else _ROLLOUT
        least = 0 if self.apart and self.hybrid else 1
        each = ASSUMED if self.apart else self.trainer[1]
        alone = self.apart or self.separate
        self.rollout = _pool(reader, own, int(self.apart), least, each=each) if alone else (0, 0)
        self.server = self.rollout[1] if alone else reader.size((*_ROLLOUT, "n_gpus_per_node"), self.trainer[1])
        self._read_reward(reader)
        self.teaching = reader.switch((*_TEACHERS, "enabled"))
        self.teachers = _pool(reader, _TEACHERS, 0, 1) if self.teaching else (0, 0)
        self.critic = self._has_critic(reader)
        reference = self.program.reference
        self.reference = _has_reference(reader, easy=self.easy) if reference is None else reference

    def _is_apart(self, reader: Reader) -> bool:
        """Return whether the rollout has nodes of its own: the program tells, else the keys and the config's name."""
        if self.program.apart is not None:
            return self.program.apart
        name = str(reader.at(CONFIG_NAME))
        pool = any(key in reader.section_at(("rollout",)) for key in _POOL)
        return pool or "async_training" in reader.content or any(one in name for one in _APART)

    def _read_reward(self, reader: Reader) -> None:
        """Read the reward model: its switch, and its pool."""
        older = _WORKER_KEYS & set(reader.section_at(_OLD_REWARD))
        older = older or _WORKER_MODEL & set(reader.section_at((*_OLD_REWARD, "model")))
        self.workers = (self.program.reward_workers or bool(older)) and not reader.section_at(_REWARD)
        moved = self.program.moves_reward and reader.at((*_OLD_REWARD, "enable")) is not None
        self.reward_path = path = _OLD_REWARD if self.workers or moved else _REWARD
        self.rewarded = reader.switch((*path, "enable"), default=self.workers and self.program.rewarded)
        if path == _REWARD and not self.rewarded and reader.at((*_OLD_REWARD, "enable")) is True:
            message = "no reward model is placed: verl 0.9 takes it from `reward.reward_model`, not from `reward_model`"
            help = "write reward.reward_model.enable=true, and its pool and its rollout there"
            reader.warn((*_OLD_REWARD, "enable"), Diagnostic("not-run", message, help))
        own = reader.switch((*path, "enable_resource_pool"))
        self.reward_pool = self.rewarded and own and not self.workers
        self.reward = _pool(reader, path, 0, 1) if self.reward_pool else self.trainer
        if self.rewarded and not own and (self.separate or self.program.moves_reward):
            message = "the reward model has no pool of its own; verl needs one if the rollout never pauses"
            help = f"add {path_text(path)}.enable_resource_pool=true, with nnodes and n_gpus_per_node"
            reader.add((*path, "enable"), Diagnostic("invalid-value", message, help))
        if own and not self.rewarded and (spare := reader.size((*path, "nnodes"), 0, 0)):
            each = reader.size((*path, "n_gpus_per_node"), ASSUMED)
            pool = f"{counted(spare, 'node')} with {each} accelerators"
            message = f"verl also counts the pool of the reward model, {pool}, although it is disabled"
            fault = Diagnostic("idle-accelerators", message, "remove this key")
            reader.warn((*path, "enable_resource_pool"), fault)

    def _has_critic(self, reader: Reader) -> bool:
        """Return whether there is a critic (verl: ``need_critic``); an asynchronous trainer fails with one."""
        if self.program.critic is not None:
            return self.program.critic
        if self.easy:
            return bool(reader.at(_ESTIMATOR) == "gae")
        critic = reader.switch(_CRITIC, default=reader.at(_ESTIMATOR) in _WITH_CRITIC)
        unknown = {path_text(_CRITIC), path_text(_ESTIMATOR)} & {one.path for one in reader.warnings}
        stated = any(reader.at(path) is not None for path in (_CRITIC, _ESTIMATOR))
        if critic and self.apart and not unknown and (stated or reader.program.startswith("verl.")):
            path = _CRITIC if reader.at(_CRITIC) is not None else _ESTIMATOR
            default = "" if reader.at(path) is not None else " (verl's default estimator is gae)"
            message = f"this trainer has no critic: verl fails when it creates one{default}"
            help = "use an estimator without critic, such as algorithm.adv_estimator=grpo, and critic.enable=false"
            reader.add(path, Diagnostic("invalid-value", message, help))
        return critic

    @classmethod
    def assumed_inventory(cls, config: Config | Reader) -> Inventory:
        """Return the nodes that the config needs. Raises `PlacementError` with every fault of the config."""
        reader = cls.read(config)
        reader.finish()
        job: _Job = reader.state
        return super().assumed_inventory(reader) if job.topology is None else job.topology.assumed()

    def node_order(self) -> NodeOrder:
        """Return addresses as text (``sort_placement_group_by_node_ip``)."""
        return "text"

    def size(self) -> tuple[int, int]:
        """Return as many nodes as the pools have, each with as many accelerators as the largest pool has per node."""
        if self.topology is not None:
            return self.topology.size()
        pools = [self.trainer, self.rollout, self.teachers, self.reward if self.reward_pool else (0, 0)]
        return sum(nodes for nodes, _ in pools), max(each for nodes, each in pools if nodes)

    def place(self, placer: Placer) -> None:
        """Place the training and its engines, the reward model, the teachers, and engines with nodes of their own."""
        if self.topology is not None:
            self.topology.place(placer)
            return
        reader = placer.reader
        pool = "trainer_pool" if self.apart else "global_pool"
        trainer = _taken(placer, self.trainer, ("trainer",), "actor", pool)
        engine: KeyPath = (*self.reward_path, "rollout")
        reward = trainer
        if self.reward_pool and not self.apart:
            reward = _taken(placer, self.reward, self.reward_path, "reward", "reward_pool")
        if self.apart and self.reward_pool:
            _standalone(placer, "reward", self.reward, engine, self.reward_path)
        teachers = Taken()
        if self.teaching:
            teachers = _taken(placer, self.teachers, _TEACHERS, "teacher", "teacher_pool")
        if trainer:
            self._place_training(placer, trainer)
            if self.hybrid:
                placer.engines("rollout", trainer, self.server, engine_at(reader, _ROLLOUT), None)
            if self.rewarded and reward and not self.apart and not self.workers:
                placer.engines("reward", reward, self.reward[1], engine_at(reader, engine), placer.share(_SHARED))
        if teachers:
            _place_teachers(placer, teachers, self.teachers[1])
        if self.rollout[0]:
            name = "rollout_standalone" if self.hybrid else "rollout"
            _standalone(placer, name, self.rollout, _ROLLOUT, ("rollout",) if self.apart else _ROLLOUT)

    def _place_training(self, placer: Placer, pool: Taken) -> None:
        """Place the roles that verl makes one Ray actor of."""
        roles = {"actor": (*_ACTOR, "actor"), "ref": (*_ACTOR, "ref"), "critic": ("critic",), "reward": _OLD_REWARD}
        workers = self.workers and self.rewarded
        present = {"actor": True, "ref": self.reference, "critic": self.critic, "reward": workers}
        share = placer.share(_SHARED * sum(present.values()))
        for name, path in roles.items():
            if present[name]:
                sizes, where = training_at(placer.reader, path, len(pool), self.program.engine)
                strategy = str(engine_name(placer.reader, path, self.program.engine))
                facts = {"engine": {"fsdp2": "fsdp"}.get(strategy, strategy)}
                placer.component(name, pool, where, sizes=sizes, share=share, facts=facts)

    def memory(self, reader: Reader) -> MemoryReader:
        """Return what reads the memory; the defaults are verl's own unless another config has them."""
        name = str(reader.at(CONFIG_NAME) or "").removesuffix(".yaml")
        roles = self.keys.roles if self.topology is None and not self.easy else ()
        return MemoryReader(reader, roles, defaults=not name or name in OWN_CONFIGS)


read, plan, assumed_inventory, node_order = _Job.read, _Job.plan, _Job.assumed_inventory, _Job.order


def _pool(reader: Reader, path: KeyPath, nodes: int, least: int = 1, *, each: int = ASSUMED) -> tuple[int, int]:
    """Return the number of nodes of a pool, and of its accelerators on each."""
    section = reader.section_at(path)
    for key in _POOL:
        if key in section and reader.at((*path, key)) is None:
            reader.add((*path, key), must_be((key,), None, "a whole number", "write a number such as 1"))
    each = reader.size((*path, "n_gpus_per_node"), each)
    if reader.at((*path, "nnodes")) is None and nodes < least:
        message = f"`nnodes` is missing: {path_text(path)} has a pool of its own"
        reader.add(path, Diagnostic("missing-key", message, "add `nnodes: 1`"))
    return reader.size((*path, "nnodes"), nodes, least), each


def _has_reference(reader: Reader, *, easy: bool) -> bool:
    """Return whether there is a reference model (verl: ``need_reference_policy``)."""
    model: KeyPath = (*_ACTOR, "model")
    ranks = reader.size((*model, "lora_rank"), 0, 0), reader.size((*model, "lora", "rank"), 0, 0)
    if any(ranks) or reader.at((*model, "lora_adapter_path")) is not None:
        return False  # the actor without its adapter is the reference model
    if easy:
        return not reader.switch(("algorithm", "disable_kl"))
    return reader.switch((*_ACTOR, "actor", "use_kl_loss")) or reader.switch(("algorithm", "use_kl_in_reward"))


def _taken(placer: Placer, size: tuple[int, int], path: KeyPath, component: str = "", pool: str = "") -> Taken:
    """Take the accelerators of a pool, and record its requests, a group a node; too few are a fault."""
    where = next(((*path, key) for key in _POOL if placer.reader.at((*path, key)) is not None), path)
    nodes, each = size
    taken = placer.nodes(nodes, each, f"the pool of {path_text(path)}", where)
    name = f"{pool}{_group_name(nodes, each)}"
    placer.ask(component, taken, per_group=each, name=name, strategy="STRICT_PACK", order="text")
    return taken


def _group_name(nodes: int, each: int) -> str:
    """Return the name of a pool's groups without their numbers (verl: ``RayResourcePool.get_placement_groups``)."""
    return f"verl_group_{each}{repeated(f'_{each}', nodes - 1)}:"


def _place_teachers(placer: Placer, pool: Taken, per_node: int) -> None:
    """Place the engines of every teacher, one after the other on their pool."""
    reader, path = placer.reader, (*_TEACHERS, "teacher_models")
    names = [name for name, teacher in reader.section_at(path).items() if isinstance(teacher, Mapping)]
    several = [name for name in names if name != "teacher_model"]  # the default, replaced by named ones
    start = 0
    for name in several or names:
        engine = engine_at(reader, (*path, name, "inference"))
        replicas = 0 if several else len(pool) // engine.size
        replicas = reader.size((*path, name, "num_replicas"), replicas, 0) or replicas
        stop = start + replicas * engine.size
        chosen = pool.slice(min(start, len(pool)), min(stop, len(pool)))
        start = stop
        component = f"teacher.{name}" if several else "teacher"
        placer.engines(component, chosen, per_node, engine, placer.share(_SHARED))
    if not reader.faults and start != len(pool):
        message = f"the teachers need {start} accelerators, but their pool has {len(pool)}"
        help = "change num_replicas, their sizes, or nnodes and n_gpus_per_node of distillation"
        code = "parallel-idle" if start < len(pool) else "resource-out-of-range"
        reader.add(path, Diagnostic(code, message, help))


def _standalone(placer: Placer, name: str, size: tuple[int, int], sizes: KeyPath, path: KeyPath) -> None:
    """Place engines that each have nodes of their own (verl: ``RolloutReplica.init_standalone``).

    An engine on its own takes room where it finds it: a node of the config may be a part of a real one.
    """
    engine = engine_at(placer.reader, sizes)
    nodes, per_node = size
    total = nodes * per_node
    each = min(per_node, engine.size)
    if total > placer.free:
        _taken(placer, size, path)  # refused, as a pool
        return
    fault = division_fault(name, engine, each, total) or idle_fault(name, engine, total)
    if fault is not None:
        placer.reject(engine.path, fault)
        return

    def torn(short: Short) -> Diagnostic:
        """Return the fault of a process for which no node has enough accelerators left."""
        number = short.bundles * each // engine.size
        message = f"engine {number} of the {name} needs {each} accelerators ({engine.keys}) on one node; "
        message += f"{short.free} are free, but no node has that many"
        return Diagnostic("spans-nodes", message, "use smaller engines, or nodes with more accelerators")

    taken = placer.bundles(total, [each], name, engine.path, torn)
    processes = engine.size // each
    pools = _group_name(processes, each), processes
    prefix = "rollout_pool_reward_" if name == "reward" else "rollout_pool_"
    placer.ask(name, taken, per_group=each, name=prefix, pools=pools, order="text")
    share = placer.share(_ALONE)
    placer.component(name, taken, engine.where, each, sizes=engine.parallel, share=share, engines=processes)

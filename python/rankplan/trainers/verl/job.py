"""verl: pools of ``n_gpus_per_node`` accelerators on ``nnodes`` nodes, roles on them, and engines of their sizes.

The training has one process per accelerator: worker r of a pool with P per node is on its node r // P. Actor, critic
and reference model are one Ray actor in verl, and share its part of the accelerator here. The rollout's engines take
consecutive accelerators of the same pool (hybrid), or have accelerators of their own (``rollout.nnodes`` at the top of
the config, or ``trainer.v1.trainer_mode: separate_async``). A reward model and teachers have engines too.

In pool order, each pool takes the first nodes with enough free accelerators. The components are ``actor``, ``ref``,
``critic``, ``rollout``, ``rollout_standalone``, ``reward`` and ``teacher``, as far as the config has them. Faults are
``resource-out-of-range`` for pools that do not fit, ``spans-nodes`` and ``parallel-idle`` for engines that verl would
start on a wrong node, or not at all.

The program that a script starts decides some roles (`rankplan.trainers.verl.programs`). A config with a ``topology``
section follows a draft of verl's (`rankplan.trainers.verl.topology`).

Follows verl's ``ResourcePoolManager.create_resource_pool``, ``RayResourcePool.get_placement_groups``,
``PPOTrainer._init_resource_pool_mgr`` and ``RolloutReplica.__init__`` (1dda039).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankplan.sdk import Config, Job, NodeOrder, Placer, Taken
from rankplan.trainers.verl import faults, keys
from rankplan.trainers.verl.actors import read_actors
from rankplan.trainers.verl.pools import USERS, Pool, read_pool
from rankplan.trainers.verl.programs import has_own_defaults, is_foreign, program_of
from rankplan.trainers.verl.reward import Form, read_reward_model
from rankplan.trainers.verl.rollout import Trainer, has_own_share, read_rollout, read_trainer
from rankplan.trainers.verl.teachers import read_teachers
from rankplan.trainers.verl.training import Training, read_training

if TYPE_CHECKING:
    from rankplan.trainers.verl.partition import Partition

_ON_CRITICS = ("critic", "reward")
"""The trained roles on the pool of the critic, in a program that gives it one."""


class VerlJob(Job):
    """The pools and the roles of a verl config."""

    def __init__(self, config: Config) -> None:
        self.program = program_of(config.program)
        if self.program.unread:
            fault = faults.unread_placement(config.program, self.program.unread)
            config.faults.add(config.named(self.program.unread), fault)
        self.pool_cpus = config[keys.POOL_CPUS]
        self.has_defaults = has_own_defaults(config)
        self.trainer = read_trainer(config, self.program)
        self.pool = read_pool(config.under(keys.TRAINER), keys.TRAINER_POOL, usual_nodes=1)
        self.whole_pool = self.pool
        self.critics_pool: Pool | None = None
        if self.program.is_split:
            self._split_pool(config)
        self.rollout = read_rollout(config, self.trainer, self.pool)
        self.has_own_share = has_own_share(config, self.trainer, self.program)
        self.partition: Partition | None = None
        if self.trainer is Trainer.ASYNCHRONOUS and config[keys.PARTITIONED]:
            from rankplan.trainers.verl.partition import read_partition  # few jobs divide their nodes

            self.partition = read_partition(config, self.pool, self.rollout)
        if self.partition is not None:
            self.pool, self.rollout = self.partition.training, self.partition.rollout
        self.reward = read_reward_model(config, self.trainer, self.program.older_reward, self.pool)
        self.teachers = read_teachers(config)
        self.trained = self._read_trained(config)
        self.actors = read_actors(config, self.trainer)

    def _split_pool(self, config: Config) -> None:
        """Divide the pool: the critic and the reward model have the second half."""
        if self.pool.gpus < 2:
            config.faults.add(self.pool.where, faults.nothing_to_split(config.program))
            return
        self.pool, self.critics_pool = self.pool.halves()

    def _read_trained(self, config: Config) -> dict[str, Training]:
        """Return the roles that verl makes one Ray actor of, with their sizes."""
        sections = {"actor": keys.ACTOR}
        if self._has_reference(config):
            sections["ref"] = keys.REFERENCE
        if self._has_critic(config):
            sections["critic"] = keys.CRITIC
        if self.reward.form is Form.WORKERS:
            sections["reward"] = keys.OLDER_REWARD
        return {
            name: read_training(config, section, self.pool.gpus, self.program.engine)
            for name, section in sections.items()
        }

    def _has_reference(self, config: Config) -> bool:
        """Return whether there is a reference model (verl: ``need_reference_policy``)."""
        if self.program.reference is not None:
            return self.program.reference
        ranks = [config[keys.LORA_RANK], config[keys.LORA_SECTION_RANK]]
        if any(ranks) or config.stated(keys.LORA_ADAPTER):
            return False  # the actor without its adapter is the reference model
        has_reference: bool | None = config[keys.HAS_REFERENCE]
        if has_reference is not None:
            return has_reference
        if config.program_file:
            from rankplan.trainers.verl.vendored import Rule, starts_reference  # most configs have no program

            own_rule = starts_reference(config)
            if isinstance(own_rule, bool):
                return own_rule
            if own_rule is Rule.UNREAD:
                config.faults.warn(config.place, faults.roles_not_checked(config.program, config.program_file))
        elif is_foreign(config):
            config.faults.warn(config.place, faults.program_not_found(config.program))
        return config[keys.USE_KL_LOSS] or config[keys.USE_KL_IN_REWARD]

    def _has_critic(self, config: Config) -> bool:
        """Return whether there is a critic (verl: ``need_critic``); an asynchronous trainer fails with one."""
        if self.program.critic is not None:
            return self.program.critic
        needs_critic = config[keys.ESTIMATOR] in config[keys.CRITIC_ESTIMATORS]
        has_critic = config.get(keys.CRITIC_ENABLED, needs_critic)
        if has_critic and self.trainer is Trainer.ASYNCHRONOUS:
            _refuse_critic(config)
        return has_critic

    def node_order(self) -> NodeOrder:
        """Return addresses as text (``sort_placement_group_by_node_ip``)."""
        return "text"

    def size(self) -> tuple[int, int]:
        """Return as many nodes as the pools have, each with as many accelerators as the largest pool has per node.

        Those of a partition are stated, and its pools share them.
        """
        if self.critics_pool is not None:
            nodes = max(self.whole_pool.nodes // 2 * 2, 1)
            return nodes, self.whole_pool.gpus_per_node
        pools = self._pools_with_nodes()
        return sum(pool.nodes for pool in pools), max(pool.gpus_per_node for pool in pools)

    def largest_node(self) -> int | None:
        """Return the accelerators of a node that several pools may share; one pool states its nodes."""
        pools = self._pools_with_nodes()
        if self.critics_pool is not None or len(pools) == 1:
            return None
        return max(self.usual_accelerators, *(pool.gpus_per_node for pool in pools))

    def _pools_with_nodes(self) -> list[Pool]:
        """Return the pools that have nodes of their own."""
        teachers = None if self.teachers is None else self.teachers.pool
        pools = [self.pool, self.rollout.pool, self.reward.pool, teachers]
        used = [pool for pool in pools if pool is not None and pool.nodes]
        return used if self.partition is None else [self.partition.divided, *used[2:]]

    def place(self, placer: Placer) -> None:
        """Place the training and its engines, the reward model, the teachers, and engines with nodes of their own.

        verl makes the pools before it starts a role on them; a standalone engine takes its nodes when it starts.
        """
        is_asynchronous = self.trainer is Trainer.ASYNCHRONOUS
        cpus = self.pool_cpus
        on_training, on_critics = self._users_of_pools()
        name = "trainer_pool" if is_asynchronous else "global_pool"
        training = self.pool.take(placer, "actor", name, cpus, on_training)
        critics = training
        if self.critics_pool is not None:
            critics = self.critics_pool.take(placer, "critic", "critic_pool", cpus, on_critics)
        reward = self._take_reward(placer, training)
        teachers = Taken()
        if self.teachers is not None:
            users = [teacher.name for teacher in self.teachers.teachers]
            teachers = self.teachers.pool.take(placer, "teacher", "teacher_pool", users=users)
        if training:
            self._place_trained(placer, training, critics)
            if self.rollout.gpus_per_server is not None:
                self.rollout.engines.place(placer, "rollout", training, self.rollout.gpus_per_server, None)
            if reward:
                self._place_reward(placer, reward)
        if self.teachers is not None:
            self.teachers.place(placer, teachers, placer.share(USERS))
        if self.rollout.pool is not None:
            name = "rollout" if self.rollout.gpus_per_server is None else "rollout_standalone"
            keys_of = "rollout_standalone" if self.has_own_share else "rollout"
            self.rollout.engines.place_alone(placer, name, self.rollout.pool, "rollout_pool_", keys_of=keys_of)
        for actors in self.actors:
            placer.hold(actors)

    def _users_of_pools(self) -> tuple[list[str], list[str]]:
        """Return the components on the pool of the training, and those on that of the critic, if it has one."""
        training, critics = list(self.trained), []
        if self.critics_pool is not None:
            critics = [name for name in training if name in _ON_CRITICS]
            training = [name for name in training if name not in _ON_CRITICS]
        if self.rollout.gpus_per_server is not None:
            training.append("rollout")
        if self.reward.pool is None and self.reward.engines is not None:
            training.append("reward")
        return training, critics

    def _take_reward(self, placer: Placer, training: Taken) -> Taken:
        """Take the accelerators of the reward model's engines, unless they take nodes of their own."""
        if self.reward.pool is None:
            return training
        if self.trainer is not Trainer.ASYNCHRONOUS:
            return self.reward.pool.take(placer, "reward", self.reward.prefix)
        if self.reward.engines is not None:
            self.reward.engines.place_alone(placer, "reward", self.reward.pool, "rollout_pool_reward_")
        return Taken()

    def _place_trained(self, placer: Placer, training: Taken, critics: Taken) -> None:
        """Place the roles with a process per accelerator; ``critics`` are those of the critic and the reward model."""
        for name, trained in self.trained.items():
            on_critics = name in _ON_CRITICS
            together = [other for other in self.trained if (other in _ON_CRITICS) == on_critics]
            users = self.trained if self.critics_pool is None else together
            engine = "fsdp" if trained.engine == "fsdp2" else trained.engine
            placer.component(
                name,
                critics if on_critics else training,
                trained.sizes.where,
                sizes=trained.sizes,
                share=placer.share(USERS * len(users)),
                facts={"engine": engine},
            )

    def _place_reward(self, placer: Placer, taken: Taken) -> None:
        """Place the engines of the reward model, on the accelerators of the training or on its pool."""
        if self.reward.engines is None:
            return
        pool = self.pool if self.reward.pool is None else self.reward.pool
        self.reward.engines.place(placer, "reward", taken, pool.gpus_per_node, placer.share(USERS))


def _refuse_critic(config: Config) -> None:
    """Record the critic of an asynchronous trainer, unless only a run tells whether there is one."""
    if config.is_known_when_run(keys.CRITIC_ENABLED) or config.is_known_when_run(keys.ESTIMATOR):
        return
    stated = list(filter(config.stated, (keys.CRITIC_ENABLED, keys.ESTIMATOR)))
    if stated or config.program.startswith("verl."):
        where = config.where(*stated, keys.ESTIMATOR)
        config.faults.add(where, faults.asynchronous_critic(by_default=not stated))


def job_of(config: Config) -> Job:
    """Return the job of a config: with the pools of a topology, or with those of the roles."""
    if not config.under(keys.TOPOLOGY).section:
        return VerlJob(config)
    from rankplan.trainers.verl.topology import TopologyJob  # few configs state one

    return TopologyJob(config)

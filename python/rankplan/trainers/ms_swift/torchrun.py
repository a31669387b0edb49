"""ms-swift without Ray: torchrun starts the trainer, and vLLM is in its processes or a server beside it.

Process r of a node has its r-th visible device. One of ``swift`` has every n-th of them if n processes see more, and
shards its model over them (``device_map``), which vLLM, DeepSpeed and FSDP exclude; one of ``megatron`` leaves the
others idle. In the mode ``colocate``, engines are in these processes: tensor groups of consecutive ranks. In the mode
``server``, ``swift rollout`` starts an engine for each slice of its visible devices.

Follows ``is_mp``, ``RLHFArguments._init_rollout``, ``_init_grpo``, ``_check_gkd``, ``RolloutTrainerMixin``,
``RolloutArguments._check_device_count`` and ``_set_visible_devices_for_dp_rank`` (3602360).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from rankplan import Diagnostic, Faults, Parallel
from rankplan.sdk import Config, Device, Job, NodeCommand, Placer, Sizes, Started, Taken
from rankplan.trainers.ms_swift import faults, keys
from rankplan.trainers.ms_swift.commands import (
    Address,
    Server,
    Trainer,
    addresses,
    rank_of,
    server_of,
    trainer_of,
)
from rankplan.trainers.ms_swift.pools import training_sizes
from rankplan.trainers.ms_swift.starting import program_of_file, server_command, server_flags, trainer_command

_IDLE = "server"
"""The component of a server that the trainer does not use."""
_SHARED = 2
"""Users of a device with an engine in the process of the trainer."""
_WITH_VLLM = ("grpo", "gkd")
_ONLINE = (*_WITH_VLLM, "ppo")
"""Algorithms that generate while they train."""


class TorchrunJob(Job):
    """The trainer of a job, and its servers."""

    finds_all = True
    starts = "processes"

    def __init__(self, config: Config) -> None:
        self.program = next((program for program in config.programs if program.is_main), None)
        self.place_of_job = config.place if self.program is None else self.program.where
        self.is_megatron = _is_megatron(config)
        self.config = config
        self.algorithm = config[keys.RLHF_TYPE] or "dpo"
        if self.algorithm not in _ONLINE:
            at = config.where(keys.RLHF_TYPE) if config.stated(keys.RLHF_TYPE) else self.place_of_job
            config.faults.add(at, faults.not_online(self.algorithm))
        self.training = self._read_sizes(config)
        self.stage = _stage(config[keys.DEEPSPEED])
        self.uses_vllm = self.algorithm in _WITH_VLLM and config.get(keys.USE_VLLM, default=self.is_megatron)
        self.mode = self._read_mode(config)
        engine = config.under(keys.ROLLOUT)
        self.tensor = engine[keys.TENSOR]
        self.tensor_at = engine.where(keys.TENSOR) if engine.stated(keys.TENSOR) else self.place_of_job
        self.sleep_level = config[keys.SLEEP_LEVEL] if config.stated(keys.SLEEP_LEVEL) else 0
        self.frameworks = [key.path for key in (keys.DEEPSPEED, keys.FSDP) if config.stated(key)]
        self.trainer = self._read_trainer(config)
        self.servers = self._read_servers(config)
        self._check_servers(config)

    def _read_sizes(self, config: Config) -> Sizes:
        """Return the sizes of Megatron, or the processes that share a sequence."""
        if self.is_megatron:
            return training_sizes(config)
        return Sizes(Parallel(cp=config[keys.SEQUENCE]), config.where(keys.SEQUENCE))

    def _read_mode(self, config: Config) -> str:
        """Return where vLLM is, empty if it does not generate."""
        mode = config[keys.MODE] or ""
        at = config.where(keys.MODE) if mode else config.where(keys.USE_VLLM)
        if mode and mode not in keys.MODES:
            config.faults.add(at, faults.wrong_mode(mode))
        elif self.algorithm in _WITH_VLLM and mode and not self.uses_vllm:
            config.faults.add(at, faults.mode_without_vllm(mode))
        elif self.uses_vllm and not mode:
            config.faults.add(at if config.stated(keys.USE_VLLM) else self.place_of_job, faults.no_mode())
        elif mode == keys.SERVER and not addresses(config):
            config.faults.add(at, faults.no_host())
        return mode if self.uses_vllm else ""

    def _read_trainer(self, config: Config) -> Trainer:
        """Return the trainer, whose command may stand in the script once for each of its nodes."""
        trainer = trainer_of(config, self.program, config.faults)
        others = [program for program in config.programs if not program.part and program is not self.program]
        if others:
            self._check_other_nodes(config, trainer, others)
        return trainer

    def _check_other_nodes(self, config: Config, trainer: Trainer, others: Sequence[Started]) -> None:
        """Record commands of other nodes with the rank of this one; other trainers are a warning."""
        if trainer.processes.nodes < 2:
            config.faults.warn(others[0].where, faults.several_trainers(len(others) + 1))
            return
        ranks = {rank_of(trainer.processes)}
        for program in others:
            other = trainer_of(config.of(program), program, config.faults.copy())
            rank = rank_of(other.processes)
            if rank is not None and rank in ranks and other.processes.rank is not None:
                config.faults.add(other.processes.rank.where, faults.rank_twice(rank))
            ranks.add(rank)

    def _read_servers(self, config: Config) -> list[Server]:
        """Return the servers: on the first node, unless the trainer states another host for them."""
        stated = addresses(config)
        programs = [program for program in config.programs if program.part]
        first = self.trainer.processes.nodes
        others = list(dict.fromkeys(address.host for address in stated if not address.is_local))
        servers = []
        for number, program in enumerate(programs):
            server = server_of(config, program, 0, config.faults)
            address = _address(stated, number, server.port)
            if address is not None and not address.is_local:
                server = server._replace(node=first + others.index(address.host))
            servers.append(server)
        return servers

    def _check_servers(self, config: Config) -> None:
        """Warn of a server that nobody uses, or that this script does not start; record ports that servers share."""
        if self.mode == keys.SERVER and not self.servers:
            config.faults.warn(config.where(keys.MODE), faults.no_server())
        if self.mode != keys.SERVER:
            for server in self.servers:
                config.faults.warn(server.program.where, faults.idle_server(self.mode))
        ports: set[tuple[int, int]] = set()
        for server in self.servers:
            if (server.node, server.port) in ports:
                config.faults.add(server.port_at, faults.same_port(server.port, server.node))
            ports.add((server.node, server.port))

    def commands(self, collector: Faults) -> Sequence[NodeCommand]:
        """Return the command of the server, and that of the trainer; see `Job.commands`."""
        if len(self.servers) > 1:
            collector.add(self.servers[1].program.where, faults.several_servers(len(self.servers)))
        name = self._server_name
        commands = [server_command(server, name, collector) for server in self.servers[:1]]
        uses_server = self.mode == keys.SERVER and bool(self.servers)
        flags = {}
        if uses_server:
            flags = server_flags(self.config, self.servers[0], name, is_megatron=self.is_megatron)
        inside = [keys.ROLLOUT] if self.mode == keys.COLOCATE else []
        program = self.program or program_of_file(self.config, is_megatron=self.is_megatron)
        commands.append(trainer_command(self.trainer, program, inside, flags, collector))
        return commands

    @property
    def _server_name(self) -> str:
        """The component of a server: one that the trainer uses, or another."""
        return keys.ROLLOUT if self.mode == keys.SERVER else _IDLE

    def size(self) -> tuple[int, int]:
        """Return the nodes of the commands, each with the devices that these name, or 8."""
        trainer = self.trainer
        nodes = max([trainer.processes.nodes, *(server.node + 1 for server in self.servers)])
        each = [trainer.processes.on_node(self.usual_accelerators)]
        for mask in (trainer.mask, *(server.mask for server in self.servers)):
            each += [device + 1 for device in mask.devices or ()]
        each += [server.tensor * server.data for server in self.servers]
        is_masked = trainer.mask.devices is not None
        return nodes, max(*each, self.usual_accelerators) if is_masked or self.is_megatron else max(each)

    def place(self, placer: Placer) -> None:
        """Place ``train``, and ``rollout`` on its devices or on those of servers."""
        engines = [list(self._devices_of_server(placer, server)) for server in self.servers]
        used = set(chain.from_iterable(engines))
        ranks = list(self._devices_of_ranks(placer, used))
        for number, (server, devices) in enumerate(zip(self.servers, engines, strict=True)):
            at = server.mask.where or server.program.where
            shared = Device.first_shared(ranks, devices)
            if shared is not None:
                placer.reject(at, faults.device_twice(*shared.device, shared.holder))
            other = Device.first_shared(engines[:number], devices)
            if other is not None:
                placer.reject(at, faults.servers_share(other.holder, number, server.node))
        if placer.faults or not ranks:
            return
        is_shared = self.mode == keys.COLOCATE
        share = placer.share(_SHARED) if is_shared else 1.0
        taken = placer.devices(chain.from_iterable(ranks))
        at = self.trainer.processes.where
        sizes = self.training
        placer.component(keys.TRAIN, taken, at, len(ranks[0]), sizes=sizes, share=share, facts=self._facts)
        if is_shared:
            self._place_colocated(placer, taken, ranks, share)
        self._place_servers(placer, engines)

    @property
    def _facts(self) -> dict[str, object]:
        """What the command says of the memory of the training."""
        framework = "megatron" if self.is_megatron else "deepspeed" if self.stage is not None else ""
        return {"framework": framework, "zero_stage": self.stage, "is_hybrid": self.mode == keys.COLOCATE}

    def _place_colocated(self, placer: Placer, taken: Taken, ranks: Sequence[Sequence[Device]], share: float) -> None:
        """Place the engines in the processes of the trainer."""
        if len(ranks) % self.tensor:
            placer.reject(self.tensor_at, faults.undivided_world(self.tensor, len(ranks)))
            return
        for engine in range(len(ranks) // self.tensor):
            nodes = [devices[0].node for devices in ranks[engine * self.tensor : (engine + 1) * self.tensor]]
            if nodes[0] != nodes[-1]:
                placer.reject(self.tensor_at, faults.torn_engine(engine, self.tensor, nodes[0], nodes[-1]))
                return
        sizes = Sizes(Parallel(tp=self.tensor), self.tensor_at)
        facts = {"mode": keys.COLOCATE, "is_hybrid": True, "sleep_level": self.sleep_level}
        placer.component(keys.ROLLOUT, taken, self.tensor_at, self.tensor, sizes=sizes, share=share, facts=facts)

    def _place_servers(self, placer: Placer, engines: Sequence[Sequence[Device]]) -> None:
        """Place the engines of servers: together if all have one size."""
        name = self._server_name
        if len({server.tensor for server in self.servers}) == 1:
            self._place_engines(placer, name, self.servers[0], [*chain.from_iterable(engines)])
            return
        for number, (server, devices) in enumerate(zip(self.servers, engines, strict=True)):
            self._place_engines(placer, f"{name}_{number}", server, devices)

    def _place_engines(self, placer: Placer, name: str, server: Server, devices: Sequence[Device]) -> None:
        sizes = Sizes(Parallel(tp=server.tensor), server.where)
        facts = {"mode": keys.SERVER}
        placer.component(name, placer.devices(devices), server.where, server.tensor, sizes=sizes, facts=facts)

    def _devices_of_ranks(self, placer: Placer, used: set[Device]) -> Iterator[Sequence[Device]]:
        """Yield the devices of each process of the trainer; ``used`` are not among those of an unknown mask."""
        for node in range(self.trainer.processes.nodes):
            visible = self._visible_of_trainer(placer, node, used)
            if visible is None:
                return
            count = self.trainer.processes.on_node(len(visible))
            fault = self._fault_of_node(node, len(visible), count)
            if fault is not None:
                placer.reject(self.trainer.processes.where, fault)
                return
            each = 1 if self.is_megatron or not count else len(visible) // count
            for rank in range(count):
                yield [visible[rank + count * number] for number in range(each)]

    def _visible_of_trainer(self, placer: Placer, node: int, used: set[Device]) -> Sequence[Device] | None:
        """Return the devices that the trainer sees on a node; with an unknown mask, the first that are not used."""
        trainer = self.trainer
        visible = placer.visible(trainer.mask, node, "the trainer", trainer.processes.where)
        if visible is None or trainer.mask.is_known:
            return visible
        free = [device for device in visible if device not in used]
        return free[: trainer.processes.on_node(len(free))]

    def _fault_of_node(self, node: int, num_visible: int, count: int) -> Diagnostic | None:
        """Return why so many processes of the trainer cannot divide the visible devices of a node."""
        if count > num_visible:
            stated = self.trainer.mask.stated or "all of them"
            return faults.more_than_visible("the trainer", count, num_visible, node, stated)
        if self.is_megatron or not count:
            return None
        if num_visible % count:
            return faults.uneven_devices(num_visible, count, node)
        if num_visible > count and (self.uses_vllm or self.frameworks):
            user = "vLLM" if self.uses_vllm else self.frameworks[0]
            return faults.sharded_model(num_visible, count, user)
        return None

    def _devices_of_server(self, placer: Placer, server: Server) -> Iterator[Device]:
        """Yield the devices of the engines of a server, one engine after the other."""
        at = server.program.where
        visible = placer.visible(server.mask, server.node, "the server", at)
        if visible is None:
            return
        count = server.tensor * server.data
        if count > len(visible):
            stated = server.mask.stated or "all of them"
            fault = faults.more_than_visible("the server", count, len(visible), server.node, stated)
            placer.reject(server.where, fault)
            return
        yield from visible[:count]


def _stage(name: Any) -> int | None:
    """Return the stage of a config of DeepSpeed that ms-swift brings; ``None`` for another file, or with offloading."""
    return int(name[-1]) if isinstance(name, str) and re.fullmatch("zero[0-3]", name) else None


def _is_megatron(config: Config) -> bool:
    """Return whether Megatron trains: by the program, or by sizes that only Megatron has."""
    if config.program:
        return "megatron" in config.program
    return any(config.under(keys.TRAIN).stated(key) for key in keys.TRAINING.values())


def _address(stated: Sequence[Address], number: int, port: int) -> Address | None:
    """Return the address of a server: that with its port if no other has it, else that of its turn."""
    alike = [address for address in stated if address.port == port]
    if len(alike) == 1:
        return alike[0]
    return stated[number] if number < len(stated) else None

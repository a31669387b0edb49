"""TRL: a trainer that accelerate or torchrun starts, a process for each device, and vLLM.

A process of the trainer is local rank r of its node, on the r-th device that its command sees. In the mode
``colocate``, engines are in these processes: tensor groups of consecutive ranks. In the mode ``server``, vLLM is a
command of its own, whose engines take the first devices that it sees. Asynchronous GRPO always has a server, and one
process without devices for rollouts.

Follows ``VLLMGeneration``, ``vllm_serve.py``, ``GRPOConfig.__post_init__``, ``AsyncGRPOTrainer`` (TRL f2cd577), and
``accelerate launch`` (`rankplan.dialects.launching.accelerate`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from rankplan import Faults, Model, Parallel, PlacementError, RankSet
from rankplan.sdk import Config, Device, Job, Key, Mask, NodeCommand, Placer, Sizes, Started, Taken, Where
from rankplan.trainers.trl import faults, keys
from rankplan.trainers.trl.commands import Server, Trainer, alone, server_of, trainer_of
from rankplan.trainers.trl.starting import server_command, trainer_command
from rankplan.trainers.trl.values import Values
from rankplan.trainers.trl.versions import Pin, pinned

ACTOR, ROLLOUT, ENV, IDLE = "actor", "rollout", "env", "server"
"""The components: the trainer, the engines, the rollouts of asynchronous GRPO, and a server that nobody uses."""
_SHARED = 2
"""Users of a device with an engine in the process of the trainer."""
_GENERATIONS = {"RLOO": 2}
"""``num_generations`` by default, where it is not 8."""
_NO_BATCH = ("OnlineDPO", "NashMD", "XPO", "AsyncGRPO")
"""Trainers whose batches have no groups of generations that processes divide."""
_SLOW = 60e9
"""The parameters of a model that a server loads for longer than a trainer waits by default."""
_LOCAL = ("", "0.0.0.0", "127.0.0.1", "localhost")


class Mode(Enum):
    """How a trainer generates."""

    TRANSFORMERS = "transformers"
    COLOCATE = "colocate"
    SERVER = "server"
    UNKNOWN = "unknown"


class TrlJob(Job):
    """The trainer of a job of TRL, its servers, and what they share."""

    finds_all = True

    def __init__(self, config: Config) -> None:
        self.values = Values(config)
        self.pin: Pin | None = pinned(config)
        self._reject_keys(config)
        trainers = [program for program in config.programs if not program.part]
        servers = [program for program in config.programs if program.part == "server"]
        self.trainer = self._read_trainer(config, trainers)
        self.servers = self._read_servers(config, servers)
        self.is_asynchronous = self.values.trainer == "AsyncGRPO"
        self.mode = self._read_mode(config)
        self._check_servers(config)
        # Of other trainers, the defaults are others: the coefficient of RLOO starts a reference model.
        self.states_memory = self.values.trainer == "GRPO"
        self.has_defaults = not self.values.unknown and not self.values.literals

    def _read_trainer(self, config: Config, programs: Sequence[Started]) -> Trainer:
        """Return the trainer, whose command may stand in the script once for each of its nodes."""
        if not programs:
            if not config.stated(keys.NUM_PROCESSES):
                config.faults.warn(config.place, faults.no_launcher())
            return alone(config, config.faults)
        chosen = next((program for program in programs if program.is_main), programs[-1])
        trainer = trainer_of(config, chosen, config.faults)
        others = [program for program in programs if program is not chosen]
        if others:
            self._check_other_nodes(config, trainer, others)
        return trainer

    def _check_other_nodes(self, config: Config, trainer: Trainer, others: Sequence[Started]) -> None:
        """Record commands of other nodes with the rank of this one; other trainers are a warning."""
        if trainer.processes.nodes < 2:
            config.faults.warn(others[0].where, faults.two_jobs(len(others) + 1))
            return
        ranks = {_rank(trainer)}
        for program in others:
            other = trainer_of(config.of(program), program, config.faults)
            rank = _rank(other)
            if rank is not None and rank in ranks and other.processes.rank is not None:
                config.faults.add(other.processes.rank.where, faults.rank_twice(rank))
            ranks.add(rank)

    def _read_servers(self, config: Config, programs: Sequence[Started]) -> list[Server]:
        return [server_of(config, program, self.trainer, config.faults) for program in programs]

    def _reject_keys(self, config: Config) -> None:
        """Record keys about vLLM that TRL does not have; versions before 1.0 ignore them."""
        pin = self.pin.text if self.pin is not None and self.pin.is_before_1 else None
        if self.values.has_own_flags:
            return
        for name in map(str, config.section):
            if name.startswith("vllm_") and name not in keys.OF_VLLM:
                fault = faults.unknown_key(name, keys.OF_VLLM, pin)
                if fault.warning:
                    config.faults.warn(config.named(name), fault)
                else:
                    config.faults.add(config.named(name), fault)

    def _read_mode(self, config: Config) -> Mode:
        """Return how the trainer generates: by its keys, or the default of the version that the repository pins."""
        values = self.values
        if self.is_asynchronous:
            return Mode.SERVER
        if values.unknown:
            config.faults.warn(config.place, faults.unknown_mode(config.program, values.unknown))
            return Mode.UNKNOWN
        if not values[keys.USE_VLLM]:
            return Mode.TRANSFORMERS
        mode = values[keys.MODE]
        if mode is not None:
            if mode in keys.MODES:
                return Mode(mode)
            config.faults.add(values.where(keys.MODE), faults.wrong_mode(mode))
            return Mode.UNKNOWN
        return self._default_mode(config)

    def _default_mode(self, config: Config) -> Mode:
        """Return the mode of a trainer that uses vLLM and does not state how."""
        at = self.values.where(keys.USE_VLLM)
        is_old = None if self.pin is None else self.pin.is_before_1
        if is_old and self.pin is not None:
            config.faults.warn(at, faults.server_by_pin(self.pin.text))
            return Mode.SERVER
        pin = None if self.pin is None or is_old is None else self.pin.text
        config.faults.warn(at, faults.default_mode(keys.COLOCATE, pin))
        return Mode.COLOCATE

    def _check_servers(self, config: Config) -> None:
        """Warn of a server that nobody uses, and of one that is missing; record ports that servers share."""
        if self.mode is Mode.SERVER and not self.servers and self._waits_here:
            config.faults.warn(self._server_at, faults.no_server(self._address))
        for server in self.servers:
            if self.mode is Mode.COLOCATE:
                reason = "vllm_mode is colocate"
                if not self.values.stated(keys.MODE):
                    reason += " by default, from TRL 1.0 on"
                config.faults.warn(server.program.where, faults.idle_server(reason))
            elif self.mode is Mode.TRANSFORMERS:
                config.faults.warn(server.program.where, faults.idle_server("use_vllm is not true"))
            elif self.mode is Mode.SERVER and not self.values.states_timeout:
                size = _params(server.model)
                if size >= _SLOW:
                    config.faults.warn(server.program.where, faults.short_timeout(f"{size / 1e9:.0f}B parameters"))
        ports: dict[tuple[int, int], Server] = {}
        for server in self.servers:
            if server.port is None:
                continue
            if (server.node, server.port) in ports:
                config.faults.add(server.port_at, faults.same_port(server.port, server.node))
            ports[server.node, server.port] = server

    @property
    def _server_at(self) -> Where:
        return self.values.where(keys.MODE, keys.USE_VLLM, keys.BASE_URL)

    @property
    def _waits_here(self) -> bool:
        """Whether the server is expected on the node of the trainer: no other host is stated."""
        url = self.values[keys.BASE_URL]
        if url is not None:
            return any(f"//{host}" in url for host in _LOCAL if host)
        return self.values[keys.HOST] in _LOCAL

    @property
    def _address(self) -> str:
        url = self.values[keys.BASE_URL]
        return url if url is not None else f"http://{self.values[keys.HOST]}:{self.values[keys.PORT]}"

    @property
    def _nodes(self) -> int:
        last = max([*self.trainer.nodes, *(server.node for server in self.servers)], default=0)
        spread = [server.tensor * server.data for server in self.servers if server.is_spread]
        return (
            last + 1 + sum(-(-count // self.usual_accelerators) for count in spread if count > self.usual_accelerators)
        )

    def commands(self, collector: Faults) -> Sequence[NodeCommand]:
        """Return the commands of the servers, and that of the trainer; see `Job.commands`."""
        name = self._server_name
        is_one = len({server.tensor for server in self.servers}) == 1
        if is_one and len(self.servers) > 1:
            collector.add(self.servers[1].program.where, faults.several_servers(len(self.servers)))
        names = [name] if is_one else [f"{name}_{number}" for number in range(len(self.servers))]
        commands = [server_command(*pair, collector) for pair in zip(self.servers, names, strict=False)]
        inside = [ROLLOUT] if self.mode is Mode.COLOCATE else []
        if self.is_asynchronous:
            inside.append(ENV)
        server = self.servers[0] if self.servers and self.mode is Mode.SERVER else None
        address = NodeCommand.address_of(names[0]) if server is not None else None
        commands.append(
            trainer_command(self.trainer, self.values, (ACTOR, *inside), collector, server=server, address=address)
        )
        return commands

    @property
    def _server_name(self) -> str:
        """The component of a server: one that the trainer uses, as far as is known, or another."""
        return ROLLOUT if self.mode in (Mode.SERVER, Mode.UNKNOWN) else IDLE

    def size(self) -> tuple[int, int]:
        """Return the nodes of the commands, each with 8 devices or with those that its commands name."""
        counts = [self.usual_accelerators]
        for mask in (self.trainer.mask, *(server.mask for server in self.servers)):
            counts += [device + 1 for device in mask.devices or ()]
        if self.trainer.processes.total is not None and self.trainer.processes.nodes:
            counts.append(self.trainer.processes.total // self.trainer.processes.nodes)
        counts += [server.tensor * server.data for server in self.servers if not server.is_spread]
        return self._nodes, max(counts)

    def place(self, placer: Placer) -> None:
        """Place ``actor``, ``rollout``, and ``env`` of an asynchronous trainer."""
        is_known = self.trainer.mask.is_known
        actor = list(self._devices_of_trainer(placer, ())) if is_known else []
        engines = self._engines(placer, actor)
        if not is_known:  # others than those of the servers
            actor = list(self._devices_of_trainer(placer, [device for engine in engines for device in engine.devices]))
        for number, engine in enumerate(engines):
            self._check_shared(placer, engine, actor, engines[:number])
        self._check_batch(placer, len(actor))
        if self.is_asynchronous and self.trainer.processes.fsdp_version == 2 and len(actor) > 1:
            placer.reject(self.trainer.processes.where, faults.asynchronous_ranks(len(actor)))
        if placer.faults:
            return
        is_shared = self.mode is Mode.COLOCATE
        share = placer.share(_SHARED) if is_shared else None
        at = self.trainer.processes.where
        taken = placer.devices(actor)
        placer.component(ACTOR, taken, at, share=share, facts=self._facts())
        if is_shared:
            self._place_colocated(placer, taken, actor, share)
        self._place_servers(placer, engines)
        if self.is_asynchronous:
            placer.without_accelerators(ENV, 1, at, RankSet(str(self.trainer.nodes[0])))

    def _facts(self) -> dict[str, object]:
        processes = self.trainer.processes
        return {"framework": processes.framework, "zero_stage": processes.zero_stage}

    def _place_colocated(self, placer: Placer, taken: Taken, actor: Sequence[Device], share: float | None) -> None:
        """Place the engines in the processes of the trainer."""
        tensor = self.values[keys.TENSOR]
        at = self.values.where(keys.TENSOR) if self.values.stated(keys.TENSOR) else self.trainer.processes.where
        if len(actor) % tensor:
            placer.reject(at, faults.undivided(tensor, len(actor)))
            return
        for engine in range(len(actor) // tensor):
            nodes = [device.node for device in actor[engine * tensor : (engine + 1) * tensor]]
            if nodes[0] != nodes[-1]:
                placer.reject(at, faults.torn_engine(engine, tensor, nodes[0], nodes[-1]))
                return
        sizes = Sizes(Parallel(tp=tensor), at)
        placer.component(ROLLOUT, taken, at, tensor, sizes=sizes, share=share, facts={"mode": keys.COLOCATE})

    def _place_servers(self, placer: Placer, engines: Sequence[_Engines]) -> None:
        """Place the engines of servers: together, as far as the trainer uses them."""
        name = self._server_name
        sizes = {engine.server.tensor for engine in engines}
        if len(sizes) == 1 and engines:
            devices = [device for engine in engines for device in engine.devices]
            self._place_engines(placer, name, engines[0].server, devices)
            return
        for number, engine in enumerate(engines):
            self._place_engines(placer, f"{name}_{number}", engine.server, engine.devices)

    def _place_engines(self, placer: Placer, name: str, server: Server, devices: Sequence[Device]) -> None:
        tensor = Parallel(tp=server.tensor)
        sizes = Sizes(tensor, server.where)
        facts = {"mode": keys.SERVER}
        placer.component(name, placer.devices(devices), server.where, server.tensor, sizes=sizes, facts=facts)

    def _engines(self, placer: Placer, actor: Sequence[Device]) -> list[_Engines]:
        """Return the servers with their devices; one whose mask is unknown has others than the commands before it."""
        engines: list[_Engines] = []
        used = list(actor)
        for server in self.servers:
            devices = list(self._devices_of_server(placer, server, used))
            engines.append(_Engines(server, devices))
            used += devices
        return engines

    def _devices_of_trainer(self, placer: Placer, used: Collection[Device]) -> Iterator[Device]:
        """Yield the device of each rank of the trainer; ``used`` are not among those of an unknown mask."""
        trainer = self.trainer
        at = trainer.processes.where
        for node in trainer.nodes:
            visible = _visible(placer, trainer.mask, node, "the trainer", at, used)
            if visible is None:
                return
            count = trainer.processes.on_node(len(visible))
            if trainer.processes.total is None and trainer.processes.nodes > 1 and not trainer.processes.each_node:
                placer.faults.warn(at, faults.half_idle(len(visible), trainer.processes.nodes))
            if count > len(visible):
                stated = trainer.mask.stated or "all of them"
                placer.reject(at, faults.more_than_visible("the trainer", count, len(visible), node, stated))
                return
            yield from visible[:count]

    def _devices_of_server(self, placer: Placer, server: Server, used: Collection[Device]) -> Iterator[Device]:
        """Yield the devices of the engines of a server, one engine after the other."""
        visible = _visible(placer, server.mask, server.node, "the server", server.program.where, used)
        if visible is None:
            return
        count = server.tensor * server.data
        if count > len(visible) and server.is_spread:
            core = placer.inventory.core
            free = [node for node in range(server.node, core.num_nodes) if node not in self.trainer.nodes]
            devices = [Device(node, number) for node in free for number in range(core.num_accelerators(node))]
            if len(devices) < count:
                placer.reject(server.where, faults.large_server(server.tensor, server.data, len(devices)))
            yield from devices[:count]
            return
        if count > len(visible):
            if server.mask.devices is None:
                fault = faults.large_server(server.tensor, server.data, len(visible))
            else:
                stated = server.mask.stated
                fault = faults.more_than_visible("the server", count, len(visible), server.node, stated)
            placer.reject(server.where, fault)
            return
        yield from visible[:count]

    def _check_shared(
        self, placer: Placer, engines: _Engines, actor: Sequence[Device], before: Sequence[_Engines]
    ) -> None:
        """Record the first device that a server and the trainer have, or the server and one before it."""
        at = engines.server.mask.where or engines.server.program.where
        shared = Device.first_shared([[device] for device in actor], engines.devices)
        if shared is not None:
            placer.reject(at, faults.device_twice(*shared.device, shared.holder))
        other = Device.first_shared([server.devices for server in before], engines.devices)
        if other is not None:
            placer.reject(at, faults.servers_share(*other.device))

    def _check_batch(self, placer: Placer, world: int) -> None:
        """Record a batch with parts of groups of generations (``GRPOConfig.__post_init__``)."""
        values = self.values
        batch_keys: list[Key[Any]] = [keys.BATCH, keys.ACCUMULATION, keys.STEPS_PER_GENERATION, keys.NUM_GENERATIONS]
        batch_keys.append(keys.GENERATION_BATCH)
        if values.trainer in _NO_BATCH or not world or not all(values.is_known(key) for key in batch_keys):
            return
        if self.trainer.program is None and self.trainer.processes.total is None:
            return  # a file alone: its processes are assumed
        generations = values[keys.NUM_GENERATIONS] or _GENERATIONS.get(values.trainer, 8)
        batch, terms = values[keys.GENERATION_BATCH], "generation_batch_size"
        if batch is None:
            steps = values[keys.STEPS_PER_GENERATION] or values[keys.ACCUMULATION]
            batch = values[keys.BATCH] * world * steps
            terms = f"{values[keys.BATCH]} x {world} processes x {steps} steps"
        if batch % generations:
            at = values.where(keys.NUM_GENERATIONS) if values.stated(keys.NUM_GENERATIONS) else values.where(keys.BATCH)
            each = batch // world
            fitting = [count for count in range(1, 2 * world + 1) if count * each % generations == 0]
            nearest = min(fitting, key=lambda count: abs(count - world), default=None)
            is_fixed = terms == "generation_batch_size"
            placer.reject(at, faults.wrong_batch(batch, terms, generations, None if is_fixed else nearest))


def _params(model: str | None) -> float:
    """Return the parameters of a model, 0 if it is not known by its name."""
    if model is None:
        return 0
    try:
        return Model.of(model).params
    except PlacementError:
        return 0


class _Engines(NamedTuple):
    """A server and its devices."""

    server: Server
    devices: list[Device]


def _rank(trainer: Trainer) -> int | None:
    """Return the number of the node of a command, ``None`` if it is unknown."""
    word = trainer.processes.rank
    text = "0" if word is None else word.text
    return int(text) if text is not None and text.isdecimal() else None


def _visible(
    placer: Placer, mask: Mask, node: int, what: str, at: Where, used: Collection[Device]
) -> list[Device] | None:
    """Return the devices of a node that a command sees; ``used`` are not among those of an unknown mask."""
    visible = placer.visible(mask, node, what, at)
    if visible is None or mask.is_known:
        return visible
    return [device for device in visible if device not in used]

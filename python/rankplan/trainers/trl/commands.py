"""The commands of a job of TRL: the trainer with its launcher, and servers of vLLM, each with its nodes and devices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count, pairwise
from typing import NamedTuple

from rankplan import Faults
from rankplan.sdk import Command, Config, Mask, Processes, Started, Where
from rankplan.trainers.trl import faults, keys
from rankplan.trainers.trl.shipped import CONFIGS

_MASK = "CUDA_VISIBLE_DEVICES"
_SWITCHES = ("multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "cpu", "tpu", "same_network")
_FLAGS = (
    *("num_processes", "num_machines", "machine_rank", "main_process_ip", "main_process_port", "gpu_ids"),
    *("rdzv_backend", "deepspeed_multinode_launcher", "zero_stage", "fsdp_version", "config_file", *_SWITCHES),
)
"""The flags of accelerate that `trl` passes on."""


class Trainer(NamedTuple):
    """The command of a trainer: its processes, its nodes in the order of their ranks, and the devices that it sees."""

    program: Started | None
    processes: Processes
    nodes: tuple[int, ...]
    mask: Mask
    is_step: bool = False
    """Whether ``srun`` starts it."""


class Server(NamedTuple):
    """The command of a server: ``data`` engines of ``tensor`` devices each, on a node."""

    program: Started
    node: int
    mask: Mask
    tensor: int
    data: int
    port: int | None
    """Its port, ``None`` if only a run knows it."""
    where: Where
    port_at: Where
    model: str | None
    is_spread: bool
    """Whether Ray spreads an engine over nodes."""


def trainer_of(config: Config, program: Started, collector: Faults) -> Trainer:
    """Return a trainer; its nodes are the first ones unless a step of Slurm states others."""
    processes = _processes(config, program, collector)
    step = Command(program, collector).step()
    nodes = tuple(range(processes.nodes))
    if step is not None:
        if step.nodes == 0 or processes.nodes == 0:
            collector.add(step.where, faults.no_nodes_left(program.name))
        elif step.nodes is not None and step.nodes != processes.nodes and processes.nodes > 1:
            collector.add(step.where, faults.unequal_step(step.nodes, processes.nodes))
        else:
            processes.check_node_ranks(step.nodes or 1, collector)
        if step.hosts:
            nodes = step.hosts[: max(processes.nodes, 1)]
    elif processes.nodes == 0:
        collector.add(processes.nodes_at, faults.no_nodes_left(program.name))
    mask = visible_to(program, config, collector)
    if processes.devices is not None:
        stated = ",".join(map(str, processes.devices))
        mask = Mask(processes.devices, f"gpu_ids: {stated}", processes.where)
    return Trainer(program, processes, nodes, mask, step is not None)


def _processes(config: Config, program: Started, collector: Faults) -> Processes:
    """Return what starts a trainer: accelerate for `trl`, else the launcher of its command."""
    command = Command(program, collector)
    if program.name.startswith("trl "):
        return command.accelerated(_flags(config, program, collector), CONFIGS)
    return command.processes() or Processes("python", where=program.where, nodes_at=program.where)


def _flags(config: Config, program: Started | None, collector: Faults) -> dict[str, Started.Word]:
    """Return the flags that `trl` passes to accelerate: keys that no config of the trainer has."""
    flags = {}
    for name in _FLAGS:
        value = config.section.get(name)
        if value is None:
            continue
        where = config.value_place(name)
        is_of_file = program is None or where.file != program.where.file
        if name in _SWITCHES and is_of_file:
            collector.add(config.named(name), faults.switch_in_file(name))
            continue
        flags[name] = Started.Word(str(value), where, str(value))
    named = config[keys.ACCELERATE_CONFIG]
    if named is not None:
        where = config.where(keys.ACCELERATE_CONFIG)
        is_known = named in CONFIGS or "/" in named or named.endswith((".yaml", ".yml", ".json"))
        if is_known or config.file_near(named) is not None:
            flags["config_file"] = Started.Word(named, where, named)
        else:
            collector.add(where, faults.unknown_config(named, tuple(CONFIGS)))
    return flags


def alone(config: Config, collector: Faults) -> Trainer:
    """Return the trainer of a YAML file without a command, as `trl grpo --config` starts it."""
    place = config.place
    flags = {"machine_rank": Started.Word("0", place, "0"), **_flags(config, None, collector)}
    program = Started(name="trl grpo", where=place, values=config.section)  # type: ignore[arg-type]  # no command has it
    processes = Command(program, collector).accelerated(flags, CONFIGS)
    return Trainer(None, processes, tuple(range(processes.nodes)), _mask_in_file(config) or Mask())


def server_of(config: Config, program: Started, trainer: Trainer, collector: Faults) -> Server:
    """Return a server on the first node, or on that of its step of Slurm: steps of a job take nodes of their own."""
    values = config.of(program)
    step = Command(program, collector).step()
    mask = visible_to(program, values, collector)
    node = 0
    if step is not None and step.hosts:
        node = step.hosts[0]
    elif step is not None and trainer.is_step and mask.devices is None:
        node = next(number for number in count() if number not in trainer.nodes)
    short = _short_sizes(program.arguments)
    tensor = short.get("-tp", values[keys.SERVER_TENSOR])
    data = short.get("-dp", values[keys.SERVER_DATA])
    return Server(
        program=program,
        node=node,
        mask=mask,
        tensor=tensor,
        data=data,
        port=_port(program, values),
        where=values.where(keys.SERVER_TENSOR, keys.SERVER_DATA) if _has_size(values) else program.where,
        port_at=values.where(keys.SERVER_PORT) if values.stated(keys.SERVER_PORT) else program.where,
        model=values[keys.SERVER_MODEL],
        is_spread=values[keys.SERVER_BACKEND] == "ray",
    )


def _port(program: Started, values: Config) -> int | None:
    is_stated = any((word.text or word.shown).partition("=")[0] == "--port" for word in program.arguments)
    return None if is_stated and not values.stated(keys.SERVER_PORT) else values[keys.SERVER_PORT]


def _has_size(values: Config) -> bool:
    return values.stated(keys.SERVER_TENSOR) or values.stated(keys.SERVER_DATA)


def _short_sizes(words: Sequence[Started.Word]) -> dict[str, int]:
    """Return the sizes in short flags of vLLM: ``-tp 4``."""
    sizes = {}
    for flag, value in pairwise(words):
        if flag.text in ("-tp", "-dp") and re.fullmatch("[1-9][0-9]{0,5}", value.text or ""):
            sizes[flag.text] = int(value.text or "1")
    return sizes


def visible_to(program: Started, config: Config, collector: Faults) -> Mask:
    """Return the devices that a command sees: ``env`` of its YAML sets them in place of those of its environment."""
    of_file = _mask_in_file(config)
    if of_file is not None:
        return of_file
    return Mask.seen_with(program.variables, collector)


def _mask_in_file(config: Config) -> Mask | None:
    environment = config.section.get("env")
    if not isinstance(environment, dict) or _MASK not in environment:
        return None
    mask = Mask.of(str(environment[_MASK]), config.inner("env").value_place(_MASK))
    return mask._replace(is_of_file=True)

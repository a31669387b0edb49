"""The commands of a job that ms-swift starts without Ray: the trainer, and servers of ``swift rollout``.

``NPROC_PER_NODE``, ``NNODES`` and ``NODE_RANK`` are flags of torchrun; with neither of the first two, one process
starts. ``ENV`` of the YAML that is the first word sets variables that the environment lacks. Follows ``cli_main``,
``use_torchrun`` and ``parse_yaml_args`` (`swift/cli/main.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from rankplan import Faults
from rankplan.sdk import Command, Config, Mask, Processes, Started, Where
from rankplan.trainers.ms_swift import keys

_OF_TORCHRUN = {"NPROC_PER_NODE": "nproc_per_node", "NNODES": "nnodes", "NODE_RANK": "node_rank"}
_STARTING = ("NPROC_PER_NODE", "NNODES")
"""Variables of which one makes ms-swift start torchrun."""
_MASKS = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
_ENVIRONMENT = "ENV"
"""The section of a YAML with variables."""
_LOCAL = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1", ""})


class Trainer(NamedTuple):
    """The command of the trainer: its processes, and the devices that it sees on each of its nodes."""

    processes: Processes
    mask: Mask
    has_launcher: bool = False
    """Whether a launcher stands before the program; otherwise ms-swift starts the processes itself."""


class Server(NamedTuple):
    """The command of a server: ``data`` engines of ``tensor`` devices each, on a node."""

    program: Started
    node: int
    mask: Mask
    tensor: int
    data: int
    port: int
    where: Where
    port_at: Where


class Address(NamedTuple):
    """The host and the port of a server, as the trainer states them."""

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether the server is on the node of the trainer."""
        return self.host in _LOCAL


def trainer_of(config: Config, program: Started | None, collector: Faults) -> Trainer:
    """Return the trainer of a command; without one, as the file alone starts it."""
    variables = _variables(config, program)
    command = None if program is None else Command(program, collector)
    processes = None if command is None else command.processes()
    has_launcher = processes is not None and processes.launcher != "python"
    if processes is None or not has_launcher:
        processes = _own_processes(config, program, variables, collector)
    step = None if command is None else command.step()
    if step is not None:
        processes.check_node_ranks(step.nodes or 1, collector)
    return Trainer(processes, Mask.seen_with(variables, collector, _MASKS), has_launcher)


def _own_processes(
    config: Config, program: Started | None, variables: Mapping[str, Started.Word], collector: Faults
) -> Processes:
    """Return the processes that ms-swift itself starts: those of the command of torchrun that it makes, or one."""
    where = config.place if program is None else program.where
    one = Processes("python", where=where, nodes_at=where)
    if not any(name in variables for name in _STARTING):
        return one
    words = [Started.Word("torchrun", where)]
    for name, flag in _OF_TORCHRUN.items():
        if name in variables:
            words += [Started.Word(f"--{flag}", variables[name].where), variables[name]]
    words.append(Started.Word("rlhf.py", where))
    made = Started(name="torchrun", where=where, values=config.section, launch=tuple(words))  # type: ignore[arg-type]
    return Command(made, collector).processes() or one


def server_of(config: Config, program: Started, node: int, collector: Faults) -> Server:
    """Return a server of a command on a node."""
    values = config.of(program)
    engine = values.under(keys.ROLLOUT)
    has_size = engine.stated(keys.TENSOR) or engine.stated(keys.DATA)
    return Server(
        program=program,
        node=node,
        mask=Mask.seen_with(_variables(values, program), collector, _MASKS),
        tensor=engine[keys.TENSOR],
        data=engine[keys.DATA],
        port=values[keys.SERVER_PORT],
        where=engine.where(keys.TENSOR, keys.DATA) if has_size else program.where,
        port_at=values.where(keys.SERVER_PORT) if values.stated(keys.SERVER_PORT) else program.where,
    )


def addresses(config: Config) -> list[Address]:
    """Return the servers that a trainer states, in their order: hosts with ports, or addresses of the web."""
    urls = [urlsplit(url) for url in _texts(config.raw(keys.URLS))]
    if urls:
        return [Address(url.hostname or "", _port(url.netloc.rpartition(":")[2])) for url in urls]
    hosts = _texts(config.raw(keys.HOSTS))
    ports = [_port(port) for port in _texts(config.raw(keys.PORTS))]
    last = len(ports) - 1
    return [
        Address(host, ports[min(number, last)] if ports else keys.DEFAULT_PORT) for number, host in enumerate(hosts)
    ]


def rank_of(processes: Processes) -> int | None:
    """Return the number of the node of a command, ``None`` if it is unknown."""
    text = "" if processes.rank is None else processes.rank.text or ""
    return int(text) if re.fullmatch("[0-9]{1,6}", text) else None


def _texts(value: object) -> list[str]:
    """Return the words of a flag with several: a list, or one text."""
    if value is None:
        return []
    items: Sequence[object] = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return [word for item in items for word in str(item).split()]


def _port(text: str) -> int:
    return int(text) if re.fullmatch("[0-9]{1,5}", text) else keys.DEFAULT_PORT


def _variables(config: Config, program: Started | None) -> Mapping[str, Started.Word]:
    """Return the variables of a command, and those of ``ENV`` that its environment lacks."""
    section = config.section.get(_ENVIRONMENT)
    own = {} if program is None else dict(program.variables)
    if not isinstance(section, dict):
        return own
    inner = config.inner(_ENVIRONMENT)
    for name, value in section.items():
        own.setdefault(str(name), Started.Word(str(value), inner.value_place(name), str(value)))
    return own

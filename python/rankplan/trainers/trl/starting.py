"""The commands of a job of TRL on the nodes of any plan: servers first, then the trainer, once on each of its nodes."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan import Faults
from rankplan.sdk import Command, NodeCommand
from rankplan.trainers.trl import faults, keys
from rankplan.trainers.trl.commands import Server, Trainer
from rankplan.trainers.trl.values import Values

_LOCAL = ("", "0.0.0.0", "127.0.0.1", "localhost")


def server_command(server: Server, component: str, collector: Faults) -> NodeCommand:
    """Return the command of a server, which ends with the job."""
    if server.is_spread:
        collector.add(server.where, faults.spread_server())
    if server.mask.is_of_file and server.mask.where is not None:
        collector.add(server.mask.where, faults.mask_of_file())
    return Command(server.program, collector).on_nodes([component], serves=True)


def trainer_command(
    trainer: Trainer,
    values: Values,
    components: Sequence[str],
    collector: Faults,
    *,
    server: Server | None,
    address: str | None,
) -> NodeCommand:
    """Return the command of the trainer, which starts its processes and those of ``components`` after the first one.

    ``address`` is the field for the address of the ``server`` that it uses.
    """
    if trainer.mask.is_of_file and trainer.mask.where is not None:
        collector.add(trainer.mask.where, faults.mask_of_file())
    flags: dict[str, str] = {}
    if server is not None and address is not None:
        if values.takes_flags:
            flags = _server_flags(values, server, address)
        else:
            _reject_fixed_host(trainer, values, server, collector)
    program = trainer.program
    if program is None:
        program = Command.without_script(values.place, "trl", arguments=("grpo", "--config", values.place.file or ""))
    command = Command(program, collector)
    return command.on_nodes(components[:1], trainer.processes, inside=components[1:], flags=flags)


def _server_flags(values: Values, server: Server, address: str) -> dict[str, str]:
    """Return the flags that say where the server is; a URL counts more than a host."""
    if values.trainer == "AsyncGRPO" or values.stated(keys.BASE_URL):
        port = keys.SERVER_PORT.default if server.port is None else server.port
        return {keys.BASE_URL.path: f"http://{address}:{port}"}
    return {keys.HOST.path: address}


def _reject_fixed_host(trainer: Trainer, values: Values, server: Server, collector: Faults) -> None:
    """Record a program that states the host of its server itself, or that has its server on another node."""
    host = values[keys.HOST]
    if values.stated(keys.BASE_URL) or host not in _LOCAL or server.node != trainer.nodes[0]:
        collector.add(values.where(keys.BASE_URL, keys.HOST), faults.fixed_host())

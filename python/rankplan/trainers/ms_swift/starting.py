"""The commands of a job without Ray on the nodes of any plan: the server first, then the trainer, on each of its nodes.

The variables by which ms-swift starts torchrun itself are those of the plan (``get_torchrun_args``).
"""

from __future__ import annotations

from collections.abc import Mapping

from rankplan import Faults
from rankplan.sdk import Command, Config, NodeCommand, Started
from rankplan.trainers.ms_swift import keys
from rankplan.trainers.ms_swift.commands import Server, Trainer

_OF_PLAN = {
    "NPROC_PER_NODE": "{node_processes}",
    "NNODES": "{nodes}",
    "NODE_RANK": "{node_rank}",
    "MASTER_ADDR": "{address}",
    "MASTER_PORT": "{port}",
}
"""The variables of ms-swift's own torchrun."""


def server_command(server: Server, component: str, collector: Faults) -> NodeCommand:
    """Return the command of a server, which ends with the job."""
    return Command(server.program, collector).on_nodes([component], serves=True)


def trainer_command(
    trainer: Trainer, program: Started, inside: list[str], flags: Mapping[str, str], collector: Faults
) -> NodeCommand:
    """Return the command of the trainer; components that are ``inside`` are in its processes.

    ``flags`` say where its server is.
    """
    command = Command(program, collector)
    if trainer.has_launcher:
        return command.on_nodes([keys.TRAIN], trainer.processes, inside=inside, flags=flags)
    variables = _OF_PLAN if trainer.processes.launcher == "torchrun" else {}
    return command.on_nodes([keys.TRAIN], inside=inside, flags=flags, variables=variables)


def server_flags(config: Config, server: Server, component: str, *, is_megatron: bool) -> dict[str, str]:
    """Return the flags of the trainer that say where its server is: its host, or its address if one is stated.

    The first process connects; with Megatron, the last one (``rlhf.py`` of its pipelines: ``is_last_rank``).
    """
    address = NodeCommand.address_of(component, used_by="all nodes" if is_megatron else "first node")
    if config.stated(keys.URLS):
        return {keys.URLS.path: f"http://{address}:{server.port}"}
    return {keys.HOSTS.path: address}


def program_of_file(config: Config, *, is_megatron: bool) -> Started:
    """Return the program that starts a YAML file without a command."""
    place = config.place
    return Command.without_script(place, "megatron" if is_megatron else "swift", arguments=("rlhf", place.file or ""))

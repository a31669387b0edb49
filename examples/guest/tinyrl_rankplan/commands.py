"""How TinyRL's learner starts: by accelerate or torchrun, on one node or on those of a step of Slurm."""

from __future__ import annotations

from rankplan import Faults, sdk

_ACCELERATE = "TINYRL_ACCELERATE"
"""The variable with the config that TinyRL passes to accelerate, in place of a launcher."""


def learner_program(config: sdk.Config) -> sdk.Started | None:
    """Return the program that is the learner; ``None`` for a config without a command."""
    return next((program for program in config.programs if program.is_main), None)


def learner_gpus(config: sdk.Config, gpus_per_node: int) -> int | None:
    """Return the GPUs of the learner on all nodes, one for each process; ``None`` if no launcher starts them."""
    processes = learner_processes(config)
    program = learner_program(config)
    if processes is None or program is None:
        return None
    mask = sdk.Mask.seen_with(program.variables, config.faults)
    visible = gpus_per_node if mask.devices is None else len(mask.devices)
    return processes.on_node(visible) * processes.nodes


def lacks_gpus(placer: sdk.Placer, program: sdk.Started | None, nodes: int) -> bool:
    """Return whether the learner's command names a GPU that a node lacks; the placer records the fault."""
    if program is None:
        return False
    mask = sdk.Mask.seen_with(program.variables, placer.faults)
    for node in range(nodes):
        visible: list[sdk.Device] | None = placer.visible(mask, node, "the learner", program.where)
        if visible is None:
            return True
    return False


def learner_processes(config: sdk.Config) -> sdk.Processes | None:
    """Return the processes of the learner; ``None`` if no command starts it with a launcher."""
    program = learner_program(config)
    if program is None:
        return None
    command = sdk.Command(program, config.faults)
    processes = _launched(command)
    step = command.step()
    if processes is not None and step is not None:
        processes.check_node_ranks(step.nodes or 1, config.faults)
    return processes


def learner_commands(program: sdk.Started | None, collector: Faults) -> list[sdk.NodeCommand]:
    """Return the command that starts the learner on each node; the plan decides its nodes, processes and GPUs."""
    if program is None:
        return []
    command = sdk.Command(program, collector)
    return [command.on_nodes(["learner"], command.processes())]


def _launched(command: sdk.Command) -> sdk.Processes | None:
    file: sdk.Started.Word | None = command.program.variables.get(_ACCELERATE)
    if file is None:
        return command.processes()
    return command.accelerated({"config_file": file})

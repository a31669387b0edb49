"""Plans as launch scripts of TRL: a command of the server, and one of the trainer, each with its nodes and its mask.

TRL's programs place by their commands alone, so that a plan is a script rather than a config. The model and the data
are the user's: the script names the variable ``MODEL``.
"""

from __future__ import annotations

from typing import NamedTuple

from rankplan import Component, Inventory, Plan
from rankplan.sdk import Mask
from rankplan.trainers.trl import keys
from rankplan.trainers.trl.job import ACTOR, ROLLOUT

_MODEL = '"${MODEL:?}"'


class _Command(NamedTuple):
    """The nodes of a command, and the devices that it sees on each of them; ``None``: all."""

    nodes: list[int]
    mask: list[int] | None


def written(planned: Plan) -> tuple[str, dict[str, str]]:
    """Return a script for the components that TRL can express, and why it cannot express the others."""
    only = f"TRL only has {ACTOR} and {ROLLOUT}"
    reasons = dict.fromkeys((name for name in planned if name not in (ACTOR, ROLLOUT)), only)
    if ACTOR not in planned:
        return "", reasons | dict.fromkeys((name for name in planned if name == ROLLOUT), "TRL has no server alone")
    actor, rollout = planned[ACTOR], planned.get(ROLLOUT)
    reason = _reason_of_actor(actor) or _reason_of_mask(actor, planned.inventory)
    if reason is not None:
        return "", dict.fromkeys(planned, "TRL has no server alone") | reasons | {ACTOR: reason}
    trainer = _command(actor, planned.inventory)
    if rollout is None:
        return _script(planned.inventory, trainer, len(actor), None, []), reasons
    tensor = rollout[0].num_accelerators
    if _devices(rollout) == _devices(actor):
        flags = ["--use_vllm true", f"--vllm_mode {keys.COLOCATE}", f"--vllm_tensor_parallel_size {tensor}"]
        return _script(planned.inventory, trainer, len(actor), None, flags), reasons
    reason = _reason_of_server(rollout) or _reason_of_mask(rollout, planned.inventory)
    if reason is not None:
        return _script(planned.inventory, trainer, len(actor), None, []), reasons | {ROLLOUT: reason}
    server = _Server(_command(rollout, planned.inventory), tensor, len(rollout))
    return _script(planned.inventory, trainer, len(actor), server, []), reasons


class _Server(NamedTuple):
    """The command of a server, with the size and the number of its engines."""

    command: _Command
    tensor: int
    data: int


def _reason_of_actor(actor: Component) -> str | None:
    """Return why TRL cannot express a trainer, ``None`` if it can."""
    if {row.num_accelerators for row in actor} != {1}:
        return "its processes do not have one accelerator each"
    if len({tuple(devices) for devices in _by_node(actor).values()}) > 1:
        return "its nodes have other accelerators each, and TRL has one mask for all of them"
    return None


def _reason_of_server(rollout: Component) -> str | None:
    """Return why TRL cannot express engines that are not in the processes of the trainer, ``None`` if it can."""
    if {row.num_accelerators for row in rollout} != {rollout[0].num_accelerators} or not rollout[0].num_accelerators:
        return "its processes have different numbers of accelerators"
    if len(_by_node(rollout)) > 1:
        return "a server of TRL is on one node"
    return None


def _reason_of_mask(component: Component, inventory: Inventory) -> str | None:
    """Return why the mask of a command does not show its devices, ``None`` if it does or if there is none."""
    if _command(component, inventory).mask is None:
        return None
    others = sorted({row.accelerator_type for row in component if not Mask.shows(row.accelerator_type)})
    return f"CUDA_VISIBLE_DEVICES does not show devices of type {', '.join(others)}" if others else None


def _devices(component: Component) -> list[tuple[int, int]]:
    return [device for row in component for device in row.devices]


def _by_node(component: Component) -> dict[int, list[int]]:
    """Return the devices of each node, in the order of the ranks."""
    by_node: dict[int, list[int]] = {}
    for node, device in _devices(component):
        by_node.setdefault(node, []).append(device)
    return by_node


def _command(component: Component, inventory: Inventory) -> _Command:
    by_node = _by_node(component)
    devices = next(iter(by_node.values()))
    is_all = all(inventory.node(node).num_accelerators == len(devices) for node in by_node)
    return _Command(list(by_node), None if is_all and devices == sorted(devices) else devices)


def _script(inventory: Inventory, trainer: _Command, processes: int, server: _Server | None, flags: list[str]) -> str:
    """Return the text of a script: on one node, or with a step of Slurm for each command."""
    used = {*trainer.nodes, *(server.command.nodes if server is not None else ())}
    steps = max(used) > 0
    lines = ["#!/bin/bash"]
    if steps:
        lines += [f"#SBATCH --nodes={inventory.num_nodes}", 'N=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))']
    if server is not None:
        sizes = f"--tensor_parallel_size {server.tensor} --data_parallel_size {server.data}"
        words = f"trl vllm-serve --model {_MODEL} {sizes}"
        lines.append(f"{_before(server.command, steps=steps)}{words} &")
        flags = ["--use_vllm true", f"--vllm_mode {keys.SERVER}"]
        if steps:
            flags.append(f"--vllm_server_host ${{N[{server.command.nodes[0]}]}}")
    lines.append(_before(trainer, steps=steps) + _trainer(trainer, processes, flags))
    return "\n".join([*lines, ""])


def _before(command: _Command, *, steps: bool) -> str:
    """Return the words before a command: its mask, and its step."""
    mask = "" if command.mask is None else f"CUDA_VISIBLE_DEVICES={','.join(map(str, command.mask))} "
    if not steps:
        return mask
    hosts = ",".join(f"${{N[{node}]}}" for node in command.nodes)
    count = len(command.nodes)
    return f"{mask}srun --overlap --nodes={count} --ntasks={count} --nodelist={hosts} "


def _trainer(trainer: _Command, processes: int, flags: list[str]) -> str:
    """Return the command of the trainer; one on several nodes gets its number from Slurm."""
    nodes = len(trainer.nodes)
    words = ["accelerate launch"]
    if processes > 1:
        words.append("--multi_gpu")
    words.append(f"--num_processes {processes}")
    if nodes > 1:
        words.append(f"--num_machines {nodes} --machine_rank \\$SLURM_PROCID")
        words.append(f"--main_process_ip ${{N[{trainer.nodes[0]}]}}")
    words += ["-m trl.scripts.grpo", f"--model_name_or_path {_MODEL}", *flags]
    text = " ".join(words)
    if nodes == 1:
        return text
    inner = text.replace(_MODEL, _MODEL.replace('"', '\\"'))
    return f'bash -c "{inner}"'

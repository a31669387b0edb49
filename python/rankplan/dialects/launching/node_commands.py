"""The command of a program as it starts on the nodes of any plan: with its own words, and with fields for its place.

Flags that state nodes, processes or devices give way to those of the plan. The rendezvous is always static, so that the
node with rank i is node i of the component: with ``c10d``, who joins first has rank 0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from rankplan.dialects.launching import accelerate, faults
from rankplan.dialects.launching.flags import flags_in
from rankplan.dialects.launching.launcher import TORCHRUN
from rankplan.dialects.launching.processes import Processes
from rankplan.dialects.launching.steps import words_of_srun
from rankplan.environment import reserved_variables
from rankplan.errors import Faults
from rankplan.plans.node_command import ADDRESS, NODE_PROCESSES, NODE_RANK, NODES, PORT, PROCESSES, NodeCommand
from rankplan.read.text.started import CommandWord, Started

_ACCELERATE = (
    *("--num_machines", NODES, "--num_processes", PROCESSES, "--machine_rank", NODE_RANK),
    *("--main_process_ip", ADDRESS, "--main_process_port", PORT),
)
_OF_ACCELERATE = frozenset(
    {
        *("num_machines", "num_processes", "machine_rank", "main_process_ip", "main_process_port"),
        *("gpu_ids", "rdzv_backend", "same_network", "deepspeed_hostfile", "deepspeed_multinode_launcher"),
    }
)
"""The flags of accelerate that the plan decides."""
_TORCHRUN = (
    *("--nnodes", NODES, "--nproc-per-node", NODE_PROCESSES, "--node-rank", NODE_RANK),
    *("--master-addr", ADDRESS, "--master-port", PORT),
)
_OF_TORCHRUN = frozenset(
    {
        *("nnodes", "nproc_per_node", "node_rank", "master_addr", "master_port"),
        *("rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "standalone"),
    }
)
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL")
NO_FLAGS: Mapping[str, str] = MappingProxyType({})


class Parts(NamedTuple):
    """The words of a command: those up to its launcher, the flags of the launcher, and the program with its own."""

    before: Sequence[CommandWord]
    flags: Sequence[CommandWord]
    program: Sequence[CommandWord]
    placement: Sequence[str]
    """What states the place of the processes, after the words before the flags."""


def parts_of(program: Started, processes: Processes | None) -> Parts:
    """Return the words of a command, without those of ``srun`` and without flags that the plan decides."""
    launch = _without_srun(program.launch)
    names = [(word.text or "").rpartition("/")[2] for word in launch]
    if processes is None or processes.launcher == "python":
        return Parts(launch, (), program.arguments, ())
    if names[-1] == "trl":
        command, *arguments = program.arguments
        left = _without(arguments, _OF_ACCELERATE, accelerate.SWITCHES)
        return Parts((*launch, command), (), left, _of_accelerate(processes, arguments))
    if processes.launcher == "accelerate":
        position = len(names) - 1 - names[::-1].index("accelerate") + 1
        stated = launch[position + 1 : -1]
        flags = _without(stated, _OF_ACCELERATE, accelerate.SWITCHES)
        own = (launch[-1], *program.arguments)
        return Parts(launch[: position + 1], flags, own, _of_accelerate(processes, stated))
    position = max(index for index, name in enumerate(names) if name in TORCHRUN)
    flags = _without(launch[position + 1 : -1], _OF_TORCHRUN, ("standalone",))
    return Parts(launch[: position + 1], flags, (launch[-1], *program.arguments), _TORCHRUN)


def words_of(parts: Parts, flags: Mapping[str, str], collector: Faults) -> list[str]:
    """Return the words of a command, with other values for these flags of the program.

    Words that only a run knows are faults.
    """
    own = _without(parts.program, flags)
    words = [*_texts(parts.before, collector), *parts.placement, *_texts(parts.flags, collector)]
    words += _texts(own, collector)
    for name, value in flags.items():
        words += (f"--{name}", value)
    return words


def _of_accelerate(processes: Processes, stated: Sequence[CommandWord]) -> Sequence[str]:
    """Return the flags of accelerate, also those in place of what its file states of devices and hosts."""
    words = list(_ACCELERATE)
    if processes.devices is not None or "gpu_ids" in flags_in(stated):
        words += ("--gpu_ids", "all")
    if processes.framework == "deepspeed":
        words += ("--deepspeed_multinode_launcher", "standard")
    return words


def _without_srun(words: Sequence[CommandWord]) -> Sequence[CommandWord]:
    """Return the words of a command after those of ``srun``."""
    for position, word in enumerate(words):
        if (word.text or "").rpartition("/")[2] == "srun":
            return words[position + len(words_of_srun(words[position:])) :]
    return words


def _without(words: Sequence[CommandWord], names: Collection[str], switches: Collection[str] = ()) -> list[CommandWord]:
    """Return words without the flags of these names and their values."""
    left: list[CommandWord] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        name, equals, _ = (word.text or word.shown).partition("=")
        flag = name[2:].replace("-", "_") if name.startswith("--") else ""
        if flag not in names:
            left.append(word)
        elif not equals and flag not in switches and not _is_flag(words, position):
            position += 1
    return left


def _is_flag(words: Sequence[CommandWord], position: int) -> bool:
    return position >= len(words) or (words[position].text or "").startswith("--")


def _texts(words: Sequence[CommandWord], collector: Faults) -> Iterator[str]:
    for word in words:
        if word.text is None:
            collector.add(word.where, faults.unknown_word(word.shown, word.variable))
        else:
            yield NodeCommand.literal(word.text)


def variables_of(program: Started, others: Collection[str], collector: Faults) -> Iterator[tuple[str, str]]:
    """Yield the variables that the script sets for a program, but for ``others``, those of the plan and of Slurm."""
    for name, word in program.variables.items():
        if name in reserved_variables() or name in others or name.startswith("SLURM_"):
            continue
        if word.text is None or _SECRET.search(name):
            collector.warn(word.where, faults.variable_left_out(name, is_known=word.text is not None))
        else:
            yield name, NodeCommand.literal(word.text)

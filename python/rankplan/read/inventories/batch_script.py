"""The nodes that a batch script for Slurm asks for: its ``#SBATCH`` lines, component by component of the job."""

from __future__ import annotations

import os
import re
from typing import Any

from rankplan._core import MAX_LOCAL, MAX_NODES
from rankplan.accelerators import TYPES
from rankplan.errors import Diagnostic, PlacementError
from rankplan.files import beginning, read_text
from rankplan.read.inventories.topology_files import hostlist
from rankplan.read.text.places import Place
from rankplan.read.text.sbatch import SbatchOption, sbatch_options
from rankplan.words import must_be

_MARK = re.compile(rb"^#SBATCH\s+(?:--[a-z]|-[A-Za-z]|hetjob|packjob)", re.MULTILINE)
_PER_NODE = ("--gpus-per-node", "--gres")
_LARGEST = 4 << 20
_ACCELERATORS = f"a number of accelerators up to {MAX_LOCAL}"
_TASKS = ("--ntasks-per-node", "--ntasks")
"""Numbers of tasks; the first one that is stated counts."""
BY_NAME = {"npu": "NPU", "hpu": "HPU", "neuron": "NEURON", "tpu": "TPU"}
"""Types of accelerators by the usual names of a GRES; any other GRES is no accelerator."""


class _Part:
    """A component of the job: its options, each with its line."""

    def __init__(self) -> None:
        self.options: dict[str, tuple[int, str, SbatchOption]] = {}

    def value(self, option: str) -> str:
        """Return the value of an option; empty if it is not stated."""
        return self.options[option][2].value if option in self.options else ""


def read_batch_script(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return an inventory with a node for each node that a batch script asks for; ``None`` for any other file.

    ``--nodes`` counts them (without it, ``--nodelist`` names them), ``--gpus-per-node`` or ``--gres`` their
    accelerators; ``--gpus``, and ``--gpus-per-task`` times the tasks, are divided evenly. Raises `PlacementError` with
    every invalid number, ``OSError`` if the file cannot be read.
    """
    name, content = os.fspath(path), beginning(path, _LARGEST + 1)
    if len(content) > _LARGEST or _MARK.search(content) is None:
        return None
    faults: list[Diagnostic] = []
    entries: list[dict[str, Any]] = []
    first = 0
    parts = _parts(read_text(path))
    for part in parts:
        try:
            count, hosts = _nodes(part, name)
            accelerators = _accelerators(part, count, name)
        except PlacementError as error:
            faults += error.diagnostics
            continue
        if first + count > MAX_NODES:
            faults.append(_fault(part, "--nodes", f"at most {MAX_NODES:,} nodes", name))
            break
        if hosts:
            entries += ({"ranks": first + at, **accelerators, "hostname": host} for at, host in enumerate(hosts))
        else:
            entries.append({"ranks": f"{first}-{first + count - 1}", **accelerators})
        first += count
    if not faults and not any(one["accelerators"] for one in entries) and "--exclusive" in parts[0].options:
        message = "the script takes whole nodes, and does not say how many accelerators they have"
        help = "add `#SBATCH --gpus-per-node=8`, or pass the nodes with --nodes"
        faults.append(_located(parts[0], "--exclusive", "invalid-inventory", message, help, name))
    if faults:
        raise PlacementError(faults)
    return {"nodes": entries}


def _parts(text: str) -> list[_Part]:
    """Return the components of a job. Slurm reads options up to the first command; the last one counts."""
    parts = [_Part()]
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            break
        for option in sbatch_options(line):
            if option.name == "hetjob":
                parts.append(_Part())
            parts[-1].options[option.name] = number, line, option
    return parts


def _nodes(part: _Part, file: str) -> tuple[int, list[str]]:
    """Return the number of nodes, and their names if the script names exactly them."""
    hosts = hostlist(part.value("--nodelist")) if "--nodelist" in part.options else []
    if "--nodes" not in part.options:
        return (len(hosts), hosts) if hosts else (1, [])
    text = part.value("--nodes")
    found = re.fullmatch(r"([1-9][0-9]{0,8})(?:-\1)?", text)
    if found is None:
        raise PlacementError([_fault(part, "--nodes", "a number of nodes", file)])
    count = int(found[1])
    return count, hosts if len(hosts) == count else []


def _accelerators(part: _Part, count: int, file: str) -> dict[str, Any]:
    """Return the type and the number of the accelerators of a node."""
    for option in _PER_NODE:
        stated = re.sub(r"\([^)]*\)", "", part.value(option))
        resources = [_gres(text, option) for text in stated.split(",") if text]
        accelerators = [resource for resource in resources if resource is not None]
        if len({kind for kind, _ in accelerators}) > 1:
            raise PlacementError([_fault(part, option, "accelerators of one type", file)])
        if accelerators:
            counts = [_counted(part, option, number, file) for _, number in accelerators]
            return _entry(part, option, sum(counts), accelerators[0][0], file)
    if "--gpus" in part.options:
        return _of_job(part, "--gpus", 1, count, file)
    if "--gpus-per-task" not in part.options:
        return {"accelerators": 0}
    tasks = next((option for option in _TASKS if option in part.options), None)
    times = count if tasks is None else _counted(part, tasks, part.value(tasks), file)
    return _of_job(part, "--gpus-per-task", times, 1 if tasks == "--ntasks-per-node" else count, file)


def _of_job(part: _Part, option: str, times: int, nodes: int, file: str) -> dict[str, Any]:
    """Return the accelerators of a node, if an option states so many, ``times``, for this number of nodes."""
    numbers = [text.rpartition(":")[2] for text in part.value(option).split(",")]
    return _entry(part, option, _divided(part, option, numbers, times, nodes, file), None, file)


def _gres(text: str, option: str) -> tuple[str | None, str] | None:
    """Return the type of accelerators that a GRES names, ``None`` for GPUs, and how many; ``None`` for any other."""
    words = text.removeprefix("gres/").removeprefix("gres:").split(":")
    name = "gpu" if option == "--gpus-per-node" else words.pop(0)
    kind = None if name == "gpu" else BY_NAME.get(name, name if name in TYPES else "")
    last = words[-1] if words else ""
    return None if kind == "" else (kind, last if last[:1].isdigit() or option == "--gpus-per-node" else "1")


def _divided(part: _Part, option: str, numbers: list[str], times: int, nodes: int, file: str) -> int:
    """Return how many of the accelerators of a job each of its nodes has."""
    total = sum(_counted(part, option, one, file) for one in numbers) * times
    if total % nodes:
        allowed = (
            f"a multiple of {nodes} nodes"
            if times == 1
            else f"a number that {nodes} nodes with {times} tasks divide evenly"
        )
        raise PlacementError([_fault(part, option, allowed, file)])
    return total // nodes


def _counted(part: _Part, option: str, number: str, file: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", number):
        allowed = "a number of tasks" if option in _TASKS else _ACCELERATORS
        raise PlacementError([_fault(part, option, allowed, file)])
    return int(number)


def _entry(part: _Part, option: str, number: int, kind: str | None, file: str) -> dict[str, Any]:
    if number > MAX_LOCAL:
        raise PlacementError([_fault(part, option, _ACCELERATORS, file)])
    return {"accelerators": number, **({} if kind is None or not number else {"accelerator_type": kind})}


def _fault(part: _Part, option: str, allowed: str, file: str) -> Diagnostic:
    help = "write a number instead of a variable or a range, or pass --nodes"
    fault = must_be(f"`{option}`", part.value(option) if option in part.options else None, allowed, help)
    return _located(part, option, fault.code, fault.message, help, file)


def _located(part: _Part, option: str, code: str, message: str, help: str, file: str) -> Diagnostic:
    number, line, found = part.options.get(option, (1, "", None))
    start, end = (0, 0) if found is None else (found.at, found.end)
    return Place(file, number, start, end, line).of(Diagnostic(code, message, help))

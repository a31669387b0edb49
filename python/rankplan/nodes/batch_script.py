"""The nodes that a batch script for Slurm asks for: its ``#SBATCH`` lines, component by component of the job."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from rankplan._core import MAX_LOCAL, MAX_NODES
from rankplan.accelerators import TYPES
from rankplan.config.text.files import read_whole
from rankplan.config.text.places import Place
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.topology.files import hostlist
from rankplan.words import must_be

_OPTION = re.compile(r"#SBATCH\s+(hetjob\b|packjob\b|--[A-Za-z-]+|-[A-Za-z])[\s=]*([^\s#]*)")
_MARK = re.compile(rb"^#SBATCH\s+(?:--[a-z]|-[A-Za-z]|hetjob|packjob)", re.MULTILINE)
_LONG = {"-N": "--nodes", "-G": "--gpus", "-w": "--nodelist", "packjob": "hetjob"}
_PER_NODE = ("--gpus-per-node", "--gres")
_LARGEST = 4 << 20
_BY_NAME = {"npu": "NPU", "hpu": "HPU", "neuron": "NEURON", "tpu": "TPU"}
"""Types of accelerators by the usual names of a GRES; any other GRES is no accelerator."""


class _Part:
    """A component of the job: its options, each with its line."""

    def __init__(self) -> None:
        self.options: dict[str, tuple[int, str, str]] = {}


def read_batch_script(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return an inventory with a node for each node that a batch script asks for; ``None`` for any other file.

    ``--nodes`` counts them (without it, ``--nodelist`` names them), ``--gpus-per-node`` or ``--gres`` their
    accelerators; ``--gpus`` is divided evenly. Raises `PlacementError` with every number that is none, ``OSError`` if
    the file cannot be read.
    """
    if not Path(path).is_file():
        return None  # a pipe can be read only once
    name = os.fspath(path)
    content = read_whole(path, 1 << 30) if Path(path).stat().st_size <= _LARGEST else b""
    if _MARK.search(content) is None:
        return None
    faults: list[Diagnostic] = []
    entries: list[dict[str, Any]] = []
    first = 0
    parts = _parts(content.decode(errors="replace"))
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
        found = _OPTION.match(line)
        if found is None:
            continue
        option = _LONG.get(found[1], found[1])
        if option == "hetjob":
            parts.append(_Part())
        parts[-1].options[option] = number, found[2].strip("\"'"), line
    return parts


def _nodes(part: _Part, file: str) -> tuple[int, list[str]]:
    """Return the number of nodes, and their names if the script names exactly them."""
    hosts = hostlist(part.options["--nodelist"][1]) if "--nodelist" in part.options else []
    if "--nodes" not in part.options:
        return (len(hosts), hosts) if hosts else (1, [])
    text = part.options["--nodes"][1]
    found = re.fullmatch(r"([1-9][0-9]{0,8})(?:-\1)?", text)
    if found is None:
        raise PlacementError([_fault(part, "--nodes", "a number of nodes", file)])
    count = int(found[1])
    return count, hosts if len(hosts) == count else []


def _accelerators(part: _Part, count: int, file: str) -> dict[str, Any]:
    """Return the type and the number of the accelerators of a node."""
    for option in _PER_NODE:
        stated = re.sub(r"\([^)]*\)", "", part.options[option][1]) if option in part.options else ""
        for gres in filter(None, stated.split(",")):
            words = gres.removeprefix("gres/").removeprefix("gres:").split(":")
            name = "gpu" if option == "--gpus-per-node" else words.pop(0)
            kind = None if name == "gpu" else _BY_NAME.get(name, name if name in TYPES else "")
            if kind == "":
                continue
            last = words[-1] if words else ""
            number = last if last[:1].isdigit() or option == "--gpus-per-node" else "1"
            return _counted(part, option, number, kind, file)
    if "--gpus" in part.options:
        total = part.options["--gpus"][1].rpartition(":")[2]
        if total.isdigit() and int(total) % count == 0:
            return _counted(part, "--gpus", str(int(total) // count), None, file)
        raise PlacementError([_fault(part, "--gpus", f"a multiple of {count} nodes", file)])
    return {"accelerators": 0}


def _counted(part: _Part, option: str, number: str, kind: str | None, file: str) -> dict[str, Any]:
    if not re.fullmatch("[0-9]{1,6}", number) or int(number) > MAX_LOCAL:
        raise PlacementError([_fault(part, option, f"a number of accelerators up to {MAX_LOCAL}", file)])
    known = {} if kind is None or not int(number) else {"accelerator_type": kind}
    return {"accelerators": int(number), **known}


def _fault(part: _Part, option: str, allowed: str, file: str) -> Diagnostic:
    help = "write a number instead of a variable or a range, or pass --nodes"
    fault = must_be(f"`{option}`", part.options[option][1] if option in part.options else None, allowed, help)
    return _located(part, option, fault.code, fault.message, help, file)


def _located(part: _Part, option: str, code: str, message: str, help: str, file: str) -> Diagnostic:
    number, text, line = part.options.get(option, (1, "", ""))
    word = text if text and text in line else option
    start = max(line.find(word), 0)
    return Place(file, number, start, start + len(word), line).of(Diagnostic(code, message, help))

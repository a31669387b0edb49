"""The launcher of a program: the last one among the words of its command that starts processes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rankplan.dialects.launching import accelerate, faults, torchrun
from rankplan.dialects.launching.flags import Flags
from rankplan.dialects.launching.processes import Processes
from rankplan.errors import Faults, PlacementError, Where
from rankplan.read.text.nearby import nearest_file
from rankplan.read.text.reader import Reader
from rankplan.read.text.started import CommandWord, Started

TORCHRUN = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch"})
"""The commands of torchrun."""
_PYTHON = re.compile(r"python[0-9.]*")
NO_FILES: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


def processes_of(program: Started, collector: Faults) -> Processes | None:
    """Return the processes that the launcher of a program starts, ``None`` if its command has no launcher."""
    words = program.launch
    names = [(word.text or "").rpartition("/")[2] for word in words]
    for position in range(len(names) - 1, -1, -1):
        following = words[position + 1 :]
        if names[position] == "accelerate" and names[position + 1 : position + 2] == ["launch"]:
            return accelerated(accelerate.launch_flags(following[1:-1]), program, collector, words[position].where)
        if names[position] in TORCHRUN:
            return torchrun.processes(torchrun.launch_flags(following[:-1]), collector, words[position].where)
    if any(_PYTHON.fullmatch(name) for name in names):
        return torchrun.one_process(program.where)
    return None


def accelerated(
    flags: Flags, program: Started, collector: Faults, where: Where, brought: Mapping[str, Mapping[str, Any]] = NO_FILES
) -> Processes:
    """Return the processes that accelerate starts with these flags, one of which may name its file.

    ``where`` is the place of the command. ``brought`` are the files that a system brings itself, by their names.
    """
    word = flags.get("config_file")
    if word is None:
        return accelerate.processes(flags, None, collector, where)
    file = None if word.text is None else _file(word, program, collector, brought)
    return accelerate.processes(flags, file, collector, where, lacks_file=file is None)


def _file(
    word: CommandWord, program: Started, collector: Faults, brought: Mapping[str, Mapping[str, Any]]
) -> Reader | None:
    """Return the file of accelerate that a flag names; one that is missing is a warning."""
    name = word.text or ""
    path = nearest_file(name, program.where.file or "", program.folder)
    if path is None and name in brought:
        return Reader(brought[name]).reporting(collector)
    if path is None:
        collector.warn(word.where, faults.no_launcher_file(name))
        return None
    try:
        return Reader.load(str(path)).reporting(collector)
    except PlacementError as error:
        for fault in error.diagnostics:
            collector.record((), fault)
        return None

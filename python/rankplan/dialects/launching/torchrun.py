"""``torchrun``, and ``python``: how many processes start on a node.

``--nproc_per_node`` is a number, or as many as the devices that a node shows. Follows ``torch.distributed.run`` of
PyTorch 2.7 (``get_args_parser``, ``determine_local_world_size``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rankplan.dialects.launching import faults
from rankplan.dialects.launching.flags import Flags, flags_in
from rankplan.dialects.launching.processes import Processes
from rankplan.errors import Faults, Where
from rankplan.read.text.started import CommandWord
from rankplan.words import must_be

_SWITCHES = frozenset({"standalone", "module", "no_python", "run_path", "use_env"})
_DEVICES = ("gpu", "auto")
"""As many processes as the devices that a node shows."""


def launch_flags(words: Sequence[CommandWord]) -> Flags:
    """Return the flags between ``torchrun`` and the program."""
    return flags_in(words, _SWITCHES, {"-m": "--module"})


def processes(flags: Flags, collector: Faults, where: Where) -> Processes:
    """Return the processes that torchrun starts with these flags; ``where`` is the place of the command."""
    nodes = _nodes(flags, collector)
    word = flags.get("nproc_per_node")
    each = None if word is not None and word.text in _DEVICES else _number(flags, "nproc_per_node", collector, 1)
    backend = flags.get("rdzv_backend")
    return Processes(
        launcher="torchrun",
        nodes=nodes,
        total=None if each is None else each * nodes,
        each_node=True,
        rank=flags.get("node_rank"),
        is_ordered=backend is None or backend.text == "static",
        where=where if word is None else word.where,
        nodes_at=flags["nnodes"].where if "nnodes" in flags else where,
    )


def one_process(where: Where) -> Processes:
    """Return the process that ``python`` starts."""
    return Processes("python", where=where, nodes_at=where)


def _nodes(flags: Flags, collector: Faults) -> int:
    """Return the number of nodes; of a range of an elastic job (``1:4``), the largest."""
    word = flags.get("nnodes")
    if word is not None and word.text is not None and (bounds := re.fullmatch("[0-9]{1,6}:([0-9]{1,6})", word.text)):
        return int(bounds[1])
    return _number(flags, "nnodes", collector, 1) or 1


def _number(flags: Flags, name: str, collector: Faults, default: int) -> int | None:
    """Return the number of a flag, its default if it is not stated; ``None`` if only a run knows it."""
    word = flags.get(name)
    if word is None:
        return default
    if word.text is None:
        collector.warn(word.where, faults.known_when_run(name, word.variable or "the run"))
        return None
    if re.fullmatch("[0-9]{1,6}", word.text) is None or int(word.text) < 1:
        allowed = "a whole number of 1 or more"
        collector.add(word.where, must_be(f"`--{name}`", word.text, allowed, f"write {allowed}"))
        return default
    return int(word.text)

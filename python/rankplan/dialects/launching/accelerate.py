"""``accelerate launch``: how many processes it starts on a node, and which devices they see.

A flag counts more than the file, except that ``distributed_type`` of the file decides unless a flag names a type. What
a flag has a default for is never taken from the file: ``rdzv_backend``, ``same_network``. Without a file, the processes
are the devices of one node, also on several nodes. Follows ``_validate_launch_command``, ``launch_command``,
``prepare_multi_gpu_env``, ``prepare_deepspeed_cmd_env`` and ``ClusterConfig`` (accelerate 16cb6eb).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rankplan.dialects.launching import faults
from rankplan.dialects.launching.flags import TRUE, Flags, flags_in
from rankplan.dialects.launching.processes import Processes
from rankplan.errors import Faults, Where
from rankplan.frozen import frozen
from rankplan.read.text.reader import Reader
from rankplan.read.text.started import CommandWord
from rankplan.words import as_int, must_be

SWITCHES = frozenset(
    {
        *("cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp", "use_parallelism_config", "use_megatron_lm"),
        *("quiet", "same_network", "enable_cpu_affinity", "module", "no_python", "debug", "downcast_bf16"),
        *("dynamo_use_fullgraph", "dynamo_use_dynamic", "dynamo_use_regional_compilation"),
        *("tpu_cluster", "no_tpu_cluster", "tpu_use_sudo"),
    }
)
"""Flags without a value."""
_TYPES = ("multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm")
"""Flags of a type with several processes."""
_EXCLUDING = ("multi_gpu", "cpu", "tpu", "use_deepspeed", "use_fsdp")
"""Flags of which accelerate takes one at most."""
_KEYS = (
    *(
        "compute_environment",
        "distributed_type",
        "mixed_precision",
        "use_cpu",
        "debug",
        "num_processes",
        "machine_rank",
    ),
    *("num_machines", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend", "same_network"),
    *("main_training_function", "enable_cpu_affinity", "fp8_config", "deepspeed_config", "fsdp_config"),
    *("parallelism_config", "megatron_lm_config", "mpirun_config", "downcast_bf16", "tpu_name", "tpu_zone"),
    *("tpu_use_cluster", "tpu_use_sudo", "command_file", "commands", "tpu_vm", "tpu_env", "dynamo_config"),
    *("fp16", "dynamo_backend"),
)
"""The keys of a file (``ClusterConfig``), and the two that ``process_config`` converts."""
_MULTI = re.compile("MULTI_(?:GPU|NPU|MLU|SDAA|MUSA|XPU|HPU|NEURON)")
_NO = ("NO", "no")
_STANDARD = "standard"
_UNUSED = {"rdzv_backend": "static", "same_network": None}
"""Keys of a file that are never used, and the value that changes nothing; ``None``: none does."""


@frozen
class _Layer:
    """The flags of a command above a file of accelerate."""

    flags: Flags
    file: Reader | None
    faults: Faults

    def where(self, *names: str) -> Where | None:
        """Return the place of the first of these names that is stated."""
        for name in names:
            if name in self.flags:
                return self.flags[name].where
            if self.file is not None and self.file.has((name,)):
                return self.file.where((name,))
        return None

    def number(self, name: str, least: int = 0) -> int | None:
        """Return a whole number, of a flag or of the file; ``None`` if neither states it, or only a run knows it."""
        word = self.flags.get(name)
        if word is not None:
            return self._of_flag(name, word, least)
        value = self.of_file(name)
        if value is None or self.file is None:
            return None
        number = as_int(value) if not isinstance(value, str) else _whole(value)
        if number is None or number < least:
            help = f"write a whole number of {least} or more"
            self.file.add_in_config((name,), must_be(f"`{name}`", value, f"a whole number of {least} or more", help))
            return None
        return number

    def _of_flag(self, name: str, word: CommandWord, least: int) -> int | None:
        number = None if word.text is None else _whole(word.text)
        if word.text is None:
            self.faults.warn(word.where, faults.known_when_run(name, word.variable or "the run"))
        elif number is None or number < least:
            allowed = f"a whole number of {least} or more"
            self.faults.add(word.where, must_be(f"`--{name}`", word.text, allowed, f"write {allowed}"))
            return None
        return number

    def of_file(self, name: str) -> Any:
        """Return a value of the file, ``None`` without one."""
        return None if self.file is None else self.file.at((name,))

    def section(self, name: str) -> Mapping[Any, Any]:
        """Return a section of the file, empty without one."""
        value = self.of_file(name)
        return value if isinstance(value, Mapping) else {}

    def text(self, name: str) -> CommandWord | None:
        """Return the text of a flag, or of a value of the file."""
        if name in self.flags:
            return self.flags[name]
        value = self.of_file(name)
        return None if value is None or self.file is None else CommandWord(str(value), self.file.where((name,)))


def launch_flags(words: Sequence[CommandWord]) -> Flags:
    """Return the flags between ``accelerate launch`` and the program."""
    return flags_in(words, SWITCHES, {"-m": "--module", "-t": "--tee", "-q": "--quiet"})


def processes(
    flags: Flags, file: Reader | None, collector: Faults, where: Where, *, lacks_file: bool = False
) -> Processes:
    """Return the processes that accelerate starts with these flags, and this file if there is one.

    ``where`` is the place of the command. ``lacks_file``: it has a file that cannot be read, so that the number of
    processes is unknown unless a flag states it. Faults of the file go to its reader, all others to ``collector``.
    """
    layer = _Layer(flags, file, collector)
    _check_file(layer)
    kind = _kind(layer, where)
    machines = layer.number("num_machines")
    nodes = 1 if machines is None else machines
    total = layer.number("num_processes")
    if total is None and _is_one(layer):
        total = 1  # ``process_config``
    counted_at = layer.where("num_processes") or where
    nodes_at = layer.where("num_machines") or where
    if not lacks_file:
        _check_sources(layer, total, where)
    if not kind:
        kind = "no" if total is not None and total <= 1 else "multi"
    if kind == "no":
        _check_single(layer, total, nodes, counted_at, nodes_at)
        total = nodes = 1
    elif nodes > 1 and not _may_state_rank(layer, lacks_file=lacks_file):
        collector.add(nodes_at, faults.no_rank())
    _check_count(layer, total, nodes, counted_at, nodes_at)
    launcher = _multinode(layer, nodes, kind)
    return Processes(
        launcher="accelerate",
        nodes=nodes,
        total=total,
        devices=_devices(layer, kind, nodes),
        rank=_rank(layer, where),
        is_ordered=_is_ordered(flags) and launcher == _STANDARD,
        framework={"use_deepspeed": "deepspeed", "use_fsdp": "fsdp"}.get(kind, "ddp"),
        zero_stage=_version(layer, kind, "use_deepspeed", "zero_stage", 2),
        fsdp_version=_version(layer, kind, "use_fsdp", "fsdp_version", 1),
        where=counted_at,
        nodes_at=nodes_at,
    )


def _check_single(layer: _Layer, total: int | None, nodes: int, counted_at: Where, nodes_at: Where) -> None:
    """Record several processes, or nodes, of a type that starts one."""
    if total is not None and total > 1:
        layer.faults.warn(counted_at, faults.not_parallel(total, _stated_type(layer)))
    if nodes > 1 and layer.text("main_process_ip") is None:
        layer.faults.add(nodes_at, faults.no_type_of_several(nodes))


def _may_state_rank(layer: _Layer, *, lacks_file: bool) -> bool:
    """Return whether a flag has the number of the node, or a file, which has 0 by default."""
    return "machine_rank" in layer.flags or layer.file is not None or lacks_file


def _check_sources(layer: _Layer, total: int | None, where: Where) -> None:
    """Record a number of processes that a file must state, or warn of the file in the home of the machine."""
    is_known_when_run = "num_processes" in layer.flags and layer.flags["num_processes"].text is None
    if layer.file is None:
        if "config_file" not in layer.flags and "num_processes" not in layer.flags:
            layer.faults.warn(where, faults.default_file())
    elif total is None and not is_known_when_run and not layer.file.has(("num_processes",)):
        layer.faults.add(where, faults.no_count(layer.file.file or "the config of accelerate"))


def _check_file(layer: _Layer) -> None:
    """Record what accelerate refuses in its file, and warn of what it never uses."""
    file = layer.file
    if file is None:
        return
    content = file.section_at(())
    for key in map(str, content):
        if key not in _KEYS:
            file.add_in_config((key,), faults.unknown_key(key, _KEYS))
    if not file.has(("distributed_type",)):
        file.add_in_config((), faults.no_type())
    for key, harmless in _UNUSED.items():
        value = layer.of_file(key)
        if harmless is not None and value is not None and value != harmless and key not in layer.flags:
            file.warn((key,), faults.unused_rendezvous(key, str(value)))


def _kind(layer: _Layer, where: Where) -> str:
    """Return the flag of the type that starts the processes, ``multi`` or ``no``; empty if nothing tells."""
    stated = [name for name in _EXCLUDING if name in layer.flags]
    if len(stated) > 1:
        layer.faults.add(layer.flags[stated[-1]].where, faults.several_types(stated))
    for name in ("cpu", "tpu"):
        if name in layer.flags:
            layer.faults.add(layer.flags[name].where, faults.other_devices(name.upper()))
    kind = next((name for name in _TYPES if name in layer.flags), None)
    if kind is not None:
        return "multi" if kind == "multi_gpu" else kind
    if layer.file is None:
        return ""
    stated_type = str(layer.of_file("distributed_type") or "NO").upper()
    if stated_type in ("DEEPSPEED", "FSDP", "MEGATRON_LM"):
        return f"use_{stated_type.lower()}"
    if _MULTI.fullmatch(stated_type):
        return "multi"
    if stated_type not in _NO:
        layer.file.add_in_config(("distributed_type",), faults.other_devices(stated_type))
    return "no"


def _rank(layer: _Layer, where: Where) -> CommandWord | None:
    """Return the number of the node; with a file, it is 0 by default."""
    word = layer.text("machine_rank")
    return CommandWord("0", where, "0") if word is None and layer.file is not None else word


def _is_one(layer: _Layer) -> bool:
    """Return whether a file without a number of processes has the type of one."""
    return layer.file is not None and str(layer.of_file("distributed_type")).upper() == "NO"


def _stated_type(layer: _Layer) -> str:
    return "distributed_type: NO" if layer.file is not None else "a single process"


def _check_count(layer: _Layer, total: int | None, nodes: int, counted_at: Where, nodes_at: Where) -> None:
    """Record numbers of processes that the nodes cannot start."""
    if "multi_gpu" in layer.flags and total is not None and total < 2 and nodes > 0:
        layer.faults.add(counted_at, faults.one_process_only(total))
    elif total is not None and nodes > 0 and total < nodes:
        layer.faults.add(counted_at, faults.too_few_processes(total, nodes))
    elif total is not None and nodes > 0 and total % nodes:
        layer.faults.warn(counted_at, faults.lost_processes(total, nodes))


def _devices(layer: _Layer, kind: str, nodes: int) -> tuple[int, ...] | None:
    """Return the devices in ``gpu_ids``, ``None`` for all."""
    word = layer.text("gpu_ids")
    if word is None or word.text is None or word.text == "all":
        return None
    numbers = [_whole(part.strip()) for part in word.text.split(",")]
    known = tuple(number for number in numbers if number is not None)
    if len(known) != len(numbers):
        allowed = "`all`, or the numbers of devices with commas"
        layer.faults.add(word.where, must_be("`gpu_ids`", word.text, allowed, "write gpu_ids: all, or 0,1,2,3"))
        return None
    if len(known) < 2 and kind == "multi" and nodes <= 1 and layer.file is not None:
        layer.faults.add(word.where, faults.few_ids(word.text))
    return known


def _multinode(layer: _Layer, nodes: int, kind: str) -> str:
    """Return the launcher of the processes on several nodes; another one than torchrun's is a warning."""
    if kind != "use_deepspeed" or nodes <= 1:
        return _STANDARD
    word = layer.flags.get("deepspeed_multinode_launcher")
    stated = word.text if word is not None else layer.section("deepspeed_config").get("deepspeed_multinode_launcher")
    launcher = str(stated or "pdsh")
    if launcher != _STANDARD:
        at = layer.where("num_machines")
        if at is not None:
            layer.faults.warn(at, faults.by_hostfile(launcher))
    return launcher


def _version(layer: _Layer, kind: str, wanted: str, name: str, default: int) -> int | None:
    """Return a number of a framework, of its flag or its section of the file; ``None`` for other frameworks."""
    if kind != wanted:
        return None
    word = layer.flags.get(name)
    stated = word.text if word is not None else layer.section(f"{wanted.removeprefix('use_')}_config").get(name)
    return default if stated is None else _whole(str(stated))


def _is_ordered(flags: Flags) -> bool:
    """Return whether the rank of a node is the one that its command states: not with the rendezvous ``c10d``."""
    backend = flags.get("rdzv_backend")
    return backend is None or backend.text in (None, "static", TRUE)


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch("-?[0-9]{1,9}", text) else None

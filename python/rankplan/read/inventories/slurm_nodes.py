"""The nodes that Slurm shows: ``scontrol show node``, as text or JSON, with accelerators, addresses and states.

Source: scontrol(1), sinfo(1) and slurm.conf(5); the fields are those of ``slurm_sprint_node_table``.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from rankplan._core import MAX_LOCAL
from rankplan.errors import Diagnostic, PlacementError
from rankplan.files import read_text
from rankplan.kinds import SLURM_NODES, kind_of
from rankplan.nodes.facts import SLURM_NAME
from rankplan.read.inventories.batch_script import BY_NAME
from rankplan.read.inventories.shown_nodes import ShownNode, Usage, beside_jobs
from rankplan.words import must_be, natural, shown, whole_number

_RECORD = re.compile(r"^[ \t]*NodeName=", re.MULTILINE)
_FIELD = re.compile(
    r"(?<!\S)(NodeName|NodeAddr|NodeHostName|Gres|GresUsed|CfgTRES|AllocTRES|State|Reason"
    r"|CPUTot|CPUEfctv|CPUAlloc|RealMemory|MemSpecLimit|AllocMem)=((?<=Reason=)[^\n]*|\S*)"
)
_GRES = re.compile(
    r"(?P<name>[^:,()]+)(?::(?P<type>[^:,()]+))??(?::(?P<count>[0-9]+)(?P<unit>[KMGkmg]?))?(?:\([^)]*\))?"
)
_MIG = re.compile(r"(?:^|[._-])([0-9]g\.[0-9]{1,3}gb(?:\+[a-z.]+)?)", re.IGNORECASE)
_AMD = re.compile(r"(?:^|[^a-z])(?:amd|instinct|radeon|mi[0-9]{2,3}[a-z]?)(?:[^a-z]|$)", re.IGNORECASE)
_IN_JSON = {
    "name": "NodeName",
    "hostname": "NodeHostName",
    "address": "NodeAddr",
    "gres": "Gres",
    "gres_used": "GresUsed",
    "tres": "CfgTRES",
    "tres_used": "AllocTRES",
    "reason": "Reason",
}
_NUMBERS_IN_JSON = {
    "cpus": "CPUTot",
    "effective_cpus": "CPUEfctv",
    "alloc_cpus": "CPUAlloc",
    "real_memory": "RealMemory",
    "specialized_memory": "MemSpecLimit",
    "alloc_memory": "AllocMem",
}
_LARGEST = 1 << 30
"""Slurm shows 1 to 4 KiB of each node."""
_DOWN = frozenset(
    {"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "UNKNOWN", "FUTURE", "NOT_RESPONDING"}
    | {"MAINTENANCE", "MAINT", "INVAL", "INVALID", "INVALID_REG", "REBOOT_ISSUED", "BLOCKED"}
)
"""The states and flags of nodes that take no new jobs until somebody acts. Nodes that Slurm powers up are fine."""
_MARKS = "*~#!%$@^-+"
"""Marks of compact states; ``*`` is a node that does not respond."""


def shows_nodes(text: str) -> bool:
    """Return whether a text is the output of ``scontrol show node``, or at least JSON, as no topology is."""
    return _is_json(text) or _RECORD.search(text) is not None


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] == "{"


def read_slurm_nodes(
    path: str | os.PathLike[str], *, text: str | None = None, ignore_jobs: bool = False
) -> list[ShownNode]:
    """Return the nodes of ``scontrol show node``, as text or JSON (``--json``), in natural order of their names.

    What jobs have is left to them, unless ``ignore_jobs``. ``text`` is read in place of the content of the file. Raises
    `PlacementError` with every fault and its line or path, ``OSError`` if the file cannot be read.
    """
    file, faults = os.fspath(path), list[Diagnostic]()
    text = read_text(file, _LARGEST) if text is None else text
    nodes: dict[str, ShownNode] = {}
    for place, fields in _listed_in_json(file, text) if _is_json(text) else _shown(text):
        try:
            node = _node(fields, ignore_jobs=ignore_jobs)
            if node.name in nodes:
                raise _refusal(f"node {shown(node.name)} is listed twice", "list each node once")
            nodes[node.name] = node
        except PlacementError as error:
            faults += (replace(one, file=file, **place) for one in error.diagnostics)
    if not nodes and not faults:
        faults.append(_of_file("the file shows no nodes", file))
    if faults:
        raise PlacementError(faults)
    return [nodes[name] for name in sorted(nodes, key=natural)]


def _of_file(message: str, file: str, line: int | None = None) -> Diagnostic:
    return Diagnostic(SLURM_NODES.code, message, SLURM_NODES.help, file=file, line=line)


def _shown(text: str) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Yield the line and the fields of each node of a text."""
    starts = [*(found.start() for found in _RECORD.finditer(text)), len(text)]
    line = 1 + text.count("\n", 0, starts[0])
    for start, end in pairwise(starts):
        fields: dict[str, str] = {}
        for name, value in _FIELD.findall(text[start:end]):
            fields.setdefault(name, value)
        yield {"line": line}, fields
        line += text.count("\n", start, end)


def _listed_in_json(file: str, text: str) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Yield the path and the fields of each node of ``scontrol show nodes --json``, under their names in the text.

    Slurm: ``PARSER_ARRAY(NODE)`` of ``data_parser/v0.0.46/parsers.c``; up to v0.0.38, ``state`` is one text, beside
    ``state_flags``.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        raise PlacementError([_of_file("the file is not valid JSON", file, line)]) from None
    nodes = content.get("nodes")
    if kind_of(content) != SLURM_NODES.name or not isinstance(nodes, list):
        raise PlacementError([replace(SLURM_NODES.fault(content), file=file)])
    for index, node in enumerate(nodes):
        yield {"path": f"nodes[{index}]"}, _fields_of_json(node if isinstance(node, Mapping) else {})


def _fields_of_json(node: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a node under their names in the text."""
    fields = {"NodeName": ""}
    for key, field in _IN_JSON.items():
        text = node.get(key)
        if isinstance(text, str):
            fields[field] = text
    for key, field in _NUMBERS_IN_JSON.items():
        number = node.get(key)
        if isinstance(number, Mapping):  # {"set": true, "infinite": false, "number": 1024}
            number = number.get("number") if number.get("set") else None
        if isinstance(number, int):
            fields[field] = str(number)
    states: list[Any] = []
    for key in ("state", "state_flags"):
        value = node.get(key)
        states += value if isinstance(value, list) else [value]
    fields["State"] = "+".join(state for state in states if isinstance(state, str))
    return fields


def _node(fields: Mapping[str, str], *, ignore_jobs: bool) -> ShownNode:
    name = fields["NodeName"]
    if not name or not name.isprintable() or set(name) & set("[],"):
        raise _refusal(f"{shown(name)} is not the name of a node", "pass the output of `scontrol show node`")
    hostname = fields.get("NodeHostName") or name
    entry: dict[str, Any] = {"hostname": hostname}
    if hostname != name:
        entry["labels"] = {SLURM_NAME: name}
    with suppress(ValueError):  # Slurm shows the name again if it knows no address
        entry["ip"] = str(ipaddress.ip_address(fields.get("NodeAddr", "")))
    entry |= _accelerators(fields.get("Gres", ""), fields.get("CfgTRES", ""))
    entry |= _reservable(fields)
    in_use = None
    if not ignore_jobs:
        entry, in_use = beside_jobs(entry, _usage(fields))
    down = _down(fields.get("State", ""))
    if not down:
        return ShownNode(name, entry, in_use=in_use)
    reason = re.split(r"\s*\[\S+@\S+\]", fields.get("Reason", ""))[0].strip()  # who set it, and when
    problem = "+".join(down) + (f": {reason}" if reason and reason != "none" else "")
    return ShownNode(name, entry | {"healthy": False}, problem, in_use)


def _usage(fields: Mapping[str, str]) -> Usage:
    """Return what jobs have of a node.

    ``AllocTRES`` counts the GPUs if Slurm is told to track them (``AccountingStorageTRES``); ``GresUsed``, which only
    ``--detail`` and JSON show, counts them always.
    """
    listed = _listed(fields.get("GresUsed", ""))
    return Usage(
        accelerators=_tracked_gpus(fields.get("AllocTRES", "")) or _number_of_accelerators(listed),
        cpus=whole_number(fields.get("CPUAlloc")) or 0,
        memory=whole_number(fields.get("AllocMem")) or 0,
        jobs="jobs of Slurm",
    )


def _reservable(fields: Mapping[str, str]) -> dict[str, int]:
    """Return the CPUs, and the MiB of memory, that jobs can have of a node: without those that Slurm keeps for itself.

    A number that is 0 or damaged is unknown.
    """
    cpus = whole_number(fields.get("CPUEfctv")) or whole_number(fields.get("CPUTot")) or 0
    memory = (whole_number(fields.get("RealMemory")) or 0) - (whole_number(fields.get("MemSpecLimit")) or 0)
    found = {"cpus": cpus, "reservable_memory": memory}
    return {name: number for name, number in found.items() if number > 0}


def _down(state: str) -> list[str]:
    """Return the parts of a state for which a node must not be used: ``DOWN`` and ``DRAIN`` of ``DOWN*+DRAIN``."""
    reasons = []
    for word in state.upper().split("+"):
        plain = word.rstrip(_MARKS)
        if plain in _DOWN:
            reasons.append(plain)
        elif "*" in word[len(plain) :]:
            reasons.append("NOT_RESPONDING")
    return list(dict.fromkeys(reasons))


def _accelerators(gres: str, configured: str) -> dict[str, Any]:
    """Return the number, the type and the model of the accelerators of a node.

    Parts of GPUs (MIG) count one by one; shards and MPS only share GPUs that are listed, too.
    """
    listed = [resource for resource in _listed(gres) if resource.kind is not None]
    if not listed and (tracked := _tracked_gpus(configured)):
        listed = [_Resource("NV_GPU", None, tracked)]
    total = _number_of_accelerators(listed)
    if total > MAX_LOCAL:
        raise PlacementError(
            [must_be("`Gres`", gres, f"at most {MAX_LOCAL} accelerators", "check the node in slurm.conf")]
        )
    if not total:
        return {"accelerators": 0}
    present = [resource for resource in listed if resource.number]
    kinds = {resource.kind for resource in present}
    models = {resource.model for resource in present}
    if len(kinds) > 1:
        message = f"`Gres` is {shown(gres)}: a node has accelerators of one type"
        raise _refusal(message, "write the inventory by hand, with hardware for the others")
    entry: dict[str, Any] = {"accelerators": total}
    if kinds != {"NV_GPU"}:
        entry["accelerator_type"] = kinds.pop()
    if len(models) == 1 and None not in models:
        entry["accelerator_model"] = models.pop()
    return entry


def _tracked_gpus(resources: str) -> int:
    """Return the number of GPUs in a list of trackable resources: ``cpu=224,mem=2015G,gres/gpu=8,gres/gpu:h100=8``."""
    counted = re.search(r"(?:^|,)gres/gpu=([0-9]{1,9})(?:,|$)", resources)
    return 0 if counted is None else int(counted[1])


class _Resource(NamedTuple):
    """A generic resource (GRES): the type of accelerator, ``None`` for anything else, the model, and how many."""

    kind: str | None
    model: str | None
    number: int


def _number_of_accelerators(listed: Iterable[_Resource]) -> int:
    return sum(resource.number for resource in listed if resource.kind is not None)


def _listed(gres: str) -> Iterator[_Resource]:
    """Yield the resources of a list of GRES."""
    for part in re.findall(r"(?:[^,(]|\([^)]*\))+", gres):
        resource = _GRES.fullmatch(part.strip())
        if part.strip() in ("(null)", "N/A", ""):
            continue
        if resource is None:
            raise _refusal(
                f"`Gres` is {shown(gres)}, which is not a list of GRES", "pass the output of scontrol unchanged"
            )
        name, model, count = resource["name"], resource["type"], int(resource["count"] or 1)
        if model is not None and (slices := _MIG.search(model)):
            model = f"MIG {slices[1].lower()}"
        kind = BY_NAME.get(name)
        if name == "gpu":
            kind = "AMD_GPU" if _AMD.search(model or "") else "NV_GPU"
        yield _Resource(kind, model, count)


def _refusal(message: str, help: str) -> PlacementError:
    return PlacementError([Diagnostic("invalid-inventory", message, help)])

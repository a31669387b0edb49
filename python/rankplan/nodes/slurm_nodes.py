"""The nodes that Slurm shows: the output of ``scontrol show node``, with their accelerators, addresses and states.

Source: scontrol(1), sinfo(1) and slurm.conf(5); the fields are those of ``slurm_sprint_node_table``.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from rankplan._core import MAX_LOCAL
from rankplan.config.text.files import read_text
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.batch_script import BY_NAME
from rankplan.words import must_be, natural, shown

_RECORD = re.compile(r"^[ \t]*NodeName=", re.MULTILINE)
_FIELD = re.compile(r"(?<!\S)(NodeName|NodeAddr|NodeHostName|Gres|CfgTRES|State|Reason)=((?<=Reason=)[^\n]*|\S*)")
_GRES = re.compile(
    r"(?P<name>[^:,()]+)(?::(?P<type>[^:,()]+))??(?::(?P<count>[0-9]+)(?P<unit>[KMGkmg]?))?(?:\([^)]*\))?"
)
_MIG = re.compile(r"(?:^|[._-])([0-9]g\.[0-9]{1,3}gb(?:\+[a-z.]+)?)", re.IGNORECASE)
_AMD = re.compile(r"(?:^|[^a-z])(?:amd|instinct|radeon|mi[0-9]{2,3}[a-z]?)(?:[^a-z]|$)", re.IGNORECASE)
_DOWN = frozenset(
    {"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "UNKNOWN", "FUTURE", "NOT_RESPONDING"}
    | {"MAINTENANCE", "MAINT", "INVAL", "INVALID_REG", "REBOOT_ISSUED", "BLOCKED"}
)
"""The states and flags of nodes that take no new jobs until somebody acts. Nodes that Slurm powers up are fine."""
_MARKS = "*~#!%$@^-+"
"""Marks of compact states; ``*`` is a node that does not respond."""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm shows it: its name, the entry of an inventory without its rank, and why it is not healthy."""

    name: str
    entry: dict[str, Any]
    problem: str | None = None


def shows_nodes(text: str) -> bool:
    """Return whether a text is the output of ``scontrol show node``."""
    return _RECORD.search(text) is not None


def read_slurm_nodes(path: str | os.PathLike[str], *, text: str | None = None) -> list[SlurmNode]:
    """Return the nodes of ``scontrol show node``, in natural order of their names.

    ``text`` is read in place of the content of the file. Raises `PlacementError` with every fault and its line,
    ``OSError`` if the file cannot be read.
    """
    text, faults = read_text(path) if text is None else text, list[Diagnostic]()
    starts = [found.start() for found in _RECORD.finditer(text)]
    if not starts:
        fault = Diagnostic("invalid-inventory", "the file shows no nodes", "pass the output of `scontrol show node`")
        raise PlacementError([replace(fault, file=os.fspath(path))])
    nodes: dict[str, SlurmNode] = {}
    line = 1 + text.count("\n", 0, starts[0])
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        try:
            node = _node(text[start:end])
            if node.name in nodes:
                raise _refusal(f"node {shown(node.name)} is listed twice", "list each node once")
            nodes[node.name] = node
        except PlacementError as error:
            faults += (replace(one, file=os.fspath(path), line=line) for one in error.diagnostics)
        line += text.count("\n", start, end)
    if faults:
        raise PlacementError(faults)
    return [nodes[name] for name in sorted(nodes, key=natural)]


def _node(record: str) -> SlurmNode:
    fields: dict[str, str] = {}
    for name, value in _FIELD.findall(record):
        fields.setdefault(name, value)
    name = fields["NodeName"]
    if not name or not name.isprintable() or set(name) & set("[],"):
        raise _refusal(f"{shown(name)} is not the name of a node", "pass the output of `scontrol show node`")
    entry: dict[str, Any] = {"hostname": fields.get("NodeHostName") or name}
    with suppress(ValueError):  # Slurm shows the name again if it knows no address
        entry["ip"] = str(ipaddress.ip_address(fields.get("NodeAddr", "")))
    entry |= _accelerators(fields.get("Gres", ""), fields.get("CfgTRES", ""))
    down = _down(fields.get("State", ""))
    if not down:
        return SlurmNode(name, entry)
    reason = re.split(r"\s*\[\S+@\S+\]", fields.get("Reason", ""))[0].strip()  # who set it, and when
    problem = "+".join(down) + (f": {reason}" if reason and reason != "none" else "")
    return SlurmNode(name, entry | {"healthy": False}, problem)


def _down(state: str) -> list[str]:
    """Return the parts of a state for which a node must not be used: ``DOWN`` and ``DRAIN`` of ``DOWN*+DRAIN``."""
    found = []
    for word in state.upper().split("+"):
        plain = word.rstrip(_MARKS)
        found += [plain] if plain in _DOWN else []
        found += ["NOT_RESPONDING"] if "*" in word[len(plain) :] and plain not in _DOWN else []
    return list(dict.fromkeys(found))


def _accelerators(gres: str, configured: str) -> dict[str, Any]:
    """Return the number, the type and the model of the accelerators of a node.

    Parts of GPUs (MIG) count one by one; shards and MPS only share GPUs that are listed, too.
    """
    found = [one for one in _listed(gres) if one[0] is not None]
    if not found and (counted := re.search(r"(?:^|,)gres/gpu=([0-9]{1,9})(?:,|$)", configured)):
        found = [("NV_GPU", None, int(counted[1]))]
    total = sum(count for _, _, count in found)
    if total > MAX_LOCAL:
        raise PlacementError(
            [must_be("`Gres`", gres, f"at most {MAX_LOCAL} accelerators", "check the node in slurm.conf")]
        )
    if not total:
        return {"accelerators": 0}
    kinds, models = ({one[index] for one in found if one[2]} for index in (0, 1))
    if len(kinds) > 1:
        message = f"`Gres` is {shown(gres)}: a node has accelerators of one type"
        raise _refusal(message, "write the inventory by hand, with hardware for the others")
    (kind,), model = kinds, next(iter(models)) if len(models) == 1 else None
    return {
        "accelerators": total,
        **({} if kind == "NV_GPU" else {"accelerator_type": kind}),
        **({} if model is None else {"accelerator_model": model}),
    }


def _listed(gres: str) -> Iterator[tuple[str | None, str | None, int]]:
    """Yield the type, the model and the number of each GRES; the type of one that is no accelerator is ``None``."""
    for part in re.findall(r"(?:[^,(]|\([^)]*\))+", gres):
        found = _GRES.fullmatch(part.strip())
        if part.strip() in ("(null)", "N/A", ""):
            continue
        if found is None:
            raise _refusal(
                f"`Gres` is {shown(gres)}, which is not a list of GRES", "pass the output of scontrol unchanged"
            )
        name, model, count = found["name"], found["type"], int(found["count"] or 1)
        if model is not None and (slices := _MIG.search(model)):
            model = f"MIG {slices[1].lower()}"
        kind = ("AMD_GPU" if _AMD.search(model or "") else "NV_GPU") if name == "gpu" else BY_NAME.get(name)
        yield kind, model, count


def _refusal(message: str, help: str) -> PlacementError:
    return PlacementError([Diagnostic("invalid-inventory", message, help)])

"""The kinds of files that rankplan reads: which one a file is, and what to write if it must be another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rankplan.errors import Diagnostic
from rankplan.frozen import frozen
from rankplan.words import shown


@frozen
class Kind:
    """A kind of file: what it is called, the code of the fault of any other file, and what to write or pass instead."""

    name: str
    code: str
    help: str

    def instead(self, content: Any) -> str | None:
        """Return the message for the content of a file of another kind; ``None`` if no other kind is known."""
        found = kind_of(content)
        are = "these are" if found is not None and found.startswith("nodes ") else "this is"
        return None if found in (None, self.name) else f"{are} {found}, not {self.name}"

    def fault(self, content: Any) -> Diagnostic:
        """Return the fault of a file with this content, which is not of this kind."""
        message = f"the file contains {shown(content)}; it must be {self.name}"
        if content is None:
            message = f"the file is empty: it is not {self.name}"
        return Diagnostic(self.code, self.instead(content) or message, self.advice(content))

    def advice(self, content: Any) -> str:
        """Return what to write or pass instead of a file with this content."""
        found = kind_of(content)
        if found is None or self.name != INVENTORY.name:
            return self.help
        return _INVENTORY_FROM.get(found, self.help)


CONFIG = Kind("the config of a job", "no-components", "write keys and values: `cluster:`, or those of a trainer")
INVENTORY = Kind("an inventory", "invalid-inventory", "write `nodes:` with a list: - {ranks: 0-7, accelerators: 8}")
COSTS = Kind("a costs file", "invalid-value", "write `components:` with the seconds of each")
PLAN = Kind("a saved plan", "invalid-plan", "save a plan with `rankplan plan CONFIG --save FILE` or Plan.save")
SLURM_NODES = Kind("nodes of Slurm", "invalid-inventory", "pass the output of `scontrol show node`")
KUBERNETES_NODES = Kind("nodes of Kubernetes", "invalid-inventory", "pass the output of `kubectl get nodes -o json`")
SLURM_TOPOLOGY = Kind(
    "a topology of Slurm",
    "invalid-value",
    "pass topology.conf, topology.yaml, or the output of `scontrol show topology` or `scontrol show node`",
)
KUEUE_TOPOLOGY = Kind(
    "a Topology object of Kueue",
    "invalid-value",
    "pass a file with `kind: Topology` and `spec: {levels: [{nodeLabel: ...}, ...]}`",
)

_INVENTORY_FROM = {
    SLURM_NODES.name: "make an inventory of them: `rankplan inventory --slurm FILE -o nodes.yaml`",
    KUBERNETES_NODES.name: "make an inventory of them: `rankplan inventory --kubernetes FILE -o nodes.yaml`",
    SLURM_TOPOLOGY.name: "name its nodes, too: `rankplan inventory --slurm FILE --inventory NODES -o nodes.yaml`",
}
"""How to make an inventory of a file of another kind."""

_SLURM_TEXT = r"\s*(?:#.*\n\s*)*(?:(NodeName)|SwitchName|BlockName)="
"""The first key of what Slurm prints or reads; the one of nodes is a group."""

_JOB_FILE = "a job file"
_BY_KEY = {"cluster": CONFIG.name, "nodes": INVENTORY.name, "components": COSTS.name}


def object_of_kubernetes(content: Mapping[str, Any]) -> str | None:
    """Return what an object of Kubernetes is called; ``None`` for any other content."""
    kind = content.get("kind")
    return f"a {kind} of Kubernetes" if isinstance(kind, str) and isinstance(content.get("apiVersion"), str) else None


def _has_nodes(content: Mapping[str, Any]) -> bool:
    """Return whether an object of Kubernetes is a node, or a list with nodes."""
    items = content.get("items")
    listed = items if isinstance(items, list) else [content]
    return any(isinstance(item, Mapping) and item.get("kind") == "Node" for item in listed)


def kind_of(content: Any) -> str | None:
    """Return what a file with this content is called, by the keys that tell; ``None`` if none does."""
    if isinstance(content, str) and (slurm := re.match(_SLURM_TEXT, content)) is not None:
        return SLURM_NODES.name if slurm[1] else SLURM_TOPOLOGY.name
    if not isinstance(content, Mapping):
        return None
    if (found := object_of_kubernetes(content)) is not None:
        return KUBERNETES_NODES.name if _has_nodes(content) else found
    meta = content.get("meta")
    if "nodes" in content and isinstance(meta, Mapping) and any(str(key).lower() == "slurm" for key in meta):
        return SLURM_NODES.name
    if "rankplan" in content:
        return PLAN.name
    if isinstance(content.get("job"), str):
        return _JOB_FILE
    names = [name for key, name in _BY_KEY.items() if key in content]
    return names[0] if len(names) == 1 else None

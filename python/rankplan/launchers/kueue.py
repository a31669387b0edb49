"""Kueue's objects for the nodes of a plan: what an administrator creates before the jobs.

Source: Kueue's API (``kueue.x-k8s.io/v1beta2``).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.launchers.launcher import Launcher, Starts
from rankplan.launchers.object_file import POD_OPTIONS
from rankplan.launchers.pods import check_hardware, check_options, level_key, resource_key
from rankplan.launchers.yaml_text import documents_text
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.topology.sources import HOSTNAME

_NAME = "rankplan"
_TYPE_LABEL = "rankplan.io/accelerator-type"


def write(draft: Draft) -> str:
    """Return a Topology, a ResourceFlavor per accelerator type, a ClusterQueue and a LocalQueue."""
    check_options(draft)
    check_hardware(draft)
    inventory = draft.plan.inventory
    if not inventory.levels:
        draft.refuse(faults.no_levels())
    levels = [{"nodeLabel": level_key(draft, level)} for level in inventory.levels if level != HOSTNAME]
    by_key: dict[str, dict[str, int]] = {}
    for kind, number in _healthy(inventory).items():
        key = resource_key(draft, kind)
        if key is not None:
            by_key.setdefault(key, {})[kind.lower().replace("_", "-")] = number
    flavors = [name for names in by_key.values() for name in names]
    names = " and ".join(f"{_TYPE_LABEL}: {name}" for name in flavors)
    draft.notes.append(f"replace the node labels of the flavors ({names}) by labels that your nodes have")
    draft.notes.append("the quota has accelerators only; add cpu and memory if pods ask for them")
    documents = [_object("Topology", _NAME, {"levels": [*levels, {"nodeLabel": HOSTNAME}]})]
    for name in flavors:
        flavor = {"nodeLabels": {_TYPE_LABEL: name}, "topologyName": _NAME}
        documents.append(_object("ResourceFlavor", name, flavor))
    quotas = [_quota(by_key)] if by_key else []
    documents.append(_object("ClusterQueue", _NAME, {"namespaceSelector": {}, "resourceGroups": quotas}))
    local_queue = _object("LocalQueue", draft.options.queue or draft.options.name, {"clusterQueue": _NAME})
    if draft.options.namespace is not None:
        local_queue["metadata"]["namespace"] = draft.options.namespace
    return documents_text([*documents, local_queue])


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _quota(by_key: dict[str, dict[str, int]]) -> dict[str, Any]:
    """Return the quota as one group of resources: a resource such as cpu may be in one group only.

    Every flavor of a group states all of its resources, in their order.
    """
    flavors = []
    for key, numbers in by_key.items():
        for name, number in numbers.items():
            quota = {**dict.fromkeys(by_key, 0), key: number}
            resources = [{"name": one, "nominalQuota": str(amount)} for one, amount in quota.items()]
            flavors.append({"name": name, "resources": resources})
    return {"coveredResources": list(by_key), "flavors": flavors}


def _healthy(inventory: Inventory) -> Counter[str]:
    """Return the number of healthy accelerators by type."""
    found: Counter[str] = Counter()
    for nodes, record in inventory.stretches():
        if record.num_accelerators and record.healthy:
            found[record.accelerator_type] += len(nodes) * (record.num_accelerators - len(record.unhealthy))
    return found


LAUNCHER = Launcher(name="kueue", write=write, starts=Starts.NOTHING, options=POD_OPTIONS)

"""Emitted files show the recorded facts of every plan, and are valid objects of Kubernetes."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
import rankplan
from rankplan import EmitOptions
from support.launchers import CASES, documents, object_of, options, planned

KINDS = {"kuberay": "RayJob", "jobset": "JobSet", "lws": "LeaderWorkerSet"}
TARGETS = [*KINDS, "kueue"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_a_file_shows_the_recorded_facts(case: str, target: str) -> None:
    expected = CASES[case]["targets"][target]
    plan = planned(case)
    if "refused" in expected:
        with pytest.raises(rankplan.PlacementError) as refused:
            rankplan.emit(plan, target, EmitOptions(**options(case, target)))
        assert expected["refused"] in {found.code for found in refused.value.diagnostics}
        words = " ".join(str(found) for found in refused.value.diagnostics)
        assert all(name in words for name in expected.get("groups", [])[:8])
        return
    text = rankplan.emit(plan, target, EmitOptions(**options(case, target)))
    assert FACTS[target](text) == expected
    if target in KINDS:
        saved = rankplan.Plan.from_dict(json.loads(object_of(text, "ConfigMap")["data"]["plan.json"]))
        rows = {
            name: [[row.cluster_node_rank, list(row.local_hardware_ranks)] for row in component]
            for name, component in saved.items()
        }
        assert rows == CASES[case]["rows"]


def pod_facts(template: dict[str, Any]) -> dict[str, Any]:
    """Return what the recorded facts state of the pods of a group."""
    (container,) = template["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    limits = container.get("resources", {}).get("limits", {})
    annotations = template.get("metadata", {}).get("annotations", {})
    return {"limits": limits, "node_rank": env["RANKPLAN_NODE_RANK"], "annotations": annotations}


def kuberay(text: str) -> dict[str, Any]:
    groups = []
    pods = 1
    for group in object_of(text, "RayJob")["spec"]["rayClusterSpec"]["workerGroupSpecs"]:
        assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]
        pods += group["replicas"]
        resources = {"resources": group["resources"]} if "resources" in group else {}
        found = {"group": group["groupName"], "replicas": group["replicas"], **resources}
        groups.append({**found, **pod_facts(group["template"])})
    return {"worker_groups": groups, "pods": pods}


def jobset(text: str) -> dict[str, Any]:
    jobs, masters, pods = [], {}, 0
    for job in object_of(text, "JobSet")["spec"]["replicatedJobs"]:
        inner = job["template"]["spec"]
        assert inner["completions"] == inner["parallelism"]
        pods += inner["completions"]
        shown = {"job": job["name"], "replicas": job["replicas"], "completions": inner["completions"]}
        jobs.append({**shown, **pod_facts(inner["template"])})
        for option, value in pairwise(inner["template"]["spec"]["containers"][0]["command"]):
            if option == "--master":
                name, _, address = value.partition("=")
                masters[name] = address.partition(":")[0]
    return {"replicated_jobs": jobs, "masters": masters, "pods": pods}


def lws(text: str) -> dict[str, Any]:
    spec = object_of(text, "LeaderWorkerSet")["spec"]
    replicas, size = spec["replicas"], spec["leaderWorkerTemplate"]["size"]
    facts = pod_facts(spec["leaderWorkerTemplate"]["workerTemplate"])
    return {"replicas": replicas, "size": size, **facts, "pods": replicas * size}


def kueue(text: str) -> dict[str, Any]:
    levels = [one["nodeLabel"] for one in object_of(text, "Topology")["spec"]["levels"]]
    flavors = {
        flavor["name"]: {one["name"]: one["nominalQuota"] for one in flavor["resources"]}
        for group in object_of(text, "ClusterQueue")["spec"]["resourceGroups"]
        for flavor in group["flavors"]
    }
    names = [one["metadata"]["name"] for one in documents(text) if one["kind"] == "ResourceFlavor"]
    assert names == list(flavors)
    return {"levels": levels, "flavors": flavors}


FACTS = {"kuberay": kuberay, "jobset": jobset, "lws": lws, "kueue": kueue}

"""JobSets show the recorded facts of every plan, and are valid."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rankplan
from support.launchers import CASES, documents, object_of, options, planned, pod_facts


@pytest.mark.parametrize("case", CASES)
def test_a_jobset_shows_the_recorded_facts(case: str) -> None:
    expected = CASES[case]["targets"]["jobset"]
    plan = planned(case)
    if "refused" in expected:
        with pytest.raises(rankplan.PlacementError) as refused:
            rankplan.emit(plan, "jobset", **options(case, "jobset"))
        assert {found.code for found in refused.value.diagnostics} >= {expected["refused"]}
        return
    text = rankplan.emit(plan, "jobset", **options(case, "jobset"))
    found = object_of(text, "JobSet")
    assert facts(found) == expected
    (embedded,) = [one for one in documents(text) if one["kind"] == "ConfigMap"]
    saved = rankplan.Plan.from_dict(json.loads(embedded["data"]["plan.json"]))
    rows = {
        name: [[row.cluster_node_rank, list(row.local_hardware_ranks)] for row in component]
        for name, component in saved.items()
    }
    assert {name: [[node, ranks] for node, ranks in each] for name, each in rows.items()} == CASES[case]["rows"]


def facts(found: dict[str, Any]) -> dict[str, Any]:
    """Return what a JobSet says, in the words of the recorded facts."""
    jobs, masters, pods = [], {}, 0
    for job in found["spec"]["replicatedJobs"]:
        inner = job["template"]["spec"]
        assert inner["completions"] == inner["parallelism"]
        pods += inner["completions"]
        shown = {"job": job["name"], "replicas": job["replicas"], "completions": inner["completions"]}
        jobs.append({**shown, **pod_facts(job["name"], inner["template"])})
        words = inner["template"]["spec"]["containers"][0]["command"]
        for option, value in zip(words, words[1:], strict=False):
            if option == "--master":
                name, _, address = value.partition("=")
                masters[name] = address.partition(":")[0]
    ordered = {name: masters[name] for name in sorted(masters, key=list(masters).index)}
    return {"replicated_jobs": jobs, "masters": ordered, "pods": pods}

"""Checks of Kubernetes files offline.

Custom kinds are checked against crds.json, beside this file: field names, types, ranges, list keys. On top of that come
the rules that the API servers and the admission webhooks of KubeRay, Kueue, JobSet and LeaderWorkerSet apply and that a
schema cannot say. ``crds.json`` is derived from the definitions of these projects (Apache-2.0), which its ``sources``
name.
"""

# ruff: noqa: E501

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator

CRDS = json.loads(Path(__file__).with_name("crds.json").read_text())
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
QUANTITY = re.compile(r"[+-]?(\d+|\d+\.\d*|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")
TOPOLOGY = ("podset-required-topology", "podset-preferred-topology", "podset-unconstrained-topology")


class Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a duplicate key is a fault, a date stays text."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is not text", key.start_mark)
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key.value!r}", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if not tag.endswith(":timestamp")]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def without_nulls(value):
    """A field that is null is as good as absent: the API server drops it."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def place(path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".") or "."


def by_schema(name: str, document: dict) -> Iterator[str]:
    schema = {"$defs": CRDS["$defs"], **CRDS["kinds"][name]}
    for error in Draft202012Validator(schema).iter_errors(document):
        yield f"{place(error.absolute_path)}: {error.message[:200]}"
    yield from unique(document, CRDS["kinds"][name], ())


def unique(value, schema: dict, path: tuple) -> Iterator[str]:
    """Lists whose elements are known by keys must not repeat them."""
    while "$ref" in schema:
        schema = CRDS["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    if isinstance(value, dict):
        for key, part in value.items():
            inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            if isinstance(inner, dict):
                yield from unique(part, inner, (*path, key))
    elif isinstance(value, list):
        if "x-unique" in schema:
            keys, defaults, seen = schema["x-unique"], schema.get("x-defaults", {}), set()
            for index, part in enumerate(value):
                mark = json.dumps(
                    [part.get(key, defaults.get(key)) for key in keys] if keys and isinstance(part, dict) else part
                )
                if mark in seen:
                    yield f"{place((*path, index))}: repeats {mark}"
                seen.add(mark)
        if isinstance(schema.get("items"), dict):
            for index, part in enumerate(value):
                yield from unique(part, schema["items"], (*path, index))


def general(value, path: tuple = ()) -> Iterator[str]:
    """What holds in every kind: metadata, resources, environment variables, mounts."""
    if isinstance(value, list):
        for index, part in enumerate(value):
            yield from general(part, (*path, index))
        return
    if not isinstance(value, dict):
        return
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        for kind in ("labels", "annotations"):
            for key, text in (metadata.get(kind) or {}).items():
                at = place((*path, "metadata", kind))
                if not isinstance(text, str):
                    yield f"{at}: the value of {key} is not text: {text!r}"
                elif not KEY.fullmatch(str(key)) or len(str(key).rsplit("/", 1)[-1]) > 63:
                    yield f"{at}: {key!r} is no key"
                elif kind == "labels" and (len(text) > 63 or not VALUE.fullmatch(text)):
                    yield f"{at}: {text!r} is no label value"
    resources = value.get("resources")
    if isinstance(resources, dict) and not {"limits", "requests"}.isdisjoint(resources):
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for kind, amounts in (("limits", limits), ("requests", requests)):
            for key, amount in amounts.items() if isinstance(amounts, dict) else ():
                if not QUANTITY.fullmatch(str(amount)):
                    yield f"{place((*path, 'resources', kind))}: {amount!r} is no quantity"
                elif "/" in key and not str(amount).isdigit():
                    yield f"{place((*path, 'resources', kind))}: {key} needs a whole number, not {amount!r}"
        for key in {key for key in (*limits, *requests) if "/" in str(key) and not key.startswith("kubernetes.io/")}:
            if str(limits.get(key)) != str(requests.get(key, limits.get(key))):
                yield f"{place((*path, 'resources'))}: {key}: limits and requests must be equal"
    if isinstance(value.get("containers"), list):
        volumes = {v.get("name") for v in value.get("volumes") or () if isinstance(v, dict)}
        known = isinstance(value.get("volumes") or [], list)
        for kind in ("containers", "initContainers"):
            for index, container in enumerate(value.get(kind) or ()):
                for mount in (container.get("volumeMounts") or ()) if isinstance(container, dict) and known else ():
                    if (
                        isinstance(mount, dict)
                        and mount.get("name") not in volumes
                        and not path_has(path, "replicatedJobs", "leaderWorkerTemplate")
                    ):
                        yield f"{place((*path, kind, index))}: no volume {mount.get('name')!r}"
    for key, part in value.items():
        if key not in ("status", "data", "binaryData", "stringData"):
            yield from general(part, (*path, key))


def path_has(path: tuple, *words: str) -> bool:
    """Volumes may come from claim templates in these kinds."""
    return any(word in path for word in words)


def topology(metadata: dict, count: int | None, at: str) -> Iterator[str]:
    """Kueue's annotations of one pod set."""
    notes = {
        k.removeprefix("kueue.x-k8s.io/"): v
        for k, v in (metadata.get("annotations") or {}).items()
        if str(k).startswith("kueue.x-k8s.io/podset-")
    }
    asked = [key for key in TOPOLOGY if key in notes]
    slice_level, slice_size = notes.get("podset-slice-required-topology"), notes.get("podset-slice-size")
    layers, group = notes.get("podset-slice-required-topology-constraints"), notes.get("podset-group-name")
    for key in notes.keys() - {*TOPOLOGY, "podset-slice-required-topology", "podset-slice-size", "podset-slice-required-topology-constraints", "podset-group-name", "podset-index-offset"}:  # fmt: skip
        yield f"{at}: unknown annotation kueue.x-k8s.io/{key}"
    if len(asked) > 1:
        yield f"{at}: more than one of {', '.join(asked)}"
    if (slice_level is None) != (slice_size is None):
        yield f"{at}: podset-slice-required-topology and podset-slice-size need each other"
    if slice_size is not None and not (str(slice_size).isdigit() and int(slice_size) >= 1):
        yield f"{at}: podset-slice-size {slice_size!r} is not a whole number from 1"
    elif slice_size is not None and count is not None and int(slice_size) > count:
        yield f"{at}: podset-slice-size {slice_size} is more than the {count} pods"
    if group is not None:
        if str(group).isdigit():
            yield f"{at}: podset-group-name is a number"
        if slice_size or slice_level or layers:
            yield f"{at}: podset-group-name and slices exclude each other"
        if not {"podset-required-topology", "podset-preferred-topology"} & notes.keys():
            yield f"{at}: podset-group-name needs a required or preferred topology"
    for key in ("podset-required-topology", "podset-preferred-topology", "podset-slice-required-topology"):
        if key in notes and not KEY.fullmatch(str(notes[key])):
            yield f"{at}: {notes[key]!r} is no label key"
    if layers is not None:
        if slice_level or slice_size:
            yield f"{at}: podset-slice-required-topology-constraints and the two-key form exclude each other"
        try:
            parsed = [(layer["topology"], layer["size"]) for layer in json.loads(layers)]
        except (ValueError, TypeError, KeyError):
            yield f"{at}: constraints are not a JSON list of topology and size"
            return
        if not 1 <= len(parsed) <= 3 or len({level for level, _ in parsed}) < len(parsed):
            yield f"{at}: constraints need 1 to 3 different levels"
        for (_, outer), (_, inner) in pairwise(parsed):
            if inner < 1 or outer % inner:
                yield f"{at}: layer size {inner} does not divide {outer}"
        if parsed and count is not None and parsed[0][1] > count:
            yield f"{at}: layer size {parsed[0][1]} is more than the {count} pods"


def pod_set_groups(sets: list[tuple[dict, int]], at: str) -> Iterator[str]:
    groups: dict[str, list[int]] = {}
    for metadata, count in sets:
        name = (metadata.get("annotations") or {}).get("kueue.x-k8s.io/podset-group-name")
        if name is not None:
            groups.setdefault(name, []).append(count)
    for name, counts in groups.items():
        if len(counts) != 2 or 1 not in counts:
            yield f"{at}: pod set group {name!r} needs exactly two pod sets, one of them with one pod, not {counts}"


def ray_cluster(spec: dict, queued: bool, elastic: bool, at: str) -> Iterator[str]:
    head = spec["headGroupSpec"]
    sets = [(head["template"].get("metadata") or {}, 1)]
    groups = [("head", head, 1)]
    for index, group in enumerate(spec.get("workerGroupSpecs") or ()):
        where = f"{at}.workerGroupSpecs[{index}]"
        low, count, high = group.get("minReplicas"), group.get("replicas"), group.get("maxReplicas")
        if low is not None and high is not None and low > high:
            yield f"{where}: minReplicas {low} > maxReplicas {high}"
        if queued and group["groupName"] == "head":
            yield f"{where}: Kueue reserves the name head"
        pods = (1 if count is None else count) * max(1, group.get("numOfHosts") or 1)
        sets.append((group["template"].get("metadata") or {}, pods))
        groups.append((where, group, pods))
    for where, group, pods in groups:
        start = group.get("rayStartParams") or {}
        if group.get("labels") and "labels" in start:
            yield f"{where}: labels in rayStartParams and in labels"
        if group.get("resources") and {"num-cpus", "num-gpus", "memory", "resources"} & start.keys():
            yield f"{where}: resources in rayStartParams and in resources"
        for key, text in (group.get("labels") or {}).items():
            if not KEY.fullmatch(key) or not VALUE.fullmatch(str(text)) or len(str(text)) > 63:
                yield f"{where}: {key}={text} is no label"
        if not group["template"]["spec"].get("containers"):
            yield f"{where}: no container"
        yield from topology(group["template"].get("metadata") or {}, pods, where)
    yield from pod_set_groups(sets, at)
    if queued and not elastic and spec.get("enableInTreeAutoscaling"):
        yield f"{at}: Kueue needs enableInTreeAutoscaling off, or an elastic job"
    if queued and len(sets) > 18:
        yield f"{at}: Kueue takes 18 pod sets, not {len(sets)}"


def job_set(document: dict) -> Iterator[str]:
    spec, name = (
        document["spec"],
        document["metadata"].get("name") or document["metadata"].get("generateName", "") + "abcde",
    )
    seen: list[str] = []
    sets = []
    for index, job in enumerate(spec.get("replicatedJobs") or ()):
        where, inner = f"spec.replicatedJobs[{index}]", job["template"]["spec"]
        replicas, width, done = job.get("replicas", 1), inner.get("parallelism", 1), inner.get("completions")
        if index == 0 and job.get("dependsOn"):
            yield f"{where}: the first replicatedJob cannot depend on another"
        for other in job.get("dependsOn") or ():
            if other["name"] not in seen:
                yield f"{where}: depends on {other['name']}, which does not come before it"
        longest = f"{name}-{job['name']}-{replicas - 1}" + (f"-{done - 1}-abcde" if done else "")
        if len(longest) > 63 or not LABEL_1035.fullmatch(longest):
            yield f"{where}: pod name {longest} is longer than 63 characters or no DNS label"
        if inner.get("completionMode", "Indexed") == "Indexed" and done is None and "completionMode" in inner:
            yield f"{where}: an Indexed job needs completions"
        if inner["template"]["spec"].get("restartPolicy") == "Always":
            yield f"{where}: restartPolicy Always is not allowed in a job"
        metadata = inner["template"].get("metadata") or {}
        yield from topology(metadata, replicas * width, where)
        sets.append((metadata, replicas * width))
        seen.append(job["name"])
    for word in ("successPolicy",):
        for target in (spec.get(word) or {}).get("targetReplicatedJobs") or ():
            if target not in seen:
                yield f"spec.{word}: no replicatedJob {target}"
    if (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder" and any(
        job.get("dependsOn") for job in spec["replicatedJobs"]
    ):
        yield "spec: startupPolicy InOrder and dependsOn exclude each other"
    coordinator = spec.get("coordinator")
    if coordinator and coordinator["replicatedJob"] not in seen:
        yield f"spec.coordinator: no replicatedJob {coordinator['replicatedJob']}"
    if coordinator:
        pod = f"{name}-{coordinator['replicatedJob']}-{coordinator['jobIndex']}-{coordinator['podIndex']}"
        address = f"{pod}.{(spec.get('network') or {}).get('subdomain') or name}"
        if len(address) > 63:
            yield f"spec.coordinator: {address} has {len(address)} characters; a label has at most 63"
    yield from pod_set_groups(sets, "spec")


def leader_worker_set(document: dict) -> Iterator[str]:
    spec = document["spec"]
    template = spec["leaderWorkerTemplate"]
    size, policy = template.get("size", 1), template.get("subGroupPolicy")
    if not LABEL_1035.fullmatch(document["metadata"].get("name", "x")):
        yield "metadata.name: must be a DNS-1035 label"
    if size < 1 or spec.get("replicas", 1) < 0:
        yield "spec: replicas from 0, size from 1"
    if policy:
        part = policy.get("subGroupSize", 1)
        if part < 1 or part > size or (size % part and (size - 1) % part):
            yield f"spec.leaderWorkerTemplate.subGroupPolicy: {part} divides neither {size} nor {size - 1}"
    elif "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology" in (document["metadata"].get("annotations") or {}):
        yield "metadata.annotations: subgroup-exclusive-topology needs a subGroupPolicy"
    leader = template.get("leaderTemplate")
    workers = (template["workerTemplate"].get("metadata") or {}, size - 1 if leader else size)
    sets = [*([(leader.get("metadata") or {}, 1)] if leader else []), workers]
    for metadata, count in sets:
        yield from topology(metadata, count, "spec.leaderWorkerTemplate")
    yield from pod_set_groups(sets, "spec.leaderWorkerTemplate")


def by_rules(name: str, document: dict) -> Iterator[str]:
    metadata = document.get("metadata") or {}
    title = metadata.get("name")
    if title is None and "generateName" not in metadata:
        yield "metadata.name: missing"
    elif title is not None and (not NAME.fullmatch(str(title)) or len(title) > 253):
        yield f"metadata.name: {title!r} is no name"
    yield from general(document)
    group, kind = name.split("/")[0], name.split()[-1]
    spec = document.get("spec") or {}
    queued = "kueue.x-k8s.io/queue-name" in (metadata.get("labels") or {})
    if group == "ray.io" and kind in ("RayCluster", "RayJob"):
        most = 53 if kind == "RayCluster" else 47
        if title and (len(title) > most or not LABEL_1035.fullmatch(title)):
            yield f"metadata.name: at most {most} characters, a DNS-1035 label"
        inside = spec if kind == "RayCluster" else spec.get("rayClusterSpec")
        if kind == "RayJob" and not inside and not spec.get("clusterSelector"):
            yield "spec: one of rayClusterSpec or clusterSelector"
        if kind == "RayJob" and spec.get("ttlSecondsAfterFinished", 0) > 0 and not spec.get("shutdownAfterJobFinishes"):
            yield "spec: ttlSecondsAfterFinished needs shutdownAfterJobFinishes"
        if inside:
            elastic = (metadata.get("annotations") or {}).get("kueue.x-k8s.io/elastic-job") == "true"
            yield from ray_cluster(inside, queued, elastic, "spec" if kind == "RayCluster" else "spec.rayClusterSpec")
    elif not spec:
        return
    elif kind == "JobSet":
        yield from job_set(document)
    elif kind == "LeaderWorkerSet":
        yield from leader_worker_set(document)
    elif kind == "Topology" and group == "kueue.x-k8s.io":
        labels = [level["nodeLabel"] for level in spec["levels"]]
        if len(set(labels)) < len(labels) or "kubernetes.io/hostname" in labels[:-1]:
            yield "spec.levels: different labels, kubernetes.io/hostname only as the last"
    elif kind == "ResourceFlavor":
        if spec.get("topologyName") and not spec.get("nodeLabels"):
            yield "spec: a flavor with a topologyName needs nodeLabels"
    elif kind == "ClusterQueue":
        for index, part in enumerate(spec.get("resourceGroups") or ()):
            for flavor in part["flavors"]:
                if [r["name"] for r in flavor["resources"]] != part["coveredResources"]:
                    yield f"spec.resourceGroups[{index}]: {flavor['name']} must list the covered resources in their order"


def faults(document: dict) -> tuple[str, list[str]]:
    """The kind of a document, and what is wrong with it; a kind that nothing knows starts with `?`."""
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("apiVersion"), str)
        or not isinstance(document.get("kind"), str)
    ):
        return "?", ["apiVersion or kind is missing"]
    document = without_nulls(document)
    name = f"{document['apiVersion']} {document['kind']}"
    if name in CRDS["kinds"]:
        found = list(by_schema(name, document))
        return name, found or list(by_rules(name, document))
    return f"?{name}", []

"""The job of a batch script for Slurm: its components, what each asks for, and their lines in the head.

Source: Slurm 22.05 to 25.11 (SchedMD/slurm@284c3b95). ``src/common/slurm_opt.c`` resets some options for every later
component of a heterogeneous job (``reset_each_pass``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.launchers.groups import pod_groups
from rankplan.launchers.requests import Requests, level_order, requests
from rankplan.launchers.scripts import Head
from rankplan.launchers.slurm_options import repeated
from rankplan.nodes.facts import SLURM_NAME
from rankplan.nodes.node import NodeSpec

GPUS = ("NV_GPU", "AMD_GPU", "INTEL_GPU")
"""Types that Slurm counts as its resource ``gpu``."""
_SEGMENT, SEGMENT_WITH_HOSTS = (24, 5), (25, 11)
"""The releases that brought ``--segment``, and ``--segment`` together with ``--nodelist``."""
_MOST_COMPONENTS = 128
"""``MAX_HET_JOB_COMPONENTS`` in ``slurm.h``."""


@dataclass(slots=True)
class Component:
    """A component of a heterogeneous job, or the whole job: nodes with the same accelerators and segment."""

    nodes: list[int]
    accelerator_type: str
    num_accelerators: int
    segment: int | None


def job_components(draft: Draft) -> list[Component]:
    """Return the components of the job, by node rank."""
    groups = pod_groups(draft.plan)
    asked = requests(draft, [one.nodes for one in groups])
    job: list[Component] = []
    for group, wishes in zip(groups, asked, strict=True):
        segment = _segment(draft, wishes)
        component = Component(list(group.nodes), group.accelerator_type, group.num_accelerators, segment)
        if job and replace(job[-1], nodes=component.nodes) == component:
            job[-1].nodes += component.nodes
        else:
            job.append(component)
    _check_release(draft, job)
    if len(job) > _MOST_COMPONENTS:
        draft.refuse(faults.many_kinds(len(job), _MOST_COMPONENTS))
    return job


def _segment(draft: Draft, wishes: Requests) -> int | None:
    """Return the size of a segment. Slurm has one, on the level of its blocks."""
    if not wishes:
        return None
    levels = level_order(draft)
    blocks = draft.options.segment_level or (levels[-1] if levels else wishes[-1].level)
    other = next((one.level for one in wishes if one.level != blocks), None)
    if other is not None:
        draft.refuse(faults.second_segment_level(blocks, other, only=len(wishes) == 1))
        return None
    return wishes[-1].size


def _check_release(draft: Draft, job: Iterable[Component]) -> None:
    """Refuse segments for a release that lacks their option; without a stated release, only a new option is refused."""
    stated = draft.options.slurm_release
    stated_release = None if stated is None else release(stated)
    if all(component.segment is None for component in job):
        return
    option, needed = "--segment", _SEGMENT
    if draft.options.pin:
        option, needed = "--segment with --nodelist", SEGMENT_WITH_HOSTS
    elif stated_release is None:
        return
    if stated_release is None or stated_release < needed:
        draft.refuse(faults.old_slurm(option, needed, stated, pinned=draft.options.pin))


def release(text: str) -> tuple[int, int]:
    """Return a release of Slurm as numbers: ``24.05``. Raises ``ValueError``."""
    found = re.fullmatch(r"([0-9]{2})\.([0-9]{2})(\.[0-9]+)?", text)
    if found is None:
        raise ValueError(f"slurm release {text!r} is not a release such as 24.05")
    return int(found[1]), int(found[2])


def head_lines(draft: Draft, job: Sequence[Component], head: Head) -> Iterator[str]:
    """Yield the options of the job."""
    yield f"#SBATCH --job-name={draft.options.name}"
    types = {component.accelerator_type for component in job if component.num_accelerators}
    excluded = [] if draft.options.pin else _excluded(draft)
    for index, component in enumerate(job):
        if index:
            yield "#SBATCH hetjob"
            yield from repeated(head)
        yield f"#SBATCH --nodes={len(component.nodes)}"
        if component.num_accelerators:
            yield f"#SBATCH {_accelerators(draft, component, alone=len(types) == 1)}"
        needed = [draft.needed[node].cpus for node in component.nodes if node in draft.needed]
        cpus = ceil(max(needed, default=0))
        if cpus:
            yield f"#SBATCH --mincpus={cpus}"
        if component.segment is not None:
            yield f"#SBATCH --segment={component.segment}"
        yield "#SBATCH --exclusive"
        if excluded and not index:
            yield f"#SBATCH --exclude={','.join(excluded)}"
        if draft.options.pin:
            yield f"#SBATCH --nodelist={','.join(pinned_hosts(draft, component.nodes))}"


def _accelerators(draft: Draft, one: Component, *, alone: bool) -> str:
    kind, number = one.accelerator_type, one.num_accelerators
    key = draft.options.resource_keys.get(kind)
    if key is None and (kind not in GPUS or not alone):
        draft.refuse(faults.no_gres(kind, is_gpu=kind in GPUS))
    if key is None or key == "gpu":
        return f"--gpus-per-node={number}"
    if not re.fullmatch(r"[A-Za-z0-9_.:-]+", key):
        draft.refuse(faults.no_gres_name(key))
    if key.startswith("gpu:") or kind in GPUS:
        return f"--gpus-per-node={key.removeprefix('gpu:')}:{number}"
    return f"--gres={key}:{number}"


def _excluded(draft: Draft) -> list[str]:
    """Return the names of the nodes that must not be used."""
    inventory = draft.plan.inventory
    whole = (node for node, local in sorted(inventory.marks.items()) if local is None)
    names = (_slurm_name(inventory.node(node)) for node in whole)
    return [name for name in names if name is not None]


def pinned_hosts(draft: Draft, nodes: Iterable[int]) -> list[str]:
    """Return Slurm's names of nodes. Nodes without a name are a fault of the draft."""
    names = {node: _slurm_name(draft.plan.inventory.node(node)) for node in nodes}
    unnamed = [node for node, name in names.items() if not name]
    if unnamed:
        draft.refuse(faults.no_pinned_host(unnamed))
    return [name or "" for name in names.values()]


def _slurm_name(node: NodeSpec) -> str | None:
    """Return the name by which Slurm knows a node: its ``NodeName``, which may differ from its hostname."""
    return node.labels.get(SLURM_NAME) or node.hostname

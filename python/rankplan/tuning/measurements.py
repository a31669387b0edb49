"""Measurements of a run, and the costs file that they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rankplan.config.parallel import ParallelEntry
from rankplan.config.section import Reading
from rankplan.config.text.files import write_whole
from rankplan.config.text.load import load_config
from rankplan.config.text.reader import Reader
from rankplan.parallel import Parallel
from rankplan.plans.plan import Plan
from rankplan.tuning.costs import Costs
from rankplan.tuning.profile import batches_of
from rankplan.words import as_int

_STAGES = (
    ("env",),
    ("rollout", "generation", "actor_infer"),
    ("inference", "reference", "ref", "reward", "reward_model", "teacher"),
    ("actor", "actor_train", "policy", "critic", "value"),
)
"""The roles of RL trainers in the order of an iteration: each needs the results of the stage before it."""


@dataclass(frozen=True)
class Measurement:
    """Seconds of one iteration of a component on a number of accelerators.

    ``memory`` is the most memory that it had on an accelerator at once, in bytes; ``None``: unknown.
    """

    accelerators: int
    seconds: float
    parallel: Parallel
    memory: int | None = None


@dataclass(frozen=True)
class Run:
    """What a run tells about an iteration: ``after`` and ``batches`` as in `Costs`.

    ``memory`` is that of the smallest accelerator, in MiB; ``None``: unknown.
    ``unknown`` are the components whose roles are unknown, so that ``after`` does not have them.
    """

    after: Mapping[str, list[str]]
    unknown: tuple[str, ...]
    batches: int
    memory: int | None

    @classmethod
    def of(cls, plan: Plan, reader: Reader | None) -> Run:
        """Return what a plan and its config tell: the order of the roles, and the micro-batches of RLinf's configs."""
        stages = {name: _stage(name) for name in plan}
        known = sorted({stage for stage in stages.values() if stage is not None})
        after = {}
        for name, stage in stages.items():
            earlier = [one for one in known if stage is not None and one < stage]
            if earlier:
                after[name] = [other for other, its in stages.items() if its == earlier[-1]]
        unknown = tuple(name for name, stage in stages.items() if stage is None) if len(plan) > 1 else ()
        batches = batches_of(reader, plan) if isinstance(reader, Reading) else None
        return cls(after, unknown, batches or 1, _smallest(plan))


def _stage(name: str) -> int | None:
    """Return the stage of a role, also of one of its parts such as ``rollout_planner``."""
    for stage, roles in enumerate(_STAGES):
        if name in roles:
            return stage
    parts = (stage for stage, roles in enumerate(_STAGES) if name.startswith(tuple(f"{one}_" for one in roles)))
    return next(parts, None)


def _smallest(plan: Plan) -> int | None:
    """Return the memory of the smallest accelerator of a plan's nodes, ``None`` unless all are known."""
    devices = [(record.devices, record.num_accelerators) for _, record in plan.inventory.stretches()]
    found = [device.memory for facts, _ in devices for device in facts]
    complete = len(found) == sum(count for _, count in devices)
    return min((size for size in found if size is not None), default=None) if complete and None not in found else None


def peak(plan: Plan, name: str, ranks: Iterable[int | None]) -> int | None:
    """Return the most bytes that the processes of a component had on an accelerator, given the most of each rank."""
    used: dict[tuple[int, int], int] = {}
    for row, size in zip(plan[name], ranks, strict=True):
        for device in row.devices if size is not None else ():
            used[device] = used.get(device, 0) + (size or 0)
    return max(used.values(), default=None)


def add_measurements(path: Path, found: Mapping[str, Measurement], run: Run) -> None:
    """Add measurements to a costs file, which is created if it does not exist; comments in it are lost.

    A number that was measured before is replaced; whatever else the file states about an iteration stays. Memory is in
    GiB. Raises `PlacementError` if the file has faults, ``OSError``.
    """
    content: dict[str, Any] = {"batches": run.batches, "after": dict(run.after)}
    if run.memory is not None:
        content["memory"] = _rounded(run.memory / 2**10)
    if path.exists():
        Costs.load(path)
        content |= load_config(path).to_dict()
    components = content.setdefault("components", {})
    content["components"] = content.pop("components")  # last, as in the guide
    for name, one in found.items():
        entry = components.setdefault(name, {})
        _add(entry, "seconds", one.accelerators, one.seconds)
        if one.memory is not None:
            _add(entry, "memory", one.accelerators, one.memory / 2**30)
        if one.parallel.stated:
            sizes = ParallelEntry.plain(one.parallel)
            entry.setdefault("parallel", {key: size for key, size in sizes.items() if key != "dp"})
    if not content["after"]:
        del content["after"]
    write_whole(path, yaml.safe_dump(content, sort_keys=False, default_flow_style=None))


def _add(entry: dict[str, Any], key: str, accelerators: int, value: float) -> None:
    """Add a number to the points of an entry; a number for all sizes makes way for measured ones."""
    stated = entry.get(key)
    points = {as_int(size) or int(size): known for size, known in stated.items()} if isinstance(stated, dict) else {}
    entry[key] = dict(sorted({**points, accelerators: _rounded(value)}.items()))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")

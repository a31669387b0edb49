"""`check`, `plan` and `tune` take a config of any dialect, as the commands of these names do.

`rankplan.arrange`, `replan`, `diff`, `convert` and `launch` take the plan; they live in the rooms that do the work.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rankplan.errors import Diagnostic, PlacementError
from rankplan.front import faults
from rankplan.front.job import (
    Config,
    Job,
    Nodes,
    inventory_from,
    is_saved,
    job_file_of,
    name_of,
    opened,
    read_job,
    saved_file,
    saved_plan,
)
from rankplan.front.memory import UsedMemory, needs_of, peaks_of
from rankplan.front.warnings import changed_job, saved_warnings, unknown_amounts
from rankplan.hardware.cards import size_in_bytes
from rankplan.plans.plan import Plan
from rankplan.plans.requests import Request
from rankplan.read.read_config import ReadConfig
from rankplan.read.sources import Planned, Sources
from rankplan.read.text.reader import Reader
from rankplan.render.report import Report

if TYPE_CHECKING:
    from rankplan.memory.need import Measured
    from rankplan.memory.needs import Needs
    from rankplan.tuning.costs import Costs
    from rankplan.tuning.search import Tuning
    from rankplan.tuning.splits import AsyncTuning


def check(
    config: Config,
    nodes: Nodes | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
    memory: bool = False,
    model: str | None = None,
    reserve: float | str | None = None,
    costs: Costs | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    measured: Sequence[str] = (),
    verbose: bool = False,
) -> Report:
    """Find every fault and warning of a config, as ``rankplan check`` does. See `plan` for the arguments.

    ``verbose`` reports values that are known only at run time also if they decide no placement.
    ``memory`` tells what each phase needs, too. ``model`` is the name, or the path, of the model of components whose
    own is unknown. ``reserve`` is what other programs use of each accelerator, in bytes or as a text (``"2 GiB"``), and
    ``costs`` may have measured peaks, as `tune` takes them. ``measured`` are texts such as ``actor.train=57GiB``, or
    the path of a trainer's log: what the allocator held at the peak of a phase takes the place of the likely value.

    Raises ``OSError`` if a file cannot be read, ``ValueError`` for an unknown dialect or a reserve that is no size.
    """
    job: Job | None = None
    needs: Needs | None = None
    read = ReadConfig(Reader({}))
    sources = Sources()
    reserved = 0.0 if reserve is None else size_in_bytes(reserve)
    peaks = peaks_of(costs)
    name = name_of(config)
    try:
        config = opened(config)
        used = UsedMemory(None if reserve is None else reserved, peaks, _measured(measured))
        used = used.or_stated(job_file_of(config))
        plan = saved_plan(config, nodes, dialect, overrides, without)
        if plan is None:
            job = read_job(config, nodes, dialect=dialect, overrides=overrides, without=without, model=model)
            read = job.config
            job.announce()
            plan, sources = job.kept()
        needs = needs_of(Planned(plan, sources), used, always=memory)
        warnings: tuple[Diagnostic, ...]
        if job is None:
            warnings = (*saved_warnings(plan, needs, name), *changed_job(plan, saved_file(config)))
        else:
            warnings = tuple(job.warnings(Planned(plan, sources), needs))
        if memory and needs is not None:
            from rankplan.front.unknown_memory import unknown_memory

            warnings += unknown_memory(needs, read.reader, sources)
    except PlacementError as error:
        plan = None
        warnings = error.diagnostics
    is_stated = job is not None and job.labelled
    unchecked = None if plan is None else unknown_amounts(plan, is_stated=is_stated)
    deciding = [warning for warning in read.reader.warnings if verbose or read.decides(warning)]
    omitted = len(read.reader.warnings) - len(deciding)
    shown = needs if memory else None
    diagnostics = (*(warning for warning in deciding if warning not in warnings), *warnings)
    return Report(name, plan, diagnostics, omitted, shown, unchecked)


def _measured(texts: Sequence[str]) -> Measured | None:
    if not texts:
        return None
    from rankplan.memory.measured import read_measured  # most checks have nothing measured

    return read_measured(texts)


def plan(
    config: Config,
    nodes: Nodes | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
    isolate: bool | None = None,
    pinned: bool = False,
    model: str | None = None,
) -> Plan:
    """Return the plan of a config, as ``rankplan plan`` does.

    ``config`` is a path, a mapping, or a plan. ``nodes`` is a size (``"2x8"``), an inventory or the path of one, or a
    cluster; by default every node has as many accelerators as the config states, or 8, which is logged. A saved plan
    has its own nodes. ``dialect`` is detected from the keys. ``overrides`` change values of a file:
    ``["trainer.nnodes=2"]``. ``without`` names hardware that must not be used: see `Inventory.without`. ``isolate``
    tells whether a process sees only its own accelerators (by default as saved, else yes).

    A plan may need more memory than there is, and ``rankplan plan`` refuses it: see `check`, also for ``model``.
    A plan predicts where a trainer puts the processes that it starts. With ``pinned``, it is the plan to bind them to:
    nodes are in the order of addresses that the trainer sorts them in, and groups and engines on one node if they fit.
    On a `Cluster` too, or on that of a job file, it is what `pin` would bind now: what other jobs hold is left out.

    Raises `PlacementError` with every fault, ``OSError`` if a file cannot be read, ``ValueError`` for an unknown
    dialect, or options that a saved plan does not take.
    """
    config = opened(config)
    if (saved := saved_plan(config, nodes, dialect, overrides, without)) is not None:
        if pinned or model is not None:
            raise ValueError(f"{name_of(config)} is a plan with its own values; pinned and model apply to configs")
        return saved if isolate is None else saved.with_visibility("own" if isolate else "node")
    if pinned:
        from rankplan.front.to_pin import job_to_pin  # most plans are predictions

        to_pin = job_to_pin(config, nodes, dialect=dialect, overrides=overrides, model=model)
        if to_pin is not None:
            return to_pin.planned(without, isolate=isolate, fitting=False).plan
    job = read_job(config, nodes, dialect=dialect, overrides=overrides, without=without, model=model)
    return job.announced(isolate=isolate, pinned=pinned, fitting=False).plan


def requests(
    config: Config,
    nodes: Nodes | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
    pinned: bool = False,
) -> Sequence[Request]:
    """Return the placement groups that a trainer will ask Ray for, in order, with the nodes of the plan.

    RLinf asks for none, and an older saved plan does not know them. Arguments and errors are those of `plan`.
    """
    return plan(config, nodes, dialect=dialect, overrides=overrides, without=without, pinned=pinned).requests


def tune(
    costs: Costs | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    nodes: Nodes | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
    extrapolate: bool = False,
    present: Plan | None = None,
    lend: bool = False,
    model: str | None = None,
) -> Tuning:
    """Find the placement with the shortest iteration, as ``rankplan tune`` does.

    ``costs`` is a mapping like ``costs.yaml`` (see `Costs.from_dict`), its path, or `Costs`; without it, the config has
    the times, as ``profile_data``. The parallel sizes of the config count where the costs state none; if it is RLinf's
    or rankplan's own, its sections decide which placements are valid. ``extrapolate`` allows times far from every
    measured size. Of equally fast placements, the one with fewer accelerators wins, then with fewer groups across
    nodes, then with fewer moves from the ``present`` plan. ``lend`` also ranks placements whose trainer lends its
    accelerators to the rollout while it waits, on the terms that the costs state under ``lend``. ``model`` is the name,
    or the path, of the model of components whose own is unknown. See `plan` for the other arguments.

    The answer is exact under the model, which the guide "Which placement is fastest?" states. Raises `PlacementError`
    with every fault, or (``no-schedule``) if no placement fits, and ``ValueError`` without a config if the costs or the
    nodes are missing, too.
    """
    from rankplan.tuning.search import costs_for, read_costs, search  # most programs never tune

    read = None if costs is None else read_costs(costs)
    if read is not None and read.asynchronous is not None:
        raise ValueError("these costs are of an asynchronous run: call rankplan.tune_async")
    if read is not None:
        read.check_timed()
    if config is None:
        if read is None or nodes is None:
            raise ValueError("pass a config, or costs and nodes")
        inventory = inventory_from(nodes).without(without)
        return search(read, inventory, extrapolate=extrapolate, present=present, lend=lend)
    config = opened(config)
    if not isinstance(config, Mapping) and is_saved(config):
        raise PlacementError([faults.not_a_config(name_of(config))])
    job = read_job(config, nodes, dialect=dialect, overrides=overrides, without=without, model=model)
    job.announce()
    job.reader.fork().finish()
    read, memory = costs_for(read, job.config, job.dialect, job.inventory, job.name)
    if job.stated is not None:
        from rankplan.jobs.joining import reject_tuned_groups  # most jobs that are tuned have no job file

        reject_tuned_groups(job.stated)
    finish = None if job.stated is None else job.with_stated_rules
    return search(
        read,
        job.inventory,
        job.config,
        extrapolate=extrapolate,
        present=present,
        lend=lend,
        model=_model_for_unknown(model, job),
        memory=memory,
        finish=finish,
    )


def _model_for_unknown(passed: str | os.PathLike[str] | None, job: Job) -> str | None:
    """Return the model of components whose own is unknown: the passed one, or that of the job file."""
    if passed is not None:
        return os.fspath(passed)
    return None if job.stated is None else job.stated.memory.model


def tune_async(
    costs: Costs | Mapping[str, Any] | str | os.PathLike[str],
    nodes: Nodes | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
    extrapolate: bool = False,
) -> AsyncTuning:
    """Tell how long a step takes on each split of the accelerators, as ``rankplan tune`` does for asynchronous runs.

    ``costs`` have ``async`` and ``runs``: the terms of the run, and the steps that were measured. Each row says how it
    is known; a guess has a range, and guesses are not ranked. The parallel sizes of the config count where the costs
    state none. ``extrapolate`` admits splits with far fewer or more accelerators than every run. See `plan` for the
    other arguments.

    The guide "How long is an asynchronous step?" states the model and its errors. Raises `PlacementError` with every
    fault, and ``ValueError`` without a config if the nodes are missing, too.
    """
    from rankplan.tuning.search import read_costs, with_parallel  # most programs never tune
    from rankplan.tuning.splits import search_splits

    read = read_costs(costs)
    if config is None:
        if nodes is None:
            raise ValueError("pass a config or nodes")
        return search_splits(read, inventory_from(nodes).without(without), extrapolate=extrapolate)
    config = opened(config)
    if not isinstance(config, Mapping) and is_saved(config):
        raise PlacementError([faults.not_a_config(name_of(config))])
    job = read_job(config, nodes, dialect=dialect, overrides=overrides, without=without)
    job.announce()
    job.reader.fork().finish()
    planned = job.dialect.plan(job.config, job.inventory)
    return search_splits(with_parallel(read, planned), job.inventory, extrapolate=extrapolate)

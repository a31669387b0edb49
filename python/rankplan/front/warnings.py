"""The faults of a plan and the warnings of `check` about it, with their places in its config."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankplan._core import Chunks
from rankplan.dialects import resembled
from rankplan.errors import Diagnostic, PlacementError, refusal
from rankplan.files import read_whole
from rankplan.front import faults
from rankplan.front.memory import UsedMemory, needs_of
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import SIZE
from rankplan.plans.component import PlacementMode, reserves
from rankplan.plans.plan import Plan
from rankplan.read.sources import Planned, Sources
from rankplan.read.text.reader import Reader

if TYPE_CHECKING:
    from rankplan.jobs.reader import JobFile
    from rankplan.memory.needs import Needs


def reject_crossings(plan: Plan, *, labelled: bool, cluster: Inventory) -> None:
    """Raise `PlacementError` if the plan breaks its rules, with the place of each.

    Unless the labels of the nodes are known, only the level ``node`` is checked. ``cluster``: see `Plan.rule_faults`.
    """
    if broken := plan.rule_faults(labelled=labelled, cluster=cluster):
        raise refusal(list(dict.fromkeys(broken)))


def reject_unreservable(planned: Planned, reader: Reader, stated: JobFile | None = None, *, pinned: bool) -> None:
    """Raise `PlacementError` if the trainer, or a process, asks Ray for what the nodes can never reserve.

    See `reservation_faults` and `process_faults`. ``stated`` is the job file, which may state what processes reserve.
    """
    plan = planned.plan
    if any(map(reserves, plan.values())):
        from rankplan.plans.process_reserving import process_faults  # few components reserve anything

        found = []
        for name, setting, fault in process_faults(plan.inventory, plan.values()):
            path = (*planned.sources.entries.get(name, ()), setting)
            if stated is not None and stated.states(setting) and not reader.has(path):
                found.append(stated.where(setting).locate(fault))
            else:
                found.append(reader.located(path if reader.has(path) else (), fault))
        if found:
            raise refusal(found)
    if plan.lacking():
        from rankplan.plans.reserving import reservation_faults  # most plans lack nothing

        lacking = reservation_faults(plan, bound=pinned)
        if lacking:
            raise refusal([reader.located((), fault) for fault in lacking])


def reservation_warnings(plan: Plan, reader: Reader) -> Iterator[Diagnostic]:
    """Yield what cannot be reserved on the nodes of a plan, though Ray may find others."""
    if plan.lacking():
        from rankplan.plans import reserving

        yield from (reader.located((), warning) for warning in reserving.reservation_warnings(plan))


def unknown_amounts(plan: Plan, *, is_stated: bool) -> str | None:
    """Return a line on CPUs and memory that the job reserves on nodes that do not state them; ``None`` for no such job.

    ``is_stated``: the user states the nodes one by one. Nothing is said of a size, which states no facts at all.
    """
    records = [record for _, record in plan.inventory.stretches()]
    is_stated = is_stated or any(record.cpus is not None for record in records)
    is_known = all(None not in (record.cpus, record.reservable_memory) for record in records)
    if not is_stated or is_known or not (plan.requests or any(map(reserves, plan.values()))):
        return None
    from rankplan.plans.unknown_amounts import unknown_line  # few plans reserve what nodes do not state

    return unknown_line(plan)


def plan_warnings(planned: Planned, needs: Needs | None, reader: Reader) -> Iterator[Diagnostic]:
    """Yield the warnings about the memory and the groups of a plan. Raises `PlacementError` for its faults.

    ``needs`` is ``None`` if no component states its memory.
    """
    reject_unfit(planned, needs, reader)
    if needs is not None:
        from rankplan.memory.verdicts import memory_warnings
        from rankplan.read.memory_places import located

        yield from (located(reader, planned.sources, name, found) for name, found in memory_warnings(needs))
    yield from group_warnings(planned, reader)


def reject_unfit(planned: Planned, needs: Needs | None, reader: Reader) -> None:
    """Raise `PlacementError` for components that cannot fit into memory, and for weights without a sender."""
    if needs is not None:
        from rankplan.read.memory_places import reject_memory

        reject_memory(needs, reader, planned.sources)
    _reject_senderless(planned, reader)


def reject_saved(plan: Plan, stated: JobFile | None = None) -> None:
    """Raise `PlacementError` for the faults of a saved plan; ``stated`` is the job file that names it."""
    _reject_broken(plan)
    planned = Planned(plan, Sources())
    reject_unfit(planned, needs_of(planned, UsedMemory().or_stated(stated)), Reader({}))


def _reject_broken(plan: Plan) -> None:
    """Raise `PlacementError` for shares and rules of a saved plan, and for what its nodes can never reserve."""
    plan.check_shares()
    plan.check_keep()
    reject_unreservable(Planned(plan, Sources()), Reader({}), pinned=False)


def saved_warnings(plan: Plan, needs: Needs | None, name: str) -> Iterator[Diagnostic]:
    """Yield the warnings about a saved plan. Raises `PlacementError` for its faults."""
    _reject_broken(plan)
    no_config = Reader({})
    yield from reservation_warnings(plan, no_config)
    yield from plan_warnings(Planned(plan, Sources()), needs, no_config)
    yield from plan.rule_warnings()
    yield from idle_warnings(plan, plan.inventory, name, states_nodes=False)


def changed_job(plan: Plan, file: str | None) -> Iterator[Diagnostic]:
    """Yield a warning if the trainer's file beside a saved plan is not the one that the plan was made from."""
    job = plan.job
    if file is None or job is None or job.file is None or job.digest is None:
        return
    present = Path(file).with_name(job.file)
    if present.is_file():
        from hashlib import sha256  # few plans know a file

        if sha256(read_whole(present)).hexdigest() != job.digest:
            yield faults.job_changed(str(present), file)


def reject_empty(plan: Plan, reader: Reader) -> None:
    """Raise `PlacementError` if nothing is placed; it names the system that the config looks written for."""
    if plan:
        return
    config: Any = reader.content
    cluster = config.get("cluster")
    name = resembled({**config, **(cluster if isinstance(cluster, Mapping) else {})})
    help = "add components: `component_placement: {actor: 0-7}`"
    if "defaults" in config:
        from rankplan.read.text.hydra import compose

        help = compose(config)
    if name is not None:
        help = f"this looks like a config of {name}; pass --dialect {name}"
    path = ("cluster",) if "cluster" in config else ()
    raise PlacementError([reader.located(path, faults.no_components(help))])


def _reject_senderless(planned: Planned, reader: Reader) -> None:
    """Raise `PlacementError` for weights without a sender, at the tensor size of the receiver.

    Only RLinf's modes need one: RLinf sends weights slot by slot, other trainers gather whole tensors first.
    """
    if planned.plan.mode not in (None, PlacementMode.HYBRID):
        from rankplan.plans.weights import senderless

        located = []
        for name, fault in senderless(planned.plan):
            sizes = planned.sources.sizes_of(name, reader.where(()))
            tensor = sizes.keys.get("tp", (*sizes.path, "tp"))
            located.append(reader.located(tensor if reader.has(tensor) else sizes.path, fault))
        if located:
            raise PlacementError(located)


def group_warnings(planned: Planned, reader: Reader) -> Iterator[Diagnostic]:
    """Yield warnings about parallel groups, at the sizes of their components."""
    for name, component in planned.plan.items():
        for warning in component.parallel_warnings():
            kinds = [kind for kind, _ in re.findall(SIZE, warning.message)]
            yield planned.sources.sizes_of(name, reader.where(())).place(kinds).locate(warning)


def idle_warnings(plan: Plan, inventory: Inventory, file: str, *, states_nodes: bool) -> Iterator[Diagnostic]:
    """Yield warnings about unused nodes and, where the config names its accelerators, about those that it leaves.

    ``states_nodes``: the config states the number of its nodes, as RLinf's do.
    Other trainers take as many as their sizes say, from the nodes that they get.
    """
    if inventory.num_nodes > plan.inventory.num_nodes:
        yield faults.idle_nodes(plan.inventory.num_nodes, inventory.num_nodes, file, states_nodes=states_nodes)
    names_accelerators = any(not isinstance(component.rule, Chunks) for component in plan.values())
    if names_accelerators and (idle := plan.idle()):
        usable = plan.inventory.core.accelerators() - plan.inventory.excluded_accelerators
        yield faults.idle_accelerators(idle, len(usable), file)

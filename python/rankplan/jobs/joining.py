"""What a job file adds to an inventory, and to the rules of a plan."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from rankplan.arranging.rules import beside
from rankplan.errors import Diagnostic, KeyPath, PlacementError, Where, refusal
from rankplan.files import read_whole
from rankplan.hardware.cards import card_of, may_be_same, unknown_card
from rankplan.jobs import faults
from rankplan.jobs.keys import KEYS, NAMING_RANKS, OF_PROCESSES, SETTINGS
from rankplan.jobs.reader import JobFile
from rankplan.jobs.recognising import JOB
from rankplan.nodes.facts import NO_FACTS, ClusterFacts
from rankplan.nodes.inventory import Inventory, configured
from rankplan.plans.component import USUAL_SETTINGS, Component
from rankplan.plans.model import Model
from rankplan.plans.plan import Plan
from rankplan.plans.plan_job import PlanJob
from rankplan.plans.pool_rules import stated_pool_faults
from rankplan.plans.rules import TOPOLOGY_RULES, Rules, with_named_levels
from rankplan.read.text.load import SCRIPTS


def with_stated(inventory: Inventory, job: JobFile) -> Inventory:
    """Return the nodes of a job with what its file states of them, and without those of the jobs beside it.

    Raises `PlacementError` with every fault, ``OSError`` for a plan that cannot be read.
    """
    inventory = _with_card(inventory, job)
    if job.beside:
        inventory = beside(inventory, [_other_plan(job, index) for index in range(len(job.beside))])
    if not job.cluster:
        return inventory
    facts = with_named_levels(job.facts(inventory.num_nodes), job.rules, inventory)
    found, unfit = configured(inventory, inventory.with_groups_added(facts, inventory.num_nodes), inventory.num_nodes)
    if unfit:
        raise refusal([_placed(job, path, fault) for path, fault in unfit])
    # A dialect that reads facts of its own takes the place of these, but for the levels of the inventory.
    return found if facts.levels is None else found.with_levels(facts.levels)


def _placed(job: JobFile, path: KeyPath, fault: Diagnostic) -> Diagnostic:
    """Return a fault of the facts of a job file at the place of what it states."""
    where = job.where("topology", *path) if path[0] == "levels" else job.where(*path)
    return where.locate(fault)


def _other_plan(job: JobFile, index: int) -> Plan:
    """Return the plan of another job. Raises `PlacementError` if it cannot be read, at the place of its path."""
    path = job.beside[index]
    try:
        return Plan.load(path)
    except OSError as error:
        fault = faults.no_file("beside", path, error.strerror or str(error))
        raise PlacementError([job.where("beside", index).locate(fault)]) from None


def _with_card(inventory: Inventory, job: JobFile) -> Inventory:
    """Return the nodes with the accelerator model of a job file, which an inventory must not contradict."""
    model = job.memory.accelerator
    if model is None:
        return inventory
    place = job.where("memory", "accelerator")
    if card_of(model) is None:
        raise PlacementError([place.locate(unknown_card(model))])
    records = []
    for record in inventory.core.entries():
        present = record.accelerator_model
        if present is not None and not may_be_same(model, present):
            raise PlacementError([place.locate(faults.other_card(model, present))])
        needs_model = present is None and record.num_accelerators
        records.append(record.changed(accelerator_model=model) if needs_model else record)
    return inventory.updated(records)


def with_rules(plan: Plan, job: JobFile, overrides: Sequence[str]) -> Plan:
    """Return a plan with the rules and the settings of a job file added to its own. Raises as `joined` does.

    ``overrides`` are all those of the config.
    """
    settings = {key: getattr(job, key) for key in SETTINGS if getattr(job, key) is not None}
    components = list(plan.values())
    if settings:
        components = [component.with_settings(**_unstated(component, settings)) for component in components]
    rules = joined(plan.rules, job) if job.cluster else plan.rules
    inventory = _with_levels(plan.inventory, rules)
    if job.environment:
        inventory = inventory.with_facts(_with_environment(inventory.facts or NO_FACTS, job), planned=True)
    if inventory is not plan.inventory:
        components = [component.with_facts_of(inventory) for component in components]
    kept = _kept(job, overrides, plan)
    return Plan(inventory, components, plan.mode, plan.dialect, plan.requests, rules, kept, plan.actors)


def _with_environment(facts: ClusterFacts, job: JobFile) -> ClusterFacts:
    return replace(facts, environment={**facts.environment, **job.environment})


def passed_model(name: str | os.PathLike[str]) -> Model:
    """Return a model for components whose own is unknown. Raises `PlacementError` for an unknown one, ``OSError``."""
    try:
        return Model.of(name)
    except PlacementError as error:
        from rankplan.dialects.memory import faults as model_faults

        raise PlacementError([model_faults.passed_model(fault) for fault in error.diagnostics]) from None


def model_of(job: JobFile) -> Model | None:
    """Return the model of components whose own is unknown. Raises `PlacementError` for an unknown one."""
    name = job.memory.model
    if name is None:
        return None
    try:
        return passed_model(name)
    except PlacementError as error:
        place = job.where("memory", "model")
        raise PlacementError([place.locate(fault) for fault in error.diagnostics]) from None
    except OSError as error:
        fault = faults.no_file("model", name, error.strerror or str(error))
        raise PlacementError([job.where("memory", "model").locate(fault)]) from None


def _with_levels(inventory: Inventory, rules: Rules) -> Inventory:
    """Return the nodes of a plan with their levels as facts, if rules depend on them: see `with_named_levels`."""
    facts = inventory.facts or NO_FACTS
    named = with_named_levels(facts, rules, inventory)
    return inventory if named is facts else inventory.with_facts(named, planned=True)


def _unstated(component: Component, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a component does not state itself."""
    return {key: value for key, value in settings.items() if getattr(component, key) == getattr(USUAL_SETTINGS, key)}


def on_plan(plan: Plan, job: JobFile) -> Plan:
    """Return a saved plan with the rules that a job file states in place of its own, by their keys.

    Raises `PlacementError` for keys that a plan does not take.
    """
    _check_keys_of_plan(job)
    inventory = _with_card(plan.inventory, job)
    if job.beside:
        inventory = beside(inventory, [_other_plan(job, index) for index in range(len(job.beside))])
    plan = plan.with_job(_kept_by_plan(plan.job, job))
    if not job.cluster:
        return plan if inventory is plan.inventory else plan.on(inventory)
    levels = job.facts(inventory.num_nodes).levels
    if levels is not None:
        inventory = inventory.with_facts(replace(inventory.facts or NO_FACTS, levels=levels))
    components = [component.on(inventory) for component in plan.values()]
    return plan.placed(inventory, components, _with_replaced(plan.rules, job))


def _check_keys_of_plan(job: JobFile) -> None:
    """Raise `PlacementError` for keys that a saved plan does not take."""
    if job.memory.model is not None:
        fault = faults.of_saved_plan("memory.model", job.job)
        raise PlacementError([job.where("memory", "model").locate(fault)])
    wrong = [key for key in KEYS if job.states(key) and not KEYS[key].of_plan]
    if wrong:
        raise PlacementError([job.key_place(key).locate(faults.of_saved_plan(key, job.job)) for key in wrong])


def _with_replaced(rules: Rules, job: JobFile) -> Rules:
    """Return the rules of a plan with those that a job file states in their place, by their keys; pools stay."""
    values: dict[str, Any] = {}
    for key in TOPOLOGY_RULES:
        values[key] = getattr(job.rules if job.states("topology", key) else rules, key)
    places = {path: where for path, where in rules.places.items() if not job.states("topology", path[0])}
    return Rules(**values, pools=rules.pools, places={**places, **job.rules.places})


def _kept(job: JobFile, overrides: Sequence[str], plan: Plan) -> PlanJob:
    """Return what the plan of a config keeps of its job file, the overrides of the config, and its own commands.

    The command of a trainer that starts itself is that of its script, if the file states none.
    """
    file = Path(job.job)
    is_file = file.is_file()
    digest = sha256(read_whole(file)).hexdigest() if is_file else None
    command = job.command
    if command is None and plan.dialect is not None and is_file and job.job.endswith(SCRIPTS):
        from rankplan.jobs.command import own_command  # it reads a script as bash does

        with suppress(PlacementError):  # `emit` and `pin` report it
            command = own_command(job.job, str(job.reader.at((JOB,))), overrides, system=plan.dialect)
    name = file.name if is_file else None
    commands = () if plan.job is None else plan.job.commands
    return PlanJob(name, digest, tuple(map(str, overrides)), command, dict(job.emit), commands)


def _kept_by_plan(before: PlanJob | None, job: JobFile) -> PlanJob:
    """Return what a saved plan keeps of a job file that names it, and of the one that it was made from."""
    before = before or PlanJob()
    command = before.command if job.command is None else job.command
    return replace(before, command=command, emit={**before.emit, **job.emit})


def check_plan(plan: Plan, job: JobFile) -> None:
    """Raise `PlacementError` for pools and node groups of a job file that its plan contradicts."""
    inventory = plan.inventory
    if job.cluster.keys().isdisjoint(NAMING_RANKS):
        return
    pools = dict(enumerate(job.rules.pools))
    found = [
        job.where("pools", *path).locate(fault)
        for path, fault in stated_pool_faults(pools, (), inventory.num_nodes, list(plan))
    ]
    found += _unknown_grouped(plan, job)
    own = {group.label: group for group in (inventory.facts or NO_FACTS).node_groups}
    same = {rank: rank for rank in range(inventory.num_nodes)}
    for index, stated in enumerate(job.facts(inventory.num_nodes).node_groups):
        other = own.get(stated.label)
        # A trainer that counts its nodes keeps those of a group that it counts.
        if other is not None and other not in (stated, stated.renumbered(same)):
            fault = faults.other_group(stated.label, stated.node_ranks, other.node_ranks)
            found.append(job.where("node_groups", index).locate(fault))
    if found:
        raise refusal(found)


def reject_tuned_groups(job: JobFile) -> None:
    """Raise `PlacementError` for components of node groups, which a search for the fastest placement does not keep."""
    if job.groups:
        raise refusal(
            [group.where.locate(faults.tuned_groups(name, group.label)) for name, group in job.groups.items()]
        )


def check_grouped(components: Collection[str], job: JobFile) -> None:
    """Raise `PlacementError` if a node group names a component that is not one of these."""
    unknown = list(_unknown_grouped(components, job))
    if unknown:
        raise refusal(unknown)


def _unknown_grouped(components: Collection[str], job: JobFile) -> Iterator[Diagnostic]:
    for name, group in job.groups.items():
        if name not in components:
            yield group.where.locate(faults.unknown_grouped(name, components))


def check_processes(job: JobFile, system: str | None) -> None:
    """Raise `PlacementError` for keys about processes, if a system starts its own."""
    stated = [key for key in OF_PROCESSES if job.states(key)]
    if system is not None and stated:
        raise PlacementError([job.key_place(key).locate(faults.of_started_processes(key, system)) for key in stated])


def joined(own: Rules, job: JobFile) -> Rules:
    """Return the rules of a trainer's config and those of its job file. Equal statements are no conflict.

    Raises `PlacementError` (``job-conflict``) for two values of one rule, at both places.
    """
    stated = job.rules
    conflicts: list[Diagnostic] = []
    values: dict[str, Any] = {}
    for key in TOPOLOGY_RULES:
        ours, theirs = getattr(own, key), getattr(stated, key)
        values[key] = _joined(ours, theirs, (key,), own, stated, conflicts)
    pools = list(own.pools)
    names = [pool.name for pool in own.pools]
    for index, pool in enumerate(stated.pools):
        if pool.name not in names:
            pools.append(pool)
            continue
        own_index = names.index(pool.name)
        own_pool = own.pools[own_index]
        if own_pool != pool:
            here = stated.where("pools", index)
            there = own.where("pools", own_index)
            conflicts += _both(f"pools.{pool.name}", (pool.plain(), here), (own_pool.plain(), there))
    if conflicts:
        raise refusal(conflicts)
    return Rules(**values, pools=tuple(pools), places={**own.places, **stated.places})


def _joined(ours: Any, theirs: Any, path: KeyPath, own: Rules, stated: Rules, conflicts: list[Diagnostic]) -> Any:
    """Return two values of a rule as one, key by key."""
    if theirs in (None, {}):
        return ours
    if ours in (None, {}) or ours == theirs:
        return theirs
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        values = dict(ours)
        for key, value in theirs.items():
            values[key] = _joined(ours.get(key), value, (*path, key), own, stated, conflicts)
        return values
    name = ".".join(map(str, path))
    conflicts += _both(name, (theirs, stated.where(*path)), (ours, own.where(*path)))
    return ours


def _both(path: str, one: tuple[Any, Where], other: tuple[Any, Where]) -> Iterator[Diagnostic]:
    """Yield the fault of two values at the place of each."""
    yield one[1].locate(faults.two_values(path, one[0], other[0], other[1]))
    yield other[1].locate(faults.two_values(path, other[0], one[0], one[1]))

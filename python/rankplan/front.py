"""The front door: `check`, `plan` and `tune` take a config of any dialect, as the commands of these names do.

`rankplan.arrange`, `replan`, `diff`, `convert` and `launch` take the plan; they live in the rooms that do the
work.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rankplan.dialects import DIALECTS, OWN, Dialect, mixed, no_job, recognised, resembled
from rankplan.errors import Diagnostic, KeyPath, PlacementError, refusal
from rankplan.files import beginning
from rankplan.frozen import frozen
from rankplan.launchers.embedded import is_emitted
from rankplan.memory.cards import size_in_bytes
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import SIZE
from rankplan.plans.component import PlacementMode
from rankplan.plans.node_order import in_order
from rankplan.plans.plan import Plan
from rankplan.plans.requests import Request
from rankplan.plans.weights import senderless
from rankplan.read.text.document import Section
from rankplan.read.text.hydra import compose
from rankplan.read.text.load import load_config
from rankplan.read.text.reader import Reader
from rankplan.render.report import Report
from rankplan.rlinf.clusters import AnyCluster, inventory_of
from rankplan.words import by_nodes, counted, wrong_type

if TYPE_CHECKING:
    from rankplan.memory.needs import Needs
    from rankplan.memory.peaks import Peaks
    from rankplan.tuning.costs import Costs
    from rankplan.tuning.search import Tuning

Config: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Plan
"""The path of a config, of a saved plan or of an emitted file, a mapping (a dict, an OmegaConf object), or a plan."""

Nodes: TypeAlias = str | os.PathLike[str] | AnyCluster
"""A size (``2x8``), the path of an inventory file, an inventory, or a cluster."""

notes = logging.getLogger("rankplan.notes")
"""Tells which nodes are assumed. A record may have a ``hint``, which names the options of the command."""

_SAVED = re.compile(rb"\s*\{\s*\"rankplan\"\s*:")
_SIZE = re.compile(r"\s*[0-9]+x[0-9]+\s*", re.ASCII)
_TENSOR_SIZES = ("tp", "tensor_parallel_size", "tp_size")
"""Names of a receiver's tensor size in configs."""


def check(
    config: Config,
    nodes: Nodes | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
    memory: bool = False,
    reserve: float | str = 0,
    costs: Costs | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    verbose: bool = False,
) -> Report:
    """Find every fault and warning of a config, as ``rankplan check`` does. See `plan` for the arguments.

    ``verbose`` reports values that are known only at run time also if they decide no placement.
    ``memory`` tells what each phase needs, too. ``reserve`` is what other programs use of each accelerator, in bytes or
    as a text (``"2 GiB"``), and ``costs`` may have measured peaks, as `tune` takes them.

    Raises ``OSError`` if a file cannot be read, ``ValueError`` for an unknown dialect or a reserve that is no size.
    """
    job: Job | None = None
    needs: Needs | None = None
    reader = Reader({})
    kept, peaks = size_in_bytes(reserve), peaks_of(costs)
    try:
        plan = saved_plan(config, nodes, dialect, overrides, without)
        if plan is None:
            job = read_job(config, nodes, dialect=dialect, overrides=overrides, without=without)
            reader = job.reader
            job.announce()
            plan = job.plan()
        if memory or any(one.memory is not None for one in plan.values()):
            from rankplan.memory.needs import Needs  # many configs say nothing about memory

            needs = Needs(plan.inventory, plan, kept, peaks, reader.spellings)
        found = _saved_warnings(plan, needs, _name(config)) if job is None else job.warnings(plan, needs)
        warnings: tuple[Diagnostic, ...] = tuple(found)
        if memory and needs is not None:
            from rankplan.memory.faults import memory_unknown
            from rankplan.read.memory_places import located

            warnings += tuple(located(reader, name, one) for name, one in memory_unknown(needs))
            warnings += tuple(reader.located(path, one) for path, one in reader.unknown_models.items())
    except PlacementError as error:
        plan, warnings = None, error.diagnostics
    told = [one for one in reader.warnings if verbose or reader.decides(one)]
    shown = needs if memory else None
    return Report(_name(config), plan, (*told, *warnings), len(reader.warnings) - len(told), shown)


def peaks_of(costs: Costs | Mapping[str, Any] | str | os.PathLike[str] | None) -> Peaks | None:
    """Return the measured peaks of costs. Raises `PlacementError` with every fault, ``OSError``."""
    if costs is None:
        return None
    from rankplan.tuning.search import read_costs  # most programs never tune

    return read_costs(costs).peaks


def plan(
    config: Config,
    nodes: Nodes | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
    isolate: bool | None = None,
    pinned: bool = False,
) -> Plan:
    """Return the plan of a config, as ``rankplan plan`` does.

    ``config`` is a path, a mapping, or a plan. ``nodes`` is a size (``"2x8"``), an inventory or the path of one, or a
    cluster; by default every node has as many accelerators as the config states, or 8, which is logged. A saved plan
    has its own nodes. ``dialect`` is detected from the keys. ``overrides`` change values of a file:
    ``["trainer.nnodes=2"]``. ``without`` names hardware that must not be used: see `Inventory.without`. ``isolate``
    tells whether a process sees only its own accelerators (by default as saved, else yes).

    A plan predicts where a trainer puts the processes that it starts. With ``pinned``, it is the plan to bind them to:
    nodes are in the order of addresses that the trainer sorts them in, and groups and engines on one node if they fit.

    Raises `PlacementError` with every fault, ``OSError`` if a file cannot be read, ``ValueError`` for an unknown
    dialect, or options that a saved plan does not take.
    """
    if (saved := saved_plan(config, nodes, dialect, overrides, without)) is not None:
        if pinned:
            raise ValueError(f"{_name(config)} is a plan with its own places; pinned applies to configs")
        return saved if isolate is None else saved.with_visibility("own" if isolate else "node")
    job = read_job(config, nodes, dialect=dialect, overrides=overrides, without=without)
    return job.announced_plan(isolate=isolate, pinned=pinned)


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
) -> Tuning:
    """Find the placement with the shortest iteration, as ``rankplan tune`` does.

    ``costs`` is a mapping like ``costs.yaml`` (see `Costs.from_dict`), its path, or `Costs`; without it, the config has
    the times, as ``profile_data``. The parallel sizes of the config count where the costs state none; if it is RLinf's
    or rankplan's own, its sections decide which placements are valid. ``extrapolate`` allows times far from every
    measured size. Of equally fast placements, the one with fewer accelerators wins, then with fewer groups across
    nodes, then with fewer moves from the ``present`` plan. See `plan` for the other arguments.

    The answer is exact under the model, which the guide "Which placement is fastest?" states. Raises `PlacementError`
    with every fault, or (``no-schedule``) if no placement fits, and ``ValueError`` without a config if the costs or the
    nodes are missing, too.
    """
    from rankplan.tuning.search import costs_for, read_costs, search  # most programs never tune

    read = None if costs is None else read_costs(costs)
    if config is None:
        if read is None or nodes is None:
            raise ValueError("pass a config, or costs and nodes")
        return search(read, inventory_from(nodes).without(without), extrapolate=extrapolate, present=present)
    if not isinstance(config, Mapping) and is_saved(config):
        told = "this is a saved plan, not a config", "pass the config of the job; --from takes a plan"
        raise PlacementError([Diagnostic("invalid-value", *told, file=_name(config))])
    job = read_job(config, nodes, dialect=dialect, overrides=overrides, without=without)
    job.announce()
    read, memory = costs_for(read, job.reader, job.dialect, job.inventory, job.name)
    return search(read, job.inventory, job.reader, extrapolate=extrapolate, present=present, memory=memory)


def is_saved(file: str | os.PathLike[str]) -> bool:
    """Whether a file is a saved plan, or has one for a launcher. A pipe never counts as one. Raises ``OSError``."""
    if not isinstance(file, str | os.PathLike):
        raise wrong_type("config", file, "the path of a config, a mapping, or a plan")
    return _SAVED.match(beginning(file, 256)) is not None or is_emitted(file)


def saved_plan(
    config: Config,
    nodes: Nodes | None = None,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Plan | None:
    """Return the plan that a config is, without excluded hardware; ``None`` for a config that must be planned."""
    if not isinstance(config, Plan) and (isinstance(config, Mapping) or not is_saved(config)):
        return None
    if nodes is not None or dialect is not None or overrides:
        raise ValueError(f"{_name(config)} is a plan with its own nodes; it takes no nodes, dialect or overrides")
    saved = config if isinstance(config, Plan) else load_plan(config)
    return saved.on(saved.inventory.without(without)) if without else saved


def load_plan(file: str | os.PathLike[str]) -> Plan:
    """Return the plan in a saved plan or in the file of a launcher. Raises `PlacementError`, ``OSError``."""
    if not is_emitted(file):
        return Plan.load(file)
    from rankplan.launchers.emit import read_emitted  # most programs read no such files

    return read_emitted(file).emitted.plan


@frozen
class Job:
    """A config that was read, its dialect, and the nodes to plan it on.

    ``assumed``: the nodes are those that the config is probably meant for. ``labelled``: their labels are known.
    """

    name: str
    reader: Reader
    dialect: Dialect
    inventory: Inventory
    assumed: bool
    labelled: bool

    def announce(self) -> None:
        """Log which nodes are assumed."""
        if self.assumed:
            equal = [
                f"{counted(len(nodes), 'node')} with {counted(spec.num_accelerators, 'accelerator')}"
                + (" each" if len(nodes) > 1 else "")
                for nodes, spec in self.inventory.stretches()
            ]
            hint = {"hint": "set other nodes with --nodes, --inventory or --ray"}
            notes.warning("%s: assuming %s", self.name, " and ".join(equal), extra=hint)

    def announce_unknown(self) -> None:
        """Log how many values of a script decide the placement, and are known only when it runs."""
        if unknown := [one for one in self.reader.warnings if one.code == "not-run" and self.reader.decides(one)]:
            values = counted(len(unknown), "warning")
            notes.warning("%s: %s about what only a run decides; rankplan check lists them", self.name, values)

    def announced_plan(self, *, isolate: bool | None = None, pinned: bool = False) -> Plan:
        """Return the plan, and log what is assumed, what only a run decides, and which groups to pin are torn."""
        self.announce()
        found = self.plan(isolate=isolate, pinned=pinned)
        self.announce_unknown()
        if pinned:
            self.announce_torn(found)
        return found

    def plan(self, *, isolate: bool | None = None, pinned: bool = False, node_ids: Sequence[str] = ()) -> Plan:
        """Return the plan. Raises `PlacementError` with every fault, also for groups that cross what is forbidden.

        ``node_ids`` are Ray's ids of the nodes, by which some trainers sort them: see `plan`.
        """
        inventory = self.inventory
        if pinned:
            inventory = in_order(inventory, self.dialect.node_order(self.reader), node_ids)
        found = self.dialect.plan(self.reader, inventory, isolate_accelerator=isolate is not False, pinned=pinned)
        reject_empty(found, self.reader)
        reject_crossings(found, labelled=self.labelled, cluster=inventory)
        return found

    def announce_torn(self, plan: Plan) -> None:
        """Log which groups of a plan to pin are on several nodes."""
        for warning in group_warnings(plan, self.reader):
            if warning.code == "group-spans":
                notes.warning("%s: warning[%s]: %s", self.name, warning.code, warning.message)

    def warnings(self, plan: Plan, needs: Needs | None) -> Iterator[Diagnostic]:
        """Yield the warnings about a plan of this job and its memory.

        Raises `PlacementError` for components that cannot fit, and for weights without a sender.
        """
        yield from plan_warnings(plan, needs, self.reader)
        if self.labelled:
            yield from plan.rule_warnings()
        if not self.assumed:
            yield from idle_warnings(plan, self.inventory, self.name)


def read_job(
    config: Config,
    nodes: Nodes | None = None,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Job:
    """Read a config and its nodes; see `plan`."""
    name = _name(config)
    if isinstance(config, Mapping):
        if overrides:
            raise ValueError("overrides apply to files only; change the mapping")
        content: Mapping[str, Any] = config
    else:
        content = load_config(config, overrides)
    chosen, guest_warnings = _dialect(dialect, content)
    reader = chosen.read(content)
    for warning in guest_warnings:
        reader.faults.note(warning)
    inventory = chosen.assumed_inventory(reader) if nodes is None else inventory_from(nodes)
    inventory = inventory.without(without) if without else inventory
    labelled = nodes is not None and not (isinstance(nodes, str) and _SIZE.fullmatch(nodes))
    return Job(name, reader, chosen, inventory, nodes is None, labelled)


def _name(config: Config) -> str:
    if isinstance(config, Plan):
        return "the plan"
    if isinstance(config, Mapping):
        return (config.document.file if isinstance(config, Section) else None) or "config"
    return os.fspath(config)


def inventory_from(nodes: Nodes) -> Inventory:
    """Return the inventory of a size, a path or a cluster. Raises `PlacementError`, ``OSError`` or ``TypeError``."""
    if isinstance(nodes, str) and _SIZE.fullmatch(nodes):
        return Inventory.parse(nodes)
    return Inventory.load(nodes) if isinstance(nodes, str | os.PathLike) else inventory_of(nodes)


def _dialect(name: str | None, config: Mapping[str, Any]) -> tuple[Dialect, list[Diagnostic]]:
    """Return the dialect with this name, or else the one detected from the keys of the config.

    With it come warnings about guests that could not be asked for theirs. Raises `PlacementError` for a config with
    keys of several, unless one is named.
    """
    if name is not None:
        if name not in DIALECTS:
            raise ValueError(f"unknown dialect {name!r}; the dialects are {', '.join(DIALECTS)}")
        return DIALECTS[name], []
    detected = recognised(config)
    if (found := no_job(config)) is not None:
        raise PlacementError([found, *detected.warnings])
    reader = Reader(config)
    for path, fault in mixed(config):
        reader.add(path, fault)
    reader.finish()
    return DIALECTS[detected.name or OWN], detected.warnings


def reject_crossings(plan: Plan, *, labelled: bool, cluster: Inventory) -> None:
    """Raise `PlacementError` if the plan breaks its rules, with the place of each.

    Unless the labels of the nodes are known, only the level ``node`` is checked. ``cluster``: see `Plan.rule_faults`.
    """
    if faults := plan.rule_faults(labelled=labelled, cluster=cluster):
        raise refusal(list(dict.fromkeys(faults)))


def plan_warnings(plan: Plan, needs: Needs | None, reader: Reader) -> Iterator[Diagnostic]:
    """Yield the warnings about the memory and the groups of a plan. Raises `PlacementError` for its faults.

    ``needs`` is ``None`` if no component states its memory.
    """
    if needs is None:
        reject_senderless(plan, reader)
    else:
        from rankplan.memory.faults import memory_warnings
        from rankplan.read.memory_places import located, reject_memory

        reject_memory(needs, reader)
        reject_senderless(plan, reader)
        yield from (located(reader, name, found) for name, found in memory_warnings(needs))
    yield from group_warnings(plan, reader)


def _saved_warnings(plan: Plan, needs: Needs | None, name: str) -> Iterator[Diagnostic]:
    """Yield the warnings about a saved plan. Raises `PlacementError` for its faults."""
    plan.check_shares()
    plan.check_keep()
    no_config = Reader({})
    yield from plan_warnings(plan, needs, no_config)
    yield from plan.rule_warnings()
    yield from idle_warnings(plan, plan.inventory, name)


def reject_empty(plan: Plan, reader: Reader) -> None:
    """Raise `PlacementError` if nothing is placed; it names the system that the config looks written for."""
    if plan:
        return
    config: Any = reader.content if reader.config is None else reader.config
    cluster = config.get("cluster")
    name = resembled({**config, **(cluster if isinstance(cluster, Mapping) else {})})
    help = "add components: `component_placement: {actor: 0-7}`"
    if "defaults" in config:
        help = compose(config)
    if name is not None:
        help = f"this looks like a config of {name}; pass --dialect {name}"
    found = Diagnostic("no-components", "the config places no component", help)
    raise PlacementError([reader.located(("cluster",) if "cluster" in config else (), found)])


def reject_senderless(plan: Plan, reader: Reader) -> None:
    """Raise `PlacementError` for weights without a sender, at the tensor size of the receiver.

    Only for the modes of RLinf, which sends weights slot by slot: other trainers gather whole tensors first.
    """
    if plan.mode in (None, PlacementMode.HYBRID):
        return
    found = [(reader.size_paths.get(name, ()), fault) for name, fault in senderless(plan)]
    if found:
        raise PlacementError(reader.located(_tensor_size(reader, path), fault) for path, fault in found)


def _tensor_size(reader: Reader, path: KeyPath) -> KeyPath:
    """Return the path of the tensor size in the sizes at a path of the config, or that path."""
    here: Any = reader.content if reader.config is None else reader.config
    for part in path:
        here = here.get(part) if isinstance(here, Mapping) else None
    keys = [key for key in _TENSOR_SIZES if isinstance(here, Mapping) and key in here]
    return (*path, *keys[:1])


def group_warnings(plan: Plan, reader: Reader) -> Iterator[Diagnostic]:
    """Yield warnings about parallel groups, at the sizes of their components."""
    for name, component in plan.items():
        for warning in component.parallel_warnings():
            kinds = [kind for kind, _ in SIZE.findall(warning.message)]
            yield reader.sizes_of(name).place(kinds).locate(warning)


def idle_warnings(plan: Plan, inventory: Inventory, file: str) -> Iterator[Diagnostic]:
    """Yield warnings about unused nodes and accelerators."""
    if inventory.num_nodes > plan.inventory.num_nodes:
        message = f"the config uses {counted(plan.inventory.num_nodes, 'node')} of {inventory.num_nodes}"
        help = f"set num_nodes to {inventory.num_nodes}, place components on the other nodes, or ignore this warning"
        yield Diagnostic("idle-nodes", message, help, file=file, warning=True)
    if idle := plan.idle():
        usable = plan.inventory.core.accelerators() - plan.inventory.excluded_accelerators
        unused, total = sum(map(len, idle.values())), len(usable)
        message = f"no component uses {unused} of {total} accelerators: {by_nodes(idle)}"
        help = "place a component on them, or ignore this warning"
        yield Diagnostic("idle-accelerators", message, help, file=file, warning=True)

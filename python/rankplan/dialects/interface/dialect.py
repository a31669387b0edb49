"""A dialect as one value: everything that rankplan must know of a system to read its configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rankplan._core import Requests
from rankplan.dialects.interface.cluster import ClusterForms
from rankplan.dialects.interface.tried import Tried
from rankplan.dialects.keys.system import System
from rankplan.dialects.keys.table import KeyTable
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.plans.requests import NodeOrder
from rankplan.read.read_config import ReadConfig
from rankplan.read.text.formats import Format
from rankplan.read.text.programs import Program
from rankplan.references import resolved

if TYPE_CHECKING:  # what plans is imported when a config is planned
    from rankplan.dialects.interface.job import Job
    from rankplan.dialects.interface.planning import Planner
    from rankplan.dialects.keys.config import Config
    from rankplan.dialects.keys.key import Key
    from rankplan.dialects.keys.roles import Role
    from rankplan.dialects.placing.grouping import ComponentGroups
    from rankplan.read.sources import Planned

Writer: TypeAlias = Callable[[Plan], tuple["dict[str, Any] | str", dict[str, str]]]
"""Returns a config for the components of a plan that a dialect can express, and why it cannot express the others.

A text is a launch script, for a system that places by its commands. The rules of the plan are about its components.
"""


Resized: TypeAlias = Callable[[Plan, Requests], "Requests | None"]
"""Returns what a trainer asks Ray for in a plan, given what it asks for if components have other sizes.

``None`` if that does not tell. Given those of the plan itself, it returns the same: where it does not, it is not used.
"""


Unplaced: TypeAlias = Callable[[Mapping[str, Any]], tuple[str, str] | None]
"""Returns the message and the help for a config with the keys of a dialect that is no job, ``None`` for a job."""


@frozen(slots=False, kw_only=True)
class Dialect:
    """A system whose configs rankplan reads.

    ``name`` is the word that users write: ``--dialect NAME``. ``system`` is what messages call the system.

    ``keys`` are the keys by which it places: they recognise a config, and typos, completion, the schema and the guide
    follow from them. ``job`` is the class of its jobs, or a function that returns the job of a config; a ``planner``
    takes its place in a dialect that is called through another one.

    ``programs`` are those that scripts start, ``trainer`` is the one that starts its jobs, as messages name it.
    ``unplaced`` returns the message and the help for a config with its keys that is no job, and ``None`` for a job.

    ``formats`` read files with other suffixes than those of YAML and of scripts: ``{".toml": read}``.

    ``no_groups`` is empty if the system asks Ray for placement groups, which `pin` binds to nodes. Otherwise it says
    why there are none, and what to use instead.

    ``starts`` says how the system starts the processes of a job: on ``ray``, or as ``processes`` without it. `pin` and
    `run` refuse a config of the latter by name. Each component of such a job has a command of its own, which
    ``rankplan exec`` and the files of launchers start (``--run``, ``--command``).

    ``resized`` returns what the system asks Ray for once components of a plan have other sizes, ``None`` if that is
    unknown: such a plan cannot grow or shrink.

    ``has_own_nodes`` tells whether a plan has only the nodes that its config asks for; without, plans have all nodes
    that they are given, those without processes too.

    ``resembles`` are keys too weak to recognise a config by: they name the dialect in the help of a fault.

    ``writers`` write plans as configs: the one named ``""``, and others that an option of ``convert`` chooses.

    ``cluster`` are other forms in which its users give a cluster to rankplan.

    ``tried`` is the newest version of the system that the dialect was tried with.

    ``parent`` is the dialect that this one is like, for a fork (`like`).

    A job, a planner, a writer, ``resized`` and ``has_own_nodes`` may be a reference, ``"module:NAME"``, which is
    imported when it is used: recognising a config then imports the keys of a dialect, and nothing that plans.
    """

    name: str
    system: str
    keys: KeyTable
    job: Callable[[Config], Job] | str | None = None
    planner: Planner | str | None = None
    programs: tuple[Program, ...] = ()
    trainer: str = ""
    unplaced: Unplaced | str | None = None
    formats: Mapping[str, Format] = field(default_factory=dict)
    no_groups: str = ""
    starts: Literal["ray", "processes"] = "ray"
    resized: Resized | str | None = None
    has_own_nodes: Callable[[Plan], bool] | str | None = None
    resembles: tuple[str, ...] = ()
    writers: Mapping[str, Writer | str] = field(default_factory=dict)
    cluster: ClusterForms | None = None
    tried: Tried | None = None
    parent: Dialect | None = None

    @classmethod
    def like(
        cls,
        parent: str,
        *,
        name: str,
        system: str,
        keys: Sequence[Key[Any]] = (),
        lacks: Sequence[str] = (),
        tells: Callable[[Mapping[Any, Any]], bool] = lambda config: False,
        memory: tuple[Role, ...] | str | None = None,
        programs: tuple[Program, ...] = (),
        **others: Any,
    ) -> Dialect:
        """Return the dialect of a fork of another system: it reads what that system reads, but for what is stated here.

        ``parent`` is the name of the dialect of that system. ``keys`` are those of the fork. One with the path of a key
        of the parent, or ``like`` one, is read in its place, with its own names and default; a `fact` takes the place
        of the parent's fact with this name. ``lacks`` are the paths of the parent's keys, and of its sections, that the
        fork does not have.

        The keys of the parent do not recognise a config of the fork: its own keys do if they tell, ``tells``, and its
        ``programs``. ``memory`` are the roles that its keys say something else about than the parent's; ``()`` if they
        say nothing about any. Nothing is written as a config of the fork unless it has ``writers``. ``others`` are
        further attributes of `Dialect`.

        Raises ``KeyError`` for an unknown parent, ``ValueError`` for keys that it does not have, `GuestError` for a
        guest that fails.
        """
        from rankplan.guests.built_in import DIALECTS  # what is not a fork needs no table
        from rankplan.guests.doors import Door, Table

        base = Table(Door.DIALECTS, Dialect, DIALECTS)[parent]
        table = base.keys.forked(keys, lacks=lacks, memory=memory, tells=tells)
        changes = {"writers": {}, "resembles": (), "tried": None, **others}
        return replace(base, name=name, system=system, keys=table, programs=programs, parent=base, **changes)

    def parent_job(self, config: Config) -> Job:
        """Return the job that the parent of a fork reads in a config with the keys of the fork.

        Raises ``TypeError`` for a dialect that is no fork.
        """
        if self.parent is None:
            raise TypeError(f"{self.name} is no fork of another dialect")
        job: Callable[[Config], Job] = resolved(self.parent.job)
        return job(config)

    @cached_property
    def _planner(self) -> Planner:
        if self.planner is not None:
            planner: Planner = resolved(self.planner)
            return planner
        from rankplan.dialects.interface.planning import JobPlanner

        name = None if self.no_groups else self.name
        system = System(self.name, self.system, self.keys)
        return JobPlanner(name, system, self.keys, resolved(self.job), starts_on_ray=self.starts == "ray")

    def read(self, config: Any) -> ReadConfig:
        """Read and validate a config, once; see `Planner.read`."""
        return self._planner.read(config)

    def plan(
        self, config: Any, inventory: Inventory, *, isolate_accelerator: bool = True, pinned: bool = False
    ) -> Plan:
        """Return the plan of a config; see `Planner.planned`."""
        return self.planned(config, inventory, isolate_accelerator=isolate_accelerator, pinned=pinned).plan

    def planned(
        self,
        config: Any,
        inventory: Inventory,
        *,
        isolate_accelerator: bool = True,
        pinned: bool = False,
        groups: ComponentGroups | None = None,
    ) -> Planned:
        """Return the plan of a config, and where the config states what decides it; see `Planner.planned`."""
        return self._planner.planned(
            config, inventory, isolate_accelerator=isolate_accelerator, pinned=pinned, groups=groups
        )

    def node_order(self, config: Any) -> NodeOrder | None:
        """Return what the trainer of a config sorts its nodes by; see `Planner.node_order`."""
        return self._planner.node_order(config)

    def assumed_inventory(self, config: Any) -> Inventory:
        """Return the inventory that a config is probably meant for; see `Planner.assumed_inventory`."""
        return self._planner.assumed_inventory(config)

    def unplaced_text(self, config: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return the message and the help for a config with the keys of this dialect that is no job; see `Unplaced`."""
        if self.unplaced is None:
            return None
        unplaced: Unplaced = resolved(self.unplaced)
        return unplaced(config)

    def requests_of(self, plan: Plan, asked: Requests) -> Requests | None:
        """Return what the system asks Ray for in a plan, given what it asks for in another size; see `Resized`."""
        if self.resized is None:
            return None
        resized: Resized = resolved(self.resized)
        return resized(plan, asked)

    def plans_all_nodes(self, plan: Plan) -> bool:
        """Return whether a plan has all nodes that it was given, those without processes too."""
        if self.has_own_nodes is None:
            return True
        has_own_nodes: Callable[[Plan], bool] = resolved(self.has_own_nodes)
        return not has_own_nodes(plan)

    def written(self, planned: Plan, form: str = "") -> tuple[dict[str, Any] | str, dict[str, str]]:
        """Return a plan as a config of this dialect; see `Writer`. Raises ``KeyError`` for an unknown form."""
        write: Writer = resolved(self.writers[form])
        return write(planned)

"""What runs on a cluster, and how it differs from a plan: the answer of `rankplan.live`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property

from rankplan._core import RankSet
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.plans.plan import Plan


@frozen
class LiveNode:
    """A live node: its rank, Ray's id of it, its record, and whether the ids of its accelerators are known.

    ``free`` is the amount of accelerators that Ray can still give. ``untold`` is the amount that Ray counts as taken
    although no actor and no bundle has it: tasks have it, and nobody tells their accelerators.
    """

    rank: int
    node_id: str
    spec: NodeSpec
    ids_known: bool
    free: float
    untold: float


@frozen
class LiveGroup:
    """A placement group. ``bundles`` has the accelerators of each, ``nodes`` its node rank (``None``: not placed).

    ``held`` has the local indices of the accelerators that a bundle holds, ``None`` where Ray does not tell all of
    them. ``waits`` is why Ray cannot place it, empty if it can. ``component`` is that of the plan's request, if any.
    """

    group_id: str
    name: str
    job: str
    state: str
    strategy: str
    detached: bool
    bundles: tuple[int, ...]
    nodes: tuple[int | None, ...]
    held: tuple[RankSet | None, ...]
    waits: str = ""
    component: str | None = None

    @property
    def title(self) -> str:
        """Its name, or else the start of its id."""
        return self.name or self.group_id[:8]


@frozen
class LiveActor:
    """An actor. ``accelerators`` are the local indices that it holds on its node, or could use.

    ``reserved`` tells whether Ray gave it these; else they are those of its bundle, ``None`` where Ray does not tell
    them. ``node`` and ``pid`` are ``None`` without a process. ``bundle`` is the first of its bundles. ``ranks`` are the
    ranks of each component there, if there is a plan.
    """

    actor_id: str
    class_name: str
    name: str
    job: str
    state: str
    pid: int | None
    node: int | None
    accelerators: RankSet | None
    amount: float
    reserved: bool
    detached: bool
    group: str | None
    bundle: int | None
    ranks: Mapping[str, RankSet] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Its name, or else its class, with its job and its process."""
        process = "" if self.pid is None else f", pid {self.pid}"
        return f"{self.name or self.class_name} (job {self.job}{process})"

    @property
    def uses(self) -> bool:
        """Whether it holds accelerators, waits for some, or may use those of its bundle."""
        return self.accelerators is None or bool(self.accelerators) or self.amount > 0


@frozen
class LiveJob:
    """A job that has not ended: its number as Ray shows it, its command, and where its driver runs."""

    job: str
    entrypoint: str
    address: str
    pid: int


@frozen
class Idle:
    """Accelerators of a node, by local index, that no actor holds or may use.

    ``bundles`` of groups (ids) hold ``in_bundles`` of them without an actor, and tasks hold the amount ``in_tasks``;
    the others are free. Ray does not tell which of them these are.
    """

    node: int
    accelerators: RankSet
    bundles: Mapping[str, RankSet]
    in_bundles: int
    in_tasks: float


@frozen
class Doubled:
    """An accelerator that several jobs use, or a process that Ray did not give it to; ``users`` names them."""

    node: int
    accelerator: int
    users: tuple[str, ...]


@frozen
class LiveProcess:
    """A process that computes on an accelerator, by its driver; ``memory`` is what it has there, in MiB.

    ``actor_id`` is the actor that it is, or descends from. ``elsewhere``: it is of another pid namespace, so that its
    number tells no actor.
    """

    node: int
    accelerator: int
    pid: int
    memory: int | None
    actor_id: str | None
    elsewhere: bool


@frozen
class Difference:
    """Consecutive ranks of a component that do not run as planned.

    ``kind`` is ``node`` (on another node), ``accelerators`` (on the right node), ``group-spans`` (a tensor group on
    several nodes that the plan has on one), ``not-running``, ``not-planned`` (a placement group or an accelerator that
    the plan lacks) or ``unused`` (a planned accelerator, of a plan without ranks to compare). ``planned`` and ``found``
    are places as text. ``component`` is empty where nothing tells it.
    """

    kind: str
    component: str
    ranks: RankSet
    planned: str
    found: str


@frozen
class Compared:
    """A comparison with a plan, named ``name``: the ``job`` that was compared, its ranks, and the differences.

    ``ranks`` counts those of the plan, ``up`` those with a process, as far as Ray tells that of roles in one bundle.
    ``on_nodes`` are on their nodes: ``on_accelerators`` of them hold the planned accelerators, and Ray does not tell
    all accelerators of the ``untold`` ones. All are 0 for a plan that does not know its requests.
    ``differing`` has the ranks with differences by component, ``places`` the node and the local index of each
    accelerator of a rank: the found ones if Ray tells them all, else the planned ones.
    """

    name: str
    plan: Plan
    job: str | None
    ranks: int
    up: int
    on_nodes: int
    on_accelerators: int
    untold: int
    groups: int
    claimed: int
    differences: tuple[Difference, ...]
    differing: Mapping[str, RankSet]
    places: Mapping[str, Mapping[int, tuple[tuple[int, int], ...]]]


@frozen(slots=False)
class Live:
    """What runs on a cluster; see `rankplan.live`.

    ``inventory`` has the nodes by rank: with a plan, these are its ranks, and a node that has left is unhealthy.
    ``compared`` has the comparison with the plan, if there is one. ``processes`` are those that the drivers tell, and
    ``silent`` says which drivers do not; both are empty without ``devices``.
    """

    address: str
    inventory: Inventory
    nodes: tuple[LiveNode, ...]
    jobs: tuple[LiveJob, ...]
    groups: tuple[LiveGroup, ...]
    actors: tuple[LiveActor, ...]
    idle: tuple[Idle, ...]
    doubled: tuple[Doubled, ...]
    compared: Compared | None = None
    processes: tuple[LiveProcess, ...] = ()
    silent: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The differences from the plan; none without one."""
        return () if self.compared is None else self.compared.differences

    @property
    def waiting(self) -> tuple[LiveGroup, ...]:
        """The groups that Ray cannot place."""
        return tuple(group for group in self.groups if group.waits)

    @cached_property
    def node(self) -> Mapping[int, LiveNode]:
        """The live nodes by rank."""
        return {node.rank: node for node in self.nodes}

    @cached_property
    def group(self) -> Mapping[str, LiveGroup]:
        """The groups by id."""
        return {group.group_id: group for group in self.groups}

    def ids(self, node: int, accelerators: RankSet) -> str:
        """Return the ids of accelerators of a node: ``0-3``, or ``#0-3`` for local indices if the ids are not known."""
        here = self.node.get(node)
        if here is not None and not here.ids_known:
            return f"#{accelerators}"
        ids = self.inventory.node(node).accelerator_ids
        if ids == tuple(map(str, range(len(ids)))) or (accelerators and accelerators[-1] >= len(ids)):
            return str(accelerators)
        return ",".join(ids[index] for index in accelerators)

    def held(self, *, but: str | None = None) -> dict[int, RankSet]:
        """Return the accelerators that the actors and bundles of all jobs ``but`` one hold, by node rank."""
        found: dict[int, RankSet] = {}
        holders = [(actor.job, actor.node, actor.accelerators) for actor in self.actors]
        for group in self.groups:
            holders += [(group.job, *place) for place in zip(group.nodes, group.held, strict=True)]
        for job, node, accelerators in holders:
            if job != but and node is not None and accelerators:
                found[node] = found.get(node, RankSet()) | accelerators
        return found

    def hidden(self, *, but: str | None = None) -> dict[int, float]:
        """Return the amount of accelerators that tasks and bundles of all jobs ``but`` one hold without telling ids."""
        found = {node.rank: node.untold for node in self.nodes if node.untold}
        for group in self.groups:
            if group.job != but:
                for node, size, held in zip(group.nodes, group.bundles, group.held, strict=True):
                    if node is not None and size and held is None:
                        found[node] = found.get(node, 0.0) + size
        return found

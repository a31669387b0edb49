"""The compiled core of rankplan."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from typing import Any, Final, Self, TypeAlias, final, overload

from rankplan.errors import Diagnostic
from rankplan.parallel import Parallel
from rankplan.plans.requests import NodeOrder

__all__ = [
    "ACCELERATOR",
    "CLUSTER",
    "DISTANCES",
    "FUSED_CHUNK",
    "MAX_CPU",
    "MAX_LOCAL",
    "MAX_NODES",
    "MAX_PROCESSES",
    "MAX_RANK",
    "NODE",
    "PLAN_VERSION",
    "SAME_SECONDS",
    "USABLE_MEMORY",
    "USUAL_LENGTH",
    "WEIGHT_BUCKET",
    "WHOLE_NODE",
    "AcceleratorFacts",
    "AddressKey",
    "Arrangement",
    "Chunks",
    "Domains",
    "Free",
    "Groups",
    "Hierarchy",
    "Inventory",
    "Layout",
    "NicFacts",
    "NodeSpec",
    "Packed",
    "Pattern",
    "Placement",
    "Placements",
    "PlanFile",
    "Pool",
    "Problem",
    "RankMap",
    "RankSet",
    "Request",
    "Requests",
    "Run",
    "SavedPlan",
    "Short",
    "SlotSets",
    "Sorting",
    "Spans",
    "Taken",
    "WeightMap",
    "best_schedule",
    "check_hardware_type",
    "cpu_list",
    "domains",
    "engine_likely",
    "engine_memory",
    "error_codes",
    "groups_text",
    "host_store",
    "joined_pools",
    "level_faults",
    "likely_room",
    "model_params",
    "natural_order",
    "pack_segments",
    "pci_address",
    "read_cluster",
    "read_inventory",
    "read_ranks",
    "render",
    "switch_likely",
    "switch_memory",
    "training_likely",
    "training_memory",
    "usual_share",
]

CLUSTER: Final = "cluster"
NODE: Final = "node"
ACCELERATOR: Final = "accelerator"
WHOLE_NODE: Final = "node"
PLAN_VERSION: Final = 3
MAX_RANK: Final = 4294967294
MAX_NODES: Final = 16777216
MAX_PROCESSES: Final = 16777216
MAX_LOCAL: Final = 65536
MAX_CPU: Final = 65535
DISTANCES: tuple[str, ...]
SAME_SECONDS: Final = 1e-9

_PlacementsState = tuple[list[tuple[str, str]], list[tuple[int, int]], bytes, bytes, bytes, list[tuple[int, int]]]

@final
class RankSet(AbstractSet[int]):
    def __new__(cls, ranks: str | Iterable[int] | RankSet | None = None, /) -> Self: ...
    def __len__(self) -> int: ...
    def __contains__(self, key: object, /) -> bool: ...
    @overload
    def __getitem__(self, key: int, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> RankSet: ...
    def __iter__(self) -> Iterator[int]: ...
    def index(self, rank: int) -> int: ...
    ranges: Final[list[tuple[int, int]]]
    def __or__(self, other: RankSet, /) -> RankSet: ...  # type: ignore[override]
    def __ror__(self, other: RankSet, /) -> RankSet: ...
    def __and__(self, other: RankSet, /) -> RankSet: ...  # type: ignore[override]
    def __rand__(self, other: RankSet, /) -> RankSet: ...
    def __sub__(self, other: RankSet, /) -> RankSet: ...  # type: ignore[override]
    def __rsub__(self, other: RankSet, /) -> RankSet: ...
    def __xor__(self, other: RankSet, /) -> RankSet: ...  # type: ignore[override]
    def __rxor__(self, other: RankSet, /) -> RankSet: ...
    def union(self, *others: RankSet) -> RankSet: ...
    def isdisjoint(self, other: RankSet) -> bool: ...  # type: ignore[override]
    def __le__(self, other: RankSet, /) -> bool: ...  # type: ignore[override]
    def __lt__(self, other: RankSet, /) -> bool: ...  # type: ignore[override]
    def __ge__(self, other: RankSet, /) -> bool: ...  # type: ignore[override]
    def __gt__(self, other: RankSet, /) -> bool: ...  # type: ignore[override]

@final
class RankMap:
    @staticmethod
    def parse(text: str, num_resources: int | None = None) -> RankMap: ...
    @staticmethod
    def read(text: str) -> RankMap: ...
    @staticmethod
    def from_lists(lists: Sequence[Sequence[int]]) -> RankMap: ...
    world_size: Final[int]
    resources: Final[RankSet]
    segments: Final[list[tuple[RankSet, RankSet]]]

@final
class Packed:
    def __new__(cls, start: int, end: int, per_process: int, stride: int) -> Self: ...
    world_size: Final[int]
    resources: Final[RankSet]
    start: Final[int]
    end: Final[int]
    per_process: Final[int]
    stride: Final[int]

@final
class Chunks:
    def __new__(cls, resources: Sequence[int], per_process: int) -> Self: ...
    @staticmethod
    def parse(text: str, per_process: int) -> Chunks: ...
    world_size: Final[int]
    resources: Final[RankSet]
    per_process: Final[int]

@final
class AcceleratorFacts:
    uuid: Final[str | None]
    pci: Final[str | None]
    numa: Final[int | None]
    model: Final[str | None]
    memory: Final[int | None]
    nic: Final[str | None]
    distance: Final[str | None]
    problem: Final[str | None]

@final
class NicFacts:
    name: Final[str]
    active: Final[bool]
    bonded: Final[bool]
    rate: Final[float | None]
    pci: Final[str | None]
    numa: Final[int | None]

@final
class NodeSpec:
    def __new__(cls, **fields: Any) -> Self: ...
    ranks: Final[RankSet]
    rank: Final[int]
    name: Final[str]
    num_accelerators: Final[int]
    accelerator_type: Final[str]
    accelerator_model: Final[str | None]
    accelerator_ids: Final[tuple[str, ...]]
    ip: Final[str | None]
    hostname: Final[str | None]
    labels: Final[dict[str, str]]
    hardware: Final[dict[str, int]]
    healthy: Final[bool]
    unhealthy: Final[RankSet]
    taken: Final[str | None]
    cpus: Final[float | None]
    reservable_memory: Final[int | None]
    resources: Final[dict[str, float]]
    numa: Final[dict[int, RankSet]]
    memory: Final[dict[int, int]]
    sockets: Final[tuple[RankSet, ...]]
    cores: Final[tuple[RankSet, ...]]
    caches: Final[tuple[RankSet, ...]]
    nics: Final[tuple[NicFacts, ...]]
    devices: Final[tuple[AcceleratorFacts, ...]]
    facts: Final[str]
    def states(self, field: str) -> bool: ...
    def at(self, ranks: RankSet) -> NodeSpec: ...
    def changed(self, **fields: Any) -> NodeSpec: ...
    def problems(self) -> list[tuple[int, str]]: ...
    def described(self) -> dict[str, Any]: ...
    def fields(self) -> dict[str, Any]: ...
    def __hash__(self) -> int: ...

@final
class AddressKey:
    def __new__(cls, address: str) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ge__(self, other: AddressKey, /) -> bool: ...
    def __gt__(self, other: AddressKey, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __le__(self, other: AddressKey, /) -> bool: ...
    def __lt__(self, other: AddressKey, /) -> bool: ...

_Level: TypeAlias = tuple[bytes, list[tuple[str | None, ...]], tuple[int, ...]]

def domains(labels: Sequence[Mapping[str, str]], levels: Sequence[str]) -> list[_Level]: ...
def natural_order(labels: Sequence[Mapping[str, str]], levels: Sequence[str]) -> list[int]: ...

@final
class Inventory:
    def __new__(cls, nodes: Sequence[NodeSpec]) -> Self: ...
    num_nodes: Final[int]
    def resource(self, node: int, index: int) -> int: ...
    def place(self, resource: int) -> tuple[int, int]: ...
    def num_accelerators(self, node: int) -> int: ...
    def nodes_by_size(self) -> dict[int, RankSet]: ...
    def nodes_by_cpus(self) -> list[tuple[float | None, RankSet]]: ...
    def domains(self, levels: Sequence[str]) -> list[_Level]: ...
    def order(self, how: str, ids: Sequence[str] = ...) -> list[int] | None: ...
    def other_order(self, how: str, ids: Sequence[str] = ...) -> list[int] | None: ...
    def places(self, how: str, nodes: RankSet, ids: Sequence[str] = ...) -> dict[int, int] | None: ...
    def node(self, rank: int) -> NodeSpec: ...
    def entries(self) -> list[NodeSpec]: ...
    def stretches(self) -> list[tuple[range, NodeSpec]]: ...
    def label_keys(self) -> dict[str, int]: ...
    def unlabelled(self, levels: Sequence[str]) -> list[tuple[int, Diagnostic]]: ...
    def broken(self) -> dict[int, RankSet | None]: ...
    def described(self) -> list[dict[str, Any]]: ...
    def marked(self, marks: Mapping[int, RankSet | None], job: str | None = None) -> Inventory: ...
    def reordered(self, order: Sequence[int]) -> Self: ...
    def accelerators(self) -> RankSet: ...
    def by_node(self, accelerators: RankSet) -> dict[int, RankSet]: ...

@final
class Taken(Sized):
    def __new__(cls, ranges: Sequence[tuple[int, int]] = ...) -> Self: ...
    @staticmethod
    def in_turn(nodes: RankSet, count: int) -> Taken: ...
    def __len__(self) -> int: ...
    def __add__(self, other: Taken, /) -> Taken: ...
    def __radd__(self, other: Taken, /) -> Taken: ...
    ranges: Final[list[tuple[int, int]]]
    accelerators: Final[RankSet]
    first: Final[int]
    def slice(self, start: int, stop: int) -> Taken: ...
    def chunks(self, each: int) -> Chunks: ...
    @staticmethod
    def most_users(several: Sequence[Taken]) -> list[int]: ...
    def nodes(self, inventory: Inventory, each: int = 1) -> list[int]: ...
    def largest_node(self, inventory: Inventory) -> int: ...
    def used_nodes(self, inventory: Inventory) -> RankSet: ...
    def starting_nodes(self, inventory: Inventory, each: int) -> RankSet: ...
    def miscounted(self, inventory: Inventory, each: int, together: int) -> tuple[int, int, int, int] | None: ...
    def sharing_numbers(self, inventory: Inventory, each: int, groups: int) -> tuple[int, int] | None: ...
    def torn(self, inventory: Inventory, each: int) -> tuple[int, int, int] | None: ...

@final
class Short:
    free: Final[int]
    bundles: Final[int]
    size: Final[int | None]

@final
class Free:
    def __new__(
        cls, inventory: Inventory, excluded: RankSet, order: str | None = None, *, by_id: bool = False
    ) -> Self: ...
    @staticmethod
    def first_of(inventory: Inventory, start: int, stop: int, each: int) -> Free: ...
    left: Final[int]
    largest: Final[int]
    def bundles(self, size: int) -> int: ...
    def next(self, count: int) -> Taken | Short: ...
    def packed(self, count: int) -> Taken | Short: ...
    def in_bundles(self, count: int, sizes: Sequence[int]) -> Taken | Short: ...
    def in_steps(self, count: int, sizes: Sequence[int], *, ascending: bool) -> Taken | Short: ...
    def in_lists(self, count: int, lists: Sequence[Sequence[tuple[int, int]]]) -> Taken | Short: ...
    def spread(self, count: int, sizes: Sequence[int], *, strict: bool) -> Taken | Short: ...

_Names: TypeAlias = tuple[str, int | None, str] | None
_Amounts: TypeAlias = tuple[float | None, int | None, Sequence[tuple[str, float]]]
_RequestRow: TypeAlias = tuple[
    str, str | None, bool, str | None, Sequence[tuple[int, int, _Amounts]], _Names, int, list[tuple[int, int, int]]
]
_Lack: TypeAlias = tuple[
    tuple[str, str], tuple[int, int] | None, str, float, float, list[tuple[float, float, RankSet]], bool
]

@final
class Request:
    def __new__(
        cls,
        component: str,
        name: str | None,
        accelerators: Sequence[int],
        nodes: Sequence[int],
        strategy: str | None = ...,
        optional: bool = False,
        order: NodeOrder | None = None,
        *,
        amounts: Sequence[_Amounts] = ...,
    ) -> Self: ...
    component: Final[str]
    name: Final[str | None]
    accelerators: Final[tuple[int, ...]]
    nodes: Final[tuple[int, ...]]
    strategy: Final[str | None]
    optional: Final[bool]
    order: Final[NodeOrder | None]
    cpus: Final[tuple[float | None, ...]]
    memory: Final[tuple[int | None, ...]]
    resources: Final[tuple[dict[str, float], ...]]
    def __hash__(self) -> int: ...

@final
class Requests(Sequence[Request]):
    def __new__(cls, requests: Iterable[Request] | None = None, /) -> Self: ...
    @staticmethod
    def of(
        inventory: Inventory,
        component: str,
        taken: Taken,
        bundles: Sequence[int],
        per_group: int | None = None,
        *,
        name: str | None = None,
        pools: tuple[str, int] | None = None,
        strategy: str | None = None,
        order: str | None = None,
        amounts: Sequence[_Amounts] = ...,
    ) -> Requests: ...
    @staticmethod
    def of_rows(rows: Sequence[_RequestRow]) -> Requests: ...
    rows: Final[list[_RequestRow]]
    def pools(self) -> list[tuple[NodeOrder, RankSet]]: ...
    def lacking(
        self,
        inventory: Inventory,
        actors: Sequence[Mapping[str, Any]],
        processes: Mapping[str, Sequence[tuple[int, int, int]]],
        excluded: RankSet,
        unused: RankSet,
    ) -> list[_Lack]: ...
    def order_of_pools(
        self, inventory: Inventory, ids: Sequence[str], *, together: bool = False
    ) -> list[int] | None: ...
    def sorting(
        self,
        inventory: Inventory,
        ids: Sequence[str],
        components: dict[str, Placements],
        exchangeable: Sequence[str],
    ) -> Sorting: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> Request: ...
    @overload
    def __getitem__(self, key: slice, /) -> Requests: ...
    def __iter__(self) -> Iterator[Request]: ...
    def __add__(self, other: Requests, /) -> Requests: ...
    def __radd__(self, other: Requests, /) -> Requests: ...

@final
class Sorting:
    requests: Final[Requests]
    unsorted: Final[list[tuple[str, NodeOrder, list[int], list[int], bool]]]
    def exchanged(self, placements: Placements) -> Taken | None: ...

@final
class Pool:
    def __new__(
        cls,
        inventory: Inventory,
        selections: Sequence[tuple[str, RankSet, bool | tuple[str, Sequence[tuple[int, int]]]]],
        excluded: Sequence[tuple[RankSet, RankSet | None]] = ...,
    ) -> Self: ...
    def __len__(self) -> int: ...
    groups: Final[list[tuple[str, str]]]
    excluded: Final[RankSet]
    by_node: Final[bool]
    def place(self, text: str) -> tuple[RankMap, Placements]: ...
    def apply(self, rule: RankMap | Packed | Chunks, visibility: str | bool = ...) -> Placements: ...
    def ranks_of(self, placements: Placements) -> list[list[int]]: ...
    def require_hardware(self) -> None: ...

@final
class Placement:
    rank: Final[int]
    world_size: Final[int]
    cluster_node_rank: Final[int]
    placement_node_rank: Final[int]
    local_rank: Final[int]
    local_world_size: Final[int]
    local_hardware_ranks: Final[list[int]]
    accelerator_type: Final[str]
    visible_accelerators: Final[list[str]]
    local_accelerator_rank: Final[int]
    num_accelerators: Final[int]
    devices: Final[list[tuple[int, int]]]
    isolate_accelerator: Final[bool]
    visibility: Final[str]
    resource_type: Final[str]
    node_group_label: Final[str]

@final
class Pattern:
    node_group: Final[str]
    resource_type: Final[str]
    processes: Final[int]
    devices: Final[tuple[tuple[int, ...], ...]]

@final
class Run:
    node: Final[int]
    nodes: Final[int]
    first_rank: Final[int]
    pattern: Final[Pattern]

@final
class Placements(Sequence[Placement]):
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> Placement: ...
    @overload
    def __getitem__(self, key: slice, /) -> Placements: ...
    def index(self, row: Placement) -> int: ...  # type: ignore[override]
    def count(self, row: Placement) -> int: ...
    world_size: Final[int]
    isolate_accelerator: Final[bool]
    visibility: Final[str]
    nbytes: Final[int]
    whole: Final[bool]
    def accelerators(self) -> RankSet: ...
    def runs(self, at_home: bool = False) -> list[Run]: ...
    def on(self, inventory: Inventory) -> Placements: ...
    def seeing(self, visibility: str | bool) -> Placements: ...
    def to_numpy(self) -> dict[str, Any]: ...
    def state(self) -> _PlacementsState: ...
    @classmethod
    def from_state(cls, inventory: Inventory, visibility: str | bool, state: _PlacementsState) -> Placements: ...

@final
class Layout:
    def __new__(cls, placements: Placements, parallel: Parallel) -> Self: ...
    slots: Final[int]
    kinds: Final[list[str]]
    def noun(self, count: int) -> str: ...
    def size(self, kind: str) -> int: ...
    def groups(self, kind: str) -> Groups: ...
    def spans(self, kind: str, domains: Domains | None = None) -> Spans: ...
    def node_sets(self, kind: str) -> list[list[int]]: ...
    def named(self, kind: str, index: int) -> str: ...
    def slots_of(self, rank: int) -> range: ...
    def process_of(self, slot: int) -> int: ...
    def place(self, slot: int) -> tuple[int, int | None]: ...
    def coordinates(self, slot: int) -> dict[str, int]: ...
    def by_node(self) -> SlotSets: ...
    def by_process(self, each: int) -> SlotSets: ...
    def by_coordinates(self, kinds: Sequence[str]) -> SlotSets: ...
    def by_data(self, shards: int) -> SlotSets: ...
    def unchanged(self, after: Layout, nodes: Sequence[int | None]) -> RankSet: ...
    def mesh(self) -> list[tuple[str, int]]: ...
    def warnings(self, name: str) -> list[Diagnostic]: ...
    def to_numpy(self) -> dict[str, Any]: ...

@final
class SlotSets:
    even: Final[bool]
    def __len__(self) -> int: ...
    def __getitem__(self, set: int, /) -> list[int]: ...
    def __iter__(self) -> Iterator[list[int]]: ...
    def size(self, set: int) -> int: ...
    def of(self, slot: int) -> int: ...

@final
class Groups(Sequence[range]):
    size: Final[int]
    step: Final[int]
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> range: ...
    @overload
    def __getitem__(self, key: slice, /) -> list[range]: ...
    def index(self, group: range) -> int: ...  # type: ignore[override]
    def count(self, group: range) -> int: ...
    def of(self, slot: int) -> int: ...

@final
class Domains:
    def __new__(cls, ids: bytes) -> Self: ...

@final
class Spans:
    within: Final[int]
    crossing: Final[int]
    first_crossing: Final[int | None]

@final
class WeightMap:
    def __new__(cls, sender: tuple[str, Layout], receiver: tuple[str, Layout]) -> Self: ...
    shape: Final[tuple[int, int]]
    def receivers_of(self, sender: int) -> list[int]: ...
    def sender_of(self, receiver: int) -> int: ...

@final
class Hierarchy:
    UNKNOWN: int
    def __new__(cls, nodes: int, labels: Sequence[Sequence[int]]) -> Self: ...
    order: Final[list[int]]
    levels: Final[int]
    def at(self, level: int) -> list[int]: ...
    def sizes(self, level: int) -> list[int]: ...

@final
class Problem:
    def __new__(
        cls,
        domains: Hierarchy,
        *,
        node_classes: Sequence[int],
        rank_classes: Sequence[int | None],
        unfit: Sequence[tuple[int, RankSet]],
        parts: Sequence[tuple[Placements, Layout | None]],
        sets: Sequence[tuple[int, Sequence[int], int]],
        preferred: Sequence[tuple[int, Sequence[int]]],
        balanced: Sequence[tuple[int, Sequence[int]]],
        caps: Sequence[tuple[int, Sequence[int]]],
        pinned: Sequence[int | None],
        old: Sequence[int | None],
        segment: int,
    ) -> Self: ...
    def solve(self) -> Arrangement: ...
    def room(self, *, whole: bool) -> list[list[int]]: ...
    def moved_as_block(self, arrangement: Arrangement) -> Arrangement | None: ...
    def cost(self, nodes: Sequence[int | None]) -> list[int]: ...
    def crossings(self, nodes: Sequence[int | None]) -> list[list[int]]: ...
    def broken(self, arrangement: Arrangement) -> list[tuple[int, list[int]]]: ...

@final
class Arrangement:
    nodes: Final[list[int | None]]
    optimal: Final[bool]
    impossible: Final[bool]
    allowed: Final[bool]
    cost: Final[list[int]]
    moved: Final[int]

def pack_segments(
    domains: Sequence[int], wants: Sequence[tuple[int, int]], budget: int = 200_000
) -> list[list[int]] | None: ...

_Located: TypeAlias = tuple[tuple[str | int, ...], Diagnostic]
"""A fault, and the path of its value."""

_Rule: TypeAlias = RankMap | Packed | Chunks

_Beside: TypeAlias = tuple[str, tuple[str, ...], _Rule]
"""The name, the node groups and the rule of a component."""

@final
class PlanFile:
    def __new__(cls, content: object) -> Self: ...
    @staticmethod
    def parse(text: str) -> PlanFile | None: ...
    @staticmethod
    def of(
        inventory: Inventory,
        levels: Sequence[str] | None,
        cluster: Mapping[str, Any] | None,
        mode: str | None,
        dialect: str | None,
        requests: Requests,
        actors: Sequence[Mapping[str, Any]],
        components: Sequence[tuple[str, tuple[Sequence[str], _Rule], dict[str, Any], Sequence[_Beside]]],
        job: Mapping[str, Any] | None,
    ) -> PlanFile: ...
    @property
    def version(self) -> int | None: ...
    def plain(self) -> Any: ...
    def text(self) -> str: ...
    def read(self) -> SavedPlan: ...
    def position(self, path: Sequence[str | int]) -> list[int]: ...

@final
class SavedPlan:
    @property
    def inventory(self) -> Inventory | None: ...
    @property
    def levels(self) -> list[str] | None: ...
    @property
    def cluster(self) -> dict[str, Any] | None: ...
    @property
    def mode(self) -> str | None: ...
    @property
    def dialect(self) -> str | None: ...
    @property
    def components(
        self,
    ) -> list[tuple[str, Any, tuple[tuple[str, ...], _Rule, dict[str, Any], list[_Beside]] | None]]: ...
    @property
    def requests(self) -> Requests: ...
    @property
    def actors(self) -> list[dict[str, Any]]: ...
    @property
    def names(self) -> list[tuple[int, str, str]]: ...
    @property
    def job(self) -> dict[str, Any] | None: ...
    @property
    def faults(self) -> list[_Located]: ...

def read_inventory(
    content: Mapping[str, Any],
) -> tuple[Inventory | None, list[str] | None, list[_Located]]: ...
def read_cluster(content: Mapping[str, Any]) -> tuple[dict[str, Any] | None, list[_Located]]: ...
def joined_pools(
    pools: Sequence[tuple[NodeOrder, RankSet]], *, together: bool = False
) -> list[tuple[NodeOrder, RankSet]]: ...
def read_ranks(value: object) -> RankSet: ...
def level_faults(levels: object) -> list[_Located]: ...
def check_hardware_type(name: str) -> None: ...
def cpu_list(text: str) -> RankSet | None: ...
def groups_text(groups: Sequence[RankSet]) -> list[str]: ...
def pci_address(text: str) -> str | None: ...
def error_codes() -> list[str]: ...
def render(diagnostic: Diagnostic, color: bool) -> str: ...
def best_schedule(
    components: Sequence[tuple[Sequence[tuple[int, float, float]], float, int]],
    units: int,
    batches: int,
    stale: bool,
    capacity: float | None,
    transfers: Sequence[tuple[tuple[int, int], float, float]],
    shape: str,
) -> tuple[float, int, tuple[Any, ...]] | None:
    """Return the seconds, the units and the schedule of a shape with the lowest cost, ``None`` if no schedule fits.

    A component has its sizes (units, seconds of an iteration, memory), the seconds to switch it, and the components
    before it as a bit set. A transfer has its two components, the seconds if they run on different accelerators, and
    the seconds if they share some. A schedule is ``("leaf", component, units)``, ``("then", children, switching)`` or
    ``("pipe", children)``. Raises ``ValueError`` for an unknown shape.
    """

_MemoryParts: TypeAlias = list[tuple[str, str, float, float]]
"""Name, what it belongs to, lower and upper bound in bytes; infinite: no upper bound.

A part belongs to the ``state`` of a component, its ``gradients``, a ``pass`` over its layers, the ``update`` of its
weights, the ``allocator`` of its framework, or the ``process``, which no allocator counts.
"""

USABLE_MEMORY: float
"""Part of its nominal memory that a card offers at least."""

WEIGHT_BUCKET: int
"""The bucket in which weights are sent, in bytes."""

FUSED_CHUNK: int
"""Tokens of a chunk of fused logits, at most."""

USUAL_LENGTH: int
"""Tokens of the longest request of an engine for which no length is known."""

def model_params(model: Any) -> tuple[float, float]:
    """Return the number of parameters of a `Model`, at least and at most."""

def training_memory(model: Any, training: Any) -> list[tuple[_MemoryParts, tuple[float, float], tuple[float, float]]]:
    """Return, by pipeline stage, the parts of a slot, what it leaves asleep, and what it takes of its node's memory.

    Takes a `Model` and a `Training`. Raises ``ValueError`` for an unknown word.
    """

def engine_memory(
    model: Any, engine: Any, card: float
) -> tuple[_MemoryParts, tuple[float, float], tuple[float, float], float, tuple[float, float], bool | None]:
    """Return the parts of a rank of an engine, what it leaves asleep, what it takes of its node's memory, the bytes of
    its cache for a token, the tokens that the cache holds, and whether it starts (``None``: uncertain).

    Takes a `Model`, an `Engine` and the bytes of a card. Raises ``ValueError`` for an unknown word.
    """

def switch_memory(model: Any, training: Any, engine: Any, card: float) -> list[_MemoryParts]:
    """Return, by pipeline stage, the parts while a trainer's weights go to an engine on the same accelerator.

    Raises ``ValueError`` for an unknown word.
    """

_LikelyParts: TypeAlias = list[tuple[str, str, float]]
"""Name, what it belongs to, and bytes."""

_Likely: TypeAlias = tuple[_LikelyParts, bool, float]
"""What each part is measured to need, whether these are all parts, and what is left while it sleeps, in bytes."""

def training_likely(model: Any, training: Any) -> list[_Likely]:
    """Return, by pipeline stage, what a trainer is measured to need. Raises ``ValueError`` for an unknown word."""

def engine_likely(model: Any, engine: Any, card: float) -> tuple[_Likely, bool | None]:
    """Return what an engine is measured to need on a card of so many bytes, and whether it likely starts.

    ``None``: it is close.

    Raises ``ValueError`` for an unknown word.
    """

def switch_likely(model: Any, training: Any, engine: Any, card: float) -> list[_LikelyParts]:
    """Return, by pipeline stage, what is measured while weights go from a trainer to an engine on its accelerators.

    Raises ``ValueError`` for an unknown word.
    """

def likely_room(allocated: float) -> float:
    """Return the bytes that have to be free on a card for so many bytes of the allocator of a framework."""

def usual_share(engine: str) -> float:
    """Return the share that an engine takes if none is stated. Raises ``ValueError`` for an unknown word."""

def host_store() -> tuple[float, float]:
    """Return what a node has besides the memory of its ranks, in bytes."""

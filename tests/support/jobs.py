"""Random plans: any rule on any node groups of uneven nodes, with any settings."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import strategies as st
from rankplan import Inventory, Parallel, PlacementError, Plan, Request
from rankplan._core import Chunks, Packed, Pool, RankMap
from rankplan.hardware.policies import MEMORY_POLICIES, NIC_POLICIES, POLICIES, VISIBILITIES
from rankplan.plans.component import Component, PlacementMode, Rule, Settings
from rankplan.plans.rules import Rules
from rankplan.rlinf import with_section
from rankplan.testing import cluster_sections, inventories

from support.rules import rules_in

NAMES = ("actor", "critic", "env", "rollout")
_CORES = {"numa": {0: "0-7", 1: "8-15"}, "cores": ["0 x16"]}


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Inventory, Rules]:
    """Draw uneven nodes with facts, with node groups, excluded hardware and rules about the network."""
    content = draw(inventories(max_nodes=4, max_accelerators=5)).to_dict()
    for entry in content["nodes"]:
        if draw(st.booleans()):
            entry |= _CORES
            ids = entry.pop("accelerator_ids", None) or [str(index) for index in range(entry.get("accelerators", 0))]
            entry["accelerators"] = [{"id": name, "numa": index % 2} for index, name in enumerate(ids)]
    inventory = Inventory.from_dict(content)
    section = draw(cluster_sections(inventory))
    section["component_placement"] = {}
    if draw(st.booleans()):
        section["topology"] = {"keep": {"actor": {"tp": "node"}}, "segment": draw(st.sampled_from([1, 2, {"env": 1}]))}
    if draw(st.integers(0, 3)) == 0:
        node = draw(st.integers(0, section["num_nodes"] - 1))
        whole = not inventory.node(node).num_accelerators or draw(st.booleans())
        section["exclude"] = [f"node-{node}" if whole else f"node-{node}/0"]
    return with_section(inventory, section), rules_in(section)


@st.composite
def jobs(draw: st.DrawFn) -> Plan:
    """Draw a plan."""
    inventory, rules = draw(clusters())
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    components = [draw(_components(name, inventory)) for name in names]
    mode = draw(st.sampled_from([None, *PlacementMode]))
    asked = draw(st.lists(_requests(inventory.num_nodes), max_size=2))
    dialect = draw(st.sampled_from([None, "verl"]))
    return Plan(inventory, [one for one in components if one is not None], mode, dialect, asked, rules)


@st.composite
def _requests(draw: st.DrawFn, num_nodes: int) -> Request:
    sizes = tuple(draw(st.lists(st.integers(1, 2), min_size=1, max_size=4)))
    optional = draw(st.booleans())
    nodes = tuple(draw(st.integers(0, num_nodes - 1)) for _ in sizes if not optional)
    name, strategy = draw(st.sampled_from([None, "pool:0"])), draw(st.sampled_from([None, "PACK", "STRICT_PACK"]))
    return Request(draw(st.sampled_from(["", *NAMES])), name, sizes, nodes, strategy, optional)


@st.composite
def _components(draw: st.DrawFn, name: str, inventory: Inventory) -> Component | None:
    labels = tuple(draw(st.lists(st.sampled_from(inventory.group_labels), min_size=1, max_size=2, unique=True)))
    by_node = draw(st.integers(0, 3)) == 0
    settings = Settings(
        visibility=draw(st.sampled_from(VISIBILITIES)),  # type: ignore[arg-type]
        by_node=by_node,
        share=draw(st.sampled_from([None, 0.25, 1.0])),
        engines=draw(st.integers(1, 2)),
        binding=draw(st.sampled_from(POLICIES)),
        memory_binding=draw(st.sampled_from(MEMORY_POLICIES)),
        egl=draw(st.booleans()),
        nics=draw(st.sampled_from(NIC_POLICIES)),
    )
    for groups in (labels, labels[:1], ("cluster",), ("node",)):  # two groups may overlap, or count different things
        with suppress(PlacementError):
            pool = inventory.pool(groups, by_node=by_node)
            rule = draw(_rules(pool))
            if rule is not None:
                return draw(_sized(_placed(name, inventory, groups, rule, settings)))
    return None


def _placed(name: str, inventory: Inventory, groups: tuple[str, ...], rule: Rule, settings: Settings) -> Component:
    try:
        return Component.place(name, inventory, groups, rule, settings)
    except PlacementError:  # processes on two nodes, or a mask without an order
        single = RankMap.from_lists([[rank] for rank in rule.resources])
        return Component.place(name, inventory, groups, single, settings, visibility="own")


@st.composite
def _rules(draw: st.DrawFn, pool: Pool) -> Rule | None:
    usable = [rank for rank in range(len(pool)) if rank not in pool.excluded]
    if not usable:
        return None
    ranks = st.sampled_from(usable)
    kind = draw(st.sampled_from(["lists", "chunks", "packed", "packed", "text"]))
    if kind == "lists":
        rows = pool.apply(RankMap.from_lists([[rank] for rank in usable]))
        node_of = dict(zip(usable, (row.cluster_node_rank for row in rows), strict=True))
        pairs = [
            [rank, other] for rank in usable for other in usable if rank != other and node_of[rank] == node_of[other]
        ]
        near = st.sampled_from(pairs) if pairs and draw(st.booleans()) else ranks.map(lambda rank: [rank])
        return RankMap.from_lists(draw(st.lists(near, min_size=1, max_size=5)))
    if kind == "chunks":
        each = draw(st.integers(1, min(2, len(usable))))
        chosen = draw(st.lists(ranks, min_size=each, max_size=2 * each, unique=True))
        return Chunks(chosen * each, each) if len(chosen) > 1 else Chunks(chosen, 1)
    first = draw(ranks)
    last = next(rank for rank in range(first, len(pool) + 1) if rank + 1 not in usable)
    if kind == "packed":
        return Packed(first, last, 1, 1)
    times = draw(st.integers(1, 2))
    return RankMap.parse(f"{first}-{last}:0-{(last - first + 1) * times - 1}")


@st.composite
def _sized(draw: st.DrawFn, component: Component) -> Component:
    slots = component.slots
    sizes: dict[str, Any] = {}
    for kind in draw(st.lists(st.sampled_from(["tp", "pp", "cp", "ep", "fsdp"]), max_size=2, unique=True)):
        sizes[kind] = draw(st.sampled_from([size for size in range(1, slots + 1) if slots % size == 0]))
    order = draw(st.sampled_from([Parallel.ORDER, Parallel.ENGINE_ORDER, "dp-tp-cp-ep-pp"]))
    with suppress(PlacementError):
        return component.with_settings(parallel=Parallel(**sizes, order=order))
    return component


def altered(request: Request, **fields: Any) -> Request:
    """Return a request with other values of these fields."""
    keys = ("component", "name", "accelerators", "nodes", "strategy", "optional", "order")
    sizes = fields.get("accelerators", request.accelerators)
    amounts = [*zip(request.cpus, request.memory, (tuple(one.items()) for one in request.resources), strict=True)]
    known = amounts if len(amounts) == len(sizes) else []
    return Request(**{key: getattr(request, key) for key in keys} | {"amounts": known} | fields)

"""The parallel sizes of the trainer: FSDP with copies of the weights, context groups, and expert groups.

An expert group takes its ranks from context groups and from the shards of a copy, so that its ranks follow each other
(``ParallelDims``, trainer/parallel_dims.py).
"""

from __future__ import annotations

from rankplan import Model, Parallel, PlacementError
from rankplan.sdk import Config, Sizes
from rankplan.trainers.prime_rl import faults, keys

_AUTO = "auto"
_MOST = 8
"""The largest expert size that ``auto`` stands for."""


def training_sizes(config: Config, world: int, copies: int) -> Sizes:
    """Return the sizes of a trainer with so many ranks and copies of the weights; what does not divide is a fault."""
    context = config[keys.CONTEXT]
    places = {"cp": config.where(keys.CONTEXT), "ep": config.where(keys.EXPERT)}
    where = config.where(keys.CONTEXT, keys.EXPERT, keys.REPLICATE)
    if world % (copies * context):
        at = config.where(keys.REPLICATE if context == 1 else keys.CONTEXT)
        config.faults.add(at, faults.undivided_ranks(world, copies, context))
        return Sizes(where=where)
    island = world // copies
    expert = _expert_size(config, island)
    if expert > 1 and (expert % context or island % expert):
        config.faults.add(places["ep"], faults.undivided_experts(expert, context, island))
        return Sizes(where=where)
    shards = 1 if copies == 1 else island // context
    return Sizes(Parallel(cp=context, ep=expert, fsdp=shards), where, places)


def _expert_size(config: Config, island: int) -> int:
    """Return the expert size; ``auto`` divides the experts of a model that has some (``resolve_ep``).

    A model that rankplan does not know by its name has undivided experts here.
    """
    stated = config.raw(keys.EXPERT)
    if isinstance(stated, int) and not isinstance(stated, bool) and stated >= 1:
        return stated
    if stated not in (None, _AUTO, keys.NONE):
        config.faults.add(config.where(keys.EXPERT), faults.no_expert_size(stated))
        return 1
    is_own = config[keys.IMPLEMENTATION] in ("custom", _AUTO)
    return min(island, _MOST) if is_own and _has_experts(config[keys.MODEL]) else 1


def _has_experts(name: str | None) -> bool:
    if name is None:
        return False
    try:
        shape = Model.of(name).shape
    except (PlacementError, OSError, ValueError):
        return False
    return shape is not None and shape.experts is not None

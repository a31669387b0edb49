"""The pools of ms-swift's Megatron on Ray: as many GPUs on each of its nodes, for one role or for several.

Follows ms-swift's ``parse_ray_yaml``, ``_validate_colocate_groups``, ``RayConfig.gpus_as_process_on_nodes`` and
``MegatronRayPipeline._create_pools`` (3602360).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rankplan import Diagnostic
from rankplan.sdk import Config, Sizes, Where
from rankplan.trainers.ms_swift import faults, keys


@dataclass(frozen=True)
class Pool:
    """The GPUs of some roles: ``gpus`` on each of so many nodes, at the place of the first role's number."""

    roles: tuple[str, ...]
    nodes: int
    gpus: int
    where: Where

    @property
    def name(self) -> str:
        """The first of its roles in ms-swift's order."""
        return self.roles[0]

    @property
    def facts(self) -> dict[str, bool]:
        """What the memory of its roles depends on: whether training and rollout share its GPUs."""
        return {"is_hybrid": {keys.TRAIN, keys.ROLLOUT} <= {*self.roles}}


def training_sizes(config: Config) -> Sizes:
    """Return the sizes of the training; the experts are not divided like other tensors (``MegatronArguments``)."""
    section = config.under(keys.TRAIN)
    sizes = section.parallel(keys.TRAINING)
    if section.stated(keys.TRAINING["etp"]):
        return sizes
    return replace(sizes, parallel=replace(sizes.parallel, etp=1))


def read_pools(config: Config) -> list[Pool]:
    """Return the pools in the order in which ms-swift makes them: those of several roles come first."""
    counts = {role: config[key] for role, key in keys.GPUS.items()}
    if not counts[keys.TRAIN]:
        config.faults.add(config.where(keys.GPUS[keys.TRAIN]), faults.no_training())
    shared = list(_colocated(config, counts))
    alone = [(role,) for role in keys.ROLES if counts[role] and not any(role in roles for roles in shared)]
    nodes = max(config[keys.NNODES], 1)
    pools = []
    for roles in [*shared, *alone]:
        key = keys.GPUS[roles[0]]
        each, rest = divmod(counts[roles[0]], nodes)
        if rest:
            config.faults.add(config.where(key), faults.uneven_nodes(key.path, counts[roles[0]], nodes))
        else:
            pools.append(Pool(roles, nodes, each, config.where(key)))
    return pools


def _colocated(config: Config, counts: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """Yield the roles that share GPUs, in ms-swift's order; what it refuses is a fault."""
    groups = config[keys.COLOCATE_GROUPS]
    if not groups:
        return
    place = config.where(keys.COLOCATE_GROUPS)
    if not isinstance(groups, Sequence) or isinstance(groups, str):
        config.faults.add(place, faults.not_groups(groups))
        return
    seen: set[str] = set()
    for index, group in enumerate(groups):
        fault = _fault_of(index, group, seen, counts)
        if fault is not None:
            config.faults.add(place, fault)
            continue
        seen.update(group)
        yield tuple(role for role in keys.ROLES if role in group)


def _fault_of(index: int, group: Any, seen: set[str], counts: Mapping[str, int]) -> Diagnostic | None:
    """Return why ms-swift refuses roles that are to share GPUs, ``None`` if it does not."""
    if not isinstance(group, Sequence) or isinstance(group, str) or len(group) < 2:
        return faults.not_roles(index, group)
    names = [str(role) for role in group]
    for role in names:
        if role not in keys.ROLES:
            return faults.unknown_role(index, role)
    repeated = [role for number, role in enumerate(names) if role in seen or role in names[:number]]
    if repeated:
        return faults.role_twice(repeated[0])
    without = [role for role in names if not counts[role]]
    if without:
        return faults.role_without_gpus(index, without[0])
    sizes = {role: counts[role] for role in names}
    return faults.other_sizes(sizes) if len(set(sizes.values())) > 1 else None

"""The rules of a part of a plan: those that say something about its components, and that it follows."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import TypeVar

from rankplan.plans.component import Component
from rankplan.plans.pools import broken_bound, size_of
from rankplan.plans.rules import ALL, TOGETHER, Pool, Rules, component_names

_Stated = TypeVar("_Stated")


def rules_of(rules: Rules, parts: Mapping[str, Component]) -> Rules:
    """Return the rules about these components only. Bounds of a pool that only all its components meet are left out."""
    return replace(
        rules,
        keep=_of_components(rules.keep, parts),
        segment=_of_components(rules.segment, parts) if isinstance(rules.segment, Mapping) else rules.segment,
        prefer=_of_components(rules.prefer, parts),
        balance=_of_components(rules.balance, parts) if isinstance(rules.balance, Mapping) else rules.balance,
        pools=tuple(_without_broken_bound(pool, parts) for pool in rules.with_pools_of(parts).pools),
    )


def _without_broken_bound(pool: Pool, parts: Mapping[str, Component]) -> Pool:
    key = broken_bound(pool, size_of(pool, parts, {})) if pool.components else None
    if key == "min_accelerators":
        return replace(pool, min_accelerators=None)
    if key == "max_accelerators":
        return replace(pool, max_accelerators=None)
    return pool


def _of_components(stated: Mapping[str, _Stated], names: Container[str]) -> dict[str, _Stated]:
    """Return the entries of keys such as ``actor, rollout`` and ``actor + rollout`` for these components.

    A key whose components all remain is as it was written.
    """
    entries = {}
    for key, value in stated.items():
        written = component_names(key)
        remaining = [joined for joined in written if joined == ALL or _all_in(joined, names)]
        if remaining:
            entries[key if remaining == written else ", ".join(remaining)] = value
    return entries


def _all_in(joined: str, names: Container[str]) -> bool:
    return all(name.strip() in names for name in joined.split(TOGETHER))

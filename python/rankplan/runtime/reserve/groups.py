"""Placement groups with names, of which an interrupt at any moment leaves none behind."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    remove_placement_group,
)

from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.asking import HeadSilent, ask
from rankplan.runtime.ray.connection import Connection
from rankplan.runtime.ray.internals import granted, lost_connection
from rankplan.runtime.ray.signals import Uninterrupted


class NamedGroups:
    """Placement groups, each known by its unique name before it exists; ``end`` removes them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._groups: dict[str, PlacementGroup | None] = {}

    def create(self, name: str, bundles: Sequence[Mapping[str, float]], node_id: str | None = None) -> PlacementGroup:
        """Ask Ray for these bundles, on this node if it is given."""
        options: dict[str, Any] = {}
        if node_id is not None:
            options["bundle_label_selector"] = [{"ray.io/node-id": node_id}] * len(bundles)
        self._groups[name] = None
        given = [dict(bundle) for bundle in bundles]
        with Uninterrupted():  # the group may exist before its handle does
            group: PlacementGroup = ask(lambda: placement_group(given, name=name, **options), remove_placement_group)
            self._groups[name] = group
        return group

    def remove(self, name: str) -> None:
        """Remove the group of this name, if it exists."""
        self._remove(name, time.monotonic() + timeouts.REMOVE)

    def _remove(self, name: str, deadline: float) -> None:
        """Remove a group as soon as Ray has placed or refused it, or at this time.

        A node can keep what it prepares for a group that is removed meanwhile, until Ray ends
        (https://github.com/ray-project/ray/issues/64693).
        """
        with Uninterrupted():
            group = self._groups[name] or ask(lambda: _existing(name))
            if group is not None:
                while granted(group) is None and time.monotonic() < deadline:
                    time.sleep(timeouts.GRANT_POLL)
                ask(lambda: remove_placement_group(group))
            del self._groups[name]

    def end(self) -> None:
        """Remove all groups; may be called again."""
        with Uninterrupted():
            # without its head, Ray would try for a minute; it removes the groups itself when this job ends
            if self._groups and self._connection.is_current and lost_connection(timeouts.REMOVE) is None:
                deadline = time.monotonic() + timeouts.REMOVE
                with suppress(HeadSilent):
                    for name in list(self._groups):
                        self._remove(name, deadline)
            self._groups.clear()


def _existing(name: str) -> PlacementGroup | None:
    """Return the group of this name: an interrupt may have come before or after Ray made it."""
    try:
        found: PlacementGroup = get_placement_group(name)
    except ValueError:
        return None
    return found

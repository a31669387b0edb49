"""Parallel sizes as a config states them: with the place of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from rankplan.errors import NOWHERE, KeyPath, Where
from rankplan.frozen import frozen
from rankplan.parallel import NO_SIZES, Parallel


@frozen(slots=False)
class Sizes:
    """Parallel sizes of a component, with the place of each.

    ``where`` is the place of all of them together: their section, or a text that states them. ``places`` has that of
    each stated size, by its kind (``tp``), and ``keys`` the path that each would have. ``letters`` are those of a text
    that states all sizes, by kind: ``t`` in ``fsdp:d4t2``. ``path`` is that of the mapping that states them; only RLinf
    needs it.
    """

    parallel: Parallel = NO_SIZES
    where: Where = NOWHERE
    places: Mapping[str, Where] = field(default_factory=dict)
    keys: Mapping[str, KeyPath] = field(default_factory=dict)
    letters: Mapping[str, str] = field(default_factory=dict)
    path: KeyPath = ()

    def place(self, kinds: Iterable[str]) -> Where:
        """Return the place of the first of these sizes that is stated, else that of all."""
        return next((self.places[kind] for kind in kinds if kind in self.places), self.where)

"""Where a config states what decides the answers about its components, as its dialect found it while planning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rankplan.errors import Diagnostic, KeyPath, Where
from rankplan.memory.spelling import Spelling
from rankplan.plans.plan import Plan
from rankplan.read.text.sizes import Sizes


@dataclass(slots=True, eq=False)
class Sources:
    """What a config states of its components, by name: their parallel sizes, and the keys of their memory.

    ``memory`` has the path of a mapping that states the memory of a component as rankplan does, ``entries`` that of a
    mapping that states where a component runs.

    ``unknown_models`` are warnings of models that are known by no name and no file, by the path of their names.
    ``unnamed_model`` is the path of a key that would name a model where no key does, ``state_instead`` the help of a
    job without a language model.
    ``uncounted`` are keys whose effect on the memory of a component is unknown: nothing is said about it.
    """

    sizes: dict[str, Sizes] = field(default_factory=dict)
    spellings: dict[str, Spelling] = field(default_factory=dict)
    memory: dict[str, KeyPath] = field(default_factory=dict)
    entries: dict[str, KeyPath] = field(default_factory=dict)
    unknown_models: dict[KeyPath, Diagnostic] = field(default_factory=dict)
    unnamed_model: KeyPath | None = None
    state_instead: str | None = None
    uncounted: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def sizes_of(self, component: str, whole: Where) -> Sizes:
        """Return the parallel sizes of a component; none, at the place of the ``whole`` config, if it states none."""
        sizes = self.sizes.get(component)
        return Sizes(where=whole) if sizes is None else sizes


class Planned(NamedTuple):
    """A plan, and where its config states what decides it."""

    plan: Plan
    sources: Sources

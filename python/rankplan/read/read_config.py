"""The result of `Dialect.read`: a config as its dialect has read it, from which the plan is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankplan.errors import Diagnostic, KeyPath
from rankplan.frozen import frozen
from rankplan.read.text.reader import Reader
from rankplan.words import path_text

if TYPE_CHECKING:
    from rankplan.read.cluster import StatedCluster


@frozen
class ReadConfig:
    """A config that its dialect has read, once. It can be planned several times.

    ``reader`` has the content and its faults. ``values`` is what the dialect reads before it knows the nodes: a `Job`,
    or nothing. ``key_paths`` are those of the keys by which the dialect places. ``cluster`` is what the config
    states of its cluster, if it has keys for that.
    """

    reader: Reader
    values: Any = None
    key_paths: frozenset[KeyPath] = frozenset()
    cluster: StatedCluster | None = None

    def fork(self) -> ReadConfig:
        """Return the same config with the same faults; neither gets the later faults of the other."""
        return ReadConfig(self.reader.fork(), self.values, self.key_paths, self.cluster)

    @property
    def deciding_paths(self) -> frozenset[KeyPath]:
        """The paths of the values that decide the placement: those of the keys, and of other values read so far."""
        return self.key_paths | self.reader.paths_read

    def decides(self, warning: Diagnostic) -> bool:
        """Return whether a warning is about a value that decides the placement, about no value, or is a dialect's."""
        if warning.code not in ("not-run", "not-read") or warning in self.reader.faults.warnings:
            return True
        path = warning.path or ""
        if warning.code == "not-read" and not path:
            return True  # a whole config
        inside = (f"{path}.", f"{path}[")
        paths = map(path_text, self.deciding_paths)
        return any(other == path or other.startswith(inside) for other in paths)

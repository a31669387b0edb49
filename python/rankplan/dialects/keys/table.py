"""The keys of a dialect as a table: what recognises a config, and which keys each section has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rankplan.dialects.keys.key import Entry, Key, Kind, Recognition, flag_name, path_of
from rankplan.dialects.keys.roles import Role, memory_keys
from rankplan.dialects.keys.sisters import ignored_size, is_size, is_size_name, right_path, stated_beside
from rankplan.errors import KeyPath
from rankplan.frozen import frozen
from rankplan.read.text.reader import Reader, misspelt_key
from rankplan.references import resolved
from rankplan.words import path_text

if TYPE_CHECKING:
    from rankplan.dialects.keys.fork import Fork

FOREIGN = ("kwargs", "override", "strategy_config", "*")
"""Parts of the names of sections that have keys of another library, too."""


@frozen(slots=False)
class KeyTable:
    """The keys of a dialect: those by which it places, and those that tell what its components keep in memory.

    The latter place nothing and recognise nothing; ``memory`` are their roles, or the reference ``"module:NAME"`` of
    these, which is imported when they are used. ``never`` is the path of a key that no config of the dialect has;
    ``tells`` recognises a config without a telling key. ``flags``: the keys are flags, which may be written as on a
    command line (``--num-gpus`` for ``num_gpus``), and stand beside flags of other programs. The typos of flags, and
    without ``finds_typos`` all of them, are found by the job. ``fork`` says how the keys differ from those of a
    ``parent`` (`forked`).
    """

    keys: tuple[Key[Any], ...]
    memory: tuple[Role, ...] | str = ()
    never: str = "cluster"
    tells: Callable[[Mapping[Any, Any]], bool] = lambda config: False
    flags: bool = False
    finds_typos: bool = True
    fork: Fork | None = None
    parent: KeyTable | None = None

    def forked(
        self,
        own: Sequence[Key[Any]],
        *,
        lacks: Sequence[str] = (),
        memory: tuple[Role, ...] | str | None = None,
        tells: Callable[[Mapping[Any, Any]], bool] = lambda config: False,
    ) -> KeyTable:
        """Return the table of a fork with these keys of its own; see `Dialect.like`.

        Raises ``ValueError`` if one is like a key that this table does not have.
        """
        from rankplan.dialects.keys.fork import Fork  # few configs are those of a fork

        fork = Fork(self.keys, tuple(own), tuple(lacks))
        unknown = fork.unknown()
        if unknown:
            raise ValueError(f"the parent has no key {' and no key '.join(map(repr, unknown))}")
        roles = self.memory if memory is None else memory
        return replace(self, keys=(*fork.own, *fork.inherited), memory=roles, tells=tells, fork=fork, parent=self)

    def recognises(self, config: Mapping[Any, Any]) -> bool:
        """Return whether a config is written in the dialect."""
        if self.never and _has(config, path_of(self.never)):
            return False
        flags = self.written(config)
        if flags is not None:
            return any(path[0] in flags for path in self.telling) or self.tells(config)
        return any(_has(config, path) for path in self.telling) or self.tells(config)

    def written(self, config: Mapping[Any, Any]) -> dict[str, str] | None:
        """Return the flags of a config as they are written, by the names of their keys; ``None`` for other keys."""
        if not self.flags:
            return None
        written: dict[str, str] = {}
        for name in map(str, config):
            written.setdefault(flag_name(name), name)
        return written

    @cached_property
    def telling(self) -> list[KeyPath]:
        """The paths of the keys by which the dialect is recognised."""
        return self._paths("tells", "alone")

    @cached_property
    def alone(self) -> list[KeyPath]:
        """The paths of the keys that no config of another dialect may have."""
        return self._paths("alone", "others")

    def _paths(self, *tells: Recognition) -> list[KeyPath]:
        return [path_of(place) for key in self.keys for place in key.telling(*tells)]

    @cached_property
    def placing(self) -> tuple[Entry, ...]:
        """Every place of a key that decides the placement, once."""
        entries = (
            Entry(path_of(place), key.kind, key.decides, schema=key.schema)
            for key in self.keys
            if key.kind is not Kind.FACT
            for place in key.places()
        )
        return tuple(dict.fromkeys(entries))

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """What the keys say about the memory of components; of a fork, also what its parent's say of others."""
        roles: tuple[Role, ...] = resolved(self.memory)
        if self.parent is None or not roles:
            return roles
        components = {name for role in roles for name in role.components}
        return (*roles, *(role for role in self.parent.roles if components.isdisjoint(role.components)))

    @cached_property
    def remembering(self) -> tuple[Entry, ...]:
        """Every place of a key that tells what a component keeps in memory."""
        return tuple(memory_keys(self.roles))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every place of a key."""
        return (*self.placing, *self.remembering)

    @cached_property
    def known(self) -> dict[KeyPath, dict[str, None]]:
        """The keys of each section by which the dialect places, among them the sections inside it."""
        known: dict[KeyPath, dict[str, None]] = {}
        for entry in self.placing:
            for depth, name in enumerate(entry.path):
                known.setdefault(entry.path[:depth], {})[str(name)] = None
        return known

    @cached_property
    def spelt(self) -> dict[KeyPath, dict[str, None]]:
        """The keys of each section whose typos are faults: of memory, those in sections without keys of others."""
        spelt = {path: dict(names) for path, names in self.known.items()}
        for entry in self.remembering:
            section = entry.path[:-1]
            if section and not _is_foreign(section):
                spelt.setdefault(section, {})[str(entry.path[-1])] = None
        return spelt

    @cached_property
    def _sections(self) -> set[KeyPath]:
        """The sections of the keys of memory."""
        return {entry.path[:depth] for entry in self.remembering for depth in range(len(entry.path))}

    @cached_property
    def _every(self) -> set[KeyPath]:
        """The places of all keys."""
        return {entry.path for entry in self.entries}

    @cached_property
    def _sizes(self) -> list[tuple[KeyPath, ...]]:
        """The places of each size, by section."""
        sizes = (key for key in self.keys if key.kind is Kind.SIZE)
        return [tuple(map(path_of, places)) for key in sizes for places in key.by_section()]

    def reject_typos(self, reader: Reader) -> None:
        """Record a fault for each key of a config that looks like a typo, unless the job finds them.

        So is a size under the name of another system, or in a section that has no such key.
        """
        if self.flags or not self.finds_typos:
            return
        self._reject_sisters(reader)
        beside = reader.aside()
        for path, names in self.spelt.items():
            section = (reader if path in self.known else beside).section_at(path)
            unknown = [str(key) for key in section if key not in names and self._is_of_trainer(path, str(key))]
            if not unknown:
                continue
            placing = self.known.get(path, ())
            # A key beside the key of memory that it resembles is another one of the trainer.
            missing = sorted(name for name in names if name in placing or name not in section)
            for key in unknown:
                reader.reject_misspelt(key, missing, (*path, key))

    def _is_of_trainer(self, section: KeyPath, key: str) -> bool:
        """Return whether a key of a section is neither the user's own nor a section of keys of memory."""
        return not key.startswith("_") and (*section, key) not in self._sections

    def _reject_sisters(self, reader: Reader) -> None:
        """Record a fault for each size that the dialect reads elsewhere, and that is not stated there."""
        for section, names in self.known.items():
            content = reader.section_at(section)
            for name in content:
                path = (*section, str(name))
                if name in names or path in self._every or not is_size_name(str(name)):
                    continue
                if not reader.has(path) or not is_size(content[name]):
                    continue
                for stated in stated_beside(path, self._sizes, reader.has):
                    if content[stated[-1]] != content[name]:
                        reader.warn(path, ignored_size(path, content[name], stated, content[stated[-1]]))
                right = right_path(path, self._sizes, reader.has)
                if right is not None:
                    meant = str(right[-1]) if right[:-1] == path[:-1] else path_text(right)
                    reader.add_in_config(path, misspelt_key(path[-1], meant))


def _has(config: Any, path: KeyPath) -> bool:
    """Return whether a config has a key at a path."""
    for name in path:
        if not isinstance(config, Mapping) or name not in config:
            return False
        config = config[name]
    return True


def _is_foreign(section: KeyPath) -> bool:
    """Return whether a section has keys of another library, too."""
    inside_optimizer = len(section) > 1 and section[-1] == "optimizer"
    return inside_optimizer or any(word in str(name) for name in section for word in FOREIGN)

"""What the keys of a trainer decide about the memory of its components: roles, and their settings of ``memory``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import Any

from rankplan.dialects.keys.key import ANY_ROLE, Entry, Key, Kind, below, path_below, path_of
from rankplan.errors import KeyPath
from rankplan.frozen import frozen

OF_ROLE = "of_role"
"""The fact of a component that has the keys of another component's role: the name of that component."""

ARE_SIZED = "are_sized"
"""The fact of a component whose keys state parallel sizes: those that they leave out are 1."""

GUESSED = frozenset(
    {
        "",
        "precision",
        "optimizer",
        "optimizer_on_host",
        "lora",
        "cache_precision",
        "chunks",
        "first_layers",
        "whole_gradients",
        "last_layers",
    }
)
"""Settings whose missing value means something: with a value that is not read, the component says nothing. Any other
setting leaves both readings open."""


@frozen(slots=False, eq=False)
class Setting:
    """A setting of ``memory``, and the keys that decide it.

    ``by`` makes the setting of the values of ``keys``, in this order. It returns ``None`` for no setting, and `EFFECT`
    for a value that it does not know. Without a ``name``, it tells only whether the component can be read. ``only``
    are the kinds that it applies to: words such as ``fsdp`` or ``forward`` of the component's ``training``, ``forward``
    or ``engine``. ``words`` are values that a text may need for the setting. ``also`` are values of other keys that the
    trainer demands beside a setting other than none.
    """

    name: str
    keys: tuple[Key[Any], ...]
    by: Callable[..., Any]
    only: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    also: Mapping[Key[Any], Any] = field(default_factory=dict)

    @cached_property
    def of_defaults(self) -> Any:
        """The value of the setting in a config without its keys."""
        return self.by(*(key.default for key in self.keys))

    @cached_property
    def takes_facts(self) -> bool:
        """Whether it depends on what the plan says of a component."""
        return any(key.kind is Kind.FACT for key in self.keys)

    def applies(self, kind: Mapping[str, Any]) -> bool:
        """Return whether the setting is about a component of this kind."""
        words = {*kind, *map(str, kind.values())}
        return not self.only or not words.isdisjoint(self.only)

    @property
    def config_keys(self) -> list[Key[Any]]:
        """The keys that a config has."""
        return [key for key in self.keys if key.kind is not Kind.FACT]


def same(value: Any) -> Any:
    """Return the value unchanged."""
    return value


def setting(
    name: str,
    *keys: Key[Any],
    by: Callable[..., Any] = same,
    only: str = "",
    words: str = "",
    also: Mapping[Key[Any], Any] | None = None,
) -> Setting:
    """Return a setting that ``by`` makes of the values of keys; see `Setting`.

    ``only`` and ``words`` are words with blanks between them.
    """
    return Setting(name, keys, by, tuple(only.split()), tuple(words.split()), also or {})


@frozen(slots=False, eq=False)
class Role:
    """Components with the same keys, each with its section; ``*`` stands for any name, also at the end of one.

    ``kind`` decides what they are: its ``by`` returns settings such as ``{"training": "fsdp"}``, or ``None``.
    ``model`` is the name of their model, or what `Model.of` takes.
    """

    components: Mapping[str, str]
    kind: Setting
    model: Setting
    settings: tuple[Setting, ...]

    @property
    def all_settings(self) -> tuple[Setting, ...]:
        """Its kind, its model, and its settings."""
        return self.kind, self.model, *self.settings

    @cached_property
    def _kinds(self) -> dict[tuple[tuple[str, Any], ...], tuple[Setting, ...]]:
        return {}

    def applying(self, kind: Mapping[str, Any]) -> tuple[Setting, ...]:
        """Return the settings that are about a component of a kind."""
        words = tuple(kind.items())
        if words not in self._kinds:
            self._kinds[words] = tuple(setting for setting in self.settings if setting.applies(kind))
        return self._kinds[words]

    @cached_property
    def _names(self) -> dict[str, dict[KeyPath, dict[str, tuple[Setting, ...]]]]:
        return {}

    def names(self, section: str) -> Mapping[KeyPath, Mapping[str, tuple[Setting, ...]]]:
        """Return the names of the keys in each section of a config, and the settings that depend on each.

        ``section`` is that of a component.
        """
        if section not in self._names:
            names: dict[KeyPath, dict[str, tuple[Setting, ...]]] = {}
            for setting in self.all_settings:
                for key in setting.config_keys:
                    for dotted in key.paths:
                        *inside, name = path_below(section, dotted)
                        settings = names.setdefault(tuple(inside), {})
                        settings[str(name)] = (*settings.get(str(name), ()), setting)
            self._names[section] = names
        return self._names[section]

    def places(self, key: Key[Any]) -> Iterator[str]:
        """Yield every dotted path that a key may have for its components."""
        for section in dict.fromkeys(self.components.values()):
            for dotted in key.paths:
                yield below(section, dotted)

    def section(self, component: str) -> str | None:
        """Return the section of a component, ``None`` if the role is not its own."""
        for name, section in self.components.items():
            if name == component:
                return section
            if name.endswith("*") and component.startswith(name[:-1]):
                return section.replace("*", component[len(name) - 1 :])
        return None


def memory_keys(roles: Iterable[Role]) -> Iterator[Entry]:
    """Yield every place of a key of memory, without those that a key of any role covers."""
    kinds: dict[str, Kind] = {}
    settings: dict[str, dict[str, None]] = {}
    for role in roles:
        for one in role.all_settings:
            for key in one.config_keys:
                for path in role.places(key):
                    kinds.setdefault(path, key.kind)
                    settings.setdefault(path, {}).update({one.name: None} if one.name else {})
    for path, kind in kinds.items():
        in_any_role = f"{ANY_ROLE}.{path.partition('.')[2]}"
        if path == in_any_role or in_any_role not in kinds:
            yield Entry(path_of(path), kind, ", ".join(["memory", *settings[path]]), places=False)

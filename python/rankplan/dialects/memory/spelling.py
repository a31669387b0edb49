"""How a config states the memory of a component in its trainer's own keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

from rankplan.dialects.keys.config import Config
from rankplan.dialects.keys.key import Key, Kind
from rankplan.dialects.keys.roles import Setting
from rankplan.errors import KeyPath, Where
from rankplan.memory.settings import OPTIMIZERS, PRECISIONS, RECOMPUTE, SLEEP
from rankplan.plans.memory_settings import MemorySettings
from rankplan.read.sources import Sources
from rankplan.words import path_text

_WORDS = (*RECOMPUTE, *SLEEP, *PRECISIONS, *OPTIMIZERS)
_NO = "no_"
_MOST_KEYS = 2
"""Keys that one setting may take."""
_TRIED: dict[Kind, tuple[Any, ...]] = {
    Kind.SIZE: (1,),
    Kind.SWITCH: (True, False),
    Kind.ANY: (True, False),
    Kind.NUMBER: (0.5,),
    Kind.SHARE: (0.5,),
    Kind.FRACTION: (0.5,),
    Kind.TEXT: _WORDS,
}
_SWITCHES = (Kind.SWITCH, Kind.ANY)
"""Values of each kind of key, to see whether it decides a setting."""

Changed = Callable[[Mapping[KeyPath, Any]], MemorySettings | None]
Stated = Callable[[Key[Any]], tuple[KeyPath, Any]]


class KeySpelling:
    """The keys of a trainer that state the memory of one of its components.

    ``sources`` has the sizes of the component. ``changed`` returns the memory with other values of some keys,
    ``stated`` the path of a key, and its value or default; ``paths`` are those of the settings that the config states.
    """

    def __init__(
        self,
        config: Config,
        sources: Sources,
        component: str,
        settings: Sequence[Setting],
        paths: Mapping[str, KeyPath],
        changed: Changed,
        stated: Stated,
    ) -> None:
        self._config = config.aside()
        self._sources = sources
        self._component = component
        self._settings = settings
        self._paths = paths
        self._changed = changed
        self._stated = stated
        self._names: dict[str, str | None] = {}

    def place(self, setting: str) -> KeyPath | None:
        """Return the path of the key that states a setting, else that of the model."""
        return self._paths.get(setting, self._paths.get("model"))

    def values(self, settings: Mapping[str, Any]) -> dict[KeyPath, Any] | None:
        """Return values of keys that state exactly these settings, and change no other one; ``None`` if none do."""
        now = self._changed({})
        found: dict[KeyPath, Any] = {}
        for setting, value in settings.items():
            if now is None or (keys := self._setting(now, setting, value)) is None:
                return None
            found |= keys
        both = None if now is None else replace(now, **settings)
        return found if self._changed(found) == both else None

    def written(self, settings: Mapping[str, Any], sizes: Mapping[str, int]) -> str | None:
        """Return the keys to write for these settings and parallel sizes, with the lines of those that are there."""
        values = self.values(settings) if settings else {}
        if values is None:
            return None
        stated = self._sources.sizes_of(self._component, self._config.place_of(()))
        values |= {stated.keys[kind]: size for kind, size in sizes.items() if kind in stated.keys}
        texts = [self._value_text(path, value) for path, value in values.items()]
        letters = stated.letters
        if parts := "".join(f"{letters[kind]}{size}" for kind, size in sizes.items() if kind in letters):
            texts.append(f"`{parts}` in {_text(stated.where)}")
        rest = (kind for kind in sizes if kind not in letters and kind not in stated.keys)
        return " and ".join([*texts, *(f"{kind} {sizes[kind]}" for kind in rest)])

    def named(self, setting: str) -> str | None:
        """Return the keys that are missing for a setting to be known; ``None`` if no key states it."""
        if setting not in self._names:
            self._names[setting] = self._named(setting)
        return self._names[setting]

    def _named(self, setting: str) -> str | None:
        for each in self._of(setting):
            free = [key for key in each.config_keys if self._stated(key)[1] is None]
            free.sort(key=lambda key: key.kind in _SWITCHES)
            for paths in self._tried(free, lambda key: _TRIED[key.kind]):
                entry = self._changed(paths)
                if entry is not None and getattr(entry, setting) is not None:
                    return " and ".join(self._text(path) for path in paths)
        return None

    def _setting(self, now: MemorySettings, setting: str, value: Any) -> dict[KeyPath, Any] | None:
        wanted = replace(now, **{setting: value})
        for each in self._of(setting):

            def values(key: Key[Any], words: tuple[str, ...] = each.words) -> tuple[Any, ...]:
                if key.kind in _SWITCHES:
                    return True, False
                return (value, *words) if isinstance(value, str) == (key.kind is Kind.TEXT) else words

            for found in self._tried(each.config_keys, values):
                whole = found | self._beside(each, found) if value != "none" else found
                if self._changed(whole) == wanted:
                    return whole
        return None

    def _tried(
        self, keys: Sequence[Key[Any]], values: Callable[[Key[Any]], Sequence[Any]]
    ) -> Iterator[dict[KeyPath, Any]]:
        """Yield values of one key, then of two, that differ from those that are stated."""
        for count in range(1, _MOST_KEYS + 1):
            for some in combinations(keys, count):
                places = [self._stated(key) for key in some]
                for chosen in product(*map(values, some)):
                    if all(value != now for value, (_, now) in zip(chosen, places, strict=True)):
                        yield {path: value for value, (path, _) in zip(chosen, places, strict=True)}

    def _beside(self, setting: Setting, found: Mapping[KeyPath, Any]) -> dict[KeyPath, Any]:
        """Return the values of keys that a trainer demands beside those found, and that are not stated."""
        beside: dict[KeyPath, Any] = {}
        for key, value in setting.also.items():
            path, now = self._stated(replace(key, default=None))
            if now is None and path not in found:
                beside[path] = value
        return beside

    def _of(self, name: str) -> list[Setting]:
        return [setting for setting in self._settings if setting.name == name]

    def _value_text(self, path: KeyPath, value: Any) -> str:
        """Return a value to write at a path. A stated flag of a command such as ``no_offload`` gets its opposite."""
        negative = str(path[-1])
        if value is False and negative.startswith(_NO):
            where = self._config.place_of(path)
            return _text(replace(where, path=where.path.removesuffix(negative) + negative.removeprefix(_NO)))
        return self._text(path, f": {_plain(value)}")

    def _text(self, path: KeyPath, value: str = "") -> str:
        is_stated = self._config.at(path) is not None
        return _text(self._config.place_of(path) if is_stated else Where(path_text(path)), value)


def _text(where: Where, value: str = "") -> str:
    """Return the path of a place, with a value to write there, and its line."""
    text = f"`{where.path}{value}`"
    return text if where.line is None else f"{text} (line {where.line})"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)

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
_SWITCHES = (Kind.SWITCH, Kind.ANY)
_TRIED: dict[Kind, tuple[Any, ...]] = {
    Kind.SIZE: (1,),
    Kind.SWITCH: (True, False),
    Kind.ANY: (True, False),
    Kind.NUMBER: (0.5,),
    Kind.SHARE: (0.5,),
    Kind.FRACTION: (0.5,),
    Kind.TEXT: _WORDS,
}
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
        if now is None:
            return None
        values: dict[KeyPath, Any] = {}
        for setting, value in settings.items():
            values_of_setting = self._values_of(now, setting, value)
            if values_of_setting is None:
                return None
            values |= values_of_setting
        return values if self._changed(values) == replace(now, **settings) else None

    def written(self, settings: Mapping[str, Any], sizes: Mapping[str, int]) -> str | None:
        """Return the keys to write for these settings and parallel sizes, with the lines of those that are there."""
        values = self.values(settings) if settings else {}
        if values is None:
            return None
        places = self._sources.sizes_of(self._component, self._config.place_of(()))
        values |= {places.keys[kind]: size for kind, size in sizes.items() if kind in places.keys}
        texts = [self._value_text(path, value) for path, value in values.items()]
        letters = places.letters
        compact = "".join(f"{letters[kind]}{size}" for kind, size in sizes.items() if kind in letters)
        if compact:
            texts.append(f"`{compact}` in {_text(places.where)}")
        without_key = (kind for kind in sizes if kind not in letters and kind not in places.keys)
        return " and ".join([*texts, *(f"{kind} {sizes[kind]}" for kind in without_key)])

    def named(self, setting: str) -> str | None:
        """Return the keys that are missing for a setting to be known; ``None`` if no key states it."""
        if setting not in self._names:
            self._names[setting] = self._named(setting)
        return self._names[setting]

    def _named(self, name: str) -> str | None:
        """Return the fewest keys without a value with which a setting has one, whatever it is."""
        for setting in self._settings_of(name):
            free_keys = [key for key in setting.config_keys if self._stated(key)[1] is None]
            free_keys.sort(key=lambda key: key.kind in _SWITCHES)
            for values in self._trials(free_keys, lambda key: _TRIED[key.kind]):
                memory = self._changed(values)
                if memory is not None and getattr(memory, name) is not None:
                    return " and ".join(self._text(path) for path in values)
        return None

    def _values_of(self, now: MemorySettings, name: str, value: Any) -> dict[KeyPath, Any] | None:
        """Return the values of the fewest keys with which a setting has a value and all others stay."""
        wanted = replace(now, **{name: value})
        for setting in self._settings_of(name):

            def candidates(key: Key[Any], words: tuple[str, ...] = setting.words) -> tuple[Any, ...]:
                if key.kind in _SWITCHES:
                    return True, False
                takes_value = isinstance(value, str) == (key.kind is Kind.TEXT)
                return (value, *words) if takes_value else words

            for values in self._trials(setting.config_keys, candidates):
                if value != "none":
                    values |= self._demanded_beside(setting, values)
                if self._changed(values) == wanted:
                    return values
        return None

    def _trials(
        self, keys: Sequence[Key[Any]], candidates: Callable[[Key[Any]], Sequence[Any]]
    ) -> Iterator[dict[KeyPath, Any]]:
        """Yield values of one key, then of two, that differ from those that are stated."""
        for count in range(1, _MOST_KEYS + 1):
            for some_keys in combinations(keys, count):
                paths, values_now = zip(*map(self._stated, some_keys), strict=True)
                for values in product(*map(candidates, some_keys)):
                    if all(value != now for value, now in zip(values, values_now, strict=True)):
                        yield dict(zip(paths, values, strict=True))

    def _demanded_beside(self, setting: Setting, values: Mapping[KeyPath, Any]) -> dict[KeyPath, Any]:
        """Return the values of keys that a trainer demands beside these, and that are not stated."""
        beside: dict[KeyPath, Any] = {}
        for key, value in setting.also.items():
            path, now = self._stated(replace(key, default=None))
            if now is None and path not in values:
                beside[path] = value
        return beside

    def _settings_of(self, name: str) -> list[Setting]:
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

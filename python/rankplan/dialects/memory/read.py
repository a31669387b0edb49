"""Reads the memory settings of components from the keys of their dialect."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from rankplan.dialects.keys.key import Key, Kind, path_below
from rankplan.dialects.keys.roles import GUESSED, Role, Setting
from rankplan.dialects.memory.convert import EFFECT, RUN_TIME, Unread
from rankplan.dialects.memory.spelling import KeySpelling
from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.plans.memory_settings import COUNTS, FITTING, LARGEST_COUNT, MemorySettings
from rankplan.plans.model import LARGEST, Model
from rankplan.read.sources import Sources
from rankplan.read.text.reader import Reader
from rankplan.words import as_int, must_be

_PRODUCT = re.compile(r"\$\{mul(?:tiply)?:\s*([0-9]{1,9})\s*,\s*([0-9]{1,9})\s*\}")
_ALLOWED = {
    Kind.SIZE: "a whole number",
    Kind.TEXT: "text",
    Kind.SWITCH: "true or false",
    Kind.NUMBER: "a number",
    Kind.SHARE: "a number above 0, up to 1",
    Kind.FRACTION: "a number from 0 to 1",
}
SCORING = ("critic", "value", "reward", "reward_model")
"""Components whose model has, or may have, a scalar head."""
_SWITCHES = {"true": True, "false": False}
_NUMBERS = ("share", "optimizer_on_host")


class MemoryReader:
    """Reads a config beside the reader of its dialect: what it asks for decides no placement.

    ``roles`` are those of the system; without any, the config says nothing. ``defaults``: a key that is missing has its
    system's default, since the config is all that there is. ``names`` are the keys at the top under their usual names,
    if they may have others. ``model`` is for components whose own model is unknown. ``undivided``: only the keys can
    state the sizes of a component. ``sources`` is how the config states the memory of the components read so far.
    """

    def __init__(
        self,
        reader: Reader,
        roles: Sequence[Role],
        *,
        defaults: bool = True,
        names: Mapping[str, Any] | None = None,
        model: Model | None = None,
        undivided: bool = True,
    ) -> None:
        self._reader, self._roles, self._defaults, self._names = reader, roles, defaults, names
        self.sources = Sources()
        self._model = model
        self.undivided = defaults and undivided
        self._probe = reader.aside()
        self._changes: Mapping[KeyPath, Any] = {}
        self._models: dict[str, Model | None] = {}

    def memory(self, component: str, facts: Mapping[str, Any]) -> MemorySettings | None:
        """Return what a component keeps, as far as the config tells; ``facts`` are what the plan says of it.

        Values of a wrong type are recorded.
        """
        for role in self._roles:
            if (section := role.section(component)) is not None:
                reading = _Reading(self, component, role, section, facts)
                entry = reading.memory()
                if entry is not None:
                    self._keep(component, reading)
                return entry
        return None

    def _keep(self, component: str, reading: _Reading) -> None:
        """Keep how the config states the memory of a component, for the place and the help of an answer."""

        def changed(values: Mapping[KeyPath, Any]) -> MemorySettings | None:
            other = copy(self)
            other._reader, other._changes = self._reader.fork(), values
            return reading.by(other).memory()

        paths, place = reading.paths, reading.place
        spelling = KeySpelling(self._reader, self.sources, component, reading.settings, paths, changed, place)
        self.sources.spellings[component] = spelling

    def model(self, name: Any, path: KeyPath | None) -> Model | None:
        """Return the model with a name, which is at a path; ``None`` if it is unknown, which is kept for an answer."""
        if isinstance(name, Model):
            return name
        if not isinstance(name, str):
            return self._model
        if name not in self._models:
            try:
                self._models[name] = Model.of(name)
            except (PlacementError, OSError, ValueError) as error:
                self._models[name] = None
                if path is not None and isinstance(error, PlacementError) and self._model is None:
                    warning = _unknown_model(error.diagnostics[0])
                    self.sources.unknown_models[path] = self._reader.located(path, warning)
        return self._models[name] or self._model

    def stated(self, path: KeyPath) -> tuple[KeyPath, Any]:
        """Return the path of a value as the config spells it, and the value, ``None`` if it is missing."""
        if self._names is not None:
            path = (self._names.get(str(path[0]), path[0]), *path[1:])
        return path, self._changes[path] if path in self._changes else self._probe.at(path)

    def value(self, key: Key[Any], section: str, facts: Mapping[str, Any]) -> tuple[KeyPath | None, Any]:
        """Return the path of the first stated value of a key, and the value; without one, the default."""
        if key.kind is Kind.FACT:
            return None, facts.get(key.path)
        for dotted in key.paths:
            path, value = self.stated(path_below(section, dotted))
            value = _plain(value, key.kind)
            if value is None:
                continue
            if value is not RUN_TIME and not _fits(value, key.kind):
                allowed = _ALLOWED[key.kind]
                self._reader.add_once(path, must_be(path, value, allowed, f"write {allowed}"))
                return path, RUN_TIME
            if key.kind is Kind.SIZE and value is not RUN_TIME and value < 1:
                return path, None
            return path, value
        return None, key.default if self._defaults else RUN_TIME

    def add(self, path: KeyPath, found: Diagnostic) -> None:
        """Record a fault at a path, once."""
        self._reader.add_once(path, found)


class _Reading:
    """The values of a component: the ``settings`` that apply to it, and the ``paths`` of settings that are stated."""

    def __init__(
        self, reader: MemoryReader, component: str, role: Role, section: str, facts: Mapping[str, Any]
    ) -> None:
        self._reader, self._component, self._role, self._section, self._facts = reader, component, role, section, facts
        self.paths: dict[str, KeyPath] = {}
        self.settings: tuple[Setting, ...] = ()

    def by(self, reader: MemoryReader) -> _Reading:
        """Return the same component as another reader reads it."""
        return _Reading(reader, self._component, self._role, self._section, self._facts)

    def place(self, key: Key[Any]) -> tuple[KeyPath, Any]:
        """Return where a key is stated, or else should be, and its value or default."""
        path, value = self._value(key)
        if path is None:
            usual = next((dotted for dotted in key.paths if "kwargs" not in dotted), key.path)
            path, _ = self._reader.stated(path_below(self._section, usual))
        return path, None if value is RUN_TIME else value

    def memory(self) -> MemorySettings | None:
        """Return the memory of the component, ``None`` if its model or what it does is unknown."""
        kind = self._setting(self._role.kind)
        if not isinstance(kind, dict):
            return None
        found: dict[str, Any] = {}
        known = True
        self.settings = tuple(setting for setting in self._role.settings if setting.applies(kind))
        for setting in self.settings:
            value = self._setting(setting)
            known &= value is not EFFECT and not (value is RUN_TIME and setting.name in GUESSED)
            if not isinstance(value, Unread) and value is not None:
                found[setting.name] = value
        name = self._setting(self._role.model)
        model = self._reader.model(name, self.paths.get("model"))
        if model is None or not known:
            return None
        model = model.scoring() if self._component in SCORING else model
        fitting = FITTING[next(iter(kind))]
        fields: dict[str, Any] = {key: value for key, value in found.items() if key in fitting}
        fields |= {key: float(fields[key]) for key in _NUMBERS if key in fields}
        settings = MemorySettings(**kind, **fields, model=model, undivided=self._reader.undivided)
        fault = _count_fault(settings) or settings.ends_fault(model)
        if fault is None:
            return settings
        ends = (self.paths.get(key) for key in ("last_layers", "first_layers", "model"))
        self._reader.add(next((path for path in ends if path is not None), ()), fault)
        return None

    def _setting(self, setting: Setting) -> Any:
        values = []
        for key in setting.keys:
            path, value = self._value(key)
            values.append(value)
            if path is not None:
                self.paths.setdefault(setting.name, path)
        return RUN_TIME if RUN_TIME in values else setting.by(*values)

    def _value(self, key: Key[Any]) -> tuple[KeyPath | None, Any]:
        return self._reader.value(key, self._section, self._facts)


def _count_fault(settings: MemorySettings) -> Diagnostic | None:
    """Return the fault of a count that follows from several keys and is out of range."""
    for name in COUNTS:
        count = getattr(settings, name)
        if count is not None and count < 1:
            return must_be((name,), count, "1 or more", "use 1 or more")
        if count is not None and count > LARGEST_COUNT:
            return must_be((name,), count, f"{LARGEST_COUNT} or less", f"use {LARGEST_COUNT} or less")
    return None


def _unknown_model(found: Diagnostic) -> Diagnostic:
    """Return the warning of a trainer's model: its config has no number of parameters to state instead."""
    near = found.help if found.help and found.help.startswith("did you mean") else None
    return replace(
        found, help=near or "use a name of the table, or the path of a folder with its config.json", warning=True
    )


def _plain(value: Any, kind: Kind) -> Any:
    """Return a value as its kind, where it is written as a text; a text for the run to resolve is `RUN_TIME`."""
    if not isinstance(value, str):
        if kind is Kind.SWITCH and value in (0, 1):
            return bool(value)
        return int(value) if isinstance(value, float) and kind is Kind.SIZE and value.is_integer() else value
    if (product := _PRODUCT.fullmatch(value)) is not None:
        return int(product[1]) * int(product[2])
    if "$" in value or value == "???":
        return RUN_TIME
    word = value.strip().lower()
    if word in ("", "null", "none", "~"):
        return None
    if kind in (Kind.TEXT, Kind.ANY):
        return value
    if kind is Kind.SWITCH:
        return _SWITCHES.get(word, value)
    if word == "auto":
        return RUN_TIME
    try:
        return int(value) if kind is Kind.SIZE else float(value)
    except ValueError:
        return value


def _fits(value: Any, kind: Kind) -> bool:
    """Return whether a value is of a kind."""
    if kind is Kind.ANY:
        return True
    if kind is Kind.SWITCH:
        return isinstance(value, bool)
    if kind is Kind.TEXT:
        return isinstance(value, (str, int, float))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LARGEST:
        return False
    if kind is Kind.SIZE:
        return as_int(value) is not None and value <= LARGEST_COUNT
    if kind is Kind.SHARE:
        return 0 < value <= 1
    return kind is Kind.NUMBER or 0 <= value <= 1

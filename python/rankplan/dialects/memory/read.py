"""Reads the memory settings of components from the keys of their dialect."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from rankplan.dialects.keys.config import Config
from rankplan.dialects.keys.key import Key, Kind
from rankplan.dialects.keys.roles import ARE_SIZED, GUESSED, OF_ROLE, Role, Setting
from rankplan.dialects.memory.convert import EFFECT, RUN_TIME, SMALL, Foreign, Unread
from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.plans.memory_settings import COUNTS, FITTING, LARGEST_COUNT, MemorySettings
from rankplan.plans.model import Model
from rankplan.plans.shape import LARGEST
from rankplan.read.sources import Sources
from rankplan.words import as_int, must_be, path_text

if TYPE_CHECKING:
    from rankplan.dialects.memory.spelling import KeySpelling

_PRODUCT = r"\$\{mul(?:tiply)?:\s*([0-9]{1,9})\s*,\s*([0-9]{1,9})\s*\}"
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
    """Reads what the keys of a dialect say about the memory of components. None of them decides a placement.

    ``roles`` are those of the system; without any, the config says nothing. ``has_defaults``: a key that is missing has
    its system's default, since the config is all that there is. ``model`` is for components whose own model is unknown.
    ``undivided``: only the keys can state the sizes of a component. ``sources`` is how the config states the memory of
    the components read so far.

    Most configs state few of the keys of a system. Only settings with a key that stands in the config are worked out
    from values; every other one is that of the defaults, which `Setting.of_defaults` keeps.
    """

    def __init__(
        self,
        config: Config,
        roles: Sequence[Role],
        *,
        has_defaults: bool = True,
        model: Model | None = None,
        undivided: bool = True,
    ) -> None:
        self._config = config
        self._roles = roles
        self._model = model
        self._models: dict[str, Model | None] = {}
        self._values = config.aside()
        self.has_defaults = has_defaults
        self.undivided = has_defaults and undivided
        self.sources = Sources()

    def memory(self, component: str, facts: Mapping[str, Any]) -> MemorySettings | None:
        """Return what a component keeps, as far as the config tells; ``facts`` are what the plan says of it.

        Values of a wrong type are recorded.
        """
        for role in self._roles:
            section = role.section(facts.get(OF_ROLE, component))
            if section is not None:
                subject = _Subject(component, role, section, facts)
                reading = self._reading(subject)
                settings = reading.memory()
                if settings is not None:
                    self.sources.spellings[component] = self._spelling(subject, reading)
                elif reading.uncounted:
                    self.sources.uncounted[component] = tuple(reading.uncounted)
                return settings
        return None

    def _reading(self, subject: _Subject) -> _Reading:
        return _Reading(self, subject, self._config, self._values)

    def _spelling(self, subject: _Subject, reading: _Reading) -> KeySpelling:
        """Return how the config states the memory of a component, for the place and the help of an answer."""
        from rankplan.dialects.memory.spelling import KeySpelling  # of no use without a known model

        trial = copy(self)
        trial.sources = Sources()  # what is found out about values that are only tried is not about the config

        def changed(values: Mapping[KeyPath, Any]) -> MemorySettings | None:
            config = self._config.with_values(values)
            return _Reading(trial, subject, config, config.aside()).memory()

        return KeySpelling(
            self._config, self.sources, subject.component, reading.settings, reading.paths, changed, reading.place
        )

    def model(self, name: Any, path: KeyPath | None) -> Model | None:
        """Return the model with a name, which is at a path; ``None`` if it is unknown, which is kept for an answer."""
        if isinstance(name, Model):
            return name
        if isinstance(name, Unset):
            return self._with_variable(name.text, path)
        if not isinstance(name, str):
            return self._model
        if name not in self._models:
            try:
                self._models[name] = Model.of(name)
            except (PlacementError, OSError, ValueError) as error:
                from rankplan.dialects.memory.faults import unknown_model  # most models are in the table

                self._models[name] = None
                if path is not None and isinstance(error, PlacementError) and self._model is None:
                    self._add_unknown(path, unknown_model(error.diagnostics[0]))
        return self._models[name] or self._model

    def add_foreign(self, kind: Foreign, path: KeyPath) -> None:
        """Keep for an answer that a job trains no language model; ``path`` is that of the key that tells so."""
        from rankplan.dialects.memory.faults import no_language_model  # most jobs train one

        warning = no_language_model(kind.task, kind.model)
        self.sources.state_instead = warning.help
        self._add_unknown(path, warning)

    def add_unnamed(self, path: KeyPath) -> None:
        """Keep for an answer the first key that names no model; whoever passes one, passes it for all components."""
        if self.has_defaults and self.sources.unnamed_model is None:
            self.sources.unnamed_model = path

    def _add_unknown(self, path: KeyPath, warning: Diagnostic) -> None:
        self.sources.unknown_models[path] = self._config.place_of(path).locate(warning)

    def _with_variable(self, text: str, path: KeyPath | None) -> Model | None:
        """Return the model of a path with a variable: its folder may have the name of one. Else it is the reason."""
        from rankplan.dialects.memory.faults import variable_in_model
        from rankplan.plans.model_names import last_part

        folder = last_part(text)
        if folder and "$" not in folder and self._model is None:
            with suppress(PlacementError):
                return Model.of(folder)
        if path is not None and self._model is None:
            self._add_unknown(path, variable_in_model(text))
        return self._model


class Unset(NamedTuple):
    """The text of a model's name that only the run resolves: it has a variable."""

    text: str


class _Subject(NamedTuple):
    """A component whose memory is read: its role, its section, and what the plan and the dialect know of it."""

    component: str
    role: Role
    section: str
    facts: Mapping[str, Any]


class _Reading:
    """The values of a component: the ``settings`` that apply to it, and the ``paths`` of settings that are stated.

    ``uncounted`` are the keys whose effect on its memory is unknown.
    Faults go to ``config``, values come from ``values``.
    """

    def __init__(self, reader: MemoryReader, subject: _Subject, config: Config, values: Config) -> None:
        self._reader = reader
        self._subject = subject
        self._faults = config.faults
        self._values = values.under(subject.section) if subject.section else values
        self._stated = self._stated_settings()
        self.paths: dict[str, KeyPath] = {}
        self.uncounted: dict[str, None] = {}
        self.settings: tuple[Setting, ...] = ()

    def _stated_settings(self) -> set[Setting]:
        """Return the settings with a key that stands in the config."""
        stated: set[Setting] = set()
        for path, settings_of in self._subject.role.names(self._subject.section).items():
            for name in settings_of.keys() & self._values.names_in(path):
                stated.update(settings_of[name])
        return stated

    def place(self, key: Key[Any]) -> tuple[KeyPath, Any]:
        """Return where a key is stated, or else should be, and its value or default."""
        path, value = self._value(key)
        if path is None:
            usual = next((dotted for dotted in key.paths if "kwargs" not in dotted), key.path)
            path = self._values.path_at(usual)
        return path, None if value is RUN_TIME else value

    def memory(self) -> MemorySettings | None:
        """Return the memory of the component, ``None`` if its model or what it does is unknown."""
        role = self._subject.role
        kind = self._setting(role.kind)
        if isinstance(kind, Foreign):
            self._reader.add_foreign(kind, self.place(kind.key)[0])
        if not isinstance(kind, dict):
            return None
        if "resident" in kind:
            return MemorySettings(**kind)
        self.settings = role.applying(kind)
        name, path = self._model_name(role.model)
        model = self._reader.model(name, path)
        if model is None:
            if name is None and path is None and role.model.config_keys:
                self._reader.add_unnamed(self.place(role.model.config_keys[0])[0])
            self._check_types()
            return None
        fields = self._fields()
        return None if self.uncounted else self._checked(kind, fields, model)

    def _fields(self) -> dict[str, Any]:
        """Return the values of the settings that are known; of keys that are not read, those of the defaults.

        Keys with an unknown effect are `uncounted`. The value that only the run knows of any other setting is left out:
        then both readings are open.
        """
        fields: dict[str, Any] = {}
        unread: dict[str, None] = {}
        for setting in self.settings:
            value = self._setting(setting)
            if value is EFFECT:
                self.uncounted |= dict.fromkeys(self._unread_keys(setting))
            if value is SMALL or (value is RUN_TIME and setting.name in GUESSED):
                value = setting.of_defaults
                unread |= dict.fromkeys(self._unread_keys(setting))
            if not isinstance(value, Unread) and value is not None:
                fields[setting.name] = value
        if unread:
            fields["unread"] = ", ".join(f"`{key}`" for key in unread)
        return fields

    def _unread_keys(self, setting: Setting) -> Iterator[str]:
        """Yield the keys of a setting that stand in the config, or else its first one."""
        stated = [path for path, _ in map(self._value, setting.config_keys) if path is not None]
        yield from map(path_text, stated or [self._values.path_at(setting.config_keys[0].path)])

    def _model_name(self, setting: Setting) -> tuple[Any, KeyPath | None]:
        """Return what names the model, and its path: `Unset` for a text that has a variable, in a file or a script."""
        name = self._setting(setting)
        path = self.paths.get("model")
        if name is RUN_TIME and path is not None:
            return Unset(str(self._values.at(path))), path
        if path is None and not isinstance(name, Model):
            for key in setting.config_keys:
                for possible in self._values.paths(key):
                    text = self._values.partial_text(possible)
                    if text is not None:
                        return Unset(text), possible
        return name, path

    def _check_types(self) -> None:
        """Record the faults of the values that the config states; their settings are of no use."""
        for setting in self.settings:
            if setting in self._stated:
                self._setting(setting)

    def _checked(self, kind: dict[str, Any], found: Mapping[str, Any], model: Model) -> MemorySettings | None:
        """Return the settings of a component with a model, ``None`` if they have a fault, which is recorded."""
        model = model.scoring() if self._subject.component in SCORING else model
        fitting = FITTING[next(iter(kind))]
        fields: dict[str, Any] = {key: value for key, value in found.items() if key in fitting}
        fields |= {key: float(fields[key]) for key in _NUMBERS if key in fields}
        if isinstance(layers := fields.get("recompute"), int):
            fields["recompute"] = "full" if layers >= (model.layers or math.inf) else None
        undivided = self._reader.undivided or bool(self._subject.facts.get(ARE_SIZED))
        settings = MemorySettings(**kind, **fields, model=model, undivided=undivided)
        fault = _count_fault(settings) or settings.ends_fault(model)
        if fault is None:
            return settings
        ends = (self.paths.get(key) for key in ("last_layers", "first_layers", "model"))
        path = next((path for path in ends if path is not None), ())
        self._faults.add(self._values.place_of(path), fault)
        return None

    def _setting(self, setting: Setting) -> Any:
        if setting not in self._stated and not setting.takes_facts:
            return setting.of_defaults if self._reader.has_defaults or not setting.keys else RUN_TIME
        values = []
        for key in setting.keys:
            path, value = self._value(key)
            values.append(value)
            if path is not None:
                self.paths.setdefault(setting.name, path)
        return RUN_TIME if RUN_TIME in values else setting.by(*values)

    def _value(self, key: Key[Any]) -> tuple[KeyPath | None, Any]:
        """Return the path of the first stated value of a key, and the value; without one, the default.

        A value of a wrong type is a fault.
        """
        if key.kind is Kind.FACT:
            return None, self._subject.facts.get(key.path)
        for path in self._values.paths(key):
            value = _plain(self._values.at(path), key.kind)
            if value is None:
                if key.takes_null and path[-1] in self._values.names_in(path[:-1]):
                    return path, None
                continue
            if value is not RUN_TIME and not _fits(value, key.kind):
                allowed = _ALLOWED[key.kind]
                fault = must_be(path, value, allowed, f"write {allowed}")
                self._faults.add(self._values.place_of(path), fault)
                return path, RUN_TIME
            if key.kind is Kind.SIZE and value is not RUN_TIME and value < 1:
                return path, None
            return path, value
        return None, key.default if self._reader.has_defaults else RUN_TIME


def _count_fault(settings: MemorySettings) -> Diagnostic | None:
    """Return the fault of a count that follows from several keys and is out of range."""
    for name in COUNTS:
        count = getattr(settings, name)
        if count is not None and count < 1:
            return must_be((name,), count, "1 or more", "use 1 or more")
        if count is not None and count > LARGEST_COUNT:
            return must_be((name,), count, f"{LARGEST_COUNT} or less", f"use {LARGEST_COUNT} or less")
    return None


_WITH_UNIT = r"[0-9.]+[kmgt]"
"""A number such as ``20G``, which newer versions of vLLM read with a unit of their own."""
_NOTHING = ("", "null", "none", "~")
_OF_THE_RUN = "$", "???"
"""Parts of a text that the run resolves: a variable, and a value that OmegaConf demands."""


def _plain(value: Any, kind: Kind) -> Any:
    """Return a value as its kind, where it is written as a text; a text for the run to resolve is `RUN_TIME`."""
    if isinstance(value, str):
        return _plain_text(value, kind)
    if kind is Kind.SWITCH and value in (0, 1):
        return bool(value)
    if kind is Kind.SIZE and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _plain_text(text: str, kind: Kind) -> Any:
    product = re.fullmatch(_PRODUCT, text)
    if product is not None:
        return int(product[1]) * int(product[2])
    variable, demanded = _OF_THE_RUN
    if variable in text or text == demanded:
        return RUN_TIME
    word = text.strip().lower()
    if word in _NOTHING:
        return None
    if kind in (Kind.TEXT, Kind.ANY):
        return text
    if kind is Kind.SWITCH:
        return _SWITCHES.get(word, text)
    return _plain_number(text, word, kind)


def _plain_number(text: str, word: str, kind: Kind) -> Any:
    """Return the number that a text states, or the text if it states no number."""
    if word == "auto" or re.fullmatch(_WITH_UNIT, word):
        return RUN_TIME
    try:
        return int(text) if kind is Kind.SIZE else float(text)
    except ValueError:
        return text


def _fits(value: Any, kind: Kind) -> bool:
    """Return whether a value is of a kind."""
    if kind is Kind.ANY:
        return True
    if kind is Kind.SWITCH:
        return isinstance(value, bool)
    if kind is Kind.TEXT:
        return isinstance(value, (str, int, float))
    return _is_number(value) and _is_in_range(value, kind)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_in_range(number: float, kind: Kind) -> bool:
    if kind is Kind.SIZE:
        return as_int(number) is not None and number <= LARGEST_COUNT
    if kind is Kind.SHARE:
        return 0 < number <= 1
    return kind is Kind.NUMBER or 0 <= number <= 1

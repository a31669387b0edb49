"""Overrides of a config, as Hydra's command line has them.

override  = [ "+" | "++" ] key "=" [ value ] | "~" key [ "=" value ]
group     = name { "/" name } [ "@" package ]                a key with ``/`` or ``@`` chooses a file of a config group
key       = part { "." part | "[" index "]" }                ``hosts[0]`` and ``hosts.0`` are items of a list
value     = list | dict | quoted | plain
list      = "[" [ element { "," element } ] "]"              element = list | dict | quoted | plain
dict      = "{" [ plain ":" element { "," plain ":" element } ] "}"
quoted    = a text in single or double quotes; a backslash escapes such a quote
plain     = characters and escapes; null, true, false and numbers as in YAML 1.2 if it has no escape
escape    = "\\" followed by a backslash, a blank, a tab, or one of ( ) [ ] { } : = ,

This is the grammar of Hydra 1.3 (``OverrideParser.g4``) without sweeps: ``a,b`` and ``range(3)`` are one text here.
A dict cannot have a key twice. ``key=`` sets null, as in ``OmegaConf.from_dotlist``. A chosen file is not a value: its
name is kept where Hydra keeps it, at ``hydra.runtime.choices``. A name for a key that others have keys in
(``optim=megatron optim.lr=1``) chooses a file, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rankplan.errors import Diagnostic, PlacementError, Where
from rankplan.frozen import frozen
from rankplan.read.text.document import Section
from rankplan.read.text.places import Path, Place, Places, Text, relocated
from rankplan.read.text.scalars import plain_scalar
from rankplan.words import nearest, path_text, shown

OVERRIDE = re.compile(
    r"(?P<sign>\+\+|\+|~)?(?P<key>[A-Za-z_][\w@/.-]*(?:\[[0-9]+\][\w.\[\]-]*)?)(?:=(?P<value>.*))?", re.DOTALL
)
_ARGUMENT = re.compile(r"\$?([1-9][0-9]?)=(.*)", re.DOTALL)
"""An argument of a script: ``1=value``, ``$1=value``."""
_PART = re.compile(r"[^.\[\]]+")
_ESCAPE = re.compile(r"\\([\\()\[\]{}:=, \t])")
_QUOTED = {quote: re.compile(rf"{quote}((?:\\.|[^{quote}\\])*){quote}", re.DOTALL) for quote in ("'", '"')}
_PLAIN = r"(?:\\.|\$\{{[^{{}}]*(?:\{{[^{{}}]*\}}[^{{}}]*)*\}}|[^\\,\[\]{{}}{stop}]|\\\Z)*"
"""A text without quotes in a list or a dict: escapes, interpolations, and anything but brackets and commas."""
_STRIPPED = re.compile(r"\s*((?:\\.|[^\\]|\\\Z)*?)\s*", re.DOTALL)
_ALIKE = 0.9
CHOICES: Path = ("hydra", "runtime", "choices")
"""Where the files are that were chosen of config groups, each by its group (Hydra: ``hydra.runtime.choices``)."""
_DEEPEST = 50


@frozen
class Override:
    """One override; its value as text, ``None`` for ``~key``. ``place`` is the whole word."""

    sign: str
    key: str
    value: str | None
    key_place: Place
    value_place: Place

    @property
    def path(self) -> Path:
        """The keys and indexes that lead to the value."""
        if "/" in self.key or "@" in self.key:
            return (*CHOICES, self.key)
        parts = _PART.findall(self.key)
        return tuple(int(part) if re.fullmatch("[0-9]{1,9}", part) else part for part in parts)


class StatedText(str):
    """A text that knows where it is written; ``place`` is ``None`` for one that comes from no file."""

    __slots__ = ("place",)

    place: Place | None

    @classmethod
    def at(cls, text: str, where: Where) -> StatedText:
        """Return a text at the place of a value."""
        stated = cls(text)
        stated.place = None
        if where.file is not None and where.line is not None and where.source is not None:
            end = where.offset + max(where.width, 1)
            stated.place = Place(where.file, where.line, where.offset, end, where.source)
        return stated

    def part(self, start: int, end: int) -> Place | None:
        """Return the place of these characters, or of the whole text if the file writes it in another way."""
        whole = self.place
        if whole is None:
            return None
        written = whole.source[whole.start : whole.end]
        first = whole.start + max(written.find(self), 0)
        return replace(whole, start=first + start, end=first + end) if self in written else whole


class _Words:
    """The words of a command line, and those that a file states, with the places of their parts."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._text = Text("command line", " ".join(" ".join(word.splitlines()) for word in words))
        self._starts: list[int] = []
        start = 0
        for word in words:
            self._starts.append(start)
            start += len(word) + 1

    def place(self, index: int, start: int, end: int) -> Place:
        """Return the place of some characters of a word."""
        word = self._words[index]
        stated = word.part(start, end) if isinstance(word, StatedText) else None
        first = self._starts[index]
        return self._text.place(first + start, first + end) if stated is None else stated


class Argument(NamedTuple):
    """The value of an argument of a script, and the fault of a script that does not read it."""

    value: str
    fault: Diagnostic


def arguments_in(words: Sequence[str]) -> tuple[list[str], dict[str, Argument]]:
    """Divide words into overrides, and the arguments of a script by their numbers: ``1=value``, ``$1=value``."""
    places = _Words(words)
    others: list[str] = []
    arguments: dict[str, Argument] = {}
    for index, word in enumerate(words):
        argument = _ARGUMENT.fullmatch(word)
        if argument is None:
            others.append(word)
            continue
        fault = _unread_argument(argument[1], argument[2])
        arguments[argument[1]] = Argument(argument[2], places.place(index, 0, len(word)).of(fault))
    return others, arguments


def parse_overrides(words: Sequence[str]) -> list[Override]:
    """Read the words of a command line, or of a file. Raises `PlacementError` (``syntax``) with every fault."""
    places = _Words(words)
    found: list[Override] = []
    faults: list[Diagnostic] = []
    for index, word in enumerate(words):
        place = places.place(index, 0, len(word))
        match = OVERRIDE.fullmatch(word)
        if match is None or (match["value"] is None and match["sign"] != "~"):
            faults.append(place.of(_no_override(word)))
        elif ".." in match["key"] or match["key"][-1] == ".":
            faults.append(place.of(_empty_part(match["key"])))
        elif word.encode("utf-8", "replace").decode() != word:
            faults.append(place.of(_not_utf8(word)))
        else:
            key = places.place(index, match.start("key"), match.end("key"))
            value = key if match["value"] is None else places.place(index, match.start("value"), len(word))
            found.append(Override(match["sign"] or "", match["key"], match["value"], key, value))
    if faults:
        raise PlacementError(faults)
    return found


def overridden(section: Section, overrides: Iterable[Override], *, strict: bool = True) -> Section:
    """Return a config with overrides applied in order; faults in a value point at its override.

    ``strict`` rejects what Hydra rejects: a near miss of a key that exists, ``+key`` for one that exists, ``~key`` for
    one that does not. Raises `PlacementError` with every fault.
    """
    places = Places(section.document.file, section.document)
    config: Section = relocated(section, places)
    faults: list[Diagnostic] = []
    listed = list(overrides)
    sections = {one.path[:depth] for one in listed for depth in range(1, len(one.path))}
    for override in listed:
        chosen = override.path in sections and isinstance(plain_scalar(override.value or ""), str)
        if chosen and re.fullmatch(r"[A-Za-z_][\w-]*", override.value or ""):
            override = replace(override, key=f"/{override.key}")  # the absolute name of the group
        try:
            _apply(config, override, places, strict=strict)
        except PlacementError as error:
            faults += error.diagnostics
    if faults:
        raise PlacementError(faults)
    return config


def _apply(config: Section, override: Override, places: Places, *, strict: bool) -> None:
    path = override.path
    if override.sign == "~" and path[: len(CHOICES)] == CHOICES:
        return  # the file of a group, which is not read then
    if len(path) > _DEEPEST:
        raise _fault(
            override, "invalid-value", f"the key has {len(path)} parts", f"use at most {_DEEPEST}", at_key=True
        )
    here: Any = config
    for depth, part in enumerate(path[:-1]):
        key = _existing(here, part, path[: depth + 1], override, strict=strict)
        if key is None:
            if override.sign == "~":
                _reject_missing(here, part, override, strict=strict)
                return
            here[part] = Section(places, path[: depth + 1])
            places.put_section(path[: depth + 1], override.key_place)
            key = part
        here = here[key]
    last = _existing(here, path[-1], path, override, strict=strict)
    if override.sign != "~":
        _write(here, last, override, places, strict=strict)
    elif last is None:
        _reject_missing(here, path[-1], override, strict=strict)
    else:
        _remove(here, last, override)


def _remove(outer: Any, key: str | int, override: Override) -> None:
    """Remove a key that exists; ``~key=value`` only if this is its value."""
    if override.value is not None:
        value = value_of(override)
        if value != outer[key]:
            message = f"`{override.key}` is {shown(outer[key])}, not {shown(value)}"
            raise _fault(override, "invalid-value", message, f"write ~{override.key}")
    del outer[key]


def _write(outer: Any, key: str | int | None, override: Override, places: Places, *, strict: bool) -> None:
    """Write the value of an override, or its keys over those of a section; ``key`` is ``None`` if it does not exist."""
    path = override.path
    if override.sign == "+" and key is not None and strict:
        message = f"`{override.key}` already exists"
        raise _fault(override, "duplicate-key", message, f"write {override.key}={override.value}", at_key=True)
    value = relocated(value_of(override), places, path)
    replaced = path_text(path)
    places.warnings = [warning for warning in places.warnings if warning.path != replaced]
    before = None if key is None else outer[key]
    if isinstance(before, Section) and isinstance(value, Section):
        for name, item in value.items():
            before[name] = item
            places.put((*path, name), override.key_place, override.value_place)
    else:
        outer[path[-1] if key is None else key] = value
        places.put(path, override.key_place, override.value_place)


def _existing(here: Any, part: str | int, path: Path, override: Override, *, strict: bool) -> str | int | None:
    """Return the key of a part of the path if it exists."""
    if isinstance(here, list):
        if isinstance(part, int) and part < len(here):
            return part
        message = f"`{path_text(path[:-1])}` is a list of {len(here)}; it has no item {part}"
        raise _fault(override, "invalid-value", message, f"use 0 to {len(here) - 1}" if here else "replace the list")
    if not isinstance(here, dict):
        message = f"`{path_text(path[:-1])}` is {shown(here)}; it has no keys"
        raise _fault(override, "invalid-value", message, f"write ++{path_text(path[:-1])}={{{part}: ...}}")
    if part in here:
        return part
    if str(part) in here:
        return str(part)
    near = nearest(str(part), here, _ALIKE) if strict and not override.sign else None
    if near is not None:
        help = f"did you mean `{near}`? Write +{override.key}={override.value} to add a key"
        raise _fault(override, "unknown-key", f"unknown key `{part}`", help, at_key=True)
    return None


def _reject_missing(here: Any, part: str | int, override: Override, *, strict: bool) -> None:
    if strict:
        near = nearest(str(part), here, 0.6) if isinstance(here, dict) else None
        help = f"did you mean `{near}`?" if near else "remove this override"
        raise _fault(override, "unknown-key", f"unknown key `{override.key}`", help, at_key=True)


def _fault(override: Override, code: str, message: str, help: str, *, at_key: bool = False) -> PlacementError:
    fault = Diagnostic(code, message, help, path=path_text(override.path))
    return PlacementError([(override.key_place if at_key else override.value_place).of(fault)])


def _unread_argument(number: str, value: str) -> Diagnostic:
    message = f"`{number}={value}` has no effect: no script reads its argument ${number}"
    return Diagnostic("unknown-key", message, "override the key of the config: key=value")


def _no_override(word: str) -> Diagnostic:
    return Diagnostic("syntax", f"{shown(word)} is not an override", "write key=value, +key=value, ++key=value or ~key")


def _empty_part(key: str) -> Diagnostic:
    return Diagnostic("syntax", f"{shown(key)} has an empty part", "write one dot between two keys")


def _not_utf8(word: str) -> Diagnostic:
    return Diagnostic("syntax", f"{shown(word)} is not UTF-8", "write plain text")


def _unescaped(text: str) -> str:
    """Return a text without the blanks around it and without the backslashes of its escapes."""
    stripped = _STRIPPED.fullmatch(text)
    return _ESCAPE.sub(r"\1", stripped[1] if stripped else text)


class _Value:
    """Reads a list, a dict or a quoted text, as Hydra's grammar has them. Raises `_ValueError`."""

    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    def whole(self) -> Any:
        """Return the value of the whole text. Raises `_ValueError`."""
        value = self._value(0)
        if rest := self.text[self.position :].strip():
            raise _ValueError(f"{shown(rest)} follows it", "quote the text, or separate the values by commas")
        return value

    def _value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise _ValueError(f"it has more than {_DEEPEST} levels", "write it in a file")
        self._skip_blanks()
        match self.text[self.position : self.position + 1]:
            case "[":
                return [item for item, _ in self._items("]", depth)]
            case "{":
                return self._dict(depth)
            case "'" | '"' as quote:
                return self._quoted(quote)
        text = self._plain()
        return _unescaped(text) if _ESCAPE.search(text) else plain_scalar(text.strip())

    def _skip_blanks(self) -> None:
        while self.text[self.position : self.position + 1].isspace():
            self.position += 1

    def _items(self, closing: str, depth: int) -> Iterator[tuple[Any, str]]:
        """Yield what stands between brackets, each with its key in a dict."""
        start = self.position
        self.position += 1
        self._skip_blanks()
        if self.text.startswith(closing, self.position):
            self.position += 1
            return
        while True:
            key = self._key() if closing == "}" else ""
            yield self._value(depth + 1), key
            self._skip_blanks()
            following = self.text[self.position : self.position + 1]
            self.position += 1
            if following == closing:
                return
            if not following:
                raise _ValueError(f"`{self.text[start]}` is not closed", f"add `{closing}`")
            if following != ",":
                raise _ValueError(f"{shown(following)} follows a value", f"write `,` or `{closing}`, or quote the text")

    def _dict(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for value, key in self._items("}", depth):
            if key in found:
                raise _ValueError(f"duplicate key {shown(key)}", "remove one of the two")
            found[key] = value
        return found

    def _key(self) -> str:
        self._skip_blanks()
        quote = self.text[self.position : self.position + 1]
        key = self._quoted(quote) if quote in ("'", '"') else _unescaped(self._plain(":"))
        self._skip_blanks()
        if not self.text.startswith(":", self.position):
            raise _ValueError(f"the key {shown(key)} has no value", "write {key: value}")
        self.position += 1
        return key

    def _plain(self, stop: str = "") -> str:
        """Return a text without quotes, up to what cannot belong to it."""
        found = re.compile(_PLAIN.format(stop=stop), re.DOTALL).match(self.text, self.position)
        text = found[0] if found else ""
        self.position += len(text)
        if not text.strip():
            following = self.text[self.position : self.position + 1]
            what = f"a value is missing before `{following}`" if following else "it ends too early"
            raise _ValueError(what, "write a value, and escape brackets in a text: \\{ \\[")
        return text

    def _quoted(self, quote: str) -> str:
        """Return a text in quotes: ``\\'`` is a quote, and backslashes before a quote escape each other."""
        found = _QUOTED[quote].match(self.text, self.position)
        if found is None:
            raise _ValueError(f"the quote {quote} is not closed", "add the closing quote")
        self.position = found.end()
        return re.sub(rf"(\\+)(?={quote}|\Z)", lambda run: run[1][: len(run[1]) // 2], found[1])


class _ValueError(Exception):
    """Why a text is no list, dict or quoted text, and what to write instead."""


def value_of(override: Override) -> Any:
    """Return the value of an override. Raises `PlacementError` (``syntax``)."""
    text = (override.value or "").strip()
    if text[:1] not in ("[", "{", '"', "'"):
        written = override.value or ""
        return _unescaped(written) if _ESCAPE.search(written) else plain_scalar(text)
    try:
        return _Value(text).whole()
    except _ValueError as error:
        reason, help = error.args
        raise _fault(override, "syntax", f"`{override.key}` is not a value: {reason}", help) from None

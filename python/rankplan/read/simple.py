"""Functions that read a value of one type: numbers, switches, words, labels, sizes, models. They raise `Invalid`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rankplan._core import CLUSTER, NODE
from rankplan.errors import Diagnostic
from rankplan.hardware.cards import LARGEST_SIZE, SMALLEST_SIZE, size_of
from rankplan.plans.model import Model as LanguageModel
from rankplan.read.text.invalid import THIS, invalid, unlike
from rankplan.read.text.unresolved import RESOLVE, unresolved
from rankplan.words import as_int, did_you_mean, must_be, shown

_DIGITS = re.compile(r"[0-9]{1,20}")
_SWITCHES = {True: ("1", "true", "t", "yes", "y", "on"), False: ("0", "false", "f", "no", "n", "off")}
"""How YAML and its users write true and false."""


def whole_number(least: int, most: int | None = None) -> Callable[[Any], int]:
    """Return the function that reads a whole number in these bounds; a float or a text may be one."""

    def read(value: Any) -> int:
        number = _as_whole(value)
        if number < least:
            raise invalid(must_be(THIS, value, f"{least} or more", f"use {least} or more"))
        if most is not None and number > most:
            raise invalid(must_be(THIS, value, f"{most} or less", f"use {most} or less"))
        return number

    return read


def _as_whole(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, str) and _DIGITS.fullmatch(value) is None):
        raise invalid(_no_whole_number(value))
    if isinstance(value, float) and value - value != 0:
        raise invalid(must_be(THIS, value, "a number below 1e308", "write a number such as 1"))
    is_whole_float = isinstance(value, float) and value.is_integer() and abs(value) < 2**63
    if not (is_whole_float or isinstance(value, (int, str))):
        raise invalid(must_be(THIS, value, "a whole number", "write a number such as 1"))
    return int(value)


def _no_whole_number(value: Any) -> Diagnostic:
    help = RESOLVE if unresolved(value) else "write a number such as 1"
    return Diagnostic("invalid-value", f"{shown(value)} is not a whole number", help)


MOST_CPUS = 1_000_000_000
MOST_HOST_MEMORY = 1 << 40
"""MiB; as for what nodes can reserve."""

CPUS_SCHEMA = {
    "anyOf": [{"type": "number", "minimum": 0, "maximum": MOST_CPUS}, {"type": "null"}],
    "default": None,
}
HOST_MEMORY_SCHEMA = {
    "anyOf": [{"type": "integer", "minimum": 0, "maximum": MOST_HOST_MEMORY}, {"type": "null"}],
    "default": None,
}


def number_of(most: int) -> Callable[[Any], float]:
    """Return the function that reads a number from 0 to this one; a text may be one."""

    def read(value: Any) -> float:
        try:
            number = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not 0 <= number <= most:
            help = RESOLVE if unresolved(value) else "write a number such as 4 or 0.5"
            raise invalid(must_be(THIS, value, f"a number from 0 to {most:,}", help))
        return int(number) if number.is_integer() else number

    return read


def switch(value: Any) -> bool:
    """Return true or false; texts such as ``yes``, and 1 and 0, count as in YAML."""
    if isinstance(value, (bool, int, float, str)):
        text = str(int(value)) if isinstance(value, float) and value in (0, 1) else str(value).lower()
        for meaning, texts in _SWITCHES.items():
            if text in texts:
                return meaning
    raise invalid(must_be(THIS, value, "true or false", "write true or false"))


def word(key: str, allowed: Sequence[str]) -> Callable[[Any], str]:
    """Return the function that reads one of these words at a key."""
    words = ", ".join(allowed[:-1]) + f" or {allowed[-1]}"

    def read(value: Any) -> str:
        if value not in allowed:
            help = did_you_mean(str(value), allowed, "use one of")
            raise invalid(unlike(f"`{key}`", value, words, help))
        return str(value)

    return read


RESERVED_LABELS = {CLUSTER: "all nodes", NODE: "all nodes, counted as nodes"}
"""Labels that mean the same in every config."""


LABEL = {"type": ["string", "integer"]}
"""The JSON schema of a label: a text, or a number that is taken as one."""

NODE_RANKS = {"type": ["string", "integer", "array"], "items": {"type": "integer"}, "examples": ["0-7", 0, [0, 1]]}
"""The JSON schema of ranks of nodes."""


def label(value: Any) -> str:
    """Return a label; a number is taken as text."""
    fault = label_fault(value)
    if fault is not None:
        raise invalid(fault)
    return str(value)


def label_fault(value: Any) -> Diagnostic | None:
    """Return the fault of a value that is no label: neither text nor a number, which is taken as text."""
    if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, str) and value.isprintable()):
        return None
    help = "write a name, e.g. a800; quote it if it looks like a number"
    return Diagnostic("invalid-value", f"{shown(value)} is not a label", help)


def size_in(value: Any) -> int:
    """Return the bytes of a size with its unit. Raises `Invalid`."""
    size = as_int(value)
    size = size_of(value) if isinstance(value, str) else size
    if size is None or not SMALLEST_SIZE <= size <= LARGEST_SIZE:
        raise invalid(unlike(THIS, value, "a size from 1 MiB to 1 EiB", "write a number and a unit, such as 80 GiB"))
    return size


def model_of(value: Any) -> LanguageModel:
    """Return a language model by its name, or the path of its config. Raises `Invalid`, or `PlacementError`."""
    if isinstance(value, LanguageModel):
        return value
    if not isinstance(value, (str, Mapping)) or unresolved(value):
        help = "write a name such as Qwen/Qwen3-8B, or the path of a config.json"
        raise invalid(unlike("`model`", value, "the name of a model", help))
    return LanguageModel.of(value)

"""Pydantic's errors as diagnostics: each with one code, message, help line and path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.read.text.invalid import CUT, EXPECTED, RANKS, Invalid, missing, named, value_name, wrong_type
from rankplan.read.text.unresolved import RESOLVE, unresolved
from rankplan.words import must_be, nearest, shown, unknown


def fault(code: str, message: str, help: str | None = None, path: Iterable[str | int] = ()) -> PydanticCustomError:
    """Return the pydantic error for the diagnostic ``code``; ``path`` continues from the validated value."""
    return as_pydantic(Diagnostic(code, message, help), path)


def as_pydantic(found: Diagnostic, path: Iterable[str | int] = ()) -> PydanticCustomError:
    """Return the error that a validator raises for a diagnostic; ``path`` continues from the validated value."""
    # Pydantic treats braces in a template as placeholders, so the text is passed as a value.
    context = {"text": found.message, "help": found.help, "path": tuple(path)}
    return PydanticCustomError(found.code, "{text}", context)


def number(value: Any) -> Any:
    """Reject numbers that Python and pydantic accept and YAML does not: ``true``, and texts such as ``1_0``."""
    if isinstance(value, bool) or (isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value) is None):
        help = RESOLVE if unresolved(value) else "write a number such as 1"
        raise fault("invalid-value", f"{shown(value)} is not a whole number", help)
    return value


def diagnostics(
    error: ValidationError, models: Mapping[str, type[BaseModel]], prefix: KeyPath = ()
) -> Iterator[tuple[KeyPath, Diagnostic]]:
    """Yield the path and the diagnostic of every error that pydantic found in the value at ``prefix``.

    ``models`` gives the model of a mapping by the last name in its path; ``""`` is the model of all other mappings.
    """
    everything = error.errors(include_url=False)
    extra = {(*prefix, *found["loc"]) for found in everything if found["type"] == "extra_forbidden"}
    for found in everything:
        path: KeyPath = (*prefix, *(part for part in found["loc"] if part != "[key]"))
        stated = list(_stated(found, path))
        if stated:
            yield from stated
        elif found["type"] == "extra_forbidden":
            yield path, _unknown_key(found, path, models)
        elif found["type"] == "missing":
            *section, key = path
            keys = _keys(section, models)
            near = nearest(str(key), [str(other) for other in found["input"] if other not in keys], 0.8)
            if (*section, near) not in extra:  # else it is one typo, reported as the unknown key
                yield tuple(section), missing(str(key), near)
        elif found["type"] in ("model_type", "model_attributes_type"):
            keys = _keys(path, models)
            help = f"write keys and values: {', '.join(keys)}"
            yield path, must_be(value_name(path), found["input"], "a mapping", help)
        else:
            yield path, _invalid(found, path)


def _stated(found: ErrorDetails, path: KeyPath) -> Iterator[tuple[KeyPath, Diagnostic]]:
    """Yield the faults that one of our validators has raised."""
    context = found.get("ctx", {})
    cause = context.get("error")
    if "text" in context:
        at = path + context["path"]
        yield at, named(Diagnostic(found["type"], context["text"], context["help"]), at)
    elif isinstance(cause, Invalid):
        yield from cause.below(path)
    elif isinstance(cause, PlacementError):
        for diagnostic in cause.diagnostics:
            yield path, diagnostic


def _unknown_key(found: ErrorDetails, path: KeyPath, models: Mapping[str, type[BaseModel]]) -> Diagnostic:
    """Return the fault of an unknown key; one that looks like ranks is a placement that YAML has cut."""
    misspelt = unknown("key", path[-1], _keys(path[:-1], models))
    is_cut = found["input"] is None and RANKS.fullmatch(str(path[-1]))
    return replace(misspelt, help=CUT) if is_cut else misspelt


def _keys(path: Sequence[str | int], models: Mapping[str, type[BaseModel]]) -> list[str]:
    names = [part for part in path if isinstance(part, str) and part in models]
    fields = models[names[-1] if names else ""].model_fields
    return [field.alias or name for name, field in fields.items()]


_WRONG_TYPE = ("_type", "_parsing", "_from_float", "_parsing_size", "_sub_type", "_unicode")
_BOUNDS = {
    "greater_than_equal": ("ge", "{} or more"),
    "less_than_equal": ("le", "{} or less"),
    "greater_than": ("gt", "more than {}"),
    "less_than": ("lt", "less than {}"),
}


def _invalid(found: ErrorDetails, path: KeyPath) -> Diagnostic:
    kind = found["type"]
    context = found.get("ctx", {})
    value = found["input"]
    name = value_name(path)
    if kind == "string_too_short":
        return Diagnostic("invalid-value", f"{name} is empty", "write its text, or remove the key")
    if kind == "too_short":
        return Diagnostic("invalid-value", f"{name} is empty", "list at least one")
    if kind in _BOUNDS:
        bound, text = _BOUNDS[kind]
        limit = text.format(context[bound])
        return must_be(name, value, limit, f"use {limit}")
    if kind == "finite_number":
        return must_be(name, value, "a number below 1e308", "write a number such as 1")
    if kind.endswith(_WRONG_TYPE) and (expected := kind.partition("_")[0]) in EXPECTED:
        return wrong_type(name, value, expected)
    # A validator that is not ours: its own words are the best help there is.
    wanted = str(context["error"]) if "error" in context else found["msg"]
    return Diagnostic("invalid-value", f"{name} is {shown(value)}, which is invalid", wanted[:1].lower() + wanted[1:])

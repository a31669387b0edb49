"""From what pydantic says to diagnostics: one code, one message, one help line and one path a fault."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from rankplan.errors import Diagnostic, PlacementError
from rankplan.words import did_you_mean, nearest, path_text, shown

KeyPath = tuple[str | int, ...]
"""The keys and indexes that lead to a value of a config."""

RANKS = re.compile(r"[0-9: -]+")
"""What a placement looks like between two commas."""

CUT = "within the braces of YAML a comma ends a text: put the placement in quotes"
RESOLVE = "write the value, or give the config that Hydra has resolved"


def fault(code: str, message: str, help: str | None = None, path: Iterable[str | int] = ()) -> PydanticCustomError:
    """Return the error that becomes the diagnostic ``code``; ``path`` goes on from the value that is validated."""
    # Braces in a template are placeholders for pydantic, so the text is handed in as a value.
    context = {"text": message, "help": help, "path": tuple(path)}
    return PydanticCustomError(code, "{text}", context)


def unresolved(value: Any) -> bool:
    """Whether this is text that a config library would still have to fill in."""
    return isinstance(value, str) and "${" in value


def number(value: Any) -> Any:
    """Refuse what Python and pydantic would count with, and YAML would not: ``true``, and texts such as ``1_0``."""
    if isinstance(value, bool) or (isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value) is None):
        help = RESOLVE if unresolved(value) else "write a number such as 1"
        raise fault("invalid-value", f"{shown(value)} is not a whole number", help)
    return value


def diagnostics(error: ValidationError, models: Mapping[str, type[BaseModel]]) -> Iterator[tuple[KeyPath, Diagnostic]]:
    """Yield the path and the diagnostic of everything that pydantic found.

    ``models`` are those whose keys can be asked for, by the last name in the path of a mapping; ``""`` for the others.
    """
    everything = error.errors(include_url=False)
    unknown = {found["loc"] for found in everything if found["type"] == "extra_forbidden"}
    for found in everything:
        context = found.get("ctx", {})
        path: KeyPath = tuple(part for part in found["loc"] if part != "[key]")
        if "text" in context:
            yield path + context["path"], Diagnostic(found["type"], context["text"], context["help"])
        elif isinstance(cause := context.get("error"), PlacementError):
            for diagnostic in cause.diagnostics:
                yield path, diagnostic
        elif found["type"] == "extra_forbidden":
            keys = _model(path[:-1], models).model_fields
            cut = found["input"] is None and RANKS.fullmatch(str(path[-1]))
            help = CUT if cut else did_you_mean(str(path[-1]), keys)
            yield path, Diagnostic("unknown-key", f"`{path[-1]}` is not known here", help)
        elif found["type"] == "missing":
            keys = _model(path[:-1], models).model_fields
            near = nearest(str(path[-1]), [str(key) for key in found["input"] if key not in keys], 0.8)
            if (*path[:-1], near) in unknown:
                continue  # one slip, which is told where it stands
            help = f"rename `{near}` to `{path[-1]}`" if near else f"add `{path[-1]}:` with its value"
            yield path[:-1], Diagnostic("missing-key", f"`{path[-1]}` is missing", help)
        elif found["type"].startswith("model_"):
            keys = _model(path, models).model_fields
            message = f"{_name(path)} is {shown(found['input'])}; it must be a mapping"
            yield path, Diagnostic("invalid-value", message, f"write keys and values: {', '.join(keys)}")
        else:
            yield path, _invalid(found["type"], found["input"], found["msg"], path)


def _model(path: Sequence[str | int], models: Mapping[str, type[BaseModel]]) -> type[BaseModel]:
    names = [part for part in path if isinstance(part, str) and part in models]
    return models[names[-1] if names else ""]


_EXPECTED = {
    "int": ("a whole number", "write a number such as 1"),
    "float": ("a number", "write a number such as 0.5"),
    "string": ("text", "write text; quote it if it looks like something else"),
    "list": ("a list", "write a list: one `- ...` a line, or [a, b]"),
    "tuple": ("a list", "write a list: one `- ...` a line, or [a, b]"),
    "dict": ("a mapping", "write keys and values"),
    "bool": ("true or false", "write true or false"),
}


def _name(path: KeyPath) -> str:
    """Return the last key of a path, with what indexes follow it: ``configs[0]``."""
    last = max((index for index, part in enumerate(path) if isinstance(part, str)), default=0)
    return f"`{path_text(path[last:])}`" if path else "the config"


def _invalid(kind: str, value: Any, message: str, path: KeyPath) -> Diagnostic:
    name = _name(path)
    if kind == "string_too_short":
        return Diagnostic("invalid-value", f"{name} is empty", "write its text, or leave the key out")
    if kind == "too_short":
        return Diagnostic("invalid-value", f"{name} is empty", "list at least one")
    if (expected := _EXPECTED.get(kind.split("_")[0])) is not None:
        return Diagnostic("invalid-value", f"{name} is {shown(value)}; it must be {expected[0]}", expected[1])
    if (bound := re.fullmatch(r"Input should be (greater|less) than or equal to (\d+)", message)) is not None:
        limit = f"{bound[2]} or {'more' if bound[1] == 'greater' else 'less'}"
        return Diagnostic("invalid-value", f"{name} is {shown(value)}; it must be {limit}", f"use {limit}")
    # the words of a validator that is not ours
    wanted = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return Diagnostic("invalid-value", f"{name} is {shown(value)}, which is refused", wanted[:1].lower() + wanted[1:])

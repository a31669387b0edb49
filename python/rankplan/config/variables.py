"""The environment variables that a node group may set."""

from __future__ import annotations

from typing import Any

from rankplan.config.text.faults import as_pydantic, fault
from rankplan.environment import NODE_RANK_VARIABLES, PATH_MODE, PATH_MODES, reserved_variables
from rankplan.words import must_be, shown


def variable_text(name: str, content: Any, path: list[str | int]) -> str:
    """Return the text of a variable, or reject one that a node group cannot set."""
    if name in reserved_variables():
        help = "remove it: placements decide ranks and devices"
        raise fault("reserved-env-var", f"variable `{name}` is set by the plan", help, path)
    if name in NODE_RANK_VARIABLES:
        message = f"variable `{name}` orders the nodes and is read before any process starts"
        raise fault("reserved-env-var", message, "set it on the node before `ray start`", path)
    if isinstance(content, bool) or not isinstance(content, (str, int, float)):
        raise as_pydantic(must_be(f"variable `{name}`", content, "text", 'write its text in quotes, e.g. "1"'), path)
    text = str(content)
    if name == PATH_MODE and text.lower() not in PATH_MODES:
        help = "write override to replace PATH and other lists of folders"
        raise as_pydantic(must_be(f"variable `{name}`", text, " or ".join(PATH_MODES), help), path)
    if "\0" in text or text.encode("utf-8", "ignore").decode() != text:
        message = (
            f"variable `{name}` is {shown(text)}; environment variables cannot contain NUL bytes or lone surrogates"
        )
        raise fault("invalid-value", message, "write plain text", path)
    return text

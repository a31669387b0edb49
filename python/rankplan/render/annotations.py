"""Faults and warnings for other programs: SARIF for code scanning, and annotations of GitHub's pull requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rankplan.errors import Diagnostic, printable

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(found: Iterable[Diagnostic]) -> dict[str, Any]:
    """Return faults and warnings as a SARIF 2.1.0 log with one run: a rule per code, a result per diagnostic.

    Columns count characters from 1; the end is exclusive.
    """
    found = list(found)
    codes = list(dict.fromkeys(one.code for one in found))
    rules = [{"id": code, "help": {"text": f"rankplan explain {code}"}} for code in codes]
    results = [_result(one, codes.index(one.code)) for one in found]
    tool = {"driver": {"name": "rankplan", "rules": rules}}
    run = {"tool": tool, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(one: Diagnostic, rule: int) -> dict[str, Any]:
    text = one.message if one.help is None else f"{one.message}\n{one.help}"
    result: dict[str, Any] = {
        "ruleId": one.code,
        "ruleIndex": rule,
        "level": "warning" if one.warning else "error",
        "message": {"text": text},
    }
    if one.file is None:
        return result
    place: dict[str, Any] = {"artifactLocation": {"uri": one.file.replace("\\", "/")}}
    if one.line is not None:
        place["region"] = {"startLine": one.line}
        if one.column is not None:
            place["region"] |= {"startColumn": one.column, "endColumn": one.column + _width(one)}
    location: dict[str, Any] = {"physicalLocation": place}
    if one.path:
        location["logicalLocations"] = [{"fullyQualifiedName": one.path}]
    return result | {"locations": [location]}


def github(one: Diagnostic) -> str:
    """Return a workflow command of GitHub Actions, which puts the diagnostic next to its line in a pull request."""
    place = [("file", one.file), ("line", one.line), ("col", one.column), ("title", f"rankplan: {one.code}")]
    if one.column is not None:
        place.insert(3, ("endColumn", one.column + _width(one)))
    properties = ",".join(f"{key}={_escaped(str(value), ':,')}" for key, value in place if value is not None)
    text = one.message if one.help is None else f"{one.message}\nhelp: {one.help}"
    return f"::{'warning' if one.warning else 'error'} {properties}::{_escaped(text)}"


def _width(one: Diagnostic) -> int:
    return max(one.span[1] - one.span[0], 1) if one.span else 1


def _escaped(text: str, more: str = "") -> str:
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return printable(text)

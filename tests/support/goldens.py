"""Recorded answers of RLinf, ROLL and slime, and the differences from them that are deliberate (``tests/golden``)."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Iterable
from typing import Any, ClassVar

import yaml

from support.paths import GOLDEN

DIFFERENCES: list[dict[str, Any]] = json.loads((GOLDEN / "differences.json").read_text())
VERDICTS: dict[str, list[str]] = json.loads((GOLDEN / "other_verdicts.json").read_text())
_NAMES = {name for row in DIFFERENCES for name in row["does"]}


@functools.cache
def lines(name: str) -> list[dict[str, Any]]:
    """Return the lines of ``NAME.jsonl.gz``."""
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def named(name: str) -> str:
    """Return the name of a difference, which must be in ``differences.json``."""
    assert name in _NAMES, f"{name!r} is not in differences.json"
    return name


def check_verdict(line: str, differences: Iterable[str]) -> None:
    """Check that exactly these differences explain why only one side refuses a line; there are none if both agree."""
    found = sorted({named(name) for name in differences})
    assert found == VERDICTS.get(line, []), line


class _Plain(yaml.SafeDumper):
    """Writes every text as a plain scalar."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


def as_yaml(config: dict[str, Any]) -> str:
    """Return a shipped config as a file has it: its scalars are text in the golden data and plain in the file."""
    return yaml.dump(config, Dumper=_Plain, sort_keys=False)

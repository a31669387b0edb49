"""What a program of Python says about its trainer: the arguments of ``GRPOConfig(...)`` that are literals.

The program is parsed, and never run.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rankplan.trainers.trl.dialect import CLASSES

_LARGEST = 1 << 20
"""The most bytes of a program that are parsed."""
_CONFIG = re.compile(rf"({'|'.join(CLASSES)})(?:Config|Trainer)")
_PARSERS = ("TrlParser", "HfArgumentParser")


class Literal(NamedTuple):
    """The value of an argument, ``None`` if it is no literal, and its place in the program: counted from 1."""

    value: Any
    is_known: bool
    line: int
    column: int
    end: int
    source: str


class Program(NamedTuple):
    """What a program of Python says: its class of trainers, whether a parser reads its flags, and its literals.

    ``is_open``: it passes arguments by ``**`` that are not read, so that any key may have another value.
    """

    trainer: str
    takes_flags: bool
    is_open: bool
    literals: Mapping[str, Literal]


def read_program(file: Path, keys: Collection[str]) -> Program | None:
    """Return what a program says of these keys, ``None`` if it cannot be read or makes no config of TRL."""
    try:
        if file.stat().st_size > _LARGEST:
            return None
        text = file.read_text(encoding="utf-8")
        with warnings.catch_warnings():  # of its escape sequences
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    lines = text.splitlines()
    trainers: list[str] = []
    literals: dict[str, Literal] = {}
    takes_flags = is_open = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _name(node.func)
            takes_flags |= name in _PARSERS
            trainer = _CONFIG.fullmatch(name)
            if trainer is None:
                continue
            trainers.append(trainer[1])
            if name.endswith("Config"):
                is_open |= any(keyword.arg is None for keyword in node.keywords)
                literals |= dict(_arguments(node, keys, lines))
        elif isinstance(node, ast.Assign):
            literals |= dict(_attributes(node, keys, lines))
    if not trainers:
        return None
    first = next((name for name in trainers if name == "AsyncGRPO"), trainers[0])
    return Program(first, takes_flags, is_open, literals)


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _arguments(call: ast.Call, keys: Collection[str], lines: list[str]) -> Iterator[tuple[str, Literal]]:
    """Yield the arguments of a config that are keys of TRL."""
    for keyword in call.keywords:
        if keyword.arg in keys:
            yield str(keyword.arg), _literal(keyword.value, lines)


def _attributes(assignment: ast.Assign, keys: Collection[str], lines: list[str]) -> Iterator[tuple[str, Literal]]:
    """Yield the keys that are set afterwards: ``training_args.use_vllm = True``."""
    for target in assignment.targets:
        if isinstance(target, ast.Attribute) and target.attr in keys:
            yield target.attr, _literal(assignment.value, lines)


def _literal(node: ast.expr, lines: list[str]) -> Literal:
    is_known = isinstance(node, ast.Constant)
    value = node.value if isinstance(node, ast.Constant) else None
    source = lines[node.lineno - 1] if node.lineno <= len(lines) else ""
    start = len(source.encode()[: node.col_offset].decode(errors="ignore"))
    is_on_line = node.end_lineno == node.lineno and node.end_col_offset is not None
    end = len(source.encode()[: node.end_col_offset].decode(errors="ignore")) if is_on_line else len(source)
    return Literal(value, is_known, node.lineno, start + 1, end, source)

"""Whether the program of a fork starts a reference model: the condition in its own files, which are parsed, never run.

Forks of verl have rules of their own, whatever their version: always, by coefficients, by a switch. A program maps
``Role.RefPolicy`` to a worker, perhaps below an ``if``; its trainer may add a condition (``use_reference_policy``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Any

from rankplan.sdk import Config

_LARGEST = 1 << 20
"""The most bytes of a program that are read."""
_ROLE = "RefPolicy"
_MAPPING = "role_worker_mapping"
_FLAG = "use_reference_policy"
_USUAL = "need_reference_policy"
"""verl's own function, whose rule is the one of the released verl."""
_MOST_FILES = 4


class Rule(Enum):
    """What the files of a program say about the reference model."""

    USUAL = auto()
    """The rule of the released verl, also of a program that leaves the roles to it."""
    UNREAD = auto()
    """A condition in a form that is not read."""


class _Unread(Exception):
    """An expression in a form that is not read, or with a value that is unknown."""


def starts_reference(config: Config) -> bool | Rule:
    """Return whether the program of a config starts a reference model, as far as its files tell."""
    tree = _parsed(Path(config.program_file))
    if tree is None:
        return Rule.UNREAD
    trees = [tree, *_imported(tree, config)]
    mapping = next((one for one in trees if _mentions(one, _ROLE)), None)
    if mapping is None:
        maps_others = any(_mentions(one, _MAPPING) for one in trees)
        return Rule.UNREAD if maps_others and not any(_mentions(one, _USUAL) for one in trees) else Rule.USUAL
    if _mentions(mapping, _USUAL):
        return Rule.USUAL
    try:
        conditions = [_mapped(mapping, config), *(_flagged(one, config) for one in trees)]
    except (_Unread, RecursionError):
        return Rule.UNREAD
    return all(conditions)


def _parsed(file: Path) -> ast.Module | None:
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST + 1)
        return ast.parse(content.decode("utf-8-sig")) if len(content) <= _LARGEST else None
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _imported(tree: ast.Module, config: Config) -> Iterator[ast.Module]:
    """Yield the files of the trainers and of other main programs that a program imports from its repository."""
    found = 0
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or found == _MOST_FILES:
            continue
        last = (node.module or "").rpartition(".")[2]
        if not (last.endswith("ray_trainer") or last.startswith("main_")):
            continue
        file = config.module_file("." * node.level + (node.module or ""))
        parsed = None if file is None else _parsed(file)
        if parsed is not None:
            found += 1
            yield parsed


def _mentions(tree: ast.Module, name: str) -> bool:
    """Return whether a file uses a name, and not only defines it as a member of a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id == name:
            return True
        is_mapping = isinstance(node, ast.Subscript | ast.Dict)
        if is_mapping and name == _ROLE and any(map(_is_role, ast.iter_child_nodes(node))):
            return True
    return False


def _is_role(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == _ROLE


def _mapped(tree: ast.Module, config: Config) -> bool:
    """Return whether a program maps the role to a worker. Raises `_Unread`.

    In a mapping that is written out, it always does, unless this stands below conditions.
    """
    is_mapped = is_read = False
    for above, node in _with_conditions(tree):
        written = isinstance(node, ast.Dict) and any(key is not None and _is_role(key) for key in node.keys)
        assigned = (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Subscript)
            and _is_role(node.targets[0].slice)
            and "worker" in ast.unparse(node.targets[0].value)
        )
        if assigned or (written and _maps_workers(node)):
            is_read = True
            is_mapped = is_mapped or all(_holds(test, config) is wanted for test, wanted in above)
    return is_mapped if is_read else _unread()


def _maps_workers(node: ast.AST) -> bool:
    """Return whether a mapping has workers as its values: another one maps roles to pools."""
    return isinstance(node, ast.Dict) and any(isinstance(value, ast.Call) for value in node.values)


def _flagged(tree: ast.Module, config: Config) -> bool:
    """Return whether the trainer of a program uses a reference model that is mapped. Raises `_Unread`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Attribute):
            continue
        if node.targets[0].attr == _FLAG:
            return _holds(node.value, config)
    return True


def _with_conditions(
    node: ast.AST, above: tuple[tuple[ast.expr, bool], ...] = ()
) -> Iterator[tuple[tuple[tuple[ast.expr, bool], ...], ast.AST]]:
    """Yield every node of a file with the conditions that it stands below, and what they must be."""
    yield above, node
    for name, value in ast.iter_fields(node):
        inner = above
        if isinstance(node, ast.If) and name in ("body", "orelse"):
            inner = (*above, (node.test, name == "body"))
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _with_conditions(child, inner)
                inner = (*inner, *_passed(child))


def _passed(node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the condition under which a function goes on behind a statement, if that may return."""
    if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return):
        yield node.test, False
    elif isinstance(node, ast.If) and node.orelse and isinstance(node.orelse[-1], ast.Return):
        yield node.test, True
    elif isinstance(node, ast.Return):
        yield ast.Constant(value=False), True


def _holds(node: ast.expr, config: Config) -> bool:
    """Return whether a condition holds for a config. Raises `_Unread`.

    Follows ``and`` and ``or`` as Python does: a value that is not needed may be unknown.
    """
    return bool(_value(node, config))


def _value(node: ast.expr, config: Config) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.BoolOp(op=ast.And()):
            return _first(node.values, config, stops_at=False)
        case ast.BoolOp():
            return _first(node.values, config, stops_at=True)
        case ast.UnaryOp(op=ast.Not()):
            return not _holds(node.operand, config)
        case ast.UnaryOp(op=ast.USub()):
            number = _value(node.operand, config)
            return -number if isinstance(number, (int, float)) else _unread()
        case ast.Compare(comparators=[right], ops=[ast.In()]) if _is_role(node.left):
            return "mapping" in ast.unparse(right) or _unread()
        case ast.Compare(comparators=[right], ops=[operator]):
            return _compared(operator, _value(node.left, config), _value(right, config))
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *others]):
            section = _path(node.func.value) if isinstance(node.func, ast.Attribute) else _unread()
            default = _value(others[0], config) if others else None
            value = config.at(config.path_at(".".join((*section, name))))
            return default if value is None else value
        case ast.Attribute():
            return _known(config, _path(node))
    return _unread()


def _first(parts: Sequence[ast.expr], config: Config, *, stops_at: bool) -> Any:
    """Return the first value that decides, else the last one: what `and` and `or` are in Python."""
    for part in parts[:-1]:
        value = _value(part, config)
        if bool(value) is stops_at:
            return value
    return _value(parts[-1], config)


def _unread() -> Any:
    raise _Unread


def _known(config: Config, path: tuple[str, ...]) -> Any:
    """Return a value that the config must have: without it, the program would fail, or it has a default elsewhere."""
    value = config.at(path)
    if value is None or isinstance(value, Mapping) or (isinstance(value, str) and "${" in value):
        return _unread()
    return value


def _path(node: ast.expr) -> tuple[str, ...]:
    """Return the path of ``config.a.b`` in the config. Raises `_Unread` for any other expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id == "self" and names and names[-1] == "config":
        names.pop()
    elif not isinstance(node, ast.Name) or node.id not in ("config", "cfg"):
        raise _Unread
    return tuple(reversed(names))


def _compared(operator: ast.cmpop, left: Any, right: Any) -> bool:
    try:
        match operator:
            case ast.Eq() | ast.Is():
                return bool(left == right)
            case ast.NotEq() | ast.IsNot():
                return bool(left != right)
            case ast.Gt():
                return bool(left > right)
            case ast.GtE():
                return bool(left >= right)
            case ast.Lt():
                return bool(left < right)
            case ast.LtE():
                return bool(left <= right)
            case ast.In():
                return bool(left in right)
    except TypeError:
        raise _Unread from None
    raise _Unread

"""Arithmetic of the shell, on whole numbers of 64 bits: ``+ - * / %``, parentheses, comparisons, ``&&`` and ``||``."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from functools import reduce

_UNUSUAL = re.compile(r"[^\w\s<>=!&|*/%()+-]|\b\d+[A-Za-z_]|\b(?:and|or|True|False)\b|--|\+\+", re.ASCII)
_ASSIGNED = re.compile(
    r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)?(?:\+\+|--|(?:<<|>>|[-+*/%&|^])?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)", re.ASCII
)
_LIMIT = 2**63

_OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Or: lambda a, b: bool(a or b),
    ast.And: lambda a, b: bool(a and b),
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    ast.Mod: lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
}
"""The operators that the shell and Python read alike, with the meaning that they have in the shell."""


def assigned_names(text: str) -> list[str]:
    """Return the variables that an expression changes: ``x = 1``, ``x += 1``, ``x++``."""
    return [found[1] or found[2] for found in _ASSIGNED.finditer(text)]


def calculated(text: str, variable: Callable[[str], int | None]) -> int | None:
    """Return the value of an expression; ``None`` if it uses an unknown variable, or anything unusual.

    ``variable`` returns the value of a name.
    """

    def value(node: ast.AST) -> int:
        match node:
            case ast.Constant(value=int() as number) if number < _LIMIT:
                return number
            case ast.Name(id=name) if (known := variable(name)) is not None:
                return known
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=sign, right=right) | ast.Compare(left=left, ops=[sign], comparators=[right]):
                result = int(_OPERATORS[type(sign)](value(left), value(right)))
            case ast.BoolOp(op=sign, values=parts):
                result = int(reduce(_OPERATORS[type(sign)], map(value, parts)))
            case _:
                raise ValueError
        if abs(result) >= _LIMIT:
            raise ValueError
        return result

    if _UNUSUAL.search(text):
        return None
    python = " ".join(text.replace("&&", " and ").replace("||", " or ").split())
    try:
        return value(ast.parse(python, mode="eval").body)
    except (SyntaxError, ValueError, KeyError, ArithmeticError, RecursionError, MemoryError):
        return None

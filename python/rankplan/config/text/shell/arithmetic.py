"""Arithmetic of the shell, on whole numbers of 64 bits."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|(\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>!~&|^?:()]))", re.ASCII)
_ASSIGNED = re.compile(
    r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)?(?:\+\+|--|(?:<<|>>|[-+*/%&|^])?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)", re.ASCII
)
_LIMIT = 2**63
_DEEPEST = 50

_BINARY: list[dict[str, Callable[[int, int], int]]] = [
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<=": lambda a, b: int(a <= b),
        ">=": lambda a, b: int(a >= b),
        "<": lambda a, b: int(a < b),
        ">": lambda a, b: int(a > b),
    },
    {"<<": lambda a, b: a << b if b < 64 else 0, ">>": lambda a, b: a >> min(b, 64)},
    {"+": operator.add, "-": operator.sub},
    {
        "*": operator.mul,
        "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
        "%": lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
    },
]
"""Operators by precedence, the loosest first."""


def assigned_names(text: str) -> list[str]:
    """Return the variables that an expression changes: ``x = 1``, ``x += 1``, ``x++``."""
    return [found[1] or found[2] for found in _ASSIGNED.finditer(text)]


def calculated(text: str, variable: Callable[[str], int | None]) -> int | None:
    """Return the value of an expression; ``None`` if it uses an unknown variable, or anything unusual.

    ``variable`` returns the value of a name.
    """
    tokens: list[str] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            return None
        tokens.append(token[0].strip())
        position = token.end()
    try:
        calculation = _Calculation(tokens, variable)
        value = calculation.ternary(0)
    except (ValueError, ArithmeticError):
        return None
    return value if not calculation.tokens and abs(value) < _LIMIT else None


class _Calculation:
    def __init__(self, tokens: list[str], variable: Callable[[str], int | None]) -> None:
        self.tokens = tokens[::-1]
        self.variable = variable

    def _take(self, *tokens: str) -> str | None:
        return self.tokens.pop() if self.tokens and self.tokens[-1] in tokens else None

    def ternary(self, depth: int) -> int:
        if depth > _DEEPEST:
            raise ValueError
        value = self._binary(0, depth)
        if self._take("?"):
            yes = self.ternary(depth + 1)
            if not self._take(":"):
                raise ValueError
            no = self.ternary(depth + 1)
            return yes if value else no
        return value

    def _binary(self, level: int, depth: int) -> int:
        if level == len(_BINARY):
            return self._power(depth)
        value = self._binary(level + 1, depth)
        while (found := self._take(*_BINARY[level])) is not None:
            value = _BINARY[level][found](value, self._binary(level + 1, depth))
            if abs(value) >= _LIMIT:
                raise ValueError
        return value

    def _power(self, depth: int) -> int:
        value = self._unary(depth)
        if self._take("**"):
            exponent = self._unary(depth)
            if not 0 <= exponent < 64:
                raise ValueError
            value = value**exponent
        return value

    def _unary(self, depth: int) -> int:
        if depth > _DEEPEST:
            raise ValueError
        found = self._take("-", "+", "!", "~")
        if found is not None:
            value = self._unary(depth + 1)
            return {"-": -value, "+": value, "!": int(not value), "~": ~value}[found]
        if self._take("("):
            value = self.ternary(depth + 1)
            if not self._take(")"):
                raise ValueError
            return value
        if not self.tokens:
            raise ValueError
        token = self.tokens.pop()
        if token.isdigit():
            return int(token, 8) if token[0] == "0" and len(token) > 1 else int(token[:20])
        known = self.variable(token) if token.isidentifier() else None
        if known is None:
            raise ValueError
        return known

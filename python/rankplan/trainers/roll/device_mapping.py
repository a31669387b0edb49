"""ROLL's ``device_mapping``: a subset of Python's expressions, read from the syntax tree and never evaluated.

mapping    = sequence
sequence   = list(sequence) | range(number [, number [, number]]) | [items] | (items)
           | [number for name in sequence] | sequence + sequence | sequence * number
items      = [item] { "," item }          item = number | *sequence
number     = digits | -number | name | number + number | number - number | number * number
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from rankplan._core import MAX_PROCESSES, MAX_RANK, Taken
from rankplan.errors import Diagnostic, Label, PlacementError, refusal
from rankplan.words import as_int, must_be, shown

_LARGEST = 1 << 60  # intermediate results may exceed the largest rank
_MOST_STEPS = 1 << 18  # half a second
_HELP = "write list(range(0,8)), [0,1,2,3], or several of these with +"
_LINE_END = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")  # Python's, which are fewer than those of str.splitlines
_CUT = "close it, and quote it inside YAML braces, where a comma ends the text"

_Numbers: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
}


def parse_device_mapping(mapping: str | Sequence[int]) -> list[int]:
    """Return the accelerators of a ``device_mapping`` (ROLL's text, or a list) in the order written, counted from 0.

    Raises `PlacementError`: ``syntax`` with the place in the text for anything but a list of whole numbers,
    ``resource-out-of-range`` for a number below 0 or above 4,294,967,294, ``too-many-processes`` for more than
    16,777,216 numbers.
    """
    return list(chain.from_iterable(_pieces(mapping)))


def devices_of(mapping: str | Sequence[int]) -> Taken:
    """Return the accelerators of `parse_device_mapping`. Raises the same."""
    ranges: list[tuple[int, int]] = []
    for piece in _pieces(mapping):
        if piece.step == 1:
            ranges.append((piece[0], piece[-1]))
        else:
            ranges += ((number, number) for number in piece)
    return Taken(ranges)


def _pieces(mapping: str | Sequence[int]) -> list[range]:
    """Return the numbers of a ``device_mapping`` as ranges, none of them empty."""
    if isinstance(mapping, str):
        return _Expression(mapping).read()
    if not isinstance(mapping, Sequence) or isinstance(mapping, bytes):
        fault = must_be("device_mapping", mapping, "text or a list", _HELP)
        raise PlacementError([replace(fault, code="syntax")])
    if len(mapping) > MAX_PROCESSES:
        raise PlacementError([_too_many(len(mapping))])
    pieces: list[range] = []
    for written in mapping:
        if (device := as_int(written)) is None:
            fault = Diagnostic("syntax", f"{shown(written)} is not an accelerator", "write whole numbers")
            raise PlacementError([fault])
        if not 0 <= device <= MAX_RANK:
            raise refusal([_not_there(device)])
        _append(pieces, device)
    return pieces


def _append(pieces: list[range], number: int) -> None:
    """Add a number to ranges, to the last one if it continues that."""
    if pieces and pieces[-1].step == 1 and pieces[-1].stop == number:
        pieces[-1] = range(pieces[-1].start, number + 1)
    else:
        pieces.append(range(number, number + 1))


def _not_there(device: int) -> Diagnostic:
    return Diagnostic("resource-out-of-range", f"accelerator {device} is out of range", f"use 0 to {MAX_RANK}")


def _too_many(count: int) -> Diagnostic:
    message = f"{count:,} accelerators; a component can have at most {MAX_PROCESSES:,} processes"
    return Diagnostic("too-many-processes", message, "split the component")


def _short(node: ast.expr) -> str:
    """Return the text of an expression, cut if it is long: the place of the fault shows it in full."""
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Expression:
    def __init__(self, text: str) -> None:
        self._text = text
        self._start = len(text) - len(text.lstrip())
        self._lines = _LINE_END.split(text[self._start :])
        self._variables: dict[str, int] = {}

    def read(self) -> list[range]:
        if self._start == len(self._text):
            raise self._fault_at(0, self._start, "the text is empty")
        try:
            with warnings.catch_warnings(action="ignore"):  # Python warns of `1for`
                tree = ast.parse(self._text[self._start :], mode="eval").body
            pieces = self._listed(self._sequence(tree))
        except PlacementError:
            raise
        except SyntaxError as error:
            at = max(self._start, self._offset(error.lineno or 1, (error.offset or 1) - 1))
            message = f"this is not a list of numbers: {error.msg}"
            help = _CUT if "never closed" in error.msg else _HELP
            raise self._fault_at(at, min(at + 1, len(self._text)), message, help) from None
        except (RecursionError, MemoryError):
            message = "the expression is too long or too deeply nested"
            raise self._fault_at(0, len(self._text), message, "write one list: [0, 1, 2]") from None
        except ValueError:
            raise self._fault_at(0, len(self._text), "this is not a list of numbers") from None
        ends = [end for piece in pieces for end in (piece[0], piece[-1])]
        lowest, highest = min(ends, default=0), max(ends, default=0)
        if lowest < 0 or highest > MAX_RANK:
            wrong = lowest if lowest < 0 else highest
            place = tree
            if isinstance(tree, (ast.List, ast.Tuple)) and not any(isinstance(one, ast.Starred) for one in tree.elts):
                place = tree.elts[list(chain.from_iterable(pieces)).index(wrong)]
            raise refusal([self._at(place, _not_there(wrong))])
        return pieces

    @staticmethod
    def _listed(sequence: range | list[range]) -> list[range]:
        """Return the numbers of a sequence as those of a list."""
        if isinstance(sequence, range):
            return [sequence] if sequence else []
        return sequence

    def _sequence(self, node: ast.expr) -> range | list[range]:
        """Return a range, which is no list yet, or the numbers of a list as ranges."""
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return self._items(items)
            case ast.Call(func=ast.Name(id="range"), args=arguments, keywords=[]) if 1 <= len(arguments) <= 3:
                bounds = [self._number(argument) for argument in arguments]
                if bounds[2:] == [0]:
                    raise self._fault(arguments[2], "a range cannot have a step of 0", "use a step of 1 or more")
                self._check_size(node, len(range(*bounds)))
                return range(*bounds)
            case ast.Call(func=ast.Name(id="list" | "tuple"), args=[inner], keywords=[]):
                return self._listed(self._sequence(inner))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                pieces: list[range] = []
                sequences = [(part, self._sequence(part)) for part in (left, right)]
                for part, found in sequences:
                    if isinstance(found, range):
                        raise self._fault(part, "a range cannot be added", f"write list({_short(part)})")
                    pieces += found
                self._check_size(node, sum(map(len, pieces)))
                return pieces
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                if self._is_number(left):
                    left, right = right, left
                repeated, times = self._sequence(left), self._number(right)
                if isinstance(repeated, range):
                    raise self._fault(left, "a range cannot be repeated", f"write list({_short(left)})")
                self._check_size(node, sum(map(len, repeated)) * times)
                return repeated * times
            case ast.ListComp(
                elt=element, generators=[ast.comprehension(target=ast.Name(id=name), ifs=[], iter=each, is_async=0)]
            ):
                return self._comprehension(element, name, each)
        raise self._fault(node, f"`{_short(node)}` is not a list of numbers")

    def _items(self, items: Sequence[ast.expr]) -> list[range]:
        pieces: list[range] = []
        count = 0
        for item in items:
            if isinstance(item, ast.Starred):
                found = self._listed(self._sequence(item.value))
                count += sum(map(len, found))
                pieces += found
            else:
                count += 1
                _append(pieces, self._number(item))
            self._check_size(item, count)
        return pieces

    def _comprehension(self, element: ast.expr, name: str, each: ast.expr) -> list[range]:
        values, outer = self._listed(self._sequence(each)), self._variables
        steps = sum(map(len, values))
        if steps > _MOST_STEPS:
            message = f"the comprehension has {steps:,} steps; at most {_MOST_STEPS:,} are evaluated"
            raise self._fault(each, message, "write list(range(start, stop, step))")
        pieces: list[range] = []
        for value in chain.from_iterable(values):
            self._variables = {**outer, name: value}
            _append(pieces, self._number(element))
        self._variables = outer
        return pieces

    def _number(self, node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int() as number) if not isinstance(number, bool):
                pass
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = -self._number(operand)
            case ast.Name(id=name) if name in self._variables:
                number = self._variables[name]
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _Numbers:
                number = _Numbers[type(operator)](self._number(left), self._number(right))
            case _:
                raise self._fault(node, f"`{_short(node)}` is not a whole number")
        if abs(number) > _LARGEST:
            raise self._fault(node, "this number is too large", f"use numbers up to {MAX_RANK}")
        return number

    @staticmethod
    def _is_number(node: ast.expr) -> bool:
        if isinstance(node, ast.BinOp):
            return _Expression._is_number(node.left) and _Expression._is_number(node.right)
        return isinstance(node, (ast.Constant, ast.UnaryOp, ast.Name))

    def _check_size(self, node: ast.expr, count: int) -> None:
        if count > MAX_PROCESSES:
            raise PlacementError([self._at(node, _too_many(count))])

    def _fault(self, node: ast.expr, message: str, help: str = _HELP) -> PlacementError:
        return PlacementError([self._at(node, Diagnostic("syntax", message, help))])

    def _fault_at(self, start: int, end: int, message: str, help: str = _HELP) -> PlacementError:
        return PlacementError([Diagnostic("syntax", message, help, (Label(start, end),), self._text)])

    def _at(self, node: ast.expr, diagnostic: Diagnostic) -> Diagnostic:
        start = self._bytes_offset(node.lineno, node.col_offset)
        end = self._bytes_offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return replace(diagnostic, labels=(Label(start, end),), text=self._text)

    def _offset(self, line: int, column: int) -> int:
        """Characters before a place in the text that was parsed."""
        return self._start + sum(map(len, self._lines[: line - 1])) + column

    def _bytes_offset(self, line: int, column: int) -> int:
        """The same for a column in bytes, as Python's syntax tree counts."""
        return self._offset(line, len(self._lines[line - 1].encode()[:column].decode()))

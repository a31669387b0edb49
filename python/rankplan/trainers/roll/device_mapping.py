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

from rankplan import Diagnostic, Label, PlacementError
from rankplan._core import MAX_PROCESSES, MAX_RANK
from rankplan.errors import refusal
from rankplan.sdk import Taken
from rankplan.trainers.roll import faults
from rankplan.words import as_int

_LARGEST = 1 << 60  # intermediate results may exceed the largest rank
_MOST_STEPS = 1 << 18  # half a second
_LINE_END = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")  # Python's, which are fewer than those of str.splitlines
_LONGEST = 60

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
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
    return list(chain.from_iterable(_ranges(mapping)))


def devices_of(mapping: str | Sequence[int]) -> Taken:
    """Return the accelerators of `parse_device_mapping`. Raises the same."""
    bounds: list[tuple[int, int]] = []
    for numbers in _ranges(mapping):
        if numbers.step == 1:
            bounds.append((numbers[0], numbers[-1]))
        else:
            bounds += ((number, number) for number in numbers)
    return Taken(bounds)


def _ranges(mapping: str | Sequence[int]) -> list[range]:
    """Return the numbers of a ``device_mapping`` as ranges, none of them empty."""
    if isinstance(mapping, str):
        return _Expression(mapping).read()
    if not isinstance(mapping, Sequence) or isinstance(mapping, bytes):
        raise PlacementError([faults.not_devices(mapping)])
    if len(mapping) > MAX_PROCESSES:
        raise PlacementError([faults.too_many_devices(len(mapping))])
    ranges: list[range] = []
    for value in mapping:
        device = as_int(value)
        if device is None:
            raise PlacementError([faults.not_a_device(value)])
        if not 0 <= device <= MAX_RANK:
            raise refusal([faults.no_such_device(device)])
        _append(ranges, device)
    return ranges


def _append(ranges: list[range], number: int) -> None:
    """Add a number to ranges, to the last one if it continues that."""
    if ranges and ranges[-1].step == 1 and ranges[-1].stop == number:
        ranges[-1] = range(ranges[-1].start, number + 1)
    else:
        ranges.append(range(number, number + 1))


def _short(node: ast.expr) -> str:
    """Return the text of an expression, cut if it is long: the place of the fault shows it in full."""
    text = ast.unparse(node)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


class _Expression:
    """A text, and the variables of the comprehensions around the part of it that is read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._start = len(text) - len(text.lstrip())
        self._lines = _LINE_END.split(text[self._start :])
        self._variables: dict[str, int] = {}

    def read(self) -> list[range]:
        """Return the numbers of the text as ranges, none of them empty."""
        if self._start == len(self._text):
            raise self._fault_at(0, self._start, faults.empty_text())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python warns of `1for`
                tree = ast.parse(self._text[self._start :], mode="eval").body
            ranges = _as_list(self._sequence(tree))
        except PlacementError:
            raise
        except SyntaxError as error:
            start = max(self._start, self._offset(error.lineno or 1, (error.offset or 1) - 1))
            raise self._fault_at(start, min(start + 1, len(self._text)), faults.no_python(error.msg)) from None
        except (RecursionError, MemoryError):
            raise self._fault_at(0, len(self._text), faults.too_complex()) from None
        except ValueError:
            raise self._fault_at(0, len(self._text), faults.not_numbers()) from None
        self._check_devices(tree, ranges)
        return ranges

    def _check_devices(self, tree: ast.expr, ranges: list[range]) -> None:
        """Raise the fault of a number that no accelerator has: at an item of a plain list, else at the whole text."""
        ends: list[int] = []
        for numbers in ranges:
            ends += (numbers[0], numbers[-1])
        lowest, highest = min(ends, default=0), max(ends, default=0)
        if lowest >= 0 and highest <= MAX_RANK:
            return
        wrong = lowest if lowest < 0 else highest
        place = tree
        if isinstance(tree, (ast.List, ast.Tuple)) and not any(isinstance(item, ast.Starred) for item in tree.elts):
            place = tree.elts[list(chain.from_iterable(ranges)).index(wrong)]
        raise refusal([self._located(place, faults.no_such_device(wrong))])

    def _sequence(self, node: ast.expr) -> range | list[range]:
        """Return a range, which is no list yet, or the numbers of a list as ranges."""
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return self._items(items)
            case ast.Call(func=ast.Name(id="range"), args=arguments, keywords=[]) if 1 <= len(arguments) <= 3:
                return self._range(node, arguments)
            case ast.Call(func=ast.Name(id="list" | "tuple"), args=[inner], keywords=[]):
                return _as_list(self._sequence(inner))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._sum(node, (left, right))
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                if _is_number(left):
                    left, right = right, left
                return self._repeated(node, left, right)
            case ast.ListComp(
                elt=element, generators=[ast.comprehension(target=ast.Name(id=name), ifs=[], iter=each, is_async=0)]
            ):
                return self._comprehension(element, name, each)
        raise self._fault(node, faults.not_numbers(_short(node)))

    def _range(self, node: ast.expr, arguments: Sequence[ast.expr]) -> range:
        bounds = [self._number(argument) for argument in arguments]
        if bounds[2:] == [0]:
            raise self._fault(arguments[2], faults.step_of_zero())
        self._check_size(node, len(range(*bounds)))
        return range(*bounds)

    def _sum(self, node: ast.expr, parts: Sequence[ast.expr]) -> list[range]:
        ranges: list[range] = []
        sequences: list[range | list[range]] = []
        for part in parts:
            sequences.append(self._sequence(part))
        for part, sequence in zip(parts, sequences, strict=True):
            if isinstance(sequence, range):
                raise self._fault(part, faults.range_added(_short(part)))
            ranges += sequence
        self._check_size(node, sum(map(len, ranges)))
        return ranges

    def _repeated(self, node: ast.expr, sequence: ast.expr, times: ast.expr) -> list[range]:
        ranges = self._sequence(sequence)
        count = self._number(times)
        if isinstance(ranges, range):
            raise self._fault(sequence, faults.range_repeated(_short(sequence)))
        self._check_size(node, sum(map(len, ranges)) * count)
        return ranges * count

    def _items(self, items: Sequence[ast.expr]) -> list[range]:
        ranges: list[range] = []
        count = 0
        for item in items:
            if isinstance(item, ast.Starred):
                inner = _as_list(self._sequence(item.value))
                count += sum(map(len, inner))
                ranges += inner
            else:
                count += 1
                _append(ranges, self._number(item))
            self._check_size(item, count)
        return ranges

    def _comprehension(self, element: ast.expr, name: str, each: ast.expr) -> list[range]:
        values = _as_list(self._sequence(each))
        steps = sum(map(len, values))
        if steps > _MOST_STEPS:
            raise self._fault(each, faults.too_many_steps(steps, _MOST_STEPS))
        outer = self._variables
        ranges: list[range] = []
        for value in chain.from_iterable(values):
            self._variables = {**outer, name: value}
            _append(ranges, self._number(element))
        self._variables = outer
        return ranges

    def _number(self, node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int() as number) if not isinstance(number, bool):
                pass
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = -self._number(operand)
            case ast.Name(id=name) if name in self._variables:
                number = self._variables[name]
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
                number = _OPERATORS[type(operator)](self._number(left), self._number(right))
            case _:
                raise self._fault(node, faults.not_a_number(_short(node)))
        if abs(number) > _LARGEST:
            raise self._fault(node, faults.too_large())
        return number

    def _check_size(self, node: ast.expr, count: int) -> None:
        if count > MAX_PROCESSES:
            raise self._fault(node, faults.too_many_devices(count))

    def _fault(self, node: ast.expr, fault: Diagnostic) -> PlacementError:
        return PlacementError([self._located(node, fault)])

    def _fault_at(self, start: int, end: int, fault: Diagnostic) -> PlacementError:
        return PlacementError([replace(fault, labels=(Label(start, end),), text=self._text)])

    def _located(self, node: ast.expr, fault: Diagnostic) -> Diagnostic:
        """Return a fault with the place of an expression in the text."""
        start = self._bytes_offset(node.lineno, node.col_offset)
        end = self._bytes_offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return replace(fault, labels=(Label(start, end),), text=self._text)

    def _offset(self, line: int, column: int) -> int:
        """Characters before a place in the text that was parsed."""
        return self._start + sum(map(len, self._lines[: line - 1])) + column

    def _bytes_offset(self, line: int, column: int) -> int:
        """The same for a column in bytes, as Python's syntax tree counts."""
        return self._offset(line, len(self._lines[line - 1].encode()[:column].decode()))


def _as_list(sequence: range | list[range]) -> list[range]:
    """Return the numbers of a sequence as those of a list."""
    if isinstance(sequence, range):
        return [sequence] if sequence else []
    return sequence


def _is_number(node: ast.expr) -> bool:
    """Return whether an expression is a number rather than a sequence, by its form."""
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, (ast.Constant, ast.UnaryOp, ast.Name))

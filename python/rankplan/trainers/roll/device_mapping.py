"""ROLL's ``device_mapping``: a list, or a text that Python's ``eval`` makes a list of (`expressions`)."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from rankplan import Diagnostic, Label, PlacementError, ResourceOutOfRangeError
from rankplan.sdk import Taken
from rankplan.sdk.placing import MAX_PROCESSES, MAX_RANK
from rankplan.sdk.words import as_int
from rankplan.trainers.roll import faults
from rankplan.trainers.roll.expressions import ExpressionFault, Items, Kind, Value, evaluated, short

_LINE_END = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")  # Python's, which are fewer than those of str.splitlines


def parse_device_mapping(mapping: str | Sequence[int]) -> list[int]:
    """Return the accelerators of a ``device_mapping`` (ROLL's text, or a list) in the order written, counted from 0.

    A text is an expression of Python, as ROLL passes it to ``eval`` (``WorkerConfig.__post_init__``); rankplan
    evaluates a part of them in a bounded number of steps.

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
        return _Text(mapping).read()
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
            raise ResourceOutOfRangeError([faults.no_such_device(device)])
        _append(ranges, device)
    return ranges


def _append(ranges: list[range], number: int) -> None:
    """Add a number to ranges, to the last one if it continues that."""
    if ranges and ranges[-1].step == 1 and ranges[-1].stop == number:
        ranges[-1] = range(ranges[-1].start, number + 1)
    else:
        ranges.append(range(number, number + 1))


class _Text:
    """A text with an expression, and the places in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._start = len(text) - len(text.lstrip())
        self._lines = _LINE_END.split(text[self._start :])

    def read(self) -> list[range]:
        """Return the numbers of the text as ranges, none of them empty."""
        if self._start == len(self._text):
            raise self._fault_at(0, self._start, faults.empty_text())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python warns of `1for`
                tree = ast.parse(self._text[self._start :], mode="eval").body
            if isinstance(tree, ast.Name):
                raise ExpressionFault(tree, faults.not_numbers(short(tree)))
            return self._devices(tree, evaluated(tree))
        except ExpressionFault as fault:
            raise self._located(fault) from None
        except SyntaxError as error:
            start = max(self._start, self._offset(error.lineno or 1, (error.offset or 1) - 1))
            raise self._fault_at(start, min(start + 1, len(self._text)), faults.no_python(error.msg)) from None
        except (RecursionError, MemoryError):
            raise self._fault_at(0, len(self._text), faults.too_complex()) from None
        except ValueError:  # of a text with NUL characters, or a number that is too long to be shown
            raise self._fault_at(0, len(self._text), faults.not_numbers()) from None

    def _devices(self, tree: ast.expr, value: Value) -> list[range]:
        """Return the accelerators of a sequence. Raises the fault of an item that is not the number of one."""
        if isinstance(value, range):
            value = Items(Kind.LIST, [value])
        if not isinstance(value, Items) or value.kind is Kind.ITERATOR:
            raise ExpressionFault(tree, faults.not_numbers(short(tree)))
        ranges: list[range] = []
        count = 0
        for part in value.parts:
            if not isinstance(part, range):
                place = _place_of(tree, count)
                raise ExpressionFault(place, faults.not_a_number(short(place)))
            for device in (part[0], part[-1]):
                if not 0 <= device <= MAX_RANK:
                    raise ExpressionFault(_place_of(tree, count + part.index(device)), faults.no_such_device(device))
            ranges.append(part)
            count += len(part)
        return ranges

    def _fault_at(self, start: int, end: int, fault: Diagnostic) -> PlacementError:
        return PlacementError([replace(fault, labels=(Label(start, end),), text=self._text)])

    def _located(self, fault: ExpressionFault) -> PlacementError:
        """Return the exception of a fault with the place of its expression in the text."""
        node = fault.node
        start = self._bytes_offset(node.lineno, node.col_offset)
        end = self._bytes_offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        located = replace(fault.diagnostic, labels=(Label(start, end),), text=self._text)
        is_out_of_range = located.code == "resource-out-of-range"
        return ResourceOutOfRangeError([located]) if is_out_of_range else PlacementError([located])

    def _offset(self, line: int, column: int) -> int:
        """Characters before a place in the text that was parsed."""
        return self._start + sum(map(len, self._lines[: line - 1])) + column

    def _bytes_offset(self, line: int, column: int) -> int:
        """The same for a column in bytes, as Python's syntax tree counts."""
        return self._offset(line, len(self._lines[line - 1].encode()[:column].decode()))


def _place_of(tree: ast.expr, index: int) -> ast.expr:
    """Return the part of an expression with this item of its list: the element of a plain list, else the whole."""
    if isinstance(tree, (ast.List, ast.Tuple)) and not any(isinstance(item, ast.Starred) for item in tree.elts):
        return tree.elts[index]
    return tree

"""The expressions of a ``device_mapping``: what Python's ``eval`` makes of a text, without ``eval``.

A text is parsed by Python, and each node of its syntax tree is evaluated by a function below; a node without one is a
fault. These are numbers and their arithmetic, comparisons and conditions, lists, tuples and ranges, their items and
slices, comprehensions with several loops and conditions, and the functions of `_FUNCTIONS`. Nothing else of Python can
be reached: no name, attribute or text has a meaning.

Three limits bound the work. The steps of an expression are limited: each evaluation of a node is one, and so is each
item of a loop. A list has at most as many items as a component has processes.
Numbers have at most 60 bits. Lists keep whole numbers in a row as ranges, so that large ones cost few steps.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from rankplan import Diagnostic
from rankplan.sdk.placing import MAX_PROCESSES
from rankplan.trainers.roll import faults

_LARGEST = 1 << 60
"""Intermediate results may exceed the largest rank."""

_LARGEST_POWER = 64

_MOST_STEPS = 1 << 18
"""Half a second."""

_LONGEST = 60
"""Characters of an expression in a message."""


class ExpressionFault(Exception):
    """The fault of a node of the syntax tree, which knows its place in the text."""

    def __init__(self, node: ast.expr, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.node, self.diagnostic = node, diagnostic


class Kind(Enum):
    """What Python calls a sequence."""

    LIST = "list"
    TUPLE = "tuple"
    ITERATOR = "iterator"


class Items:
    """A list, a tuple or an iterator: whole numbers in a row as ranges, other items in lists of one."""

    __slots__ = ("kind", "length", "parts")

    def __init__(self, kind: Kind, parts: Iterable[Sequence[Value]] = ()) -> None:
        self.kind = kind
        self.parts: list[Sequence[Value]] = [part for part in parts if len(part)]
        self.length = sum(map(len, self.parts))

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Value]:
        return chain.from_iterable(self.parts)

    def extend(self, parts: Iterable[Sequence[Value]]) -> None:
        """Add all items of parts at the end."""
        for part in filter(len, parts):
            self.parts.append(part)
            self.length += len(part)

    def add(self, value: Value) -> None:
        """Add an item at the end, to the last range if it continues that."""
        self.length += 1
        last = self.parts[-1] if self.parts else None
        if type(value) is not int:
            self.parts.append([value])
        elif isinstance(last, range) and last.step == 1 and last.stop == value:
            self.parts[-1] = range(last.start, value + 1)
        else:
            self.parts.append(range(value, value + 1))


Value: TypeAlias = "int | float | range | Items"
_Number: TypeAlias = "int | float"
_Variables: TypeAlias = Mapping[str, Value]


def short(node: ast.expr) -> str:
    """Return the text of an expression, cut if it is long: the place of the fault shows it in full."""
    text = ast.unparse(node)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def evaluated(tree: ast.expr) -> Value:
    """Return the value of an expression. Raises `ExpressionFault`, and ``RecursionError`` for one that is too deep."""
    return _Evaluation().value(tree, {})


def _power(left: _Number, right: _Number) -> _Number:
    if abs(right) > _LARGEST_POWER:
        raise OverflowError
    result: _Number = left**right
    return result


_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class _Evaluation:
    """Evaluates the nodes of one expression, and counts the steps."""

    def __init__(self) -> None:
        self._steps = 0

    def value(self, node: ast.expr, variables: _Variables) -> Value:
        """Return the value of a node, with the variables of the loops around it."""
        self._spend(node, 1)
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Name(id=name):
                if name not in variables:
                    raise ExpressionFault(node, faults.not_a_number(name))
                return variables[name]
            case ast.List(elts=elements):
                return self._displayed(Kind.LIST, elements, variables)
            case ast.Tuple(elts=elements):
                return self._displayed(Kind.TUPLE, elements, variables)
            case ast.UnaryOp(op=sign, operand=operand):
                return self._signed(node, sign, self.value(operand, variables))
            case ast.BinOp():
                return self._combined(node, self.value(node.left, variables), self.value(node.right, variables))
            case ast.BoolOp():
                return self._either(node, variables)
            case ast.Compare():
                return self._compared(node, variables)
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                return self.value(body if self._is_true(test, variables) else otherwise, variables)
            case ast.ListComp(elt=element, generators=loops) | ast.GeneratorExp(elt=element, generators=loops):
                kind = Kind.LIST if isinstance(node, ast.ListComp) else Kind.ITERATOR
                return self._listed(node, kind, self._looped(element, loops, variables))
            case ast.Subscript(value=inner, slice=index):
                return self._item(node, self.value(inner, variables), index, variables)
            case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS and name not in variables:
                return self._called(node, _FUNCTIONS[name], variables)
        raise ExpressionFault(node, faults.not_evaluated(short(node)))

    def _spend(self, node: ast.expr, steps: int) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise ExpressionFault(node, faults.too_many_steps(_MOST_STEPS))

    # ------------------------------------------------------------------------------------------------- numbers

    def _constant(self, node: ast.Constant) -> _Number:
        number = node.value
        if not isinstance(number, (int, float)):
            raise ExpressionFault(node, faults.not_a_number(short(node)))
        return self._bounded(node, number)

    def _bounded(self, node: ast.expr, number: _Number) -> _Number:
        if isinstance(number, float) and not math.isfinite(number):
            raise ExpressionFault(node, faults.too_large())
        if abs(number) > _LARGEST:
            raise ExpressionFault(node, faults.too_large())
        return number

    def _signed(self, node: ast.UnaryOp, sign: ast.unaryop, operand: Value) -> _Number:
        if isinstance(sign, ast.Not):
            return not self._truth(node.operand, operand)
        if type(sign) not in _SIGNS or not isinstance(operand, (int, float)):
            raise ExpressionFault(node, faults.not_a_number(short(node)))
        result: _Number = _SIGNS[type(sign)](operand)
        return result

    def _combined(self, node: ast.BinOp, left: Value, right: Value) -> Value:
        """Return the result of an operator: of numbers, or of sequences that are added or repeated."""
        if isinstance(left, (int, float)) and isinstance(right, (int, float)):
            return self._calculated(node, left, right)
        for operand, side in ((left, node.left), (right, node.right)):
            if isinstance(operand, range) and isinstance(node.op, (ast.Add, ast.Mult)):
                build = faults.range_added if isinstance(node.op, ast.Add) else faults.range_repeated
                raise ExpressionFault(side, build(short(side)))
        if isinstance(node.op, ast.Add) and isinstance(left, Items) and isinstance(right, Items):
            return self._sum(node, left, right)
        if isinstance(node.op, ast.Mult):
            sequence, times = (left, right) if isinstance(left, Items) else (right, left)
            if isinstance(sequence, Items) and isinstance(times, int):
                return self._repeated(node, sequence, times)
        raise ExpressionFault(node, faults.not_evaluated(short(node)))

    def _calculated(self, node: ast.BinOp, left: _Number, right: _Number) -> _Number:
        if type(node.op) not in _OPERATORS:
            raise ExpressionFault(node, faults.not_evaluated(short(node)))
        try:
            result = _OPERATORS[type(node.op)](left, right)
        except ZeroDivisionError:
            raise ExpressionFault(node, faults.division_by_zero()) from None
        except OverflowError:
            raise ExpressionFault(node, faults.too_large()) from None
        if not isinstance(result, (int, float)):
            raise ExpressionFault(node, faults.not_a_number(short(node)))  # a root of a negative number
        return self._bounded(node, result)

    # ---------------------------------------------------------------------------------------------- conditions

    def _is_true(self, node: ast.expr, variables: _Variables) -> bool:
        return self._truth(node, self.value(node, variables))

    def _truth(self, node: ast.expr, value: Value) -> bool:
        if isinstance(value, Items) and value.kind is Kind.ITERATOR:
            raise ExpressionFault(node, faults.not_evaluated(short(node)))
        return bool(value)

    def _either(self, node: ast.BoolOp, variables: _Variables) -> Value:
        """Return the first part that decides: the first true one of ``or``, the first false one of ``and``."""
        stops_at = isinstance(node.op, ast.Or)
        for part in node.values[:-1]:
            value = self.value(part, variables)
            if self._truth(part, value) is stops_at:
                return value
        return self.value(node.values[-1], variables)

    def _compared(self, node: ast.Compare, variables: _Variables) -> bool:
        left = self.value(node.left, variables)
        for comparison, side in zip(node.ops, node.comparators, strict=True):
            right = self.value(side, variables)
            if isinstance(comparison, (ast.In, ast.NotIn)):
                holds = self._contains(node, right, left) is isinstance(comparison, ast.In)
            elif type(comparison) in _COMPARISONS and self._are_numbers((left, right)):
                holds = _COMPARISONS[type(comparison)](left, right)
            else:
                raise ExpressionFault(node, faults.not_evaluated(short(node)))
            if not holds:
                return False
            left = right
        return True

    def _contains(self, node: ast.expr, sequence: Value, value: Value) -> bool:
        if not isinstance(sequence, (range, Items)) or not isinstance(value, (int, float)):
            raise ExpressionFault(node, faults.not_evaluated(short(node)))
        if isinstance(sequence, range):
            is_whole = isinstance(value, int) or value.is_integer()
            return is_whole and int(value) in sequence
        items = self._numbers(node, sequence)
        return value in items

    # ----------------------------------------------------------------------------------------------- sequences

    def _displayed(self, kind: Kind, elements: Sequence[ast.expr], variables: _Variables) -> Items:
        """Return the items between brackets, and all those of elements with a star."""
        result = Items(kind)
        for element in elements:
            if isinstance(element, ast.Starred):
                result.extend(self._parts(element.value, self.value(element.value, variables)))
            else:
                value = self.value(element, variables)
                self._check_item(element, value)
                result.add(value)
            self._check_size(element, len(result))
        return result

    def _listed(self, node: ast.expr, kind: Kind, values: Iterable[Value]) -> Items:
        """Return a sequence of these items."""
        result = Items(kind)
        for value in values:
            self._check_item(node, value)
            result.add(value)
            self._check_size(node, len(result))
        return result

    def _check_item(self, node: ast.expr, value: Value) -> None:
        """Refuse an iterator as an item: Python would use it up at the first loop over it."""
        if isinstance(value, Items) and value.kind is Kind.ITERATOR:
            raise ExpressionFault(node, faults.not_evaluated(short(node)))

    def _check_size(self, node: ast.expr, count: int) -> None:
        if count > MAX_PROCESSES:
            raise ExpressionFault(node, faults.too_many_devices(count))

    def _through(self, node: ast.expr, parts: Iterable[Sequence[Value]]) -> Iterator[Value]:
        """Yield the items of a sequence, a step each."""
        for item in chain.from_iterable(parts):
            self._spend(node, 1)
            yield item

    def _parts(self, node: ast.expr, value: Value) -> list[Sequence[Value]]:
        """Return the parts of a sequence. Raises the fault of a number, which is none."""
        if isinstance(value, range):
            return [value]
        if not isinstance(value, Items):
            raise ExpressionFault(node, faults.not_numbers(short(node)))
        self._spend(node, len(value.parts))
        return value.parts

    def _sum(self, node: ast.expr, left: Items, right: Items) -> Items:
        if left.kind is not right.kind or left.kind is Kind.ITERATOR:
            raise ExpressionFault(node, faults.not_evaluated(short(node)))
        self._spend(node, len(left.parts) + len(right.parts))
        self._check_size(node, len(left) + len(right))
        return Items(left.kind, [*left.parts, *right.parts])

    def _repeated(self, node: ast.expr, sequence: Items, times: int) -> Items:
        if sequence.kind is Kind.ITERATOR:
            raise ExpressionFault(node, faults.not_evaluated(short(node)))
        count = max(times, 0)
        self._check_size(node, len(sequence) * count)
        self._spend(node, len(sequence.parts) * count)
        return Items(sequence.kind, sequence.parts * count)

    # ------------------------------------------------------------------------------------- loops, items and slices

    def _looped(self, element: ast.expr, loops: Sequence[ast.comprehension], variables: _Variables) -> Iterator[Value]:
        """Yield the element for each round of the loops, the later ones inside the earlier ones."""
        if not loops:
            yield self.value(element, variables)
            return
        loop, *inner = loops
        if loop.is_async:
            raise ExpressionFault(loop.iter, faults.not_evaluated(short(loop.iter)))
        parts = self._parts(loop.iter, self.value(loop.iter, variables))
        for item in self._through(loop.iter, parts):
            around = {**variables, **self._bound(loop.target, item)}
            if all(self._is_true(condition, around) for condition in loop.ifs):
                yield from self._looped(element, inner, around)

    def _bound(self, target: ast.expr, item: Value) -> dict[str, Value]:
        """Return the variables that an item gives the target of a loop, which may be several names."""
        match target:
            case ast.Name(id=name):
                return {name: item}
            case ast.Tuple(elts=names) | ast.List(elts=names) if not any(isinstance(n, ast.Starred) for n in names):
                values = [*self._through(target, self._parts(target, item))]
                if len(values) == len(names):
                    bound: dict[str, Value] = {}
                    for inner, value in zip(names, values, strict=True):
                        bound |= self._bound(inner, value)
                    return bound
        raise ExpressionFault(target, faults.not_evaluated(short(target)))

    def _item(self, node: ast.Subscript, sequence: Value, index: ast.expr, variables: _Variables) -> Value:
        """Return an item or a slice of a list, a tuple or a range."""
        if not isinstance(sequence, (range, Items)) or (isinstance(sequence, Items) and sequence.kind is Kind.ITERATOR):
            raise ExpressionFault(node, faults.not_evaluated(short(node)))
        if isinstance(index, ast.Slice):
            bounds = [self._bound_of_slice(part, variables) for part in (index.lower, index.upper, index.step)]
            if bounds[2] == 0:
                raise ExpressionFault(index.step or node, faults.step_of_zero())
            return self._sliced(node, sequence, slice(*bounds))
        place = self._whole(index, self.value(index, variables))
        if not -len(sequence) <= place < len(sequence):
            raise ExpressionFault(node, faults.no_such_item(place, len(sequence)))
        if isinstance(sequence, range):
            return sequence[place]
        place %= len(sequence)
        for part in self._parts(node.value, sequence):
            if place < len(part):
                return part[place]
            place -= len(part)
        raise ExpressionFault(node, faults.no_such_item(place, len(sequence)))

    def _bound_of_slice(self, node: ast.expr | None, variables: _Variables) -> int | None:
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            return None
        return self._whole(node, self.value(node, variables))

    def _sliced(self, node: ast.expr, sequence: range | Items, part: slice) -> range | Items:
        if isinstance(sequence, range):
            return sequence[part]
        if len(sequence.parts) == 1:
            return Items(sequence.kind, [sequence.parts[0][part]])
        return self._listed(node, sequence.kind, [*self._through(node, sequence.parts)][part])

    def _whole(self, node: ast.expr, value: Value) -> int:
        if not isinstance(value, int):
            raise ExpressionFault(node, faults.not_a_number(short(node)))
        return value

    def _numbers(self, node: ast.expr, value: Value) -> list[_Number]:
        """Return the numbers of a sequence. Raises the fault of another item."""
        items = [*self._through(node, self._parts(node, value))]
        if not self._are_numbers(items):
            raise ExpressionFault(node, faults.not_evaluated(short(node)))
        return items  # type: ignore[return-value]

    def _are_numbers(self, values: Iterable[Value]) -> bool:
        return all(isinstance(value, (int, float)) for value in values)

    # ----------------------------------------------------------------------------------------------- functions

    def _called(self, node: ast.Call, function: _Function, variables: _Variables) -> Value:
        arguments = self._arguments(node, variables)
        options: dict[str, Value] = {}
        for keyword in node.keywords:
            name = str(keyword.arg)
            if name not in function.options or name in options:
                raise ExpressionFault(node, faults.not_evaluated(short(node)))
            options[name] = self.value(keyword.value, variables)
        is_called_so = function.least <= len(arguments) <= function.most
        if not is_called_so or len(arguments) + len(options) > function.most_of_all:
            raise ExpressionFault(node, faults.not_evaluated(short(node)))
        return function.call(self, node, *arguments, **options)

    def _arguments(self, node: ast.Call, variables: _Variables) -> list[Value]:
        arguments: list[Value] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                parts = self._parts(argument.value, self.value(argument.value, variables))
                arguments += self._through(argument, parts)
            else:
                arguments.append(self.value(argument, variables))
        return arguments

    def call_range(self, node: ast.Call, *bounds: Value) -> range:
        places = node.args if len(node.args) == len(bounds) else [node] * len(bounds)
        numbers = [self._whole(place, bound) for place, bound in zip(places, bounds, strict=True)]
        if numbers[2:] == [0]:
            raise ExpressionFault(places[2], faults.step_of_zero())
        self._check_size(node, len(range(*numbers)))
        return range(*numbers)

    def call_list(self, node: ast.Call, sequence: Value | None = None) -> Items:
        return self._converted(node, Kind.LIST, sequence)

    def call_tuple(self, node: ast.Call, sequence: Value | None = None) -> Items:
        return self._converted(node, Kind.TUPLE, sequence)

    def _converted(self, node: ast.Call, kind: Kind, sequence: Value | None) -> Items:
        return Items(kind, () if sequence is None else self._parts(node, sequence))

    def call_sorted(self, node: ast.Call, sequence: Value, *, reverse: Value = False) -> Items:
        descends = self._truth(node, reverse)
        parts = self._parts(node, sequence)
        if len(parts) == 1 and isinstance(parts[0], range):  # in one direction already
            run = parts[0]
            return Items(Kind.LIST, [run[::-1] if descends is (run.step > 0) else run])
        return self._listed(node, Kind.LIST, sorted(self._numbers(node, sequence), reverse=descends))

    def call_reversed(self, node: ast.Call, sequence: Value) -> Items:
        if isinstance(sequence, Items) and sequence.kind is Kind.ITERATOR:
            raise ExpressionFault(node, faults.not_evaluated(short(node)))
        return Items(Kind.ITERATOR, [part[::-1] for part in reversed(self._parts(node, sequence))])

    def call_len(self, node: ast.Call, sequence: Value) -> int:
        if isinstance(sequence, Items) and sequence.kind is Kind.ITERATOR:
            raise ExpressionFault(node, faults.not_evaluated(short(node)))
        return sum(map(len, self._parts(node, sequence)))

    def call_sum(self, node: ast.Call, sequence: Value, start: Value = 0) -> Value:
        total = start
        for item in self._through(node, self._parts(node, sequence)):
            if isinstance(total, Items) and isinstance(item, Items):
                total = self._sum(node, total, item)
            elif isinstance(total, (int, float)) and isinstance(item, (int, float)):
                total = self._bounded(node, total + item)
            else:
                raise ExpressionFault(node, faults.not_evaluated(short(node)))
        return total

    def call_min(self, node: ast.Call, *values: Value) -> _Number:
        return min(self._several(node, values))

    def call_max(self, node: ast.Call, *values: Value) -> _Number:
        return max(self._several(node, values))

    def _several(self, node: ast.Call, values: Sequence[Value]) -> list[_Number]:
        """Return the numbers that are compared: several arguments, or the items of one."""
        numbers = self._numbers(node, values[0] if len(values) == 1 else Items(Kind.LIST, [[*values]]))
        if not numbers:
            raise ExpressionFault(node, faults.nothing_compared())
        return numbers

    def call_int(self, node: ast.Call, number: Value) -> int:
        return int(self._as_number(node, number))

    def call_abs(self, node: ast.Call, number: Value) -> _Number:
        return abs(self._as_number(node, number))

    def _as_number(self, node: ast.Call, value: Value) -> _Number:
        if not isinstance(value, (int, float)):
            raise ExpressionFault(node, faults.not_a_number(short(node)))
        return value

    def call_zip(self, node: ast.Call, *sequences: Value) -> Items:
        through = [[*self._through(node, self._parts(node, sequence))] for sequence in sequences]
        return self._listed(node, Kind.ITERATOR, self._rows(node, zip(*through, strict=False)))

    def call_enumerate(self, node: ast.Call, sequence: Value, start: Value = 0) -> Items:
        items = self._through(node, self._parts(node, sequence))
        return self._listed(node, Kind.ITERATOR, self._rows(node, enumerate(items, self._whole(node, start))))

    def _rows(self, node: ast.expr, rows: Iterable[Sequence[Value]]) -> Iterator[Items]:
        for row in rows:
            yield self._listed(node, Kind.TUPLE, row)


_ANY_NUMBER = 1 << 20


class _Function(NamedTuple):
    """A function that an expression may call, with the numbers of its arguments and its keywords."""

    call: Callable[..., Value]
    least: int
    most: int
    options: Sequence[str] = ()
    most_of_all: int = _ANY_NUMBER


_FUNCTIONS: Mapping[str, _Function] = {
    "range": _Function(_Evaluation.call_range, 1, 3),
    "list": _Function(_Evaluation.call_list, 0, 1),
    "tuple": _Function(_Evaluation.call_tuple, 0, 1),
    "sorted": _Function(_Evaluation.call_sorted, 1, 1, ("reverse",)),
    "reversed": _Function(_Evaluation.call_reversed, 1, 1),
    "len": _Function(_Evaluation.call_len, 1, 1),
    "sum": _Function(_Evaluation.call_sum, 1, 2, ("start",), most_of_all=2),
    "min": _Function(_Evaluation.call_min, 1, _ANY_NUMBER),
    "max": _Function(_Evaluation.call_max, 1, _ANY_NUMBER),
    "int": _Function(_Evaluation.call_int, 1, 1),
    "abs": _Function(_Evaluation.call_abs, 1, 1),
    "zip": _Function(_Evaluation.call_zip, 0, _ANY_NUMBER),
    "enumerate": _Function(_Evaluation.call_enumerate, 1, 2, ("start",), most_of_all=2),
}

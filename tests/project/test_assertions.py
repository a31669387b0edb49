"""Every test asserts something on every way through it, or counts how often it does.

A test may end early: it returns when an input is refused, or loops over nothing. If it has asserted nothing until then,
it passes, and would pass if everything was refused. A property test that counts its outcomes (`support.outcomes`) says
how often it must get past that point.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from support.paths import TESTS

FILES = sorted(TESTS.rglob("test_*.py"))
CHECKING = {"raises", "warns", "fail"}
"""Calls that fail if something is not as expected; so do functions whose names start with ``check``."""
WRAPPING = {
    "enumerate",
    "list",
    "reversed",
    "sorted",
    "tuple",
    "zip",
    "product",
    "permutations",
    "set",
    "items",
    "keys",
    "values",
}
"""Calls that return something to loop over if their arguments do."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Way(NamedTuple):
    """What the ways through some statements do.

    All of them assert; one ends the test before it does; one goes on with the next round of a loop before it does.
    """

    asserts: bool = False
    ends: bool = False
    skips: bool = False


class Source:
    """A file of tests: its functions, and the names that it binds to something with elements."""

    def __init__(self, path: Path) -> None:
        self.tree = ast.parse(path.read_text())
        self.functions = {node.name: node for node in ast.walk(self.tree) if isinstance(node, Function)}
        self.filled = _bound(self.tree.body, _may_have_elements)
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom):
                self.filled |= {alias.asname or alias.name for alias in node.names if alias.name.isupper()}

    def tests(self) -> Iterator[Function]:
        """Yield the tests of this file."""
        for name, function in self.functions.items():
            if name.startswith("test_"):
                yield function


def _bound(body: Sequence[ast.stmt], has_elements: Callable[[ast.expr], bool]) -> set[str]:
    """Return the names that statements bind to a value with elements."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and has_elements(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _may_have_elements(value: ast.expr) -> bool:
    """Return whether a value of a module is not written as a scalar or an empty container."""
    return not isinstance(value, ast.Constant) and (not _is_written(value) or _has_written(value))


def _is_written(value: ast.expr) -> bool:
    return isinstance(value, ast.List | ast.Tuple | ast.Set | ast.Dict)


def _has_written(value: ast.expr) -> bool:
    """Return whether a value is written with its elements."""
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements) | ast.Dict(keys=elements):
            return any(not isinstance(element, ast.Starred) for element in elements)
    return False


@cache
def helpers() -> dict[str, Source]:
    """Return the files of helpers by the names of their functions."""
    sources = [Source(path) for path in sorted((TESTS / "support").glob("*.py"))]
    return {name: source for source in sources for name in source.functions}


class Ways:
    """Follows the ways through the tests of a file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.active: set[str] = set()
        self.local: set[str] = set()

    def may_end_unasserted(self, test: Function) -> bool:
        """Return whether a way through a test asserts nothing."""
        self.local = _bound(test.body, _has_written)
        way = self.through(test.body)
        return way.ends or not way.asserts

    def through(self, body: Sequence[ast.stmt]) -> Way:
        """Follow statements up to the first that asserts on all ways that lead to it."""
        skips = False
        for statement in body:
            way = self.step(statement)
            skips = skips or way.skips
            if way.ends or way.asserts:
                return way._replace(skips=skips)
        return Way(skips=skips)

    def step(self, statement: ast.stmt) -> Way:
        """Follow one statement."""
        match statement:
            case ast.Assert() | ast.Raise():
                return Way(asserts=True)
            case ast.Return():
                asserts = statement.value is not None and self.checks(statement.value)
                return Way(asserts, not asserts)
            case ast.If():
                if self.checks(statement.test):
                    return Way(asserts=True)
                return self.either([statement.body, statement.orelse])
            case ast.Match():
                return self.either([case.body for case in statement.cases])
            case ast.Try():
                first = [*statement.body, *statement.orelse]
                if self.through(statement.finalbody).asserts:
                    return Way(asserts=True)
                return self.either([first, *(handler.body for handler in statement.handlers)])
            case ast.With() | ast.AsyncWith():
                if any(self.checks(item.context_expr) for item in statement.items):
                    return Way(asserts=True)
                return self.through(statement.body)
            case ast.Continue() | ast.Break():
                return Way(skips=True)
            case ast.For():
                way = self.through(statement.body)
                always = self.has_elements(statement.iter) and not way.skips
                return Way(way.asserts and always, way.ends)
            case ast.While():
                return Way(ends=self.through(statement.body).ends)
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                return Way()
        return Way(self.checks(statement))

    def either(self, bodies: Sequence[Sequence[ast.stmt]]) -> Way:
        """Follow alternatives, each of which asserts, or leads on."""
        ways = [self.through(body) for body in bodies]
        leaving = [way for way in ways if not way.skips]
        asserts = bool(leaving) and all(way.asserts for way in leaving)
        return Way(asserts, any(way.ends for way in ways), any(way.skips for way in ways))

    def checks(self, node: ast.AST) -> bool:
        """Return whether an expression calls something that asserts."""
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            name = _called(call)
            if name in CHECKING or name.startswith("check") or self.helper_checks(name):
                return True
            names = {argument.id for argument in call.args if isinstance(argument, ast.Name)}
            passed = names & self.source.functions.keys()
            if any(map(self.helper_checks, passed)):  # a function that runs it
                return True
            if any(keyword.arg == "check" for keyword in call.keywords):
                return True
        return False

    def helper_checks(self, name: str) -> bool:
        """Return whether a function of the tests asserts somewhere."""
        if name in self.active:
            return False
        source = self.source if name in self.source.functions else helpers().get(name)
        if source is None:
            return False
        function = source.functions[name]
        self.active.add(name)
        outer, self.source = self.source, source
        try:
            return any(isinstance(node, ast.Assert) for node in ast.walk(function)) or self.checks(function)
        finally:
            self.source = outer
            self.active.remove(name)

    def has_elements(self, iterable: ast.expr) -> bool:
        """Return whether something to loop over has elements, as it is written."""
        if self.checks(iterable):
            return True
        match iterable:
            case ast.Name(id=name):
                return name in self.source.filled | self.local
            case ast.IfExp(body=first, orelse=second):
                return self.has_elements(first) and self.has_elements(second)
            case ast.ListComp(generators=loops) | ast.GeneratorExp(generators=loops):
                return all(self.has_elements(loop.iter) and not loop.ifs for loop in loops)
            case ast.Constant(value=value):
                return bool(value)
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                return any(
                    not isinstance(element, ast.Starred) or self.has_elements(element.value) for element in elements
                )
            case ast.Dict(keys=keys):
                return bool(keys)
            case ast.Call(func=ast.Name(id="range"), args=bounds):
                return isinstance(bounds[-1], ast.Constant)
            case ast.Call(func=ast.Attribute(value=inner), args=[]) if _called(iterable) in WRAPPING:
                return self.has_elements(inner)
            case ast.Call(args=arguments) if _called(iterable) in WRAPPING and arguments:
                return all(self.has_elements(argument) for argument in arguments)
        return False


def _called(call: ast.Call) -> str:
    """Return the last name of what is called."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _counts(test: Function) -> bool:
    """Return whether a test counts its outcomes."""
    return any(isinstance(node, ast.Call) and _called(node) == "at_least" for node in test.decorator_list)


@pytest.mark.long
@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(TESTS)) for path in FILES])
def test_every_way_through_a_test_asserts(path: Path) -> None:
    source = Source(path)
    ways = Ways(source)
    silent = [test.name for test in source.tests() if not _counts(test) and ways.may_end_unasserted(test)]
    assert not silent, "these tests may end without having asserted anything"

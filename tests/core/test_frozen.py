"""A frozen class is what `dataclasses` makes of the same definition."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import pytest
from rankplan.frozen import frozen


@frozen
class Point:
    """A point."""

    x: int
    y: int = 2
    names: list[str] = field(default_factory=list, compare=False)
    note: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Expected:
    """A point."""

    x: int
    y: int = 2
    names: list[str] = field(default_factory=list, compare=False)
    note: str = field(default="", repr=False)


@frozen
class Spot(Point):
    """A point with a color."""

    color: str = "red"


@frozen(kw_only=True)
class Options:
    """Options."""

    size: int
    most: int | None = None


@frozen
class Sorted:
    """Values in order."""

    values: tuple[int, ...]
    least: int = field(init=False)
    seen: dict[int, int] = field(init=False, default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "least", min(self.values))


@frozen(slots=False)
class Cached:
    """A value with another that is found once."""

    value: int

    @cached_property
    def double(self) -> list[int]:
        return [self.value * 2]


@frozen(eq=False, repr=False)
class Own:
    """A class with an equality and a text of its own."""

    value: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "own"


@frozen
class Empty:
    """Nothing."""


@frozen
class Single:
    """One value."""

    value: Any


def made(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any]:
    return Point(*arguments, **keywords), Expected(*arguments, **keywords)


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1, 3), {}),
    ((), {"x": 1, "names": ["a"], "note": "n"}),
    ((1, 2, ["b"], "n"), {}),
]


@pytest.mark.parametrize(("arguments", "keywords"), CALLS)
def test_it_has_the_values_and_the_text_of_a_dataclass(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    own, expected = made(arguments, keywords)
    assert repr(own) == repr(expected).replace("Expected", "Point")
    assert [getattr(own, one.name) for one in fields(own)] == [getattr(expected, one.name) for one in fields(expected)]
    assert dataclasses.astuple(own) == dataclasses.astuple(expected)


@pytest.mark.parametrize(("arguments", "keywords"), CALLS)
@pytest.mark.parametrize(("others", "other_keywords"), CALLS)
def test_it_compares_and_hashes_like_a_dataclass(
    arguments: tuple[Any, ...], keywords: dict[str, Any], others: tuple[Any, ...], other_keywords: dict[str, Any]
) -> None:
    (one, one_expected), (other, other_expected) = made(arguments, keywords), made(others, other_keywords)
    assert (one == other) == (one_expected == other_expected)
    assert (one != other) == (one_expected != other_expected)
    assert (hash(one) == hash(other)) == (hash(one_expected) == hash(other_expected))


def test_the_constructor_is_that_of_a_dataclass() -> None:
    assert str(inspect.signature(Point)) == str(inspect.signature(Expected))
    assert Point.__init__.__qualname__ == "Point.__init__"
    for wrong in ((), (1, 2, [], "", 5)):
        with pytest.raises(TypeError) as own:
            Point(*wrong)
        with pytest.raises(TypeError) as expected:
            Expected(*wrong)
        assert str(own.value) == str(expected.value).replace("Expected", "Point")
    assert Point(1).names is not Point(1).names
    assert Point.__match_args__ == Expected.__match_args__
    assert Options(size=3) == Options(size=3, most=None) != Options(size=4)
    with pytest.raises(TypeError, match="positional"):
        Options(3)  # type: ignore[misc]


def test_it_cannot_be_changed() -> None:
    point = Point(1)
    for change in (lambda: setattr(point, "x", 2), lambda: delattr(point, "x"), lambda: setattr(point, "z", 1)):
        with pytest.raises(FrozenInstanceError):
            change()
    assert not hasattr(point, "__dict__")
    assert replace(point, x=5) == Point(5)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'value'"):
        Cached(1).value = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'value'"):
        del Cached(1).value


@pytest.mark.parametrize("value", [Point(1, names=["a"]), Spot(1, color="blue"), Sorted((2, 1)), Cached(1), Empty()])
def test_it_is_copied_and_pickled(value: Any) -> None:
    for other in (copy.copy(value), copy.deepcopy(value), *(pickle.loads(pickle.dumps(value, n)) for n in range(2, 6))):
        assert other == value and type(other) is type(value)
        assert repr(other) == repr(value)


def test_a_class_that_extends_another_is_not_equal_to_it() -> None:
    assert Spot(1) != Point(1) and Point(1) != Spot(1) and Spot(1, color="red") == Spot(1)
    assert repr(Spot(1)) == "Spot(x=1, y=2, names=[], color='red')"
    assert Point(1) != Expected(1)


def test_values_of_no_argument() -> None:
    value = Sorted((3, 2))
    assert value.least == 2 and value.seen == {} and value.seen is not Sorted((3, 2)).seen
    assert list(inspect.signature(Sorted).parameters) == ["values"]


def test_what_the_class_defines_stays() -> None:
    assert Own(1) == Own(2) and repr(Own(1)) == "own"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Own(1))
    cached = Cached(2)
    assert cached.double is cached.double == [4]
    assert Empty() == Empty() and hash(Empty()) == hash(Empty()) and repr(Empty()) == "Empty()"
    assert Single(1) == Single(1) != Single(2) and hash(Single(1)) == hash(Single(1))

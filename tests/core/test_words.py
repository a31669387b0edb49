"""``words.shown``: a message can show any value."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan.words import shown

ITSELF: list[Any] = []
ITSELF.append(ITSELF)
ALIASES: Any = "x"
for _ in range(12):
    ALIASES = [ALIASES] * 9
DEEP: Any = 0
for _ in range(100_000):
    DEEP = {"a": DEEP}


def with_repr(result: Any) -> Any:
    """An object whose repr returns this, or raises it."""

    def text(self: object) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    return type("Odd", (), {"__repr__": text})()


class Text(str):
    """A str that lies about itself."""

    __iter__ = __len__ = __getitem__ = __radd__ = None  # type: ignore[assignment]


class Endless(list[Any]):
    def __iter__(self) -> Any:
        return count()


class Nameless(type):
    __name__ = property(lambda _: 1 / 0)  # type: ignore[assignment]


SHOWN = [
    (None, "null"),
    (True, "true"),
    (8, "8"),
    ("0-3", "'0-3'"),
    ("x" * 58, f"'{'x' * 58}'"),
    ("x" * 59, f"'{'x' * 27}...{'x' * 28}'"),
    ("a\n\x1b[31m", r"'a\n\x1b[31m'"),
    ([0, None, [True]], "[0, null, [true]]"),
    ({"a": 1, "b": {}}, "{'a': 1, 'b': {}}"),
    ((1, "a"), "(1, 'a')"),
    (list(range(60)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...]"),
    (dict.fromkeys(range(60)), "{0: null, 1: null, 2: null, 3: null, 4: null, 5: null, 6:..."),
    (10**5000, "a value of type int"),
    (ITSELF, "[[[[...]]]]"),
    (ALIASES, "[[[[...], [...], [...], [...], [...], [...], [...], [...]..."),
    (DEEP, "{'a': {'a': {'a': {...}}}}"),
    (Endless(), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"),
    (with_repr("fine"), "fine"),
    (with_repr("\x1b]0;a\x07\u202e"), r"\x1b]0;a\x07\u202e"),
    (with_repr("x" * 10_000_000), f"{'x' * 57}..."),
    (with_repr(5), "a value of type Odd"),
    (with_repr(""), "a value of type Odd"),
    (with_repr(ValueError()), "a value of type Odd"),
    (with_repr(RecursionError()), "a value of type Odd"),
    (with_repr(Text("text")), "text"),
    ([1, with_repr(ValueError())], "a value of type list"),
    (Text("text"), "a value of type Text"),
    (type("a\nb", (), {"__repr__": None})(), r"a value of type a\nb"),
    (Nameless("Odd", (), {"__repr__": None})(), "a value of type Odd"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN, ids=[text[:20] for _, text in SHOWN])
def test_any_value_is_shown_in_one_short_line(value: Any, text: str) -> None:
    assert shown(value) == text


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.text().map(with_repr),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(ANYTHING)
def test_what_is_shown_is_short_and_printable(value: Any) -> None:
    text = shown(value)
    assert 0 < len(text) <= 80 and text.isprintable()

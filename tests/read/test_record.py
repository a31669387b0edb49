"""A record reads a mapping by its table of keys, and says everything that is wrong with it."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from rankplan.read.record import Field, Record, list_of
from rankplan.read.simple import LABEL, label, switch, whole_number
from rankplan.read.text.invalid import Invalid

PORT = Field(whole_number(1, 9), "Its port.", {"type": "integer", "minimum": 1, "maximum": 9})
SERVER = Record(
    "Server",
    "A server.",
    {
        "name": Field(label, "Its name.", LABEL, needed=True),
        "port": PORT,
        "quiet": Field(switch, "Whether it says nothing.", {"type": "boolean"}, optional=True),
        "users": Field(list_of(label), "Its users.", {"type": "array", "items": LABEL}),
    },
)


def faults(value: Any) -> list[tuple[str, str]]:
    """Return the path and the message of each fault of a server in a list of servers."""
    with pytest.raises(Invalid) as rejected:
        SERVER.read(value)
    located = rejected.value.below(("servers", 1))
    return [(".".join(map(str, path)), fault.message) for path, fault in located]


def test_it_returns_what_is_stated() -> None:
    assert SERVER.read({"name": 4090, "port": "8", "users": ["a", 1]}) == {
        "name": "4090",
        "port": 8,
        "users": ("a", "1"),
    }
    assert SERVER.read({"name": "a", "quiet": None}) == {"name": "a", "quiet": None}
    assert SERVER.read({"name": "a", "quiet": "yes"})["quiet"] is True


def test_it_finds_every_fault_at_its_place() -> None:
    assert faults({"port": 10, "quiet": 2, "users": ["a", None, {}], "age": 1}) == [
        ("servers.1", "`name` is missing"),
        ("servers.1.port", "`port` is 10; it must be 9 or less"),
        ("servers.1.quiet", "`quiet` is 2; it must be true or false"),
        ("servers.1.users.1", "null is not a label"),
        ("servers.1.users.2", "{} is not a label"),
        ("servers.1.age", "unknown key `age`"),
    ]


def test_a_typo_of_a_needed_key_is_one_fault() -> None:
    assert faults({"namee": "a"}) == [("servers.1.namee", "unknown key `namee`")]


@pytest.mark.parametrize("value", [None, "a", ["a"]])
def test_anything_but_a_mapping_is_named_by_its_place(value: Any) -> None:
    assert faults(value)[0][1].startswith("`servers[1]` is ")


@pytest.mark.parametrize(("value", "number"), [(1, 1), (9, 9), (2.0, 2), ("7", 7)])
def test_a_whole_number_may_be_a_float_or_a_text(value: Any, number: int) -> None:
    assert PORT.reads(value) == number


@pytest.mark.parametrize("value", [0, 10, 1.5, True, "1_0", None, 1e30, float("nan"), [1]])
def test_anything_else_is_no_whole_number(value: Any) -> None:
    with pytest.raises(Invalid):
        PORT.reads(value)


def test_the_schema_accepts_what_is_read() -> None:
    schema = SERVER.schema()
    for value in ({"name": 1}, {"name": "a", "port": 9, "quiet": None, "users": ["b"]}):
        SERVER.read(value)
        jsonschema.validate(value, schema)
    for value in ({}, {"name": "a", "port": 10}, {"name": "a", "age": 1}, {"name": "a", "users": 1}):
        with pytest.raises(Invalid):
            SERVER.read(value)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value, schema)

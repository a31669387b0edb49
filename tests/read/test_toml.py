"""TOML files: their values are those of Python's parser, and each has its line and column."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import PlacementError, load_config
from rankplan.errors import Diagnostic
from rankplan.read.text.document import Section
from rankplan.read.text.toml import Positions, read_toml
from support.outcomes import some

TEXT = '''\
# a comment with = and [
title = "x # not a comment"
[a."b.c"]
n = 1_000  # number
items = [1, [2, 3], {k = "v", z.y = 2}] # a comment
multi = """
 "quoted" """
lines = [
  "one", # first ]
  'two',
]
[[source]]
name = 'one'
[source.env]
id = 1979-05-27T07:32:00Z
[[source]]
"name" = "two"
[[source.deep]]
x.y = { q = 1 }
'''


def place_of(section: Section, *path: str | int, code: str = "invalid-value") -> tuple[int | None, str]:
    """Return the line of a path, and the text that is marked there."""
    fault = section.document.locate(path, Diagnostic(code, "x"))
    assert fault.column is not None and fault.source is not None
    label = fault.labels[0]
    start = fault.offset + label.start
    assert fault.column == fault.offset + 1
    return fault.line, fault.source[start : fault.offset + label.end]


def test_each_value_has_its_place() -> None:
    section = read_toml("a.toml", TEXT)
    assert section["a"]["b.c"]["items"][2] == {"k": "v", "z": {"y": 2}}
    assert place_of(section, "title") == (2, '"x # not a comment"')
    assert place_of(section, "title", code="unknown-key") == (2, "title")
    assert place_of(section, "a", "b.c", "n") == (4, "1_000")
    assert place_of(section, "a", "b.c", "items", 1, 0) == (5, "2")
    assert place_of(section, "a", "b.c", "items", 2, "z", "y") == (5, "2")
    assert place_of(section, "a", "b.c", "multi") == (6, '"""')
    assert place_of(section, "a", "b.c", "lines", 1) == (10, "'two'")
    assert place_of(section, "source", 0, "env", "id") == (15, "1979-05-27T07:32:00Z")
    assert section["source"][0]["env"]["id"] == "1979-05-27T07:32:00+00:00"
    assert place_of(section, "source", 1, "name") == (17, '"two"')
    assert place_of(section, "source", 1, "deep", 0, "x", "y", "q") == (19, "1")
    assert place_of(section, "source", 1, "deep", 0, "x", "missing") == (19, "x")
    assert place_of(section, "source", 1) == (16, "source")


WRONG = [
    ("a = ", "syntax", 1, 3),
    ("b = 1\na = no\n", "syntax", 2, 5),
    ('a = 1\n[t]\na = "x\nb = 2\n', "syntax", 3, 6),
    ("a = 1\na = 2\n", "duplicate-key", 2, 1),
    ("[a]\n[b]\n[a]\n", "duplicate-key", 3, 1),
    ("a = {b = 1", "syntax", 1, 10),
    ("a = 1 b = 2\n", "syntax", 1, 7),
    ("a = 1\r\na = 2\r\n", "duplicate-key", 2, 1),
]


@pytest.mark.parametrize(("text", "code", "line", "column"), WRONG, ids=[text for text, *_ in WRONG])
def test_what_is_no_toml_is_a_fault_at_its_place(text: str, code: str, line: int, column: int) -> None:
    with pytest.raises(PlacementError) as caught:
        read_toml("a.toml", text)
    (fault,) = caught.value.diagnostics
    assert (fault.code, fault.file, fault.line, fault.column) == (code, "a.toml", line, column)
    assert fault.help and "(" not in fault.message.partition(": ")[2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 100_000, "nested too deeply"),
        (".".join(["a"] * 3_000) + " = 1", "nested too deeply"),
        ("a = " + "1" * 5_000, "number with too many digits"),
    ],
    ids=["brackets", "keys", "digits"],
)
def test_what_python_cannot_hold_is_a_fault(text: str, message: str) -> None:
    with pytest.raises(PlacementError, match=message):
        read_toml("a.toml", text)


NAMES = st.text("ab-_. é'\"\\\t", min_size=1, max_size=4)
VALUES = st.recursive(
    st.one_of(st.integers(-5, 5), st.booleans(), st.text("ab\"'\\#]}\n,=", max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)


def written(value: Any) -> str:
    """Return a value in TOML, on one line."""
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key)} = {written(item)}" for key, item in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list):
        return "[" + ",\n # comment ]\n".join(map(written, value)) + "]" if value else "[ ]"
    return json.dumps(value)


def leaves(value: Any, path: tuple[str | int, ...]) -> list[tuple[tuple[str | int, ...], Any]]:
    """Return every value inside a value, and its path."""
    if isinstance(value, Mapping):
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [(path, value)]


TABLES = st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=3), min_size=1, max_size=3)


@given(tables=TABLES, as_items=st.booleans())
def test_the_text_at_each_place_is_the_value(tables: dict[str, dict[str, Any]], *, as_items: bool) -> None:
    text = ""
    for name, table in tables.items():
        header = json.dumps(name)
        text += f"[[ {header} ]]\n" if as_items else f"[{header}] # comment\n"
        text += "".join(f"{json.dumps(key)}= {written(value)}\n" for key, value in table.items())
    content = tomllib.loads(text)
    assert content == {name: [table] if as_items else table for name, table in tables.items()}
    places = Positions(text).places
    for path, value in leaves(content, ()):
        key, place = places[path]
        assert tomllib.loads(f"value = {text[place.start : place.end]}") == {"value": value}
        assert isinstance(path[-1], int) or json.loads(text[key.start : key.end]) == path[-1]


def program(tmp_path: Path, command: str) -> Any:
    """Return the config of a script with this command."""
    (tmp_path / "a.toml").write_text("x = 1\nitems = [1, 2]\n[trainer]\nn = 2\nm = 1\n[server]\nport = 1\n")
    (tmp_path / "b.toml").write_text("items = [3]\n[trainer]\nn = 3\n")
    (tmp_path / "t.toml").write_text("n = 4\n")
    script = tmp_path / "run.sh"
    script.write_text(command + "\n")
    return load_config(script)


COMMANDS = [
    ("rl @ a.toml", {"trainer": {"n": 2, "m": 1}}),
    ("uv run --extra fa --with x rl @ a.toml @ b.toml", {"trainer": {"n": 3, "m": 1}, "items": [3]}),
    ("rl @ b.toml @ a.toml", {"trainer": {"n": 2, "m": 1}}),
    ("rl --trainer @ t.toml @ a.toml @ b.toml", {"trainer": {"n": 4, "m": 1}, "items": [3]}),
    ("rl @ a.toml --trainer.n 5 @ b.toml", {"trainer": {"n": 5, "m": 1}, "items": [3]}),
    (
        "rl @ a.toml --trainer.num-x=7 --clean --no-dry-run",
        {"trainer": {"n": 2, "m": 1, "num_x": 7}, "clean": True, "dry_run": False},
    ),
    ("rl @ a.toml --server --items 4 5", {"trainer": {"n": 2, "m": 1}, "items": ["4", "5"]}),
    ("rl @ a.toml --trainer '{\"n\": 9}' --items '[7]'", {"trainer": {"n": 9, "m": 1}, "items": [7]}),
    ("rl @ a.toml --no-server", {"trainer": {"n": 2, "m": 1}, "server": None}),
]


@pytest.mark.parametrize(("command", "wanted"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_files_after_the_sign_are_layers(tmp_path: Path, command: str, wanted: dict[str, Any]) -> None:
    content = program(tmp_path, command).to_dict()
    rest = {"x": 1, "items": [1, 2], "server": {"port": 1}}
    assert content == rest | wanted


def test_each_value_of_a_layer_has_its_place(tmp_path: Path) -> None:
    section = program(tmp_path, "rl --trainer @ t.toml @ a.toml @ b.toml --server.port 5")
    for path, file, text in some(
        [
            (("trainer", "n"), "t.toml", "4"),
            (("trainer", "m"), "a.toml", "1"),
            (("items",), "b.toml", "[3]"),
            (("server", "port"), "run.sh", "5"),
        ]
    ):
        fault = section.document.locate(path, Diagnostic("invalid-value", "x"))
        assert str(fault.file).endswith(file) and place_of(section, *path)[1] == text

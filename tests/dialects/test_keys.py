"""A key of a trainer is declared once, as a value, and what reads it uses that value."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from rankplan.dialects import DIALECTS
from rankplan.dialects.keys.config import Config
from rankplan.dialects.keys.key import Key, Kind, size, switch, text
from rankplan.dialects.keys.table import KeyTable
from rankplan.errors import Faults
from rankplan.read.text.reader import Reader
from support.paths import ROOT

PACKAGE = ROOT / "python" / "rankplan"
ROOMS = {path.parent.name: path.parent for path in (*PACKAGE.glob("trainers/*/keys.py"), PACKAGE / "rlinf" / "keys.py")}
TRAINERS = sorted(ROOMS)


def table(trainer: str) -> KeyTable:
    module = ".".join(ROOMS[trainer].relative_to(PACKAGE.parent).parts)
    found: KeyTable = import_module(f"{module}.keys").KEYS
    return found


def keys_of(trainer: str) -> Iterator[Key[Any]]:
    """Yield the keys by which a trainer places, and those of memory."""
    yield from table(trainer).keys
    for role in table(trainer).roles:
        for setting in role.all_settings:
            yield from setting.config_keys


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_key_is_one_value(trainer: str) -> None:
    """Roles may differ in the keys that count where it is absent: engines on nodes of their own have one more."""
    values: dict[tuple[str, tuple[str, ...]], dict[tuple[str, ...], Key[Any]]] = {}
    for key in keys_of(trainer):
        alike = values.setdefault((key.path, key.at), {})
        assert alike.setdefault(key.fallbacks, key) is key, key.path
        others = [
            name for one in alike.values() for name in Key.__match_args__ if getattr(one, name) != getattr(key, name)
        ]
        assert {*others} <= {"fallbacks"}, key.path
    assert DIALECTS[trainer].keys is table(trainer)
    assert len(values) > 20


@pytest.mark.parametrize("trainer", TRAINERS)
def test_no_text_beside_the_keys_has_the_path_of_one(trainer: str) -> None:
    """Only the modules that declare keys have their paths; messages name a key in backticks or by its last part."""
    paths = {dotted for key in keys_of(trainer) for dotted in key.paths if "." in dotted.removeprefix("@.")}
    assert paths or trainer in ("slime", "trl", "open_instruct")  # whose flags have no dots
    for path in (path for path in ROOMS[trainer].glob("*.py") if path.name not in ("keys.py", "memory.py")):
        for text_, line in texts(path):
            assert text_ not in paths, f"{path.name}:{line}: {text_}"


def texts(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.lineno


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_key_says_what_it_decides(trainer: str) -> None:
    assert all(key.decides for key in table(trainer).keys)


NODES = size("job.nodes", default=2, fallbacks=("num_nodes",))
SHARED = switch("job.shared", default=lambda config: config[NODES] > 1)
NAME = text("@.name")


def config(**values: Any) -> Config:
    return Config(Reader(values), Faults())


def test_a_value_is_that_of_the_key_else_of_its_fallbacks_else_the_default() -> None:
    assert config(job={"nodes": 3}, num_nodes=4)[NODES] == 3
    assert config(num_nodes=4)[NODES] == 4
    assert config(job={"nodes": None}, num_nodes=None)[NODES] == 2
    assert config()[SHARED] is True
    assert config(num_nodes=1)[SHARED] is False
    assert config().get(NODES, 7) == 7


def test_the_place_of_a_key_is_where_it_is_stated() -> None:
    assert config(num_nodes=4).where(NODES).path == "num_nodes"
    assert config().where(NODES).path == "job.nodes"
    assert config(num_nodes=4).where(SHARED, NODES).path == "num_nodes"
    assert config(a={"name": 5}).under("a").where(NAME).path == "a.name"


def test_a_key_in_a_section_is_read_below_it() -> None:
    assert config(a={"name": 5}).under("a")[NAME] == "5"
    assert config(a={"name": 5}).under("b")[NAME] is None


def test_a_config_with_other_values_leaves_the_first_one_unchanged() -> None:
    first = config(job={"shared": False}, a={"name": "x"})
    other = first.with_values({("job", "nodes"): 5, ("b", "name"): "y"})
    assert (other[NODES], other[SHARED], other.under("b")[NAME], other.under("a")[NAME]) == (5, False, "y", "x")
    assert (first[NODES], first.under("b")[NAME]) == (2, None)


def test_the_names_in_a_section_are_those_of_the_table() -> None:
    flags = Config(Reader({"--num-gpus": 2, "a": {"b": 1}}), Faults(), flags={"num_gpus": "--num-gpus", "a": "a"})
    assert list(flags.names_in(())) == ["num_gpus", "a"]
    assert list(flags.names_in(("a",))) == ["b"]
    assert flags.at(flags.path_at("num_gpus")) == 2


@pytest.mark.parametrize("value", ["two", 0, 1.5, True, [1], 2**21])
def test_a_value_of_a_wrong_type_is_a_fault_and_counts_as_missing(value: Any) -> None:
    read = config(job={"nodes": value})
    assert read[NODES] == read[NODES] == 2
    assert read.stated(NODES)
    assert [fault.path for fault in read.faults] == ["job.nodes"] * 2
    assert len(read.faults.refusal().diagnostics) == 1


def test_a_key_that_tells_recognises_a_config_at_any_of_its_places() -> None:
    keys = (
        size("@.gpus", at=("a", "b"), tells="tells"),
        size("c.gpus", fallbacks=("gpus",), tells="alone", older_tells="tells"),
        size("d.gpus"),
    )
    found = KeyTable(keys, "no.module:NAME", never="x")
    assert [found.recognises({name: {"gpus": 1}}) for name in "abcd"] == [True, True, True, False]
    assert found.recognises({"gpus": 1})
    assert not found.recognises({"gpus": 1, "x": 0})
    assert found.alone == [("c", "gpus")]
    assert {key.kind for key in keys} == {Kind.SIZE}

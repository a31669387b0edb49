"""What a dialect has read of a config: which values decide the placement, and which only memory."""

from __future__ import annotations

import pytest
from rankplan.errors import Diagnostic
from rankplan.read.read_config import ReadConfig
from rankplan.read.text.reader import Reader


@pytest.fixture
def read() -> ReadConfig:
    """A config of which the value at ``a.b`` was read, with a key of its dialect at ``k``."""
    reader = Reader({"a": {"b": 1, "bc": 1}, "c": 2})
    reader.at(("a", "b"))
    return ReadConfig(reader, key_paths=frozenset({("k",)}))


def unknown_value(path: str) -> Diagnostic:
    return Diagnostic("not-run", "only a run knows it", path=path, warning=True)


@pytest.mark.parametrize(("path", "decides"), [("a.b", True), ("a", True), ("k", True), ("c", False), ("a.bc", False)])
def test_an_unknown_value_matters_if_it_was_read_or_a_key_has_it(read: ReadConfig, path: str, decides: bool) -> None:
    assert read.decides(unknown_value(path)) is decides


def test_warnings_of_the_dialect_and_about_no_value_matter(read: ReadConfig) -> None:
    assert read.decides(Diagnostic("idle-accelerators", "some are idle", path="c", warning=True))
    read.reader.faults.note(unknown_value("c"))
    assert read.decides(unknown_value("c"))


def test_what_a_reader_aside_reads_decides_nothing(read: ReadConfig) -> None:
    aside = read.reader.aside()
    assert aside.at(("c",)) == 2 and aside.paths_read == {("c",)}
    assert not read.decides(unknown_value("c"))
    assert read.fork().reader.at(("c",)) == 2
    assert read.decides(unknown_value("c"))


def test_a_fork_keeps_its_faults(read: ReadConfig) -> None:
    fork = read.fork()
    fork.reader.add(("c",), Diagnostic("invalid-value", "`c` is 2"))
    assert len(fork.reader.faults) == 1 and not read.reader.faults

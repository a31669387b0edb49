"""The content of a file from events is the content of its nodes, whatever the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError
from rankplan.errors import Diagnostic
from rankplan.read.text.document import Document, Section, _node
from support.paths import ROOT

WORDS = ["a", "b", "<<", "007", "0x1f", "1e3", "~", "", "yes", "true", "1:0", "- x", "é", "${a}", "a b", "null", "12"]
SCALARS = st.none() | st.booleans() | st.integers(-99, 99) | st.floats(allow_nan=False) | st.sampled_from(WORDS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)
ODD = [
    "", "# only a comment\n", "a: 1\na: 2\n", "a: &x 1\nb: *x\n", "<<: {a: 1}\nb: 2\n", '"<<": 1\n', "a: <<\n",
    "a: !!str 1\n", "a: ! 1\n", "? [1]\n: 2\n", "? a\n", "--- 1\n--- 2\n", "--- {kind: A}\n--- {kind: RayJob}\n",
    "[1, 2",
    "a: b: c\n", "a: \x07\n", "%YAML 1.1\n---\na: 010\n", "a: |\n  x\n  y\n", "a: >-\n  1\n  2\n",
    "a:\n- b:\n  - {c: [1, {d: 2}]}\n",
    "9" * 1200, "0x" + "9" * 1200, "0o" + "7" * 1200, "a: &x ! 1\n", "2024-01-01T00:00:00Z: 1e400\n",
    "[" * 250 + "]" * 250, "- " * 199 + "x\n", "a: *x\n", "\tb: 1\n", "{a, b: 1}\n", "a: 1_0\nb: .5\nc: -.inf\nd: +1\n",
]  # fmt: skip


def composed(text: str) -> Any:
    """Return the content of a text by its nodes."""
    return Document("file.yaml", text, lambda text: _node(text)).value()


def answer(read: Any, text: str) -> tuple[Any, ...]:
    """Return the content of a text, each value with its type and each mapping with its path; or the faults."""
    try:
        return ("content", typed(read(text)))
    except PlacementError as error:
        return ("faults", [str(one) for one in error.diagnostics], error.render())


def typed(value: Any) -> Any:
    if isinstance(value, Section):
        return "section", value.path, [(key, typed(item)) for key, item in value.items()]
    if isinstance(value, list):
        return list(map(typed, value))
    return type(value).__name__, str(value)


def agree(text: str) -> None:
    assert answer(lambda text: Document("file.yaml", text).value(), text) == answer(composed, text)


@given(VALUES, st.booleans() | st.none(), st.sampled_from([None, "'", '"']))
def test_events_tell_what_nodes_tell(value: Any, flow: bool | None, quote: str | None) -> None:
    agree(yaml.safe_dump(value, default_flow_style=flow, default_style=quote, allow_unicode=True, sort_keys=False))


@given(st.text("ab:-[]{}&*!<|>'\"# \n\t01.,?%", max_size=30))
def test_any_text_has_one_answer(text: str) -> None:
    agree(text)


@pytest.mark.parametrize("text", ODD, ids=[repr(text)[:24] for text in ODD])
def test_odd_files_have_one_answer(text: str) -> None:
    agree(text)


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/**/*.yaml")), ids=lambda path: path.name)
def test_examples_have_one_answer(path: Path) -> None:
    agree(path.read_text())


def test_places_of_a_file_that_events_told() -> None:
    document = Document("file.yaml", "a:\n  b: [1, x]\n")
    assert document.value() == {"a": {"b": [1, "x"]}}
    fault = document.locate(("a", "b", 1), Diagnostic("invalid-value", "wrong", None))
    assert (fault.line, fault.column) == (2, 10)


def test_events_count_what_nodes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("document", "events"):
        monkeypatch.setattr(f"rankplan.read.text.{module}.LARGEST", 9)
    agree("[1, 2, 3, 4, 5, 6, 7, 8]")
    agree("[1, 2, 3, 4, 5, 6, 7, 8, 9]")
    agree("{a: 1, b: [2, 3, 4, 5, 6, 7, 8, 9]}")


@pytest.mark.parametrize("written", ["9" * 5000, "-" + "9" * 5000, "1e999", ".inf"], ids=lambda text: text[:5])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("cluster: {num_nodes: ", ", component_placement: {a: 0}}"),
        ("cluster: {num_nodes: 2, component_placement: {a: ", "}}"),
        ("cluster: {num_nodes: 2, component_placement: {a: {placement: 0, parallel: {tp: ", "}}}}"),
        ("cluster: {num_nodes: 2, component_placement: {a: 0}, topology: {segment: ", "}}"),
        ("nodes: [{accelerators: 8, ranks: ", "}]"),
        ("nodes: [{ranks: 0, accelerators: ", "}]"),
        ("trainer: {n_gpus_per_node: 8, nnodes: ", "}\nactor_rollout_ref: {}"),
    ],
)
def test_a_message_shows_a_number_as_it_is_written(written: str, before: str, after: str, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(before + written + after)
    with pytest.raises(PlacementError) as refused:
        if before.startswith("nodes"):
            Inventory.load(file)
        else:
            rankplan.plan(file, "17x8")
    for fault in refused.value.diagnostics:
        assert written[:18] in fault.message and len(fault.message) < 200
        assert "finite" not in f"{fault.message} {fault.help}"

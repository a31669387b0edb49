"""YAML text gives the same values to every reader."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st
from rankplan.launchers.yaml_text import documents_text
from rankplan.read.text.document import Document

WORDS = [
    *("yes", "no", "on", "off", "y", "n", "null", "~", "true", "1", "0x1f", "0o7", "012", "1_0", "1e3", ".5", "1:30"),
    *("2024-01-01", "=", "<<", "-", "--", "?", "a:b", "'a'", "*", "&", "!", "%", "@", "`", "0-3", "a: b", "a #b"),
]
TEXTS = st.sampled_from(WORDS) | st.text(max_size=12) | st.text(alphabet=" \n:#-'\"ab\t", max_size=12)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(TEXTS.filter(bool), VALUES, min_size=1, max_size=3), min_size=1, max_size=3))
def test_every_reader_gets_the_values(documents: list[dict[str, Any]]) -> None:
    text = documents_text(documents)
    assert list(yaml.safe_load_all(text)) == documents
    again = [one.value().to_dict() for one in Document.each("file", text)]
    assert again == documents
    assert documents_text(documents) == text

"""The words that messages share: what is nearly right, and values, paths, nodes and numbers as text."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable
from typing import Any

from rankplan._core import RankSet


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return what is known that the word may be a misspelling of."""
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=likeness)
    return folded[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str], what: str = "") -> str:
    """Return ``did you mean ...?``, or the list of what is known (and its name) where nothing is near."""
    names = list(known)
    if (near := nearest(word, names)) is not None:
        return f"did you mean `{near}`?"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"{what or 'use one of'}: {', '.join(names[:10])}{more}" if names else ""


def path_text(path: Iterable[str | int]) -> str:
    """Return a path as it is shown: ``cluster.node_groups[0].label``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def nodes_text(ranks: RankSet) -> str:
    """Return nodes as a message names them: ``node 3``, ``nodes 0-3``."""
    return f"node{'s' if len(ranks) > 1 else ''} {ranks}"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 node``, ``2,048 nodes``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


_KINDS = {str: "a long text", list: "a long list", dict: "a mapping"}


def shown(value: Any) -> str:
    """Return a value as a message names it: as YAML writes it, or only its kind if it is long."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    if len(text) <= 60:
        return text
    return next((name for kind, name in _KINDS.items() if isinstance(value, kind)), f"a {type(value).__name__}")


def as_int(value: Any) -> int | None:
    """Return an int of any type (NumPy's too) as a Python int; ``None`` for anything else, booleans included."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None

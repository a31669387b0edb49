"""Helpers for names and messages: natural order, suggestions, values, paths, nodes and numbers."""

from __future__ import annotations

import operator
import re
import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, printable

Name: TypeAlias = tuple[tuple[str, int], ...]


def natural(name: str) -> Name:
    """Return a sort key that puts node9 before node10."""
    return tuple((text, int(digits or -1)) for text, digits in re.findall(r"([^0-9]*)([0-9]*)", name))


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the known word that this one may be a misspelling of."""
    from difflib import get_close_matches  # most words are right

    folded = {name.lower(): name for name in known}
    return next((folded[near] for near in get_close_matches(word.lower(), folded, 1, likeness)), None)


_SHORTEST = 4  # a shorter word has too many others one edit away
_LONG = 6  # a shorter word with another first letter is a word of its own: `type` is no typo of `dtype`


def one_edit(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that this one differs from in a letter: inserted, left out, replaced or swapped."""
    if len(word) < _SHORTEST:
        return None
    folded = word.lower()
    alike = (name for name in known if len(name) >= _SHORTEST and _differ_once(folded, name.lower()))
    return next((name for name in alike if len(word) >= _LONG or name[0].lower() == folded[0]), None)


def _differ_once(one: str, other: str) -> bool:
    same = next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if same is None:
        return abs(len(one) - len(other)) == 1
    one, other = one[same:], other[same:]
    swapped = one[:2] == other[1::-1] and one[2:] == other[2:]
    return one[1:] == other[1:] or one[1:] == other or one == other[1:] or swapped


def misspelt(key: str, known: Collection[str]) -> str | None:
    """Return the known key that this is a typo of; a less similar key may be the trainer's own."""
    if (near := one_edit(key, known)) is not None:
        return near
    # Compare lengths first, in a tenth of the time: most keys of a config are unrelated.
    alike = [name for name in known if min(len(key), len(name)) > 0.8 * max(len(key), len(name))]
    return nearest(key, alike, 0.9) if alike else None


def whole_number(value: Any) -> int | None:
    """Return an int, or a text of at most 9 digits, as an int; ``None`` for anything else, booleans included."""
    if isinstance(value, str):
        return int(value) if re.fullmatch("[0-9]{1,9}", value) else None
    return as_int(value)


def did_you_mean(word: str, known: Iterable[str], what: str = "") -> str:
    """Return ``did you mean ...?``, or list the known words after ``what`` if none is near."""
    names = list(known)
    if (near := nearest(word, names)) is not None:
        return f"did you mean `{near}`?"
    return f"{what or 'use one of'}: {listed(names)}" if names else ""


def listed(names: Sequence[str], most: int = 10, *, by: str = ", ", noun: str = "") -> str:
    """Return names as messages list them, of many only the first: ``a, b and 4 more``, ``a, b and 4 more nodes``."""
    text = by.join(names[:most])
    left = len(names) - most
    if left <= 0:
        return text
    return f"{text} and {counted(left, f'more {noun}') if noun else f'{left:,} more'}"


def must_be(name: str | Sequence[str | int], value: Any, allowed: str, help: str | None = None) -> Diagnostic:
    """Return the fault of a value: ``NAME is VALUE; it must be ALLOWED``.

    ``name`` is a text such as "`key`" or "variable `X`", or a path, of which the last key is named.
    """
    name = name if isinstance(name, str) else f"`{name[-1]}`"
    return Diagnostic("invalid-value", f"{name} is {shown(value)}; it must be {allowed}", help)


def unknown(kind: str, name: Any, known: Iterable[str], what: str = "", *, code: str = "") -> Diagnostic:
    """Return the fault of a name that nothing has: "unknown node group `x`", and the similar known name.

    ``kind`` is the word for such names, and gives the code (``unknown-node-group``) unless ``code`` is stated. ``what``
    introduces the list of known names if none is similar.
    """
    code = code or f"unknown-{kind.replace(' ', '-')}"
    help = did_you_mean(str(name), known, what) or f"remove it: there is no {kind}"
    return Diagnostic(code, f"unknown {kind} `{name}`", help)


def wrong_type(name: str, value: object, instead: str) -> TypeError:
    """Return the error of an argument of the wrong type: ``NAME is of type TYPE; pass INSTEAD``."""
    return TypeError(f"{name} is of type {printable(_class_name(type(value))[:_LONGEST])}; pass {instead}")


def path_text(path: Iterable[str | int]) -> str:
    """Return a path as messages show it: ``cluster.node_groups[0].label``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


_MOST_RANGES = 20


def ranges_text(ranks: RankSet) -> str:
    """Return ranks as messages show them: ``0-3,8``. Of many ranges, only the first are shown."""
    if len(ranks.ranges) <= _MOST_RANGES:
        return str(ranks)
    first = RankSet(",".join(f"{start}-{end}" for start, end in ranks.ranges[:_MOST_RANGES]))
    return f"{first} and {len(ranks) - len(first):,} more"


def nodes_text(ranks: RankSet) -> str:
    """Return nodes as messages name them: ``node 3``, ``nodes 0-3``."""
    return f"node{'s' if len(ranks) > 1 else ''} {ranges_text(ranks)}"


def first_node(node: int, count: int) -> str:
    """Return the first of so many nodes as messages name it: ``node 3``, ``node 3 and 2 more nodes``."""
    return f"node {node} and {counted(count - 1, 'more node')}" if count > 1 else f"node {node}"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 node``, ``2,048 nodes``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


_LONGEST = 60
_KINDS = (dict, list, tuple, str, int)
_class_name = type.__dict__["__name__"].__get__  # a metaclass may override the attribute


class _Shown(reprlib.Repr):
    """Values as YAML writes them, with long parts cut in the middle; a subclass is shown like its built-in type."""

    def repr1(self, x: Any, level: int) -> str:
        if x is None or isinstance(x, bool):
            return "null" if x is None else str(x).lower()
        kind = next((kind for kind in _KINDS if isinstance(x, kind)), None)
        return str(getattr(self, f"repr_{kind.__name__}")(x, level)) if kind is not None else str.__str__(repr(x))


_SHOWN = _Shown()
_SHOWN.maxlevel, _SHOWN.maxlist, _SHOWN.maxtuple, _SHOWN.maxdict, _SHOWN.maxstring = 3, 10, 10, 10, _LONGEST


def shown(value: Any) -> str:
    """Return a value as messages show it: as YAML writes it, in at most 60 characters.

    Works for any value: it never raises and never returns a control character.
    """
    try:
        text = printable(_SHOWN.repr(value)[: 2 * _LONGEST])
    except Exception:
        text = ""
    text = text or f"a value of type {printable(_class_name(type(value))[:_LONGEST])}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def as_int(value: Any) -> int | None:
    """Return an int of any type (NumPy's too) as a Python int; ``None`` for anything else, booleans included."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def by_nodes(accelerators: Mapping[int, RankSet], room: int = 400) -> str:
    """Return accelerators by node, equal nodes folded: ``nodes 0-3: 4-7; node 5: 0``.

    If the text is longer than ``room`` characters, return only their number.
    """
    nodes: dict[RankSet, list[int]] = {}
    for node, local in accelerators.items():
        nodes.setdefault(local, []).append(node)
    text = "; ".join(f"{nodes_text(RankSet(ranks))}: {local}" for local, ranks in nodes.items())
    number = f"{sum(map(len, accelerators.values())):,} on {counted(len(accelerators), 'node')}"
    return text if len(text) <= room else number


def amount_text(resource: str, number: float) -> str:
    """Return an amount of ``CPU``, of ``memory`` (MiB) or of a custom resource, as messages show it."""
    if resource == "CPU":
        return f"{number:g} CPU{'' if number == 1 else 's'}"
    if resource == "memory":
        return f"{number:g} MiB of memory"
    return f"{number:g} of `{resource}`"

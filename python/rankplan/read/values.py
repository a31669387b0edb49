"""The values of a section as dicts and lists, for what validates them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rankplan.errors import Diagnostic, KeyPath
from rankplan.read.text.reader import Reader, unreadable
from rankplan.words import shown

_DEEPEST = 50


def stated_values(reader: Reader, keys: Iterable[Any]) -> dict[str, Any]:
    """Return the values at these keys of a reader's content, ``None`` for a key without one; missing keys are left out.

    Mappings and sequences of any type become dicts and lists, and OmegaConf's interpolations are resolved. What cannot
    be read is recorded as a fault.
    """
    wanted = set(keys)
    present = [key for key in reader.content if key in wanted]  # `in` is false for an OmegaConf key whose value is ???
    return {key: _plain(reader, value, (key,)) for key, value in items_of(reader, reader.content, present, ())}


def items_of(reader: Reader, values: Any, keys: Iterable[Any], path: KeyPath) -> Iterator[tuple[Any, Any]]:
    """Yield these keys, or indexes, with their values; one that its config library cannot give is a fault."""
    for key in keys:
        try:
            yield key, values[key]
        except Exception as error:
            reader.add((*path, key), unreadable(key, error))


def _plain(reader: Reader, value: Any, path: KeyPath) -> Any:
    is_mapping = isinstance(value, Mapping)
    if not is_mapping and (not isinstance(value, Sequence) or isinstance(value, (str, bytes))):
        return reader.resolved(value, reader.in_config(path[:-1]))
    if len(path) > _DEEPEST:
        reader.add(path[:1], _too_deep(path[0]))
        return None
    if not is_mapping:
        items = items_of(reader, value, range(len(value)), path)
        return [_plain(reader, item, (*path, index)) for index, item in items]
    result: dict[str, Any] = {}
    for key, item in items_of(reader, value, value, path):
        fault = _key_fault(key, result)
        if fault is None:
            result[str(key)] = _plain(reader, item, (*path, str(key)))
        else:
            reader.add(path, fault)
    return result


def _too_deep(key: str | int) -> Diagnostic:
    message = f"`{key}` is nested more than {_DEEPEST} levels deep"
    return Diagnostic("invalid-value", message, "remove the loop")


def _key_fault(key: Any, earlier: Mapping[str, Any]) -> Diagnostic | None:
    """Return the fault of a key of a mapping that is no text, or that the mapping has already as one."""
    has_surrogates = any("\ud800" <= letter <= "\udfff" for letter in str(key))
    if not isinstance(key, (str, int)) or isinstance(key, bool) or has_surrogates:
        return Diagnostic("invalid-value", f"the key {shown(key)} is not text", "write the key as text")
    if str(key) in earlier:
        return Diagnostic("duplicate-key", f"key `{key}` is given as a number and as text", "remove one")
    return None

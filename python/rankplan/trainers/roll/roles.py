"""The roles of a ROLL config: its sections with a ``device_mapping`` or a ``world_size``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rankplan.errors import KeyPath
from rankplan.words import misspelt

ROLE = "*"
"""The section of a role in ROLL, which may have any name."""
_DEEPEST = 50


def roles(
    mapping: Mapping[Any, Any], path: KeyPath = (), *, inside: bool = False
) -> Iterator[tuple[KeyPath, Mapping[Any, Any]]]:
    """Yield the mappings of a ROLL config that may be roles, with their paths.

    Such a mapping has a ``device_mapping`` or, outside another role, a ``world_size``. In a list its name is an index,
    which ROLL does not accept.
    """
    for key in mapping:
        try:
            value = mapping[key]
            items = list(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else []
        except Exception:  # a key of the trainer, which need not be readable here
            continue
        for index, item in enumerate(items):
            if isinstance(item, Mapping) and "device_mapping" in item:
                yield (*path, str(key), index), item
        if not isinstance(value, Mapping) or len(path) >= _DEEPEST:
            continue
        if any(misspelt(str(key), ("device_mapping",)) for key in value) or ("world_size" in value and not inside):
            yield (*path, str(key)), value
        yield from roles(value, (*path, str(key)), inside=inside or is_role(value))


def is_role(mapping: Mapping[Any, Any]) -> bool:
    """Return whether a mapping is a role of ROLL."""
    try:
        return any(mapping.get(key) is not None for key in ("device_mapping", "world_size"))
    except Exception:  # the key exists, but cannot be read
        return True

"""Sections that may be on or off: a section, a flag without a value, or the text ``None``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.sdk import Config, Key
from rankplan.trainers.prime_rl import faults, keys


def is_on(value: Any) -> bool:
    """Return whether a section is there, even if it is empty: ``[inference]`` and ``--inference`` say so."""
    return value is not None and value is not False and value != keys.NONE


def is_stated(config: Config, key: Key[Any]) -> bool:
    """Return whether the config has a value at a key, and not the text ``None``."""
    return is_on(config.raw(key))


def is_off(config: Config, key: Key[Any]) -> bool:
    """Return whether a section that is on by default is switched off."""
    return config.stated(key) and not is_on(config.raw(key))


def under_inference(config: Config) -> Config:
    """Return the config in which the keys of the inference are read: with their defaults if it has no such section."""
    if isinstance(config.raw(keys.INFERENCE), Mapping):
        return config
    return config.with_values({config.path(keys.INFERENCE): {}})


def check_sections(config: Config) -> None:
    """Record sections that prime-rl demands and the config lacks, and sizes where older versions had them."""
    for key in (keys.TRAINER, keys.ORCHESTRATOR):
        if not is_on(config.raw(key)):
            config.faults.add(config.place, faults.no_section(key.name))
    if isinstance(config.raw(keys.INFERENCE), Mapping) and config.stated(keys.OLDER_PARALLEL):
        config.faults.add(config.key_place(keys.OLDER_PARALLEL), faults.moved_sizes())

"""Inventory files: reading any file that lists nodes, and writing so that any YAML reader gets the same values."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rankplan.files import write_whole
from rankplan.kinds import INVENTORY
from rankplan.read.inventories.batch_script import read_batch_script
from rankplan.read.inventories.manifests import read_pods
from rankplan.read.inventories.node_table import read_table
from rankplan.read.text.load import load_config


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Quotes text that some YAML reader could take for a number."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _quoted)


def read_file(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the inventory in a file, a table of nodes, or a job with its pods or nodes, as plain values.

    Raises `PlacementError`, ``OSError``.
    """
    return read_table(path) or read_pods(path) or read_batch_script(path) or load_config(path, kind=INVENTORY)


def write_file(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write an inventory file atomically. Raises ``OSError`` if it cannot be written."""
    write_whole(Path(path), yaml.dump(content, Dumper=_Dumper, sort_keys=False))

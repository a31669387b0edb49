"""Reads a config file: YAML, TOML, or the script that launches a job; and the files that a config extends."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rankplan.errors import PlacementError
from rankplan.files import read_text
from rankplan.kinds import CONFIG, Kind
from rankplan.read.text.document import Document, Section
from rankplan.read.text.places import Places
from rankplan.words import wrong_type

SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
"""The suffixes of launch scripts."""
_YAML = (".yaml", ".yml", ".json")
"""The suffixes of files that no guest reads."""
_TOML = ".toml"
_SHEBANG = r"#![^\n]*\b(?:ba|da|z|k)?sh\b"


def checked_overrides(overrides: Any) -> Sequence[str]:
    """Return overrides, none for ``None``. Raises ``TypeError`` unless they are a list of texts."""
    several = isinstance(overrides, Sequence) and not isinstance(overrides, str)
    if not several or not all(isinstance(override, str) for override in overrides):
        if not overrides:
            return ()
        raise wrong_type("overrides", overrides, 'a list of texts: ["trainer.nnodes=2"]')
    checked: Sequence[str] = overrides
    return checked


def load_config(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), *, text: str | None = None, kind: Kind = CONFIG
) -> Section:
    """Read a config file and return its mapping; later faults point into the file.

    YAML is read by YAML 1.2's core rules, and a file that ends in ``.toml`` is TOML. A shell script (``.sh``,
    ``.bash``, ``.slurm``, ``.sbatch``, or a first line such as ``#!/bin/bash``) gives the ``key=value`` words or the
    flags of the command that starts the job; it is never executed. So does the entrypoint of a RayJob.
    ``defaults: base.yaml`` extends other files, as in NeMo-RL; the files that Hydra's ``defaults`` names are read if
    they exist. ``overrides`` change values as on Hydra's command line:
    ``key=value``, ``+key=value``, ``++key=value``, ``~key``; ``X=value`` sets a variable that a script reads from its
    environment, ``1=value`` its argument ``$1``. ``text`` is read in place of the content of the file, as of one that
    an editor has not saved. ``kind`` says what a file without keys should be.

    Raises `PlacementError` if the file cannot be parsed, repeats a key, is not a mapping, or an override does not fit
    it; ``OSError`` if it cannot be read.
    """
    if not overrides:
        return _load(os.fspath(path), text=text, kind=kind)
    from rankplan.read.text.overrides import arguments_in, overridden, parse_overrides  # as the readers below

    words, arguments = arguments_in(checked_overrides(overrides))
    changes = parse_overrides(words)
    given = {one.key: one.value for one in changes if not one.sign and one.key.isidentifier() and one.value is not None}
    given |= {name: argument.value for name, argument in arguments.items()}
    config = _load(os.fspath(path), given=given, text=text, kind=kind)
    used = config.document.used if isinstance(config.document, Places) else set()
    unread = [argument.fault for name, argument in arguments.items() if name not in used]
    if unread:
        raise PlacementError(unread)
    return overridden(config, [one for one in changes if one.key not in used])


def _load(
    file: str,
    above: tuple[str, ...] = (),
    given: Mapping[str, str] = MappingProxyType({}),
    text: str | None = None,
    kind: Kind = CONFIG,
    choices: Mapping[str, str] = MappingProxyType({}),
) -> Section:
    """Return the content of a file with those that it extends.

    ``given`` are environment variables of a script, ``choices`` the names that a command line gives to files of Hydra's
    config groups.
    """
    document, value = _read(file, given, text, kind)
    if not isinstance(value, Section):
        raise PlacementError([replace(kind.fault(value), file=document.file)])
    if "defaults" not in value or "job" in value:  # a job file extends nothing
        return value
    from rankplan.read.text.extends import extended
    from rankplan.read.text.hydra import composed

    return composed(extended(value, _load, (*above, file)), lambda name: _read(name)[1], choices)


def _read(
    file: str, given: Mapping[str, str] = MappingProxyType({}), text: str | None = None, kind: Kind = CONFIG
) -> tuple[Any, Any]:
    """Return where the values of a file are, and its content."""
    text = read_text(file) if text is None else text
    # Most programs read YAML only: import the readers of other formats where they are used.
    if file.endswith(SCRIPTS) or re.match(_SHEBANG, text):
        from rankplan.read.text.places import Text
        from rankplan.read.text.script import parse_script

        text = text.replace("\r\n", "\n")
        script = parse_script(Text(file, text), text, _load, given)
        return script.document, script
    if file.endswith(_TOML):
        from rankplan.read.text.toml import read_toml

        content = read_toml(file, text)
        return content.document, content
    if kind is CONFIG and Path(file).suffix and not file.endswith(_YAML):
        from rankplan.read.text.formats import read_format

        if (formatted := read_format(file, text)) is not None:
            return formatted.document, formatted
    document = Document(file, text)
    value = document.value()
    if isinstance(value, Section) and value.get("kind") == "RayJob":
        from rankplan.read.text.entrypoints import entrypoint
        from rankplan.read.text.script import parse_script

        if (command := entrypoint(value)) is not None:
            script = parse_script(command, command.text, _load, {**command.environment, **given})
            return script.document, script
    return document, value

"""The config that a program of Python loads with Hydra, as its command and its own ``@hydra.main`` say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rankplan.files import read_text
from rankplan.read.text.nearby import is_file, nearest_file, plain_path

_LARGEST = 1 << 20
"""The most bytes of a program that are searched."""
_HYDRA_MAIN = re.compile(r"^@hydra\.main\(([^()]*)\)", re.MULTILINE)
_ARGUMENT = re.compile(r"""(?P<key>config_path|config_name)\s*=\s*["'](?P<value>[^"'\n]+)["']""")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


_PACKAGE = "pkg://"
"""The start of a folder that is a package of Python."""


class HydraOptions(NamedTuple):
    """What a command tells Hydra: the folder and the name of the config, and folders beside that one.

    ``None`` is not told.
    """

    folder: str | None = None
    name: str | None = None
    beside: tuple[str, ...] = ()


class LoadedConfig(NamedTuple):
    """The config that a program loads: its name, and its file; ``None`` if it cannot be found."""

    name: str
    file: Path | None


def program_file(name: str, script: str, folder: str) -> Path | None:
    """Return the file of a program of Python that a script starts, by its path or its module."""
    if name.endswith(".py"):
        return nearest_file(name, script, folder)
    if _MODULE.fullmatch(name) is None:
        return None
    path = name.replace(".", "/")
    module = nearest_file(f"{path}.py", script, folder)
    return nearest_file(f"{path}/__main__.py", script, folder) if module is None else module


def loaded_config(name: str, script: str, folder: str, options: HydraOptions) -> LoadedConfig | None:
    """Return the config that a program loads with these options; ``None`` if it is not said to load any.

    A relative ``--config-path`` starts at the folder of the program; users also write it from the present one.
    """
    program = program_file(name, script, folder)
    declared = {} if program is None else _declared(program)
    config = options.name or declared.get("config_name")
    if config is None:
        return None
    config_folder = options.folder or declared.get("config_path")
    file = config if config.endswith((".yaml", ".yml")) else f"{config}.yaml"
    if config_folder is not None and config_folder.startswith(_PACKAGE):
        inside = config_folder.removeprefix(_PACKAGE).replace(".", "/")
        return LoadedConfig(config, nearest_file(f"{inside}/{file}", script, folder))
    found = next(filter(is_file, _candidates(name, program, config_folder, file, options)), None)
    if found is None and config_folder is not None:
        found = nearest_file(f"{config_folder}/{file}", script, folder)
    return LoadedConfig(config, None if found is None else plain_path(found))


def _candidates(
    name: str, program: Path | None, config_folder: str | None, file: str, options: HydraOptions
) -> Iterator[Path]:
    """Yield the paths that a config may have; without the program, its path tells where its folder is."""
    own = Path(name).parent if program is None and name.endswith(".py") else None
    for parent in (own, program.parent if program is not None else None):
        if parent is not None and config_folder is not None:
            yield parent / config_folder / file
        if parent is not None:
            yield from (parent / beside / file for beside in options.beside)


def _declared(program: Path) -> dict[str, str]:
    """Return the arguments of ``@hydra.main`` in a file of Python that are texts."""
    try:
        found = _HYDRA_MAIN.search(read_text(program, _LARGEST))
    except (OSError, ValueError):
        return {}
    return {} if found is None else {one["key"]: one["value"] for one in _ARGUMENT.finditer(found[1])}

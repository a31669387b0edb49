"""Hydra's defaults: a config merged with the files that its ``defaults`` names, beside it or in ``hydra.searchpath``.

entry    = "_self_" | [ group "/" ] name [ "@" package ] | [ "optional" ] group [ "@" package ] ":" name
         | "override" group [ "@" package ] ":" name

A later entry wins over an earlier one, and the config itself over all, unless ``_self_`` says where it comes. The file
of a group is put where its package says, or else where its group does.

Follows ``_create_defaults_tree`` and ``InputDefault.get_final_package`` of Hydra 1.3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, cast

from rankplan.errors import Diagnostic
from rankplan.files import folder_of
from rankplan.frozen import frozen
from rankplan.read.text.document import Document, Section
from rankplan.read.text.layers import Layers, Package, over
from rankplan.read.text.nearby import folders_above, is_file
from rankplan.read.text.places import relocated
from rankplan.words import path_text

_SELF = "_self_"
_HEADER = re.compile(r"#\s*@package\s+(\S+)")
_KEY = re.compile(r"(?:(?P<mode>override|optional)\s+)?(?P<group>[^@\s]*)(?:@(?P<package>\S*))?")
_DEEPEST = 20
_MOST_FILES = 1000
_REMOVED = "~"
"""The choice of no file of a group: ``~optim``, on a command line."""
_CHOSEN_NAME = re.compile(r"\$\{([\w/]+)\}")


@frozen
class _Entry:
    """An entry of a list of defaults: a file of a group, and the package that the entry gives, if any.

    ``mode`` is ``override``, ``optional`` or ``None``.
    """

    group: Package
    name: str
    package: str | None
    mode: str | None = None
    absolute: bool = False


def compose(config: Mapping[str, Any]) -> str:
    """Return the help for a config that lacks values which a file of its ``defaults`` may have."""
    defaults = config.get("defaults")
    entries = _all_entries(defaults if isinstance(defaults, list) else [defaults])
    missing = ", ".join(f"`{entry.name}`" for entry in entries if entry.name not in (_SELF, ""))
    help = "pass the config that Hydra has composed"
    return f"{help}: {missing} of its `defaults` cannot be found" if missing else help


def composed(section: Section, parse: Callable[[str], Any], choices: Mapping[str, str]) -> Section:
    """Return the content of a file with those of its defaults that exist; ``defaults`` keeps the names of the others.

    ``parse`` reads a file without its defaults. ``choices`` are the names that a command line gives to files of groups.
    """
    file = section.document.file
    entries = section.get("defaults")
    if file is None or not isinstance(entries, list):
        return section
    if any(isinstance(entry, str) and entry.endswith((".yaml", ".yml")) for entry in entries):
        return section  # NeMo-RL's, which are paths
    tree = _Tree([folder_of(file), *_search_path(section, file)], parse)
    added = _add_choices(tree, choices)
    layers = list(tree.layers(section, (), (), 0))
    for entry in added:
        layers += tree._file(entry, (), (), 1)
    merged: dict[str, Any] = dict(tree.removed)  # the word that has removed a group finds it here
    for package, layer in layers:
        values: Any = {key: value for key, value in layer.items() if key != "defaults"}
        for part in reversed(package):
            values = {part: values}
        merged = over(merged, values)
    if tree.missing:
        merged["defaults"] = list(tree.missing)
    whole = cast("Section", relocated(merged, Layers(layers[::-1])))
    for name, package in tree.missing.items():
        if len(package) < 2:  # longer ones are settings of a model or an environment
            fault = _too_many(name) if name in tree.beyond else _not_found(name)
            warning = section.document.locate(("defaults",), fault)
            whole.document.warnings.append(replace(warning, path=path_text(package)))
    return whole


def _add_choices(tree: _Tree, choices: Mapping[str, str]) -> list[_Entry]:
    """Choose the files that a command line names; return the entries that it adds: ``+group=name``."""
    added: list[_Entry] = []
    for key, name in choices.items():
        path, _, package = key.lstrip("+~").partition("@")
        group = tuple(part for part in path.split("/") if part)
        tree.chosen[group, package or None] = _REMOVED if key.startswith("~") else name
        if key.startswith("+"):
            added.append(_Entry(group, name, package or None, "optional", absolute=True))
    return added


def _not_found(name: str) -> Diagnostic:
    """Return the warning of a file that a config's ``defaults`` names, and that is missing."""
    message = f"`{name}` of `defaults` is not read: no such file here; "
    message += "the usual defaults of the trainer stand in for its values"
    return Diagnostic("not-read", message, "pass the config that Hydra has composed", warning=True)


def _too_many(name: str) -> Diagnostic:
    """Return the warning of a file that a config's ``defaults`` names behind all that are read."""
    message = (
        f"`{name}` of `defaults` is not read: of a config, {_MOST_FILES:,} files are, at most {_DEEPEST} levels deep; "
    )
    message += "the usual defaults of the trainer stand in for its values"
    return Diagnostic("not-read", message, "pass the config that Hydra has composed", warning=True)


@dataclass
class _Tree:
    """Reads the defaults of a config and of the files that they name."""

    roots: Sequence[Path]
    parse: Callable[[str], Any]
    missing: dict[str, Package] = field(default_factory=dict)
    """The files that are not read, and where their values belong."""
    beyond: set[str] = field(default_factory=set)
    """Those of them that are too many, or too deep: their defaults may name each other."""
    chosen: dict[tuple[Package, str | None], str] = field(default_factory=dict)
    """The names that `override` gives to files of a group."""
    removed: dict[str, str] = field(default_factory=dict)
    """The groups of one name that a command line has removed, each with the name of its file."""
    names: dict[str, str] = field(default_factory=dict)
    """The names of the files so far, by their groups: ``${group}`` in a name stands for one."""
    files: int = 0

    def layers(
        self, section: Section, group: Package, package: Package, depth: int
    ) -> Iterator[tuple[Package, Section]]:
        """Yield the files of a config, the least important first."""
        defaults = section.get("defaults")
        entries = _all_entries(defaults) if isinstance(defaults, list) else []
        for entry in entries:
            if entry.mode == "override":
                self.chosen.setdefault((entry.group, entry.package), entry.name)
        if all(entry.name != _SELF for entry in entries):
            entries.append(_Entry((), _SELF, None))
        for entry in entries:
            if entry.name == _SELF:
                yield package, section
            elif entry.mode != "override" and entry.group[:1] != ("hydra",):
                yield from self._file(entry, () if entry.absolute else group, package, depth + 1)

    def _file(self, entry: _Entry, above: Package, package: Package, depth: int) -> Iterator[tuple[Package, Section]]:
        group = (*above, *entry.group)
        default = self.chosen.get((entry.group, entry.package), entry.name)
        name = self.chosen.get((group, entry.package), default).removesuffix(".yaml")
        name = _CHOSEN_NAME.sub(lambda match: self.names.get(match[1], match[0]), name)
        if name == _REMOVED and len(group) == 1:
            self.removed[entry.group[0]] = entry.name
        if name in ("", "null", _REMOVED):
            return  # no file of this group
        self.names["/".join(entry.group)] = name
        self.files += 1
        paths = (root.joinpath(*group, f"{name}.yaml") for root in self.roots)
        path = next(filter(is_file, paths), None)
        is_beyond = depth > _DEEPEST or self.files > _MOST_FILES
        if is_beyond or path is None:
            if entry.mode != "optional":
                whole_name = "/".join((*group, name))
                self.missing[whole_name] = _package(entry, package, None)
                if is_beyond:
                    self.beyond.add(whole_name)
            return
        section = self.parse(os.fspath(path))
        if isinstance(section, Section):  # an empty file is none
            yield from self.layers(section, group, _package(entry, package, section), depth)


def _search_path(section: Section, file: str) -> Iterator[Path]:
    """Yield the folders of ``hydra.searchpath`` in the main config; the package of ``pkg://`` is not imported.

    A relative folder, and a package that is not installed, start where the program runs: above the config.
    """
    hydra = section.get("hydra")
    listed = hydra.get("searchpath") if isinstance(hydra, dict) else None
    for text in listed if isinstance(listed, list) else []:
        kind, _, where = str(text).partition("://")
        if kind == "file":
            yield from (above / where for above in folders_above(file))
            yield Path(where)
        elif kind == "pkg" and re.fullmatch(r"\w+(\.\w+)*", where):
            top, *inner = where.split(".")
            yield from (above.joinpath(top, *inner) for above in folders_above(file))
            found = PathFinder.find_spec(top)
            for folder in (found and found.submodule_search_locations) or ():
                yield Path(folder, *inner)


def _package(entry: _Entry, parent: Package, section: Section | None) -> Package:
    """Return where the values of a file go: as the entry says, or the file itself, or else its group."""
    package = entry.package if entry.package is not None else _package_in_file(section)
    if package is None or package == "_group_":
        return (*parent, *entry.group)
    parts = tuple(part for part in package.split(".") if part)
    if parts[:1] == ("_global_",):
        return parts[1:]
    if parts[:1] == ("_here_",):
        return (*parent, *parts[1:])
    return (*parent, *parts)


def _package_in_file(section: Section | None) -> str | None:
    """Return the package that a comment in the first lines of a file states."""
    document = None if section is None else section.document
    lines = document.lines if isinstance(document, Document) else []
    for line in lines[:5]:
        header = _HEADER.match(line)
        if header is not None:
            return header[1]
    return None


def _all_entries(defaults: Sequence[Any]) -> list[_Entry]:
    """Return the entries of a list of defaults."""
    entries: list[_Entry] = []
    for item in defaults:
        entries += _entries(item)
    return entries


def _entries(written: Any) -> Iterator[_Entry]:
    """Yield the entries of one item of a list of defaults."""
    if isinstance(written, str):
        path, _, package = written.partition("@")
        *group, name = [part for part in path.split("/") if part] or [""]
        yield _Entry(tuple(group), name, package or None, absolute=path.startswith("/"))
    elif isinstance(written, dict):
        for key, names in written.items():
            match = _KEY.fullmatch(key)
            if match is None:
                continue
            parts = tuple(part for part in match["group"].split("/") if part)
            is_absolute = match["group"].startswith("/")
            for name in names if isinstance(names, list) else [names]:
                if name is None or isinstance(name, str):
                    yield _Entry(parts, name or "", match["package"], match["mode"], is_absolute)

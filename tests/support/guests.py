"""Packages with guests: in a folder on the path of this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from rankplan.guests import doors


def put_package(
    folder: Path, package: str, entries: Mapping[str, Mapping[str, str]], modules: Mapping[str, str] | None = None
) -> None:
    """Write the metadata of a package with entry points by group and name, and its modules."""
    metadata = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = []
    for group, objects in entries.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in objects.items()), ""]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    for module, text in (modules or {}).items():
        (folder / f"{module}.py").write_text(text)


@contextmanager
def on_the_path(*folders: Path) -> Iterator[None]:
    """Put folders with packages on the path of this process, whose guests are then searched for again."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in reversed(folders):
            patch.syspath_prepend(folder)
        _forget()
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    doors.installed.cache_clear()
    doors._loaded.cache_clear()

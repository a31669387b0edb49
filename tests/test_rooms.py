"""Arrows point one way, Ray is imported in one folder, and importing rankplan imports none of what it may not need."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "python" / "rankplan"

# A room may use those before it, and itself.
ROOMS = [
    "_core",
    "errors",
    "words",
    "accelerators",
    "files",
    "addresses",
    "environment",
    "config",
    "inventory",
    "occupancy",
    "plan",
    "placement",
    "dialects",
    "testing",
    "render",
    "runtime",
    "cli",
]
FILES = [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem not in ("__init__", "__main__")]


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Modules that a file imports when it runs: what stands under TYPE_CHECKING does not count."""
    tree = ast.parse(path.read_text())
    skipped = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    ]
    checked = {id(child) for node in skipped for child in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in checked:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_point_one_way(path: Path) -> None:
    here = ROOMS.index(room(path))
    for name in imported(path):
        parts = name.split(".")
        # The names that the package itself exports come from the rooms before `render`.
        if parts[0] == "rankplan" and (parts[1] in ROOMS):
            assert ROOMS.index(parts[1]) <= here, f"{path.name} imports {name}"
        if parts[0] == "rankplan" and parts[1] not in ROOMS:
            assert here > ROOMS.index("placement"), f"{path.name} imports {name}"
        assert parts[0] != "ray" or room(path) == "runtime", f"{path.name} imports Ray"


@pytest.mark.parametrize("module", ["ray", "rich", "click", "numpy", "omegaconf", "hypothesis"])
def test_importing_rankplan_does_not_import(module: str) -> None:
    program = f"import sys, rankplan; from rankplan import *; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0

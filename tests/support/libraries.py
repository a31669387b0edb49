"""Small shared libraries that the tests compile in place of a driver's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def compiled(folder: Path, name: str, source: str) -> Path:
    """Compile a C source to a shared library with this name and return its folder."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.c").write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / name, folder / "source.c"], check=True)
    return folder


def python(program: str, library: Path | None, **variables: str) -> str:
    """Run a program in a process that finds the library first, and return what it prints."""
    paths = {"LD_LIBRARY_PATH": str(library)} if library else {}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **paths, **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

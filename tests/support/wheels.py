"""Wheels of small projects, and environments to install them in."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import rankplan


def build_wheel(project: Path, folder: Path) -> Path:
    """Build the wheel of a project: a pyproject.toml, and modules and packages of Python. Return its path.

    It has what a build backend writes, without one: metadata, entry points and the record of its files.
    """
    stated = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    name, version = stated["name"].replace("-", "_"), stated["version"]
    requires = "".join(f"Requires-Dist: {one}\n" for one in stated.get("dependencies", []))
    info = f"{name}-{version}.dist-info"
    files = {path.relative_to(project).as_posix(): path.read_bytes() for path in sorted(project.rglob("*.py"))}
    metadata = f"Metadata-Version: 2.1\nName: {stated['name']}\nVersion: {version}\n{requires}"
    wheel = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    entries = ""
    for group, objects in stated.get("entry-points", {}).items():
        entries += f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in objects.items()) + "\n"
    for file, text in (("METADATA", metadata), ("WHEEL", wheel), ("entry_points.txt", entries)):
        files[f"{info}/{file}"] = text.encode()
    record = ""
    for file, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{file},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            archive.writestr(file, content)
    return path


class Environment:
    """A new environment, in which pip installs wheels, and the rankplan that is tested and what it needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder, with_pip=True, symlinks=True)
        own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
        # rankplan may be installed from its sources, beside the packages that it needs
        shared = dict.fromkeys([str(Path(rankplan.__file__).parents[1]), sysconfig.get_path("purelib")])
        (own / "rankplan.pth").write_text("\n".join(shared))
        script = folder / "bin" / "rankplan"
        script.write_text(f"#!{folder / 'bin' / 'python'}\nfrom rankplan.cli import main\nmain(prog_name='rankplan')\n")
        script.chmod(0o755)

    def install(self, *wheels: Path) -> None:
        """Install wheels without their dependencies."""
        self._pip("install", "--no-deps", "--no-index", *map(str, wheels))

    def uninstall(self, *packages: str) -> None:
        """Remove packages."""
        self._pip("uninstall", "--yes", *packages)

    def run(self, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a command line of a shell in a folder; its programs are those of the environment."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        variables |= {"PATH": path, "COLUMNS": "120"}
        words = ["bash", "-c", command]
        return subprocess.run(words, cwd=folder, env=variables, text=True, capture_output=True, timeout=120)

    def _pip(self, *words: str) -> None:
        python = str(self.folder / "bin" / "python")
        command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

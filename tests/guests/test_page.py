"""The page about guests, word for word: its package as a wheel in an environment of its own, and its commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.documents import blocks, in_folder
from support.outcomes import some
from support.paths import DOCS
from support.wheels import Environment, build_wheel

PAGE = DOCS / "guests.md"

FAKE_SSH = """\
#!/bin/bash
echo "ssh $1" >&2
exec bash -c "$2"
"""


class Installed(NamedTuple):
    """An environment with the package of the page, and a folder with its configs."""

    environment: Environment
    folder: Path


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("guests")
    (project := folder / "project").mkdir()
    in_folder(PAGE, project)
    (text,) = [block.text for block in blocks(PAGE) if block.text.startswith("# pyproject.toml")]
    (project / "pyproject.toml").write_text(text)
    environment = Environment(folder / "environment")
    (project / "examples").unlink()  # a link to those of the repository
    environment.install(build_wheel(project, folder))
    for name in ("conf.yaml", "nodes.yaml"):
        (folder / name).write_text((project / name).read_text())
    yield Installed(environment, folder)


def sessions() -> list[tuple[str, str]]:
    """Return the commands of the page for the installed package, with their outputs."""
    (text,) = [block.text for block in blocks(PAGE) if block.text.startswith("$ rankplan emit")]
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def test_the_commands_of_the_page(installed: Installed) -> None:
    environment, folder = installed
    for command, output in some(sessions()):
        done = environment.run(command, folder)
        assert done.stdout + done.stderr == output, command


def test_the_script_starts_every_rank(installed: Installed, tmp_path: Path) -> None:
    """Here ssh runs its command on this machine."""
    environment, folder = installed
    (ssh := tmp_path / "ssh").write_text(FAKE_SSH)
    ssh.chmod(0o755)
    emit = "rankplan emit conf.yaml --inventory nodes.yaml --to ssh --command 'printenv RANK' -o ranks.sh"
    assert environment.run(emit, folder).returncode == 0
    done = environment.run(f"PATH={tmp_path}:$PATH bash ranks.sh", folder)
    assert done.returncode == 0, done.stderr
    assert sorted(map(int, done.stdout.split())) == sorted([*range(8), *range(6)])
    assert {line for line in done.stderr.splitlines() if line.startswith("ssh ")} == {"ssh gpu-0", "ssh gpu-1"}


BROKEN = """\
[project]
name = "broken-guest"
version = "1.0"
entry-points."rankplan.launchers" = {broken = "broken_guest:LAUNCHER", slurm = "broken_guest:LAUNCHER"}
entry-points."rankplan.dialects" = {broken = "broken_guest:DIALECT"}
entry-points."rankplan.commands" = {broken = "broken_guest:command"}
"""


def test_a_broken_package_spoils_nothing(installed: Installed, tmp_path: Path) -> None:
    environment, folder = installed
    (tmp_path / "pyproject.toml").write_text(BROKEN)
    (tmp_path / "broken_guest.py").write_text("open('imported', 'w').close()\nraise RuntimeError('no')\n")
    commands = [
        "rankplan check conf.yaml --inventory nodes.yaml --format json",
        "rankplan emit conf.yaml --inventory nodes.yaml --to slurm --command x",
        "rankplan idle conf.yaml",
    ]
    before = [environment.run(command, folder) for command in commands]
    environment.install(build_wheel(tmp_path, tmp_path))
    try:
        after = [environment.run(command, folder) for command in commands]
        assert not (folder / "imported").exists()
        failed = environment.run("rankplan emit conf.yaml --to broken", folder)
    finally:
        environment.uninstall("broken-guest")
    answers = [[(done.returncode, done.stdout, done.stderr) for done in runs] for runs in (before, after)]
    assert answers[0] == answers[1] and all(code == 0 for code, _, _ in answers[0])
    assert failed.returncode == 1
    fault = "error[guest-failed]: the launcher `broken` of the package broken-guest cannot be imported"
    assert f"{fault}: RuntimeError: no\n" in failed.stderr

"""What other packages add comes after what is built in, and what fails of it spoils nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan.errors import Diagnostic, PlacementError
from rankplan.guests.doors import Door, GuestError, Loaded, Table, installed, without_guests
from support.guests import on_the_path, put_package

BUILTIN = {"pi": "math:pi", "tau": "math:tau"}


@pytest.fixture
def table() -> Table[float]:
    return Table(Door.LAUNCHERS, float, BUILTIN)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder on the path; what a test writes there is found when it looks for guests."""
    before = set(sys.modules)
    with on_the_path(tmp_path):
        yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def put(folder: Path, package: str, name: str, text: str, door: str = "rankplan.launchers") -> None:
    """Install a package with one guest, the object ``guest`` of a module with this text."""
    module = f"{package.replace('-', '_')}_module"
    put_package(folder, package, {door: {name: f"{module}:guest"}}, {module: text})


def fault(table: Table[Any], name: str) -> Diagnostic:
    """Return the fault of a guest."""
    with pytest.raises(GuestError) as caught:
        table[name]
    (one,) = caught.value.diagnostics
    assert one.code == "guest-failed" and not one.warning
    assert caught.value.warning.warning and caught.value.warning.message == one.message
    return one


def test_what_is_built_in_needs_no_search(folder: Path, table: Table[float]) -> None:
    put(folder, "some-guest", "e", "guest = 2.7")
    assert table["pi"] > 3 and "tau" in table and table.guest("pi") is None
    assert installed.cache_info().misses == 0


def test_guests_come_after_what_is_built_in_and_are_searched_for_once(folder: Path, table: Table[float]) -> None:
    put(folder, "some-guest", "e", "guest = 2.7")
    put(folder, "another-guest", "a", "guest = 1.5")
    assert list(table) == ["pi", "tau", "a", "e"] and len(table) == 4
    assert "some_guest_module" not in sys.modules  # names need only metadata
    assert table["e"] == 2.7 and "other" not in table and table.get("other") is None
    assert Table(Door.DIALECTS, float, {}).guest_names() == []
    assert installed.cache_info().misses == 1


def test_what_is_no_text_is_no_name(folder: Path, table: Table[float]) -> None:
    assert [3] not in table and None not in table and 3 not in table


def test_a_guest_is_imported_once(folder: Path, table: Table[float]) -> None:
    put(folder, "some-guest", "e", "import pathlib\nwith open('imports', 'a') as f: f.write('x')\n1 / 0")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert fault(table, "e") == fault(table, "e")
    assert Path(folder, "imports").read_text() == "x"


def test_a_guest_does_not_replace_what_is_built_in(folder: Path, table: Table[float]) -> None:
    put(folder, "some-guest", "pi", "guest = 3.0")
    assert table["pi"] > 3.1 and list(table) == ["pi", "tau"]
    assert table.loaded().guests == {}
    (warning,) = table.loaded().warnings
    assert warning.message == (
        "the launcher `pi` of the package some-guest is ignored: rankplan has a launcher of this name"
    )
    assert warning.warning


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nowhere_at_all", "cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("other = 1", "cannot be imported: AttributeError: module 'some_guest_module' has no attribute 'guest'"),
        ("guest = (", "cannot be imported: SyntaxError: '(' was never closed (some_guest_module.py, line 1)"),
        ("import sys; sys.exit(3)", "cannot be imported: SystemExit: 3"),
        ("raise ValueError('two\\nlines')", "cannot be imported: ValueError: two"),
        ("class E(Exception):\n    def __str__(self): raise self\nraise E", "cannot be imported: E"),
        ("guest = '3'", "is of type str; it must be a float"),
        ("raise ValueError('\\033[31mred')", "cannot be imported: ValueError: \\x1b[31mred"),
    ],
)
def test_a_guest_that_cannot_be_loaded_is_a_fault(folder: Path, table: Table[float], text: str, message: str) -> None:
    put(folder, "some-guest", "e", text)
    put(folder, "other-guest", "fine", "guest = 1.0")
    one = fault(table, "e")
    assert one.message == f"the launcher `e` of the package some-guest {message}"
    assert one.help is not None and "update or uninstall some-guest" in one.help
    # the others can be used
    assert [(guest.name, value) for guest, value in table.loaded().guests.items()] == [("fine", 1.0)]
    assert [(warning.message, warning.warning) for warning in table.loaded().warnings] == [(one.message, True)]


def test_two_guests_with_one_name(folder: Path, table: Table[float]) -> None:
    for package in ("b-guest", "a-guest"):
        put(folder, package, "e", "raise ValueError('is not imported')")
    assert list(table) == ["pi", "tau", "e"]
    one = fault(table, "e")
    assert one.message in {
        "the packages a-guest and b-guest both have a launcher `e`",
        "the packages b-guest and a-guest both have a launcher `e`",
    }
    assert one.help == "uninstall all but one of them"
    assert [warning.message for warning in table.loaded().warnings] == [one.message]
    put(folder, "c-guest", "e", "")
    installed.cache_clear()
    assert "all have a launcher `e`" in fault(table, "e").message


def test_a_package_that_is_on_the_path_twice_counts_once(folder: Path, table: Table[float], tmp_path: Path) -> None:
    put(folder, "some-guest", "e", "guest = 2.7")
    put_package(tmp_path / "later", "Some.Guest", {"rankplan.launchers": {"e": "some_guest_module:guest"}})
    with on_the_path(folder, tmp_path / "later"):
        assert table["e"] == 2.7


def test_a_broken_package_does_not_matter(folder: Path, table: Table[float]) -> None:
    put(folder, "some-guest", "e", "guest = 2.7")
    put(folder, "broken", "f", "guest = 1.0")
    (folder / "broken-1.0.dist-info" / "entry_points.txt").write_text("[rankplan.launchers]\nno value\n")
    put(folder, "unreadable", "g", "guest = 1.0")
    (folder / "unreadable-1.0.dist-info" / "entry_points.txt").write_bytes(b"[rankplan.launchers]\n\xff=a:b\n")
    assert table.guest_names() == ["e"]


def test_what_the_code_of_a_guest_raises(folder: Path, table: Table[float]) -> None:
    put(folder, "some-guest", "e", "guest = 2.7")
    guest = table.guest("e")
    assert guest is not None and str(guest) == "the launcher `e` of the package some-guest"
    for error in (PlacementError([Diagnostic("syntax", "the input is wrong")]), FileNotFoundError("x")):
        with pytest.raises(type(error)) as passed, guest.running():
            raise error
        assert passed.value is error
    with pytest.raises(KeyboardInterrupt), guest.running():
        raise KeyboardInterrupt
    with pytest.raises(GuestError) as caught, guest.running():
        {}["missing"]
    (one,) = caught.value.diagnostics
    assert one.message.startswith("the launcher `e` of the package some-guest raised KeyError: 'missing' (test_doors")
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(GuestError), guest.running():
        sys.exit("no")


def test_guests_can_be_kept_out(folder: Path, table: Table[float]) -> None:
    put(folder, "some-guest", "e", "raise ValueError('is not imported')")
    with without_guests():
        with without_guests():
            assert list(table) == ["pi", "tau"]
        assert "e" not in table and table.loaded() == Loaded({}, [])
        with pytest.raises(KeyError):
            table["e"]
    assert "e" in table


@pytest.mark.parametrize(
    "words",
    [
        "check verl.yaml",
        "plan verl.yaml --dialect verl",
        "emit plan.json --to slurm --command x",
        "convert plan.json --to verl",
        "diff plan.json verl.yaml",
        "tune --costs costs.yaml --nodes 1x8 --to rlinf",
    ],
)
def test_commands_with_what_is_built_in_search_for_nothing(words: str, tmp_path: Path) -> None:
    """The search would take a tenth of the time of a small check."""
    config = {"trainer": {"nnodes": 1, "n_gpus_per_node": 8}, "actor_rollout_ref": {}}
    (tmp_path / "verl.yaml").write_text(json.dumps(config))
    rankplan.plan(config).save(tmp_path / "plan.json")
    (tmp_path / "costs.yaml").write_text(json.dumps({"components": {"actor": {"seconds": {"8": 60}}}}))
    program = f"""
import sys
from rankplan.cli import main
from rankplan.guests.doors import installed
try:
    main({words.split()!r})
except SystemExit as end:
    assert end.code in (0, None), end.code
sys.exit(installed.cache_info().misses)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

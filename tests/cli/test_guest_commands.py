"""Commands of other packages: listed without their code, run by their name, kept out by a flag."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from rankplan.cli.commands import COMMANDS, TABLE, main
from support.commands import run
from support.guests import on_the_path, put_package

HELLO = """
import click
import rankplan

@click.command()
@click.argument("words", nargs=-1)
def hello(words):
    if "fault" in words:
        rankplan.plan({"cluster": {"num_nodes": 1, "component_placement": {"actor": "9-1"}}})
    if "missing" in words:
        open("/nowhere/at/all")
    if "bug" in words:
        {}["key"]
    if "usage" in words:
        raise click.UsageError("use other words")
    if "exit" in words:
        raise SystemExit(7)
    click.echo(" ".join(words))
"""


@pytest.fixture(autouse=True)
def guests(tmp_path: Path) -> Iterator[Path]:
    """A package with a command, one with a broken command, and one that would replace a command of rankplan."""
    modules = {"good_command": HELLO, "broken_command": "1 / 0"}
    put_package(tmp_path, "good-guest", {"rankplan.commands": {"hello": "good_command:hello"}}, modules)
    put_package(tmp_path, "broken-guest", {"rankplan.commands": {"broken": "broken_command:command"}})
    put_package(tmp_path, "rude-guest", {"rankplan.commands": {"check": "good_command:hello"}})
    with on_the_path(tmp_path):
        yield tmp_path
    sys.modules.pop("good_command", None)


def test_every_command_of_rankplan_comes_through_the_same_door() -> None:
    assert list(TABLE.builtin) == list(COMMANDS)
    assert all(isinstance(TABLE[name], click.Command) and TABLE[name].name == name for name in COMMANDS)


def test_the_help_lists_guests_without_their_code() -> None:
    text = run("--help").output
    names, _, others = text.partition("Commands of other packages:")
    assert others.split("\n")[1:3] == ["  broken  From broken-guest.", "  hello   From good-guest."]
    assert names.count("\n  check ") == 1 and "rude-guest" not in text
    assert not {"good_command", "broken_command"} & set(sys.modules)


def test_a_guest_runs_with_all_its_words() -> None:
    done = run("hello", "check", "--", "-a", "b=1")
    assert (done.exit_code, done.output) == (0, "check -a b=1\n")


def test_a_guest_does_not_replace_a_command() -> None:
    assert "Report every fault" in run("check", "--help").output


def test_a_broken_guest_is_a_fault_and_spoils_no_other_command() -> None:
    done = run("broken")
    assert done.exit_code == 1
    assert done.stderr == (
        "error[guest-failed]: the command `broken` of the package broken-guest cannot be imported: "
        "ZeroDivisionError: division by zero\n"
        ' = help: `python -c "import broken_command"` shows where it fails; update or uninstall broken-guest\n\n'
        "1 fault\n"
    )
    assert run("explain", "syntax").exit_code == 0


@pytest.mark.parametrize(
    ("word", "code", "message"),
    [
        ("fault", 1, "error[reversed-range]: "),
        ("missing", 1, "error: /nowhere/at/all: No such file or directory"),
        ("bug", 1, "the command `hello` of the package good-guest raised KeyError: 'key' (good_command.py:13)"),
        ("usage", 2, "Error: use other words"),
        ("exit", 7, ""),
    ],
)
def test_a_guest_ends_like_a_command_of_rankplan(word: str, code: int, message: str) -> None:
    done = run("hello", word)
    assert done.exit_code == code and message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_command_may_be_a_misspelt_guest() -> None:
    done = run("helo")
    assert done.exit_code == 2 and "unknown command `helo`; did you mean `hello`?" in done.stderr


def test_guests_are_kept_out() -> None:
    done = run("--no-guests", "hello")
    assert done.exit_code == 2 and "unknown command `hello`" in done.stderr
    assert "hello" not in run("--no-guests", "--help").output
    assert run("hello", "x").output == "x\n"
    assert run("check", "--no-guests", "--nonsense").exit_code == 2
    assert run("check", "x.yaml", "--no-guests", "--nodes", "none").exit_code == 2
    assert "hello" in TABLE


def test_a_shell_completes_guests_without_their_code() -> None:
    found = BashComplete(main, {}, "rankplan", "_RANKPLAN_COMPLETE").get_completions([], "")
    assert [item.value for item in found] == [*COMMANDS, "broken", "hello"]
    assert "good_command" not in sys.modules

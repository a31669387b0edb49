"""Help texts, shell completion, and messages for wrong usage."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from rankplan import Inventory, error_codes
from rankplan.cli.commands import COMMANDS, GROUPS, main
from rankplan.dialects import DIALECTS
from rankplan.trainers.roll.dialect import DIALECT as roll
from support.commands import run
from support.paths import DOCS, HELP

GENERATED = runpy.run_path(str(DOCS / "generate.py"))["generated"]()
CONFIG = "cluster: {num_nodes: 1, component_placement: {actor: 0-7, rollout: 8-15, reference: 0}}\n"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(own_folder: Path) -> None:
    Path("conf.yaml").write_text(CONFIG)


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_generated_files_are_up_to_date(path: Path) -> None:
    """If this fails, run ``python docs/generate.py`` and review the difference before committing it."""
    assert path.read_text() == GENERATED[path]


def test_every_help_text_belongs_to_a_command() -> None:
    names = {"rankplan.txt", *(f"rankplan-{name}.txt" for name in COMMANDS)}
    assert names == {path.name for path in HELP.iterdir()}


def test_every_summary_fits_on_its_line() -> None:
    lines = run("--help", terminal_width=80).output.splitlines()
    shown = [line.strip() for line in lines[lines.index(f"{next(iter(GROUPS))}:") :] if line.startswith("  ")]
    assert sorted(shown) == [f"{name:<{max(map(len, COMMANDS))}}  {summary}" for name, summary in COMMANDS.items()]


def test_the_first_help_says_where_to_start() -> None:
    text = run("--help").output
    assert "Start with rankplan check FILE" in text and text.index("  check ") < text.index("  plan ")
    assert run("help").output == text and run("help").exit_code == 0
    assert run().output == text
    assert run("help", "check").output == run("check", "--help").output
    assert "unknown command `chekc`; did you mean `check`?" in run("help", "chekc").output


def test_commands_import_rich_and_ray_only_when_they_use_them() -> None:
    """The map on a terminal is drawn with rich; the other commands need it for a table."""
    names = [name for name in COMMANDS if name != "show"]
    imports = ", ".join(f"rankplan.cli.{name}" for name in names)
    program = f"import sys, {imports}; sys.exit(bool({{'rich', 'ray', 'numpy', 'hypothesis'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def completed(*words: str) -> list[str]:
    """Return the completions for the last word."""
    *before, last = words
    return [
        item.value for item in BashComplete(main, {}, "rankplan", "_RANKPLAN_COMPLETE").get_completions(before, last)
    ]


def test_a_shell_completes_commands_options_and_values() -> None:
    assert completed("") == sorted(COMMANDS)
    assert completed("plan", "--form") == ["--format"]
    assert completed("plan", "conf.yaml", "--format", "r") == ["rankfile"]
    assert completed("check", "--dialect", "") == list(DIALECTS)
    assert completed("explain", "not-m") == ["not-multiple"]
    assert set(error_codes()) < set(completed("explain", ""))


@pytest.mark.parametrize(
    "words", [("check", "co"), ("plan", "--inventory", "no"), ("diff", "a.json", "b"), ("run", "c")]
)
def test_a_shell_completes_files(words: tuple[str, ...]) -> None:
    *before, last = words
    (item,) = BashComplete(main, {}, "rankplan", "_RANKPLAN_COMPLETE").get_completions(before, last)
    assert (item.type, item.value) == ("file", last)


def test_a_shell_completes_components_from_the_file() -> None:
    assert completed("env", "conf.yaml", "--nodes", "1x16", "--component", "r") == ["rollout", "reference"]
    # By default a node has 8 accelerators, which are too few for this config.
    assert completed("env", "conf.yaml", "--component", "") == []
    roll.plan({"actor": {"device_mapping": "[0]"}}, Inventory.uniform(1, 8)).save("plan.json")
    assert completed("plan", "plan.json", "--component", "") == ["actor"]
    assert completed("env", "nowhere.yaml", "--component", "") == completed("env", "--component", "") == []


def test_completion_works_in_bash() -> None:
    """Run in a real bash, with the words of a line as bash passes them."""
    (folder := Path("bin")).mkdir()
    program = "from rankplan.cli import main; main(prog_name='rankplan')"
    (folder / "rankplan").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}" "$@"\n')
    (folder / "rankplan").chmod(0o755)
    script = (
        'eval "$(_RANKPLAN_COMPLETE=bash_source rankplan)"; COMP_WORDS=(rankplan explain dup); COMP_CWORD=2; '
        '_rankplan_completion rankplan; echo "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{folder.resolve()}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], text=True, capture_output=True, env=environment)
    offered = [code for code in error_codes() if code.startswith("dup")]
    assert (done.stdout.split(), done.stderr) == (offered, "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("chekc conf.yaml", "unknown command `chekc`; did you mean `check`?"),
        ("plan --inventry nodes.yaml conf.yaml", "Did you mean '--inventory'?"),
        ("plan --format cvs conf.yaml", "'cvs' is not one of 'table', 'json', 'csv',"),
        ("plan --nodes 8 conf.yaml", "'8' is not nodes x accelerators; write 2x8 for 2 nodes"),
        (
            "run --nodes nodse --simulate conf.yaml",
            "nodes with 8 accelerators each, or the path of an inventory file",
        ),
        ("plan one.yaml two.yaml", "Got unexpected extra argument (two.yaml)"),
        ("diff conf.yaml", "Missing argument 'B'"),
        (
            "plan conf.yaml -o p.json",
            "--save p.json writes the plan, and rankplan show pictures; -o writes its rows, with the suffix",
        ),
        ("run conf.yaml --nodes 2x8", "to simulate these nodes, use --nodes 2x8 --simulate"),
        ("run conf.yaml --inventory nodes.yaml", "to simulate these nodes, use --nodes nodes.yaml --simulate"),
        ("run conf.yaml --argument lr=1", "--argument is for the worker class of --worker; the built-in one"),
        ("run conf.yaml --worker a:B --argument lr", "Invalid value for --argument: 'lr' is not key=value"),
    ],
)
def test_wrong_usage_suggests_the_right_one(line: str, message: str) -> None:
    done = run(*line.split())
    assert done.exit_code == 2 and done.stdout == ""
    assert message.replace("'", "").lower() in done.stderr.replace("'", "").lower()


def test_a_missing_file_that_looks_like_an_override_gets_the_dashes() -> None:
    done = run("check", "cluster.num_nodes=2")
    assert (done.exit_code, done.stdout) == (
        1,
        "error: cluster.num_nodes=2: No such file or directory; write overrides after --\n",
    )


def test_run_rejects_a_costs_file_before_the_job() -> None:
    words = ["run", "conf.yaml", "--nodes", "2x8", "--simulate", "--timings"]
    done = run(*words, "missing/costs.yaml")
    assert (done.exit_code, done.stderr) == (1, "error: missing: No such directory\n")
    done = run(*words, "conf.yaml")
    assert done.exit_code == 1 and "this is the config of a job, not a costs file" in done.stderr


def test_no_command_prints_the_help() -> None:
    assert run().output.startswith("Usage:")
    assert "\\n" not in run().output

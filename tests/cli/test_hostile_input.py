"""Input made to harm: endless or huge files and texts, and characters that a terminal, a log or a spreadsheet obeys."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Diagnostic, Inventory, PlacementError, RankSet
from rankplan.files import LARGEST, read_whole
from rankplan.read.inventories.topology_files import read_slurm
from rankplan.render.rows import csv_rows
from rankplan.trainers.roll.device_mapping import parse_device_mapping
from support.commands import run
from support.outcomes import some

pytestmark = pytest.mark.usefixtures("own_folder")

HARMFUL = "\x1b]0;title\x07 \x1b[31mred\r\n::error::fake\x9b2J"
CONTROL = re.compile(r"[^\n\t -~\xa0-\U0010ffff]")


def config(placements: dict[str, str], num_nodes: int = 2) -> dict[str, object]:
    return {"cluster": {"num_nodes": num_nodes, "component_placement": placements}}


@contextmanager
def endless(pipe: Path) -> Iterator[None]:
    """Write to a named pipe until its reader closes it."""
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"#" * (1 << 20))
            except BrokenPipeError:
                pass

    writer = threading.Thread(target=write)
    writer.start()
    yield
    writer.join()


# ------------------------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    "command", [["check"], ["plan"], ["plan", "--inventory"], ["replan", "--without", "x"], ["diff"]]
)
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
def test_a_device_is_no_file(command: list[str], device: str) -> None:
    Path("c.yaml").write_text("cluster: {num_nodes: 1, component_placement: {a: 0}}")
    names = ["c.yaml"] if command[-1] == "--inventory" else []
    done = run(command[0], *names, *command[1:], device, *(["c.yaml"] if command[0] == "diff" else []))
    assert done.exit_code != 0
    assert f"{device}: not a regular file or a pipe" in done.output


def test_an_endless_pipe_ends_at_the_limit() -> None:
    with endless(Path("pipe")):
        done = run("check", "pipe")
    assert done.exit_code == 1
    assert f"pipe: larger than {LARGEST >> 20} MiB" in done.output


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 10)
    assert read_whole(file, 10) == b"x" * 10
    with pytest.raises(OSError, match="larger than"):
        read_whole(file, 9)


def test_the_processes_of_a_plan_are_limited() -> None:
    half = "0-8388607"
    plan = rankplan.plan(config({"a": half, "b": half}, 1 << 20), "1048576x16")
    assert sum(map(len, plan.values())) == 1 << 24
    with pytest.raises(PlacementError) as caught:
        rankplan.plan(config({"a": half, "b": half, "c": "0", "d": half}, 1 << 20), "1048576x16")
    (fault,) = caught.value.diagnostics
    assert (fault.code, fault.path) == ("too-many-processes", "cluster.component_placement.c")
    content = plan.to_dict()
    content["components"] |= {f"c{index}": content["components"]["a"] for index in range(50)}
    with pytest.raises(PlacementError, match=r"up to `c0` have 25,165,824 processes; a plan has at most 16,777,216"):
        rankplan.Plan.from_dict(content)


def test_a_text_that_is_too_long_is_rejected_and_faults_share_a_long_one() -> None:
    with pytest.raises(PlacementError, match="has 68000000 bytes; the limit is 67108864"):
        RankSet("0-3," * 17_000_000)
    with pytest.raises(PlacementError) as caught:
        rankplan.plan(config({"a": "0-3," * 1000}), "2x8")
    texts = {id(fault.text) for fault in caught.value.diagnostics}
    assert len(caught.value.diagnostics) > 10
    assert len(texts) == 1


def test_a_comprehension_has_a_limit_and_a_range_has_none() -> None:
    with pytest.raises(PlacementError, match=r"this takes more than 262,144 steps"):
        parse_device_mapping("[x*x for x in range(0,16777216)]")
    assert parse_device_mapping("[x*2 for x in range(3)]") == [0, 2, 4]
    assert len(parse_device_mapping("list(range(0,1000000))")) == 1_000_000


@pytest.mark.parametrize("line", ["BlockName=b Nodes=n[0-9999999]", "SwitchName=s[0-999] Nodes=n[0-9999]"])
def test_the_names_of_a_slurm_file_are_limited(line: str) -> None:
    Path("topology.conf").write_text(line)
    with pytest.raises(PlacementError) as caught:
        read_slurm("topology.conf")
    assert caught.value.help == "list at most 1,048,576 names"


# ----------------------------------------------------------------------------------------------------------- escapes


@given(st.text(), st.none() | st.text(), st.none() | st.text())
def test_no_diagnostic_has_a_control_character(message: str, help: str | None, file: str | None) -> None:
    fault = Diagnostic("syntax", message, help, file=file)
    text = str(PlacementError([fault]))
    assert all(line.isprintable() for line in text.split("\n"))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", fault.render())


@pytest.mark.parametrize(
    "words",
    [
        ["check", HARMFUL],
        ["check", "--format", "github", HARMFUL],
        ["check", "--format", "github", f"{HARMFUL}.yaml"],
        ["plan", f"{HARMFUL}.yaml"],
        ["plan", HARMFUL],
        ["plan", "c.yaml", "--nodes", HARMFUL],
        ["plan", "c.yaml", "--inventory", HARMFUL],
        ["plan", "c.yaml", "--without", HARMFUL],
        ["plan", "c.yaml", "--" + HARMFUL],
        ["plan", "c.yaml", "--dialect", HARMFUL],
        ["plan", "c.yaml", "--", HARMFUL],
        ["plan", "c.yaml", "--", f"cluster.num_nodes={HARMFUL}"],
        ["explain", HARMFUL],
        [HARMFUL],
        ["--" + HARMFUL],
        ["diff", "c.yaml", HARMFUL],
        ["convert", "c.yaml", "--to", HARMFUL],
        ["inventory", "--nodes", "2x8", "--topology", HARMFUL],
    ],
)
def test_no_output_has_a_control_character_of_the_input(words: list[str]) -> None:
    text = "cluster: {num_nodes: 1, component_placement: {a: 0}}"
    Path("c.yaml").write_text(text)
    Path(f"{HARMFUL}.yaml".replace("/", "_")).write_text(text)
    done = run(*words)
    for line in some(f"{done.stdout}{done.stderr}".splitlines()):
        assert not CONTROL.search(line), line
        assert not line.startswith("::error::fake")


def test_names_in_a_slurm_file_are_printable() -> None:
    Path("topology.conf").write_text("SwitchName=s Nodes=n\x1b[1-2]\n")
    with pytest.raises(PlacementError, match="unprintable"):
        read_slurm("topology.conf")


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum", "=HYPERLINK(1)"])
def test_a_spreadsheet_takes_no_cell_for_a_formula(name: str) -> None:
    plan = rankplan.plan(config({name: "0-1"}), Inventory.uniform(2, 8))
    rows = list(csv_rows(plan))[1:]
    assert len(rows) == 2
    assert all(row.startswith(f"'{name},") for row in rows)

"""`tests/gpu/run` on stand-in cards: one, eight and 72, a divided one, one that falls off the bus; and real answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from gpu.trainings import FEW, MANY, row_of
from rankplan.hardware.driver import Question, plain
from rankplan.hardware.facts import hardware_facts
from rankplan.hardware.machine import Machine
from rankplan.runtime.nodes.processes import family
from support.cards import stand_in
from support.goldens import lines
from support.libraries import python
from support.machines import pci, tree, write

RUN = Path(__file__).with_name("run")
RECORDED = {path.stem: json.loads(path.read_text()) for path in sorted(RUN.parent.glob("recorded/*.json"))}


def ran(environment: dict[str, str], *arguments: str) -> tuple[int, list[list[str]], str]:
    """Run the command; return its exit code, the rows of its table, and everything that it printed."""
    command = [sys.executable, str(RUN), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    output = done.stdout + done.stderr
    assert "Traceback" not in output, output
    table = done.stdout.split("\n\n")[1].splitlines()[1:]
    rows = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in table]
    return done.returncode, rows, output


def verdicts(rows: list[list[str]]) -> Counter[tuple[str, str]]:
    """Return the number of rows of each part with each verdict."""
    return Counter((row[0], row[2]) for row in rows)


@pytest.mark.parametrize("count", [1, 8, 72])
def test_every_card_is_compared(tmp_path: Path, count: int) -> None:
    code, rows, output = ran(stand_in(tmp_path, count), "--only", "cards", "--out", str(tmp_path / "out"))
    assert code == 0, output
    found = verdicts(rows)
    assert found["nvml", "right"] == count + 2
    assert found["pci", "not there"] == count  # the kernel of this machine has no such devices
    assert found["driver", "right"] == 6 + (count > 1)
    assert found["processes", "right"] == 2
    assert not [row for row in rows if row[2] == "wrong"]
    recorded = json.loads((tmp_path / "out" / "recorded.json").read_text())
    assert len(recorded["nvml"]) == len(recorded["machine"]["cards"]) == count
    assert (tmp_path / "out" / "table.txt").read_text() == output.split("\n\n", 1)[1]


def test_slices_of_a_divided_card_are_at_its_place(tmp_path: Path) -> None:
    code, rows, output = ran(stand_in(tmp_path, 2, FAKE_MIG="1"), "--only", "cards")
    assert code == 0, output
    assert verdicts(rows)["mig", "right"] == 4


def test_a_card_that_falls_off_the_bus_is_named_and_the_others_are_compared(tmp_path: Path) -> None:
    code, rows, output = ran(stand_in(tmp_path, 8, FAKE_LOST="5:0"), "--only", "cards")
    assert code == 1
    assert ["nvml", "card 5", "wrong", "it fell off the bus"] in rows, output
    assert verdicts(rows)["nvml", "right"] == 7


def test_a_card_that_is_lost_in_the_middle_ends_no_check(tmp_path: Path) -> None:
    code, rows, output = ran(stand_in(tmp_path, 2, FAKE_LOST="1:1"), "--only", "cards")
    assert code == 1
    found = verdicts(rows)
    assert found["nvml", "right"] == 2 and found["nvml", "wrong"] == 2, output  # the second look misses it
    assert found["driver", "right"] == 7


def test_a_machine_without_cards_says_so(tmp_path: Path) -> None:
    environment = stand_in(tmp_path, 0)
    code, rows, _ = ran(environment)
    assert code == 1
    assert rows == [["machine", "NVIDIA cards", "not there", "nvidia-smi lists none, so nothing else was tried"]]


@pytest.mark.long
def test_ranks_are_proved_on_real_ray(tmp_path: Path) -> None:
    environment = stand_in(tmp_path, 2, RAY_AUTH_MODE="token")
    # `ray stop` takes it for a process of Ray, as it does those of every other Ray of the machine
    other = subprocess.Popen([sys.executable, "-c", "input()", "log_monitor.py"], stdin=subprocess.PIPE)
    with other:
        code, rows, output = ran(environment, "--only", "ranks")
        assert other.poll() is None
        other.kill()
    assert code == 0, output
    assert not family(f"FAKE_USES={environment['FAKE_USES']}")
    found = verdicts(rows)
    assert found["proof", "right"] == 9 and found["visibility", "right"] == 6 and found["binding", "right"] == 4
    assert found["live", "right"] == 4 and found["mismatch", "right"] == 1


@pytest.mark.parametrize("name", RECORDED)
def test_the_stand_in_answers_masks_like_the_real_driver(tmp_path: Path, name: str) -> None:
    recorded = RECORDED[name]
    environment = stand_in(tmp_path, 1)
    (real,), ours = recorded["machine"]["cards"], "GPU-00000000-abab-abab-abab-abababababab"
    answers = {key: value for key, value in recorded.items() if key.startswith("driver, ")}
    assert len(answers) == 6
    for subject, answer in answers.items():
        mask = {key: value.replace(real["uuid"], ours) for key, value in answer["mask"].items()}
        shown = Question({**environment, **mask}).answer(60)
        expected = [uuid.replace(plain(real["uuid"]), plain(ours)) for uuid in answer["uuids"]]
        assert (list(shown.uuids), shown.problem) == (expected, answer["problem"]), subject


@pytest.mark.parametrize("name", RECORDED)
def test_the_facts_of_a_real_machine_are_read_from_its_files(tmp_path: Path, name: str) -> None:
    """A virtual machine whose kernel tells no NUMA node, and shows only the first part of the memory in its node."""
    recorded = RECORDED[name]
    sysfs = tree(tmp_path, {0: "0-15"}, cache=16, memory={0: 4571})
    write(tmp_path, {"proc/meminfo": "MemTotal:       131981020 kB\nMemFree:         1000 kB\n"})
    (card,) = recorded["machine"]["cards"]
    assert pci(tmp_path, "/".join(recorded["pci 0"]["path"]), numa=-1) == card["pci"]
    machine = Machine.read(sysfs)
    assert machine.memory == {0: 131981020 >> 10}
    facts: dict[str, Any] = hardware_facts("NV_GPU", ["0"], sysfs)
    probe = recorded["probe"]
    expected = {key: probe[key] for key in ("sockets", "cores", "caches")} | {"numa": {0: probe["numa"]["0"]}}
    assert {key: facts[key] for key in expected} == expected


def test_the_records_of_nvml_are_those_of_the_probe() -> None:
    for name, recorded in RECORDED.items():
        (gpu,), (card,) = recorded["nvml"], recorded["machine"]["cards"]
        (device,) = recorded["probe"]["accelerators"]
        keys = ("uuid", "pci", "model", "memory")
        assert [gpu[key] for key in keys] == [card[key] for key in keys] == [device[key] for key in keys], name


def test_trainings_are_rows_of_the_goldens() -> None:
    """So that what `tests/gpu/run --many --out` records can be added to them."""
    golden = [{key: row[key] for key in row_of(FEW[0])} for row in lines("fsdp_peaks")]
    assert all(row_of(case) in golden for case in FEW)
    assert sum(row_of(case) in golden for case in MANY) == 31  # the card was too small for one
    assert all(row in [row_of(case) for case in (*FEW, *MANY)] for row in golden)


def test_the_stand_in_is_one_machine_for_all_who_ask(tmp_path: Path) -> None:
    """NVML, the driver and `nvidia-smi` list the same cards, as the real ones do."""
    environment = stand_in(tmp_path, 3)
    ask = "from rankplan.hardware import nvml; print(*[gpu.uuid for gpu in nvml.read(['0', '1', '2'])])"
    uuids = python(ask, tmp_path, FAKE_CARDS="3").split()
    listed = subprocess.run(["nvidia-smi", "-L"], env=environment, capture_output=True, text=True, check=True).stdout
    assert [line.split("UUID: ")[1].rstrip(")") for line in listed.splitlines()] == uuids
    assert list(Question(environment).answer(60).uuids) == [plain(uuid) for uuid in uuids]

"""The options `--grow` and `--shrink` of `rankplan replan`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from rankplan import Plan
from support.commands import run
from support.growth import NODES, TWO, engines, hosts


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    NODES.save(tmp_path / "nodes.json")
    engines(TWO, {"segment": 2}).save(tmp_path / "plan.json")
    return tmp_path


def replanned(folder: Path, *flags: str) -> Result:
    return run("replan", str(folder / "plan.json"), "--inventory", str(folder / "nodes.json"), *flags)


def test_flags(saved: Path) -> None:
    done = replanned(saved, "--grow", "rollout=1", "--save", str(saved / "more.json"))
    assert done.stdout == (
        "0 of 16 ranks move; 16 stay; 8 more data groups cross nvlink domains\n"
        "rollout grows from 2 data groups to 3: ranks 16-23 on n11, n12\n"
    )
    assert hosts(Plan.load(saved / "more.json")) == [*TWO, 11, 12]
    done = replanned(saved, "--shrink", "rollout=1")
    assert done.stdout.splitlines()[1] == "rollout shrinks from 2 data groups to 1: 8 of 16 ranks"


@pytest.mark.parametrize("count", ["0", "-1", "2.5", "true", "many"])
def test_numbers_that_are_none(saved: Path, count: str) -> None:
    for flag in ("--grow", "--shrink"):
        done = replanned(saved, flag, f"rollout={count}")
        shown = f"'{count}'" if count == "many" else count
        assert done.exit_code == 1
        assert f"error[invalid-value]: `rollout` is {shown}; it must be a whole number of 1 or more" in done.stderr


def test_wrong_usage(saved: Path) -> None:
    assert "'rollout' is not COMPONENT=N; write rollout=2" in replanned(saved, "--grow", "rollout").stderr
    assert "'=2' names no component; write rollout=2" in replanned(saved, "--grow", "=2").stderr
    for flag, text in (("--grow", "rollout="), ("--shrink", "rollout="), ("--shrink", "rollout=null")):
        assert f"{text!r} has no number; write rollout=1" in replanned(saved, flag, text).stderr
    assert "rollout has two numbers; state one" in replanned(saved, "--grow", "rollout=1", "--grow", "rollout=2").stderr

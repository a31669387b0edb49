"""``rankplan explain`` has every rule of the core, and every example does what its rule says."""

from __future__ import annotations

import re

import pytest
import rankplan
from rankplan.cli.explain import rules
from support.commands import run
from support.paths import ROOT

WARNINGS = {
    "idle-nodes",
    "idle-accelerators",
    "memory-likely",
    "memory-unknown",
    "memory-shared",
    "not-run",
    "not-read",
    "rules-not-read",
    "job-changed",
    "newer-version",
    "engine-address",
    "assumed-nodes",
}
WARNINGS_OF_THE_CORE = {"group-spans", "rail-mismatch", "times-grow", "colocated-times", "parts-exceed-step"}


def test_the_rules_are_the_codes_of_the_core_and_the_warnings() -> None:
    assert list(rules()) == [*rankplan.error_codes(), *(code for code in rules() if code in WARNINGS)]
    core = (ROOT / "crates" / "rankplan-core" / "src" / "diagnostic.rs").read_text()
    described = dict(re.findall(r'= "([a-z-]+)", "(.*)";', core))
    assert described == {code: rule.when for code, rule in rules().items() if code not in WARNINGS}


@pytest.mark.parametrize("code", rules())
def test_the_wrong_example_is_reported_with_its_code_and_the_right_one_plans(code: str) -> None:
    if rules()[code].wrong.is_session:
        kind = "warning" if code in WARNINGS else "error"
        assert f"{kind}[{code}]: " in rules()[code].wrong.text and "error" not in rules()[code].right.text
        return
    wrong, right = rules()[code].wrong.found(), rules()[code].right.found()
    assert wrong[0].code == code and wrong[0].warning == (code in WARNINGS | WARNINGS_OF_THE_CORE)
    assert all(found.warning for found in right) and code not in {found.code for found in right}


def test_explain_shows_the_reason_the_diagnostic_and_the_fix() -> None:
    shown = run("explain", "reversed-range")
    assert shown.exit_code == 0
    assert shown.output.startswith("reversed-range: a range ends before it starts\n\nBoth ends of a range are included")
    assert "error[reversed-range]: range 7-0 ends before it starts\n --> conf.yaml:5:12" in shown.output
    assert shown.output.endswith("    component_placement:\n        actor: 0-7\n")


def test_all_codes_are_listed() -> None:
    listed = run("explain").output.splitlines()
    assert [line.split()[0] for line in listed] == list(rules())


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("proces-gap", "did you mean `process-gap`?"),
        ("zzz", "some of the codes are: syntax, reversed-range,"),
        ("zzz", " more (`rankplan explain` lists all)"),
    ],
)
def test_an_unknown_code_is_wrong_usage(code: str, message: str) -> None:
    done = run("explain", code)
    assert done.exit_code == 2 and message in done.output

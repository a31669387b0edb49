"""The commands of a plan: fields that nothing can fill in are faults of its file."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rankplan
from rankplan import PlacementError, Plan
from rankplan.plans.node_command import GroupField, NodeCommand, PortField, SizeField, field_of
from rankplan.plans.plan_job import PlanJob

COMMAND = NodeCommand(("a",), ("x", "{{}}", "{port}", NodeCommand.for_processes("a", 2)), variables={"K": "{address}"})


def content(**changes: Any) -> dict[str, Any]:
    """Return the file of a plan whose command is another one."""
    config = {"cluster": {"num_nodes": 1, "component_placement": {"a": "0-1", "b": "0-1"}}}
    plan = rankplan.plan(config, "1x2").with_job(PlanJob(commands=(COMMAND,)))
    file: dict[str, Any] = json.loads(json.dumps(plan.to_dict()))
    file["job"]["commands"][0] |= changes
    return file


def test_a_command_comes_back() -> None:
    job = Plan.from_dict(content()).job
    assert job is not None and job.commands == (COMMAND,)


FIELD = "the field '{}' of a command "


@pytest.mark.parametrize(
    ("changes", "where", "said"),
    [
        ({"words": ["x", "{bogus}"]}, "words[1]", FIELD.format("{bogus}") + "is unknown"),
        ({"words": ["{port from 1234567890}"]}, "words[0]", "is unknown"),
        ({"words": ["{port from \u0663}"]}, "words[0]", "is unknown"),
        ({"words": ["{for 12345678901 processes of a}"]}, "words[0]", "is unknown"),
        ({"variables": {"K": "{for 2 processes of a}"}}, "variables.K", "must be a word of its own"),
        ({"words": ["-n={for 2 processes of a}"]}, "words[0]", "must be a word of its own"),
        ({"words": ["{endpoints of a from 1}{for 2 processes of a}"]}, "words[0]", "must be a word of its own"),
        ({"variables": {"K": "{endpoints of a from 1}"}}, "variables.K", "must be in a word, which is repeated"),
        (
            {"words": ["{endpoints of a from 1},{endpoints of b from 1}"]},
            "words[0]",
            "must be the only one of its kind",
        ),
        ({"words": ["{of ranks x|y}"]}, "words[0]", "needs a command that is `per_process`"),
        ({"words": ["{head in groups of 2}"]}, "words[0]", "needs a command that is `per_process`"),
        ({"per_process": True, "components": ["a", "b"]}, "components", "a command that is `per_process` starts one"),
        (
            {"per_process": True, "words": ["{of ranks x|y}", "{of ranks x}"]},
            "words",
            "a command cannot be for 2 processes of a, and for 1",
        ),
        ({"components": []}, "components", "`components` of a command is empty"),
        ({"words": []}, "words", "`words` of a command is empty"),
    ],
)
def test_a_field_that_nothing_can_fill_in_is_a_fault(changes: dict[str, Any], where: str, said: str) -> None:
    with pytest.raises(PlacementError) as error:
        Plan.from_dict(content(**changes))
    (fault,) = error.value.diagnostics
    assert (fault.code, fault.path) == ("invalid-plan", f"job.commands[0].{where}")
    assert said in fault.message and fault.help


def test_all_faults_of_a_file_are_reported_together() -> None:
    file = content(words=["{bogus}"])
    file["components"]["a"]["rule"] = "0-7"
    file["job"]["emit"] = {"base": 3}
    with pytest.raises(PlacementError) as error:
        Plan.from_dict(file)
    paths = ["job.commands[0].words[0]", "job.emit.base", "components.a.rule"]
    assert [fault.path for fault in error.value.diagnostics] == paths


def test_numbers_of_fields_have_nine_digits() -> None:
    assert field_of("port from 999999999") == PortField(999_999_999)
    assert field_of("head in groups of 100000000") == GroupField(100_000_000, head=True)
    assert field_of("for 123456789 processes of a b") == SizeField("a b", 123_456_789)
    for name in ("port from 1000000000", "rank in groups of 1000000000", "endpoints of a from 1000000000"):
        assert field_of(name) is None

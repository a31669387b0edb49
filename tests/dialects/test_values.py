"""A dialect is one value: its references are what they should be, and nothing of it is imported before it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest
from rankplan.dialects import ASKED, DIALECTS, OWN, Dialect
from rankplan.dialects.interface.job import Job
from rankplan.dialects.keys.config import Config
from rankplan.dialects.keys.roles import Role
from rankplan.errors import Faults
from rankplan.guests.built_in import FORKS
from rankplan.read.text.reader import Reader
from rankplan.references import resolved
from support.outcomes import some


@pytest.mark.parametrize("name", DIALECTS.builtin)
def test_the_references_of_a_dialect_name_what_they_should(name: str) -> None:
    dialect = DIALECTS[name]
    assert isinstance(dialect, Dialect) and dialect.name == name
    if dialect.planner is None:
        job = resolved(dialect.job)
        made = job if isinstance(job, type) else type(job(Config(Reader({}), Faults())))
        assert issubclass(made, Job) and not made.__abstractmethods__
    else:
        planner = resolved(dialect.planner)
        assert all(callable(getattr(planner, word)) for word in ("read", "planned", "node_order", "assumed_inventory"))
    assert all(callable(resolved(writer)) for writer in dialect.writers.values())
    assert all(isinstance(role, Role) for role in dialect.keys.roles)


def test_every_dialect_is_asked_but_the_own_one() -> None:
    forks = [fork for names in FORKS.values() for fork in names]
    assert sorted([*ASKED, *forks, OWN]) == sorted(DIALECTS.builtin)
    for parent, names in some(FORKS.items()):
        assert all(DIALECTS[fork].parent is DIALECTS[parent] and not DIALECTS[fork].keys.alone for fork in names)


CONFIGS = {
    "skyrl": '{"trainer": {"placement": {"policy_num_gpus_per_node": 8}}}',
    "openrlhf": '{"actor": {"num_nodes": 1}, "vllm": {"num_engines": 0}}',
}


@pytest.mark.parametrize("name", CONFIGS)
def test_only_the_jobs_of_the_dialect_that_is_used_are_imported(name: str) -> None:
    program = f"""
import json, sys, rankplan
rankplan.check(json.loads(sys.argv[1]), "2x8")
jobs = [module for module in sys.modules if module.startswith("rankplan.") and module.endswith((".job", ".memory"))]
others = [module for module in jobs if ".trainers." in module and ".{name}." not in module]
assert "rankplan.trainers.{name}.job" in jobs and not others, jobs
assert "importlib.metadata" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program, CONFIGS[name]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

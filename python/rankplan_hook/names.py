"""The names by which a run of ``rankplan pin`` is known: variables, keys of jobs, and keys of the head's store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VARIABLE = "RANKPLAN_PINS"
"""The variable with the id of the run."""

NAMESPACE = b"rankplan"
"""The namespace of its keys in the head's store: ``ID/plan``, ``ID/claim/...`` and ``ID/fault/...``."""

METADATA = "rankplan_pins"
"""The key of a job's metadata with the id of the run."""

SETUP = "rankplan_hook.install.run_"
"""The hook of worker processes, before the id of the run: a variable of theirs could be that of another program."""


def job_environment(given: Mapping[str, Any], run: str) -> dict[str, Any]:
    """Return the ``runtime_env`` of a job of a run. Raises ``ValueError`` for one with a setup hook of its own."""
    own = given.get("worker_process_setup_hook")
    if own is not None and not str(own).startswith(SETUP):
        raise ValueError(f"the job has a worker_process_setup_hook of its own, {own!r:.60}; Ray runs only one")
    return {**given, "worker_process_setup_hook": SETUP + run}

"""The names that both sides of ``rankplan pin`` share: of a run, of what is wrapped in Ray, of the hook's folder.

Imported in every Python of the command that imports Ray, so it imports nothing.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
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

WRAPPED = {
    "ray.util.placement_group": ("placement_group", "remove_placement_group"),
    "ray.actor": ("ActorClass._remote",),
    "ray.dashboard.modules.job.sdk": ("JobSubmissionClient.submit_job",),
}
"""What is wrapped in which module of Ray, by `rankplan_hook.wrap`."""


def site() -> str:
    """Return the folder that has to be on ``PYTHONPATH``."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")  # noqa: PTH100, PTH118, PTH120


def job_environment(given: Mapping[str, Any], run: str) -> dict[str, Any]:
    """Return the ``runtime_env`` of a job of a run. Raises ``ValueError`` for one with a setup hook of its own."""
    own = given.get("worker_process_setup_hook")
    if own is not None and not str(own).startswith(SETUP):
        raise ValueError(f"the job has a worker_process_setup_hook of its own, {own!r:.60}; Ray runs only one")
    return {**given, "worker_process_setup_hook": SETUP + run}

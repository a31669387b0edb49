"""The keys by which AReaL places (4aef98d: `api/cli_args.py`), and those of older versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.sdk import Key, KeyTable, anything, number, size, text

ENGINES = ("rollout", "gen", "actor", "critic", "ref", "teacher")
"""The sections of engines."""

ENGINE_SECTIONS = (*ENGINES, "teacher.rollout", "teacher.train")
"""Where the keys of an engine are; in newer versions a teacher has a section of its kind (``TeacherConfig``)."""

MODE = text("allocation_mode", "the backends of all engines, in older versions", tells="alone")
NODES = size("cluster.n_nodes", "the nodes of the job", default=1)
GPUS_PER_NODE = size("cluster.n_gpus_per_node", "GPUs of each node", default=8, least=0, tells="alone")

BACKEND = text("@.backend", "the backend of an engine, its sizes and its GPUs", at=ENGINE_SECTIONS)
SCHEDULING = anything(
    "@.scheduling_spec", "whether the processes of an engine have GPUs, and their groups", at=ENGINE_SECTIONS
)
_SHARES = "the engine whose GPUs it shares"
STRATEGY = anything("@.scheduling_strategy.type", _SHARES, at=ENGINE_SECTIONS)
TARGET = anything("@.scheduling_strategy.target", _SHARES, at=ENGINE_SECTIONS, sections=ENGINES)

KL_COEFFICIENT = number("actor.kl_ctl", "whether there is a reference model, if above 0", default=0.1)
TEACHER_KIND = text(
    "teacher.engine_type", "`rollout` or `train`: the section of the teacher that counts", default="rollout"
)
ROLLOUT_VERSION = text("rollout._version", "whether `*_rollout.py` starts the rollout alone")
SCHEDULER = anything("scheduler.type", "whether engines need whole nodes, and ask Ray for CPUs")
FIRST_AREAL = anything("actor_train", "a section of the first AReaL, which is not read")


def _has_backend(config: Mapping[Any, Any]) -> bool:
    """Return whether an engine has a backend with sizes."""
    engines = [config.get(name) for name in ENGINES]
    return any(isinstance(engine, Mapping) and ":" in str(engine.get("backend")) for engine in engines)


KEYS = KeyTable(Key.among(globals()), "rankplan.trainers.areal.memory:ROLES", never="", tells=_has_backend)

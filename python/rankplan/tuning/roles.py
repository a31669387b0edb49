"""The roles of RL trainers, by the names of components, in the order of an iteration."""

from __future__ import annotations

STAGES = (
    ("env",),
    ("rollout", "generation", "actor_infer"),
    ("inference", "reference", "ref", "reward", "reward_model", "teacher"),
    ("actor", "actor_train", "policy", "critic", "value"),
)
"""The roles in the order of an iteration: each needs the results of the stage before it."""

ROLLOUT, TRAINER = 1, 3
"""The stages of the components that generate and that train."""


def stage_of(name: str) -> int | None:
    """Return the stage of a role, also of one of its parts such as ``rollout_planner``; ``None`` if it is unknown."""
    for stage, roles in enumerate(STAGES):
        if name in roles:
            return stage
    for stage, roles in enumerate(STAGES):
        if name.startswith(tuple(f"{role}_" for role in roles)):
            return stage
    return None

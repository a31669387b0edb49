"""miles as a dialect: like slime, with engines that only evaluate (31f1ca9).

Follows ``_get_placement_group_layout`` (``miles/ray/placement_group.py``).
"""

from __future__ import annotations

from rankplan import Diagnostic
from rankplan.sdk import Config, Dialect, Job, Key, Program, size

EVALUATION_GPUS = size(
    "eval_num_gpus", "the GPUs of engines that only evaluate, which are not planned", default=0, least=0, tells="tells"
)
EVALUATION_ENGINE = size("eval_num_gpus_per_engine", "the size of such an engine", default=1)


def job_of(config: Config) -> Job:
    """Return the job of a config; engines that only evaluate are a warning."""
    gpus = config[EVALUATION_GPUS]
    if gpus:
        config.faults.warn(config.where(EVALUATION_GPUS), _evaluation_not_planned(gpus))
    return DIALECT.parent_job(config)


def _evaluation_not_planned(gpus: int) -> Diagnostic:
    message = f"`eval_num_gpus` is {gpus}: miles adds these GPUs to its placement group, and they are not planned"
    return Diagnostic("not-read", message, "leave room for them behind the rollout", warning=True)


DIALECT = Dialect.like(
    "slime",
    name="miles",
    system="miles",
    keys=Key.among(globals()),
    job="rankplan.trainers.forks.miles:job_of",
    programs=(Program(r"(.*\.)?train\w*", imports=(r"^\s*from miles\.",)),),
)

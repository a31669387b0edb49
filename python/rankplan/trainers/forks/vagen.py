"""VAGEN as a dialect: like verl, with estimators of its own that need a critic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.sdk import Dialect, Key, fact

_OWN = ("masked_gae", "bi_level_gae", "turn_wise_gae")

CRITIC_ESTIMATORS = fact("critic_estimators", "the estimators that need a critic", default=(None, "gae", *_OWN))


def _has_its_estimator(config: Mapping[Any, Any]) -> bool:
    algorithm = config.get("algorithm")
    return isinstance(algorithm, Mapping) and algorithm.get("adv_estimator") in _OWN


DIALECT = Dialect.like("verl", name="vagen", system="VAGEN", keys=Key.among(globals()), tells=_has_its_estimator)

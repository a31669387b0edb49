"""The placement mode of a plan."""

from __future__ import annotations

from enum import Enum, auto


class PlacementMode(Enum):
    """How the roles of a job share accelerators: the modes of RLinf (``rlinf/utils/placement.py``, 0.3.0).

    ``COLLOCATED``: actor and rollout have the same ones. ``DISAGGREGATED``: actor, rollout and inference have their
    own. ``AUTO``: disaggregated at first, then a scheduler moves accelerators between the roles. ``HYBRID``: any.
    """

    COLLOCATED = auto()
    DISAGGREGATED = auto()
    HYBRID = auto()
    AUTO = auto()

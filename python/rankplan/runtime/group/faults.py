"""What a group says about its ranks, each text from its facts."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan._core import Placement, RankSet
from rankplan.runtime.ray.answers import ranks_text
from rankplan.words import nodes_text


def may_run(component: str, rows: Sequence[Placement], lost: str | None, orphaned: float) -> str:
    """Return that ranks may still run after they were to be killed. ``lost`` is what has happened to Ray, if known.

    Without a head, they end ``orphaned`` seconds after their driver.
    """
    who = ranks_text(row.rank for row in rows)
    where = nodes_text(RankSet(row.cluster_node_rank for row in rows))
    text = f"{component}: {who} on {where} may still run"
    if lost is None:
        return f"{text}: Ray has not confirmed their end; check these nodes"
    return f"{text}: {lost}, so that nothing can end them; they end themselves {orphaned:g} s after this program"

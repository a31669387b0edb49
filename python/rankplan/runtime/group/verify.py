"""Verification: the reports of ranks are compared with the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rankplan._core import RankSet
from rankplan.errors import LaunchError
from rankplan.runtime.group.crew import LiveRank
from rankplan.runtime.rank.differences import differences, shared_devices
from rankplan.runtime.rank.report import RankReport


def verified(component: str, ranks: Sequence[LiveRank], reports: Sequence[RankReport]) -> list[RankReport]:
    """Return the reports of these ranks, with the node ranks of their plan.

    Raises ``LaunchError`` with the differences, the first ten in full.
    """
    lines, first = [], None
    for rank, report in zip(ranks, reports, strict=True):
        row = rank.placement
        found = list(differences(rank.spec, report, rank.pid))
        if found and first is None:
            first = row
        lines += [f"rank {row.rank} (node {row.cluster_node_rank}, pid {report.pid}): {line}" for line in found]
    rows = [rank.placement for rank in ranks]
    for one, other, uuid in shared_devices(rows, [report.uuids for report in reports]):
        first = first or rows[one]
        lines.append(f"ranks {rows[other].rank} and {rows[one].rank} both see {uuid}, but share no device in the plan")
    if first is not None:
        more = f"\n  and {len(lines) - 10} more" if len(lines) > 10 else ""
        raise LaunchError(
            f"{component} differs from its plan:\n  " + "\n  ".join(lines[:10]) + more,
            component,
            first.rank,
            first.cluster_node_rank,
        )
    return [replace(report, node_rank=row.cluster_node_rank) for report, row in zip(reports, rows, strict=True)]


def unbound_text(reports: Sequence[RankReport]) -> str:
    """Return which ranks are not bound as planned, and how the first one is; empty if all are."""
    loose = [report for report in reports if not report.is_bound]
    if not loose:
        return ""
    first = loose[0]
    parts = []
    if first.planned_cpus not in (None, first.cpus):
        parts.append(f"CPUs {first.cpus}, planned {first.planned_cpus}")
    if first.planned_memory not in (None, first.memory):
        parts.append(f"memory {first.memory or 'none'}, planned {first.planned_memory}")
    ranks = RankSet(report.rank for report in loose)
    return f"ranks {ranks} are not bound as planned; rank {first.rank} has {' and '.join(parts)}"

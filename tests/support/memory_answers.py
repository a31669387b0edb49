"""What rankplan answers about published runs and reports, and how often it is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import rankplan
from rankplan.memory.need import ANSWERS

from support.row_configs import asked

Row = dict[str, Any]
SYSTEMS = {
    "Megatron": "Megatron",
    "NeMo": "NeMo-RL",
    "verl": "verl",
    "vllm": "vLLM",
    "OpenRLHF": "OpenRLHF",
}
"""The systems of the page, by a part of a row's system or source; the first one counts."""


class Case(NamedTuple):
    """An answer, and the verdict of the run."""

    system: str
    answer: str
    verdict: str

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer."""
        return self.answer not in ("unknown", "none")

    @property
    def is_right(self) -> bool:
        """Whether the answer is that of the run."""
        return self.answer.endswith("fits") == (self.verdict == "fits")


def answer_of(config: Any, nodes: Any) -> str:
    """Return the worst answer of all phases, ``none`` without any."""
    needs = rankplan.check(config, nodes, memory=True).needs
    answers = [] if needs is None else [need.answer for need in needs.phases().values()]
    return max(answers, key=ANSWERS.index, default="none")


def reported_answer(report: Row, folder: Path) -> str:
    """Return the answer about a report; ``folder`` is for its files."""
    if report["row"]:
        return answer_of(*asked(report["row"]))
    nodes, each = map(int, report["on"].split("x"))
    kind = {"ranks": f"0-{nodes - 1}" if nodes > 1 else 0, "accelerators": each}
    (folder / "nodes.yaml").write_text(json.dumps({"nodes": [kind | {"accelerator_model": report["accelerator"]}]}))
    config = report.get("config")
    if config is None:
        config = folder / "job.sh"
        config.write_text(report["script"])
    return answer_of(config, folder / "nodes.yaml")


def verdict_of(row: Row) -> str | None:
    """Return ``fits`` or ``misfit``, ``None`` for a row without a verdict, or whose model or engine is unknown."""
    is_report = "observed" in row
    verdict = row["observed" if is_report else "answer"].get("verdict")
    is_known = is_report or ("model" in row and (row.get("engine") or {}).get("name") != "megatron")
    return str(verdict) if is_known and verdict in ("fits", "misfit") else None


def system_of(row: Row) -> str:
    """Return the system of a row or a report, as the page names it."""
    for text in (str(row.get("system") or ""), str(row["source"])):
        for part, system in SYSTEMS.items():
            if part.lower() in text.lower():
                return system
        if text:
            break
    return "others"


def case_of_row(row: Row) -> Case:
    """Return the case of a published run."""
    return Case(system_of(row), answer_of(*asked(row)), str(verdict_of(row)))


def case_of_report(report: Row, folder: Path) -> Case:
    """Return the case of a report."""
    return Case(system_of(report), reported_answer(report, folder), str(verdict_of(report)))

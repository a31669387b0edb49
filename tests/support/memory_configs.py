"""Configs of each dialect whose keys tell the memory of their components, and what they mean (``memory_settings``)."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import rankplan
import yaml
from rankplan.plans.plan import Plan

MODEL = "Qwen/Qwen3-8B"
CASES = yaml.safe_load((Path(__file__).parent / "memory_settings.yaml").read_text())
BASES: dict[str, dict[str, Any]] = {base: cases["config"] for base, cases in CASES.items()}


def changed(base: str, keys: dict[str, Any]) -> dict[str, Any]:
    """Return a base with further keys."""
    config = deepcopy(BASES[base])
    for path, value in keys.items():
        *sections, last = path.split(".")
        here = config
        for section in sections:
            here = here.setdefault(section, {})
        here[last] = value
    return config


def planned(base: str, keys: dict[str, Any]) -> Plan:
    """Return the plan of a base with further keys."""
    return rankplan.plan(changed(base, keys), "1x8")

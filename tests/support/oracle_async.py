"""The seconds of an asynchronous step, formula by formula, in plain Python."""

from __future__ import annotations

import math


def phi(rule: str, staleness: float, samples: int) -> float:
    """Return the share of the pipeline fill that the trainer waits for."""
    if rule == "stream" or staleness == 0:
        return 1
    if rule in ("batch", "continuous"):
        return 0
    if rule == "whole":
        return 1 / (1 + staleness)
    return min(1, math.log((1 + staleness) / staleness) / math.log(samples))


def scaled(seconds: float, measured: int, size: int, kappa: float, leave: float) -> float:
    """Return seconds on another number of accelerators."""
    return leave * seconds * (measured / size) ** kappa


def step(
    u: float,
    g: float,
    rule: str,
    staleness: float,
    *,
    samples: int = 8192,
    batches: int = 1,
    mean_of_max: float = 0.35,
    tail: float = 0.8,
    overhead: float = 0.0,
    sync: float = 0.0,
) -> float:
    """Return the seconds of a step on separate accelerators, or in turns on the same."""
    w = g * (1 - tail * (1 - mean_of_max)) if rule in ("partial", "turns") else g
    if rule == "turns":
        return w + u + sync
    free = max(u, w) * (1 + overhead)
    fill = max(g + u / batches, u + g / batches)
    return free + max(0, fill - free) * phi(rule, staleness, samples) + sync


def lend(u: float, g: float, trainer: int, rollout: int, switch: float, sync: float = 0.0) -> float:
    """Return the seconds of a step whose trainer lends its accelerators, unless that is slower than to wait."""
    shared = (g * rollout + trainer * (u + switch)) / (rollout + trainer)
    return min(max(u, g), max(u + switch, shared)) + sync


def between(a: float, b: float, phi_a: float, phi_b: float, phi_now: float) -> float:
    """Return the seconds between two runs of one split."""
    return a + (b - a) * (phi_now - phi_a) / (phi_b - phi_a)

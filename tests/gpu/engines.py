"""Which inference engines are installed: the command does not measure what they keep yet."""

from __future__ import annotations

from importlib.util import find_spec

from gpu.report import Report

ENGINES = ("vllm", "sglang", "tensorrt_llm")


def check_engines(report: Report) -> None:
    """Say which engines this Python has."""
    for name in ENGINES:
        if find_spec(name) is None:
            report.not_there("engine", name, "not installed in this Python")
        else:
            report.not_tried("engine", name, "installed; compare its log with `rankplan check --memory`")

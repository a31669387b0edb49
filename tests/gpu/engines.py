"""What an inference engine keeps, if one is installed."""

from __future__ import annotations

from importlib.util import find_spec

from gpu.report import Report

ENGINES = ("vllm", "sglang", "tensorrt_llm")


def check_engines(report: Report) -> None:
    """Say which engines this Python has; one that is there is measured by hand."""
    for name in ENGINES:
        if find_spec(name) is None:
            report.not_there("engine", name, "not installed in this Python")
        else:
            report.not_there("engine", name, "installed; its memory is not measured by this command yet")

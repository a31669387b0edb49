"""Whether the agentic pipeline of a fork starts a reference model whatever its config says: its file is searched.

``AgenticPipeline.__init__`` made the cluster always before ``enable_reference`` existed.
"""

from __future__ import annotations

from pathlib import Path

_MOST_ABOVE = 10
"""Folders above a config that are looked into."""
_LARGEST = 1 << 20
_PIPELINE = "roll/pipeline/agentic/agentic_pipeline.py"


def always_starts_reference(config_file: str) -> bool:
    """Return whether the agentic pipeline of the repository of a config has no condition for the reference model."""
    if not config_file:
        return False
    folders = list(Path(config_file).absolute().parents)[:_MOST_ABOVE]
    pipeline = next((folder / _PIPELINE for folder in folders if (folder / _PIPELINE).is_file()), None)
    if pipeline is None:
        return False
    try:
        text = Path(pipeline).read_bytes()[:_LARGEST].decode("utf-8", "replace")
    except OSError:
        return False
    return "self.reference" in text and "enable_reference" not in text

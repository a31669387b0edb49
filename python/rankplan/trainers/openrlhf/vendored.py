"""Whether the program of a fork starts a reference model whatever its flags say: its file is searched, never run.

OpenRLHF up to 0.5 makes its group always; later, ``ref_model`` is ``None`` without a coefficient (``train`` in
``openrlhf/cli/train_ppo_ray.py``).
"""

from __future__ import annotations

import re
from pathlib import Path

_LARGEST = 1 << 20
_MADE = re.compile(r"^\s*ref_model\s*=\s*\w+\(", re.MULTILINE)
_NONE = re.compile(r"^\s*ref_model\s*=\s*None\b|\bif\b.*\b(?:init_kl_coef|kl_coef|use_ref_model)\b", re.MULTILINE)


def always_starts_reference(file: str) -> bool:
    """Return whether a program makes the group of the reference model without a condition; empty: it is not here."""
    if not file:
        return False
    try:
        text = Path(file).read_bytes()[:_LARGEST].decode("utf-8", "replace")
    except OSError:
        return False
    return _MADE.search(text) is not None and _NONE.search(text) is None

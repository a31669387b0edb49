"""The mark of a file that rankplan has written for a launcher."""

from __future__ import annotations

import os
import re
from itertools import pairwise

from rankplan.files import beginning

_SCRIPT, _OBJECT = b"# rankplan: sha256:", b"rankplan.io/plan: "
_HEAD = re.compile(rb"(?:[^\n]*\n(?:(?!#!|set -euo pipefail\r?\n)[^\n]*\n)*?)?" + _SCRIPT)
"""The head of a script down to the digest of its plan; a script that another one writes has a first line of its own."""
_TOP = re.compile(rb"^(?:metadata:|[ \t]+" + re.escape(_OBJECT) + rb"['\"]?sha256:|[^\s#])", re.MULTILINE)
"""The fields of an object of Kubernetes, and the digest of its plan: a field of ``metadata``, if it is not quoted."""
_SEARCHED = 16 << 20


def is_emitted(file: str | os.PathLike[str]) -> bool:
    """Whether rankplan has written a file for a launcher. A pipe counts once it was read. Raises ``OSError``."""
    return has_mark(beginning(file, _SEARCHED))


def has_mark(content: bytes) -> bool:
    """Whether the content of a file is what rankplan has written for a launcher."""
    if _SCRIPT in content and _HEAD.match(content) is not None:
        return True
    if _OBJECT not in content or content.startswith(b"#!"):
        return False
    return any(above == b"metadata:" and _OBJECT in line for above, line in pairwise(_TOP.findall(content)))

"""How long the tests may take."""

from __future__ import annotations

import os

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
"""Try everything, not a part of it."""

"""The folders of the repository that tests read."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
GOLDEN = TESTS / "golden"
HELP = TESTS / "help"
TOPOLOGY = TESTS / "topology"

"""``docs/differences.md`` is complete: its table has every deliberate difference, and each has an example."""

from __future__ import annotations

import re

from support.goldens import DIFFERENCES, VERDICTS, lines
from support.paths import DOCS

PAGE = (DOCS / "differences.md").read_text()


def test_every_difference_has_an_example() -> None:
    """``test_documents.py`` runs the programs of the page; each line of output starts with the number of its row."""
    printed = re.findall(r"^(\d+) (.*)", "".join(re.findall(r"```output\n(.*?)```", PAGE, re.DOTALL)), re.MULTILINE)
    assert sorted(int(number) for number, _ in printed) == list(range(1, len(DIFFERENCES) + 1))
    for number, text in printed:
        if code := re.fullmatch(r"`([a-z-]+)`", DIFFERENCES[int(number) - 1]["rankplan"]):
            assert text.startswith(f"{code[1]}: "), f"row {number} is rejected with another code"


def test_every_other_verdict_is_of_a_recorded_line() -> None:
    files = (
        "nemo_rl_clusters",
        "openrlhf_sizes",
        "skyrl_sizes",
        "verl_pools",
        "areal_alloc",
        "prime_rl",
        "ms_swift_pools",
    )
    recorded = {line["id"] for name in files for line in lines(name)}
    assert {verdict.partition(" ")[0] for verdict in VERDICTS} <= recorded

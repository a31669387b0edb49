"""The pages are complete: the API page has every public name, the architecture page every module in order."""

from __future__ import annotations

import re
from pathlib import Path

import rankplan
from rankplan import runtime, testing
from test_rooms import ROOMS

DOCS = Path(__file__).resolve().parent.parent / "docs"


def documented() -> set[str]:
    """Return the full names that the API page documents."""
    module, names = "", set()
    for directive, name in re.findall(r"^\.\. (\w+):: ([\w.]+)", (DOCS / "api.md").read_text(), re.MULTILINE):
        if directive in ("currentmodule", "automodule"):
            module = name
        else:
            names.add(name if "." in name else f"{module}.{name}")
    return names


def test_the_api_page_has_every_public_name() -> None:
    public = {f"rankplan.{name}" for name in rankplan.__all__}
    public |= {
        f"rankplan.{name}" if hasattr(rankplan, name) else f"rankplan.runtime.{name}" for name in runtime.__all__
    }
    # The docstring of a variable exists only in the module that defines it.
    homes = {"PLACEMENT_CODES": "rankplan.testing.faulty"}
    public |= {f"{homes.get(name, 'rankplan.testing')}.{name}" for name in testing.__all__}
    assert public <= documented()


def test_the_architecture_page_has_the_modules_in_their_order() -> None:
    _, _, table = (DOCS / "architecture.md").read_text().partition("| module | contents |\n|---|---|\n")
    assert re.findall(r"^\| `(\w+)` \|", table.partition("\n\n")[0], re.MULTILINE) == ROOMS

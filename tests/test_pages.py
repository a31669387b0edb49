"""The pages list what there is: every public name, every room."""

from __future__ import annotations

import re
from pathlib import Path

import rankplan
from rankplan import runtime, testing
from test_rooms import ROOMS

DOCS = Path(__file__).resolve().parent.parent / "docs"


def documented() -> set[str]:
    """The full names that the page of the Python API takes from the docstrings."""
    module, names = "", set()
    for directive, name in re.findall(r"^\.\. (\w+):: ([\w.]+)", (DOCS / "api.md").read_text(), re.MULTILINE):
        if directive in ("currentmodule", "automodule"):
            module = name
        else:
            names.add(name if "." in name else f"{module}.{name}")
    return names


def test_every_public_name_is_on_the_page() -> None:
    public = {f"rankplan.{name}" for name in rankplan.__all__}
    public |= {
        f"rankplan.{name}" if hasattr(rankplan, name) else f"rankplan.runtime.{name}" for name in runtime.__all__
    }
    # What is said of a variable is found only where it stands.
    homes = {"PLACEMENT_CODES": "rankplan.testing.faulty"}
    public |= {f"{homes.get(name, 'rankplan.testing')}.{name}" for name in testing.__all__}
    assert public <= documented()


def test_the_rooms_are_in_their_order() -> None:
    _, _, table = (DOCS / "architecture.md").read_text().partition("| room | what is in it |\n|---|---|\n")
    assert re.findall(r"^\| `(\w+)` \|", table.partition("\n\n")[0], re.MULTILINE) == ROOMS

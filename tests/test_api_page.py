"""Everything that is public is on the page of the Python API."""

from __future__ import annotations

import re
from pathlib import Path

import rankplan
from rankplan import runtime, testing

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"


def documented() -> set[str]:
    """The full names that the page takes from the docstrings."""
    module, names = "", set()
    for directive, name in re.findall(r"^\.\. (\w+):: ([\w.]+)", PAGE.read_text(), re.MULTILINE):
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
    public |= {f"rankplan.testing.{name}" for name in testing.__all__}
    assert public <= documented()

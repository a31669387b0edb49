"""The pages are complete: the API page has every public name, the architecture page every module in order."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module

import rankplan
from rankplan import testing
from rankplan.dialects import OWN, recognisers
from support.outcomes import some
from support.paths import DOCS, ROOT
from support.rooms import ROOMS

_VARIABLE = r"""\.\.\.|[:;,'"()]|\S*\d\S*|\b(?:step|actor|it|raised|failed|nodes have|on nodes?)\b"""
"""What a quoted message has from elsewhere: names, numbers, nodes, and punctuation between its parts."""


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
    public = {f"rankplan.{name}" for name in dir(rankplan) if name != "__version__"}
    # The docstring of a variable exists only in the module that defines it.
    homes = {"PLACEMENT_CODES": "rankplan.testing.faulty"}
    public |= {f"{homes.get(name, 'rankplan.testing')}.{name}" for name in testing.__all__}
    assert public <= documented()


def test_the_api_page_has_every_name_of_the_sdk() -> None:
    """A module of `rankplan.sdk` is on the page with its names; each has a text, and a trainer of our own uses it."""
    page = (DOCS / "api.md").read_text()
    trainers = [path.read_text() for path in (ROOT / "python" / "rankplan" / "trainers").rglob("*.py")]
    used = set(re.findall(r"\w+", "\n".join(trainers)))
    for path in some((ROOT / "python" / "rankplan" / "sdk").glob("[!_]*.py")):
        module = import_module(f"rankplan.sdk.{path.stem}")
        assert f".. automodule:: {module.__name__}\n   :members:" in page and module.__doc__
        for name in module.__all__:
            value = getattr(module, name)
            has_text = inspect.getdoc(value) if callable(value) or inspect.ismodule(value) else f"`{name}`" in page
            assert has_text and name in used, f"{module.__name__}.{name}"


def test_the_architecture_page_has_the_rooms_in_their_order() -> None:
    _, _, table = (DOCS / "architecture.md").read_text().partition("| room | contents |\n|---|---|\n")
    names = re.findall(r"^\| `([\w/]+)` \|", table.partition("\n\n")[0], re.MULTILINE)
    assert [name.replace("/", ".") for name in names] == ROOMS


def test_the_failure_guide_quotes_messages_that_exist() -> None:
    """Every part of a quoted message that is not a name or a number is in a string of the code."""
    texts = []
    for file in (ROOT / "python" / "rankplan" / "runtime").rglob("*.py"):
        for found in ast.walk(ast.parse(file.read_text())):
            if isinstance(found, ast.Constant) and isinstance(found.value, str):
                texts.append(found.value)
    code = "\n".join(texts)
    page = (DOCS / "when-a-launch-fails.md").read_text()
    quoted = re.findall("`([^`]+)`", "".join(re.findall(r"^\| (`[^|]*) \| [^|]* \| [^|]* \|$", page, re.MULTILINE)))
    parts = {part.strip() for quote in quoted for part in re.split(_VARIABLE, quote)}
    assert len(quoted) > 20
    assert [part for part in parts if " " in part and part not in code] == []


def test_every_system_has_its_page_and_its_place_in_the_table() -> None:
    pages = {path.stem for path in (DOCS / "systems").glob("*.md")}
    linked = set(re.findall(r"\]\(docs/systems/([\w-]+)\.md\)", (ROOT / "README.md").read_text()))
    names = {dialect.name.replace("_", "-") for dialect in recognisers()} | {OWN}
    assert names <= pages and names <= linked

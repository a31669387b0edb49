"""Settings of the site: ``sphinx-build -E -W --keep-going -q -b html docs target/docs``. The build needs no network."""

from __future__ import annotations
import __future__

from importlib.metadata import version as version_of
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import rankplan._core
from sphinx.application import Sphinx
from sphinx.util.inspect import signature, stringify_signature

project = "rankplan"
version = release = version_of("rankplan")
extensions = ["myst_parser", "sphinx.ext.autodoc"]

# Tests run the blocks that are fenced by backticks, and GitHub renders the same files: use `:` and `~` for directives.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
# Scripts that a command prints are shown as its output, and no lexer of sessions knows their quotes.
suppress_warnings = ["misc.highlighting_failure"]

default_role = "py:obj"
add_module_names = False
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True

smartquotes = False

html_theme = "furo"
html_title = f"rankplan {version}"
html_last_updated_fmt = "%Y-%m-%d"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_static_path = ["style.css"]
html_css_files = ["style.css"]

MADE_ELSEWHERE = {"Call", "Dialect", "GroupSpec", "Inventory", "PlacementStrategy", "Worker", "WorkerGroup"}
"""Classes without a public constructor: other calls return their objects."""

# Compiled objects have no type annotations; the stub has them.
_STUB = Path(rankplan._core.__file__).with_name("_core.pyi")
_stub: dict[str, Any] = {}
exec(compile(_STUB.read_text(), _STUB, "exec", __future__.annotations.compiler_flag), _stub)


def _in_stub(name: str) -> Any:
    """Return the object of this name in the stub, if the name is compiled."""
    name = name.removeprefix("rankplan.")
    public = getattr(rankplan, name.partition(".")[0], None)
    compiled = getattr(public, "__module__", None) == "rankplan._core"
    return attrgetter(name)(SimpleNamespace(**_stub)) if compiled else None


def _signature(_app: Sphinx, what: str, name: str, _object: Any, _options: Any, text: str | None, returns: str | None):
    if what == "class" and name.rpartition(".")[2] in MADE_ELSEWHERE:
        return "", None
    if what in ("method", "function") and (found := _in_stub(name)) is not None:
        typed = signature(found)
        parameters = [parameter for name, parameter in typed.parameters.items() if name != "self"]
        return stringify_signature(typed.replace(parameters=parameters), unqualified_typehints=True), None
    return text and text.replace("<factory>", "..."), returns


def _type(_app: Sphinx, what: str, name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    owner, _, attribute = name.rpartition(".")
    types = getattr(_in_stub(owner), "__annotations__", {}) if what in ("attribute", "property") else {}
    if attribute in types:
        lines[0] = f"``{types[attribute].removeprefix('Final[')[:-1]}``: {lines[0]}"


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _type)

"""Why a file cannot be loaded as a saved plan: it is damaged, the file of a launcher, or of another kind."""

from __future__ import annotations

from json import JSONDecodeError

from rankplan.errors import Diagnostic, PlacementError
from rankplan.kinds import PLAN
from rankplan.marks import has_mark
from rankplan.read.text.document import Document


def not_json(file: str, text: str, error: Exception) -> Diagnostic:
    """Return the fault of a text that is not JSON; ``error`` says why."""
    if has_mark(text.encode(errors="replace")):
        message = "this is the file of a launcher, with a plan in it; Plan.load reads saved plans"
        return Diagnostic(PLAN.code, message, "pass it to `rankplan.plan`, which reads both")
    if text.lstrip().startswith("{"):
        if not isinstance(error, JSONDecodeError):
            return Diagnostic(PLAN.code, "the file is not a plan: it is not JSON", PLAN.help)
        message = f"the file is not a plan: invalid JSON at line {error.lineno}, column {error.colno}"
        return Diagnostic(PLAN.code, message, PLAN.help, line=error.lineno, column=error.colno)
    try:
        return PLAN.fault(Document(file, text).value())
    except PlacementError:
        return Diagnostic(PLAN.code, "the file is not a plan: it is not JSON", PLAN.help)

"""The faults of guests: what cannot be used of another package, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rankplan.errors import Diagnostic, printable

CODE = "guest-failed"


def not_imported(guest: str, package: str, module: str, error: BaseException) -> Diagnostic:
    """Return the fault of a guest whose module, or whose object in it, cannot be imported."""
    message = f"{guest} cannot be imported: {_error_text(error)}"
    help = f'`python -c "import {module}"` shows where it fails; update or uninstall {package}'
    return Diagnostic(CODE, printable(message), printable(help))


def of_wrong_type(guest: str, package: str, value: object, kind: type) -> Diagnostic:
    """Return the fault of a guest whose object is of another type than its group of entry points has."""
    message = f"{guest} is of type {type(value).__name__}; it must be a {kind.__name__}"
    return Diagnostic(CODE, printable(message), printable(f"update or uninstall {package}"))


def raised(guest: str, package: str, error: BaseException) -> Diagnostic:
    """Return the fault of a guest whose code has raised an error."""
    message = f"{guest} raised {_error_text(error)}{_place(error.__traceback__)}"
    help = f"report it to the authors of {package}; --no-guests keeps the code of other packages out"
    return Diagnostic(CODE, printable(message), printable(help))


def same_name(noun: str, name: str, packages: Sequence[str]) -> Diagnostic:
    """Return the fault of guests of one kind that have one name, so that the name says nothing."""
    message = f"the packages {' and '.join(packages)} both have a {noun} `{name}`"
    if len(packages) > 2:
        message = f"the packages {', '.join(packages)} all have a {noun} `{name}`"
    return Diagnostic(CODE, printable(message), "uninstall all but one of them")


def name_taken(guest: str, package: str, noun: str) -> Diagnostic:
    """Return the warning of a guest that has the name of something built in, which it does not replace."""
    message = f"{guest} is ignored: rankplan has a {noun} of this name"
    return Diagnostic(CODE, printable(message), printable(f"update or uninstall {package}"), warning=True)


def _error_text(error: BaseException) -> str:
    """Return the type and the first line of the text of an error."""
    try:
        text = str(error).partition("\n")[0]
    except Exception:  # the text is made by the guest, too
        text = ""
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _place(traceback: TracebackType | None) -> str:
    """Return the line that has raised an error, as messages show it."""
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f" ({Path(traceback.tb_frame.f_code.co_filename).name}:{traceback.tb_lineno})"

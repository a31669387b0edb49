"""The faults of choosing a dialect."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan.errors import Diagnostic, KeyPath, printable
from rankplan.guests.faults import CODE
from rankplan.words import path_text


def other_name(guest: str, package: str, name: str) -> Diagnostic:
    """Return the fault of a guest whose entry point has another name than its dialect."""
    message = f"{guest} calls itself `{name}`; both must have one name"
    return Diagnostic(CODE, printable(message), printable(f"update or uninstall {package}"))


def several_recognise(names: Sequence[str]) -> Diagnostic:
    """Return the fault of a config that several dialects of other packages recognise."""
    message = f"several dialects recognise this config: {', '.join(names)}"
    help = f"choose with {' or '.join(f'--dialect {name}' for name in names)}"
    return Diagnostic("invalid-value", printable(message), printable(help))


def key_of_another(path: KeyPath, other: str, name: str) -> Diagnostic:
    """Return the fault of a key of another dialect than that of the config."""
    message = f"`{path_text(path)}` is a key of {other}, but the config has keys of {name}"
    help = f"remove it, or choose with --dialect {other} or --dialect {name}"
    return Diagnostic("unknown-key", message, help)

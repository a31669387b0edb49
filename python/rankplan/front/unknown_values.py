"""Faults that may rest on values which only a run knows: what stands in for them is the default of the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rankplan.errors import Diagnostic

_OF_TEXT = frozenset({"unknown-key", "duplicate-key", "syntax", "no-components", "not-read", "not-run", "mixed-keys"})
"""Codes of faults that no value can mend."""
_MOST = 3


def with_unknown(fault: Diagnostic, unknown: Sequence[Diagnostic]) -> Diagnostic:
    """Return a fault that names the unknown values.

    ``unknown`` are the warnings of values that decide the placement. A key that seems to be missing is one of them.
    """
    if fault.code in _OF_TEXT or fault.warning:
        return fault
    of_key = [warning for warning in unknown if warning.path and f"`{warning.path}`" in fault.message]
    if fault.code == "missing-key" and of_key:
        warning = of_key[0]
        return replace(warning, code=fault.code, warning=False, message=f"{warning.message}, and it has no default")
    if fault.code == "invalid-value" and not of_key:
        return fault  # of a value that is written
    names = " and ".join(f"`{warning.path}`" for warning in unknown[:_MOST]) + (" ..." if len(unknown) > _MOST else "")
    verb = "is" if len(unknown) == 1 else "are"
    remark = f"{names} {verb} known only when the script runs: a default stands in, which may be the reason"
    return replace(fault, help=remark if fault.help is None else f"{fault.help}; {remark}")

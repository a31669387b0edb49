"""The key ``emit`` of a job file: the long options of ``rankplan emit``, without their dashes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rankplan.errors import Diagnostic
from rankplan.jobs import faults
from rankplan.launchers.options import Form, flag, option_names, wrong_value
from rankplan.launchers.table import LAUNCHERS
from rankplan.plans.plan_job import TO
from rankplan.words import did_you_mean, shown


class ReadOption(NamedTuple):
    """The value of an option, or its fault."""

    value: Any
    fault: Diagnostic | None


def read_options(stated: Mapping[str, Any]) -> dict[str, ReadOption]:
    """Return each stated option by its name."""
    known = option_names()
    own = _own_options(stated.get(TO))
    found: dict[str, ReadOption] = {}
    for name, value in stated.items():
        if name == TO:
            fault = None if isinstance(value, str) and value in LAUNCHERS else _unknown_launcher(value)
        elif name in known or name in own:
            form = known[name][1] if name in known else own[name]
            fault = wrong_value(name, value, form)
        else:
            fault = faults.unknown_inner_key(name, "emit", [TO, *known, *own])
        found[name] = ReadOption(value, fault)
    return found


def _own_options(to: Any) -> dict[str, Form]:
    """Return the options that only a launcher has, by the names of their flags; none for a launcher of rankplan."""
    launcher = LAUNCHERS.get(to) if isinstance(to, str) and to in LAUNCHERS else None
    own = {} if launcher is None else launcher.own
    return {flag(option, form).removeprefix("--"): form for option, form in own.items()}


def _unknown_launcher(value: Any) -> Diagnostic:
    help = did_you_mean(str(value), LAUNCHERS, "use one of")
    return Diagnostic("invalid-value", f"`to` is {shown(value)}; it must be a launcher", help)

"""The key ``emit`` of a job file: the long options of ``rankplan emit``, without their dashes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from rankplan.errors import Diagnostic
from rankplan.jobs import faults
from rankplan.launchers.launcher import Launcher
from rankplan.launchers.options import Form, flag, option_names, wrong_value
from rankplan.launchers.table import LAUNCHERS
from rankplan.plans.plan_job import TO
from rankplan.words import did_you_mean, shown


class ReadOption(NamedTuple):
    """The value of an option, or its fault."""

    value: Any
    fault: Diagnostic | None


def read_options(stated: Mapping[str, Any], not_below: Collection[str]) -> dict[str, ReadOption]:
    """Return each stated option by its name.

    Those that the file of the launcher states, or one above it, must be its options: ``not_below``. Options of the
    files below count as far as it takes them.
    """
    known = option_names()
    launcher = _launcher(stated.get(TO))
    own = {} if launcher is None else _own_options(launcher)
    found: dict[str, ReadOption] = {}
    for name, value in stated.items():
        if name == TO:
            fault = None if isinstance(value, str) and value in LAUNCHERS else _unknown_launcher(value)
        elif name in known or name in own:
            form = known[name][1] if name in known else own[name]
            fault = wrong_value(name, value, form)
            if launcher is not None and name in known and name in not_below:
                fault = fault or _unused(name, known[name], launcher)
        else:
            fault = faults.unknown_inner_key(name, "emit", [TO, *known, *own])
        found[name] = ReadOption(value, fault)
    return found


def _launcher(to: Any) -> Launcher | None:
    return LAUNCHERS.get(to) if isinstance(to, str) and to in LAUNCHERS else None


def _own_options(launcher: Launcher) -> dict[str, Form]:
    """Return the options that only a launcher has, by the names of their flags; none for a launcher of rankplan."""
    return {flag(option, form).removeprefix("--"): form for option, form in launcher.own.items()}


def _unused(name: str, known: tuple[str, Form], launcher: Launcher) -> Diagnostic | None:
    """Return the fault of an option that a launcher does not take; labels of levels are facts of the cluster."""
    option, form = known
    if form.shared or option == "levels" or option in launcher.options:
        return None
    others = [other for other in LAUNCHERS.builtin if option in LAUNCHERS[other].options]
    return faults.other_launchers_option(name, launcher.name, others)


def _unknown_launcher(value: Any) -> Diagnostic:
    help = did_you_mean(str(value), LAUNCHERS, "use one of")
    return Diagnostic("invalid-value", f"`to` is {shown(value)}; it must be a launcher", help)

"""The texts of warnings about models that the keys of a trainer name."""

from __future__ import annotations

import re
from dataclasses import replace

from rankplan.errors import Diagnostic, KeyPath
from rankplan.words import path_text, shown

_PASS = "pass its name, `--model Qwen/Qwen3-8B`, or the folder of its config.json"
_VARIABLE = re.compile(r"\$(?:\{(?:oc\.env:)?)?([A-Za-z_][A-Za-z0-9_.]*)")


def unknown_model(unknown: Diagnostic) -> Diagnostic:
    """Return the warning of a trainer's model: its config has no number of parameters to state instead."""
    return replace(passed_model(unknown), warning=True)


def passed_model(unknown: Diagnostic) -> Diagnostic:
    """Return the fault of a model that a command or a job file passes: there is no number of parameters, either."""
    if unknown.help is not None and unknown.help.startswith("did you mean"):
        return unknown
    return replace(unknown, help=_PASS)


def no_language_model(task: str, model: str | None) -> Diagnostic:
    """Return the warning of a job that trains something else, of whose sizes nothing is known."""
    message = f"a job of the task {shown(task)} need not train a language model: only of these are sizes known"
    if model is not None:
        message = f"a model of the type {shown(model)} has unknown sizes: only those of language models are known"
    help = "state in `component_placement` what each component was measured to keep: "
    help += "`actor: {placement: all, memory: {resident: 17 GiB}}`"
    return Diagnostic("unknown-model", message, help, warning=True)


def unnamed_model(path: KeyPath) -> Diagnostic:
    """Return the warning of a component whose model no key names."""
    key = path_text(path)
    help = f"write `{key}: Qwen/Qwen3-8B`, or {_PASS}"
    return Diagnostic("unknown-model", f"no key names the model: `{key}` is not stated", help, warning=True)


def variable_in_model(text: str) -> Diagnostic:
    """Return the warning of a model whose name has a variable that nothing sets."""
    names = dict.fromkeys(_VARIABLE.findall(text))
    variables = " and ".join(f"`{name}`" for name in names) or shown(text)
    message = f"the name of the model depends on {variables}, which is not set: {shown(text)}"
    return Diagnostic("unknown-model", message, _PASS, warning=True)

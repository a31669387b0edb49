"""Plans as the files of launchers, and these files as plans.

This module has the names that a launcher of another package uses, imported when they are used: `Launcher`, and the
parts of scripts and of objects of Kubernetes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankplan.launchers.draft import Draft as Draft
    from rankplan.launchers.draft import Emitted as Emitted
    from rankplan.launchers.embedded import digest as digest
    from rankplan.launchers.embedded import plan_text as plan_text
    from rankplan.launchers.embedded import portable as portable
    from rankplan.launchers.groups import PodGroup as PodGroup
    from rankplan.launchers.groups import pod_groups as pod_groups
    from rankplan.launchers.launcher import Launcher as Launcher
    from rankplan.launchers.launcher import Starts as Starts
    from rankplan.launchers.merge import ABSENT as ABSENT
    from rankplan.launchers.merge import USER as USER
    from rankplan.launchers.object_file import POD_OPTIONS as POD_OPTIONS
    from rankplan.launchers.object_file import ObjectFile as ObjectFile
    from rankplan.launchers.options import Form as Form
    from rankplan.launchers.options import Options as Options
    from rankplan.launchers.pods import metadata as metadata
    from rankplan.launchers.pods import template as template
    from rankplan.launchers.script_file import ScriptFile as ScriptFile
    from rankplan.launchers.scripts import WAIT as WAIT
    from rankplan.launchers.scripts import Head as Head
    from rankplan.launchers.scripts import folder_lines as folder_lines
    from rankplan.launchers.scripts import plan_lines as plan_lines
    from rankplan.launchers.scripts import quoted as quoted
    from rankplan.launchers.scripts import script as script
    from rankplan.launchers.scripts import shell_words as shell_words

_NAMES = {
    "draft": ("Draft", "Emitted"),
    "embedded": ("digest", "plan_text", "portable"),
    "groups": ("PodGroup", "pod_groups"),
    "launcher": ("Launcher", "Starts"),
    "merge": ("ABSENT", "USER"),
    "object_file": ("POD_OPTIONS", "ObjectFile"),
    "options": ("Form", "Options"),
    "pods": ("metadata", "template"),
    "scripts": ("WAIT", "Head", "folder_lines", "plan_lines", "quoted", "script", "shell_words"),
    "script_file": ("ScriptFile",),
}
"""The names by the file that has them."""

_HOMES = {name: f"rankplan.launchers.{module}" for module, names in _NAMES.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The driver's exports: its environment variables that reach every rank, also those set after ``ray start``.

RLinf exports them in ``NodeProbe._configure_node_envs``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import ray

from rankplan.environment import NODE_RANK_VARIABLES, PATH_MODE, PATH_MODES, PATH_VARIABLES, reserved_variables
from rankplan.runtime.nodes.nodes import inherited, pinned
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import Fault, outcomes
from rankplan.runtime.ray.asking import ask
from rankplan.words import counted, shown

_LOCAL = (
    # a shell
    *("_", "PWD", "OLDPWD", "SHLVL", "SHELL", "SHELLOPTS", "BASH*", "PS[0-4]", "PROMPT_COMMAND", "HIST*"),
    # a login session and its terminal
    *("HOME", "USER", "USERNAME", "LOGNAME", "MAIL", "SUDO_*", "SSH_*", "GPG_*", "XDG_*", "DBUS_*"),
    *("TERM", "TERM_*", "TERMINFO", "COLORTERM", "COLUMNS", "LINES", "LS_COLORS", "STY", "TMUX*", "WINDOW*"),
    *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "SESSION_MANAGER", "VTE_*", "VSCODE_*"),
    # a machine, a service or a task of another launcher on it
    *("HOST", "HOSTNAME", "HOSTTYPE", "MACHTYPE", "OSTYPE", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_*"),
    *("SLURM*", "SRUN_*", "PMI_*", "PMIX_*", "OMPI_*", "KUBERNETES_*"),
    # Ray itself: ray.init() sets the second one in every driver
    *("RAY_*", "PYTHONBREAKPOINT"),
)
"""Names and patterns of variables that belong to a shell, a session, a machine, or Ray."""

Selection = bool | Sequence[str]
"""Which exports reach the ranks: all that do not belong to a shell or machine, none, or names and patterns."""

_logger = logging.getLogger("rankplan")


def as_selection(forward_env: Selection) -> Selection:
    """Return the selection; raises ``TypeError`` or ``ValueError`` for an invalid one."""
    if isinstance(forward_env, bool):
        return forward_env
    if isinstance(forward_env, str) or not isinstance(forward_env, Iterable):
        hint = f"[{forward_env!r}]" if isinstance(forward_env, str) else '["NCCL_*", "HF_HOME"]'
        raise TypeError(f"forward_env is {shown(forward_env)}; pass True, False, or a list of names such as {hint}")
    names = list(forward_env)
    for name in names:
        if not isinstance(name, str) or not name:
            raise TypeError(f"forward_env contains {shown(name)}; it must be a list of variable names or patterns")
        if name in _decided():
            by = "orders the nodes" if name in NODE_RANK_VARIABLES else "is set by the plan"
            raise ValueError(f"forward_env contains {name}, which {by}; remove it")
    return names


def find_exports(selection: Selection) -> dict[str, str]:
    """Return the exports of this process: the selected differences between its environment and Ray's on this node.

    Folders become absolute. If Ray's environment cannot be read, a warning says so, and nothing is exported.
    """
    if selection is False:
        return {}
    here = ray.get_runtime_context()
    (found,) = outcomes([environment_of(here.get_node_id())], timeouts.ENVIRONMENT)
    if found is None or isinstance(found, Fault):
        why = found.reason if found else f"gave no answer within {timeouts.ENVIRONMENT:g} s"
        _logger.warning("the ranks do not get the variables of this program: a task on its node %s", why)
        return {}
    of_job = here.runtime_env.get("env_vars") or {}  # every process of the job has them already
    exports = {
        name: _absolute(value) if name in PATH_VARIABLES else value
        for name, value in selected(selection, os.environ, found).items()
        if name not in of_job
    }
    if (mode := os.environ.get(PATH_MODE, PATH_MODES[0])).lower() not in PATH_MODES:
        _logger.warning("%s is %r; expected %s; it is ignored", PATH_MODE, mode, " or ".join(PATH_MODES))
    if exports:
        names = ", ".join(sorted(exports))
        _logger.info("every rank gets %s of this program (forward_env): %s", counted(len(exports), "variable"), names)
    return exports


def selected(selection: Selection, driver: Mapping[str, str], ray_has: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the driver that a selection exports, given the environment of Ray on its node."""
    names = ["*"] if selection is True else list(selection or [])
    decided = _decided()

    def exported(name: str) -> bool:
        if name in decided or not _sendable(name, driver[name]):
            return False
        differs = ray_has.get(name) != driver[name]
        return name in names or (differs and _matches(name, names) and not _matches(name, _LOCAL))

    return {name: value for name, value in driver.items() if exported(name)}


def _decided() -> set[str]:
    return reserved_variables().union(NODE_RANK_VARIABLES)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _sendable(name: str, value: str) -> bool:
    """Whether a variable is text: bash exports functions, and any program may export bytes."""
    try:
        (name + value).encode()
    except UnicodeEncodeError:
        return False
    return not name.startswith("BASH_FUNC_")


def _absolute(folders: str) -> str:
    return os.pathsep.join(str(Path(folder).absolute()) for folder in folders.split(os.pathsep) if folder)


def environment_of(node_id: str) -> ray.ObjectRef[dict[str, str]]:
    """Return the environment that Ray starts processes with on a node, as a reference."""
    answer: ray.ObjectRef[dict[str, str]] = ask(
        lambda: _inherited.options(scheduling_strategy=pinned(node_id)).remote()
    )
    return answer


_inherited = ray.remote(num_cpus=0)(inherited)

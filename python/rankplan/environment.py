"""The environment of one rank, from its row of the plan; and the environment that a process has. Sets no variables.

A process on a node starts with the node's own variables. The driver's exports are added to them, then the ``env_vars``
of the node group, then what the plan decides: ranks and devices.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rankplan.accelerators import VARIABLES, vendor

if TYPE_CHECKING:
    from rankplan._core import Placement

RANK_VARIABLES = {
    "RANK": "rank",
    "WORLD_SIZE": "world_size",
    "LOCAL_RANK": "local_rank",
    "LOCAL_WORLD_SIZE": "local_world_size",
    "NODE_RANK": "placement_node_rank",
    "NODE_LOCAL_RANK": "local_rank",
    "NODE_LOCAL_WORLD_SIZE": "local_world_size",
    "CLUSTER_NODE_RANK": "cluster_node_rank",
}
"""The ranks of a process, each with its attribute of the row."""
MASTER_VARIABLES = ("MASTER_ADDR", "MASTER_PORT")
RESTART_VARIABLE = "RANKPLAN_RESTART"
"""How often ranks of the component were restarted, added or removed; not set before."""


def reserved_variables() -> set[str]:
    """Return the variables that the plan sets (ranks and devices); a node group may set any other.

    Registered types of accelerators add theirs.
    """
    return {*RANK_VARIABLES, *MASTER_VARIABLES, RESTART_VARIABLE, *VARIABLES}


NODE_RANK_VARIABLES = ("RANKPLAN_NODE_RANK", "RLINF_NODE_RANK")
"""Set one of them on every node before ``ray start``; the first one set on a node counts."""

REFERENCE = r"\$(?:(\w+)|\{(\w+)\})"
"""A reference to another variable in a value: ``$NAME`` (group 1) or ``${NAME}`` (group 2)."""

PATH_VARIABLES = frozenset(
    {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "LIBRARY_PATH", "CPATH", "CMAKE_PREFIX_PATH", "PKG_CONFIG_PATH"}
)
"""Lists of folders, to which a value is prepended instead of replacing them; RLinf:
``Cluster.PATH_LIKE_ENV_VARS``."""

PATH_MODE = "RLINF_PATH_ENV_MERGE_MODE"
"""The variable that selects how to treat `PATH_VARIABLES`: ``append`` (prepend, the default) or ``override``."""
PATH_MODES = ("append", "override")

_READ_AT_START = ("LD_", "PYTHON", "MALLOC_")


def process_environment() -> dict[str, str]:
    """Return the environment of this process as its libraries read it and its child processes inherit it.

    Python's copy, ``os.environ``, lacks what ``os.putenv`` or a library in C has set.
    """
    import ctypes  # only a process that starts others needs it

    try:
        entries = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    except (OSError, ValueError):  # no such name in this C library
        return dict(os.environ)
    found: dict[str, str] = {}
    for index in itertools.count():
        if not entries or (entry := entries[index]) is None:
            break
        name, _, value = os.fsdecode(entry).partition("=")
        found.setdefault(name, value)  # the first one counts, as in getenv
    return found


def planned_environment(placement: Placement) -> dict[str, str]:
    """Return the variables that the plan sets for a rank: its ranks and its devices.

    ``LOCAL_RANK`` is the index, among the visible devices, of the first device of the process, so that
    ``set_device(LOCAL_RANK)`` is right. If its own devices come first, it is 0 and ``LOCAL_WORLD_SIZE`` is 1. For a
    process without accelerators of its own, it is the index among the processes of the component on the node. The
    visibility variable of the vendor lists the node's own ids; a second variable tells Ray not to change it.
    """
    environment = {name: str(getattr(placement, attribute)) for name, attribute in RANK_VARIABLES.items()}
    if placement.num_accelerators and placement.visibility != "node":
        environment |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    elif placement.num_accelerators:
        environment["LOCAL_RANK"] = str(placement.local_accelerator_rank)
    row = vendor(placement.accelerator_type)
    if row is not None:
        environment |= row.showing(placement.visible_accelerators)
    return environment


def rank_environment(
    placement: Placement, *, master_addr: str, master_port: int, env_vars: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole environment of a rank: variables of its node group, of the plan, and of the rendezvous.

    ``env_vars`` are the variables of the node group; the plan overrides them (a config with such a variable is
    rejected earlier). ``master_addr`` is the address of rank 0's node and ``master_port`` a free port there.
    """
    rendezvous = zip(MASTER_VARIABLES, (master_addr, str(master_port)), strict=True)
    return {**env_vars, **planned_environment(placement), **dict(rendezvous)}


def restart_environment(restarts: int) -> dict[str, str]:
    """Return the variable that counts the restarts of a component; nothing before the first."""
    return {RESTART_VARIABLE: str(restarts)} if restarts else {}


def added(exports: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values that the driver's exports get in a process with this environment; see `prepends`."""
    return {
        name: prepended(value, environment.get(name, "")) if prepends(name, exports, environment) else value
        for name, value in exports.items()
    }


def expanded(env_vars: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values that the ``env_vars`` of a node group get in a process with this environment.

    ``$NAME`` and ``${NAME}`` are replaced as in Ray (``utils.update_envs``): a reference takes its value
    from ``environment`` or an earlier variable. If NAME is unset, ``${NAME}`` is empty and ``$NAME`` is kept. A list of
    folders is prepended to the one of the environment (see `prepends`), unless it refers to itself
    (``/opt/bin:$PATH``).
    """
    known, result = dict(environment), {}

    def filled_in(found: re.Match[str]) -> str:
        return known.get(found[1] or found[2], found[0] if found[1] else "")

    for name, value in env_vars.items():
        text = re.sub(REFERENCE, filled_in, value)
        if prepends(name, env_vars, environment) and not refers(value, name):
            text = prepended(text, environment.get(name, ""))
        known[name] = result[name] = text
    return result


def prepends(name: str, variables: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Whether a variable is a list of folders that is prepended to the one of the environment.

    It replaces that one if `PATH_MODE` is ``override`` among the variables, or else in the environment.
    """
    return name in PATH_VARIABLES and variables.get(PATH_MODE, environment.get(PATH_MODE, "")).lower() != "override"


def refers(value: str, name: str) -> bool:
    """Whether a value contains a reference to this variable."""
    return any(name in found.groups() for found in re.finditer(REFERENCE, value))


def prepended(folders: str, to: str) -> str:
    """Return one list of folders, each once, as RLinf: ``Cluster._merge_path_like_env_value``."""
    parts = f"{folders}{os.pathsep}{to}".split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(filter(None, parts)))  # an empty entry would mean the working directory


def start_variables(env_vars: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the loader, libc or the interpreter read only when the process starts."""
    return {name: value for name, value in env_vars.items() if name.startswith(_READ_AT_START)}

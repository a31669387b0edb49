"""The node groups of the ``cluster`` section: their environments and their hardware."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rankplan._core import read_ranks
from rankplan.environment import NODE_RANK_VARIABLES, PATH_MODE, PATH_MODES, reserved_variables
from rankplan.errors import Diagnostic
from rankplan.nodes.groups import PATH_MODES as GROUP_PATH_MODES
from rankplan.nodes.groups import PREPEND, GroupHardware, NodeEnvironment, NodeGroup
from rankplan.read.record import Field, Record, list_of, one_of
from rankplan.read.simple import LABEL, NODE_RANKS, RESERVED_LABELS, label, switch, text, with_all
from rankplan.read.text.invalid import THIS, Invalid, invalid
from rankplan.words import must_be, shown

_ONE_KEY = 'write one-key entries: - NAME: "value"'

_VALUES = {"additionalProperties": {"type": ["string", "number"]}}
_ONE_VARIABLE = {"type": "object", **_VALUES, "minProperties": 1, "maxProperties": 1}
_VARIABLES = {"type": ["array", "object", "null"], "items": _ONE_VARIABLE, **_VALUES}


def _fault(code: str, message: str, help: str, path: Iterable[str | int] = ()) -> Invalid:
    return invalid(Diagnostic(code, message, help), path)


def _interpreter(value: Any) -> str:
    path = text(value)
    if not path:
        raise _fault("invalid-value", f"{THIS} is empty", "write its text, or remove the key")
    if not (path.startswith("/") and path.isprintable()):
        help = "write the path on the node, e.g. /opt/venv/bin/python3"
        raise invalid(must_be("`python_interpreter_path`", path, "an absolute path", help))
    return path


def _path_mode(value: Any) -> str:
    if value not in GROUP_PATH_MODES:
        help = "remove it: PATH and other lists of folders are then prepended"
        raise invalid(must_be("`path_env`", value, "prepend or replace", help))
    return str(value)


def _variables(value: Any) -> dict[str, str]:
    """Return the variables in a list of one-key mappings, or in a mapping."""
    variables: dict[str, str] = {}
    if value is None:
        return variables
    entries = [{key: item} for key, item in value.items()] if isinstance(value, Mapping) else value
    if not isinstance(entries, (list, tuple)):
        raise invalid(must_be("env_vars", value, "a list of variables", _ONE_KEY))
    for index, entry in enumerate(entries):
        path: list[str | int] = [] if isinstance(value, Mapping) else [index]
        if not isinstance(entry, Mapping) or len(entry) != 1:
            raise _fault("invalid-value", f"{shown(entry)} is not a single variable", _ONE_KEY, path)
        ((name, content),) = entry.items()
        name = str(name)
        if re.fullmatch(r"[^\s=]+", name) is None or not name.isprintable():
            message = f"{shown(name)} is not the name of an environment variable"
            raise _fault("invalid-value", message, "write a name such as GLOO_SOCKET_IFNAME", path)
        if name in variables:
            message = f"variable `{name}` is set twice for the same nodes"
            raise _fault("duplicate-env-var", message, "remove one of the two", [*path, name])
        variables[name] = _variable_text(name, content, [*path, name])
    return variables


def _variable_text(name: str, content: Any, path: list[str | int]) -> str:
    """Return the text of a variable, or reject one that a node group cannot set."""
    if name in reserved_variables():
        help = "remove it: placements decide ranks and devices"
        raise _fault("reserved-env-var", f"variable `{name}` is set by the plan", help, path)
    if name in NODE_RANK_VARIABLES:
        message = f"variable `{name}` orders the nodes and is read before any process starts"
        raise _fault("reserved-env-var", message, "set it on the node before `ray start`", path)
    if isinstance(content, bool) or not isinstance(content, (str, int, float)):
        raise invalid(must_be(f"variable `{name}`", content, "text", 'write its text in quotes, e.g. "1"'), path)
    text = str(content)
    if name == PATH_MODE and text.lower() not in PATH_MODES:
        help = "write override to replace PATH and other lists of folders"
        raise invalid(must_be(f"variable `{name}`", text, " or ".join(PATH_MODES), help), path)
    if "\0" in text or text.encode("utf-8", "ignore").decode() != text:
        message = (
            f"variable `{name}` is {shown(text)}; environment variables cannot contain NUL bytes or lone surrogates"
        )
        raise _fault("invalid-value", message, "write plain text", path)
    return text


ENVIRONMENT = Record(
    "EnvConfig",
    "Variables and interpreter of some nodes of a group.",
    {
        "node_ranks": Field(read_ranks, "Nodes of the group: a range such as 0-7, or all.", NODE_RANKS, needed=True),
        "env_vars": Field(_variables, 'Environment variables, one per line: - NAME: "value".', _VARIABLES),
        "python_interpreter_path": Field(
            _interpreter,
            "Absolute path of the interpreter on these nodes.",
            {"type": "string", "minLength": 1},
            optional=True,
        ),
        "path_env": Field(
            _path_mode,
            "Whether PATH and other lists of folders are added to the node's, or replace it.",
            one_of(GROUP_PATH_MODES, default=PREPEND),
        ),
    },
)


def _read_environment(stated: Any) -> NodeEnvironment:
    values = ENVIRONMENT.read(stated)
    mode = values.get("path_env", PREPEND)
    interpreter = values.get("python_interpreter_path")
    return NodeEnvironment(values["node_ranks"], values.get("env_vars", {}), interpreter, mode)


_read_environments = list_of(_read_environment)


def _own_label(value: Any) -> str:
    """Return the label of a node group, which is not reserved."""
    name = label(value)
    if name in RESERVED_LABELS:
        message = f"the label `{name}` is reserved: it always means {RESERVED_LABELS[name]}"
        raise _fault("reserved-label", message, "choose another label")
    if not name.strip():
        raise _fault("empty-name", "a node group has no label", "give it a label, e.g. a800")
    if "," in name:
        message = f"the label `{name}` contains a comma"
        raise _fault("invalid-value", message, "remove the comma: commas separate labels")
    if name != name.strip():
        message = f"the label {shown(name)} starts or ends with a blank"
        raise _fault("invalid-value", message, "remove the blank")
    return name


def _hardware(value: Any) -> GroupHardware:
    from rankplan.read.hardware import read_hardware  # few groups have hardware of their own

    return read_hardware(value)


GROUP = Record(
    "NodeGroup",
    "A labelled set of nodes.",
    {
        "label": Field(_own_label, "Name that components select the group by.", LABEL, needed=True),
        "node_ranks": Field(read_ranks, "Nodes of the group: a range such as 0-7, or all.", NODE_RANKS, needed=True),
        "env_configs": Field(
            _read_environments,
            "Variables and interpreters of the nodes.",
            {"type": ["array", "null"], "items": {"$ref": "#/$defs/EnvConfig"}},
        ),
        "hardware": Field(
            _hardware,
            "Hardware to count in place of accelerators.",
            {"$ref": "#/$defs/Hardware"},
            optional=True,
        ),
        "ignore_hardware": Field(
            switch, "Count nodes, whatever hardware they have.", {"type": "boolean", "default": False}
        ),
    },
)


VARIABLES = "env_vars"

KEYS = {*GROUP.fields, *ENVIRONMENT.fields, "type", "configs", "node_rank"}
"""The keys in the entry of a node group, also those of its hardware."""


def read_group(stated: Any) -> NodeGroup:
    """Return a node group; ``all`` in an environment are the nodes of the group. Raises `Invalid`."""
    values = GROUP.read(_with_its_nodes(stated) if isinstance(stated, Mapping) else stated)
    environments = values.get("env_configs", ())
    is_ignored = values.get("ignore_hardware", False)
    return NodeGroup(values["label"], values["node_ranks"], environments, values.get("hardware"), is_ignored)


def _with_its_nodes(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry with ``all`` in its environments replaced by its nodes; a missing list is an empty one."""
    if "env_configs" not in group:
        return group
    configs = group["env_configs"]
    if isinstance(configs, (list, tuple)):
        configs = [with_all(config, group.get("node_ranks")) for config in configs]
    return {**group, "env_configs": [] if configs is None else configs}

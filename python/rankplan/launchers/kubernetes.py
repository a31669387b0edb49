"""Kubernetes files: writing with the user's own parts, and reading back with everything that contradicts the plan."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, KeyPath, PlacementError, refusal
from rankplan.launchers.embedded import plan_text, portable
from rankplan.launchers.merge import ABSENT, NAMES, Contradiction, contradictions, merged
from rankplan.launchers.options import AGAIN, Draft, Emitted, Options
from rankplan.launchers.pods import (
    NODE_RANK,
    OPTIONS,
    PLACE_VARIABLES,
    PLACEHOLDER,
    PLAN,
    QUEUE,
    check_hardware,
    check_options,
    options_read,
    plan_map,
)
from rankplan.launchers.yaml_text import documents_text
from rankplan.nodes.topology.sources import HOSTNAME
from rankplan.plans.plan import Plan
from rankplan.read.text.manifest import Object, read_objects
from rankplan.words import shown

Writer: TypeAlias = Callable[[Draft, str], dict[str, Any]]
"""Returns the object that starts the pods, for a plan with this text."""


def write(draft: Draft, writer: Writer, kind: str) -> str:
    """Return the file of an object of this kind: a ConfigMap with the plan, and the object, merged with the base.

    A base that rankplan has written must be unchanged but for the user's parts; its plan is replaced.
    """
    file = draft.options.base
    base = [] if file is None else read_objects(file)
    users = next((one for one in base if one.kind == kind), None)
    if file is not None and users is None:
        raise PlacementError([_not_of_kind(file, base, kind)])
    written_before = users is not None and users.at("metadata", "annotations", PLAN) is not None
    if file is not None and written_before:
        _read(base, file, "", writer, {kind: draft.options.kind})
    if users is not None:
        draft.options = _named(draft.options, users)
    check_options(draft)
    check_hardware(draft)
    text = plan_text(portable(draft.plan))
    ours = {"ConfigMap": plan_map(draft, text), kind: writer(draft, text)}
    written = []
    for kind_of_one, one in ours.items():
        theirs = users if kind_of_one == kind else _holder(base)
        if theirs is not None and not written_before:
            found = (each for each in contradictions(one, theirs.value) if each.users is not ABSENT)
            draft.faults += [_conflict(theirs, each) for each in found]
        written.append(merged(one, {} if theirs is None else theirs.value))
        base = [other for other in base if other is not theirs]
    if kind == "RayJob" and "entrypoint" not in written[1]["spec"] and users is not None:
        help = "pass --entrypoint, or write it in the base"
        draft.faults.append(users.located(("spec",), "missing-key", "`entrypoint` is missing", help))
    draft.finish()
    _without_image(draft, written[1])
    return documents_text([*written, *(other.value for other in base)])


def _holder(objects: list[Object]) -> Object | None:
    """Return the ConfigMap with the plan."""
    maps = [one for one in objects if one.kind == "ConfigMap" and one.at("data", "plan.json") is not None]
    marked = (one for one in maps if one.at("metadata", "annotations", PLAN) is not None)
    return next(marked, next(iter(maps), None))


def _not_of_kind(file: str, objects: list[Object], kind: str) -> Diagnostic:
    kinds = ", ".join(dict.fromkeys(one.kind for one in objects)) or "nothing"
    message = f"the base has {kinds}; it must have a {kind}"
    return Diagnostic("emit-conflict", message, "pass a file of the same kind, or another --to", file=file)


def _named(options: Options, users: Object) -> Options:
    """Return the options with the name, the namespace and the queue of the user's object, unless others are given."""
    queue, namespace = users.at("metadata", "labels", QUEUE), users.at("metadata", "namespace")
    if options.queue is None and isinstance(queue, str):
        options = replace(options, queue=queue)
    if options.namespace is None and isinstance(namespace, str):
        options = replace(options, namespace=namespace)
    return options if options.named or users.name is None else replace(options, name=users.name)


def _conflict(users: Object, found: Contradiction) -> Diagnostic:
    field = _field(users, found.path)
    if (name := _unknown(found)) is not None:
        message, help = f"{name} is in no group of the plan", 'remove it, or rename it; "*" stands for every group'
    elif found.ours is ABSENT:
        message, help = f"{field} is {shown(found.users)}; the plan has none", "remove it"
    else:
        message = f"{field} is {shown(found.users)}; the plan needs {shown(found.ours)}"
        help = "remove it, or plan what it says"
    return users.located(found.path, "emit-conflict", message, help)


def _field(users: Object, path: KeyPath) -> str:
    """Return a field as messages name it: its key, and the name of the object in a list that it is in."""
    key = next((str(part) for part in reversed(path) if not isinstance(part, int)), "the object")
    name = next((name for end in range(len(path) - 1, 0, -1) if (name := _name(users.at(*path[:end])))), None)
    return f"`{key}`" if name is None else f"`{key}` of {name}"


def _unknown(found: Contradiction) -> str | None:
    """Return the name of an object of the user that the plan does not have."""
    return _name(found.users) if found.ours is ABSENT else None


def _name(value: Any) -> str | None:
    """Return the name of an object in a list."""
    names = (value.get(key) for key in NAMES) if isinstance(value, Mapping) and "kind" not in value else ()
    return next((name for name in names if isinstance(name, str)), None)


def _without_image(draft: Draft, value: Any) -> None:
    """Write a placeholder where nobody has stated an image, and tell it."""
    if isinstance(value, dict):
        containers = value.get("containers")
        for container in containers[:1] if isinstance(containers, list) else ():
            if isinstance(container, dict) and "name" in container and "image" not in container:
                fields = {**container}
                container.clear()
                container.update({"name": fields.pop("name"), "image": PLACEHOLDER, **fields})
                note = f"no image is stated; replace {PLACEHOLDER}, or pass --image"
                draft.notes += [note] if note not in draft.notes else []
        for part in value.values():
            _without_image(draft, part)
    elif isinstance(value, list):
        for part in value:
            _without_image(draft, part)


def read(file: str, text: str, target: str, writer: Writer, kinds: Mapping[str, str]) -> Emitted:
    """Return the plan and the options of a file; ``kinds`` are the kinds of its object, with the option of each.

    Raises `PlacementError`: ``emit-changed`` for every field that contradicts the plan.
    """
    return _read(read_objects(file, text), file, target, writer, kinds)


def _read(objects: list[Object], file: str, target: str, writer: Writer, kinds: Mapping[str, str]) -> Emitted:
    started = next(one for one in objects if one.kind in kinds)
    holder = _holder(objects)
    if holder is None:
        message, help = "the ConfigMap with the plan is missing", AGAIN
        raise PlacementError([started.located(("metadata", "annotations", PLAN), "emit-changed", message, help)])
    plan = _plan(holder)
    faults: list[Diagnostic] = []
    options = replace(_options(started, plan, faults), base=file, kind=kinds[started.kind])
    if options.pin:
        plan = _with_hostnames(plan, started)
    saved = str(holder.at("data", "plan.json"))
    draft = Draft(plan, options)
    expected = {id(holder): plan_map(draft, saved), id(started): writer(draft, saved)}
    for one in (holder, started):
        found = contradictions(expected[id(one)], one.value)
        faults += [_changed(one, each) for each in found if not _is_users(one, each.path)]
    faults += [started.located(("metadata",), each.code, each.message, each.help) for each in draft.faults]
    if faults:
        raise refusal(faults)
    return Emitted(plan, target, options)


def _plan(holder: Object) -> Plan:
    path: KeyPath = ("data", "plan.json")
    try:
        return Plan.from_dict(json.loads(str(holder.at(*path))))
    except PlacementError as error:
        faults = [holder.located(path, one.code, one.message, one.help) for one in error.diagnostics]
    except (ValueError, RecursionError):
        message = "the plan in the file is not JSON"
        faults = [holder.located(path, "emit-changed", message, AGAIN)]
    raise PlacementError(faults)


def _options(started: Object, plan: Plan, faults: list[Diagnostic]) -> Options:
    """Return the options that the fields of the object show."""
    path: KeyPath = ("metadata", "annotations", OPTIONS)
    kept = options_read(str(started.at(*path) or ""))
    if kept is None:
        message = f"`{OPTIONS}` is {shown(started.at(*path))}; it must be options as rankplan writes them"
        faults.append(started.located(path, "emit-changed", message, AGAIN))
        kept = {}, {}, False
    commands: dict[str, str] = {}
    ports: Counter[int] = Counter()
    names = list(plan)
    for option, value in _command_options(started.value):
        name, _, rest = value.replace("$$", "$").partition("=")
        if option == "--run":
            commands.setdefault(name, rest)
        elif option == "--master" and name in names and (port := rest.rpartition(":")[2]).isdecimal():
            ports[int(port) - names.index(name)] += 1
    found = Options(commands=commands, levels=kept[0], resource_keys=kept[1], pin=kept[2], named=True)
    found = replace(found, name=started.name or found.name, port=ports.most_common(1)[0][0] if ports else found.port)
    return _named(found, started)


def _command_options(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the options with their values in the commands of all containers of an object."""
    if isinstance(value, Mapping):
        words = value.get("command")
        for option, argument in pairwise(words if isinstance(words, list) else []):
            if isinstance(option, str) and isinstance(argument, str) and option in ("--run", "--master"):
                yield option, argument
        for part in value.values():
            yield from _command_options(part)
    elif isinstance(value, list):
        for part in value:
            yield from _command_options(part)


def _changed(users: Object, found: Contradiction) -> Diagnostic:
    field = _field(users, found.path)
    help = f"restore it, or change the config and {AGAIN}"
    if (name := _unknown(found)) is not None:
        message = f"{name} is in no group of the plan"
    elif found.users is ABSENT:
        message = f"{field} is missing; the plan says {shown(found.ours)}"
    elif found.ours is ABSENT:
        message = f"{field} is {shown(found.users)}; the plan has none"
    else:
        message = f"{field} is {shown(found.users)}; the plan says {shown(found.ours)}"
    return users.located(found.path, "emit-changed", message, help)


_USERS = frozenset({"image", "entrypoint", "suspend", "volumes", "volumeMounts"})
"""Fields that rankplan writes and that are the user's afterwards. Kueue changes `suspend`."""


def _is_users(users: Object, path: KeyPath) -> bool:
    """Whether a field is the user's: images, volumes, and environment variables that tell no place."""
    if not _USERS.isdisjoint(path):
        return True
    if "env" not in path:
        return False
    variable = path[: path.index("env") + 2]
    last = variable[-1]
    name = last.partition("=")[2] if isinstance(last, str) else users.at(*variable, "name")
    return name not in PLACE_VARIABLES


def _with_hostnames(plan: Plan, started: Object) -> Plan:
    """Return the plan with the hosts that the pods are pinned to, by the node ranks that they have."""
    hosts = dict(_pinned(started.value))
    content = plan.to_dict()
    nodes = []
    for ranks, record in plan.inventory.stretches():
        for rank in ranks:
            named = {"hostname": hosts[rank]} if rank in hosts else {}
            nodes.append({**record.at(RankSet([rank])).described(), **named})
    content["inventory"]["nodes"] = nodes
    return Plan.from_dict(content)


def _pinned(value: Any) -> Iterator[tuple[int, str]]:
    """Yield the node rank and the host of each pod that is pinned."""
    if isinstance(value, list):
        for part in value:
            yield from _pinned(part)
    elif isinstance(value, Mapping):
        selector, containers = value.get("nodeSelector"), value.get("containers")
        host = selector.get(HOSTNAME) if isinstance(selector, Mapping) else None
        for container in containers if isinstance(containers, list) and isinstance(host, str) else ():
            variables = container.get("env") if isinstance(container, Mapping) else None
            for variable in variables if isinstance(variables, list) else ():
                if isinstance(variable, Mapping) and variable.get("name") == NODE_RANK:
                    rank = str(variable.get("value"))
                    if rank.isdecimal() and len(rank) < 9:
                        yield int(rank), str(host)
        for part in value.values():
            yield from _pinned(part)

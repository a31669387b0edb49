"""Objects of Kubernetes as files of launchers: written with the user's own parts, recognised, and read back."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise, zip_longest
from typing import Any

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, KeyPath, PlacementError, refusal
from rankplan.frozen import frozen
from rankplan.launchers import faults
from rankplan.launchers.draft import Draft, Emitted
from rankplan.launchers.embedded import plan_text, portable
from rankplan.launchers.merge import ABSENT, NAMES, Contradiction, Least, contradictions, merged, released
from rankplan.launchers.options import Options
from rankplan.launchers.pods import (
    MEMORY_VOLUME,
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
from rankplan.launchers.ray_pods import entrypoint_read
from rankplan.launchers.yaml_text import documents_text
from rankplan.nodes.topology.sources import HOSTNAME
from rankplan.plans.plan import Plan
from rankplan.read.text.manifest import Object, read_objects

_MOST_ANNOTATED = 256 << 10
_PORT = re.compile(r":([0-9]{1,9})$")

POD_OPTIONS = ("image", "cpus", "memory", "namespace", "queue", "levels")
"""The options of launchers that start pods."""


def _complete(written: Mapping[str, Any]) -> Iterable[Diagnostic]:
    return ()


def _consistent(plan: Plan, written: Mapping[str, Any]) -> Iterable[tuple[KeyPath, Diagnostic]]:
    return ()


@frozen(kw_only=True)
class ObjectFile:
    """The file of a launcher that is an object of Kubernetes which starts pods, beside a ConfigMap with the plan.

    ``compose`` returns the object for a plan with this text, as a tree of what rankplan writes: `USER` where a field is
    the user's, `ABSENT` where there must be none. Merging with a base, and the comparison of a file with its plan,
    follow from that tree. ``kinds`` are the kinds of the object, with the value of ``--kind`` for each. ``missing``
    yields the faults of a merged object without something that neither the plan nor the base states,
    ``contradicting`` those of fields of the user that the plan cannot follow, each with its path.
    """

    compose: Callable[[Draft, str], dict[str, Any]]
    kinds: Mapping[str, str]
    missing: Callable[[Mapping[str, Any]], Iterable[Diagnostic]] = _complete
    contradicting: Callable[[Plan, Mapping[str, Any]], Iterable[tuple[KeyPath, Diagnostic]]] = _consistent

    def write(self, draft: Draft) -> str:
        """Return the ConfigMap and the object of a draft, merged with the base.

        A base that rankplan has written must be unchanged but for the user's parts; its plan is replaced.
        """
        kind = next(kind for kind, option in self.kinds.items() if option == draft.options.kind)
        file = draft.options.base
        base = [] if file is None else read_objects(file)
        users = next((each for each in base if each.kind == kind), None)
        if file is not None and users is None:
            kinds = ", ".join(dict.fromkeys(each.kind for each in base)) or "nothing"
            raise PlacementError([faults.no_object(file, kinds, kind)])
        was_emitted = users is not None and users.at("metadata", "annotations", PLAN) is not None
        emitted = self._read(base, file, [kind]) if file is not None and was_emitted else None
        if users is not None:
            draft.options = _named(draft.options, users)
        check_options(draft)
        check_hardware(draft)
        text = plan_text(portable(draft.plan))
        holder = _holder(base)
        held = plan_map(draft, text)
        started = self.compose(draft, text)
        if holder is not None and emitted is None:
            draft.faults += _conflicts(held, holder)
        if users is None:
            started = merged(started, {})
        elif emitted is None:
            started = self._joined(draft, started, users)
        else:
            started = self._replaced(draft, emitted, started, users)
        draft.finish()
        _without_image(draft, started)
        _without_unused_memory(started)
        held = merged(held, {} if holder is None else holder.value)
        others = [each.value for each in base if each is not users and each is not holder]
        _note_large(draft, [held, started])
        return documents_text([held, started, *others])

    def _joined(self, draft: Draft, started: dict[str, Any], users: Object) -> Any:
        """Return rankplan's object with the fields of a user's own one; record where they contradict each other."""
        draft.faults += _conflicts(started, users)
        if draft.options.entrypoint is None:
            wrong = self.contradicting(draft.plan, users.value)
            draft.faults += [users.located(path, replace(fault, code=faults.CONFLICT)) for path, fault in wrong]
        return self._completed(draft, merged(started, users.value), users)

    def _replaced(self, draft: Draft, before: Emitted, started: dict[str, Any], users: Object) -> Any:
        """Return rankplan's object in place of one that it wrote ``before``, with the fields that are the user's.

        Record quantities of the user that are too small for this plan.
        """
        fields = released(self.compose(Draft(before.plan, before.options), plan_text(before.plan)), users.value)
        small = (each for each in contradictions(started, fields) if isinstance(each.ours, Least))
        draft.faults += [_conflict(users, each) for each in small]
        return self._completed(draft, merged(started, fields), users)

    def _completed(self, draft: Draft, started: Any, users: Object) -> Any:
        """Return a merged object; record what it lacks."""
        draft.faults += [users.located(("spec",), fault) for fault in self.missing(started)]
        return started

    def recognises(self, text: str) -> bool:
        """Whether a text has such an object; rankplan wrote it, if it also has the annotation of a plan."""
        return re.search(rf"^kind: ['\"]?({'|'.join(self.kinds)})\b", text, re.MULTILINE) is not None

    def read(self, file: str, text: str) -> Emitted:
        """Return the plan and the options of a file.

        Raises `PlacementError`: ``emit-changed`` for every field that contradicts the plan.
        """
        return self._read(read_objects(file, text), file, self.kinds)

    def _read(self, objects: list[Object], file: str, kinds: Iterable[str]) -> Emitted:
        started = next(each for each in objects if each.kind in kinds)
        holder = _holder(objects)
        if holder is None:
            fault = started.located(("metadata", "annotations", PLAN), faults.no_plan_map())
            raise PlacementError([fault])
        plan = _plan(holder)
        changes: list[Diagnostic] = []
        options = replace(_options(started, plan, changes), base=file, kind=self.kinds[started.kind])
        if options.pin:
            plan = _with_hostnames(plan, started)
        saved = str(holder.at("data", "plan.json"))
        draft = Draft(plan, options)
        for expected, written in ((plan_map(draft, saved), holder), (self.compose(draft, saved), started)):
            differences = contradictions(expected, written.value)
            changes += [_changed(written, each) for each in differences if not _is_users(written, each.path)]
        changes += [started.located(path, fault) for path, fault in self.contradicting(plan, started.value)]
        changes += [started.located(("metadata",), fault) for fault in draft.faults]
        if changes:
            raise refusal(changes)
        return Emitted(plan, options)


def _note_large(draft: Draft, objects: Iterable[Mapping[str, Any]]) -> None:
    """Tell how to create objects that ``kubectl apply`` cannot: it keeps a copy of each in an annotation.

    Source: Kubernetes, apimachinery ``TotalAnnotationSizeLimitB``.
    """
    for each in objects:
        size = len(json.dumps(each, separators=(",", ":"), ensure_ascii=False).encode())
        if size > _MOST_ANNOTATED:
            draft.notes.append(
                f"the {each['kind']} has {size:,} bytes, and `kubectl apply` fails above {_MOST_ANNOTATED:,}: use "
                "`kubectl create` or `kubectl apply --server-side`"
            )


def _holder(objects: list[Object]) -> Object | None:
    """Return the ConfigMap with the plan."""
    maps = [each for each in objects if each.kind == "ConfigMap" and each.at("data", "plan.json") is not None]
    marked = (each for each in maps if each.at("metadata", "annotations", PLAN) is not None)
    return next(marked, next(iter(maps), None))


def _conflicts(ours: Mapping[str, Any], users: Object) -> Iterable[Diagnostic]:
    """Return the conflicts of the user's object with what rankplan writes.

    A field of the group for all groups may contradict each of them, and is one fault.
    """
    differences = contradictions(ours, users.value)
    return dict.fromkeys(_conflict(users, each) for each in differences if each.users is not ABSENT)


def _named(options: Options, users: Object) -> Options:
    """Return the options with the name, the namespace and the queue of the user's object, unless others are given."""
    queue, namespace = users.at("metadata", "labels", QUEUE), users.at("metadata", "namespace")
    if options.queue is None and isinstance(queue, str):
        options = replace(options, queue=queue)
    if options.namespace is None and isinstance(namespace, str):
        options = replace(options, namespace=namespace)
    return options if options.named or users.name is None else replace(options, name=users.name)


def _conflict(users: Object, contradiction: Contradiction) -> Diagnostic:
    field = _field(users, contradiction.path)
    if (name := _unknown(contradiction)) is not None:
        fault = faults.unknown_group(name)
    elif contradiction.ours is ABSENT:
        fault = faults.unplanned_field(field, contradiction.users)
    else:
        fault = faults.other_value(field, contradiction.users, contradiction.ours)
    return users.located(contradiction.path, fault)


def _field(users: Object, path: KeyPath) -> str:
    """Return a field as messages name it: its key, and the name of the object in a list that it is in."""
    key = next((str(part) for part in reversed(path) if not isinstance(part, int)), "the object")
    name = next((name for end in range(len(path) - 1, 0, -1) if (name := _name(users.at(*path[:end])))), None)
    return f"`{key}`" if name is None else f"`{key}` of {name}"


def _unknown(contradiction: Contradiction) -> str | None:
    """Return the name of an object of the user that the plan does not have."""
    return _name(contradiction.users) if contradiction.ours is ABSENT else None


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


def _without_unused_memory(value: Any) -> None:
    """Remove rankplan's volume for shared memory from pods whose containers all have another one there."""
    if isinstance(value, dict):
        volumes = value.get("volumes")
        if isinstance(volumes, list) and MEMORY_VOLUME["name"] not in _mounted_volumes(value):
            value["volumes"] = [volume for volume in volumes if volume != MEMORY_VOLUME]
        for part in value.values():
            _without_unused_memory(part)
    elif isinstance(value, list):
        for part in value:
            _without_unused_memory(part)


def _mounted_volumes(pod: Mapping[str, Any]) -> set[str]:
    """Return the names of the volumes that the containers of a pod mount."""
    names = set()
    for kind in ("initContainers", "containers"):
        containers = pod.get(kind)
        for container in containers if isinstance(containers, list) else ():
            mounts = container.get("volumeMounts") if isinstance(container, Mapping) else None
            for mount in mounts if isinstance(mounts, list) else ():
                name = mount.get("name") if isinstance(mount, Mapping) else None
                if isinstance(name, str):
                    names.add(name)
    return names


def _plan(holder: Object) -> Plan:
    path: KeyPath = ("data", "plan.json")
    try:
        return Plan.from_dict(json.loads(str(holder.at(*path))))
    except PlacementError as error:
        raise PlacementError([holder.located(path, fault) for fault in error.diagnostics]) from None
    except (ValueError, RecursionError):
        raise PlacementError([holder.located(path, faults.plan_not_json())]) from None


def _options(started: Object, plan: Plan, changes: list[Diagnostic]) -> Options:
    """Return the options that the fields of the object show."""
    path: KeyPath = ("metadata", "annotations", OPTIONS)
    kept = options_read(str(started.at(*path) or ""))
    if kept is None:
        changes.append(started.located(path, faults.no_options(OPTIONS, started.at(*path))))
        kept = {}, {}, False
    commands: dict[str, str] = {}
    ports: Counter[int] = Counter()
    names = list(plan)
    for option, value in _command_options(started.value):
        name, _, rest = value.replace("$$", "$").partition("=")
        if option == "--run":
            commands.setdefault(name, rest)
        elif option == "--master" and name in names and (port := _PORT.search(rest)) is not None:
            ports[int(port[1]) - names.index(name)] += 1
    script = _script(started.value) if not commands else None
    entrypoint = None if script is None else entrypoint_read(plan, script)
    started_by = {"entrypoint": entrypoint, "commands": commands}
    found = Options(**started_by, levels=kept[0], resource_keys=kept[1], pin=kept[2], named=True)  # type: ignore[arg-type]
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


def _script(value: Any) -> str | None:
    """Return the script of the first pod that starts Ray, as the kubelet passes it on."""
    if isinstance(value, list):
        return next((script for part in value if (script := _script(part)) is not None), None)
    if not isinstance(value, Mapping):
        return None
    words = value.get("command")
    if isinstance(words, list) and words[:2] == ["bash", "-c"] and len(words) == 3:
        return str(words[2]).replace("$$", "$")
    return _script(list(value.values()))


def _changed(users: Object, contradiction: Contradiction) -> Diagnostic:
    field = _field(users, contradiction.path)
    if (name := _unknown(contradiction)) is not None:
        fault = faults.changed_group(name)
    elif contradiction.users is ABSENT:
        fault = faults.lost_field(field, contradiction.ours)
    elif contradiction.ours is ABSENT:
        fault = faults.added_field(field, contradiction.users)
    else:
        fault = faults.changed_field(field, *_different_lines(contradiction.users, contradiction.ours))
    return users.located(contradiction.path, fault)


def _different_lines(users: Any, ours: Any) -> tuple[Any, Any]:
    """Return the first lines of two scripts that differ; other values as they are."""
    if not (isinstance(users, str) and isinstance(ours, str) and "\n" in ours):
        return users, ours
    pairs = zip_longest(users.split("\n"), ours.split("\n"), fillvalue="")
    return next(((line, planned) for line, planned in pairs if line != planned), (users, ours))


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

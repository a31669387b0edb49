"""Objects of Kubernetes as files of launchers: written with the user's own parts, recognised, and read back."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    AnnotatedOptions,
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
        users: Object | None = None
        emitted: Emitted | None = None
        if file is not None:
            users = _object_of_kind(base, file, kind)
            if users.at("metadata", "annotations", PLAN) is not None:
                emitted = self._read(base, file, [kind])
            draft.options = _named(draft.options, users)
        check_options(draft)
        check_hardware(draft)
        text = plan_text(portable(draft.plan))
        planned_map = plan_map(draft, text)
        users_map = _plan_map(base)
        started = self.compose(draft, text)
        if users_map is not None and emitted is None:
            draft.faults += _conflicts(planned_map, users_map)
        if users is None:
            started = merged(started, {})
        elif emitted is None:
            started = self._joined(draft, started, users)
        else:
            started = self._replaced(draft, emitted, started, users)
        draft.finish()
        _add_image(draft, started)
        _remove_unused_memory(started)
        planned_map = merged(planned_map, {} if users_map is None else users_map.value)
        others = [each.value for each in base if each is not users and each is not users_map]
        _note_large(draft, [planned_map, started])
        return documents_text([planned_map, started, *others])

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
        written_map = _plan_map(objects)
        if written_map is None:
            fault = started.located(("metadata", "annotations", PLAN), faults.no_plan_map())
            raise PlacementError([fault])
        plan = _plan(written_map)
        changes: list[Diagnostic] = []
        options = replace(_options(started, plan, changes), base=file, kind=self.kinds[started.kind])
        if options.pin:
            plan = _with_hostnames(plan, started)
        saved = str(written_map.at("data", "plan.json"))
        draft = Draft(plan, options)
        changes += _changed_fields(plan_map(draft, saved), written_map)
        changes += _changed_fields(self.compose(draft, saved), started)
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


def _object_of_kind(objects: Sequence[Object], file: str, kind: str) -> Object:
    """Return the first object of this kind in a base. Raises `PlacementError` if there is none."""
    for each in objects:
        if each.kind == kind:
            return each
    kinds = ", ".join(dict.fromkeys(each.kind for each in objects)) or "nothing"
    raise PlacementError([faults.no_object(file, kinds, kind)])


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all mappings in a tree, the outer ones first."""
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from _mappings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _mappings(part)


def _items(value: Any) -> list[dict[str, Any]]:
    """Return the mappings in a list, none of any other value: a user's file may have anything anywhere."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _plan_map(objects: Sequence[Object]) -> Object | None:
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


def _add_image(draft: Draft, started: Any) -> None:
    """Write a placeholder where nobody has stated an image, and tell it."""
    for pod in _mappings(started):
        containers = pod.get("containers")
        first = containers[0] if isinstance(containers, list) and containers else None
        if not isinstance(first, dict) or "name" not in first or "image" in first:
            continue
        fields = {**first}
        first.clear()
        first.update({"name": fields.pop("name"), "image": PLACEHOLDER, **fields})
        note = f"no image is stated; replace {PLACEHOLDER}, or pass --image"
        if note not in draft.notes:
            draft.notes.append(note)


def _remove_unused_memory(started: Any) -> None:
    """Remove rankplan's volume for shared memory from pods whose containers all have another one there."""
    for pod in _mappings(started):
        volumes = pod.get("volumes")
        if isinstance(volumes, list) and MEMORY_VOLUME["name"] not in _mounted_volumes(pod):
            pod["volumes"] = [volume for volume in volumes if volume != MEMORY_VOLUME]


def _mounted_volumes(pod: Mapping[str, Any]) -> set[Any]:
    """Return the names of the volumes that the containers of a pod mount."""
    containers = [*_items(pod.get("initContainers")), *_items(pod.get("containers"))]
    mounts = [mount for container in containers for mount in _items(container.get("volumeMounts"))]
    return {mount["name"] for mount in mounts if isinstance(mount.get("name"), str)}


def _plan(written_map: Object) -> Plan:
    path: KeyPath = ("data", "plan.json")
    try:
        return Plan.from_dict(json.loads(str(written_map.at(*path))))
    except PlacementError as error:
        raise PlacementError([written_map.located(path, fault) for fault in error.diagnostics]) from None
    except (ValueError, RecursionError):
        raise PlacementError([written_map.located(path, faults.plan_not_json())]) from None


def _options(started: Object, plan: Plan, changes: list[Diagnostic]) -> Options:
    """Return the options that the fields of the object show."""
    path: KeyPath = ("metadata", "annotations", OPTIONS)
    annotated = options_read(str(started.at(*path) or ""))
    if annotated is None:
        changes.append(started.located(path, faults.no_options(OPTIONS, started.at(*path))))
        annotated = AnnotatedOptions({}, {}, pin=False)
    commands: dict[str, str] = {}
    ports: Counter[int] = Counter()
    names = list(plan)
    for option, value in _command_options(started.value):
        name, _, argument = value.replace("$$", "$").partition("=")
        if option == "--run":
            commands.setdefault(name, argument)
        elif name in names and (port := _PORT.search(argument)) is not None:
            ports[int(port[1]) - names.index(name)] += 1
    script = None if commands else _script(started.value)
    options = Options(
        entrypoint=None if script is None else entrypoint_read(plan, script),
        commands=commands,
        levels=annotated.levels,
        resource_keys=annotated.resource_keys,
        pin=annotated.pin,
        named=True,
    )
    if ports:
        [(port_of_first, _)] = ports.most_common(1)
        options = replace(options, port=port_of_first)
    return _named(replace(options, name=started.name or options.name), started)


def _command_options(started: Any) -> Iterator[tuple[str, str]]:
    """Yield ``--run`` and ``--master`` with their values in the commands of all containers of an object."""
    for container in _mappings(started):
        words = container.get("command")
        for option, argument in pairwise(words if isinstance(words, list) else []):
            if isinstance(argument, str) and option in ("--run", "--master"):
                yield option, argument


def _script(started: Any) -> str | None:
    """Return the script of the first pod that starts Ray, as the kubelet passes it on."""
    for container in _mappings(started):
        words = container.get("command")
        if isinstance(words, list) and words[:2] == ["bash", "-c"] and len(words) == 3:
            return str(words[2]).replace("$$", "$")
    return None


def _changed_fields(planned: Mapping[str, Any], users: Object) -> Iterator[Diagnostic]:
    """Yield the fields of an object that are not as planned, but for those that are the user's."""
    for difference in contradictions(planned, users.value):
        if not _is_users(users, difference.path):
            yield _changed(users, difference)


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


def _pinned(started: Any) -> Iterator[tuple[int, str]]:
    """Yield the node rank and the host of each pod that is pinned."""
    for pod in _mappings(started):
        selector = pod.get("nodeSelector")
        host = selector.get(HOSTNAME) if isinstance(selector, dict) else None
        if not isinstance(host, str):
            continue
        for container in _items(pod.get("containers")):
            for variable in _items(container.get("env")):
                rank = str(variable.get("value"))
                if variable.get("name") == NODE_RANK and rank.isdecimal() and len(rank) < 9:
                    yield int(rank), host

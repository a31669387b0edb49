"""What is wrapped in Ray: asking for placement groups, actors without one, and jobs. Imported together with Ray.

Like ``internals.py`` and ``head.py`` of ``rankplan.runtime.ray``, this file depends on private parts of Ray: the
key-value store, the table of actors, and the ids of actors. ``tests/runtime/test_pin.py`` exercises them.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import shlex
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any

from rankplan_hook.claims import Claim, Claims
from rankplan_hook.names import METADATA, NAMESPACE, VARIABLE, WRAPPED, job_environment, site
from rankplan_hook.pins import Asked, NotPlanned, Pins

_NODE = "ray.io/node-id"
_FRESH = 1.0


def wrap(module: ModuleType, *, loaded: bool = False) -> None:
    """Wrap the functions of a module of Ray, once. ``loaded``: other modules may have imported them from there."""
    for owner, name, wrapper in _wrappers(module):
        original = getattr(owner, name)
        if not hasattr(original, "_rankplan"):
            wrapped: Any = functools.wraps(original)(wrapper(original))
            wrapped._rankplan = True
            setattr(owner, name, wrapped)
            if loaded and owner is module:
                _exchange(original, wrapped)


def unwrap(module: ModuleType) -> None:
    """Undo `wrap`."""
    for owner, name, _ in _wrappers(module):
        wrapped = getattr(owner, name)
        if hasattr(wrapped, "_rankplan"):
            setattr(owner, name, wrapped.__wrapped__)
            if owner is module:
                _exchange(wrapped, wrapped.__wrapped__)


def _wrappers(module: ModuleType) -> list[tuple[Any, str, Callable[[Any], Any]]]:
    """Return the owner, the name and the wrapper of each function of a module of Ray to wrap."""
    wrappers = {
        "placement_group": _group,
        "remove_placement_group": _removal,
        "_remote": _actor,
        "submit_job": _job,
    }
    found: list[tuple[Any, str, Callable[[Any], Any]]] = []
    for path in WRAPPED[module.__name__]:
        owner, _, name = path.rpartition(".")
        found.append((getattr(module, owner) if owner else module, name, wrappers[name]))
    return found


def _exchange(before: Any, after: Any) -> None:
    """Exchange a function in all modules that have imported it, under any name."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        for name in [name for name, value in list((names or {}).items()) if value is before]:
            setattr(module, name, after)


def _group(original: Any) -> Any:
    signature = inspect.signature(original)

    def placement_group(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        values = given.arguments
        claims = _claims()
        if claims is None:
            return original(*args, **kwargs)
        sizes = _sizes(values.get("bundles"), claims.pins)
        if not any(sizes):
            return original(*args, **kwargs)
        cpus = tuple(_number(bundle.get("CPU", 0)) for bundle in values["bundles"])
        asked = Asked(sizes, values.get("name") or "", values.get("strategy") or "PACK", cpus=cpus)
        claim = _taken(claims, asked)
        if claim.nodes:
            selectors = values.get("bundle_label_selector") or [{}] * len(sizes)
            values["bundle_label_selector"] = [
                {_NODE: node, **selector} for node, selector in zip(claim.nodes, selectors)
            ]
            if asked.strategy == "STRICT_PACK" and _drops_selectors():
                values["strategy"] = "PACK"  # on one node, both are the same
        return _made(claims, claim, "group", lambda: original(*given.args, **given.kwargs), lambda group: group.id)

    return placement_group


def _drops_selectors() -> bool:
    """Whether this version of Ray ignores label selectors in STRICT_PACK groups (ray#60170)."""
    import ray

    return tuple(map(int, ray.__version__.split(".")[:2])) < (2, 60)


def _removal(original: Any) -> Any:
    def remove_placement_group(placement_group: Any) -> Any:
        done = original(placement_group)
        for claims in filter(None, _state.values()):
            claims.removed(placement_group.id.hex())
        return done

    return remove_placement_group


def _actor(original: Any) -> Any:
    def _remote(self: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        claims = None if options.get("get_if_exists") else _claims()  # Ray calls again if it does not exist
        size = _size(options, claims.pins) if claims is not None else 0
        if claims is None or not size or _is_placed(options):
            return original(self, args, kwargs, **options)
        cpus = options.get("num_cpus")
        held = (1.0 if cpus is None else _number(cpus),)  # Ray's own default, as it states accelerators
        claim = _taken(claims, Asked((size,), actor=str(self.__ray_metadata__.class_name), cpus=held))
        if claim.nodes:
            options["label_selector"] = {_NODE: claim.nodes[0], **(options.get("label_selector") or {})}
        start = functools.partial(original, self, args, kwargs, **options)
        return _made(claims, claim, "actor", start, lambda actor: actor._actor_id)

    return _remote


def _job(original: Any) -> Any:
    signature = inspect.signature(original)

    def submit_job(*args: Any, **kwargs: Any) -> Any:
        run = os.environ.get(VARIABLE)
        if run is None:
            return original(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        values = given.arguments
        try:
            values["runtime_env"] = job_environment(values.get("runtime_env") or {}, run)
        except ValueError as error:
            raise NotPlanned("not-pinned", str(error), "remove it from the job's runtime_env") from None
        # The driver of the job gets the hook by its entrypoint: Ray refuses a program that states one of the job's
        # env_vars again, as those do that pass on their whole environment.
        path = f'PYTHONPATH={shlex.quote(site())}"${{PYTHONPATH:+:$PYTHONPATH}}"'
        values["entrypoint"] = f"export {VARIABLE}={run} {path}; {values['entrypoint']}"
        values["metadata"] = {**(values.get("metadata") or {}), METADATA: run}
        return original(*given.args, **given.kwargs)

    return submit_job


def _taken(claims: Claims, asked: Asked) -> Claim:
    try:
        return claims.take(asked)
    except NotPlanned as refusal:
        fault = refusal.at(*_asking_line())
        content = {name: getattr(fault, name) for name in ("code", "message", "help", "file", "line")}
        key = f"{os.environ[VARIABLE]}/fault/{uuid.uuid4().hex}"
        _Store().put(key, json.dumps(content).encode(), overwrite=False)
        raise fault from None


def _asking_line() -> tuple[str, int]:
    """Return the file and the line of the program that ask: the nearest ones outside of Ray and this package."""
    import ray

    inside = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (__file__, ray.__file__))  # noqa: PTH100, PTH120
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def print_refusals_alone() -> None:
    """Let a program that ends by a refused request print that, without the traceback of its calls and of Ray's."""
    before = sys.excepthook
    if hasattr(before, "_rankplan"):
        return

    def excepthook(kind: Any, error: BaseException, traceback: Any) -> None:
        fault = getattr(error, "cause", error)  # of a task or an actor, Ray raises an error with this cause
        if isinstance(fault, NotPlanned):
            print(fault, file=sys.stderr)
        else:
            before(kind, error, traceback)

    excepthook._rankplan = True  # type: ignore[attr-defined]
    sys.excepthook = excepthook


def _made(claims: Claims, claim: Claim, kind: str, start: Callable[[], Any], id_of: Callable[[Any], Any]) -> Any:
    try:
        found = start()
    except BaseException:
        claims.void(claim)
        raise
    claims.made(claim, kind, id_of(found).hex())
    return found


def _sizes(given: Any, pins: Pins) -> tuple[float, ...]:
    """Return the accelerators of each bundle; nothing for bundles that Ray will refuse."""
    if not isinstance(given, list) or not all(isinstance(bundle, Mapping) for bundle in given):
        return ()
    return tuple(_total(bundle, pins) for bundle in given)


def _size(options: Mapping[str, Any], pins: Pins) -> float:
    """Return the accelerators that an actor with these options needs."""
    return _total({"GPU": options.get("num_gpus") or 0, **(options.get("resources") or {})}, pins)


def _total(resources: Mapping[str, Any], pins: Pins) -> float:
    return sum(_number(resources.get(name, 0)) for name in pins.resources)


def _number(amount: Any) -> float:
    return amount if isinstance(amount, (int, float)) else 0


def _is_placed(options: Mapping[str, Any]) -> bool:
    """Whether these options of an actor, or the process that asks for it, place it already."""
    import ray

    if options.get("scheduling_strategy") not in (None, "DEFAULT", "SPREAD"):
        return True
    group = options.get("placement_group", "default")
    if group not in (None, "default"):
        return not group.is_empty
    context = ray.get_runtime_context()
    captured = group == "default" and ray.util.get_current_placement_group() is not None
    return captured and bool(context.should_capture_child_tasks_in_placement_group)


_state: dict[str, Claims | None] = {}
_connecting = threading.Lock()


def _claims() -> Claims | None:
    """Return the claims of the run, for the job that this process is connected to.

    ``None`` without a connection, and for a job of another cluster that does not belong to the run. Raises `NotPlanned`
    if the job belongs to it, but its plan is gone.
    """
    import ray

    run = os.environ.get(VARIABLE)
    if run is None or not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    session = f"{run} {context.gcs_address} {context.get_job_id()}"
    with _connecting:
        if session not in _state:
            store = _Store()
            data = store.get(f"{run}/plan")
            if data is None and _job_metadata().get(METADATA) == run:
                raise _plan_is_gone(run, str(context.gcs_address)).at(*_asking_line())
            _state.clear()
            _state[session] = None if data is None else Claims(_decoded(data), store, run, str(context.get_job_id()))
        return _state[session]


def _job_metadata() -> Mapping[str, str]:
    """Return what the job of this process was started with, also in a worker process."""
    from ray._private import worker

    process: Any = worker.global_worker
    return dict(process.core_worker.get_job_config().metadata)


def _plan_is_gone(run: str, address: str) -> NotPlanned:
    message = f"this job belongs to run {run} of `rankplan pin`, whose plan is not in the head's store at {address}"
    help = (
        "`rankplan pin` has ended, and nothing would be pinned: run it as long as the job (`ray job submit` without "
        "--no-wait), on the cluster that the job joins"
    )
    return NotPlanned("not-pinned", message, help)


def _decoded(data: bytes) -> Pins:
    try:
        return Pins.decoded(data)
    except ValueError as error:
        message = f"the plan of `rankplan pin` in the head's store cannot be read: {error}"
        help = "install the same version of rankplan on every node and in the program's environment"
        raise NotPlanned("not-pinned", message, help) from None


class _Store:
    """The key-value store and the tables of the head, from a process that is connected to Ray."""

    _nodes: tuple[float, dict[str, tuple[bool, str]]] = (-_FRESH, {})

    def put(self, key: str, value: bytes, *, overwrite: bool) -> bool:
        from ray.experimental.internal_kv import _internal_kv_put

        return not _internal_kv_put(key, value, overwrite, namespace=NAMESPACE)

    def get(self, key: str) -> bytes | None:
        from ray.experimental.internal_kv import _internal_kv_get

        found: bytes | None = _internal_kv_get(key, namespace=NAMESPACE)
        return found

    def keys(self, prefix: str) -> list[str]:
        from ray.experimental.internal_kv import _internal_kv_list

        return [key.decode() for key in _internal_kv_list(prefix, namespace=NAMESPACE)]

    def living(self, kind: str) -> Collection[str]:
        import ray

        if kind == "group":
            return {id for id, entry in ray.util.placement_group_table().items() if entry["state"] != "REMOVED"}
        from ray._private.state import actors

        return {id for id, entry in actors().items() if entry["State"] != "DEAD"}

    def nodes(self) -> Mapping[str, tuple[bool, str]]:
        import ray

        read, known = self._nodes
        if time.monotonic() - read > _FRESH:
            known = {entry["NodeID"]: (bool(entry["Alive"]), entry["NodeManagerAddress"]) for entry in ray.nodes()}
            self._nodes = time.monotonic(), known
        return known

"""Ray's private modules, message texts, command lines and undocumented state.

Besides this file, only ``head.py`` uses some, and ``rankplan_hook/wrap.py``, which imports nothing of rankplan.

Each function is exercised on a real cluster by ``tests/runtime/test_internals.py``, those for joining a cluster by
``test_joining.py``, the handling of SIGTERM by ``test_failures.py``; these fail when a new version of Ray changes what
the function relies on.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import tempfile
import threading
from collections.abc import Container, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from logging import CRITICAL, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray._private import accelerators, services, state, utils, worker
from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled; the stubs do not have it
from ray.core.generated import common_pb2
from ray.exceptions import OutOfMemoryError, RayActorError, RaySystemError
from ray.util.placement_group import PlacementGroup, placement_group_table

from rankplan.runtime.ray.asking import ask

_tokens: Any
try:
    from ray._private.authentication import authentication_token_setup as _tokens
except ImportError:  # older versions of Ray have no tokens
    _tokens = None

if TYPE_CHECKING:
    from ray.actor import ActorHandle

_Common: Any = common_pb2  # generated at run time

# Ray would print every failed answer that nobody fetched, with its pickled bytes; a call reports the first one itself.
os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")

SIMULATED_HEAD = {"include_dashboard": False, "no_monitor": True}
"""Options of ``cluster_utils`` for a head without services that nobody uses."""

SIMULATED_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # The nodes share the cores of one machine: start a few processes at a time, and do not warn of many.
    "RAY_worker_maximum_startup_concurrency": str(4 * (os.cpu_count() or 1)),
    # Ray would start one process for each declared CPU at once.
    "RAY_prestart_worker_first_driver": "0",
}
"""Environment of the processes of a simulated cluster."""

LONGEST_FOLDER = 17
"""Characters of the parent of ``RAY_TMPDIR``: Ray's socket in there adds 90, and the system allows 107."""

_SETTINGS_FRAME = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS_FRAME


def running_cluster(address: str | None) -> str | None:
    """Return host:port of the cluster that ``ray.init(address)`` would join, or ``None`` if it would start one."""
    with _silent("ray._private.services"):  # ray.init warns of several clusters
        found: str | None = services.canonicalize_bootstrap_address(address)  # type: ignore[arg-type]  # None is fine
    return found


@contextmanager
def signals_apart() -> Iterator[None]:
    """Let Ray, when it starts or connects, set no handler of SIGTERM, and start its processes in their own sessions.

    A closing terminal or a batch system signals the whole process group of the driver, which has to end its ranks
    before Ray ends.
    """
    replaced = utils.set_sigterm_handler, services.ConsolePopen
    utils.set_sigterm_handler = lambda handler: None
    services.ConsolePopen = partial(services.ConsolePopen, start_new_session=True)  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        utils.set_sigterm_handler, services.ConsolePopen = replaced  # type: ignore[misc]


def keep_handler(number: int) -> None:
    """Let ``ray.shutdown`` in the main thread, also at exit, leave a signal handled as Python knows it.

    Ray's C++ part sets the default handler, and one more SIGTERM would kill the program in its cleanup. Right after
    that, Ray disconnects its state.
    """
    if "disconnect" in vars(state.state):
        return
    usual = state.state.disconnect

    def disconnect() -> None:
        handler = signal.getsignal(number)
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(number, handler)
        usual()  # type: ignore[no-untyped-call]

    state.state.disconnect = disconnect  # type: ignore[method-assign]


def is_driver() -> bool:
    """Whether this process is connected to Ray as a driver, not as a task or an actor."""
    return worker.global_worker.mode == worker.SCRIPT_MODE


def greet(address: str, timeout: float) -> None:
    """Raise ``OSError`` unless a gRPC server, such as a Ray head, answers at host:port."""
    with _connected(address, timeout) as head:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return
        head.sendall(_GREETING)
        answer = head.recv(len(_SETTINGS_FRAME))
        if answer[3:4] != _SETTINGS_FRAME[3:4]:
            raise OSError("the server there is not a Ray head, whose port is 6379 unless set otherwise")


def offer_token(address: str | None) -> None:
    """Prepare the token of this machine, from Ray 2.60 on, as ``ray.init`` does for a cluster that it finds itself."""
    given = address not in (None, "auto") or os.environ.get("RAY_ADDRESS", "auto") not in ("", "auto")
    if given or not hasattr(_tokens, "maybe_enable_token_auth_if_token_available"):
        return
    with _silent("ray._private.authentication"):  # its advice is meant for those who start a cluster
        _tokens.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def introduce(address: str) -> None:
    """Raise Ray's error at once if the head refuses this process; ``ray.init`` takes 20 seconds and names no cause."""
    if _tokens is not None:
        _tokens.ensure_token_if_auth_enabled(None, create_token_if_missing=False)
    with _error_instead_of_log():
        GcsClient(address=address)


def unused_token() -> bool:
    """Whether this machine has a token that Ray does not use, because the address was given."""
    if _tokens is None or os.environ.get("RAY_AUTH_MODE") is not None:
        return False
    return bool(_tokens.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True))


def connection_fault(error: BaseException) -> str:
    """Return why Ray could not connect: its message, and the cause below it."""
    text, cause = str(error), error.__cause__
    lines = [line.strip() for line in str(cause or "").splitlines() if line.strip()]
    if not lines or lines[-1] in text:
        return text
    below = re.sub(r"^[\w.]+(Error|Exception): ", "", lines[-1])  # the last line of a traceback
    return f"{text}: {below}"


def lost_connection(timeout: float) -> str | None:
    """Return which part of Ray has ended under this driver, if any; Ray ends the driver itself later, and silently."""
    node: Any = worker.global_worker.node
    if node is None:
        return None  # inside a Ray task or actor, which ends with its raylet
    try:
        with socket.socket(socket.AF_UNIX) as raylet:
            raylet.settimeout(timeout)
            raylet.connect(node.raylet_socket_name)
    except OSError:
        return "Ray has ended on this machine"
    try:
        greet(node.gcs_address, timeout)
    except OSError as error:
        return f"the Ray head at {node.gcs_address} does not answer ({error})"
    return None


def accepts(address: str, timeout: float) -> bool:
    """Whether a process listens at host:port."""
    try:
        _connected(address, timeout).close()
    except OSError:
        return False
    return True


def answers(address: str, timeout: float) -> bool:
    """Whether a Ray head answers at host:port."""
    try:
        greet(address, timeout)
    except OSError:
        return False
    return True


def _connected(address: str, timeout: float) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host.strip("[]"), int(port)), timeout=timeout)


def accelerator_managers(resources: Mapping[str, float]) -> set[str]:
    """Return the names of Ray's classes that found accelerators on this node, given the node's resources."""
    present = [name for name, count in resources.items() if count]
    found: set[Any] = {accelerators.get_accelerator_manager_for_resource(name) for name in present}
    return {manager.__name__ for manager in found - {None}}


def quiet_detection() -> AbstractContextManager[None]:
    """Silence Ray's search for the models of declared accelerators, which reports that they do not exist."""
    return _silent("ray._private.accelerators")


@contextmanager
def _silent(module: str) -> Iterator[None]:
    """Silence the log of a module of Ray and those below it."""
    logger = getLogger(module)
    level = logger.level
    logger.setLevel(CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _error_instead_of_log() -> Iterator[None]:
    """Hold back what Ray's C++ part writes to stderr; if an error follows, drop it, because the error says the same."""
    try:
        shown = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    try:
        with tempfile.TemporaryFile() as held_back:
            os.dup2(held_back.fileno(), 2)
            try:
                yield
            finally:
                os.dup2(shown, 2)
            held_back.seek(0)
            with suppress(OSError):
                os.write(2, held_back.read())
    finally:
        os.close(shown)


def available_resources() -> dict[str, dict[str, float]]:
    """Return the available resources of each live node, by Ray's node id."""
    available: dict[str, dict[str, float]] = ask(state.available_resources_per_node)
    return available


def worker_ports() -> Container[int]:
    """Return the ports that the raylet of this process gives to workers, read from the raylet's command line."""
    try:
        command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ()
    if listed := re.search(r"--worker_port_list=([\d,]+)", command):  # takes precedence over the bounds
        return {int(port) for port in listed[1].split(",") if port}
    bounds = [re.search(rf"--{name}_worker_port=(\d+)", command) for name in ("min", "max")]
    first, last = (int(bound[1]) if bound else 0 for bound in bounds)
    return range(first, last + 1) if first else ()


def granted(group: PlacementGroup) -> bool | None:
    """Whether Ray has placed this group, or refused or removed it; ``None`` while it has not tried."""
    entry = ask(lambda: placement_group_table(group))
    if not entry or entry["state"] == "CREATED":
        return bool(entry)
    return False if entry["stats"]["scheduling_state"] in ("NO_RESOURCES", "INFEASIBLE", "REMOVED") else None


def has_process(actor: ActorHandle[Any]) -> bool:
    """Whether an actor has a process that runs its code."""
    return bool(ask(lambda: state.actors(actor_id(actor)))["State"] == "ALIVE")


def dead_actors() -> set[str]:
    """Return the hexadecimal ids of this program's actors that are dead for good."""
    job = worker.global_worker.current_job_id
    return set(ask(lambda: state.actors(job_id=job, actor_state_name="DEAD")))


def own_address() -> str:
    """Return the host:port at which other processes of Ray reach this one."""
    process: Any = worker.global_worker
    address = _Common.Address.FromString(process.core_worker.get_owner_address(ray.put(None)))
    return f"{address.ip_address}:{address.port}"


def actor_id(actor: ActorHandle[Any]) -> str:
    """Return the hexadecimal id of an actor."""
    return str(actor._actor_id.hex())


def is_termination(error: BaseException) -> bool:
    """Whether this is the exception by which Ray ends an actor that was sent SIGTERM."""
    return hasattr(error, "ray_terminate_msg")


_DEATH_HEADER = ("class_name:", "actor_id:", "pid:", "namespace:", "ip:", "name:")


def death(error: RayActorError) -> str:
    """Return why an actor has died, on one line."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines()[1:]]
    reason = " ".join(line for line in lines if line and not line.startswith(_DEATH_HEADER)) or text
    if "its node has died" in reason:
        why = re.search(r"terminated \w+: (.*?)( The actor never ran|$)", reason)
        return f"its node has died ({why[1]})" if why else "its node has died"
    if "ray.kill" in reason:
        return "it was ended, with its group or by ray.kill"
    if "SIGTERM" in reason:
        return "it was ended by SIGTERM"
    if "User requested to exit" in reason or reason.endswith("exit_actor() is called."):
        return "it exited"
    if exited := re.search(r"exit code (.+?)\.$", reason):
        return f"it exited (code {exited[1]})"
    if "End of file" in reason:
        return "it exited without reporting an error (killed, out of memory, or a crash)"
    return reason.rsplit("Worker exit detail:", 1)[-1].split(" Some common causes")[0].strip()


def memory_shortage(error: OutOfMemoryError) -> str:
    """Return how much memory a node used when Ray killed a process there."""
    used = re.search(r"was (\S+ used / \S+) limit", str(error))
    return f"its node ran low on memory ({used[1]})" if used else "its node ran low on memory"


def unloadable(error: RaySystemError) -> Exception | None:
    """Return the exception that loading an answer raised, if this error reports one."""
    return error.client_exc if isinstance(error.client_exc, Exception) else None


def sending_fault(error: TypeError) -> BaseException:
    """Return why an argument cannot be pickled, without Ray's report of many lines."""
    return error.__cause__ or error

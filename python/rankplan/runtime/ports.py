"""Ports for the processes of a run: consecutive ones that are free, found on the node itself, handed out once."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Container, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from rankplan.errors import LaunchError

FIRST, LAST = 20_000, 32_767
"""Above the ports of Ray's workers (10002 to 19999, unless it was told otherwise), and below Linux's ephemeral ones."""

_ROOM = 2_000  # ports that are enough for a run; where fewer are below the ephemeral ones, these are taken too
_CHOICE = 64  # ports that a node is given to find one block in
_APART = 997  # programs that are started one after the other begin so far apart: neither knows what the other takes


class Ports:
    """What this run has handed out, by machine. May be used from several threads."""

    def __init__(self) -> None:
        self._taken: dict[str, set[int]] = {}
        self._next: dict[str, int] = {}
        self._lock = threading.Lock()

    def choice(self, machine: str, count: int) -> range:
        """Take consecutive ports of a machine, more than ``count``, for a process there to find a free block in.

        Raises ``LaunchError`` when there are not so many left.
        """
        size, last = max(_CHOICE, 2 * count), _last()
        with self._lock:
            taken = self._taken.setdefault(machine, set())
            start = _gap(taken, self._next.get(machine, FIRST + os.getpid() * _APART % (last - FIRST)), last, size)
            if start is None:
                start = _gap(taken, FIRST, last, size)
            if start is None:
                most = (last - FIRST + 1) // 2
                cure = "shut groups down" if count <= most else f"a block has at most {most}"
                raise LaunchError(f"no {size} ports in a row are left between {FIRST} and {last} on {machine}; {cure}")
            taken.update(range(start, start + size))
            self._next[machine] = start + size
            return range(start, start + size)

    def give_back(self, machine: str, ports: Iterable[int]) -> None:
        """Let these ports be handed out again."""
        with self._lock:
            self._taken.get(machine, set()).difference_update(ports)


PORTS = Ports()
"""Those of this process, whatever clusters it is connected to one after another."""


def _last() -> int:
    """Return the last port to hand out: below this machine's ephemeral ones, as others' are mostly the same."""
    below = _ephemeral().start - 1
    return below if FIRST + _ROOM <= below < LAST else LAST


def _gap(taken: set[int], start: int, last: int, size: int) -> int | None:
    """Return the first of so many ports in a row, none above ``last``, that are not taken, from ``start`` on."""
    while start + size - 1 <= last:
        last_taken = next((port for port in range(start + size - 1, start - 1, -1) if port in taken), None)
        if last_taken is None:
            return start
        start = last_taken + 1
    return None


def free_block(choice: range, count: int) -> int | None:
    """Return the first port of a block of ``count`` that nothing on this machine uses, or ``None`` without any.

    It is clear of the ports that Ray's workers here may get, and of the ephemeral ones where that can be.
    """
    ephemeral, workers = _ephemeral(), _of_ray()
    clear = [port for port in choice if port not in workers]
    allowed = [port for port in clear if port not in ephemeral] or clear
    start = 0
    while start + count <= len(allowed):
        block = range(allowed[start], allowed[start] + count)
        busy = next((port for port in block if port not in allowed or not _is_free(port)), None)
        if busy is None:
            return block[0]
        start = next((index for index, port in enumerate(allowed) if port > busy), len(allowed))
    return None


def _is_free(port: int) -> bool:
    with ExitStack() as sockets:
        for family, address in _families():
            probe = sockets.enter_context(socket.socket(family))
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True


def _families() -> Iterator[tuple[socket.AddressFamily, str]]:
    yield socket.AF_INET, "0.0.0.0"
    if socket.has_ipv6 and Path("/proc/net/if_inet6").exists():
        yield socket.AF_INET6, "::"


def _ephemeral() -> range:
    """The ports that this machine gives to connections of its own."""
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except OSError:
        return range(LAST + 1, 65_536)
    return range(int(first), int(last) + 1)


def _of_ray() -> Container[int]:
    """The ports that the raylet of this process gives to workers, as its command line says."""
    try:
        command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ()
    if listed := re.search(r"--worker_port_list=([\d,]+)", command):  # counts in place of the bounds
        return {int(port) for port in listed[1].split(",") if port}
    bounds = [re.search(rf"--{name}_worker_port=(\d+)", command) for name in ("min", "max")]
    first, last = (int(bound[1]) if bound else 0 for bound in bounds)
    return range(first, last + 1) if first else ()

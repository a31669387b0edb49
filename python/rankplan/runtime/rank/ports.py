"""Blocks of consecutive free ports: found on the node itself, and handed out once."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rankplan.errors import LaunchError
from rankplan.runtime.ray.internals import worker_ports

FIRST, LAST = 20_000, 32_767
"""Above the default ports of Ray's workers (10002 to 19999), and below Linux's ephemeral ports."""

_ROOM = 2_000  # enough ports for a run; if fewer lie below the ephemeral ones, these are used too
_CHOICE = 64  # ports among which a node finds one block
_APART = 997  # distance between the first ports of programs started one after another: they do not know each other


class Ports:
    """The ports that this program has handed out, by holder and machine. Thread-safe.

    Ports have a holder from the first moment, so that an interrupt loses none: a search (`searching`), then a group.
    """

    def __init__(self) -> None:
        self._held: dict[object, dict[str, set[int]]] = {}
        self._next: dict[str, int] = {}
        self._lock = threading.Lock()

    @contextmanager
    def searching(self) -> Iterator[object]:
        """Yield a holder for a search, which returns everything at its end that was not moved to another holder."""
        search = object()
        try:
            yield search
        finally:
            self.give_back_all(search)

    def choice(self, holder: object, machine: str, count: int) -> range:
        """Take more than ``count`` consecutive ports of a machine, among which a process there finds a free block."""
        size, last = max(_CHOICE, 2 * count), _last()
        with self._lock:
            taken = self.taken(machine)
            following = self._next.get(machine, FIRST + os.getpid() * _APART % (last - FIRST))
            start = None
            for first in (following, FIRST):
                start = start or _first_run((port for port in range(first, last + 1) if port not in taken), size)
            if start is None:
                most = (last - FIRST + 1) // 2
                cure = "shut down some groups" if count <= most else f"a block has at most {most}"
                raise LaunchError(f"no {size} ports in a row are left between {FIRST} and {last} on {machine}; {cure}")
            self._held.setdefault(holder, {}).setdefault(machine, set()).update(range(start, start + size))
            self._next[machine] = start + size
            return range(start, start + size)

    def give_back(self, holder: object, machine: str, ports: Iterable[int]) -> None:
        """Return those of these ports that the holder has."""
        with self._lock:
            self._held.get(holder, {}).get(machine, set()).difference_update(ports)

    def move(self, holder: object, heir: object) -> None:
        """Hand all ports of a holder over to another one."""
        with self._lock:
            given, kept = self._held.get(holder, {}), self._held.get(heir, {})
            both = {name: given.get(name, set()) | kept.get(name, set()) for name in given.keys() | kept.keys()}
            others = {one: ports for one, ports in self._held.items() if one not in (holder, heir)}
            self._held = {**others, heir: both}  # in one step, for an interrupt

    def give_back_all(self, holder: object) -> None:
        """Return all ports of a holder."""
        with self._lock:
            self._held.pop(holder, None)

    def taken(self, machine: str) -> set[int]:
        """Return the ports of a machine that have a holder."""
        return set().union(*(ports.get(machine, ()) for ports in list(self._held.values())))


PORTS = Ports()
"""The ports of this process, for all clusters that it connects to."""


def _last() -> int:
    """Return the last port to hand out: below the ephemeral ports of this machine, which other nodes mostly share."""
    below = _ephemeral().start - 1
    return below if FIRST + _ROOM <= below < LAST else LAST


def _first_run(ports: Iterable[int], size: int) -> int | None:
    """Return the first of ``size`` consecutive ones of these ports, which ascend."""
    run, before = 0, -1
    for port in ports:
        run, before = run + 1 if port == before + 1 else 1, port
        if run == size:
            return port - size + 1
    return None


def free_block(choice: range, count: int) -> int | None:
    """Return the first port of a block that nothing here uses, nor Ray's workers, nor, if possible, the system."""
    ephemeral, workers = _ephemeral(), worker_ports()
    clear = [port for port in choice if port not in workers]
    allowed = [port for port in clear if port not in ephemeral] or clear
    return _first_run(filter(_is_free, allowed), count)


def _is_free(port: int) -> bool:
    both = socket.has_dualstack_ipv6()  # such a socket takes the port of IPv4, too
    with socket.socket(socket.AF_INET6 if both else socket.AF_INET) as probe:
        if both:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _ephemeral() -> range:
    """The ports that this machine assigns to outgoing connections."""
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except OSError:
        return range(LAST + 1, 65_536)
    return range(int(first), int(last) + 1)

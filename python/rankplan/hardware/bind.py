"""Binding of this process to CPUs and memory, and what the kernel reports of it. Nothing here raises."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from rankplan._core import RankSet
from rankplan.hardware.policies import BOUND, NO_MEMORY, PREFERRED

_SYSCALLS = {"x86_64": (238, 239), "aarch64": (237, 236), "ppc64le": (261, 260)}
"""The numbers of set_mempolicy and get_mempolicy; libc has no functions for them."""

_DEFAULT, _ONE_PREFERRED, _BOUND, _MANY_PREFERRED = 0, 1, 2, 5
_NAMES = {_ONE_PREFERRED: PREFERRED, _MANY_PREFERRED: PREFERRED, _BOUND: BOUND}
_MOST_NODES, _WORD = 1024, ctypes.sizeof(ctypes.c_ulong) * 8
_Mask = ctypes.c_ulong * (_MOST_NODES // _WORD)


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a process runs: the CPUs of all its threads together, and the memory policy of the thread that asks.

    ``cpus`` is ``None`` if the system does not tell.
    """

    cpus: RankSet | None = None
    memory: str = NO_MEMORY
    memory_nodes: RankSet | None = None

    @classmethod
    def here(cls) -> Whereabouts:
        """Return where this process runs."""
        masks = [mask for thread in _threads() if (mask := _mask(thread)) is not None]
        memory, nodes = memory_policy()
        return cls(RankSet(set().union(*masks)) if masks else None, memory, nodes)


class Binding:
    """The binding of this process. Threads that exist already, such as Ray's, move along with the main thread."""

    def __init__(self, cpus: RankSet, memory: str, memory_nodes: RankSet) -> None:
        self._cpus, self._memory, self._nodes = cpus, memory, memory_nodes
        self._done = threading.local()

    def apply(self) -> None:
        """Bind the threads that run on the CPUs of the main thread, within these, and the memory of this thread."""
        if self._cpus:
            move(self._cpus)
        self.apply_memory()

    def apply_memory(self) -> None:
        """Set the memory policy of this thread, once: a thread inherits it only from the thread that starts it."""
        if self._nodes and not getattr(self._done, "memory", False):
            self._done.memory = True
            set_memory_policy(self._memory, self._nodes)


def move(cpus: RankSet) -> None:
    """Move the threads that have the main thread's CPUs to those of ``cpus`` that the process may use, if any."""
    before = _mask(os.getpid())
    target = {cpu for cpu in before or () if cpu in cpus}
    if not target or target == before:
        return
    for _ in range(3):  # a thread may start another one meanwhile
        rest = [thread for thread in _threads() if _mask(thread) == before]
        if not rest:
            return
        # the main thread last: its mask tells the others
        for thread in sorted(rest, key=lambda thread: thread == os.getpid()):
            with suppress(OSError):
                os.sched_setaffinity(thread, target)


def set_memory_policy(policy: str, nodes: RankSet) -> bool:
    """Set the memory policy of this thread, and of those it starts from now on; return whether the kernel agreed."""
    modes = [_BOUND] if policy == BOUND else [_MANY_PREFERRED, _ONE_PREFERRED]
    if policy == NO_MEMORY:
        modes, nodes = [_DEFAULT], RankSet()
    for mode in modes:
        used = list(nodes)[:1] if mode == _ONE_PREFERRED else list(nodes)
        mask = _Mask()
        for node in used:
            if node < _MOST_NODES:
                mask[node // _WORD] |= 1 << node % _WORD
        if _call(0, ctypes.c_int(mode), mask, ctypes.c_ulong(_MOST_NODES)):
            return True
    return False


def memory_policy() -> tuple[str, RankSet | None]:
    """Return the memory policy of this thread, and its NUMA nodes (``None``: unknown or any)."""
    mode, mask = ctypes.c_int(0), _Mask()
    if not _call(1, ctypes.byref(mode), mask, ctypes.c_ulong(_MOST_NODES), ctypes.c_void_p(), ctypes.c_ulong(0)):
        return NO_MEMORY, None
    name = _NAMES.get(mode.value & 0xFF)
    if name is None:
        return NO_MEMORY, None
    return name, RankSet(node for node in range(_MOST_NODES) if mask[node // _WORD] >> node % _WORD & 1)


def _call(which: int, *arguments: object) -> bool:
    """Call set_mempolicy (0) or get_mempolicy (1); return whether it succeeded."""
    numbers = _SYSCALLS.get(platform.machine())
    if numbers is None or os.name != "posix":
        return False
    try:
        return ctypes.CDLL(None).syscall(ctypes.c_long(numbers[which]), *arguments) == 0
    except (OSError, AttributeError, ctypes.ArgumentError):
        return False


def _threads() -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]  # noqa: PTH208 (numbers, not paths)
    except OSError:
        return [os.getpid()]


def _mask(thread: int) -> set[int] | None:
    """Return the CPUs of a thread; ``None`` if it has ended, or the system does not tell."""
    try:
        return os.sched_getaffinity(thread)
    except (OSError, AttributeError):
        return None

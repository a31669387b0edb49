"""Binding this process to CPUs and memory, and reading the binding back from the kernel. Nothing here raises."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rankplan._core import RankSet, cpu_list
from rankplan.hardware.policies import BOUND, NO_MEMORY, PREFERRED

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "ppc64le": 261}
"""The numbers of the system call, for which libc has no function."""

_DEFAULT, _ONE_PREFERRED, _BOUND, _MANY_PREFERRED = 0, 1, 2, 5
_MOST_NODES, _WORD = 1024, ctypes.sizeof(ctypes.c_ulong) * 8
_POLICY = re.compile(r"\S+ (bind|prefer)(?: \(many\))?(?:=[a-z|]+)?:([0-9,-]+)")


def allowed_cpus() -> RankSet | None:
    """Return the CPUs of all threads of this process together, ``None`` if the system does not tell."""
    masks = [mask for each in _threads() if (mask := _mask(each)) is not None]
    return RankSet(set().union(*masks)) if masks else None


def move(cpus: RankSet) -> None:
    """Move the threads with the CPUs of the main thread to the allowed CPUs among ``cpus``, if any.

    Other threads were put elsewhere by whoever started them, and stay there.
    """
    before = _mask(os.getpid())
    target = {cpu for cpu in before or () if cpu in cpus}
    if not target or target == before:
        return
    for _ in range(3):  # a thread may start another one meanwhile
        rest = [thread for thread in _threads() if _mask(thread) == before]
        if not rest:
            return
        for thread in rest:
            with suppress(OSError):
                os.sched_setaffinity(thread, target)


def set_memory_policy(policy: str, nodes: RankSet) -> bool:
    """Set the memory policy of this thread, and of those it starts from now on; return whether the kernel agreed."""
    modes = [_BOUND] if policy == BOUND else [_MANY_PREFERRED, _ONE_PREFERRED] if policy == PREFERRED else [_DEFAULT]
    for mode in modes:
        used = {_DEFAULT: 0, _ONE_PREFERRED: 1}.get(mode, _MOST_NODES)
        mask = (ctypes.c_ulong * (_MOST_NODES // _WORD))()
        for node in list(nodes)[:used]:
            if node < _MOST_NODES:
                mask[node // _WORD] |= 1 << node % _WORD
        if _set(mode, mask):
            return True
    return False


def memory_policy(thread: int) -> tuple[str, RankSet | None]:
    """Return the memory policy of a thread of this process, and its NUMA nodes (``None``: any)."""
    try:
        with Path(f"/proc/self/task/{thread}/numa_maps").open() as maps:
            found = _POLICY.match(maps.readline())
    except (OSError, ValueError):
        found = None
    if found is None:
        return NO_MEMORY, None
    return BOUND if found[1] == "bind" else PREFERRED, cpu_list(found[2])


def _set(mode: int, mask: ctypes.Array[ctypes.c_ulong]) -> bool:
    try:
        number, call = _SET_MEMPOLICY[platform.machine()], ctypes.CDLL(None).syscall
        return bool(call(ctypes.c_long(number), ctypes.c_int(mode), mask, ctypes.c_ulong(_MOST_NODES)) == 0)
    except (KeyError, OSError, AttributeError, ctypes.ArgumentError):
        return False


def _threads() -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]  # noqa: PTH208
    except OSError:
        return [os.getpid()]


def _mask(thread: int) -> set[int] | None:
    """Return the CPUs of a thread; ``None`` if it has ended, or the system does not tell."""
    try:
        return os.sched_getaffinity(thread)
    except (OSError, AttributeError):
        return None

"""The CPUs and the memory of a machine: NUMA nodes, sockets, cores and caches, as far as a process may use them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from rankplan._core import RankSet
from rankplan.frozen import frozen
from rankplan.hardware.sysfs import Sysfs

_NODES, _CPUS = "sys/devices/system/node", "sys/devices/system/cpu"


@frozen(slots=False)
class Machine:
    """The facts of one node. A fact that its source lacks is empty.

    ``numa`` has the CPUs that processes may use, by NUMA node; empty for memory-only nodes. ``memory`` is the
    size of each node that memory may come from, in MiB. ``sockets`` are the NUMA nodes of each package. ``cores`` are
    the threads of each physical core, and ``caches`` the CPUs that share each largest cache; both may contain CPUs that
    processes may not use.
    """

    numa: dict[int, RankSet] = field(default_factory=dict)
    memory: dict[int, int] = field(default_factory=dict)
    sockets: tuple[RankSet, ...] = ()
    cores: tuple[RankSet, ...] = ()
    caches: tuple[RankSet, ...] = ()

    @property
    def cpus(self) -> RankSet:
        """Every CPU that processes may use."""
        return RankSet().union(*self.numa.values())

    def ordered_cores(self) -> list[RankSet]:
        """Return the usable threads of each core, socket by socket and NUMA node by NUMA node, as hwloc counts them."""
        nodes = [node for socket in self.sockets for node in socket if node in self.numa]
        nodes += [node for node in self.numa if node not in nodes]
        by_first = sorted(self.cores, key=lambda threads: threads[0])
        return [core for node in nodes for threads in by_first if (core := threads & self.numa[node])]

    @classmethod
    def read(cls, sysfs: Sysfs | None = None) -> Machine:
        """Return the facts of this machine, or of the files below another root, limited by affinity and cgroup."""
        sysfs = sysfs or Sysfs()
        numa = _numa(sysfs)
        if numa is None:
            return cls()
        allowed = _allowed(sysfs, "Cpus_allowed_list", "cpus")
        usable = {node: cpus if allowed is None else cpus & allowed for node, cpus in numa.items()}
        first = {node: cpus[0] for node, cpus in numa.items() if cpus}
        every = RankSet().union(*usable.values())
        return cls(
            usable,
            _memory(sysfs, list(numa)),
            _sockets(sysfs, first),
            tuple(_shared(every, lambda cpu: sysfs.cpus(f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list"))),
            tuple(_shared(every, lambda cpu: _largest_cache(sysfs, cpu))),
        )


def _allowed(sysfs: Sysfs, key: str, kind: str) -> RankSet | None:
    """Return the CPUs or NUMA nodes that this process may use: its own mask within the limits of its cgroup."""
    allowed = sysfs.status(key)
    for line in (sysfs.text("proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        folder = "sys/fs/cgroup" if not controllers else "sys/fs/cgroup/cpuset"
        if controllers in ("", "cpuset") and ".." not in path:
            for name in (f"cpuset.{kind}.effective", f"cpuset.effective_{kind}"):
                if limit := sysfs.cpus(f"{folder}/{path.strip('/')}/{name}"):
                    allowed = limit if allowed is None else allowed & limit
    return allowed


def _numa(sysfs: Sysfs) -> dict[int, RankSet] | None:
    """Return the CPUs of each NUMA node; a machine without NUMA files is one node. ``None``: unknown."""
    found = {}
    for name in sysfs.names(_NODES):
        number = re.fullmatch(r"node([0-9]{1,5})", name, re.ASCII)
        cpus = sysfs.cpus(f"{_NODES}/{name}/cpulist") if number else None
        if number and cpus is not None:
            found[int(number[1])] = cpus
    if not any(found.values()):
        online = sysfs.cpus(f"{_CPUS}/online")
        return {0: online} if online else None
    return dict(sorted(found.items()))


def _memory(sysfs: Sysfs, nodes: Sequence[int]) -> dict[int, int]:
    """Return the memory of each NUMA node in MiB.

    A virtual machine to which memory is added while it runs may show only the first part in the files of its node; if
    there is one node, it has all memory of the machine.
    """
    allowed = _allowed(sysfs, "Mems_allowed_list", "mems")
    sizes = {}
    for node in nodes:
        text = sysfs.text(f"{_NODES}/node{node}/meminfo") or ""
        total = _total_memory(text)
        if total and (allowed is None or node in allowed):
            sizes[node] = total
    if len(nodes) == 1 and sizes:
        (node,) = nodes
        sizes[node] = max(sizes[node], _total_memory(sysfs.text("proc/meminfo") or ""))
    return sizes


def _total_memory(text: str) -> int:
    """Return the total in MiB that a ``meminfo`` file states, 0 if it states none."""
    total = re.search(r"MemTotal:\s+([0-9]{1,15}) kB", text, re.ASCII)
    return int(total[1]) >> 10 if total else 0


def _sockets(sysfs: Sysfs, first_cpus: dict[int, int]) -> tuple[RankSet, ...]:
    packages: dict[int, list[int]] = {}
    for node, cpu in first_cpus.items():
        package = sysfs.number(f"{_CPUS}/cpu{cpu}/topology/physical_package_id")
        if package is None:
            return ()
        packages.setdefault(package, []).append(node)
    return tuple(map(RankSet, packages.values()))


def _shared(cpus: RankSet, sharing_with: Callable[[int], RankSet | None]) -> Iterator[RankSet]:
    """Yield the groups of these CPUs, looking up only one CPU of each."""
    left = cpus
    while left:
        cpu = left[0]
        group = sharing_with(cpu)
        if group is not None and cpu in group:
            yield group & left | group - cpus
            left = left - group
        left = left - RankSet([cpu])


def _largest_cache(sysfs: Sysfs, cpu: int) -> RankSet | None:
    """Return the CPUs that share the cache of the highest level that holds data; the first one of that level."""
    folder = f"{_CPUS}/cpu{cpu}/cache"
    best: tuple[int, RankSet] | None = None
    for name in sysfs.names(folder):
        if not name.startswith("index") or sysfs.text(f"{folder}/{name}/type") not in ("Data", "Unified"):
            continue
        level, shared = sysfs.number(f"{folder}/{name}/level"), sysfs.cpus(f"{folder}/{name}/shared_cpu_list")
        if level is not None and shared and (best is None or level > best[0]):
            best = level, shared
    return best[1] if best else None

"""Machines as trees of files, in place of the kernel's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rankplan._core import RankSet
from rankplan.hardware.sysfs import Sysfs


def write(root: Path, files: Mapping[str, str | bytes]) -> Sysfs:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Sysfs(root)


def tree(
    root: Path,
    nodes: Mapping[int, str],
    *,
    threads: int = 1,
    sockets: Sequence[Sequence[int]] = ((0,),),
    cache: int = 8,
    allowed: str = "",
    memory: Mapping[int, int] | None = None,
) -> Sysfs:
    """Write the files of a machine: thread ``t`` of core ``c`` is CPU ``c + t * cores``, ``cache`` cores share one."""
    cpus = {node: RankSet(text) if text else RankSet() for node, text in nodes.items()}
    cores = sum(map(len, cpus.values())) // threads
    files: dict[str, str | bytes] = {}
    for node, text in nodes.items():
        files[f"sys/devices/system/node/node{node}/cpulist"] = f"{text}\n"
        size = (memory or {}).get(node, 1 << 20)
        files[f"sys/devices/system/node/node{node}/meminfo"] = f"Node {node} MemTotal:       {size << 10} kB\n"
    for node, here in cpus.items():
        package = next((number for number, held in enumerate(sockets) if node in held), 0)
        for cpu in here:
            core, folder = cpu % cores, f"sys/devices/system/cpu/cpu{cpu}"
            siblings = [core + thread * cores for thread in range(threads)]
            first = core // cache * cache
            shared = [c + thread * cores for thread in range(threads) for c in range(first, min(first + cache, cores))]
            files[f"{folder}/topology/thread_siblings_list"] = ",".join(map(str, siblings))
            files[f"{folder}/topology/physical_package_id"] = str(package)
            for index, (level, kind, held) in enumerate(
                [(1, "Data", siblings), (1, "Instruction", siblings), (3, "Unified", shared)]
            ):
                files[f"{folder}/cache/index{index}/level"] = str(level)
                files[f"{folder}/cache/index{index}/type"] = kind
                files[f"{folder}/cache/index{index}/shared_cpu_list"] = str(RankSet(held))
    if allowed:
        files["proc/self/status"] = f"Name:\tpython\nCpus_allowed_list:\t{allowed}\nMems_allowed_list:\t0-511\n"
    return write(root, files)


def pci(root: Path, path: str, numa: int = 0) -> str:
    """Write a device below its bridges and return its address."""
    folder = root / "sys/devices" / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "numa_node").write_text(f"{numa}\n")
    (folder / "local_cpulist").write_text("0-3\n")
    link = root / "sys/bus/pci/devices" / folder.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)
    return folder.name

"""The facts of machines from trees of files that the tests build: sockets, NUMA nodes, masks, damaged files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import NodeSpec, PlacementError
from rankplan._core import RankSet, cpu_list, groups_text
from rankplan.hardware.machine import Machine
from rankplan.hardware.pci import Near, card_variables, cards, device_at, distance, nearest
from rankplan.hardware.policies import Unmet, memory_nodes, near_cpus, spare_cpus
from rankplan.hardware.sysfs import Sysfs
from support.machines import pci, tree, write


def test_two_sockets_with_two_threads_per_core(tmp_path: Path) -> None:
    sysfs = tree(
        tmp_path, {0: "0-55,112-167", 1: "56-111,168-223"}, threads=2, sockets=[[0], [1]], cache=56, allowed="0-223"
    )
    machine = Machine.read(sysfs)
    assert machine.numa == {0: RankSet("0-55,112-167"), 1: RankSet("56-111,168-223")}
    assert machine.memory == {0: 1 << 20, 1: 1 << 20}
    assert machine.sockets == (RankSet("0"), RankSet("1"))
    assert groups_text(machine.cores) == ["0,112 x112"]
    assert groups_text(machine.caches) == ["0-55,112-167 x2 +56"]
    cpus = near_cpus("exclusive", machine, [0, 0, 0, 0, 1, 1, 1, 1])
    assert [str(each) for each in cpus[3:5]] == ["42-55,154-167", "56-69,168-181"]


def test_four_numa_nodes_per_socket(tmp_path: Path) -> None:
    nodes = {node: str(RankSet([*range(node * 12, node * 12 + 12)])) for node in range(8)}
    machine = Machine.read(tree(tmp_path, nodes, sockets=[[0, 1, 2, 3], [4, 5, 6, 7]], cache=6))
    assert machine.sockets == (RankSet("0-3"), RankSet("4-7"))
    assert near_cpus("socket", machine, [5]) == [RankSet("48-95")]
    assert near_cpus("core-complex", machine, [5, 5, 5]) == [RankSet("60-65"), RankSet("66-71"), RankSet("60-65")]


def test_numa_nodes_with_memory_only(tmp_path: Path) -> None:
    nodes = {0: "0-71", 1: "72-143", 2: "", 10: ""}
    memory = {0: 480_000, 1: 480_000, 2: 96_000, 10: 0}
    machine = Machine.read(tree(tmp_path, nodes, sockets=[[0], [1]], cache=72, memory=memory))
    assert machine.numa[2] == machine.numa[10] == RankSet()
    assert machine.memory == {0: 480_000, 1: 480_000, 2: 96_000}
    assert near_cpus("socket", machine, [0, 1]) == [RankSet("0-71"), RankSet("72-143")]
    assert near_cpus("node", machine, [2]) == [Unmet("no CPU of its NUMA node 2 may be used")]
    assert memory_nodes(machine, RankSet("0-80")) == RankSet("0-1")


def test_cgroups_and_affinity_limit_the_cpus_and_the_memory(tmp_path: Path) -> None:
    sysfs = tree(tmp_path, {0: "0-7", 1: "8-15"}, sockets=[[0], [1]], allowed="0-3,8-11")
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job/step\n",
            "sys/fs/cgroup/job/step/cpuset.cpus.effective": "2-9\n",
            "sys/fs/cgroup/job/step/cpuset.mems.effective": "1\n",
        },
    )
    machine = Machine.read(sysfs)
    assert machine.numa == {0: RankSet("2-3"), 1: RankSet("8-9")}
    assert set(machine.memory) == {1}
    write(tmp_path, {"proc/self/cgroup": "3:cpuset:/job\n", "sys/fs/cgroup/cpuset/job/cpuset.effective_cpus": "3,8"})
    assert Machine.read(sysfs).numa == {0: RankSet("3"), 1: RankSet("8")}


def test_a_mask_does_not_change_the_order_of_the_cores(tmp_path: Path) -> None:
    # core 1 is CPU 1 and 5, of which only 5 may be used; it still comes before core 2
    machine = Machine.read(tree(tmp_path, {0: "0-7"}, threads=2, allowed="0,2-3,5"))
    assert near_cpus("exclusive", machine, [0, 0]) == [RankSet("0,5"), RankSet("2-3")]


def test_unknown_numa_nodes(tmp_path: Path) -> None:
    one = Machine.read(tree(tmp_path / "one", {0: "0-7"}))
    assert near_cpus("node", one, [None, -1]) == [RankSet("0-7")] * 2
    two = Machine.read(tree(tmp_path / "two", {0: "0-7", 1: "8-15"}, sockets=[[0], [1]]))
    assert near_cpus("node", two, [None, 1, 3]) == [
        Unmet("its NUMA node is unknown", False),
        RankSet("8-15"),
        Unmet("it is on NUMA node 3, which the machine does not have"),
    ]


def test_cores_that_no_accelerator_uses_are_left(tmp_path: Path) -> None:
    machine = Machine.read(tree(tmp_path, {0: "0-7", 1: "8-15"}, sockets=[[0], [1]]))
    assert spare_cpus(machine, [0, 0], RankSet("0")) == RankSet("4-15")
    assert spare_cpus(machine, [0, 1], RankSet("0-1")) == RankSet()


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"sys/devices/system/node/node0/cpulist": b"\xff\xfe\x00"},
        {"sys/devices/system/node/node0/cpulist": "0-99999999999"},
        {"sys/devices/system/node/node0/cpulist": "7-3"},
        {"sys/devices/system/node/node0/cpulist/not-a-file": ""},
        {"sys/devices/system/node/node99999999/cpulist": "0-3"},
    ],
    ids=["nothing", "bytes", "too many", "reversed", "a folder", "a node number"],
)
def test_missing_and_damaged_files_give_no_facts(tmp_path: Path, files: dict[str, str | bytes]) -> None:
    assert Machine.read(write(tmp_path, files)) == Machine()


def test_damaged_parts_leave_the_other_facts(tmp_path: Path) -> None:
    sysfs = tree(tmp_path, {0: "0-3"})
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    damaged = {topology.format(1): "2-3", topology.format(2): "x" * 100_000, topology.format(3): "0-3"}
    write(tmp_path, {**damaged, "proc/self/status": "Cpus_allowed_list:\t0-3;rm\n", "proc/self/cgroup": "0::/../x\n"})
    machine = Machine.read(sysfs)
    assert machine.numa == {0: RankSet("0-3")}
    assert machine.cores == (RankSet("0"), RankSet("3"))  # CPU 3 claims CPU 0 too, which is taken


def test_this_machine() -> None:
    machine = Machine.read()
    assert machine.cpus == RankSet(os.sched_getaffinity(0))


def test_lists_of_the_kernel() -> None:
    assert cpu_list("0-2,7\n") == RankSet("0-2,7")
    assert cpu_list("") == RankSet()
    for text in ("-1", "a", "0-", "1,", "0-70000", "0--3", "٣"):
        assert cpu_list(text) is None


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 30)), max_size=6))
def test_groups_survive_their_text(runs: list[tuple[int, int, int]]) -> None:
    groups, first = [], 0
    for width, count, gap in runs:
        for _ in range(count):
            groups.append(RankSet(range(first, first + width)))
            first += width
        first += gap
    texts = groups_text(groups)
    assert NodeSpec(ranks=0, cores=texts).cores == tuple(groups)
    assert len(texts) <= 2 * len(runs)


@pytest.mark.parametrize("text", ["", "x2", "0 x0", "3-1", "0 x65537", "0-1 x2 +0", "0 x2 +1 ", "0,,1"])
def test_texts_that_are_no_groups(text: str) -> None:
    with pytest.raises(PlacementError, match="CPUs"):
        NodeSpec(ranks=0, cores=[text])


# ------------------------------------------------------------------------------------------------ PCI and networks


def card(root: Path, name: str, path: str, numa: int = 0, state: str = "4: ACTIVE", bond: bool = False) -> None:
    address = pci(root, path, numa)
    device = root / "sys/bus/pci/devices" / address
    write(root, {f"sys/class/infiniband/{name}/ports/1/state": state})
    write(root, {f"sys/class/infiniband/{name}/ports/1/rate": "400 Gb/sec (4X NDR)"})
    (root / "sys/class/infiniband" / name / "device").symlink_to(device.resolve())
    if bond:
        (device / "net/eth0").mkdir(parents=True)
        (device / "net/eth0/master").symlink_to("../../bond0")


BELOW = "pci0000:17/0000:17:01.0/0000:18:00.0"  # a root port and the upstream port of a switch


@pytest.mark.parametrize(
    ("other", "numa", "expected"),
    [
        (f"{BELOW}/0000:19:01.0/0000:1c:00.0", 0, "PIX"),
        ("pci0000:17/0000:17:01.0/0000:28:00.0/0000:29:01.0/0000:2c:00.0", 0, "PXB"),
        ("pci0000:17/0000:17:03.0/0000:38:00.0", 0, "PHB"),
        ("pci0000:40/0000:40:01.0/0000:41:00.0", 0, "NODE"),
        ("pci0000:80/0000:80:01.0/0000:81:00.0", 1, "SYS"),
        ("pci0000:80/0000:80:01.0/0000:81:00.0", -1, "SYS"),
    ],
)
def test_the_distance_of_two_devices(tmp_path: Path, other: str, numa: int, expected: str) -> None:
    one = device_at(Sysfs(tmp_path), pci(tmp_path, f"{BELOW}/0000:19:00.0/0000:1b:00.0"))
    two = device_at(Sysfs(tmp_path), pci(tmp_path, other, numa))
    assert one is not None and two is not None
    assert one.numa == 0 and one.cpus == RankSet("0-3")
    assert distance(one, two) == distance(two, one) == expected


def test_the_nearest_cards(tmp_path: Path) -> None:
    sysfs = Sysfs(tmp_path)
    accelerators = [device_at(sysfs, pci(tmp_path, f"{BELOW}/0000:19:0{n}.0/0000:1{n}:00.0")) for n in (1, 2)]
    accelerators += [device_at(sysfs, pci(tmp_path, "pci0000:80/0000:80:01.0/0000:81:00.0", 1)), None]
    card(tmp_path, "mlx5_0", f"{BELOW}/0000:19:05.0/0000:25:00.0", state="1: DOWN")
    card(tmp_path, "mlx5_1", f"{BELOW}/0000:19:06.0/0000:26:00.0", bond=True)
    card(tmp_path, "mlx5_10", f"{BELOW}/0000:19:07.0/0000:27:00.0")
    card(tmp_path, "mlx5_2", f"{BELOW}/0000:19:08.0/0000:28:00.0")
    found = cards(sysfs)
    assert [each.name for each in found] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_10"]
    assert found[2].rate == 400.0
    near = nearest(accelerators, found)
    # two equally near ones are used once each; the far accelerator takes the first of them
    assert near == [Near("mlx5_2", "PIX"), Near("mlx5_10", "PIX"), Near("mlx5_2", "SYS"), None]
    assert nearest(accelerators, found[:2]) == [None] * 4
    assert card_variables(["mlx5_2"])["NCCL_IB_HCA"] == "=mlx5_2:1"


def test_a_device_that_the_kernel_does_not_show(tmp_path: Path) -> None:
    assert device_at(Sysfs(tmp_path), "0000:1b:00.0") is None
    assert cards(Sysfs(tmp_path)) == []

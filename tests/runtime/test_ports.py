"""Ports: each is handed out once, and only if free on its machine; with real sockets held open."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import chain

import pytest
from rankplan import Cluster, LaunchError, NodePlacementStrategy, WorkerError
from rankplan.runtime.group import crew
from rankplan.runtime.group import group as group_module
from rankplan.runtime.rank import ports
from rankplan.runtime.rank.ports import FIRST, LAST, PORTS, Ports, free_block
from support.workers import Plain, Reader


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as sockets:
        yield sockets


def hold(held: ExitStack, port: int, address: str = "0.0.0.0") -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = held.enter_context(socket.socket(family))
    server.bind((address, port))
    server.listen()


def test_a_block_is_consecutive_and_free(held: ExitStack) -> None:
    start = free_block(range(24_000, 24_200), 12)
    assert start is not None
    for port in (start + 2, start + 5):
        hold(held, port, "127.0.0.1")
    hold(held, start + 7, "127.0.0.9")
    hold(held, start + 11, "::1")
    assert free_block(range(start, start + 30), 2) == start
    assert free_block(range(start, start + 12), 3) == start + 8
    assert free_block(range(start, start + 10), 3) is None
    hold(held, start + 9)
    assert free_block(range(start, start + 12), 3) is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--min_worker_port=24000 --max_worker_port=24010", "24011"),
        ("--min_worker_port=10002 --max_worker_port=19999 --worker_port_list=24001,24004", "24005"),
        ("--min_worker_port=0 --max_worker_port=0", "24000"),
    ],
)
def test_a_block_avoids_the_ports_of_rays_workers(options: str, expected: str) -> None:
    child = "from rankplan.runtime.rank.ports import free_block; print(free_block(range(24_000, 24_100), 3))"
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    command = [sys.executable, "-c", parent, child, *options.split()]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == expected


def every_choice(ports: Ports) -> Iterator[range]:
    with suppress(LaunchError):
        for holder in itertools.count():
            yield ports.choice(holder, "node-1", 500)


def test_a_block_is_below_the_ephemeral_ports_if_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_ephemeral", lambda: range(24_010, 61_000))
    assert free_block(range(24_006, 24_050), 4) == 24_006
    assert free_block(range(24_006, 24_050), 5) is None
    assert free_block(range(24_020, 24_050), 5) == 24_020
    for pid in range(4000, 4020):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        assert Ports().choice("mine", "node-1", 3)[-1] < 24_010
    monkeypatch.setattr(ports, "_ephemeral", lambda: range(1024, 65_536))
    assert max(choice[-1] for choice in every_choice(Ports())) > 30_000


def test_nothing_is_handed_out_twice() -> None:
    handed_out, found, lock = Ports(), [], threading.Lock()

    def ask(machine: str) -> None:
        for _ in range(10):
            choice = handed_out.choice("mine", machine, 3)
            with lock:
                found.append((machine, choice))

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("one", "two") for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for machine in ("one", "two"):
        mine = list(chain.from_iterable(choice for name, choice in found if name == machine))
        assert len(set(mine)) == len(mine) == 80 * 64
        assert FIRST <= min(mine) <= max(mine) <= LAST


def test_programs_started_together_begin_at_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    found: set[int] = set()
    for pid in range(4000, 4008):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        found |= set(Ports().choice("mine", "node-1", 3))
    assert len(found) == 8 * 64


def test_returned_ports_are_handed_out_again_and_there_is_an_end() -> None:
    handed_out = Ports()
    choices = list(every_choice(handed_out))
    assert len(choices) >= 11
    with pytest.raises(LaunchError, match=r"no 1000 ports in a row are left between 20000 and 32767 on node-1"):
        handed_out.choice("mine", "node-1", 500)
    with pytest.raises(LaunchError, match=r"on node-2; a block has at most 6384$"):
        handed_out.choice("mine", "node-2", 6385)
    handed_out.give_back_all(3)
    assert handed_out.choice(3, "node-1", 500) == choices[3]
    handed_out.give_back(3, "node-1", choices[3])
    handed_out.give_back(2, "node-1", choices[3])
    assert handed_out.choice("mine", "node-1", 500) == choices[3]
    handed_out.move("mine", 2)
    handed_out.give_back_all(2)
    assert {handed_out.choice("mine", "node-1", 500) for _ in range(2)} == {choices[2], choices[3]}
    assert len(handed_out.choice("mine", "node-2", 500)) == 1000


def test_engines_that_ask_at_the_same_time_get_different_ports(two_nodes: Cluster, held: ExitStack) -> None:
    """Both nodes are this machine, so their ports must differ too; some ports are held by others."""
    with Reader.create_group().launch(two_nodes, NodePlacementStrategy([0, 0, 1, 1]), name="engine") as group:
        for port in group.free_ports(2)[0]:
            hold(held, port)
        answers: list[list[range]] = []
        threads = [threading.Thread(target=lambda: answers.append(group.free_ports(5))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        blocks = [block for answer in answers for block in answer]
        ports = list(chain.from_iterable(blocks))
        assert [len(block) for block in blocks] == [5] * 24
        assert len(set(ports)) == len(ports)
        assert FIRST <= min(ports) <= max(ports) <= LAST
        for port in ports:
            hold(held, port)
        (master,) = {int(port) for (port,) in group.environment("MASTER_PORT").wait() if port}
        assert FIRST <= master <= LAST
        assert master not in ports
        assert set(ports) | {master} <= taken()
    assert not taken() & {*ports, master}


def test_a_block_of_ports_has_at_least_one(two_nodes: Cluster) -> None:
    with (
        Reader.create_group().launch(two_nodes, NodePlacementStrategy([0])) as group,
        pytest.raises(ValueError, match="count is 0; it must be a whole number of 1 or more"),
    ):
        group.free_ports(0)


def test_ranks_are_asked_in_turns_if_ports_are_few(two_nodes: Cluster) -> None:
    """Only two choices of ports fit between the bounds, for four ranks on one machine."""
    with (
        Reader.create_group().launch(two_nodes, NodePlacementStrategy([0, 0, 1, 1])) as group,
        pytest.MonkeyPatch.context() as patch,  # undone before the group returns its port
    ):
        fresh = Ports()
        for user in (crew, group_module):
            patch.setattr(user, "PORTS", fresh)
        patch.setattr(ports, "LAST", FIRST + 150)
        patch.setattr(ports, "_APART", 0)  # start at the first port: from the middle, only one choice may fit
        blocks = group.free_ports(4)
        assert len({port for block in blocks for port in block}) == 16
        with pytest.raises(LaunchError, match="no 128 ports in a row are left"):
            group.free_ports(64)


def test_a_search_that_times_out_returns_its_ports(two_nodes: Cluster) -> None:
    with Plain.create_group().launch(two_nodes, NodePlacementStrategy([0, 1])) as group:
        before = taken()
        busy = group.execute_on(1).sleep(120)
        for _ in range(3):
            with pytest.raises(TimeoutError, match=r"1 of 2 ranks have not answered after 0\.2 s: rank 1"):
                group.free_ports(4, timeout=0.2)
        assert taken() == before
        group.shutdown()
        with pytest.raises(WorkerError):
            busy.wait(30)
    assert taken() < before


def taken() -> set[int]:
    return PORTS.taken(socket.gethostname())

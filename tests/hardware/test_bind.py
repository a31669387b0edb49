"""Binding of a real process, on the CPUs and the memory of this machine."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from rankplan.hardware.machine import Machine
from support.libraries import python

CPUS = sorted(os.sched_getaffinity(0))
MANY = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU")
START = """
import json, os, threading
from rankplan import RankSet
from rankplan.hardware import bind

CPUS = sorted(os.sched_getaffinity(0))
done = threading.Event()
def thread(cpus):
    number = []
    def run():
        if cpus:
            os.sched_setaffinity(0, cpus)
        number.append(threading.get_native_id())
        ready.set()
        done.wait()
    ready = threading.Event()
    threading.Thread(target=run, daemon=True).start()
    ready.wait()
    return number[0]
def policy_here():
    memory, nodes = bind.memory_policy(threading.get_native_id())
    return memory, None if nodes is None else str(nodes)
"""


def run(program: str) -> Any:
    return json.loads(python(START + program, None))


@MANY
def test_threads_that_run_where_the_main_thread_does_move_along() -> None:
    free, own, before, after = run(
        """
free, own = thread(None), thread({CPUS[0]})
before = str(bind.allowed_cpus())
bind.move(RankSet([CPUS[1], 60000]))
masks = [sorted(os.sched_getaffinity(each)) for each in (free, own, os.getpid())]
print(json.dumps([masks[0], masks[1], before, masks[2]]))
"""
    )
    assert (free, own, after) == ([CPUS[1]], [CPUS[0]], [CPUS[1]])
    assert before.startswith(str(CPUS[0]))


@pytest.mark.parametrize("cpus", ["RankSet()", "RankSet([60000])", "RankSet(CPUS)"])
def test_nothing_moves_without_a_cpu_that_it_may_use(cpus: str) -> None:
    assert run(f"bind.move({cpus}); print(json.dumps(sorted(os.sched_getaffinity(0))))") == CPUS


@pytest.mark.skipif(not Machine.read().memory, reason="no NUMA files")
def test_the_memory_policy_of_a_thread() -> None:
    node = min(Machine.read().memory)
    policies = run(
        f"""
found = []
for policy, nodes in (("preferred", "{node}"), ("bind", "{node}"), ("bind", "1000"), ("none", "{node}")):
    agreed = bind.set_memory_policy(policy, RankSet(nodes))
    found.append([agreed, *policy_here()])
print(json.dumps(found))
"""
    )
    if not policies[0][0]:
        pytest.skip("this container does not allow memory policies")
    assert policies[:2] == [[True, "preferred", str(node)], [True, "bind", str(node)]]
    assert policies[2:] == [[False, "bind", str(node)], [True, "none", None]]


def test_a_thread_inherits_the_policy_of_the_one_that_starts_it() -> None:
    node = min(Machine.read().memory, default=0)
    early, agreed, late = run(
        f"""
early = thread(None)
agreed = bind.set_memory_policy("bind", RankSet("{node}"))
print(json.dumps([bind.memory_policy(early)[0], agreed, bind.memory_policy(thread(None))[0]]))
"""
    )
    assert early == "none" and late == ("bind" if agreed else "none")

"""Checks on real Ray with the cards of this machine: probe, proof, visibility, binding, EGL, and what runs now."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import rankplan
from gpu.hold import hold
from gpu.machine import Card, holding, query
from gpu.report import Report
from rankplan import Cluster, Worker
from rankplan.runtime.nodes.processes import end, family

HELD = 256
"""MiB that a rank, or a stranger, holds on a card."""
STARTING = 120.0


class Seen(Worker):
    """Tells what its process sees, and holds memory of its first device."""

    def environment(self) -> dict[str, str]:
        """Return the variables that select devices."""
        names = ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "EGL_DEVICE_ID", "MUJOCO_EGL_DEVICE_ID")
        return {name: os.environ[name] for name in names if name in os.environ}

    def affinity(self) -> list[int]:
        """Return the CPUs of this process."""
        return sorted(os.sched_getaffinity(0))

    def hold(self, mebibytes: int) -> int:
        """Hold memory of the device ``LOCAL_RANK``, and return the process id."""
        hold(mebibytes, int(os.environ["LOCAL_RANK"]))
        return os.getpid()

    def peak(self, mebibytes: int) -> tuple[int, int]:
        """Allocate and free memory with PyTorch; return the most bytes that it had allocated and reserved."""
        import torch

        block = torch.zeros(mebibytes << 18, dtype=torch.float32, device="cuda")
        del block
        return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def quickstart(count: int) -> dict[str, Any]:
    """Return ``examples/quickstart.yaml`` for one node with this many accelerators."""
    half = count // 2
    rollout = f"{half}-{count - 1}:0-{(count - half) // 2 - 1}" if count - half > 1 else f"{half}-{count - 1}"
    reward = f"{count - 1}:0-1"
    components = {
        "actor,reference": f"0-{count - 1}",
        "rollout": rollout,
        "reward": reward,
        "agent": {"node_group": "node", "placement": "0:0-1"},
    }
    return {"cluster": {"num_nodes": 1, "component_placement": components}}


@contextmanager
def head() -> Iterator[str]:
    """Yield the address of a Ray head on this machine, which finds the cards itself.

    It has a folder of its own, by which its processes are found at the end: ``ray stop`` would end every Ray here.
    """
    tests = str(Path(__file__).resolve().parent.parent)  # where the processes of ranks find the worker class
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", f"--port={port}"]
    start += ["--include-dashboard=false", "--disable-usage-stats", "--object-store-memory=200000000"]
    with TemporaryDirectory(
        prefix="rp-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:  # its sockets need a short path
        own = {**os.environ, "RAY_TMPDIR": folder}
        try:
            done = subprocess.run(start, env=own, capture_output=True, text=True, timeout=STARTING)
            if done.returncode:
                raise OSError(f"ray start fails: {done.stderr.strip()[-400:]}")
            yield f"127.0.0.1:{port}"
        finally:
            end(family(f"RAY_TMPDIR={folder}"), patience=0.0)


def check_ranks(report: Report, cards: list[Card], folder: Path | None) -> None:
    """Run every check of this file on one head."""
    with head() as address, Cluster(address=address, num_nodes=1) as cluster:
        for part, check in (("probe", _probe), ("proof", _proof), ("visibility", _visibility), ("binding", _binding)):
            with report.guarded(part):
                check(report, cards, cluster)
        with report.guarded("egl"):
            _egl(report, cluster)
        with report.guarded("mismatch"):
            _mismatch(report, cluster)
        with report.guarded("peak"):
            _peak(report, cluster)
        with report.guarded("live"):
            _live(report, cards, cluster, address)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            cluster.inventory.save(folder / "inventory.yaml")


def _probe(report: Report, cards: list[Card], cluster: Cluster) -> None:
    """Compare the record of the node with `nvidia-smi`."""
    node = cluster.inventory.node(0)
    devices = [(device.uuid, device.pci, device.memory) for device in node.devices]
    report.compare("probe", "uuid, address and MiB of each card", devices, [(c.uuid, c.pci, c.memory) for c in cards])
    report.record("probe", node.described())
    if node.numa:
        report.right("probe", "CPUs of each NUMA node", {key: str(value) for key, value in node.numa.items()})
    else:
        report.not_there("probe", "CPUs of each NUMA node", "the kernel shows none")


def _proof(report: Report, cards: list[Card], cluster: Cluster) -> None:
    """Launch the quick start; the driver proves each rank."""
    plan = rankplan.plan(quickstart(len(cards)), cluster.inventory)
    groups = rankplan.launch(plan, cluster, Seen)
    try:
        for name, group in groups.items():
            for row, found in zip(plan[name], group.verify(), strict=True):
                own = tuple(cards[device].uuid for device in row.local_hardware_ranks)
                # a rank without accelerators of its own is proved by its environment alone
                expected = ("devices", own) if row.num_accelerators else ("environment", ())
                report.compare("proof", f"{name} {row.rank}", (found.proof, found.uuids), expected)
    finally:
        for group in groups.values():
            group.shutdown()


def _visibility(report: Report, cards: list[Card], cluster: Cluster) -> None:
    """Launch a rank on each card in all three ways."""
    everything = [card.uuid for card in cards]
    for visibility in ("own", "node", "own-first"):
        entry = {"placement": f"0-{len(cards) - 1}", "visibility": visibility}
        with _launched(cluster, entry) as group:
            seen = group.environment().wait()
            for rank, found in enumerate(group.verify()):
                others = [uuid for uuid in everything if uuid != everything[rank]]
                own = [everything[rank]]
                expected = {"own": own, "node": everything, "own-first": own + others}[visibility]
                subject = f"{visibility}, rank {rank}, mask {seen[rank].get('CUDA_VISIBLE_DEVICES')}"
                report.compare("visibility", subject, list(found.uuids), expected)


def _binding(report: Report, cards: list[Card], cluster: Cluster) -> None:
    """Launch ranks bound to the cores beside their cards."""
    if not cluster.inventory.node(0).numa:
        report.not_there("binding", "cores of a card", "the kernel shows no NUMA node")
        return
    for binding in ("node", "exclusive"):
        with _launched(cluster, {"placement": f"0-{len(cards) - 1}", "binding": binding}) as group:
            cpus = group.affinity().wait()
            for rank, found in enumerate(group.verify()):
                subject = f"{binding}, rank {rank}"
                if found.planned_cpus is None:
                    report.not_there("binding", subject, "the NUMA node of the card is unknown")
                else:
                    report.compare("binding", subject, cpus[rank], sorted(found.planned_cpus))


def _egl(report: Report, cluster: Cluster) -> None:
    """Launch a rank that renders."""
    with _launched(cluster, {"placement": 0, "egl": True}) as group:
        (found,), (seen,) = group.verify(), group.environment().wait()
    if found.egl_device is None:
        report.not_there("egl", "EGL device of a rank", "EGL does not answer, or does not show the card")
    else:
        report.compare("egl", "variable of a rank", seen.get("EGL_DEVICE_ID"), str(found.egl_device))


def _mismatch(report: Report, cluster: Cluster) -> None:
    """Refuse a plan made for a node whose cards have other ids."""
    other = cluster.inventory.to_dict()
    devices = other["nodes"][0]["accelerators"]
    for device in devices:
        device["id"] = str(int(device["id"]) + len(devices))
    plan = rankplan.plan(quickstart(len(devices)), rankplan.Inventory.from_dict(other))
    try:
        rankplan.launch(plan, cluster, Seen)
    except rankplan.PlacementError as error:
        report.compare("mismatch", "a plan for other ids is refused", error.code, "plan-mismatch")
    else:
        report.wrong("mismatch", "a plan for other ids is refused", "it was launched")


def _peak(report: Report, cluster: Cluster) -> None:
    """Compare the peak of a rank with what PyTorch counts in it."""
    if find_spec("torch") is None:
        report.not_there("peak", "memory that a rank has used", "PyTorch is not installed")
        return
    with _launched(cluster, {"placement": 0}) as group:
        (counted,) = group.peak(HELD).wait()
        (use,) = group.memory_use()
    ours = None if use is None else (use.allocated, use.reserved)
    report.compare("peak", "bytes that a rank had allocated and reserved at most", ours, counted)
    is_more = use is not None and use.used is not None and use.kept is not None and use.used >= use.kept
    report.compare("peak", "the driver counts as much as PyTorch keeps, or more", is_more, True)


def _live(report: Report, cards: list[Card], cluster: Cluster, address: str) -> None:
    """Compare ``live --devices`` with `nvidia-smi` while a rank and a stranger hold memory."""
    with _launched(cluster, {"placement": 0}, reserve=True) as group:
        (pid,) = group.hold(HELD).wait()
        looked = rankplan.live(address, devices=True)
        told = {int(row["pid"]) for row in query("compute-apps", "pid")}
        ours = {process.pid for process in looked.processes}
        report.compare("live", "processes that compute", ours, told or ours)
        mine = [process for process in looked.processes if process.pid == pid]
        report.compare(
            "live", f"rank 0, pid {pid}, is an actor", [process.actor_id is not None for process in mine], [True]
        )
        report.compare("live", "no card is doubled", list(looked.doubled), [])
        with holding(sys.executable, HELD, CUDA_VISIBLE_DEVICES=str(cards[0].index), CUDA_DEVICE_ORDER="PCI_BUS_ID"):
            doubled = [(one.node, one.accelerator) for one in rankplan.live(address, devices=True).doubled]
        report.compare("live", "a stranger on the card of a rank is named", doubled, [(0, 0)])


@contextmanager
def _launched(cluster: Cluster, entry: dict[str, Any], *, reserve: bool = False) -> Iterator[Any]:
    config = {"cluster": {"num_nodes": 1, "component_placement": {"seen": entry}}}
    plan = rankplan.plan(config, cluster.inventory)
    group = rankplan.launch(plan, cluster, Seen, reserve=reserve)["seen"]
    try:
        yield group
    finally:
        group.shutdown()

"""Nodes as schedulers show them, and tables of nodes: what is written is read, and what is broken is not used."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rankplan import EmitOptions, Inventory, PlacementError, emit, plan
from rankplan.cli.commands import main
from rankplan.front.job import load_plan
from rankplan.read.inventories.kubernetes_nodes import read_kubernetes_nodes
from rankplan.read.inventories.quantities import reservable
from rankplan.read.inventories.slurm_nodes import read_slurm_nodes
from rankplan.read.inventories.topology_files import read_slurm
from support.outcomes import at_least, outcome

RECORD = """NodeName={name} Arch=x86_64 CoresPerSocket=56
   CPUAlloc={cpus} CPUEfctv=224 CPUTot=224 CPULoad=0.99
   AvailableFeatures=h100,ib
   ActiveFeatures=h100,ib
   Gres={gres}{used}
   NodeAddr={address} NodeHostName={host} Version=24.05.4
   OS=Linux 5.15.0-91-generic #101-Ubuntu SMP Tue Nov 14 13:30:08 UTC 2023
   RealMemory=2063937 AllocMem={memory} FreeMem=1990000 Sockets=2 Boards=1
   State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=main
   BootTime=2024-11-18T20:46:45 SlurmdStartTime=2024-12-19T11:41:49
   CfgTRES={configured}
   AllocTRES={allocated}
   CurrentWatts=0 AveWatts=0
{reason}
"""


def shown(name: str, gres: str = "gpu:h100:8(S:0-1)", state: str = "IDLE", **more: str) -> str:
    """Return what ``scontrol show node`` writes."""
    usual = {"address": name, "host": name, "configured": "cpu=224,mem=2063937M,billing=224", "reason": ""}
    usual |= {"cpus": "0", "memory": "0", "allocated": "", "used": ""}
    return RECORD.format(name=name, gres=gres, state=state, **(usual | more))


def slurm(tmp_path: Path, text: str) -> list[Any]:
    (tmp_path / "nodes.txt").write_text(text)
    return read_slurm_nodes(tmp_path / "nodes.txt")


@pytest.mark.parametrize(
    ("gres", "entry"),
    [
        ("gpu:h100:8(S:0-1)", {"accelerators": 8, "accelerator_model": "h100"}),
        ("gpu:8", {"accelerators": 8}),
        ("gpu:nvidia_h100_80gb_hbm3:4(S:0)", {"accelerators": 4, "accelerator_model": "nvidia_h100_80gb_hbm3"}),
        ("gpu:a100:4(S:0,2),gpu:a100:4(S:1,3)", {"accelerators": 8, "accelerator_model": "a100"}),
        ("gpu:a100:4(S:0),gpu:v100:2", {"accelerators": 6}),
        ("gpu:3090:2", {"accelerators": 2, "accelerator_model": "3090"}),
        ("gpu:tesla", {"accelerators": 1, "accelerator_model": "tesla"}),
        ("gpu:1g.10gb:7(S:0)", {"accelerators": 7, "accelerator_model": "MIG 1g.10gb"}),
        ("gpu:a100_3g.20gb:4(S:0-1)", {"accelerators": 4, "accelerator_model": "MIG 3g.20gb"}),
        ("gpu:nvidia_h100_80gb_hbm3_1g.10gb+me:7", {"accelerators": 7, "accelerator_model": "MIG 1g.10gb+me"}),
        ("gpu:mi300x:8", {"accelerators": 8, "accelerator_type": "AMD_GPU", "accelerator_model": "mi300x"}),
        (
            "gpu:amd_instinct_mi250:8(S:0-1)",
            {"accelerators": 8, "accelerator_type": "AMD_GPU", "accelerator_model": "amd_instinct_mi250"},
        ),
        ("npu:910b:16", {"accelerators": 16, "accelerator_type": "NPU", "accelerator_model": "910b"}),
        ("gpu:h100:8(S:0-1),shard:h100:64,craynetwork:4", {"accelerators": 8, "accelerator_model": "h100"}),
        ("gpu:h100:0", {"accelerators": 0}),
        ("(null)", {"accelerators": 0}),
    ],
)
def test_accelerators_that_slurm_shows(gres: str, entry: dict[str, Any], tmp_path: Path) -> None:
    (node,) = slurm(tmp_path, shown("a", gres))
    assert node.entry == {"hostname": "a", **entry, "cpus": 224, "reservable_memory": 2063937}
    Inventory.from_dict({"nodes": [{"ranks": 0, **node.entry}]})


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        *[
            (state, None)
            for state in ("IDLE", "ALLOCATED", "MIXED", "MIXED+PLANNED", "IDLE+CLOUD", "IDLE~", "COMPLETING")
        ],
        *[(state, None) for state in ("IDLE+DYNAMIC_NORM", "IDLE#", "ALLOCATED+RESERVED", "IDLE+POWERED_DOWN")],
        ("IDLE+DRAIN", "DRAIN"),
        ("MIXED+DRAIN", "DRAIN"),
        ("DOWN*", "DOWN"),
        ("DOWN*+DRAIN", "DOWN+DRAIN"),
        ("IDLE*", "NOT_RESPONDING"),
        ("DOWN+NOT_RESPONDING", "DOWN+NOT_RESPONDING"),
        ("IDLE+MAINTENANCE", "MAINTENANCE"),
        ("FUTURE", "FUTURE"),
        ("UNKNOWN*", "UNKNOWN"),
        ("DOWN+CLOUD+POWERED_DOWN", "DOWN"),
        ("IDLE+INVALID_REG", "INVALID_REG"),
    ],
)
def test_states_that_slurm_shows(state: str, problem: str | None, tmp_path: Path) -> None:
    (node,) = slurm(tmp_path, shown("a", state=state))
    assert node.problem == problem and node.entry.get("healthy", True) is (problem is None)


def test_records_of_slurm(tmp_path: Path) -> None:
    reason = "   Reason=gres/gpu count reported lower than configured (0 < 8) State=IDLE [slurm@2024-12-19T11:03:34]"
    text = shown("gpu10", address="10.1.0.10") + shown("gpu2", "(null)", configured="cpu=4,gres/gpu=8", host="gpu2.x")
    text += shown("gpu3", state="IDLE+DRAIN", reason=reason, address="fd00::3")
    one_by_line = "".join(" ".join(record.split()) + "\n" for record in text.split("\n\n") if record.strip())
    for written in (text, text.replace("\n", "\r\n").replace("\r\n", "\n"), one_by_line):
        nodes = slurm(tmp_path, written)
        assert [one.name for one in nodes] == ["gpu2", "gpu3", "gpu10"]
        assert [one.entry.get("ip") for one in nodes] == [None, "fd00::3", "10.1.0.10"]
        labels = {"labels": {"slurm/node-name": "gpu2"}}
        amounts = {"cpus": 224, "reservable_memory": 2063937}
        assert nodes[0].entry == {"hostname": "gpu2.x", **labels, "accelerators": 8, **amounts}
        assert nodes[1].problem == "DRAIN: gres/gpu count reported lower than configured (0 < 8) State=IDLE"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (shown("a") + shown("a"), 16, "node 'a' is listed twice"),
        (shown("a") + shown("b", "gpu:a:b:c:d:1"), 16, "which is not a list of GRES"),
        (shown("a", "gpu:h100:4,npu:910b:4"), 1, "a node has accelerators of one type"),
        (shown("a", "gpu:h100:999999"), 1, "it must be at most"),
        ("\n" + shown("gpu[1-2]"), 2, "'gpu[1-2]' is not the name of a node"),
    ],
)
def test_faults_of_slurms_nodes(text: str, line: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(PlacementError) as refused:
        slurm(tmp_path, text)
    assert message in str(refused.value) and refused.value.line == line
    assert refused.value.file == str(tmp_path / "nodes.txt")


def as_json(text: str, *, old: bool = False) -> dict[str, Any]:
    """Return what ``scontrol show nodes --json`` writes of the nodes of a text; ``old``: up to data_parser v0.0.38."""
    nodes = []
    for record in re.split("(?=NodeName=)", text)[1:]:
        fields = dict(re.findall(r"(\S+?)=((?<=Reason=).*|\S*)", record))
        state, *flags = fields["State"].split("+")
        states = {"state": state.lower(), "state_flags": flags} if old else {"state": [state, *flags]}
        keys = {"name": "NodeName", "hostname": "NodeHostName", "address": "NodeAddr", "tres": "CfgTRES"}
        keys |= {"tres_used": "AllocTRES"}
        gres = fields["Gres"].replace("(null)", "")
        known: dict[str, Any] = {key: fields[field] for key, field in keys.items()}
        memory: Any = int(fields["RealMemory"])
        known["effective_cpus"] = int(fields["CPUEfctv"])
        known["alloc_cpus"], known["alloc_memory"] = int(fields["CPUAlloc"]), int(fields["AllocMem"])
        known["gres_used"] = fields.get("GresUsed", "gpu:0")
        known["real_memory"] = memory if old else {"set": True, "infinite": False, "number": memory}
        nodes.append({"cpus": 256, **known, "gres": gres, "reason": fields.get("Reason", ""), **states})
    return {"nodes": nodes, "last_update": 1, "meta": {"Slurm" if old else "slurm": {"release": "24.05"}}, "errors": []}


@pytest.mark.parametrize("old", [False, True])
def test_json_of_slurm_says_what_its_text_says(old: bool, tmp_path: Path) -> None:
    reason = "   Reason=gres/gpu count reported lower than configured (0 < 8) [slurm@2024-12-19T11:03:34]"
    text = shown("gpu10", address="10.1.0.10") + shown("gpu2", "(null)", configured="cpu=4,gres/gpu=8", host="gpu2.x")
    text += shown("gpu3", state="IDLE+DRAIN", reason=reason, address="fd00::3") + shown("gpu4", state="DOWN+CLOUD")
    text += shown("gpu5", state="MIXED", cpus="48", memory="98304", allocated="cpu=48,mem=96G,gres/gpu=3")
    text += shown("gpu6", state="MIXED", cpus="8", used="\n   GresUsed=gpu:h100:2(IDX:0,5)", allocated="cpu=8")
    found = slurm(tmp_path, json.dumps(as_json(text, old=old)))
    assert found == slurm(tmp_path, text) and found[1].problem


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        (lambda content: content["nodes"].append(content["nodes"][0]), "nodes[1]", "node 'a' is listed twice"),
        (lambda content: content["nodes"][0].update(gres="gpu:a:b:c:d:1"), "nodes[0]", "which is not a list of GRES"),
        (lambda content: content["nodes"][0].pop("name"), "nodes[0]", "'' is not the name of a node"),
        (lambda content: content["nodes"].append(3), "nodes[1]", "'' is not the name of a node"),
        (lambda content: content.update(nodes={}), None, "it must be nodes of Slurm"),
        (lambda content: content.pop("meta"), None, "this is an inventory, not nodes of Slurm"),
        (lambda content: content["nodes"].clear(), None, "the file shows no nodes"),
    ],
)
def test_faults_of_slurms_json(change: Any, path: str | None, message: str, tmp_path: Path) -> None:
    content = as_json(shown("a"))
    change(content)
    with pytest.raises(PlacementError) as refused:
        slurm(tmp_path, json.dumps(content))
    assert message in str(refused.value) and refused.value.help
    assert (refused.value.path, refused.value.file) == (path, str(tmp_path / "nodes.txt"))


NODE_TEXT = st.text("NodeName=Gres gpu:h10(S:0-1)State=DOWN*+\n ,[]", max_size=80)
NODE_RECORD = st.builds(
    shown,
    st.from_regex("[a-z]{0,3}[0-9]?", fullmatch=True),
    st.sampled_from(["gpu:8", "(null)"]) | st.text("gpu:h10(S-),", max_size=12),
    st.sampled_from(["IDLE", "DOWN*"]) | st.text("IDLEOWN*+~", max_size=8),
)


@at_least(read=0.1)
@given(NODE_TEXT | NODE_RECORD)
def test_any_text_is_nodes_or_a_fault(text: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "nodes.txt")
        path.write_text(text)
        try:
            entries = [one.entry for one in read_slurm_nodes(path)]
            if entries:
                outcome("read")
                Inventory.from_dict({"nodes": [{"ranks": rank, **entry} for rank, entry in enumerate(entries)]})
        except PlacementError as error:
            assert error.help


# ---------------------------------------------------------------------------------------- the network as Slurm shows it


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.booleans())
def test_a_topology_that_scontrol_shows_is_the_one_that_is_configured(sizes: list[int], levels: bool) -> None:
    """Switches in two levels above leaves: scontrol lists the nodes below each, and the level of each."""
    configured, written, node, leaf = [], [], 0, 0
    everything = f"n[0-{sum(sizes) * 2 - 1}]"
    configured.append(f"SwitchName=core Switches=spine[0-{len(sizes) - 1}]")
    written.append(f"SwitchName=core Level=2 LinkSpeed=1 Nodes={everything} Switches=spine[0-{len(sizes) - 1}]")
    for spine, leaves in enumerate(sizes):
        below, nodes = f"leaf[{leaf}-{leaf + leaves - 1}]", f"n[{node}-{node + leaves * 2 - 1}]"
        configured.append(f"SwitchName=spine{spine} Switches={below}")
        written.append(f"SwitchName=spine{spine} Level=1 LinkSpeed=1 Nodes={nodes} Switches={below}")
        for _ in range(leaves):
            configured.append(f"SwitchName=leaf{leaf} Nodes=n[{node}-{node + 1}]")
            written.append(f"SwitchName=leaf{leaf} Level=0 LinkSpeed=1 Nodes=n[{node}-{node + 1}]")
            node, leaf = node + 2, leaf + 1
    with TemporaryDirectory() as folder:
        paths = Path(folder, "topology.conf"), Path(folder, "shown.txt")
        for path, lines in zip(paths, (configured, written), strict=True):
            path.write_text("\n".join(lines) + "\n")
        assert read_slurm(paths[0]) == read_slurm(paths[1])


def test_blocks_that_scontrol_shows(tmp_path: Path) -> None:
    shown_blocks = [
        "BlockName=b1 BlockIndex=0 Nodes=gpu[01-02] BlockSize=2",
        "BlockName=b2 BlockIndex=1 Nodes=gpu[03-04] BlockSize=2",
        "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=gpu[01-04] BlockSize=4",
    ]
    (tmp_path / "shown.txt").write_text("\n".join(shown_blocks))
    (tmp_path / "block.conf").write_text(
        "BlockName=b1 Nodes=gpu[01-02]\nBlockName=b2 Nodes=gpu[03-04]\nBlockSizes=2,4\n"
    )
    assert read_slurm(tmp_path / "shown.txt") == read_slurm(tmp_path / "block.conf")


# ----------------------------------------------------------------------------------------------------------- Kubernetes


def kubernetes(name: str, amounts: dict[str, str], *, ready: str = "True", **more: Any) -> dict[str, Any]:
    """Return a node as Kubernetes shows it."""
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}]
    conditions = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready, "reason": "Why"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": more.pop("labels", {})},
        "spec": more,
        "status": {"allocatable": {"cpu": "95", **amounts}, "conditions": conditions, "addresses": addresses},
    }


def listed(tmp_path: Path, *nodes: dict[str, Any], keys: tuple[str, ...] = ()) -> tuple[list[dict[str, Any]], Any]:
    content = {"apiVersion": "v1", "kind": "List", "items": list(nodes)}
    (tmp_path / "nodes.json").write_text(json.dumps(content))
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(content))
    shown_nodes = read_kubernetes_nodes(tmp_path / "nodes.json", keys)
    assert shown_nodes == read_kubernetes_nodes(tmp_path / "nodes.yaml", keys)
    problems = {node.name: node.problem for node in shown_nodes if node.problem is not None}
    return [node.entry for node in shown_nodes], problems


@pytest.mark.parametrize(
    ("amounts", "labels", "entry"),
    [
        ({"nvidia.com/gpu": "8"}, {}, {"accelerators": 8}),
        (
            {"nvidia.com/gpu": "8"},
            {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            {"accelerators": 8, "accelerator_model": "NVIDIA-H100-80GB-HBM3"},
        ),
        ({"amd.com/gpu": "8"}, {}, {"accelerators": 8, "accelerator_type": "AMD_GPU"}),
        ({"huawei.com/Ascend910": "16"}, {}, {"accelerators": 16, "accelerator_type": "NPU"}),
        (
            {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"},
            {},
            {"accelerators": 7, "accelerator_model": "MIG 1g.10gb"},
        ),
        ({"nvidia.com/mig-1g.10gb": "3", "nvidia.com/mig-2g.20gb": "2"}, {}, {"accelerators": 5}),
        ({}, {}, {"accelerators": 0}),
    ],
)
def test_accelerators_that_kubernetes_shows(
    amounts: dict[str, str], labels: dict[str, str], entry: dict[str, Any], tmp_path: Path
) -> None:
    (found,), problems = listed(tmp_path, kubernetes("a", amounts, labels=labels))
    assert found == {"hostname": "a", "ip": "10.0.0.1", **entry, "cpus": 95} and not problems
    Inventory.from_dict({"nodes": [{"ranks": 0, **found}]})


@pytest.mark.parametrize(
    ("cpu", "memory", "expected"),
    [
        ("96", "1056270956Ki", {"cpus": 96, "reservable_memory": 1031514}),
        ("127610m", "512Gi", {"cpus": 127.61, "reservable_memory": 524288}),
        ("1.5k", "1T", {"cpus": 1500, "reservable_memory": 953674}),
        (8, None, {"cpus": 8}),
        (True, "1e3", {}),
        ("-1", "٣", {}),
        ("", [], {}),
    ],
)
def test_quantities_of_kubernetes(cpu: Any, memory: Any, expected: dict[str, Any]) -> None:
    assert reservable(cpu, memory) == expected
    Inventory.from_dict({"nodes": [{"ranks": 0, "accelerators": 1, **expected}]})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("CPUTot=224 CPUEfctv=220 RealMemory=2063937 MemSpecLimit=1024", {"cpus": 220, "reservable_memory": 2062913}),
        ("CPUTot=64", {"cpus": 64}),
        ("CPUTot=0 RealMemory=1", {"reservable_memory": 1}),
        ("CPUTot=x RealMemory=1 MemSpecLimit=2", {}),
    ],
)
def test_what_jobs_can_reserve_in_slurm(fields: str, expected: dict[str, Any], tmp_path: Path) -> None:
    (node,) = slurm(tmp_path, f"NodeName=a Gres=gpu:8 State=IDLE {fields}\n")
    assert node.entry == {"hostname": "a", "accelerators": 8, **expected}


@pytest.mark.parametrize(
    ("record", "changed", "in_use"),
    [
        ({"allocated": ""}, {}, None),
        ({"state": "MIXED", "cpus": "32", "allocated": "cpu=32,gres/gpu=8"}, {"taken": "jobs of Slurm"}, "in use"),
        (
            {"state": "MIXED", "cpus": "64", "memory": "512000", "allocated": "cpu=64,mem=500G,gres/gpu=2"},
            {"accelerators": 6, "cpus": 160, "reservable_memory": 1551937},
            "6 of 8 accelerators free",
        ),
        (
            {"allocated": "cpu=224,mem=2063937M,billing=224,gres/gpu=8,gres/gpu:h100=8", "cpus": "224"},
            {"taken": "jobs of Slurm"},
            "in use",
        ),
        ({"state": "MIXED", "cpus": "16", "allocated": "cpu=16"}, {"cpus": 208}, None),
        ({"state": "ALLOCATED", "cpus": "224", "allocated": "cpu=224"}, {"taken": "jobs of Slurm"}, "in use"),
        ({"memory": "2063937", "allocated": "mem=2063937M"}, {"taken": "jobs of Slurm"}, "in use"),
        (
            {"used": "\n   GresDrain=N/A\n   GresUsed=gpu:h100:7(IDX:0-4,6,7)", "cpus": "7", "allocated": "cpu=7"},
            {"accelerators": 1, "cpus": 217},
            "1 of 8 accelerators free",
        ),
        (
            {"state": "MIXED+DRAIN", "cpus": "2", "allocated": "cpu=2,gres/gpu=1"},
            {"accelerators": 7, "cpus": 222, "healthy": False},
            "7 of 8 accelerators free",
        ),
        ({"cpus": "99999", "allocated": "gres/gpu=99"}, {"taken": "jobs of Slurm"}, "in use"),
    ],
)
def test_what_slurms_jobs_have_is_left_to_them(
    record: dict[str, str], changed: dict[str, Any], in_use: str | None, tmp_path: Path
) -> None:
    (node,) = slurm(tmp_path, shown("a", **record))
    whole = {"hostname": "a", "accelerators": 8, "accelerator_model": "h100", "cpus": 224, "reservable_memory": 2063937}
    assert node.entry == whole | changed and node.in_use == in_use
    assert slurm(tmp_path, json.dumps(as_json(shown("a", **record)))) == [node]
    (everything,) = read_slurm_nodes(tmp_path / "nodes.txt", ignore_jobs=True)
    assert everything.entry == whole | ({"healthy": False} if "DRAIN" in record.get("state", "") else {})
    assert everything.in_use is None


def test_nodes_that_kubernetes_does_not_use(tmp_path: Path) -> None:
    gpu = {"nvidia.com/gpu": "8"}

    def tainted(key: str, effect: str = "NoSchedule") -> dict[str, Any]:
        return {"taints": [{"key": key, "effect": effect}]}

    entries, problems = listed(
        tmp_path,
        kubernetes("n10", gpu, ready="False"),
        kubernetes("n2", gpu, ready="Unknown"),
        kubernetes("n3", gpu, unschedulable=True, **tainted("node.kubernetes.io/unschedulable")),
        kubernetes("n4", gpu, **tainted("node.kubernetes.io/disk-pressure")),
        kubernetes("n5", gpu, **tainted("nvidia.com/gpu")),
        kubernetes("n6", gpu, **tainted("node.kubernetes.io/memory-pressure", "PreferNoSchedule")),
        kubernetes("cp", {}, **tainted("node-role.kubernetes.io/control-plane")),
    )
    assert [one["hostname"] for one in entries] == ["n2", "n3", "n4", "n5", "n6", "n10"]
    assert problems == {"n10": "not ready: Why", "n2": "not ready: Why", "n3": "cordoned", "n4": "disk-pressure"}
    assert [one.get("healthy", True) for one in entries] == [False, False, False, True, True, False]


def container(requests: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests}, **more}


def pod(name: str, *containers: dict[str, Any], node: str | None = "a", phase: str = "Running", **spec: Any) -> Any:
    """Return a pod as Kubernetes shows it."""
    placed = {} if node is None else {"nodeName": node}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"containers": list(containers), **placed, **spec},
        "status": {"phase": phase},
    }


FOUR = {"nvidia.com/gpu": "4", "cpu": "32", "memory": "64Gi"}


@pytest.mark.parametrize(
    ("pods", "changed"),
    [
        ([], {}),
        ([pod("p", container(FOUR))], {"accelerators": 4, "cpus": 63, "reservable_memory": 458752}),
        ([pod("p", container(FOUR), phase="Succeeded"), pod("q", container(FOUR), phase="Failed")], {}),
        ([pod("p", container(FOUR), node="b"), pod("q", container(FOUR), node=None, phase="Pending")], {}),
        ([pod("p", container(FOUR), container(FOUR))], {"taken": "ml/p"}),
        ([pod("p", container(FOUR)), pod("q", container(FOUR), phase="Pending")], {"taken": "2 pods"}),
        ([pod("p", {"resources": {"limits": {"nvidia.com/gpu": "8"}}})], {"taken": "ml/p"}),
        ([pod("p", container({"cpu": "1500m"})), pod("q", container({"cpu": "300m"}))], {"cpus": 93}),
        ([pod("p", container({"cpu": "1"}), initContainers=[container({"cpu": "5"})])], {"cpus": 90}),
        (
            [pod("p", container({"cpu": "1"}), initContainers=[container({"cpu": "5"}, restartPolicy="Always")])],
            {"cpus": 89},
        ),
        ([pod("p", container({"cpu": "1"}), overhead={"cpu": "250m"})], {"cpus": 93}),
        ([pod("p", container({"cpu": "1"}), resources={"requests": {"cpu": "10"}})], {"cpus": 85}),
        ([pod("p", container({"cpu": "95"}))], {"taken": "pods"}),
    ],
)
def test_what_pods_request_is_left_to_them(pods: list[Any], changed: dict[str, Any], tmp_path: Path) -> None:
    amounts = {"nvidia.com/gpu": "8", "memory": "512Gi"}
    nodes = [kubernetes("a", amounts), kubernetes("c", amounts)]
    (entry, other), _ = listed(tmp_path, *pods, *nodes)
    whole = {"hostname": "a", "ip": "10.0.0.1", "accelerators": 8, "cpus": 95, "reservable_memory": 524288}
    assert entry == whole | changed and other == whole | {"hostname": "c"}
    (everything, _) = read_kubernetes_nodes(tmp_path / "nodes.json", ignore_jobs=True)
    assert everything.entry == whole


def test_slices_of_pods(tmp_path: Path) -> None:
    slices = {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "3", "nvidia.com/mig-2g.20gb": "2"}
    pods = [pod("p", container({"nvidia.com/mig-1g.10gb": "2"})), pod("q", container({"nvidia.com/gpu": "1"}))]
    (entry,), _ = listed(tmp_path, kubernetes("a", slices), *pods)
    assert entry["accelerators"] == 3


def test_labels_that_tell_where_a_node_is_are_kept(tmp_path: Path) -> None:
    labels = {"nvidia.com/gpu.clique": "c.1", "kubernetes.io/hostname": "a", "rack": "r1", "owner": "x"}
    (found,), _ = listed(tmp_path, kubernetes("a", {}, labels=labels), keys=("rack",))
    assert found["labels"] == {"nvidia.com/gpu.clique": "c.1", "rack": "r1"}


@pytest.mark.parametrize(
    "content",
    [
        *["", "[]", "{}", '"x"', "3", '{"items": 3}', '{"items": [3]}', '{"kind": "Pod", "metadata": {"name": "x"}}'],
        *['{"items": [{"kind": "Node", "metadata": {}}]}', '{"items": []}', "{", "a: [", "[" * 100_000],
        *['{"metadata": {"name": ["x"]}}', '{"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "a"}}]}'],
    ],
)
def test_other_files_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(PlacementError) as refused:
        read_kubernetes_nodes(tmp_path / "x.json")
    assert refused.value.file == str(tmp_path / "x.json")


WHOLE = kubernetes(
    "a",
    {"nvidia.com/gpu": "8"},
    labels={"topology.kubernetes.io/zone": "z", "nvidia.com/gpu.product": "H100"},
    taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}],
)

POD = pod("p", container(FOUR), initContainers=[container(FOUR)], overhead={"cpu": "1"})


def paths(value: Any) -> list[tuple[Any, ...]]:
    """Return the path of every value inside a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(key, *rest) for key, one in inside for rest in [(), *paths(one)]]


@at_least(read=0.5)
@given(
    st.sampled_from([("items", 0, *path) for path in paths(WHOLE)] + [("items", 1, *path) for path in paths(POD)]),
    st.sampled_from(
        [None, True, -1, 10**30, 1.5, float("inf"), "", "x", "-8", "\ud800", "a\nb", [], {}, ["x"], {"a": []}]
    ),
)
def test_any_value_of_a_node_is_read_or_refused(path: tuple[Any, ...], value: Any) -> None:
    content = deepcopy({"items": [WHOLE, POD]})
    reduce(getitem, path[:-1], content)[path[-1]] = value
    with TemporaryDirectory() as folder:
        file = Path(folder, "nodes.json")
        file.write_text(json.dumps(content))
        try:
            shown_nodes = read_kubernetes_nodes(file)
            entries = [{"ranks": rank, **node.entry} for rank, node in enumerate(shown_nodes)]
            Inventory.from_dict({"nodes": entries})
            texts = [node.problem or node.in_use or node.name for node in shown_nodes]
            assert json.dumps([entries, texts], ensure_ascii=False).encode()
            outcome("read")
        except PlacementError as error:
            assert error.message


# --------------------------------------------------------------------------------------------------------------- tables

CELLS = st.text('abc019-.," é', max_size=5).map(str.strip)


@given(st.lists(st.tuples(st.integers(0, 16), st.booleans(), CELLS, CELLS), min_size=1, max_size=8), st.booleans())
def test_a_table_is_the_inventory_of_its_rows(rows: list[tuple[int, bool, str, str]], tabs: bool) -> None:
    written = io.StringIO()
    writer = csv.writer(written, delimiter="\t" if tabs else ",")
    writer.writerow(["hostname", "accelerators", "healthy", "my rack", "owner"])
    entries: list[dict[str, Any]] = []
    for rank, (count, healthy, rack, owner) in enumerate(rows):
        writer.writerow([f"gpu{rank}", count, str(healthy), rack, owner])
        labels = {key: text for key, text in (("my rack", rack), ("owner", owner)) if text}
        entry: dict[str, Any] = {"ranks": rank, "hostname": f"gpu{rank}", "accelerators": count, "healthy": healthy}
        entries.append(entry | ({"labels": labels} if labels else {}))
    with TemporaryDirectory() as folder:
        path = Path(folder, "nodes.tsv" if tabs else "nodes.CSV")
        path.write_bytes(written.getvalue().encode())
        assert Inventory.load(path) == Inventory.from_dict({"nodes": entries})


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "the file is empty"),
        ("hostname,accelerators\n", 1, "a header and no rows"),
        ("hostnam,accelerators\na,8\n", 1, "unknown column `hostnam`"),
        ("hostname,ip\na,10.0.0.1\n", 1, "no column has the accelerators"),
        ("hostname,accelerators,hostname\na,8,b\n", 1, "two columns are named `hostname`"),
        ("hostname,accelerators,\na,8,b\n", 1, "column 3 has the name ''"),
        ("hostname,accelerators\na,8\nb\n", 3, "the row has 1 cell, the header 2"),
        ("hostname,accelerators\na,8\n\nb,x\n", 4, "'x' is not a whole number"),
        ("hostname,accelerators,healthy\na,8,maybe\n", 2, "`healthy` is 'maybe'"),
        ('hostname,accelerators\n"a,8\n', 2, "the row cannot be read"),
        ("ranks,accelerators\n0-3,8\n0,8\n", 1, "rank 0"),
    ],
)
def test_faults_of_tables(text: str, line: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(text)
    with pytest.raises(PlacementError) as refused:
        Inventory.load(tmp_path / "nodes.csv")
    assert message in str(refused.value)
    assert (refused.value.file, refused.value.line) == (str(tmp_path / "nodes.csv"), line)


# ---------------------------------------------------------------------------------------------------------- the command


def run(folder: Path, *arguments: str) -> Any:
    return CliRunner().invoke(main, ["inventory", *(one.replace("@", f"{folder}/") for one in arguments)])


def test_nodes_and_network_of_slurm_make_an_inventory(tmp_path: Path) -> None:
    (tmp_path / "nodes.txt").write_text(
        shown("g1", host="host1", address="10.0.0.1") + shown("g2", state="DOWN", reason="   Reason=fan [root@now]")
    )
    (tmp_path / "topology.txt").write_text("SwitchName=s1 Level=0 LinkSpeed=1 Nodes=g[1-2]\n")
    done = run(tmp_path, "--slurm", "@topology.txt", "--slurm", "@nodes.txt", "-o", "@saved.yaml")
    assert done.exit_code == 0, done.output
    assert "slurm/switch-0 s1: nodes 0-1 (host1, g2); excluded: node 1" in done.stdout
    assert done.stderr == "1 node not healthy: g2 (DOWN: fan)\n"
    saved = Inventory.load(tmp_path / "saved.yaml")
    assert (saved.node(0).hostname, saved.node(0).ip, saved.node(1).healthy) == ("host1", "10.0.0.1", False)


def test_nodes_in_use_are_not_planned(tmp_path: Path) -> None:
    (tmp_path / "nodes.txt").write_text(
        shown("g1", state="MIXED", cpus="32", allocated="cpu=32,gres/gpu=8")
        + shown("g2")
        + shown("g3", state="MIXED", cpus="8", allocated="cpu=8,gres/gpu=4")
    )
    done = run(tmp_path, "--slurm", "@nodes.txt", "-o", "@saved.yaml")
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines() == [
        "1 node in use by jobs: g1",
        "1 node partly in use by jobs: g3 (4 of 8 accelerators free)",
    ]
    assert done.stdout.splitlines() == ["3 nodes, 20 NV_GPU; levels: none", "  nodes 0-2 (g1, g2, g3); taken: node 0"]
    saved = Inventory.load(tmp_path / "saved.yaml")
    assert list(saved.taken) == [0]
    everything = run(tmp_path, "--slurm", "@nodes.txt", "--ignore-jobs")
    assert everything.stdout.startswith("3 nodes, 24 NV_GPU") and not everything.stderr


def test_a_script_names_nodes_as_slurm_does(tmp_path: Path) -> None:
    """A node's ``NodeName`` is what ``--nodelist`` and ``--exclude`` take; its hostname may be another one."""
    (tmp_path / "nodes.txt").write_text("".join(shown(f"g{index}", host=f"host{index}.x") for index in range(3)))
    assert run(tmp_path, "--slurm", "@nodes.txt", "-o", "@saved.yaml").exit_code == 0
    nodes = Inventory.load(tmp_path / "saved.yaml")
    config = {"cluster": {"num_nodes": 3, "component_placement": {"actor": "0-7"}, "exclude": ["host1.x"]}}
    found = plan(config, nodes)
    pinned = emit(found, "slurm", EmitOptions(command="python {}.py", pin=True))
    assert re.search("^#SBATCH --nodelist=g0$", pinned, re.M) and "host=(g0)" in pinned
    (tmp_path / "pinned.sh").write_text(pinned)
    assert load_plan(tmp_path / "pinned.sh").inventory.node(0).hostname == "host0.x"
    free = emit(found, "slurm", EmitOptions(command="python {}.py"))
    assert re.search("^#SBATCH --exclude=g1$", free, re.M)
    (tmp_path / "free.sh").write_text(free)
    assert emit(tmp_path / "free.sh", "slurm", EmitOptions()) == free


def test_what_slurm_shows_is_read_from_pipes(tmp_path: Path) -> None:
    texts = {"nodes.txt": shown("a") + shown("b"), "topology.txt": "SwitchName=s Level=0 LinkSpeed=1 Nodes=a,b\n"}
    files, pipes = [], []
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        end, start = os.pipe()
        os.write(start, text.encode())
        os.close(start)
        files += ["--slurm", f"@{name}"]
        pipes += ["--slurm", f"/dev/fd/{end}"]
    done = run(tmp_path, *pipes)
    for pipe in pipes[1::2]:
        os.close(int(pipe.rpartition("/")[2]))
    assert done.output == run(tmp_path, *files).output and "slurm/switch-0 s: nodes 0-1" in done.output


def test_levels_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("hostname,accelerators,rack,row\na,8,r1,w1\nb,8,r2,w1\n")
    done = run(tmp_path, "--inventory", "@nodes.csv", "--levels", "row, rack")
    assert done.stdout.startswith("2 nodes, 16 NV_GPU; levels: row, rack\n  row w1: 2 nodes\n")
    done = run(tmp_path, "--inventory", "@nodes.csv", "--levels", "rows")
    assert done.exit_code == 1 and "no node has the label `rows`" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the nodes with --nodes, --ray, --slurm or --kubernetes"),
        (["--inventory", "@nodes.txt", "--kubernetes", "b"], "use only one of --nodes and --kubernetes"),
        (["--slurm", "@nodes.txt", "--kubernetes", "b"], "each lists the nodes"),
        (["--slurm", "@nodes.txt", "--accelerators", "4"], "use --accelerators only if"),
        (["--kubernetes", "a", "--kueue", "b", "--levels", "c"], "use only one of --kueue and --levels"),
        (
            ["--inventory", "@nodes.txt", "--ignore-jobs"],
            "use --ignore-jobs with the nodes that Slurm or Kubernetes shows",
        ),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "nodes.txt").write_text(shown("a"))
    done = run(tmp_path, *arguments)
    assert done.exit_code == 2 and message in " ".join(done.stderr.split())


def test_a_size_is_an_inventory(tmp_path: Path) -> None:
    done = run(tmp_path, "--nodes", "2x8")
    assert done.exit_code == 0 and done.stdout.startswith("2 nodes, 16 NV_GPU"), done.output

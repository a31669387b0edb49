"""Every vendor: the table compared with the installed Ray, and real raylets and ranks of all types in one cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from rankplan import (
    Cluster,
    ClusterError,
    FlexiblePlacementStrategy,
    Inventory,
    NodePlacementStrategy,
    PlacementError,
)
from rankplan.accelerators import NO_ACCEL, VARIABLES, VENDORS, Vendor, vendor
from rankplan.rlinf import with_section
from rankplan.runtime.nodes import probe, simulate
from ray._private.accelerators import get_all_accelerator_managers
from support.paths import DOCS
from support.workers import Reader

MANAGERS: dict[str, Any] = {manager.__name__: manager for manager in get_all_accelerator_managers()}
WITHOUT_A_ROW = {"AppleGPUAcceleratorManager": "one device a machine, and no variable that could hide it"}
FOUND_BY_RAY = [row for row in VENDORS if row.manager is not None]


def of(accelerator_type: str) -> Vendor:
    row = vendor(accelerator_type)
    assert row is not None
    return row


def by_type(row: Vendor) -> str:
    return row.accelerator_type


# ---------------------------------------------------------------------------------------- the table, and Ray's own


def test_every_manager_of_ray_has_its_row() -> None:
    rows = [row.manager for row in FOUND_BY_RAY]
    assert len(rows) == len(set(rows))
    assert set(rows) == set(MANAGERS) - set(WITHOUT_A_ROW)


def test_types_are_different() -> None:
    types = [row.accelerator_type for row in VENDORS]
    assert len(types) == len({*types, NO_ACCEL}) - 1


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_env_vars_cannot_change_devices(name: str) -> None:
    group = {"label": "all", "node_ranks": 0, "env_configs": [{"node_ranks": 0, "env_vars": [{name: "0"}]}]}
    with pytest.raises(PlacementError) as caught:
        with_section(Inventory.uniform(1, 2), {"num_nodes": 1, "node_groups": [group]})
    assert caught.value.code == "reserved-env-var"


def test_the_guide_has_the_table() -> None:
    lines = (DOCS / "visibility.md").read_text().splitlines()
    start = lines.index("| type | vendor | Ray resource | visibility variable | Ray opt-out variable |") + 2
    for row, line in zip(VENDORS, lines[start:], strict=False):
        told = f"`{row.noset_env_var.removeprefix('RAY_EXPERIMENTAL_NOSET_')}` " if row.noset_env_var else ""
        counts = f"`{row.resource}`" + ("" if row.manager else ", by label")
        assert line == f"| `{row.accelerator_type}` | {row.vendor} | {counts} | `{row.env_var}` | {told}|"
    assert lines[start + len(VENDORS)] == ""
    start = lines.index("| type | variables |") + 2
    disturbed = [row for row in VENDORS if row.conflicts]
    for row, line in zip(disturbed, lines[start:], strict=False):
        assert line.startswith(f"| `{row.accelerator_type}` | " + ", ".join(f"`{name}`" for name in row.conflicts))
    assert lines[start + len(disturbed)] == ""


@pytest.mark.parametrize("row", FOUND_BY_RAY, ids=by_type)
def test_a_row_agrees_with_ray(row: Vendor) -> None:
    assert row.manager is not None
    manager = MANAGERS[row.manager]
    constants = vars(sys.modules[manager.__module__])
    assert row.resource == manager.get_resource_name()
    assert row.env_var == manager.get_visible_accelerator_ids_env_var()
    assert {value for name, value in constants.items() if name.startswith("NOSET_")} == {row.noset_env_var}


@pytest.mark.parametrize("ids", [["3"], ["1", "2"], ["0", "1", "2", "3"]], ids=len)
@pytest.mark.parametrize("row", FOUND_BY_RAY, ids=by_type)
def test_a_process_sees_what_ray_would_show_it(row: Vendor, ids: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert row.manager is not None
    assert row.noset_env_var is not None
    manager = MANAGERS[row.manager]
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is unset again after the test
        monkeypatch.delenv(name)
    planned = row.showing(ids)
    manager.set_current_process_visible_accelerator_ids(ids)
    assert {name: os.environ[name] for name in VARIABLES if name in os.environ} == {
        name: value for name, value in planned.items() if name != row.noset_env_var
    }
    assert list(row.shown(os.environ) or ()) == manager.get_current_process_visible_accelerator_ids() == ids
    monkeypatch.setenv(row.noset_env_var, planned[row.noset_env_var])
    manager.set_current_process_visible_accelerator_ids(["9"])
    assert {name: os.environ.get(name) for name in planned} == planned


# ------------------------------------------------------------------------------------ masks that were there before


@pytest.mark.parametrize(
    ("mask", "count", "ids"),
    [
        (None, 0, ()),
        (None, 3, ("0", "1", "2")),
        ("", 0, ()),
        ("NoDevFiles", 0, ()),
        ("-1", 0, ()),
        ("4,5,6,7", 4, ("4", "5", "6", "7")),
        ("7,4", 2, ("7", "4")),
        ("4,5,6,7", 2, ("4", "5")),
        (" 4, 5 ,6 ", 3, ("4", "5", "6")),
        ("4,5,", 2, ("4", "5")),
        ("4,-1,5", 1, ("4",)),
        ("GPU-8f2e,MIG-c3d2", 2, ("GPU-8f2e", "MIG-c3d2")),
        ("MIG-GPU-8f2e/1/0,MIG-GPU-8f2e/2/0", 2, ("MIG-GPU-8f2e/1/0", "MIG-GPU-8f2e/2/0")),
    ],
)
def test_a_node_has_what_its_mask_says(mask: str | None, count: int, ids: tuple[str, ...]) -> None:
    environment = {"HIP_VISIBLE_DEVICES": "1", **({} if mask is None else {"CUDA_VISIBLE_DEVICES": mask})}
    assert probe._ids(of("NV_GPU"), count, environment) == ids


@pytest.mark.parametrize(
    ("mask", "count", "number"),
    [
        ("", 1, 0),
        ("-1", 1, 0),
        ("NoDevFiles", 2, 0),
        ("none", 1, 0),
        ("0-3", 1, 0),
        ("0 1", 1, 0),
        ("0;1", 1, 0),
        ("4,5", 4, 2),
        ("4,4", 2, 1),
        ("4,,5", 3, 1),
        ("4,5,", 3, 2),
        ("4,-1,5", 3, 1),
    ],
)
def test_a_mask_with_fewer_devices_than_ray_counts(mask: str, count: int, number: int) -> None:
    with pytest.raises(ClusterError) as caught:
        probe._ids(of("NV_GPU"), count, {"CUDA_VISIBLE_DEVICES": mask})
    assert str(caught.value) == (
        f"its processes start with CUDA_VISIBLE_DEVICES={mask} (set before `ray start`, or by the job's runtime_env), "
        f"which names {number} device{'' if number == 1 else 's'}, but Ray counts {count} GPU; name each device once, "
        f"separated by commas, or start Ray with --num-gpus={number}"
    )


def test_ids_with_a_prefix_or_parts() -> None:
    environment = {"FURIOSA_DEVICES": "npu:2, 3,npu:4:0-3", "ZE_AFFINITY_MASK": "0.1,1.0"}
    assert probe._ids(of("FURIOSA"), 3, environment) == ("2", "3", "4:0-3")
    assert of("FURIOSA").showing(["2", "npu:4:0-3"])["FURIOSA_DEVICES"] == "npu:2,npu:4:0-3"
    assert probe._ids(of("INTEL_GPU"), 2, environment) == ("0.1", "1.0")
    with pytest.raises(ClusterError, match=r"or start Ray with --resources='\{\"FURIOSA\": 3\}'$"):
        probe._ids(of("FURIOSA"), 4, environment)


@pytest.mark.parametrize(
    ("accelerator_type", "environment", "blamed"),
    [
        ("AMD_GPU", {"ROCR_VISIBLE_DEVICES": "0,1"}, "ROCR_VISIBLE_DEVICES=0,1"),
        (
            "AMD_GPU",
            {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0", "GPU_DEVICE_ORDINAL": "0"},
            "CUDA_VISIBLE_DEVICES=0 GPU_DEVICE_ORDINAL=0",
        ),
        ("INTEL_GPU", {"ONEAPI_DEVICE_SELECTOR": "level_zero:gpu"}, "ONEAPI_DEVICE_SELECTOR=level_zero:gpu"),
        (
            "INTEL_GPU",
            {"ZE_AFFINITY_MASK": "0", "ONEAPI_DEVICE_SELECTOR": "level_zero:0"},
            "ONEAPI_DEVICE_SELECTOR=level_zero:0",
        ),
        ("KUNLUN_XPU", {"XPU_VISIBLE_DEVICES": "0"}, "XPU_VISIBLE_DEVICES=0"),
        ("METAX_GPU", {"MACA_VISIBLE_DEVICES": "0"}, "MACA_VISIBLE_DEVICES=0"),
        ("NEURON", {"NEURON_RT_NUM_CORES": "1"}, "NEURON_RT_NUM_CORES=1"),
        ("TPU", {"RAY_TPU_RESOURCE_PER_CHIP": "2"}, "RAY_TPU_RESOURCE_PER_CHIP=2"),
        ("TTNPU", {"TT_METAL_VISIBLE_DEVICES": "0"}, "TT_METAL_VISIBLE_DEVICES=0"),
    ],
)
def test_variables_that_disturb_the_mask(accelerator_type: str, environment: dict[str, str], blamed: str) -> None:
    row = of(accelerator_type)
    with pytest.raises(ClusterError) as caught:
        probe._ids(row, 1, environment)
    assert str(caught.value) == (
        f"its processes start with {blamed} (set before `ray start`, or by the job's runtime_env), which changes the "
        f"devices they see; unset it, and select {row.vendor} devices with {row.env_var} only"
    )


def test_variables_of_other_vendors_are_ignored() -> None:
    environment = {"ROCR_VISIBLE_DEVICES": "1", "ONEAPI_DEVICE_SELECTOR": "level_zero:gpu", "ZE_AFFINITY_MASK": "5"}
    assert probe._ids(of("NV_GPU"), 1, environment) == ("0",)
    assert probe._ids(of("INTEL_GPU"), 1, environment) == ("5",)


@pytest.mark.parametrize(
    ("resources", "labels", "message"),
    [
        (
            {"GPU": 2.0, "NPU": 4.0},
            {},
            "it has 2 GPU and 4 NPU, but a node must have one accelerator type; start Ray there",
        ),
        (
            {"CPU": 8.0},
            {probe.TYPE_LABEL: "MUSA_GPU"},
            "is MUSA_GPU, but Ray counts no GPU .*, e.g. --num-gpus=8, or",
        ),
        ({"GPU": 8.0}, {probe.TYPE_LABEL: "NPU"}, "is NPU, but Ray counts no NPU .* --resources='{\"NPU\": 8}', or"),
        ({"GPU": 8.0}, {probe.TYPE_LABEL: "CUDA"}, "unknown accelerator type 'CUDA'; the types are NV_GPU,"),
    ],
)
def test_nodes_of_unclear_type(resources: dict[str, float], labels: dict[str, str], message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        probe._vendor_here(resources, labels)


def test_a_label_selects_a_type_or_none() -> None:
    both = {"GPU": 2.0, "NPU": 4.0}
    for accelerator_type in ("NV_GPU", "KUNLUN_XPU", "NPU"):
        assert probe._vendor_here(both, {probe.TYPE_LABEL: accelerator_type}) == of(accelerator_type)
    assert probe._vendor_here(both, {probe.TYPE_LABEL: NO_ACCEL}) is None


# ------------------------------------------------------------------- a cluster with a node of every type, one a raylet

# What a process sees that has the second of two devices of its node: isolated, and not isolated.
SEEN: dict[str, dict[str, tuple[str, str]]] = {
    "NV_GPU": {"CUDA_VISIBLE_DEVICES": ("GPU-5e1f", "MIG-c3d2,GPU-5e1f")},
    "AMD_GPU": {"HIP_VISIBLE_DEVICES": ("2", "3,2")},
    "INTEL_GPU": {"ZE_AFFINITY_MASK": ("0.1", "0.0,0.1")},
    "NPU": {"ASCEND_RT_VISIBLE_DEVICES": ("6", "4,6")},
    "MUSA_GPU": {"MUSA_VISIBLE_DEVICES": ("1", "0,1")},
    "KUNLUN_XPU": {"CUDA_VISIBLE_DEVICES": ("7", "6,7")},
    "METAX_GPU": {"CUDA_VISIBLE_DEVICES": ("3", "1,3")},
    "HPU": {"HABANA_VISIBLE_MODULES": ("5", "4,5")},
    "NEURON": {"NEURON_RT_VISIBLE_CORES": ("9", "8,9")},
    "TPU": {
        "TPU_VISIBLE_CHIPS": ("3", "2,3"),
        "TPU_CHIPS_PER_HOST_BOUNDS": ("1,1,1", "1,2,1"),
        "TPU_HOST_BOUNDS": ("1,1,1", "1,1,1"),
    },
    "RBLN": {"RBLN_DEVICES": ("2", "1,2")},
    "FURIOSA": {"FURIOSA_DEVICES": ("npu:3", "npu:2,npu:3")},
    "MBLT": {"QBRUNTIME_VISIBLE_DEVICES": ("4", "3,4")},
    "TTNPU": {"TT_VISIBLE_DEVICES": ("0000:02:00.0", "0000:01:00.0,0000:02:00.0")},
}
IDS = {kind: next(iter(seen.values()))[1].replace("npu:", "").split(",") for kind, seen in SEEN.items()}
DECLARED = Inventory.from_dict(
    {
        "nodes": [
            {"ranks": rank, "accelerator_type": accelerator_type, "accelerator_ids": ids}
            for rank, (accelerator_type, ids) in enumerate(IDS.items())
        ]
    }
)

# Packages of the vendors, as far as Ray asks them; with one of these a node needs no label.
PACKAGES = {
    "AMD_GPU": (
        "amdsmi.py",
        "class AmdSmiInitFlags:\n    INIT_AMD_GPUS = 2\n"
        "class AmdSmiMemoryType:\n    VRAM = 0\n"
        "class AmdSmiLibraryException(Exception):\n    pass\n"
        "def amdsmi_init(flags): pass\n"
        "def amdsmi_shut_down(): pass\n"
        "def amdsmi_get_processor_handles(): return [0, 1, 2, 3]\n"
        "def amdsmi_get_gpu_id(handle): return 0x74a1\n",
    ),
    "INTEL_GPU": (
        "dpctl.py",
        "class SyclContext:\n    def __init__(self, kind): self.device_count = 4\n"
        "class SyclDevice:\n    def __init__(self, kind): self.name = 'Intel(R) Data Center GPU Max 1550'\n",
    ),
    "METAX_GPU": (
        "pymxsml/mxsml_extension.py",
        "class MXSMLEXError(Exception): pass\n"
        "def mxSmlExInit(): pass\n"
        "def mxSmlExShutdown(): pass\n"
        "def mxSmlExDeviceGetCount(): return 4\n"
        "def mxSmlExDeviceGetHandleByIndex(index): return index\n"
        "def mxSmlExDeviceGetName(handle): return 'C500'\n",
    ),
}
# How else such a node was started.
STARTED = {
    "NV_GPU": {"CUDA_VISIBLE_DEVICES": "MIG-c3d2,GPU-5e1f,7", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1"},
    "AMD_GPU": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1"},
    "INTEL_GPU": {"ONEAPI_DEVICE_SELECTOR": "level_zero:gpu"},
    "NPU": {"CUDA_VISIBLE_DEVICES": "0"},
    "METAX_GPU": {"CUDA_VISIBLE_DEVICES": "1, 3"},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A node of each type. Types that Ray can detect here have no label."""
    folder, options = tmp_path_factory.mktemp("packages"), simulate._node_options
    for accelerator_type, (name, text) in PACKAGES.items():
        file = folder / accelerator_type / name
        file.parent.mkdir(parents=True)
        file.write_text(text)

    def as_started(node: Any, rank: int) -> dict[str, Any]:
        started, kind = options(node, rank), node.accelerator_type
        started["env_vars"] |= STARTED.get(kind, {})
        if kind in (*PACKAGES, "NV_GPU"):
            del started["labels"][probe.TYPE_LABEL]
            folders = [str(folder / kind), *filter(None, [os.environ.get("PYTHONPATH")])]
            started["env_vars"]["PYTHONPATH"] = os.pathsep.join(folders)
        return started

    with patch.object(simulate, "_node_options", as_started), Cluster.simulate(DECLARED) as cluster:
        yield cluster


@pytest.mark.long
def test_each_node_is_found_with_its_type_and_its_own_ids(cluster: Cluster) -> None:
    found = [cluster.inventory.node(rank) for rank in range(cluster.num_nodes)]
    assert {node.accelerator_type: list(node.accelerator_ids) for node in found} == IDS


@pytest.mark.long
def test_a_saved_inventory_keeps_the_ids(cluster: Cluster, tmp_path: Path) -> None:
    cluster.inventory.save(tmp_path / "inventory.yaml")
    assert Inventory.load(tmp_path / "inventory.yaml") == cluster.inventory


@pytest.mark.long
@pytest.mark.parametrize(("isolate", "reserve"), [(True, True), (False, False)])
def test_each_rank_sees_its_devices_by_the_variables_of_the_vendor(
    cluster: Cluster, isolate: bool, reserve: bool
) -> None:
    strategy = FlexiblePlacementStrategy([[2 * node + 1] for node in range(cluster.num_nodes)])
    names = sorted(VARIABLES | {"LOCAL_RANK"})
    with Reader.create_group().launch(cluster, strategy, isolate_accelerator=isolate, reserve=reserve) as group:
        reports = group.verify()
        environments = [dict(zip(names, seen, strict=True)) for seen in group.environment(*names).wait()]
    for report, (accelerator_type, ids), environment in zip(reports, IDS.items(), environments, strict=True):
        row = of(accelerator_type)
        assert list(report.accelerators) == (ids[1:] if isolate else ids)
        assert environment["LOCAL_RANK"] == ("0" if isolate else "1")
        for name, (isolated, whole) in SEEN[accelerator_type].items():
            assert environment[name] == (isolated if isolate else whole)
        if row.noset_env_var:
            assert environment[row.noset_env_var] == "1"
        others = {name for name in VARIABLES - row.variables if environment[name]}
        assert others == ({"CUDA_VISIBLE_DEVICES"} if accelerator_type == "NPU" else set())
    emptied = [environment["HABANA_VISIBLE_MODULES"] == "" for environment in environments]
    assert emptied[:3] == [True, True, False]  # so Ray did rewrite what it was asked to on the first two nodes


@pytest.mark.long
def test_processes_by_node_see_the_whole_node(cluster: Cluster) -> None:
    with Reader.create_group().launch(cluster, NodePlacementStrategy([0, 9, 11])) as group:
        assert [list(report.accelerators) for report in group.verify()] == [IDS["NV_GPU"], IDS["TPU"], IDS["FURIOSA"]]


REGISTERED = """
from rankplan import Cluster, Inventory, PackedPlacementStrategy, Worker, register_accelerator

class Reader(Worker):
    def mask(self):
        import os
        return os.environ["MY_VISIBLE"], os.environ.get("CUDA_VISIBLE_DEVICES")

if __name__ == "__main__":
    register_accelerator("MY_NPU", env_var="MY_VISIBLE", resource="MY_NPU", conflicts=["MY_MASK"])
    ids = ["4", "5", "6", "7"]
    node = {"ranks": 0, "accelerator_ids": ids, "accelerator_type": "MY_NPU", "hardware": {"Arm": 2}}
    with Cluster.simulate(Inventory.from_dict({"nodes": [node]})) as cluster:
        found = cluster.inventory.node(0)
        print(found.accelerator_type, found.accelerator_ids, found.hardware)
        with Reader.create_group().launch(cluster, PackedPlacementStrategy(0, 3, 2), reserve=True) as group:
            print(group.mask().wait())
            print([report.accelerators for report in group.verify()])
"""


@pytest.mark.long
def test_a_registered_type_is_probed_launched_and_verified(tmp_path: Path) -> None:
    """In a process of its own: a registration cannot be taken back."""
    (tmp_path / "program.py").write_text(REGISTERED)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "MY_NPU ('4', '5', '6', '7') {'Arm': 2}",
        "[('4,5', None), ('6,7', None)]",
        "[('4', '5'), ('6', '7')]",
    ]

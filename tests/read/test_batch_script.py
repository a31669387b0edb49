"""The nodes of a batch script that rankplan did not write are those that it asks Slurm for."""

from __future__ import annotations

from pathlib import Path

import pytest
import rankplan
from rankplan import Inventory, PlacementError

HEAD = "#!/bin/bash\n#SBATCH --job-name=mine --account=team\n#SBATCH -t 4:00:00\n"


def load(folder: Path, text: str) -> Inventory:
    path = folder / "train.sbatch"
    path.write_text(text)
    return Inventory.load(path)


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        (["--nodes=4", "--gpus-per-node=8"], [(8, "NV_GPU")] * 4),
        (["-N 2   # two", "--gres=gpu:a100:4"], [(4, "NV_GPU")] * 2),
        (["-N2", "-G16"], [(8, "NV_GPU")] * 2),
        (["--nodes=2-2", "--gres=lustre:1,gpu:8(S:0-1)"], [(8, "NV_GPU")] * 2),
        (["--nodes 1", "--gpus-per-node h100:8"], [(8, "NV_GPU")]),
        (["--gres=npu:8"], [(8, "NPU")]),
        (["--gres=gpu"], [(1, "NV_GPU")]),
        (["--gres=craynetwork:1"], [(0, "NO_ACCEL")]),
        (["--nodes=1", "hetjob", "--nodes=2", "--gpus-per-node=4"], [(0, "NO_ACCEL"), *[(4, "NV_GPU")] * 2]),
        (["--nodes=1", "--nodes=2", "--gpus-per-node=4"], [(4, "NV_GPU")] * 2),
        (["--partition=gpu -N 2 --gpus-per-node 8 --time=1:00 # --nodes=3"], [(8, "NV_GPU")] * 2),
        (["--exclusive --nodes=2 -p 'a b' --gpus-per-node=8"], [(8, "NV_GPU")] * 2),
        (["-N1 --gres=gpu:h100:8,gpu:a100:2"], [(10, "NV_GPU")]),
        (["--nodes=2 --ntasks-per-node=8 --gpus-per-task=1"], [(8, "NV_GPU")] * 2),
        (["--nodes=2 --ntasks=16 --gpus-per-task=h100:1"], [(8, "NV_GPU")] * 2),
        (["-N 2 -n 4 --gpus-per-task=2"], [(4, "NV_GPU")] * 2),
    ],
)
def test_the_nodes_of_a_script(options: list[str], nodes: list[tuple[int, str]], tmp_path: Path) -> None:
    text = HEAD + "".join(f"#SBATCH {one}\n" for one in options) + "\nsrun train.py\n#SBATCH --nodes=9\n"
    found = load(tmp_path, text)
    records = [found.node(rank) for rank in range(found.num_nodes)]
    assert [(one.num_accelerators, one.accelerator_type) for one in records] == nodes


def test_named_hosts_are_the_hosts(tmp_path: Path) -> None:
    found = load(tmp_path, HEAD + "#SBATCH -w node[01-02],gpu7\n#SBATCH --gpus-per-node=8\n")
    assert [found.node(rank).hostname for rank in range(3)] == ["node01", "node02", "gpu7"]
    found = load(tmp_path, HEAD + "#SBATCH --nodes=4 \n#SBATCH -w node[01-02]\n")
    assert [found.node(rank).hostname for rank in range(4)] == [None] * 4


@pytest.mark.parametrize(
    ("line", "message", "column"),
    [
        ("--nodes=$NODES", "`--nodes` is '$NODES'; it must be a number of nodes", 17),
        ("--nodes=2-4", "`--nodes` is '2-4'; it must be a number of nodes", 17),
        ("--gpus-per-node={n}", "`--gpus-per-node` is '{n}'; it must be a number of accelerators up to 65536", 25),
        ("--gpus=7", "`--gpus` is '7'; it must be a multiple of 2 nodes", 16),
        ("-p x --gpus-per-node {n}", "`--gpus-per-node` is '{n}'; it must be a number of accelerators up to 65536", 30),
        ("--gres=gpu:4,npu:8", "`--gres` is 'gpu:4,npu:8'; it must be accelerators of one type", 16),
        ("--gpus-per-task=1 -n $N", "`--ntasks` is '$N'; it must be a number of tasks", 30),
    ],
)
def test_a_number_that_is_none_is_reported(line: str, message: str, column: int, tmp_path: Path) -> None:
    with pytest.raises(PlacementError) as refused:
        load(tmp_path, f"{HEAD}#SBATCH --nodes=2\n#SBATCH {line}\n")
    (fault,) = refused.value.diagnostics
    assert (fault.code, fault.message, fault.line, fault.column) == ("invalid-value", message, 5, column)


def test_whole_nodes_have_a_number_of_accelerators(tmp_path: Path) -> None:
    with pytest.raises(PlacementError, match="does not say how many accelerators they have") as refused:
        load(tmp_path, f"{HEAD}#SBATCH --nodes=2 \n#SBATCH --exclusive\n")
    assert (refused.value.code, refused.value.line, refused.value.column) == ("invalid-inventory", 5, 9)


def test_a_config_fits_a_script_or_not(tmp_path: Path) -> None:
    path = tmp_path / "train.sbatch"
    path.write_text(f"{HEAD}#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n")
    config = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "0-7"}}}
    assert rankplan.check(config, path).plan is not None
    config["cluster"]["component_placement"] = {"actor": "0-8"}
    assert [one.code for one in rankplan.check(config, path).diagnostics] == ["resource-out-of-range"]

"""Scripts that are run on this machine: by a real Slurm, by Open MPI and by torchrun. Every rank is in its place."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import EmitOptions
from support.launchers import CASES, planned
from support.slurm import Slurm, own_rankplan, slurm

pytestmark = pytest.mark.long

ROW = """#!/bin/sh
echo "ROW $1 $RANK $CLUSTER_NODE_RANK ${SLURMD_NODENAME:--} $CUDA_VISIBLE_DEVICES $MASTER_ADDR:$MASTER_PORT $WORLD_SIZE"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm"), "6x8,1x4") as found:
        yield found


@pytest.fixture
def row(tmp_path: Path) -> str:
    """The path of a program that prints its row."""
    program = tmp_path / "row"
    program.write_text(ROW)
    program.chmod(0o755)
    return str(program)


def check_rows(plan: rankplan.Plan, output: str) -> dict[int, str]:
    """Every rank of the plan printed its row, once; return the host of each node rank."""
    found = [line.split() for line in output.splitlines() if line.startswith("ROW ")]
    rows = {(name, int(rank)): (int(node), mask) for _, name, rank, node, _, mask, *_ in found}
    assert len(rows) == len(found) == sum(map(len, plan.values())), output
    for name, component in plan.items():
        for one in component:
            assert rows[name, one.rank] == (one.cluster_node_rank, ",".join(one.visible_accelerators)), (name, one)
    masters = {(name, master, size) for _, name, _, _, _, _, master, size in found}
    assert len(masters) == len(plan) and len({master.rpartition(":")[2] for _, master, _ in masters}) == len(plan)
    hosts = {(int(node), host) for _, _, _, node, host, *_ in found}
    assert len({node for node, _ in hosts}) == len(hosts), "a node rank is on two hosts"
    return dict(sorted(hosts))


def on(nodes: list[dict[str, Any]], components: dict[str, Any], **section: Any) -> rankplan.Plan:
    inventory = rankplan.Inventory.from_dict({"nodes": nodes})
    config = {"num_nodes": len(nodes), "component_placement": components, **section}
    return rankplan.plan({"cluster": config}, inventory)


def node(rank: int, accelerators: int, hostname: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"ranks": rank, "accelerators": accelerators}
    return found if hostname is None else {**found, "hostname": hostname, "ip": f"127.0.0.{rank + 11}"}


BACK = {"node_groups": [{"label": "one", "node_ranks": 1}, {"label": "zero", "node_ranks": 0}]}


@pytest.mark.parametrize("case", ["v01", "v02", "v03"])
def test_slurm_starts_every_rank_of_the_recorded_plans(cluster: Slurm, row: str, case: str) -> None:
    plan = planned(case)
    hosts = check_rows(plan, cluster.run(rankplan.emit(plan, "slurm", EmitOptions(command=f"{row} {{}}"))))
    assert len(set(hosts.values())) == plan.inventory.num_nodes


def test_slurm_leaves_out_the_node_in_the_middle(cluster: Slurm, row: str) -> None:
    nodes = [node(rank, 8, f"n{rank}") for rank in range(3)]
    plan = on(nodes, {"actor": "0-7:0-1,16-23:2-3"}, exclude=["n1"])
    text = rankplan.emit(plan, "slurm", EmitOptions(command=f"{row} {{}}"))
    hosts = check_rows(plan, cluster.run(text))
    assert list(hosts) == [0, 2] and "n1" not in hosts.values()


def test_slurm_starts_ranks_that_return_to_an_earlier_node(cluster: Slurm, row: str) -> None:
    plan = on([node(0, 8), node(1, 8)], {"actor": {"node_group": "one,zero", "placement": "0-3:0,8-11:1"}}, **BACK)
    assert [one.cluster_node_rank for one in plan["actor"]] == [1, 0]
    check_rows(plan, cluster.run(rankplan.emit(plan, "slurm", EmitOptions(command=f"{row} {{}}"))))


def test_slurm_starts_a_component_on_two_kinds_of_nodes(cluster: Slurm, row: str) -> None:
    plan = on([node(0, 8), node(1, 4)], {"actor": "0-7:0-1,8-11:2", "rollout": "0-3:0,8-11:1"})
    text = rankplan.emit(plan, "slurm", EmitOptions(command=f"{row} {{}}"))
    assert " : \\\n  --overlap --het-group=1 " in text
    check_rows(plan, cluster.run(text))


def test_slurm_uses_the_named_hosts_in_the_order_of_the_plan(cluster: Slurm, row: str) -> None:
    plan = on([node(0, 8, "n3"), node(1, 8, "n1")], {"actor": "0-7:0,8-15:1"})
    text = rankplan.emit(plan, "slurm", EmitOptions(command=f"{row} {{}}", pin=True))
    assert check_rows(plan, cluster.run(text)) == {0: "n3", 1: "n1"}


def test_slurm_ends_a_job_with_the_exit_code_of_a_rank(cluster: Slurm, tmp_path: Path) -> None:
    plan = on([node(0, 8), node(1, 8)], {"actor": "0-7:0", "rollout": "0-15:0-1"})
    program = tmp_path / "fails"
    program.write_text('#!/bin/sh\n[ "$1" = actor ] || exec sleep 60\nsleep 1\nexit 7\n')
    program.chmod(0o755)
    text = rankplan.emit(plan, "slurm", EmitOptions(command=f"{program} {{}}"))
    ends = "trap '\n  trap"
    assert ends in text
    output = cluster.run(text.replace(ends, "trap '\n  echo CODE $?; trap"))
    assert "CODE 7" in output and "task 0: Exited with exit code 7" in output


def of_each_node(text: str) -> str:
    """Return a script whose nodes have a folder each. The nodes of the tests are one machine."""
    start = text.index("keep='")
    end = text.index("  end'", start)
    return text[:start] + text[start:end].replace("$0", "$0-$SLURMD_NODENAME") + text[end:]


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.parametrize("ends", ["well", "with a fault", "cancelled"])
def test_slurm_leaves_no_folder_on_any_node(cluster: Slurm, tmp_path: Path, ends: str) -> None:
    plan = on([node(0, 8), node(1, 8), node(2, 4)], {"actor": "0-15", "rollout": "16-19"})
    program = tmp_path / "ends"
    code = "exec sleep 60" if ends == "cancelled" else f"exit {int(ends != 'well')}"
    program.write_text(f"#!/bin/sh\nstat -c 'FOLDER %n %a' {cluster.folder}/rankplan-*\n{code}\n")
    program.chmod(0o755)
    text = of_each_node(rankplan.emit(plan, "slurm", EmitOptions(command=str(program))))

    def folders() -> set[str]:
        return {path.name for path in cluster.folder.glob("rankplan-*")}

    if ends == "cancelled":
        script = cluster.folder / "cancelled.sbatch"
        script.write_text(text)
        output = cluster.tool("exec", "sbatch", "--output=cancelled.txt", str(script))
        log = cluster.folder / "cancelled.txt"
        wait_until(lambda: log.exists() and "FOLDER" in log.read_text())
        cluster.tool("exec", "scancel", output.split()[-1])
        output = log.read_text()
    else:
        output = cluster.run(text)
    modes = dict(line.split()[1:] for line in output.splitlines() if line.startswith("FOLDER "))
    assert len(modes) == 4 and set(modes.values()) == {"700"}, output
    wait_until(lambda: not folders())


def test_slurm_starts_one_ray_per_node_and_the_driver(cluster: Slurm, tmp_path: Path) -> None:
    """``ray`` is a program that prints its words: Ray itself needs an address for each node."""
    plan = on([node(0, 8, "n0"), node(1, 8, "n1"), node(2, 4, "n2")], {"actor": "0-7:0,16-19:1"}, exclude=["n1"])
    ray = cluster.folder / "bin" / "ray"
    ray.write_text('#!/bin/sh\n[ "$1" = health-check ] || { echo "RAY $RANKPLAN_NODE_RANK $*"; exec sleep 30; }\n')
    ray.chmod(0o755)
    driver = tmp_path / "driver"
    driver.write_text('#!/bin/sh\nsleep 1; echo "DRIVER $RAY_ADDRESS $*"; rankplan env "$RANKPLAN_PLAN" --rank 1\n')
    driver.chmod(0o755)
    text = rankplan.emit(plan, "slurm", EmitOptions(entrypoint=f"{driver} 'a b'"))
    output = cluster.run(text)
    head = re.search(r"^DRIVER (\S+):6379 a b$", output, re.M)
    assert head and "export CLUSTER_NODE_RANK=2" in output, output
    started = sorted(line for line in output.splitlines() if line.startswith("RAY "))
    assert started == ["RAY 0 start --head --port=6379 --block", f"RAY 2 start --address={head[1]}:6379 --block"]


# ------------------------------------------------------------------------------------------------------- Open MPI


def with_addresses(case: str) -> rankplan.Plan:
    """Return a recorded plan on addresses of the loopback device."""
    line = CASES[case]
    nodes = [{**one, "ip": f"127.0.0.{one['ranks'] + 11}"} for one in line["inventory"]["nodes"]]
    return rankplan.plan(line["config"], rankplan.Inventory.from_dict({**line["inventory"], "nodes": nodes}))


@pytest.mark.skipif(
    shutil.which("mpirun") is None, reason="Open MPI is not installed; Debian: apt-get install openmpi-bin"
)
@pytest.mark.parametrize("case", ["v01", "v02", "back"])
def test_mpirun_starts_every_rank(tmp_path: Path, row: str, case: str) -> None:
    nodes = [node(0, 4, "n0"), node(1, 4, "n1")]
    back = {"actor": {"node_group": "one,zero", "placement": "0-1:0,4-5:1"}, "it's": "0-1:0-1"}
    plan = on(nodes, back, **BACK) if case == "back" else with_addresses(case)
    agent = tmp_path / "agent"  # stands for ssh
    # The hosts are one machine: without folders of their own, their daemons would race for the same one.
    agent.write_text(
        "#!/bin/sh\nhost=$1\nshift\n"
        'words=$(printf \'%s\' "$*" | sed "s#/tmp/rankplan-[^ \\"\']*#&/$host#g")\n'
        'exec /bin/sh -c "$words"\n'
    )
    agent.chmod(0o755)
    root = " --allow-run-as-root" if os.geteuid() == 0 else ""
    script = tmp_path / "train.sh"
    words = {name: f'{row} "{name}"' for name in plan}
    script.write_text(rankplan.emit(plan, "mpirun", EmitOptions(command=words)))
    environment = {
        **own_rankplan(tmp_path),
        "MPIRUN": f"mpirun{root} --mca plm_rsh_agent {agent} --mca orte_keep_fqdn_hostnames 1",
        "RANKPLAN_SHARED": str(tmp_path),
    }
    done = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    check_rows(plan, done.stdout)


# ------------------------------------------------------------------------------------------------------- torchrun


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torchrun_starts_unequal_nodes(tmp_path: Path, row: str) -> None:
    """Two agents with two ranks and one rank."""
    plan = on([node(0, 2, "a"), node(1, 1, "b")], {"actor": "all"})
    script = tmp_path / "train.sh"
    text = rankplan.emit(plan, "torchrun", EmitOptions(command=f"{row} {{}}")).replace("127.0.0.11", "127.0.0.1")
    script.write_text(text)
    environment = own_rankplan(tmp_path)
    started = [
        subprocess.Popen(
            ["bash", str(script)],
            env={**environment, "RANKPLAN_NODE_RANK": rank},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "0+1*1")
    ]
    outputs = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    check_rows(plan, "".join(outputs))

"""What the scripts of launchers say, read by regular expressions: an oracle for the writers."""

from __future__ import annotations

import re
from typing import Any

_COUNTS = re.compile(r"#SBATCH --(nodes|gpus-per-node|segment)=(\d+)")


def slurm_facts(text: str, plan: Any) -> dict[str, Any]:
    """Return the components of the job and the steps of a batch script."""
    parts: list[dict[str, int]] = [{}]
    for line in text.partition("set -euo pipefail")[0].splitlines():
        if line == "#SBATCH hetjob":
            parts.append({})
        elif found := _COUNTS.fullmatch(line):
            parts[-1][found[1].replace("-", "_")] = int(found[2])
    steps = {}
    for name in plan:
        hosts = re.search(rf'^tasks (.*) >"\$plan\.{name}"$', text, re.M)
        step = re.search(rf'(?: --het-group=(\d+))? --nodelist="\$plan\.{name}" .*? --ntasks=(\d+) ', text)
        assert hosts and step
        group = None if step[1] is None else [int(step[1])]
        steps[name] = {"ntasks": int(step[2]), "hosts": hosts[1], "het_group": group}
    excluded = re.search(r"^#SBATCH --exclude=(.*)$", text, re.M)
    return {"components": parts, "steps": steps, **({"exclude": excluded[1].split(",")} if excluded else {})}


def torchrun_facts(text: str, plan: Any) -> dict[str, Any]:
    """Return the launches of a script for torchrun."""
    launches = {}
    for name in plan:
        found = []
        for node, case in re.findall(r"^  (\d+)\)\n(.*?)^    ;;$", text, re.M | re.S):
            for line in case.split("&\n"):
                if f" --component {name} " in line:
                    size = re.search(r"--nnodes=(\d+) --nproc-per-node=(\d+) --node-rank=(\d+) ", line)
                    assert size
                    found.append((int(size[3]), int(node), int(size[2]), int(size[1])))
        found.sort()
        sizes = [size for _, _, size, _ in found]
        assert [rank for rank, *_ in found] == list(range(len(found))) and {one[3] for one in found} == {len(found)}
        launches[name] = {
            "nnodes": len(found),
            "nproc_per_node": sizes,
            "nodes": [node for _, node, _, _ in found],
            "world_size": sum(sizes),
        }
    return {"launches": launches}


def mpirun_facts(text: str, plan: Any) -> dict[str, Any]:
    """Return the launches of a script for Open MPI."""
    launches = {}
    for name in plan:
        lines = re.search(rf'^cat >"\$plan\.{name}" <<APP\n(.*?)^APP$', text, re.M | re.S)
        assert lines
        found = re.findall(r"^--host (\S+):\d+ -np (\d+) ", lines[1], re.M)
        contexts = [[host, int(count)] for host, count in found]
        launches[name] = {"np": sum(count for _, count in contexts), "contexts": contexts}
    return {"launches": launches}


FACTS = {"slurm": slurm_facts, "torchrun": torchrun_facts, "mpirun": mpirun_facts}

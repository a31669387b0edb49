"""What the scripts of launchers say, read by regular expressions: an oracle for the writers."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
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


# ------------------------------------------------------------------------------------- what the launchers would start

_Started = dict[str, list[tuple[int, list[str]]]]
"""The node rank and the command of each process, by rank, of each component."""


def _exec_words(text: str) -> list[str]:
    """Return the words of the ``rankplan exec`` command at the start of a text, as bash passes them."""
    shell = ["bash", "-c", f"plan=P; rankplan() {{ printf '%s\\0' \"$@\"; }}; host=({{0..99}}); rankplan {text}"]
    done = subprocess.run(shell, capture_output=True, check=True)
    return done.stdout.decode(errors="surrogateescape").split("\0")[:-1]


def _component_and_command(text: str) -> tuple[str, list[str]]:
    words = _exec_words(text)
    return words[words.index("--component") + 1], words[words.index("--") + 1 :]


def slurm_started(text: str) -> _Started:
    """Line i of the host list is task i; the groups of a heterogeneous job come one after another."""
    tasks = {}
    for runs, file in re.findall(r'^tasks (.*) >"(\$plan\.[^"]*)"$', text, re.M):
        tasks[file] = [int(run.partition("x")[0]) for run in runs.split() for _ in range(int(run.partition("x")[2]))]
    found: _Started = {}
    step = (
        r'--nodelist="(\$plan\.[^"]*)" --distribution=arbitrary --ntasks=(\d+) .* \\\n  rankplan (exec .*?)( &| : \\)$'
    )
    for file, count, words, _ in re.findall(step, text, re.M):
        assert len(tasks[file]) == int(count)
        name, command = _component_and_command(words)
        found.setdefault(name, []).extend((node, command) for node in tasks[file])
    return found


def torchrun_started(text: str) -> _Started:
    """Ranks follow ``--node-rank``, and on a node the local rank."""
    launches: dict[str, dict[int, list[tuple[int, list[str]]]]] = {}
    for node, case in re.findall(r"^  (\d+)\)\n(.*?)^    ;;$", text, re.M | re.S):
        for line in case.replace("\\\n", "").split("\n")[:-1]:
            size = re.search(r"--nproc-per-node=(\d+) --node-rank=(\d+) .* --no-python rankplan (exec .*) &$", line)
            assert size
            name, command = _component_and_command(size[3])
            launches.setdefault(name, {})[int(size[2])] = [(int(node), command)] * int(size[1])
    return {name: [one for at in sorted(some) for one in some[at]] for name, some in launches.items()}


def mpirun_started(text: str) -> _Started:
    """Ranks follow the lines; a host has no more processes than slots."""
    content = {}
    for file, mark, lines in re.findall(r'^cat >"\$plan\.(\S+)" <<(APP|RUN)\n(.*?)^(?:APP|RUN)$', text, re.M | re.S):
        shell = ["bash", "-c", f"plan=P\ncat <<{mark}\n{lines}{mark}\n"]
        content[file] = subprocess.run(shell, capture_output=True, check=True).stdout.decode(errors="surrogateescape")
    saved = json.loads("\n".join(text.split("\n")[min(plan_lines_of(text)) - 1 : max(plan_lines_of(text))]))
    hosts = {}
    for entry in saved["inventory"]["nodes"]:
        for name in (entry.get("hostname"), entry.get("ip")):
            hosts[name] = int(entry["ranks"])
    found: _Started = {}
    for file, lines in content.items():
        if file.endswith(".sh"):
            continue
        used: Counter[str] = Counter()
        for host, slots, count, words in re.findall(r"^--host (\S+):(\d+) -np (\d+) (.*)$", lines, re.M):
            used[host] += int(count)
            assert used[host] <= int(slots)
            if words.startswith("bash P."):
                script = content[words.removeprefix("bash P.")].rstrip("\n").removeprefix("exec rankplan ")
                name, command = _component_and_command(script)
            else:
                plain = words.split(" ")  # as Open MPI splits it
                name, command = plain[plain.index("--component") + 1], plain[plain.index("--") + 1 :]
            found.setdefault(name, []).extend([(hosts[host], command)] * int(count))
    return found


STARTED = {"slurm": slurm_started, "torchrun": torchrun_started, "mpirun": mpirun_started}


def plan_lines_of(text: str) -> range:
    """Return the numbers of the lines with the plan."""
    lines = text.split("\n")
    first = next(at for at, line in enumerate(lines, 1) if line.endswith("<<'PLAN'"))
    return range(first + 1, lines.index("PLAN") + 1)

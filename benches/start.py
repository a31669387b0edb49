"""The processor time of starting: ``import rankplan``, ``rankplan --help`` and ``rankplan check`` of small files.

Each program runs in fresh processes, by turns, and the median counts. An empty program's time is subtracted. Ratios are
to the time of importing pydantic, yaml and click, in the same run. Run ``python benches/start.py``.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

ROUNDS = 15
CONFIGS = {
    "verl.yaml": """
trainer: {nnodes: 2, n_gpus_per_node: 8}
actor_rollout_ref: {rollout: {tensor_model_parallel_size: 2}}
""",
    "rlinf.yaml": "cluster: {num_nodes: 2, component_placement: {actor: 0-7, rollout: 8-15}}\n",
    "groups.yaml": """
cluster:
  num_nodes: 2
  accelerator_memory: 80 GiB
  node_groups: [{label: train, node_ranks: 0}, {label: serve, node_ranks: 1}]
  topology: {levels: [rack], keep: {actor: {tp: node}}}
  component_placement:
    actor: {node_group: train, placement: 0-7, parallel: {tp: 8}, memory: {training: megatron, model: Qwen/Qwen3-8B}}
    rollout: {node_group: serve, placement: 0-7, memory: {engine: vllm, model: Qwen/Qwen3-8B}}
""",
}
PROGRAMS = {
    "empty program": ["-c", "pass"],
    "import pydantic, yaml, click": ["-c", "import pydantic, yaml, click; pydantic.BaseModel"],
    "import rankplan": ["-c", "import rankplan"],
    "rankplan --help": ["-m", "rankplan", "--help"],
    **{f"rankplan check {name}": ["-m", "rankplan", "check", name, "--nodes", "2x8"] for name in CONFIGS},
}


def processor_time(arguments: list[str], folder: str) -> float:
    """Return the user and system time of a program in seconds."""
    # Bytecode is cached, as in an installed package.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(Path(folder, "bytecode"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    with TemporaryDirectory() as folder:
        for name, text in CONFIGS.items():
            Path(folder, name).write_text(text)
        rounds = [
            {name: processor_time(program, folder) for name, program in PROGRAMS.items()} for _ in range(ROUNDS + 1)
        ]
    empty, libraries, *ours = PROGRAMS
    times = {name: median(one[name] for one in rounds[1:]) for name in PROGRAMS}  # the first fills caches
    base = times[libraries] - times[empty]
    print(f"{'program':<30} {'time':>8} {'ratio':>7}")
    for name in (libraries, *ours):
        print(f"{name:<30} {(times[name] - times[empty]) * 1e3:5.0f} ms {(times[name] - times[empty]) / base:7.2f}")


if __name__ == "__main__":
    main()

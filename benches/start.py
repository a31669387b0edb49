"""The processor time of starting: ``import rankplan``, ``rankplan --help`` and ``rankplan check`` of small files.

Each program runs in fresh processes, by turns, and the median counts. An empty program's time is subtracted. Ratios are
to the time of importing pydantic, yaml and click, in the same run.

The last lines compare a job file with a config that states the same rules itself: the command, and `rankplan.check`
again and again in this process, by turns. Run ``python benches/start.py``.
"""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

ROUNDS = 15
CALLS = 300
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
_RULES = "{keep: {rollout: {tp: node}}, segment: {actor: {rack: 2}}}"
_ROLES = "component_placement: {actor: 0-15, rollout: 16-31}"
_SIZES = "actor: {model: {tensor_model_parallel_size: 4}}\nrollout: {tensor_parallel_size: 4}"
_NODES = [f"{{ranks: {rank}, accelerators: 8, hostname: n{rank}, labels: {{rack: r{rank // 4}}}}}" for rank in range(8)]
RULES = {
    "nodes.yaml": f"levels: [rack]\nnodes: [{', '.join(_NODES)}]\n",
    "ruled.yaml": f"cluster: {{num_nodes: 4, {_ROLES}, topology: {_RULES}}}\n{_SIZES}\n",
    "plain.yaml": f"cluster: {{num_nodes: 4, {_ROLES}}}\n{_SIZES}\n",
    "run.job.yaml": f"job: plain.yaml\nnodes: nodes.yaml\ntopology: {_RULES}\n",
}
"""A config of RLinf with rules of its own, and a job file that states the same rules beside one without."""
OF_CONFIG, OF_JOB = "rankplan check ruled.yaml", "rankplan check run.job.yaml"
PROGRAMS = {
    "empty program": ["-c", "pass"],
    "import pydantic, yaml, click": ["-c", "import pydantic, yaml, click; pydantic.BaseModel"],
    "import rankplan": ["-c", "import rankplan"],
    "rankplan --help": ["-m", "rankplan", "--help"],
    **{f"rankplan check {name}": ["-m", "rankplan", "check", name, "--nodes", "2x8"] for name in CONFIGS},
    OF_CONFIG: ["-m", "rankplan", "check", "ruled.yaml", "--nodes", "nodes.yaml"],
    OF_JOB: ["-m", "rankplan", "check", "run.job.yaml"],
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


def ratio_of_calls(folder: str) -> float:
    """Return the time of `rankplan.check` of the job file as a multiple of that of the config."""
    from rankplan import check

    times: dict[str, list[float]] = {OF_CONFIG: [], OF_JOB: []}
    gc.disable()
    with chdir(folder):
        for _ in range(CALLS):
            for name, arguments in ((OF_CONFIG, ("ruled.yaml", "nodes.yaml")), (OF_JOB, ("run.job.yaml",))):
                before = time.process_time()
                check(*arguments)
                times[name].append(time.process_time() - before)
            gc.collect(0)
    gc.enable()
    return median(times[OF_JOB]) / median(times[OF_CONFIG])


def main() -> None:
    with TemporaryDirectory() as folder:
        for name, text in (CONFIGS | RULES).items():
            Path(folder, name).write_text(text)
        rounds = [
            {name: processor_time(program, folder) for name, program in PROGRAMS.items()} for _ in range(ROUNDS + 1)
        ]
        of_calls = ratio_of_calls(folder)
    empty, libraries, *ours = PROGRAMS
    times = {name: median(one[name] for one in rounds[1:]) for name in PROGRAMS}  # the first fills caches
    base = times[libraries] - times[empty]
    print(f"{'program':<30} {'time':>8} {'ratio':>7}")
    for name in (libraries, *ours):
        print(f"{name:<30} {(times[name] - times[empty]) * 1e3:5.0f} ms {(times[name] - times[empty]) / base:7.2f}")
    of_commands = (times[OF_JOB] - times[empty]) / (times[OF_CONFIG] - times[empty])
    print(f"a job file as a multiple of its config: the command {of_commands:.2f}, rankplan.check {of_calls:.2f}")


if __name__ == "__main__":
    main()

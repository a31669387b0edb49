"""The processor time of starting: ``import rankplan``, ``rankplan --help`` and ``rankplan check`` of a small file.

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
CONFIG = "cluster: {num_nodes: 2, component_placement: {actor: 0-7, rollout: 8-15}}\n"
PROGRAMS = {
    "empty program": ["-c", "pass"],
    "import pydantic, yaml, click": ["-c", "import pydantic, yaml, click; pydantic.BaseModel"],
    "import rankplan": ["-c", "import rankplan"],
    "rankplan --help": ["-m", "rankplan", "--help"],
    "rankplan check conf.yaml": ["-m", "rankplan", "check", "conf.yaml", "--nodes", "2x8"],
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
        Path(folder, "conf.yaml").write_text(CONFIG)
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

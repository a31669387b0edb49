"""Count the instructions of the core's main steps with callgrind, and compare them with ``instructions.txt``.

``python benches/instructions.py`` fails if a count differs too much; ``--update`` stores the new counts. Unlike times,
instruction counts hardly vary: with the same compiler, only the C library's choices for a processor change them. A
compiler other than the one named in the file gets a larger tolerance.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
KEPT = Path(__file__).with_suffix(".txt")
WORK = ("parse", "place-all", "place-segments", "union", "assign-chunks", "pack", "requests", "domains")
SAME_COMPILER, ANOTHER_COMPILER = 0.05, 0.30


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--update", action="store_true", help="store the new counts")
    update = arguments.parse_args().update
    if shutil.which("valgrind") is None:
        print("instructions: skipped, valgrind is not installed")
        return 0
    compiler = output("rustc", "--version")
    program = build()
    counts = {work: count(program, work) for work in WORK}
    if update:
        lines = [f"{work} {counted}" for work, counted in counts.items()]
        KEPT.write_text("\n".join([compiler, *lines]) + "\n", encoding="utf-8")
    kept_compiler, *lines = KEPT.read_text(encoding="utf-8").splitlines()
    kept = {work: int(counted) for work, counted in (line.split() for line in lines)}
    room = SAME_COMPILER if compiler == kept_compiler else ANOTHER_COMPILER
    print(f"instructions with {compiler}, stored with {kept_compiler}: tolerance {room:.0%}")
    far = False
    for work, counted in counts.items():
        change = counted / kept[work] - 1 if work in kept else float("inf")
        far |= abs(change) > room
        print(f"  {work:<16}{counted:>14,}{change:>+9.1%}{'  <- too far' if abs(change) > room else ''}")
    if far:
        print("find the cause; if the change is intended, run python benches/instructions.py --update")
    return int(far)


def build() -> str:
    """Build the counted program in release mode and return its path."""
    subprocess.run(
        ["cargo", "build", "--release", "--locked", "--package", "rankplan-instructions"], cwd=ROOT, check=True
    )
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return str(target / "release" / "rankplan-instructions")


def count(program: str, work: str) -> int:
    """Return the number of instructions of a step, without its preparation."""
    only = "--toggle-collect=rankplan_instructions::counted*"
    told = output("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", only, program, work)
    return int(re.search(r"Collected : (\d+)", told)[1])


def output(*command: str) -> str:
    return subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())

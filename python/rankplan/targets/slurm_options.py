"""The options of a batch script: which are rankplan's, and which of the user's every component of a job needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rankplan.config.text.places import Place
from rankplan.errors import Diagnostic
from rankplan.targets.script import Head

HETJOB = "#SBATCH hetjob"

_LONG = {
    "-a": "--array",
    "-c": "--cpus-per-task",
    "-C": "--constraint",
    "-F": "--nodefile",
    "-G": "--gpus",
    "-J": "--job-name",
    "-m": "--distribution",
    "-n": "--ntasks",
    "-N": "--nodes",
    "-p": "--partition",
    "-s": "--oversubscribe",
    "-S": "--core-spec",
    "-w": "--nodelist",
    "-x": "--exclude",
    "packjob": "hetjob",
    "--tasks-per-node": "--ntasks-per-node",
}
_OWN = frozenset(
    (
        "--array",
        "--consolidate-segments",
        "--distribution",
        "--exclude",
        "--exclusive",
        "--gpus",
        "--gpus-per-node",
        "--gpus-per-socket",
        "--gpus-per-task",
        "--gres",
        "--job-name",
        "--nodefile",
        "--nodelist",
        "--nodes",
        "--ntasks",
        "--ntasks-per-core",
        "--ntasks-per-gpu",
        "--ntasks-per-node",
        "--ntasks-per-socket",
        "--oversubscribe",
        "--segment",
        "--spread-segments",
        "hetjob",
    )
)
"""Options that decide where processes run, and the name of the job."""
_SHARED = frozenset(("--exclude", "--nodelist"))
"""Options that are the user's if rankplan does not write them."""
_REPEATED = frozenset(
    (
        "--constraint",
        "--core-spec",
        "--cpus-per-gpu",
        "--cpus-per-task",
        "--hint",
        "--mem-per-cpu",
        "--mem-per-gpu",
        "--partition",
        "--threads-per-core",
        "--tmp",
    )
)
_LINE = re.compile(r"#SBATCH\s+(hetjob\b|packjob\b|--[A-Za-z-]+|-[A-Za-z])[\s=]*([^#]*)")


def option_of(line: str) -> tuple[str, str] | None:
    """Return the long name and the value of the option in a line, ``None`` for any other line."""
    found = _LINE.match(line)
    return None if found is None else (_LONG.get(found[1], found[1]), found[2].strip().strip("\"'"))


def repeated(head: Head) -> Iterator[str]:
    """Yield the user's options that Slurm forgets for every later component of a job."""
    for _, line in head.options:
        if (option := option_of(line)) is not None and option[0] in _REPEATED:
            yield line


def is_own(line: str, earlier: Sequence[str]) -> bool:
    """Whether a line below the digest is rankplan's."""
    option = option_of(line)
    return option is not None and (option[0] in _OWN or (option[0] in _REPEATED and HETJOB in earlier))


def conflicts(head: Head, written: Sequence[str], file: str) -> Iterator[Diagnostic]:
    """Yield the faults of the user's options that are rankplan's, which writes these lines."""
    ours = [option for line in written if (option := option_of(line)) is not None]
    for number, line in head.options:
        option = option_of(line)
        same = None if option is None else next((one for one in ours if one[0] == option[0]), None)
        if option is None or option[0] not in _OWN or (same is None and option[0] in _SHARED):
            continue
        name, value = option
        text = f"`{name}{'=' if value else ''}{value}`"
        own = f"the plan has `{name}{'=' if same[1] else ''}{same[1]}`" if same else "the plan decides that"
        help = f"remove the line, and pass --name {value}" if name == "--job-name" else "remove the line"
        start = line.index(line.split()[1])
        place = Place(file, number, start, len(line.rstrip()), line)
        yield place.of(Diagnostic("emit-conflict", f"{text}: {own}", help))

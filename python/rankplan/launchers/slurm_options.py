"""The options of a batch script: which are rankplan's, and which of the user's every component of a job needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankplan.errors import Diagnostic
from rankplan.launchers import faults
from rankplan.launchers.scripts import Head
from rankplan.read.text.places import Place
from rankplan.read.text.sbatch import sbatch_options

HETJOB = "#SBATCH hetjob"

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
        "--mincpus",
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
_SHARED = frozenset(("--exclude", "--mincpus", "--nodelist"))
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


def repeated(head: Head) -> Iterator[str]:
    """Yield the user's options that Slurm forgets for every later component of a job."""
    for _, line in head.options:
        for option in sbatch_options(line):
            if option.name in _REPEATED:
                yield f"#SBATCH {line[option.start : option.end]}"


def is_own(line: str, earlier: Sequence[str]) -> bool:
    """Whether a line below the digest is rankplan's, which writes one option a line."""
    option = next(sbatch_options(line), None)
    return option is not None and (option.name in _OWN or (option.name in _REPEATED and HETJOB in earlier))


def conflicts(head: Head, written: Sequence[str], file: str) -> Iterator[Diagnostic]:
    """Yield the faults of the user's options that are rankplan's, which writes these lines."""
    ours = {one.name: one.value for line in reversed(written) for one in sbatch_options(line)}
    for number, line in head.options:
        options = list(sbatch_options(line))
        for option in options:
            name, value = option.name, option.value
            if name not in _OWN or (name not in ours and name in _SHARED):
                continue
            own = ours.get(name)
            fault = faults.own_option(
                _text(name, value),
                None if own is None else _text(name, own),
                alone=len(options) == 1,
                job_name=value if name == "--job-name" else None,
            )
            yield Place(file, number, option.start, option.end, line).of(fault)


def _text(name: str, value: str) -> str:
    """Return an option as a script writes it."""
    return f"{name}={value}" if value else name

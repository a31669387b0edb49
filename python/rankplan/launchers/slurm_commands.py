"""The body of a batch script for Slurm that starts the commands of a job, each with a task on every one of its nodes.

``SLURM_PROCID`` is known in a task only, so that a shell there fills it in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankplan.launchers.draft import Draft
from rankplan.launchers.node_commands import At, Start, shell_text, starts_of
from rankplan.launchers.scripts import Stay, file_names, quoted, wait_lines
from rankplan.launchers.slurm_job import Component
from rankplan.launchers.slurm_steps import joined, step_parts, tasks_line

_RANK = '"$SLURM_PROCID"'


def command_lines(draft: Draft, job: Sequence[Component]) -> Iterator[str]:
    """Yield the host lists of the commands, then a step for each, servers first."""
    files = file_names(draft.plan)
    starts = starts_of(draft)
    steps: list[str] = []
    for start in starts:
        stays = [Stay(node, 1) for node in start.nodes]
        program = _program(draft, start)
        step = []
        for part in step_parts(draft, job, start.name, stays, files[start.name]):
            yield tasks_line(part)
            step.append(f"{part.options} \\\n  {program}")
        steps.append(f"srun {joined(step)} &")
    for text in steps:
        yield from text.split("\n")
    yield ""
    serving = sum(start.command.serves for start in starts)
    yield from wait_lines(serving, len(starts) - serving)


def _program(draft: Draft, start: Start) -> str:
    """Return the shell of a task, with the hosts that its command needs as arguments."""
    hosts: list[int] = []

    def address(node: int) -> str:
        if node not in hosts:
            hosts.append(node)
        return f'"${hosts.index(node) + 1}"'

    before, mask = _mask(start)
    counts = [str(share.processes) for share in start.shares]
    processes = counts[0]
    if len(set(counts)) > 1:
        before += f"processes=({' '.join(counts)}); "
        processes = '"${processes[SLURM_PROCID]}"'
    text = before + shell_text(start, draft.plan, At(_RANK, processes, address), mask)
    arguments = "".join(f' "${{host[{node}]}}"' for node in hosts)
    return f"bash -c {quoted(text)}{' bash' if hosts else ''}{arguments}"


def _mask(start: Start) -> tuple[str, dict[str, str]]:
    """Return what a shell does before a command, and the variables that show the accelerators of its node."""
    masks = [share.mask for share in start.shares]
    if all(mask == masks[0] for mask in masks):
        return "", dict(masks[0])
    name = next(iter(masks[0]))
    listed = " ".join(mask[name] for mask in masks)
    return f"masks=({listed}); ", {name: '"${masks[SLURM_PROCID]}"'}

"""The body of a batch script for Slurm that starts the commands of a job, each with a task on every one of its nodes.

``SLURM_PROCID`` is known in a task only, so that a shell there fills it in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.launchers.node_commands import At, Share, Start, shell_text, starts_of
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
        first = start.shares[0]
        other = next((share for share in start.shares if share.mask.keys() != first.mask.keys()), None)
        if other is not None:
            draft.refuse(faults.other_masks(start.name, (first.node, list(first.mask)), (other.node, list(other.mask))))
            continue
        program = _program(draft, start)
        step = []
        for part in step_parts(draft, job, start.name, _stays(start), files[start.name]):
            yield tasks_line(part)
            step.append(f"{part.options} \\\n  {program}")
        steps.append(f"srun {joined(step)} &")
    for text in steps:
        yield from text.split("\n")
    yield ""
    serving = sum(start.command.serves for start in starts)
    yield from wait_lines(serving, len(starts) - serving)


def _program(draft: Draft, start: Start) -> str:
    """Return the shell of a task, with the hosts that its command needs as arguments.

    A value that differs between tasks is an element of an array of this shell.
    """
    hosts: dict[int, str] = {}
    arrays: dict[tuple[str, ...], str] = {}

    def address(node: int) -> str:
        return hosts.setdefault(node, f'"${{{len(hosts) + 1}}}"' if len(hosts) > 8 else f'"${len(hosts) + 1}"')

    def of_share(name: str, value_of: Callable[[Share], str]) -> str:
        values = tuple(map(value_of, start.shares))
        if len(set(values)) == 1:
            return values[0]
        if values not in arrays:
            number = sum(other.startswith(name) for other in arrays.values())
            arrays[values] = f"{name}{number + 1}" if number else name
        return f'"${{{arrays[values]}[SLURM_PROCID]}}"'

    mask = {name: of_share("masks", partial(_shown, name)) for name in start.shares[0].mask}
    command = shell_text(start, draft.plan, At(_RANK, address, of_share), mask)
    before = "".join(f"{name}=({' '.join(values)}); " for values, name in arrays.items())
    arguments = "".join(f' "${{host[{node}]}}"' for node in hosts)
    return f"bash -c {quoted(before + command)}{' bash' if hosts else ''}{arguments}"


def _shown(name: str, share: Share) -> str:
    return share.mask[name]


def _stays(start: Start) -> list[Stay]:
    """Return the tasks of a command on each of its nodes."""
    counts = Counter(share.node for share in start.shares)
    return [Stay(node, counts[node]) for node in start.nodes]

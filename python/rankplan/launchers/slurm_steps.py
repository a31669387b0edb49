"""The body of a batch script for Slurm: the hosts of the node ranks; a step for each component, or Ray and a driver.

Source: Slurm 22.05 to 25.11 (SchedMD/slurm@284c3b95). ``--distribution=arbitrary`` gives task i to line i of the host
list. A heterogeneous job numbers tasks group by group, in ascending order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.launchers.ray import CHECK, PORT, TOKEN
from rankplan.launchers.scripts import LAST_SIGNAL, WAIT, Stay, file_names, quoted, shell_words, stays_of
from rankplan.launchers.slurm_job import Component, pinned_hosts
from rankplan.launchers.trainer import driver

EXEC = 'rankplan exec "$plan.json"'
UNBOUND = "--gpu-bind=none --cpu-bind=none"
"""The plan decides which devices and cores a rank has."""
DRIVER = 'RAY_ADDRESS="$address" '
PLAN = '"$plan.json"'
"""The path of the plan on every node."""
_NEXT = " : \\\n  "
"""Between the parts of a step in two components of a job."""
_KEEP = """keep='
  end() { trap "" TERM USR1; rm -rf "$0"; kill $! 2>/dev/null; exit 0; }
  [[ -d $0 && ! -L $0 && -O $0 ]] || mkdir -m 700 "$0" || exit 1
  sleep infinity &
  trap end TERM USR1
  echo ready
  wait
  end'"""
"""What holds the folder on a node. One that somebody else has made there ends the job."""
_LEAVE = f"""trap '
  {LAST_SIGNAL}
  kill $(jobs -p) 2>/dev/null || true
  if kill -USR1 $keeper 2>/dev/null; then cat <&"$ready"; fi
  rm -rf "$folder"' EXIT"""
"""What ends the job: ``srun`` forwards SIGUSR1 to its tasks; after a SIGTERM, it would kill them at once."""
_RAY = f"""start='
  RANK
  if [ "$SLURM_PROCID" = 0 ]; then exec ray start --head --port={PORT} --block; fi
  until {CHECK} "$address"; do sleep 2; done
  exec ray start --address="$address" --block'"""


def folder_steps(job: Sequence[Component]) -> Iterator[str]:
    """Yield the lines that make the folder on every node, and remove it there when the job ends, however it ends.

    A step does both: a job that was cancelled starts no more steps, but Slurm sends SIGTERM to those that run.
    """
    yield "# the same folder on every node, until the job ends; only this user can write there"
    yield from _KEEP.split("\n")
    step = []
    for index, one in enumerate(job):
        het = f" --het-group={index}" if len(job) > 1 else ""
        count = len(one.nodes)
        options = f"--overlap{het} --nodes={count} --ntasks={count} {UNBOUND} --kill-on-bad-exit=1"
        step.append(f'{options} bash -c "$keep" "$folder"')
    yield from f"exec {{ready}}< <(exec srun {_NEXT.join(step)})".split("\n")
    yield "keeper=$!"
    yield from _LEAVE.split("\n")
    num_nodes = sum(len(one.nodes) for one in job)
    yield f'for ((node = 0; node < {num_nodes}; node++)); do read -r -u "$ready"; done'


def host_lines(draft: Draft, job: Sequence[Component]) -> Iterator[str]:
    """Yield the lines that set ``host`` to the host of each node rank."""
    yield "# the host of each node rank"
    nodes = [node for one in job for node in one.nodes]
    if draft.options.pin:
        yield f"host=({_elements(nodes, map(quoted, pinned_hosts(draft, nodes)))})"
        return
    lists = "; ".join(_host_list(one, index if len(job) > 1 else None) for index, one in enumerate(job))
    if any(one.segment is not None for one in job):
        yield "# along the network: a segment is a run of node ranks"
    dense = _dense(nodes)
    yield f"mapfile -t {'host' if dense else 'hosts'} < <({lists})"
    if not dense:
        names = (f'"${{hosts[{index}]}}"' for index in range(len(nodes)))
        yield f"host=({_elements(nodes, names)})"


def _dense(nodes: Sequence[int]) -> bool:
    return list(nodes) == list(range(len(nodes)))


def _elements(nodes: Sequence[int], values: Iterable[str]) -> str:
    dense = _dense(nodes)
    return " ".join(value if dense else f"[{node}]={value}" for node, value in zip(nodes, values, strict=True))


def _host_list(one: Component, group: int | None) -> str:
    """Return the command that lists the hosts of a component of the job, in the order of its node ranks."""
    if one.segment is None:
        which = "" if group is None else f"_HET_GROUP_{group}"
        return f'scontrol show hostnames "$SLURM_JOB_NODELIST{which}"'
    het, count = "" if group is None else f" --het-group={group}", len(one.nodes)
    step = f"srun{het} --nodes={count} --ntasks={count} --gpu-bind=none"
    return f"""{step} bash -c 'echo "$SLURM_TOPOLOGY_ADDR $SLURMD_NODENAME"' | sort -V | cut -d ' ' -f 2"""


def step_lines(draft: Draft, job: Sequence[Component]) -> Iterator[str]:
    """Yield the host lists of the components, then a step for each."""
    files = file_names(draft.plan)
    commands: list[str] = []
    for index, (name, component) in enumerate(draft.plan.items()):
        stays = stays_of(component)
        master = f'--master "${{host[{stays[0].node}]}}:{draft.options.port + index}"'
        words = f"{EXEC} --component {quoted(name)} --rank-from SLURM_PROCID {master}"
        command = f"{words} -- {shell_words(draft.options.command(name) or '')}"
        step = []
        for part in step_parts(draft, job, name, stays, files[name]):
            yield tasks_line(part)
            step.append(f"{part.options} \\\n  {command}")
        commands.append(f"srun {joined(step)} &")
    for text in commands:
        yield from text.split("\n")
    yield from ["", *WAIT]


class StepPart(NamedTuple):
    """The part of a step in one component of the job: the file that lists its hosts, its tasks, and its options."""

    file: str
    stays: list[Stay]
    options: str


def step_parts(
    draft: Draft, job: Sequence[Component], name: str, stays: Sequence[Stay], ending: str
) -> Iterator[StepPart]:
    """Yield the parts of the step of a component, whose files have this ending."""
    parts = _parts(draft, job, name, stays)
    for number, (group, here) in enumerate(parts):
        file = f"$plan.{ending}" + (f".{number}" if len(parts) > 1 else "")
        yield StepPart(file, here, _step(group, file, here))


def tasks_line(part: StepPart) -> str:
    """Return the line that writes the list of hosts of a part of a step."""
    return f'tasks {_runs(part.stays)} >"{part.file}"'


def joined(parts: Sequence[str]) -> str:
    """Return the parts of a step as the words of ``srun``."""
    return _NEXT.join(parts)


def _runs(stays: Iterable[Stay]) -> str:
    return " ".join(f"{stay.node}x{stay.processes}" for stay in stays)


def _step(group: int | None, file: str, stays: Iterable[Stay]) -> str:
    """Return the options of a step, or of its part in one component of the job."""
    het = "" if group is None else f" --het-group={group}"
    tasks = sum(stay.processes for stay in stays)
    return (
        f'--overlap{het} --nodelist="{file}" --distribution=arbitrary --ntasks={tasks} {UNBOUND} --kill-on-bad-exit=1'
    )


def _parts(
    draft: Draft, job: Sequence[Component], name: str, stays: Sequence[Stay]
) -> list[tuple[int | None, list[Stay]]]:
    """Return the stays of each component of the job. Ranks that go back to an earlier one are ``emit-order``."""
    if len(job) == 1:
        return [(None, list(stays))]
    group_of = {node: index for index, one in enumerate(job) for node in one.nodes}
    parts = [(group, list(some)) for group, some in groupby(stays, key=lambda stay: group_of[stay.node])]
    groups = [group for group, _ in parts]
    if any(second < first for first, second in pairwise(groups)):
        draft.refuse(faults.returning_kinds(name))
    return [(group, some) for group, some in parts]


def ray_lines(draft: Draft, job: Sequence[Component]) -> Iterator[str]:
    """Yield the lines that start Ray on every node, and then the driver on the first one."""
    nodes = [node for one in job for node in one.nodes]
    parts = [(index if len(job) > 1 else None, one.nodes) for index, one in enumerate(job)]
    step = []
    for number, (group, some) in enumerate(parts):
        file = "$plan.nodes" + (f".{number}" if len(parts) > 1 else "")
        here = [Stay(node, 1) for node in some]
        yield f'tasks {_runs(here)} >"{file}"'
        step.append(f'{_step(group, file, here)} bash -c "$start"')
    yield ""
    yield "# Ray on every node, with the node's rank in the plan"
    first = f'"${{host[{nodes[0]}]}}"'
    yield from TOKEN
    yield f'export RANKPLAN_PLAN="$plan.json" address="${{host[{nodes[0]}]}}:{PORT}"'
    rank = "export RANKPLAN_NODE_RANK=$SLURM_PROCID"
    if not _dense(nodes):
        rank = f"rank=({' '.join(map(str, nodes))}); export RANKPLAN_NODE_RANK=${{rank[SLURM_PROCID]}}"
    yield from _RAY.replace("RANK\n", f"{rank}\n", 1).split("\n")
    yield from f"srun {_NEXT.join(step)} &".split("\n")
    het = "" if len(job) == 1 else " --het-group=0"
    only = f"srun --overlap{het} --nodes=1 --ntasks=1 -w {first}"
    yield "ray=$!"
    yield f'until {only} {CHECK} "$address"; do'
    yield "  kill -0 $ray 2>/dev/null || { wait $ray; exit 1; }  # Ray has ended: with its exit code"
    yield "  sleep 2"
    yield "done"
    yield ""
    yield f"{DRIVER}{only} {UNBOUND} {driver(draft, PLAN)}"

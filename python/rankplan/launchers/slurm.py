"""A batch script for Slurm: one allocation, and a step per component whose host list names the node of every task.

Source: Slurm 22.05 to 25.11 (SchedMD/slurm@284c3b95). ``--distribution=arbitrary`` gives task i to line i of the host
list. A heterogeneous job numbers tasks group by group, in ascending order. ``src/common/slurm_opt.c`` resets some
options for every later component of the job (``reset_each_pass``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from rankplan.launchers.embedded import digest, plan_text, portable
from rankplan.launchers.groups import pod_groups
from rankplan.launchers.options import Draft, Options
from rankplan.launchers.pods import check_hardware
from rankplan.launchers.requests import Requests, level_order, requests
from rankplan.launchers.script import (
    WAIT,
    Head,
    Stay,
    Verbatim,
    commands_read,
    file_names,
    folder_lines,
    plan_lines,
    quoted,
    script,
    shell_words,
    stays_of,
)
from rankplan.launchers.slurm_options import repeated
from rankplan.plans.plan import Plan
from rankplan.words import first_node

_GPUS = ("NV_GPU", "AMD_GPU", "INTEL_GPU")
"""Types that Slurm counts as its resource ``gpu``."""
_SEGMENT, _SEGMENT_WITH_HOSTS = (24, 5), (25, 11)
"""The releases that brought ``--segment``, and ``--segment`` together with ``--nodelist``."""
_MOST_BYTES = 4 << 20
"""The default of ``max_script_size``."""
_MOST_COMPONENTS = 128
"""``MAX_HET_JOB_COMPONENTS`` in ``slurm.h``."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_EXEC = 'rankplan exec "$plan.json"'
_UNBOUND = "--gpu-bind=none --cpu-bind=none"
"""The plan decides which devices and cores a rank has."""
_DRIVER = 'RAY_ADDRESS="$address" '
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
_LEAVE = """trap '
  kill $(jobs -p) 2>/dev/null || true
  if kill -USR1 $keeper 2>/dev/null; then cat <&"$ready"; fi
  rm -rf "$folder"' EXIT"""
"""What ends the job: ``srun`` forwards SIGUSR1 to its tasks; after a SIGTERM, it would kill them at once."""
_RAY = """start='
  RANK
  if [ "$SLURM_PROCID" = 0 ]; then exec ray start --head --port=6379 --block; fi
  until ray health-check --address "$address"; do sleep 2; done
  exec ray start --address="$address" --block'"""


@dataclass(slots=True)
class Component:
    """A component of a heterogeneous job, or the whole job: nodes with the same accelerators and segment."""

    nodes: list[int]
    accelerator_type: str
    num_accelerators: int
    segment: int | None


def write(draft: Draft, head: Head) -> str:
    """Return the batch script of a plan. What Slurm cannot hold is recorded in the draft."""
    check_hardware(draft)
    if not _NAME.fullmatch(draft.options.name):
        message = f"job name {draft.options.name!r} is not a word"
        draft.refuse("emit-name", message, "use letters, digits, -, _ and ., at most 200")
    job = job_components(draft)
    plan = draft.plan if draft.options.pin else portable(draft.plan)
    text = plan_text(plan)
    body = [
        *folder_lines("${TMPDIR:-/tmp}"),
        "plan=$folder/plan",
        *plan_lines(text, '"$plan"'),
        "",
        *_kept_folder(job),
        'sbcast --force "$plan" "$plan.json"',
        "",
        *_hosts(draft, job),
        "",
        "# 0x8 is eight tasks on node rank 0",
        "tasks() {",
        "  local run i",
        "  for run; do",
        '    for ((i = 0; i < ${run#*x}; i++)); do echo "${host[${run%x*}]}"; done',
        "  done",
        "}",
        "",
        *(_steps(draft, job) if draft.options.entrypoint is None else _ray(draft, job)),
    ]
    found = script(head, digest(text), list(_options(draft, job, head)), body)
    if len(found.encode()) > _MOST_BYTES:
        message = f"the script has {len(found.encode()):,} bytes; Slurm allows {_MOST_BYTES:,}"
        draft.refuse("emit-too-large", message, "use mpirun or jobset, or raise SchedulerParameters=max_script_size")
    return found


def _kept_folder(job: Sequence[Component]) -> Iterator[str]:
    """Yield the lines that make the folder on every node, and remove it there when the job ends, however it ends.

    A step does both: a job that was cancelled starts no more steps, but Slurm sends SIGTERM to those that run.
    """
    yield "# the same folder on every node, until the job ends; only this user can write there"
    yield from _KEEP.split("\n")
    step = []
    for index, one in enumerate(job):
        het = f" --het-group={index}" if len(job) > 1 else ""
        count = len(one.nodes)
        options = f"--overlap{het} --nodes={count} --ntasks={count} {_UNBOUND} --kill-on-bad-exit=1"
        step.append(f'{options} bash -c "$keep" "$folder"')
    yield from f"exec {{ready}}< <(exec srun {_NEXT.join(step)})".split("\n")
    yield "keeper=$!"
    yield from _LEAVE.split("\n")
    num_nodes = sum(len(one.nodes) for one in job)
    yield f'for ((node = 0; node < {num_nodes}; node++)); do read -r -u "$ready"; done'


def job_components(draft: Draft) -> list[Component]:
    """Return the components of the job, by node rank."""
    groups = pod_groups(draft.plan)
    asked = requests(draft, [one.nodes for one in groups])
    found: list[Component] = []
    for group, wishes in zip(groups, asked, strict=True):
        here = Component(list(group.nodes), group.accelerator_type, group.num_accelerators, _segment(draft, wishes))
        if found and replace(found[-1], nodes=here.nodes) == here:
            found[-1].nodes += here.nodes
        else:
            found.append(here)
    _check_release(draft, found)
    if len(found) > _MOST_COMPONENTS:
        message = f"the job has {len(found)} kinds of nodes one after another; Slurm allows {_MOST_COMPONENTS}"
        draft.refuse("emit-too-large", message, "use mpirun, or number nodes with equal accelerators one after another")
    return found


def _segment(draft: Draft, wishes: Requests) -> int | None:
    """Return the size of a segment. Slurm has one, on the level of its blocks."""
    if not wishes:
        return None
    levels = level_order(draft)
    blocks = draft.options.segment_level or (levels[-1] if levels else wishes[-1].level)
    other = next((one.level for one in wishes if one.level != blocks), None)
    if other is not None:
        message = f"Slurm has segments of one level, {blocks}, but the plan keeps groups within one {other}"
        help = f"pass --segment-level {other} if that is the level of Slurm's blocks"
        draft.refuse("emit-topology", message, help if len(wishes) == 1 else f"drop `keep` or `segment` of {other}")
        return None
    return wishes[-1].size


def _check_release(draft: Draft, job: Iterable[Component]) -> None:
    stated = draft.options.slurm_release
    known = None if stated is None else release(stated)
    if all(one.segment is None for one in job):
        return
    needed, what = (_SEGMENT_WITH_HOSTS, "--segment with --nodelist") if draft.options.pin else (_SEGMENT, "--segment")
    if known is None and not draft.options.pin:
        return
    if known is None or known < needed:
        text = f"{needed[0]}.{needed[1]:02}"
        message = f"{what} needs Slurm {text}" + (f"; --slurm-release is {stated}" if stated else "")
        other = "leave --pin out" if draft.options.pin else "remove `keep` and `segment`"
        draft.refuse("emit-slurm-version", message, f"pass --slurm-release {text} or later, or {other}")


def options_read(plan: Plan, lines: Sequence[str]) -> dict[str, Any]:
    """Return the options of a script with this plan."""

    def pattern(name: str) -> str:
        start = re.escape(f'  {_EXEC} --component {quoted(name)} --rank-from SLURM_PROCID --master "${{host[')
        return rf'^{start}[0-9]+\]}}:([0-9]{{1,5}})" -- (.*?)(?: &| : \\)$'

    text = "\n".join(lines)
    found = {**commands_read(plan, text, pattern), "pin": _names_hosts(plan)}
    driver = re.search(rf"^{re.escape(_DRIVER)}.* {_UNBOUND} (.*)$", text, re.M)
    if driver is not None:
        found |= {"commands": {}, "entrypoint": Verbatim(driver[1])}
    if called := re.search(r"^#SBATCH --job-name=(\S+)$", text, re.M):
        found["name"] = called[1]
    if found["pin"] and "#SBATCH --segment=" in text:
        found["slurm_release"] = f"{_SEGMENT_WITH_HOSTS[0]}.{_SEGMENT_WITH_HOSTS[1]}"
    job = job_components(draft := _drafted(plan, found))
    found["segment_level"] = draft.options.segment_level
    found["resource_keys"] = _keys(job, text.split("\n#SBATCH hetjob"))
    return found


def _drafted(plan: Plan, found: Mapping[str, Any]) -> Draft:
    """Return a draft with the level of segments that the plan asks for: the innermost one, or another."""
    draft = Draft(plan, Options(pin=found["pin"], slurm_release=found.get("slurm_release")))
    for level in (None, *level_order(draft)):
        trial = Draft(plan, replace(draft.options, segment_level=level))
        job_components(trial)
        if not any(fault.code == "emit-topology" for fault in trial.faults):
            return trial
    return draft


def _names_hosts(plan: Plan) -> bool:
    """Whether a plan in a script is for these hosts only."""
    return all(plan.inventory.node(one.nodes.start).hostname is not None for one in pod_groups(plan))


def _keys(job: Sequence[Component], parts: Sequence[str]) -> dict[str, str]:
    """Return the names of resources that the components of a job have in the head of a script."""
    keys: dict[str, str] = {}
    for one, text in zip(job, parts, strict=False):
        found = re.search(r"^#SBATCH --(gpus-per-node|gres)=(?:(\S+):)?[0-9]+$", text, re.M)
        if found is None or (found[2] is None and (one.accelerator_type in _GPUS and len(job) == 1)):
            continue
        key = found[2] if found[1] == "gres" else f"gpu:{found[2]}" if found[2] else "gpu"
        keys.setdefault(one.accelerator_type, key or "gpu")
    return keys


def named_again(plan: Plan, lines: Sequence[str]) -> Plan:
    """Return the plan of a script with the names of the nodes that it excludes, which only the script has."""
    option = next((found[1] for line in lines if (found := re.fullmatch(r"#SBATCH --exclude=(\S+)", line))), None)
    nodes = [node for node, local in sorted(plan.inventory.marks.items()) if local is None]
    names = option.split(",") if option is not None else []
    if not names or len(names) != len(nodes) or _names_hosts(plan):
        return plan
    records = [plan.inventory.node(rank) for rank in range(plan.inventory.num_nodes)]
    for node, name in zip(nodes, names, strict=True):
        records[node] = records[node].changed(hostname=name)
    return plan.fitted(plan.inventory.updated(records))


def release(text: str) -> tuple[int, int]:
    """Return a release of Slurm as numbers: ``24.05``. Raises ``ValueError``."""
    found = re.fullmatch(r"([0-9]{2})\.([0-9]{2})(\.[0-9]+)?", text)
    if found is None:
        raise ValueError(f"slurm release {text!r} is not a release such as 24.05")
    return int(found[1]), int(found[2])


def _options(draft: Draft, job: Sequence[Component], head: Head) -> Iterator[str]:
    """Yield the options of the job."""
    yield f"#SBATCH --job-name={draft.options.name}"
    types = {one.accelerator_type for one in job if one.num_accelerators}
    excluded = [] if draft.options.pin else _excluded(draft)
    for index, one in enumerate(job):
        if index:
            yield "#SBATCH hetjob"
            yield from repeated(head)
        yield f"#SBATCH --nodes={len(one.nodes)}"
        if one.num_accelerators:
            yield f"#SBATCH {_accelerators(draft, one, alone=len(types) == 1)}"
        if one.segment is not None:
            yield f"#SBATCH --segment={one.segment}"
        yield "#SBATCH --exclusive"
        if excluded and not index:
            yield f"#SBATCH --exclude={','.join(excluded)}"
        if draft.options.pin:
            yield f"#SBATCH --nodelist={','.join(_pinned(draft, one.nodes))}"


def _accelerators(draft: Draft, one: Component, *, alone: bool) -> str:
    kind, number = one.accelerator_type, one.num_accelerators
    key = draft.options.resource_keys.get(kind)
    if key is None and (kind not in _GPUS or not alone):
        why = "a job of several types names each" if kind in _GPUS else "Slurm counts it by a name of the site"
        draft.refuse(
            "emit-resource-key",
            f"rankplan knows no GRES for accelerators of type {kind}: {why}",
            f"pass --resource-key {kind}=NAME with the name that `sinfo -o %G` shows, such as npu or gpu:h100",
        )
    if key is None or key == "gpu":
        return f"--gpus-per-node={number}"
    if not re.fullmatch(r"[A-Za-z0-9_.:-]+", key):
        draft.refuse("emit-resource-key", f"{key} is not the name of a GRES", "write what `sinfo -o %G` shows")
    if key.startswith("gpu:") or kind in _GPUS:
        return f"--gpus-per-node={key.removeprefix('gpu:')}:{number}"
    return f"--gres={key}:{number}"


def _excluded(draft: Draft) -> list[str]:
    """Return the names of the nodes that must not be used."""
    inventory = draft.plan.inventory
    whole = (node for node, local in sorted(inventory.marks.items()) if local is None)
    return [name for node in whole if (name := inventory.node(node).hostname) is not None]


def _pinned(draft: Draft, nodes: Iterable[int]) -> list[str]:
    names = {node: draft.plan.inventory.node(node).hostname for node in nodes}
    unnamed = [node for node, name in names.items() if not name]
    if unnamed:
        who = first_node(unnamed[0], len(unnamed))
        message = f"--pin names hosts, but {who} {'have' if len(unnamed) > 1 else 'has'} no hostname"
        draft.refuse("emit-no-address", message, "add `hostname` to the nodes of the inventory, or leave --pin out")
    return [name or "" for name in names.values()]


def _hosts(draft: Draft, job: Sequence[Component]) -> Iterator[str]:
    """Yield the lines that set ``host`` to the host of each node rank."""
    yield "# the host of each node rank"
    nodes = [node for one in job for node in one.nodes]
    if draft.options.pin:
        yield f"host=({_elements(nodes, map(quoted, _pinned(draft, nodes)))})"
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


def _steps(draft: Draft, job: Sequence[Component]) -> Iterator[str]:
    """Yield the host lists of the components, then a step for each."""
    files = file_names(draft.plan)
    commands: list[str] = []
    for index, (name, component) in enumerate(draft.plan.items()):
        stays = stays_of(component)
        parts = _parts(draft, job, name, stays)
        master = f'--master "${{host[{stays[0].node}]}}:{draft.options.port + index}"'
        words = f"{_EXEC} --component {quoted(name)} --rank-from SLURM_PROCID {master}"
        command = f"{words} -- {shell_words(draft.options.command(name) or '')}"
        step = []
        for number, (group, here) in enumerate(parts):
            file = f"$plan.{files[name]}" + (f".{number}" if len(parts) > 1 else "")
            yield f'tasks {_runs(here)} >"{file}"'
            step.append(f"{_step(group, file, here)} \\\n  {command}")
        commands.append(f"srun {_NEXT.join(step)} &")
    for text in commands:
        yield from text.split("\n")
    yield from ["", *WAIT]


def _runs(stays: Iterable[Stay]) -> str:
    return " ".join(f"{stay.node}x{stay.processes}" for stay in stays)


def _step(group: int | None, file: str, stays: Iterable[Stay]) -> str:
    """Return the options of a step, or of its part in one component of the job."""
    het = "" if group is None else f" --het-group={group}"
    tasks = sum(stay.processes for stay in stays)
    return (
        f'--overlap{het} --nodelist="{file}" --distribution=arbitrary --ntasks={tasks} {_UNBOUND} --kill-on-bad-exit=1'
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
        message = f"the ranks of {name} go back to an earlier kind of nodes; Slurm numbers one kind after another"
        draft.refuse(
            "emit-order", message, "number the nodes so that ranks ascend (`arrange`), or use jobset or mpirun"
        )
    return [(group, some) for group, some in parts]


def _ray(draft: Draft, job: Sequence[Component]) -> Iterator[str]:
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
    yield f'export RANKPLAN_PLAN="$plan.json" address="${{host[{nodes[0]}]}}:6379"'
    rank = "export RANKPLAN_NODE_RANK=$SLURM_PROCID"
    if not _dense(nodes):
        rank = f"rank=({' '.join(map(str, nodes))}); export RANKPLAN_NODE_RANK=${{rank[SLURM_PROCID]}}"
    yield from _RAY.replace("RANK\n", f"{rank}\n", 1).split("\n")
    yield from f"srun {_NEXT.join(step)} &".split("\n")
    het = "" if len(job) == 1 else " --het-group=0"
    only = f"srun --overlap{het} --nodes=1 --ntasks=1 -w {first}"
    yield f'until {only} ray health-check --address "$address"; do sleep 2; done'
    yield ""
    yield f"{_DRIVER}{only} {_UNBOUND} {shell_words(draft.options.entrypoint or '')}"

"""A batch script for Slurm: one allocation, and a step per component whose host list names the node of every task."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rankplan.launchers import faults, slurm_options
from rankplan.launchers.draft import Draft
from rankplan.launchers.embedded import digest, plan_text, portable
from rankplan.launchers.groups import pod_groups
from rankplan.launchers.launcher import Launcher, Starts
from rankplan.launchers.node_commands import has_node_commands, port_in
from rankplan.launchers.options import Options
from rankplan.launchers.pods import check_hardware
from rankplan.launchers.requests import level_order
from rankplan.launchers.script_file import ScriptFile
from rankplan.launchers.scripts import Head, commands_read, folder_lines, plan_lines, quoted, script
from rankplan.launchers.slurm_commands import command_lines
from rankplan.launchers.slurm_job import GPUS, SEGMENT_WITH_HOSTS, Component, head_lines, job_components
from rankplan.launchers.slurm_steps import (
    DRIVER,
    EXEC,
    PLAN,
    UNBOUND,
    folder_steps,
    host_lines,
    ray_lines,
    step_lines,
)
from rankplan.launchers.trainer import driver_read, has_driver
from rankplan.plans.plan import Plan

_MOST_BYTES = 4 << 20
"""The default of ``max_script_size``."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")


def compose(draft: Draft, head: Head) -> str:
    """Return the batch script of a plan. What Slurm cannot hold is recorded in the draft."""
    check_hardware(draft)
    if not _NAME.fullmatch(draft.options.name):
        draft.refuse(faults.no_job_name(draft.options.name))
    job = job_components(draft)
    plan = draft.plan if draft.options.pin else portable(draft.plan)
    text = plan_text(plan)
    starts_nodes = has_node_commands(draft.plan, draft.options)
    body = [
        *folder_lines("${TMPDIR:-/tmp}"),
        "plan=$folder/plan",
        *plan_lines(text, '"$plan"'),
        "",
        *([] if starts_nodes else [*folder_steps(job), 'sbcast --force "$plan" "$plan.json"', ""]),
        *host_lines(draft, job),
        "",
        "# 0x8 is eight tasks on node rank 0",
        "tasks() {",
        "  local run i",
        "  for run; do",
        '    for ((i = 0; i < ${run#*x}; i++)); do echo "${host[${run%x*}]}"; done',
        "  done",
        "}",
        "",
        *_started(draft, job),
    ]
    written = script(head, digest(text), list(head_lines(draft, job, head)), body)
    size = len(written.encode())
    if size > _MOST_BYTES:
        draft.refuse(faults.large_for_slurm(size, _MOST_BYTES))
    return written


def _started(draft: Draft, job: Sequence[Component]) -> Iterator[str]:
    """Yield the lines that start the processes of the job."""
    if has_driver(draft):
        return ray_lines(draft, job)
    if has_node_commands(draft.plan, draft.options):
        return command_lines(draft, job)
    return step_lines(draft, job)


def options_read(plan: Plan, lines: Sequence[str]) -> dict[str, Any]:
    """Return the options of a script with this plan."""

    def pattern(name: str) -> str:
        start = re.escape(f'  {EXEC} --component {quoted(name)} --rank-from SLURM_PROCID --master "${{host[')
        return rf'^{start}[0-9]+\]}}:([0-9]{{1,5}})" -- (.*?)(?: &| : \\)$'

    text = "\n".join(lines)
    found = {**commands_read(plan, text, pattern), "pin": _names_hosts(plan)}
    driver = re.search(rf"^{re.escape(DRIVER)}.* {UNBOUND} (.*)$", text, re.M)
    if driver is not None:
        found |= {"commands": {}, "entrypoint": driver_read(plan, driver[1], PLAN)}
    if has_node_commands(plan, Options(commands=found["commands"], entrypoint=found.get("entrypoint"))):
        found |= port_in(plan, text)
    if called := re.search(r"^#SBATCH --job-name=(\S+)$", text, re.M):
        found["name"] = called[1]
    if found["pin"] and "#SBATCH --segment=" in text:
        found["slurm_release"] = f"{SEGMENT_WITH_HOSTS[0]}.{SEGMENT_WITH_HOSTS[1]}"
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
        if not any(fault.code == faults.TOPOLOGY for fault in trial.faults):
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
        if found is None or (found[2] is None and (one.accelerator_type in GPUS and len(job) == 1)):
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


FILE = ScriptFile(
    compose=compose,
    sign=re.compile("^(?:sbcast|srun) ", re.MULTILINE),
    is_own=slurm_options.is_own,
    options_read=options_read,
    conflicts=slurm_options.conflicts,
    restored=named_again,
)
LAUNCHER = Launcher(
    name="slurm",
    write=FILE.write,
    recognises=FILE.recognises,
    read=FILE.read,
    starts=Starts.DRIVER | Starts.COMMANDS | Starts.NODE_COMMANDS,
    options=("slurm_release", "segment_level"),
)

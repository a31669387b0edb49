"""A script that starts each component with Open MPI (4 and 5), from an application file.

Open MPI numbers ranks line by line. A host may come back; its slots are its total. Words of an application file are
split at blanks, whatever quotes they have (``orterun: parse_appfile``, seen with 4.1.4).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.launchers.embedded import digest, plan_text
from rankplan.launchers.launcher import Launcher
from rankplan.launchers.script_file import ScriptFile
from rankplan.launchers.scripts import (
    WAIT,
    Head,
    Stay,
    Verbatim,
    commands_read,
    file_names,
    folder_lines,
    home_nodes,
    plan_lines,
    quoted,
    script,
    shell_words,
    stays_of,
)
from rankplan.plans.plan import Plan

_EXPANDED = re.compile(r"[\\$`]")
_ESCAPED = re.compile(r"\\([\\$`])")


def compose(draft: Draft, head: Head) -> str:
    """Return the script of a plan. A node without an address is ``emit-no-address``."""
    hosts = _hosts(draft)
    text, files = plan_text(draft.plan), file_names(draft.plan)
    body = [
        *folder_lines("${RANKPLAN_SHARED:-$PWD}"),
        "plan=$folder/plan.json",
        '[[ $plan != *[[:space:]]* ]] || { echo "a path with blanks: $plan; set RANKPLAN_SHARED" >&2; exit 2; }',
        *plan_lines(text, '"$plan"'),
        "",
    ]
    for index, (name, component) in enumerate(draft.plan.items() if hosts else ()):
        stays = stays_of(component)
        body += _application(draft, name, files[name], stays, hosts, draft.options.port + index)
    for ending in files.values():
        folder = f"/tmp/${{folder##*/}}-{ending}"
        own = f"OMPI_MCA_orte_tmpdir_base={folder} PRTE_MCA_prte_tmpdir_base={folder}"
        body.append(f'{own} ${{MPIRUN:-mpirun}} --bind-to none --app "$plan.{ending}" &')
    options = ["# RANKPLAN_SHARED: a folder that every host sees. MPIRUN: the command and its options"]
    return script(head, digest(text), options, [*body, "", *WAIT])


def options_read(plan: Plan, lines: Sequence[str]) -> dict[str, Any]:
    """Return the options of a script with this plan: its commands and its port."""

    def pattern(name: str) -> str:
        start = re.escape(f"rankplan exec $plan --component {_escaped(quoted(name))} --rank-from ")
        return rf" {start}\S+ --master \S+:([0-9]{{1,5}}) -- (.*)$"

    found = commands_read(plan, "\n".join(lines), pattern)
    commands = {name: Verbatim(_ESCAPED.sub(r"\1", command)) for name, command in found["commands"].items()}
    return {**found, "commands": commands}


def _escaped(text: str) -> str:
    """Return a text as a here-document that fills in variables has it."""
    return _EXPANDED.sub(r"\\\g<0>", text)


def is_own(line: str, _earlier: Sequence[str]) -> bool:
    """Whether a line of the head is rankplan's."""
    return line.startswith("# RANKPLAN_SHARED: ")


def _hosts(draft: Draft) -> dict[int, str]:
    """Return the host of each node that processes run on, as ``--host`` takes it."""
    found: dict[int, str] = {}
    missing: list[int] = []
    for node in home_nodes(draft.plan):
        record = draft.plan.inventory.node(node)
        names = [one for one in (record.ip, record.hostname) if one and ":" not in one]
        if names:
            found[node] = names[0]
        else:
            missing.append(node)
    if missing:
        draft.refuse(faults.no_mpi_host(missing))
        return {}
    return found


def _application(
    draft: Draft, name: str, ending: str, stays: list[Stay], hosts: dict[int, str], port: int
) -> Iterator[str]:
    """Yield the lines that write the application file of a component.

    A command with quotes is in a script of its own, which becomes ``rankplan exec``.
    """
    slots: Counter[int] = Counter()
    for stay in stays:
        slots[stay.node] += stay.processes
    component, command = quoted(name), shell_words(draft.options.command(name) or "")
    master = f"--master {hosts[stays[0].node]}:{port}"
    words = f"rankplan exec $plan --component {_escaped(component)} --rank-from OMPI_COMM_WORLD_RANK {master} -- "
    start = words + _escaped(command)
    if re.search(r"""['"\\]""", component + command):
        yield f'cat >"$plan.{ending}.sh" <<RUN'
        yield f"exec {start}"
        yield "RUN"
        start = f"bash $plan.{ending}.sh"
    yield f'cat >"$plan.{ending}" <<APP'
    for stay in stays:
        yield f"--host {hosts[stay.node]}:{slots[stay.node]} -np {stay.processes} {start}"
    yield "APP"


FILE = ScriptFile(
    compose=compose, sign=re.compile("^OMPI_MCA_", re.MULTILINE), is_own=is_own, options_read=options_read
)
LAUNCHER = Launcher(name="mpirun", write=FILE.write, recognises=FILE.recognises, read=FILE.read)

"""A script that starts torchrun on every node, with the ranks of the plan.

Source: torch's elastic agent (``SimpleElasticAgent._assign_worker_ranks``, 2.x) numbers workers by the cumulative sum
of the local sizes in the order of ``--node-rank``, so ``--nproc-per-node`` may differ. With ``c10d``, the rank of a
node depends on who joins first.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.launchers.embedded import digest, plan_text
from rankplan.launchers.launcher import Launcher, Starts
from rankplan.launchers.node_commands import At, Share, has_node_commands, port_in, shell_text, starts_of
from rankplan.launchers.options import Options
from rankplan.launchers.script_file import ScriptFile
from rankplan.launchers.scripts import (
    WAIT,
    Head,
    commands_read,
    folder_lines,
    plan_lines,
    quoted,
    returns,
    script,
    shell_words,
    stays_of,
    wait_lines,
)
from rankplan.plans.plan import Plan

_OTHER_NODE = '  *) echo "node rank $RANKPLAN_NODE_RANK is not in this plan" >&2; exit 2 ;;'
_MASTER = re.compile(r"\$\{MASTER_ADDR_([0-9]+):\?\}")
_START = '      --no-python rankplan exec "$plan" --component '


def compose(draft: Draft, head: Head) -> str:
    """Return the script of a plan. Ranks that return to an earlier node are ``emit-order``."""
    text = plan_text(draft.plan)
    starts_nodes = has_node_commands(draft.plan, draft.options)
    body = [
        *folder_lines("${TMPDIR:-/tmp}"),
        "plan=$folder/plan.json",
        *plan_lines(text, '"$plan"'),
        "",
        *(_command_nodes(draft) if starts_nodes else [*_nodes(draft), *WAIT]),
    ]
    options = [
        "# Run it on every node with the node's rank in the plan: RANKPLAN_NODE_RANK=0 torchrun.sh",
        *_addresses(draft, body),
    ]
    return script(head, digest(text), options, body)


def options_read(plan: Plan, lines: Sequence[str]) -> dict[str, Any]:
    """Return the options of a script with this plan: its commands and its port."""

    def pattern(name: str) -> str:
        start = re.escape(_START + quoted(name))
        return rf" --master-port=([0-9]{{1,5}}) \\\n{start} --rank-from RANK -- (.*) &$"

    text = "\n".join(lines)
    found = commands_read(plan, text, pattern)
    return {**found, **port_in(plan, text)} if has_node_commands(plan, Options(commands=found["commands"])) else found


def is_own(line: str, _earlier: Sequence[str]) -> bool:
    """Whether a line of the head is rankplan's."""
    return line.startswith(("# Run it on every node", "# MASTER_ADDR_"))


def _addresses(draft: Draft, body: Sequence[str]) -> Iterator[str]:
    """Yield a line for each variable that must have an address: of first nodes, and of others that the body names."""
    nodes = {component[0].cluster_node_rank for component in draft.plan.values()}
    used = {int(number) for number in _MASTER.findall("\n".join(body))}
    for node in sorted(nodes | used):
        if _address(draft, node).startswith("$"):
            yield f"# MASTER_ADDR_{node}: the address of the node with rank {node}"


def _address(draft: Draft, node: int) -> str:
    """Return the address of a node; without one in the inventory, the variable that must have it."""
    record = draft.plan.inventory.node(node)
    address = record.ip or record.hostname
    return f"${{MASTER_ADDR_{node}:?}}" if address is None else shlex.quote(address)


def _nodes(draft: Draft) -> Iterator[str]:
    """Yield what each node starts. ``$(( ))`` is the value of a sum of products."""
    launches: dict[int, list[str]] = {}
    for index, (name, component) in enumerate(draft.plan.items()):
        stays = stays_of(component)
        if returns(stays):
            draft.refuse(faults.returning_ranks(name))
            continue
        address = _address(draft, stays[0].node)
        rendezvous = f"--rdzv-backend=static --master-addr={address} --master-port={draft.options.port + index}"
        command = shell_words(draft.options.command(name) or "")
        for at, stay in enumerate(stays):
            sizes = f"--nnodes={len(stays)} --nproc-per-node={stay.processes} --node-rank={at}"
            launches.setdefault(stay.node, []).extend(
                [
                    f"    torchrun {sizes} {rendezvous} \\",
                    f"{_START}{quoted(name)} --rank-from RANK -- {command} &",
                ]
            )
    yield "case $((RANKPLAN_NODE_RANK)) in"
    for node in sorted(launches):
        yield from [f"  {node})", *launches[node], "    ;;"]
    yield _OTHER_NODE
    yield "esac"


def _command_nodes(draft: Draft) -> Iterator[str]:
    """Yield what each node starts, if the commands of the job start their processes themselves."""
    launches: dict[int, list[str]] = {}
    serving: Counter[int] = Counter()
    for start in starts_of(draft):
        for number, share in enumerate(start.shares):
            at = At(str(number), partial(_address, draft), partial(_of_share, share))
            launches.setdefault(share.node, []).append(f"    ({shell_text(start, draft.plan, at, share.mask)}) &")
            serving[share.node] += start.command.serves
    yield "case $((RANKPLAN_NODE_RANK)) in"
    for node, lines in sorted(launches.items()):
        ends = wait_lines(serving[node], len(lines) - serving[node])
        yield from [f"  {node})", *lines, *(f"    {line}" for line in ends), "    ;;"]
    yield _OTHER_NODE
    yield "esac"


def _of_share(share: Share, _name: str, value_of: Callable[[Share], str]) -> str:
    return value_of(share)


FILE = ScriptFile(
    compose=compose,
    sign=re.compile("^case [$][(][(]RANKPLAN_NODE_RANK", re.MULTILINE),
    is_own=is_own,
    options_read=options_read,
)
LAUNCHER = Launcher(
    name="torchrun",
    write=FILE.write,
    recognises=FILE.recognises,
    read=FILE.read,
    starts=Starts.COMMANDS | Starts.NODE_COMMANDS,
)

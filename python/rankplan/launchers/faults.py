"""What a launcher cannot hold, what a user's own file contradicts, and what was changed in a file of rankplan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankplan._core import RankSet
from rankplan.errors import Diagnostic
from rankplan.guests.faults import CODE as GUEST_FAILED
from rankplan.words import counted, first_node, listed, nodes_text, shown

AGAIN = "write the file again with `rankplan emit`"
"""The help for a file that is no longer what rankplan wrote."""

CHANGED, CONFLICT, TOPOLOGY = "emit-changed", "emit-conflict", "emit-topology"
_ORDER, _NAME, _TOO_LARGE, _KEY = "emit-order", "emit-name", "emit-too-large", "emit-resource-key"
_NO_ADDRESS = "emit-no-address"


# ---------------------------------------------------------------------------------------------- plans that do not fit


def fixed_hardware(component: str, kind: str) -> Diagnostic:
    """Return the fault of a component on hardware of fixed hosts, for a launcher that chooses its hosts."""
    message = f"{component} uses {kind}, which is on fixed hosts"
    return Diagnostic(
        "emit-hardware", message, "use torchrun or mpirun on fixed hosts, or start that component by hand"
    )


def uneven(groups: Sequence[str]) -> Diagnostic:
    """Return the fault of several groups of nodes, for a LeaderWorkerSet."""
    message = f"a LeaderWorkerSet starts equal pods, and the plan has {len(groups)} kinds: {listed(groups)}"
    return Diagnostic("emit-uneven", message, "use jobset, or kuberay: they have a group per kind of node")


def needs_ray(launcher: str, trainer: str, others: Sequence[str]) -> Diagnostic:
    """Return the fault of a trainer that starts itself, for a launcher that starts a process for each rank.

    ``others`` are launchers that start Ray.
    """
    message = f"{launcher} starts a process for each rank, but {trainer} starts its processes itself, on Ray"
    return Diagnostic("emit-ray", message, f"use --to {', '.join(others[:-1])} or {others[-1]}")


def no_command(trainer: str) -> Diagnostic:
    """Return the fault of a trainer that starts itself, of which nothing tells the command."""
    message = f"nothing states the command that starts {trainer} inside the job"
    return Diagnostic("emit-command", message, "state it with --command, or as `command` of a job file")


def unpinned_trainer(entrypoint: str, before: str, trainer: str) -> Diagnostic:
    """Return the fault of an entrypoint that starts a trainer elsewhere than planned; ``before``: what pins it."""
    message = f"`entrypoint` is {shown(entrypoint)}; without `rankplan pin`, Ray chooses the nodes of {trainer}"
    return Diagnostic(CHANGED, message, f"write `{before}` before the command")


def no_levels() -> Diagnostic:
    """Return the fault of nodes without levels, for Kueue."""
    message = "the nodes have no levels, so there is no topology to describe"
    return Diagnostic("emit-no-levels", message, "write `levels` and the labels of the nodes in the inventory")


def returning_ranks(component: str) -> Diagnostic:
    """Return the fault of ranks that return to an earlier node, for torchrun."""
    message = f"the ranks of {component} return to an earlier node; torchrun numbers them node by node"
    return Diagnostic(_ORDER, message, "number the nodes so that ranks ascend (`arrange`), or use mpirun")


def unequal_nodes(component: str, most: tuple[int, int], least: tuple[int, int]) -> Diagnostic:
    """Return the fault of a command that starts as many processes on each node; nodes with their processes."""
    nodes = " and ".join(f"{count} on node {node}" for node, count in (most, least))
    message = f"the plan has {nodes} of {component}, but accelerate starts as many on each node"
    return Diagnostic("emit-uneven", message, "use nodes with as many accelerators each, or start it with torchrun")


def one_node_only(command: str, nodes: Sequence[int]) -> Diagnostic:
    """Return the fault of a command that starts on one node, whose processes are on several in the plan."""
    message = f"`{command}` starts its processes on one node, but the plan has them on {nodes_text(RankSet(nodes))}"
    return Diagnostic(_ORDER, message, "use a node with accelerators for all of them")


def other_processes(component: str, processes: int, stated: int) -> Diagnostic:
    """Return the fault of a command that is for another number of processes than the plan has."""
    message = f"the plan has {processes} processes of {component}, but the commands of its job are for {stated}"
    return Diagnostic("emit-uneven", message, "change the numbers in the config of the job, and plan it again")


def other_masks(component: str, first: tuple[int, Sequence[str]], other: tuple[int, Sequence[str]]) -> Diagnostic:
    """Return the fault of nodes that show their devices by different variables, for Slurm; nodes with these."""
    nodes = " and ".join(
        f"{listed(names) if names else 'no variable'} on node {node}" for node, names in (first, other)
    )
    message = f"the devices of {component} are shown by {nodes}, but a step of Slurm sets the same variables everywhere"
    return Diagnostic("emit-uneven", message, "use nodes of one vendor for it, or start it with torchrun")


def returning_kinds(component: str) -> Diagnostic:
    """Return the fault of ranks that return to an earlier component of a heterogeneous job of Slurm."""
    message = f"the ranks of {component} go back to an earlier kind of nodes; Slurm numbers one kind after another"
    return Diagnostic(_ORDER, message, "number the nodes so that ranks ascend (`arrange`), or use jobset or mpirun")


# -------------------------------------------------------------------------------------------------------------- sizes


def large_for_config_map(size: int, most: int) -> Diagnostic:
    """Return the fault of a plan of so many bytes."""
    message = f"the plan has {size:,} bytes; a ConfigMap holds {most:,}"
    return Diagnostic(_TOO_LARGE, message, "use slurm, torchrun or mpirun, whose files hold any plan")


def large_for_slurm(size: int, most: int) -> Diagnostic:
    """Return the fault of a batch script of so many bytes."""
    message = f"the script has {size:,} bytes; Slurm allows {most:,}"
    return Diagnostic(_TOO_LARGE, message, "use mpirun or jobset, or raise SchedulerParameters=max_script_size")


def many_kinds(kinds: int, most: int) -> Diagnostic:
    """Return the fault of a job with too many components."""
    message = f"the job has {kinds} kinds of nodes one after another; Slurm allows {most}"
    return Diagnostic(_TOO_LARGE, message, "use mpirun, or number nodes with equal accelerators one after another")


def many_pod_sets(number: int, most: int) -> Diagnostic:
    """Return the fault of too many pod sets for Kueue."""
    message = f"the plan needs {number} pod sets; Kueue allows {most}"
    help = "use fewer kinds of nodes: place components on the same nodes"
    return Diagnostic("emit-too-many-groups", message, help)


# ------------------------------------------------------------------------------------------------ names and addresses


def no_job_name(name: str) -> Diagnostic:
    """Return the fault of a name that Slurm does not allow."""
    return Diagnostic(_NAME, f"job name {name!r} is not a word", "use letters, digits, -, _ and ., at most 200")


def no_label(what: str, name: str, most: int) -> Diagnostic:
    """Return the fault of a name that is no DNS label."""
    help = f"use a letter, then letters, digits and -, in lower case, at most {most}"
    return Diagnostic(_NAME, f"{what} {name} is not a DNS label", help)


def long_name(what: str, name: str, made: str, most: int) -> Diagnostic:
    """Return the fault of a name from which a longer name is made than is allowed."""
    fits = most - (len(made) - len(name))
    message = f"{what} {name} is too long: {made} has {len(made)} characters, at most {most} are allowed"
    return Diagnostic(_NAME, message, f"use {counted(fits, 'character')} or less, e.g. {name[:fits].rstrip('-')}")


def no_kubernetes_name(what: str, name: str) -> Diagnostic:
    """Return the fault of the name of a namespace or a queue."""
    message = f"{what} {name} is not a name of Kubernetes"
    return Diagnostic(_NAME, message, "use at most 63 letters, digits and -, in lower case")


def equals_in_name(component: str) -> Diagnostic:
    """Return the fault of a component whose name has an equals sign."""
    help = "rename the component: `rankplan exec` takes NAME=COMMAND"
    return Diagnostic(_NAME, f"component {component} has = in its name", help)


def no_pod_hostname(nodes: Sequence[int]) -> Diagnostic:
    """Return the fault of nodes without a name that a pod could be pinned to."""
    message = f"{nodes_text(RankSet(nodes))}: no hostname to pin the pod to"
    return Diagnostic(_NO_ADDRESS, message, "write `hostname` in the inventory, or drop --pin")


def no_pinned_host(nodes: Sequence[int]) -> Diagnostic:
    """Return the fault of nodes without a name for a list of hosts."""
    have = "have" if len(nodes) > 1 else "has"
    message = f"--pin names hosts, but {first_node(nodes[0], len(nodes))} {have} no hostname"
    return Diagnostic(_NO_ADDRESS, message, "add `hostname` to the nodes of the inventory, or leave --pin out")


def no_mpi_host(nodes: Sequence[int]) -> Diagnostic:
    """Return the fault of nodes without an address that Open MPI takes."""
    message = f"{first_node(nodes[0], len(nodes))}: no address that `--host` takes"
    return Diagnostic(_NO_ADDRESS, message, "add `ip` (IPv4) or `hostname` to the nodes of the inventory")


# --------------------------------------------------------------------------------------------- resources and topology


def no_resource(accelerator_type: str) -> Diagnostic:
    """Return the fault of accelerators that no known resource of Kubernetes counts."""
    message = f"rankplan knows no Kubernetes resource for accelerators of type {accelerator_type}"
    help = f"pass --resource-key {accelerator_type}=KEY with the key that `kubectl describe node` shows"
    return Diagnostic(_KEY, message, help)


def no_device_plugin(key: str, accelerator_type: str) -> Diagnostic:
    """Return the fault of a resource that no device plugin could have."""
    help = f"write --resource-key {accelerator_type}=DOMAIN/NAME, as `kubectl describe node` shows it"
    return Diagnostic(_KEY, f"{key} is not the resource of a device plugin", help)


def no_gres(accelerator_type: str, *, is_gpu: bool) -> Diagnostic:
    """Return the fault of accelerators whose resource of Slurm must be stated."""
    why = "a job of several types names each" if is_gpu else "Slurm counts it by a name of the site"
    message = f"rankplan knows no GRES for accelerators of type {accelerator_type}: {why}"
    help = (
        f"pass --resource-key {accelerator_type}=NAME with the name that `sinfo -o %G` shows, such as npu or gpu:h100"
    )
    return Diagnostic(_KEY, message, help)


def no_gres_name(key: str) -> Diagnostic:
    """Return the fault of a name that no resource of Slurm could have."""
    return Diagnostic(_KEY, f"{key} is not the name of a GRES", "write what `sinfo -o %G` shows")


def no_node_label(level: str, stated: str | None) -> Diagnostic:
    """Return the fault of a level that is not the key of a node label; ``stated``: an option has this label for it."""
    message = f"the level {level} is not the key of a node label"
    if stated is not None:
        message += f": {stated}"
    help = f"pass --level {level}=LABEL with a key that `kubectl describe node` shows"
    return Diagnostic("emit-level-key", message, help)


def no_queue(levels: Sequence[str]) -> Diagnostic:
    """Return the fault of topology requests without a queue."""
    message = f"without a queue, Kubernetes cannot promise nodes in one {' and '.join(levels)}"
    return Diagnostic("emit-needs-queue", message, "pass --queue NAME, or remove `keep` and `segment`")


def many_layers(number: int, most: int) -> Diagnostic:
    """Return the fault of more layers of slices than Kueue allows."""
    message = f"Kueue allows {most} layers of slices, not {number}"
    return Diagnostic(TOPOLOGY, message, "drop a level of `keep` or `segment`")


def no_cap(level: str) -> Diagnostic:
    """Return the fault of a limit of nodes in one domain."""
    message = f"no launcher keeps the nodes of a {level} in use below a number"
    return Diagnostic(TOPOLOGY, message, f"drop `cap.{level}`, or pin the hosts")


def torn_between_groups(who: str, level: str, rule: Sequence[str]) -> Diagnostic:
    """Return the fault of nodes that must share a domain, but are in several groups."""
    message = f"{who} must be in one {level}, but a launcher starts these nodes in several groups"
    help = f"drop `{'.'.join(rule)}`, or place it on nodes with equal accelerators and components"
    return Diagnostic(TOPOLOGY, message, help)


def second_segment_level(blocks: str, other: str, *, only: bool) -> Diagnostic:
    """Return the fault of a rule on another level than that of Slurm's blocks; ``only``: the plan has no other rule."""
    message = f"Slurm has segments of one level, {blocks}, but the plan keeps groups within one {other}"
    help = f"drop `keep` or `segment` of {other}"
    if only:
        help = f"pass --segment-level {other} if that is the level of Slurm's blocks"
    return Diagnostic(TOPOLOGY, message, help)


def old_slurm(option: str, needed: tuple[int, int], stated: str | None, *, pinned: bool) -> Diagnostic:
    """Return the fault of a release of Slurm that lacks an option; ``stated`` is the release that the user states."""
    release = f"{needed[0]}.{needed[1]:02}"
    message = f"{option} needs Slurm {release}"
    if stated:
        message += f"; --slurm-release is {stated}"
    other = "leave --pin out" if pinned else "remove `keep` and `segment`"
    return Diagnostic("emit-slurm-version", message, f"pass --slurm-release {release} or later, or {other}")


# ------------------------------------------------------------------------------------------------ the user's own file


def no_object(file: str, kinds: str, kind: str) -> Diagnostic:
    """Return the fault of a base without the object to merge into; ``kinds`` are those that it has."""
    message = f"the base has {kinds}; it must have a {kind}"
    return Diagnostic(CONFLICT, message, "pass a file of the same kind, or another --to", file=file)


def unknown_group(name: str) -> Diagnostic:
    """Return the conflict of a named object of the base that the plan does not have."""
    return Diagnostic(CONFLICT, _in_no_group(name), 'remove it, or rename it; "*" stands for every group')


def unplanned_field(field: str, users: Any) -> Diagnostic:
    """Return the conflict of a field of the base that the plan does not have."""
    return Diagnostic(CONFLICT, f"{field} is {shown(users)}, but the plan does not set it", "remove it")


def other_value(field: str, users: Any, ours: Any) -> Diagnostic:
    """Return the conflict of a field of the base that the plan has with another value."""
    message = f"{field} is {shown(users)}; the plan needs {shown(ours)}"
    return Diagnostic(CONFLICT, message, "remove it, or plan what it says")


def small_pod(option: str, stated: str, needed: str, group: str) -> Diagnostic:
    """Return the conflict of an amount of a pod that is less than what the job reserves there."""
    message = f"{option} is {stated}, but the job reserves {needed} on a node of {group}"
    return Diagnostic(CONFLICT, message, f"pass {option} {needed} or more, or leave it out")


def other_shell(file: str, shebang: str, instead: str) -> Diagnostic:
    """Return the conflict of a first line that starts another shell than bash."""
    message = f"the script starts {shebang[2:].strip()}; rankplan writes bash"
    return Diagnostic(CONFLICT, message, f"write {instead}", file=file, line=1, column=1, source=shebang)


def no_shell(file: str, line: int, source: str, shebang: str) -> Diagnostic:
    """Return the conflict of commands without a first line that says what reads them."""
    message = "the base has commands and no first line that starts a shell"
    help = f"write {shebang} above them"
    return Diagnostic(CONFLICT, message, help, file=file, line=line, column=1, source=source)


def own_option(option: str, planned: str | None, *, alone: bool, job_name: str | None) -> Diagnostic:
    """Return the conflict of an option of Slurm that the plan decides.

    ``planned`` is the option of the plan, if it has one. ``alone``: the line has no other option. ``job_name`` is the
    value of ``--job-name``, which an option of ``emit`` states.
    """
    decided = "the plan decides that" if planned is None else f"the plan has `{planned}`"
    help = "remove the line" if alone else "remove the option"
    if job_name is not None:
        help += f", and pass --name {job_name}"
    return Diagnostic(CONFLICT, f"`{option}`: {decided}", help)


# -------------------------------------------------------------------------------------------- files that were changed


def no_start(launchers: Sequence[str], file: str) -> Diagnostic:
    """Return the fault of a file without the part that tells its launcher."""
    message = "rankplan wrote this file, but the part that starts the job is missing"
    return Diagnostic(CHANGED, message, f"{AGAIN}; the targets are {', '.join(launchers)}", file=file)


def several_launchers(launchers: Sequence[str], file: str) -> Diagnostic:
    """Return the fault of a file that launchers of several packages recognise."""
    message = f"several launchers recognise this file: {', '.join(launchers)}"
    return Diagnostic(GUEST_FAILED, message, "uninstall all but one of their packages", file=file)


def no_port(port: int, component: str, most: int) -> Diagnostic:
    """Return the fault of a file whose rendezvous of a component is at a number that is no port."""
    message = f"the rendezvous of {component} is at port {port}; ports are 1 to {most}"
    return Diagnostic(CHANGED, message, f"write a port from 1 to {most}, or {AGAIN}")


def windows_lines(file: str, line: int) -> Diagnostic:
    """Return the fault of a script whose lines end as on Windows; ``line`` is the first of them."""
    message = "the lines end in CRLF, as on Windows; bash reads lines that end in LF"
    return Diagnostic(CHANGED, message, f"convert the file: `sed -i 's/\\r$//' {file}`", file=file, line=line)


def no_plan_map() -> Diagnostic:
    """Return the fault of a file without its ConfigMap."""
    return Diagnostic(CHANGED, "the ConfigMap with the plan is missing", AGAIN)


def plan_not_json() -> Diagnostic:
    """Return the fault of a ConfigMap whose plan cannot be read."""
    return Diagnostic(CHANGED, "the plan in the file is not JSON", AGAIN)


def no_options(name: str, value: Any) -> Diagnostic:
    """Return the fault of an annotation that does not have the options of the file."""
    message = f"`{name}` is {shown(value)}; it must be options as rankplan writes them"
    return Diagnostic(CHANGED, message, AGAIN)


def changed_group(name: str) -> Diagnostic:
    """Return the fault of a named object that the plan does not have."""
    return Diagnostic(CHANGED, _in_no_group(name), _RESTORE)


def lost_field(field: str, ours: Any) -> Diagnostic:
    """Return the fault of a field that is missing."""
    return Diagnostic(CHANGED, f"{field} is missing; the plan says {shown(ours)}", _RESTORE)


def added_field(field: str, users: Any) -> Diagnostic:
    """Return the fault of a field that the plan does not have."""
    return Diagnostic(CHANGED, f"{field} is {shown(users)}, but the plan does not set it", _RESTORE)


def changed_field(field: str, users: Any, ours: Any) -> Diagnostic:
    """Return the fault of a field that the plan has with another value."""
    return Diagnostic(CHANGED, f"{field} is {shown(users)}; the plan says {shown(ours)}", _RESTORE)


def no_entrypoint() -> Diagnostic:
    """Return the fault of a job on Ray without a driver."""
    return Diagnostic("missing-key", "`entrypoint` is missing", "pass --entrypoint, or write it in the base")


def no_plan_lines(file: str, opening: str) -> Diagnostic:
    """Return the fault of a script without the line that starts its plan."""
    return Diagnostic(CHANGED, f"no line ends in {opening}", AGAIN, file=file)


def unended_plan(file: str, closing: str) -> Diagnostic:
    """Return the fault of a script without the line that ends its plan."""
    return Diagnostic(CHANGED, f"no line is {closing}: the plan does not end", AGAIN, file=file)


def script_plan_not_json(file: str, line: int, column: int) -> Diagnostic:
    """Return the fault of a plan in a script that is not JSON from a place on."""
    message = "the plan in this script is not JSON"
    return Diagnostic("invalid-plan", message, AGAIN, file=file, line=line, column=column)


def script_plan_unread(file: str, line: int) -> Diagnostic:
    """Return the fault of a plan in a script that cannot be read at all."""
    return Diagnostic("invalid-plan", "the plan is not JSON", file=file, line=line)


def lost_line(file: str, line: int, wanted: str, strict: str) -> Diagnostic:
    """Return the fault of a line of the plan that is missing."""
    message = f"the plan has the line {shown(wanted.strip())} here"
    return Diagnostic(CHANGED, message, _own_lines(strict), file=file, line=line, column=1)


def added_line(line: str, strict: str) -> Diagnostic:
    """Return the fault of a line that the plan does not have."""
    return Diagnostic(CHANGED, f"{shown(line.strip())} is not part of the plan", _own_lines(strict))


def changed_line(word: str | None, wanted: str | None, strict: str) -> Diagnostic:
    """Return the fault of a line at its first word that differs; ``None``: one of the two lines has no more words."""
    stated = shown(word) if word else "nothing"
    planned = shown(wanted) if wanted else "nothing"
    return Diagnostic(CHANGED, f"{stated} is not what the plan says: {planned}", _own_lines(strict))


_RESTORE = f"restore it, or change the config and {AGAIN}"


def _own_lines(strict: str) -> str:
    return f"{AGAIN}; your own lines go above `{strict}`, and your own words after ` -- `"


def _in_no_group(name: str) -> str:
    return f"{name} is in no group of the plan"


def no_address(node: int, component: str | None) -> Diagnostic:
    """Return the fault of a node without an address, for `exec`; it is the first node of a component, or of none."""
    message = f"the inventory has no address of node {node}"
    if component is None:
        return Diagnostic(_NO_ADDRESS, message, f"state `ip` or `hostname` of node {node} in the inventory")
    message += f", the first one of {component}"
    return Diagnostic(_NO_ADDRESS, message, f"state it: --master {component}=HOST:29500, or `ip` in the inventory")

"""The faults of a program that `rankplan pin` starts, and of the plan it is started for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankplan._core import RankSet
from rankplan.errors import ClusterError, Diagnostic
from rankplan.front.pinning import listed_nodes
from rankplan.words import listed


def no_job(address: str) -> Diagnostic:
    """Return the fault of a command that started no job on the cluster at an address."""
    message = f"no Ray job of the command joined the cluster at {address}"
    help = "let the program join it: ray.init() without an address, with the environment that the command gets"
    return Diagnostic("not-pinned", message, help)


def not_requested_by_command(requests: str) -> Diagnostic:
    """Return the fault of a command that ended without making these requests of the plan."""
    help = "pass the same overrides to the command and to the plan"
    return Diagnostic("plan-mismatch", f"the command did not ask for {requests}", help)


def not_requested_by_program(requests: str) -> Diagnostic:
    """Return the fault of a running program that has not made these requests of the plan."""
    help = "give it the sizes of the plan, or plan again"
    return Diagnostic("plan-mismatch", f"the program did not ask for {requests}", help)


def imported_before(group: str) -> Diagnostic:
    """Return the fault of a group of a program that binds its own, from a function that it had imported before."""
    message = f"{group} is not bound: a function had imported `placement_group` before the `with`"
    help = (
        "import it inside the `with`, or at the top of a module, or call `ray.util.placement_group`: a local name "
        "keeps the function that it was given"
    )
    return Diagnostic("not-pinned", message, help)


def unclaimed_group(group: str) -> Diagnostic:
    """Return the fault of a placement group that was created without the hook."""
    help = "use Ray's Python interface and no -I, -E or -S, and extend PYTHONPATH instead of replacing it"
    return Diagnostic("not-pinned", f"{group} was created without the hook", help)


def lost_node(node: int, name: str, ranks: str) -> Diagnostic:
    """Return the fault of a node of the plan that has left, with the ranks on it in words."""
    repair = f"`rankplan replan PLAN --without node-{node}`"
    help = f"start again from a checkpoint; repair a saved plan first: {repair}"
    return Diagnostic("node-lost", f"{name} of the plan has left the cluster, with {ranks}", help)


def wrong_place(component: str, ranks: RankSet, planned: str, found: str) -> Diagnostic:
    """Return the fault of ranks that are elsewhere than planned."""
    message = f"{component} rank{'s' if len(ranks) > 1 else ''} {ranks}: planned {planned}, found {found}"
    return Diagnostic(
        "wrong-place", message, "`rankplan live` shows every rank; the program places or sorts them itself"
    )


def changes_cluster(command: str) -> Diagnostic:
    """Return the fault of a command of a script that starts or ends Ray."""
    message = f"`{command}` would change the Ray cluster that the plan is for"
    help = "start Ray first, and run the script without this line under `rankplan pin`"
    return Diagnostic("plan-mismatch", message, help)


def open_hook_folder(folder: Path) -> Diagnostic:
    """Return the fault of a folder of the hook to which every user can write."""
    message = f"every user can write to {folder}, from which the programs under `rankplan pin` load code"
    return Diagnostic("hook-missing", message, f"chmod go-w {folder}")


def other_hook(variable: str, reason: str) -> Diagnostic:
    """Return the fault of settings of a job, in a variable, to which the hook cannot be added."""
    return Diagnostic("not-pinned", f"{variable}: {reason}", "remove it from the runtime_env of the job")


def held_accelerators(address: str, needed: RankSet, holders: str) -> Diagnostic:
    """Return the fault of accelerators of a node that the plan needs and other jobs hold."""
    message = f"{address}: the plan needs {needed}, but other jobs hold {holders}"
    return Diagnostic("plan-mismatch", message, "wait until these jobs end, or plan again on what they leave free")


def no_hook(name: str) -> Diagnostic:
    """Return the fault of a node without the hook."""
    message = f"node {name} lacks rankplan_hook"
    return Diagnostic(
        "hook-missing", message, "install this version of rankplan there, for the Python that Ray runs in"
    )


def several_versions(version: str, nodes: Sequence[str]) -> ClusterError:
    """Return the fault of nodes with another version of Ray than this program; each text names a node and its own."""
    return ClusterError(
        f"the nodes have several versions of Ray: this program has {version}, {listed_nodes(nodes)}; "
        "install one version on all nodes, and start Ray again"
    )


def unchecked_nodes(reasons: Sequence[str]) -> ClusterError:
    """Return the fault of nodes on which the task that looks for the hook failed; each reason names its node."""
    return ClusterError(
        f"cannot check the nodes for rankplan_hook: {listed_nodes(reasons)}; "
        "repeat the command when they run tasks again, or remove them from the cluster"
    )


def silent_drivers(reasons: Sequence[str]) -> ClusterError:
    """Return the fault of nodes whose drivers do not tell what is used; each reason names its node."""
    return ClusterError(
        f"peaks need NVML on every node of the plan: {listed_nodes(reasons)}; install NVIDIA's "
        "driver there, or leave out --peaks"
    )


def unchanged_costs(file: str, reason: str) -> str:
    """Return the note that a costs file is unchanged."""
    return f"{file} is unchanged: {reason}"


def interrupted_peaks(file: str, seconds: float) -> str:
    """Return the note that peaks were written of a program that was interrupted."""
    return f"{file}: the program was interrupted after {seconds:.0f} s; its peaks count as those of a whole step"


def strange_processes(place: str, pids: Sequence[int], components: Sequence[str]) -> str:
    """Return the note that an accelerator has processes that do not belong to the program."""
    processes = f"process{'' if len(pids) == 1 else 'es'} {listed([str(pid) for pid in pids], 4)}"
    names = listed([f"`{name}`" for name in components])
    return f"no peak of {names}: {place} also has {processes}, which Ray did not start"


def lost_driver(place: str, components: Sequence[str]) -> str:
    """Return the note that a driver has stopped to tell what is used of an accelerator."""
    return f"no peak of {listed([f'`{name}`' for name in components])}: the driver no longer tells what {place} uses"

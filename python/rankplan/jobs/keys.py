"""The keys of a job file, and how the files of a job that lie on each other are added up."""

from __future__ import annotations

from enum import Enum

from rankplan.frozen import frozen
from rankplan.jobs.recognising import JOB


class Joining(Enum):
    """How a key of a file joins that of the file below it."""

    REPLACES = 1
    """Its value replaces the other one."""
    KEY_BY_KEY = 2
    """Each key of its mapping replaces that of the same name."""
    ADDS = 3
    """Its list is added to the other one, after it."""


@frozen
class JobKey:
    """A key of a job file: what it decides, and how it joins that of the file below.

    ``of_plan``: a saved plan takes it, too; another key would contradict what the plan has already.
    """

    decides: str
    joining: Joining = Joining.REPLACES
    of_plan: bool = False


KEYS = {
    JOB: JobKey("The trainer's config or script, a saved plan, or another job file.", of_plan=True),
    "dialect": JobKey("The dialect of the config (default: detected from its keys)."),
    "overrides": JobKey("Overrides of the config, as after `--`.", Joining.ADDS),
    "nodes": JobKey("What the job may use: an inventory, a size (4x8, 4x8:H100), or {ray: auto}."),
    "exclude": JobKey("Nodes, accelerators and domains that no component may use.", Joining.ADDS),
    "topology": JobKey("Levels of the network, and what must stay within them.", Joining.KEY_BY_KEY, of_plan=True),
    "node_groups": JobKey("Labelled sets of nodes, and the components that run on each."),
    "pools": JobKey("Bounds on growing and shrinking, and nodes reserved for some components."),
    "beside": JobKey("Saved plans of other jobs, whose nodes are taken.", Joining.ADDS, of_plan=True),
    "memory": JobKey("The accelerators, the model, and what else uses memory.", Joining.KEY_BY_KEY, of_plan=True),
    "visibility": JobKey("What a process sees: own, node, or own-first."),
    "binding": JobKey("The CPUs of a process."),
    "cpus_per_process": JobKey("CPUs that each process reserves."),
    "host_memory_per_process": JobKey("MiB of host memory that each process reserves."),
    "environment": JobKey("Environment variables of every process."),
    "command": JobKey("The trainer's own command.", of_plan=True),
    "emit": JobKey("The options of `rankplan emit`.", Joining.KEY_BY_KEY, of_plan=True),
}

OF_CLUSTER = ("node_groups", "topology", "exclude", "pools")
"""The keys that mean for any trainer what they mean in the ``cluster`` section of RLinf."""

NAMING_RANKS = ("node_groups", "pools")
"""Those of them that may name nodes by their ranks."""

COMPONENTS = "components"
"""The key of a node group with the components that run on its nodes; RLinf's own config selects groups otherwise."""

GIVEN = "given"
"""The value of ``order`` in ``topology`` with which the nodes stay in the order of their inventory."""

SETTINGS = ("visibility", "binding", "cpus_per_process", "host_memory_per_process")
"""The settings of processes, for components that do not state them."""

OF_PROCESSES = (*SETTINGS, "environment")
"""The keys about processes that rankplan starts itself."""

OF_MEMORY = {
    "accelerator": "The model of the accelerators: H100, A100-40GB, 80GiB.",
    "model": "The model: its name, or the path of its config.json.",
    "reserve": "Memory that other programs use on each accelerator: 2 GiB.",
    "costs": "A file with measured peaks, as run --timings writes it.",
}
"""The keys of ``memory``."""

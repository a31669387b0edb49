"""Where TinyRL puts its processes.

The learner has one process for each of its GPUs. The engines of the sampler follow, or share the learner's GPUs.
Judges run without GPUs.
"""

from __future__ import annotations

from typing import Any

from rankplan import Diagnostic, Parallel, sdk

from tinyrl_rankplan import keys
from tinyrl_rankplan.commands import lacks_gpus, learner_commands, learner_gpus, learner_program


class TinyJob(sdk.Job):
    """A job of TinyRL: the GPUs of the learner, the engines of the sampler, and the judges."""

    def __init__(self, config: sdk.Config) -> None:
        self.nodes = config[keys.NODES]
        self.gpus_per_node = config[keys.GPUS]
        self.gpus = _learners(config, self.gpus_per_node)
        self.gpus_at: sdk.Where = config.where(keys.LEARNERS)
        self.learner: sdk.Sizes = config.parallel({"tp": keys.TENSOR})
        self.colocated = config[keys.COLOCATED]
        self.engines = config[keys.SAMPLERS]
        self.engines_at = config.where(keys.SAMPLERS)
        self.engine = _engine(config)
        self.judges = config[keys.JUDGES]
        self.judges_at = config.where(keys.JUDGES)
        self.keep = config[keys.KEEP]
        self.program = learner_program(config)
        generating = self.engines * self.engine.size
        if self.colocated and generating > self.gpus:
            message = f"{self.engines} engines of {self.engine.size} GPUs do not fit on the learner's {self.gpus}"
            help = f"use at most {self.gpus // self.engine.size} engines, or colocated: false"
            config.faults.add(self.engines_at, Diagnostic("resource-out-of-range", message, help))
        if not self.engines and self.colocated:
            fault = sdk.must_be(config.path(keys.SAMPLERS), 0, "1 or more", "use 1 or more engines")
            config.faults.add(self.engines_at, fault)

    def size(self) -> tuple[int, int]:
        return self.nodes, self.gpus_per_node

    def node_order(self) -> sdk.NodeOrder:
        return "text"  # TinyRL sorts its nodes by address, as text

    def commands(self, collector: Any) -> list[sdk.NodeCommand]:
        # of a job that starts without Ray (Dialect.starts): `emit` and `exec` start them on the nodes of the plan
        return learner_commands(self.program, collector)

    def place(self, placer: sdk.Placer) -> None:
        if lacks_gpus(placer, self.program, self.nodes):
            return
        learner = _take(placer, "learner", self.gpus, self.learner.parallel.tp, self.gpus_at)
        facts = {"engine": "fsdp"}
        share = 0.5 if self.colocated else 1.0
        placer.component("learner", learner, self.learner.where, sizes=self.learner, share=share, facts=facts)
        generating = self.engines * self.engine.size
        if self.colocated:
            pool = learner.slice(0, generating)
        else:
            pool = _take(placer, "sampler", generating, self.engine.size, self.engines_at)
        placer.engines("sampler", pool, self.gpus_per_node, self.engine, share, {"engine": "vllm"})
        if self.judges:
            placer.without_accelerators("judge", self.judges, self.judges_at)
        if self.keep is not None:
            placer.require(keep={"learner": {"tp": self.keep}})


def _learners(config: sdk.Config, gpus_per_node: int) -> int:
    """Return the GPUs of the learner: as stated, or one for each process that a launcher starts."""
    gpus = learner_gpus(config, gpus_per_node)
    return config[keys.LEARNERS] if gpus is None or config.stated(keys.LEARNERS) else gpus


def _take(placer: sdk.Placer, name: str, count: int, group: int, at: sdk.Where) -> sdk.Taken:
    """Take GPUs in groups, and record the placement group that TinyRL asks Ray for: one bundle for each GPU."""
    taken = placer.take(count, name, at, whole=(group,))
    placer.ask(name, taken, name=f"tinyrl_{name}", order="text")
    return taken


def _engine(config: sdk.Config) -> sdk.Engine:
    tensor = config[keys.SAMPLER_TENSOR]
    where = config.where(keys.SAMPLER_TENSOR)
    return sdk.Engine(tensor, f"tensor {tensor}", Parallel(tp=tensor), where, where)

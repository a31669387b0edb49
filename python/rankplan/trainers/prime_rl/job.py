"""prime-rl: servers that generate, a trainer after them, and an orchestrator and environment servers without GPUs.

The servers have the first accelerators of a node, or the first nodes; the trainer follows. The orchestrator and one
environment server for each source are on the trainer's first node, or on the last one of the inference. Nothing is
started on Ray: ``rl`` starts processes, and Slurm starts several nodes (``entrypoints/rl.py``, 559b447).
"""

from __future__ import annotations

from collections.abc import Sequence

from rankplan import Faults, RankSet
from rankplan.sdk import Command, Config, Job, NodeCommand, Placer, must_be
from rankplan.trainers.prime_rl import faults, keys
from rankplan.trainers.prime_rl.one_node import OneNode
from rankplan.trainers.prime_rl.sections import check_sections, is_off, is_on, under_inference
from rankplan.trainers.prime_rl.several_nodes import SeveralNodes
from rankplan.trainers.prime_rl.sources import environment_servers, frozen_models, is_here, port_of
from rankplan.trainers.prime_rl.starting import Starting
from rankplan.trainers.prime_rl.training import training_sizes

_USUAL_URL = "http://localhost:8000/v1"
_SERVER = "server"
"""The part of a job that serves another model; see `Program.part`."""


class PrimeJob(Job):
    """The nodes or GPUs of a job, the sizes of its trainer, and its environment servers."""

    def __init__(self, config: Config) -> None:
        check_sections(config)
        inference = under_inference(config)
        self.serves = is_on(config.raw(keys.INFERENCE))
        kind = config[keys.DEPLOYMENT]
        self.at = config.where(keys.DEPLOYMENT)
        several = kind == keys.MULTI_NODE
        if not several and kind != keys.SINGLE_NODE:
            allowed = f"{keys.SINGLE_NODE} or {keys.MULTI_NODE}"
            config.faults.add(self.at, must_be(("type",), kind, allowed, f'write type = "{keys.MULTI_NODE}"'))
        _reject_others(config, several=several)
        self.nodes: OneNode | SeveralNodes
        if several:
            self.nodes = SeveralNodes(config, inference, serves=self.serves, transfer=self._transfer(config))
        else:
            self.nodes = OneNode(config, inference, serves=self.serves)
        stated = config[keys.REPLICATE]
        self.copies = stated if self.nodes.copies is None else self.nodes.copies
        self.sizes = training_sizes(config, self.nodes.world, self.copies)
        self.facts = {
            "copies": self.copies,
            "keeps_activations": is_off(config, keys.CHECKPOINTING),
            "offloads_none": is_off(config, keys.OFFLOADING),
        }
        self.config = config
        own_program = next((program for program in config.programs if program.is_main), None)
        without = Command.without_script(self.at, "rl", arguments=("@", config.place.file or ""))
        self.program = own_program or without
        self.starting: Starting | None = None
        if isinstance(self.nodes, SeveralNodes):
            self.starting = Starting(config, inference, self.nodes, self.program)
        self.environments = environment_servers(config)
        self.environments_at = config.where(keys.TRAIN_SOURCES)
        if not config.faults:
            self._warn_of_missing_servers(config, several=several)

    def _transfer(self, config: Config) -> str:
        """Return how new weights reach the servers (``auto_setup_weight_broadcast``)."""
        stated = config[keys.BROADCAST]
        if stated is not None:
            return stated
        return "nccl" if self.serves and not is_on(config.raw(keys.LORA)) else "filesystem"

    def _warn_of_missing_servers(self, config: Config, *, several: bool) -> None:
        """Warn of models on this machine that the job asks, and that nothing in its script starts."""
        part = config.part(_SERVER)
        port = None if part is None else part[keys.PORT_OF_SERVER]
        for model in frozen_models(config):
            if is_here(model.url) and port_of(model.url) != port:
                config.faults.warn(config.place_of(model.path), faults.nobody_starts_teacher(model.name, model.url))
        url = config[keys.BASE_URL] or _USUAL_URL
        if not self.serves and not several and port_of(url) != port:
            config.faults.warn(config.where(keys.BASE_URL), faults.nobody_starts_policy(url))

    def size(self) -> tuple[int, int]:
        """Return the nodes, and the GPUs of each."""
        return self.nodes.size()

    def commands(self, collector: Faults) -> Sequence[NodeCommand]:
        """Return the command of a job on one node, which starts all components; on several nodes, one for each."""
        for part in self.config.programs:
            if part.part:
                collector.add(part.where, faults.unplanned_program(part.name))
        if self.starting is not None:
            refusal = self.starting.refusal()
            if refusal is None:
                return self.starting.commands(self.environments, collector)
            collector.add(self.at, refusal)
            return ()
        serving = ["inference"] if self.serves else []
        inside = ["orchestrator", "env"] if self.environments else ["orchestrator"]
        return [Command(self.program, collector).on_nodes([*serving, "trainer"], inside=inside)]

    def place(self, placer: Placer) -> None:
        """Place the servers, the trainer, the orchestrator and the environment servers."""
        placed = self.nodes.place(placer)
        placer.component("trainer", placed.trainer, self.sizes.where, sizes=self.sizes, facts=self.facts)
        if placed.orchestrator is None:
            return
        node = RankSet([placed.orchestrator])
        placer.without_accelerators("orchestrator", 1, self.at, node)
        if self.environments:
            placer.without_accelerators("env", len(self.environments), self.environments_at, node)


def _reject_others(config: Config, *, several: bool) -> None:
    """Record keys of the other type of deployment, which prime-rl refuses."""
    for key in keys.OF_ONE_NODE if several else keys.OF_SEVERAL_NODES:
        if config.stated(key):
            config.faults.add(config.key_place(key), faults.of_other_deployment(key.name, several=several))

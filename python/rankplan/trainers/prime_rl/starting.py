"""The commands of a job on several nodes: servers, router, environment servers, trainer and orchestrator.

They are those of prime-rl's own script of Slurm (``multi_node_rl.sbatch.j2``, ``_launch_rank.sh.j2`` and
``_launch_router.sh.j2``, 559b447), on the nodes and devices of any plan. They read the files that ``rl`` writes before
it submits that script (``write_subconfigs``), and writes alone with ``--dry-run``.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from rankplan import Diagnostic, Faults
from rankplan.sdk import Command, Config, Key, NodeCommand, Processes, Started, Where
from rankplan.trainers.prime_rl import command_keys as own
from rankplan.trainers.prime_rl import faults, keys
from rankplan.trainers.prime_rl.several_nodes import SeveralNodes
from rankplan.trainers.prime_rl.sources import EnvironmentServer

_COMMON = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
}
"""``DEFAULT_COMMON_ENV_VARS`` (utils/process.py)."""
_OF_TRAINER = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
_OF_SERVER = {
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False",
    "VLLM_ENGINE_READY_TIMEOUT_S": "4200",
    "UCX_TLS": "all",
}
_METRICS = 21000
"""From the port of the router to that of its metrics."""
_FLAGS_OF_RUN = ("--run.name", "--dry-run")


class Starting:
    """The commands of a job. Words that only a run knows are faults of ``collector``."""

    def __init__(self, config: Config, nodes: SeveralNodes, collector: Faults) -> None:
        self.config = config
        self.nodes = nodes
        self.collector = collector
        self.program = next((program for program in config.programs if program.is_main), None)
        self.at = config.where(keys.DEPLOYMENT) if self.program is None else self.program.where
        self.name = str(config.raw(own.RUN_NAME) or PurePosixPath(config.place.file or "run").stem)
        folder = str(config.raw(own.RUN_FOLDER) or self.name)
        self.configs = str(PurePosixPath(config[own.OUTPUT], folder, "configs"))

    def refusal(self) -> Diagnostic | None:
        """Return why no command can start the job, ``None`` if nothing hinders it."""
        if not self.nodes.serves:
            return None
        if self.nodes.is_disaggregated:
            return faults.only_own_script("servers that prefill or decode", keys.INFERENCE_DEPLOYMENT.path)
        for key, starts, what in (
            (own.ROUTER_KIND, "vllm-router", "the router llm-d"),
            (own.OFFLOADING, "native", "a cache that the servers of all nodes share"),
        ):
            if self.config[key] not in (None, starts):
                return faults.only_own_script(what, key.path)
        return None

    def commands(self, environments: Sequence[EnvironmentServer]) -> list[NodeCommand]:
        """Return the commands, servers first, with a warning about the files that they read."""
        self._warn()
        if not self.nodes.serves:
            return [self._trainer()]
        servers = [self._servers(), self._router()]
        if environments:
            servers.append(self._environments(environments))
        return [*servers, self._trainer(), self._orchestrator()]

    def _warn(self) -> None:
        """Warn of files that ``rl`` must have written, and of keys that only prime-rl's own script uses."""
        words = self._words_of_run()
        stated = [] if self.config.stated(own.RUN_NAME) else [_FLAGS_OF_RUN[0], self.name]
        command = shlex.join([*words, *stated, _FLAGS_OF_RUN[1]])
        self.collector.warn(self.at, faults.written_first(self.configs, command))
        for key in (own.TEMPLATE, own.BEFORE_RUN):
            if self.config.stated(key):
                self.collector.warn(self.config.where(key), faults.of_own_script(key.path))

    def _words_of_run(self) -> list[str]:
        if self.program is None:
            return ["rl", "@", self.config.place.file or ""]
        return [word.text or word.shown for word in (*self.program.launch, *self.program.arguments)]

    def _before(self) -> list[str]:
        """Return the words before the name of a program: ``uv run``."""
        words = [] if self.program is None else [word.text or word.shown for word in self.program.launch]
        return words[: words.index("run") + 1] if words[:1] == ["uv"] and "run" in words else []

    def _command(
        self, words: Sequence[str], arguments: Sequence[str], variables: Mapping[str, Started.Word], **options: Any
    ) -> NodeCommand:
        """Return a command with these words behind ``uv run``; ``options`` are those of `Command.on_nodes`."""
        started = Command.without_script(self.at, *self._before(), *words, arguments=arguments)
        if self.program is not None:
            started = replace(started, folder=self.program.folder)
        return Command(replace(started, variables=variables), self.collector).on_nodes(**options)

    def _variables(self, defaults: Mapping[str, str], key: Key[Any]) -> dict[str, Started.Word]:
        """Return the environment of a component: that of ``rl``, the defaults, and what the config states of it."""
        variables = {} if self.program is None else dict(self.program.variables)
        variables |= _words({**_COMMON, **defaults, "PRL_RUN_NAME": self.name}, self.at)
        for stated in (own.VARIABLES, key):
            values = self.config.raw(stated)
            if isinstance(values, Mapping):
                variables |= _words(values, self.config.where(stated))
        return variables

    def _servers(self) -> NodeCommand:
        """Return the command of a server, each with the next port of its node (``launch_inference_rank``)."""
        nodes = self.nodes
        group = nodes.nodes_per_replica * nodes.servers_per_node if nodes.shares_experts else 1
        flags = {
            "server.host": "0.0.0.0",
            keys.PORT_OF_SERVER.path: NodeCommand.port_from(self.config[own.BACKEND_PORT]),
            "vllm.data-parallel-size": str(group),
            "vllm.data-parallel-size-local": "1",
            "vllm.api-server-count": "1",
        }
        if group > 1:
            flags |= {
                "vllm.data-parallel-rpc-port": str(self.config[own.RPC_PORT]),
                "vllm.data-parallel-rank": NodeCommand.rank_in_group(group),
                "vllm.data-parallel-address": NodeCommand.head_of_group(group),
            }
        command = self._command(
            ["inference"],
            ["@", f"{self.configs}/inference.json"],
            self._variables(_OF_SERVER, own.INFERENCE_VARIABLES),
            components=["inference"],
            serves=True,
            flags=flags,
        )
        return replace(command, per_process=True)

    def _router(self) -> NodeCommand:
        """Return the command of the router, which knows all servers (``launch_router``)."""
        port = self.config[keys.SERVER_PORT]
        flags = {
            "policy": NodeCommand.literal(self.config[own.ROUTER_POLICY]),
            "host": "0.0.0.0",
            "port": str(port),
            "request-id-headers": "x-session-id",
            "prometheus-port": str(port + _METRICS),
            "worker-startup-timeout-secs": "4200",
            "worker-urls": f"http://{self._endpoints()}",
        }
        variables = self._variables(_OF_SERVER, own.INFERENCE_VARIABLES)
        return self._command(["vllm-router"], [], variables, components=["router"], serves=True, flags=flags)

    def _endpoints(self) -> str:
        return NodeCommand.endpoints_of("inference", self.config[own.BACKEND_PORT])

    def _environments(self, servers: Sequence[EnvironmentServer]) -> NodeCommand:
        """Return the command of an environment server, each with its own file."""
        files = [f"{self.configs}/envs/{server.split}/{server.name}.json" for server in servers]
        for server in servers:
            if not server.name:
                self.collector.add(server.where, faults.unnamed_source())
        variables = self._variables({}, own.ORCHESTRATOR_VARIABLES)
        command = self._command(["env-server"], ["@"], variables, components=["env"], serves=True)
        return replace(command, words=(*command.words, NodeCommand.value_of_rank(files)), per_process=True)

    def _trainer(self) -> NodeCommand:
        """Return the command of the trainer on each of its nodes."""
        ranks = self.config[own.RANKS_FILTER]
        shown = ",".join(map(str, ranks if isinstance(ranks, Sequence) else [ranks]))
        flags = {}
        if self.nodes.serves and self.config[own.TRANSPORT] == "zmq":
            flags["rollout_transport.host"] = NodeCommand.address_of("orchestrator", used_by="others")
        command = self._command(
            ["torchrun", "--role=trainer", f"--local-ranks-filter={shown}", "-m", "prime_rl.trainer.rl.train"],
            ["@", f"{self.configs}/trainer.json"],
            self._variables(_OF_TRAINER, own.TRAINER_VARIABLES),
            components=["trainer"],
            processes=Processes("torchrun", where=self.at, nodes_at=self.at),
            flags=flags,
        )
        return replace(command, words=(*command.words, *self._sizes()))

    def _sizes(self) -> list[str]:
        """Return the words by which a command is for the numbers that the files state of servers and of the trainer.

        Each side of the transfer of weights waits for all GPUs of the inference (``inference_world_size``), and the
        orchestrator packs for the ranks of the trainer (``num_train_workers``).
        """
        nodes = self.nodes
        words = [NodeCommand.for_processes("trainer", nodes.world)]
        if nodes.serves:
            servers = nodes.infer_nodes * nodes.servers_per_node
            words.append(NodeCommand.for_processes("inference", servers))
        return words

    def _orchestrator(self) -> NodeCommand:
        """Return the command of the orchestrator: it asks the router, and commands each server itself."""
        router = NodeCommand.address_of("router", used_by="others")
        flags = {
            "model.client.base-url": f"http://{router}:{self.config[keys.SERVER_PORT]}/v1",
            "model.client.admin-base-url": f"http://{self._endpoints()}/v1",
        }
        if self.nodes.transfer == "nccl":
            flags["weight_broadcast.host"] = NodeCommand.address_of("trainer", used_by="others")
        if self.config[own.TRANSPORT] == "zmq":
            flags["rollout_transport.host"] = NodeCommand.address_of("orchestrator", used_by="others")
        return self._command(
            ["orchestrator"],
            ["@", f"{self.configs}/orchestrator.json"],
            self._variables({}, own.ORCHESTRATOR_VARIABLES),
            components=["orchestrator"],
            flags=flags,
        )


def _words(values: Mapping[Any, Any], where: Where) -> dict[str, Started.Word]:
    return {str(name): Started.Word(str(value), where, str(value)) for name, value in values.items()}

"""The commands of a job on several nodes: servers, router, environment servers, trainer and orchestrator.

They are those of prime-rl's own script of Slurm (``multi_node_rl.sbatch.j2``, ``_launch_rank.sh.j2`` and
``_launch_router.sh.j2``, 559b447), on the nodes and devices of any plan. They read the files that ``rl`` writes before
it submits that script (``write_subconfigs``), and writes alone with ``--dry-run``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from rankplan import Diagnostic, Faults
from rankplan.sdk import Command, Config, Key, NodeCommand, Processes, Started, Where
from rankplan.trainers.prime_rl import command_keys as own
from rankplan.trainers.prime_rl import faults, keys
from rankplan.trainers.prime_rl.sections import is_on
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
_RUN_NAME = "--run.name"
_DRY_RUN = "--dry-run"
_PYTHON = re.compile(r"(.*/)?python[0-9.]*")


class Starting:
    """What the commands of a job have from its config, and from ``program``, which starts the whole job."""

    def __init__(self, config: Config, inference: Config, nodes: SeveralNodes, program: Started) -> None:
        """``inference`` has the keys of the inference; see `under_inference`."""
        self.config = config
        self.nodes = nodes
        self.program = program
        self.at = program.where
        self.port = inference[keys.SERVER_PORT]
        self.backend_port = inference[own.BACKEND_PORT]
        self.rpc_port = inference[own.RPC_PORT]
        self.router = _in_section(inference, own.ROUTER_KIND)
        self.policy = _in_section(inference, own.ROUTER_POLICY)
        self.offloading = _in_section(inference, own.OFFLOADING)
        self.sends_rollouts = _in_section(config, own.TRANSPORT) == "zmq"
        self.shown_ranks = config[own.RANKS_FILTER]
        self.name = config[own.RUN_NAME] or PurePosixPath(config.place.file or "run").stem
        self.configs = str(PurePosixPath(config[own.OUTPUT], config[own.RUN_FOLDER] or self.name, "configs"))

    def refusal(self) -> Diagnostic | None:
        """Return why no command can start the job, ``None`` if nothing hinders it."""
        if not self.nodes.serves:
            return None
        if self.nodes.is_disaggregated:
            return faults.only_own_script("servers that prefill or decode", keys.INFERENCE_DEPLOYMENT.path)
        if self.router != own.ROUTER_KIND.default:
            return faults.only_own_script("the router llm-d", own.ROUTER_KIND.path)
        if self.offloading not in (None, "native"):
            return faults.only_own_script("a cache that the servers of all nodes share", own.OFFLOADING.path)
        return None

    def commands(self, environments: Sequence[EnvironmentServer], collector: Faults) -> list[NodeCommand]:
        """Return the commands, servers first, with a warning about the files that they read.

        Words of the program that only a run knows are faults of ``collector``: those files depend on them.
        """
        run = Command(self.program, collector).on_nodes(())
        words = ["".join(parts) for parts in run.filled(lambda name: [name])]  # there are no fields
        self._warn(words, collector)
        launch = words[: len(words) - len(self.program.arguments)]
        commands = _Commands(self, _before(launch), collector)
        if not self.nodes.serves:
            return [commands.trainer()]
        servers = [commands.servers(), commands.router()]
        if environments:
            servers.append(commands.environments(environments))
        return [*servers, commands.trainer(), commands.orchestrator()]

    def _warn(self, words: Sequence[str], collector: Faults) -> None:
        """Warn of files that ``rl`` must have written, and of keys that only prime-rl's own script uses."""
        stated = [] if self.config[own.RUN_NAME] else [_RUN_NAME, self.name]
        command = shlex.join([*words, *stated, _DRY_RUN])
        collector.warn(self.at, faults.written_first(self.configs, command))
        for key in (own.TEMPLATE, own.BEFORE_RUN):
            if self.config.stated(key):
                collector.warn(self.config.where(key), faults.of_own_script(key.path))


def _in_section(config: Config, key: Key[Any]) -> Any:
    """Return the value at a key, its default if its section is on or off as a whole."""
    section = config.at(config.path(key)[:-1])
    return config[key] if is_on(section) and section is not True else key.default


def _before(launch: Sequence[str]) -> Sequence[str]:
    """Return the words of a command before its program: ``uv run --env-file .env``, but no Python that runs it."""
    before = launch[:-1]
    for position in range(len(before) - 1, -1, -1):
        if _PYTHON.fullmatch(before[position]) and before[position - 1] not in ("-p", "--python"):
            return before[:position]
    return before[:-1] if before[-1:] in (["-m"], ["--module"]) else before


class _Commands:
    """The commands of the components of a job, each behind the words ``before``; ``collector`` gets their faults."""

    def __init__(self, starting: Starting, before: Sequence[str], collector: Faults) -> None:
        self.starting = starting
        self.config = starting.config
        self.nodes = starting.nodes
        self.program = starting.program
        self.at = starting.at
        self.configs = starting.configs
        self.before = before
        self.collector = collector

    def _command(
        self, words: Sequence[str], arguments: Sequence[str], variables: Mapping[str, Started.Word], **options: Any
    ) -> NodeCommand:
        """Return a command with these words behind those before; ``options`` are those of `Command.on_nodes`."""
        started = Command.without_script(self.at, *self.before, *words, arguments=arguments)
        started = replace(started, folder=self.program.folder, variables=variables)
        return Command(started, self.collector).on_nodes(**options)

    def _variables(self, defaults: Mapping[str, str], key: Key[Any]) -> dict[str, Started.Word]:
        """Return the environment of a component: that of ``rl``, the defaults, and what the config states of it."""
        variables = dict(self.program.variables)
        variables |= _words({**_COMMON, **defaults, "PRL_RUN_NAME": self.starting.name}, self.at)
        for stated in (own.VARIABLES, key):
            values = self.config.raw(stated)
            if isinstance(values, Mapping):
                variables |= _words(values, self.config.where(stated))
        return variables

    def servers(self) -> NodeCommand:
        """Return the command of a server, each with the next port of its node (``launch_inference_rank``)."""
        nodes = self.nodes
        group = nodes.nodes_per_replica * nodes.servers_per_node if nodes.shares_experts else 1
        flags = {
            "server.host": "0.0.0.0",
            keys.PORT_OF_SERVER.path: NodeCommand.port_from(self.starting.backend_port),
            "vllm.data-parallel-size": str(group),
            "vllm.data-parallel-size-local": "1",
            "vllm.api-server-count": "1",
        }
        if group > 1:
            flags |= {
                "vllm.data-parallel-rpc-port": str(self.starting.rpc_port),
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

    def router(self) -> NodeCommand:
        """Return the command of the router, which knows all servers (``launch_router``)."""
        port = self.starting.port
        flags = {
            "policy": NodeCommand.literal(self.starting.policy),
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
        return NodeCommand.endpoints_of("inference", self.starting.backend_port)

    def environments(self, servers: Sequence[EnvironmentServer]) -> NodeCommand:
        """Return the command of an environment server, each with its own file."""
        files = [f"{self.configs}/envs/{server.split}/{server.name}.json" for server in servers]
        for server in servers:
            if not server.name:
                self.collector.add(server.where, faults.unnamed_source())
        variables = self._variables({}, own.ORCHESTRATOR_VARIABLES)
        command = self._command(["env-server"], ["@"], variables, components=["env"], serves=True)
        return replace(command, words=(*command.words, NodeCommand.value_of_rank(files)), per_process=True)

    def trainer(self) -> NodeCommand:
        """Return the command of the trainer on each of its nodes."""
        ranks = self.starting.shown_ranks
        shown = ",".join(map(str, ranks if isinstance(ranks, list | tuple) else [ranks]))
        flags = {}
        if self.nodes.serves and self.starting.sends_rollouts:
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

    def orchestrator(self) -> NodeCommand:
        """Return the command of the orchestrator: it asks the router, and commands each server itself."""
        router = NodeCommand.address_of("router", used_by="others")
        flags = {
            "model.client.base-url": f"http://{router}:{self.starting.port}/v1",
            "model.client.admin-base-url": f"http://{self._endpoints()}/v1",
        }
        if self.nodes.transfer == "nccl":
            flags["weight_broadcast.host"] = NodeCommand.address_of("trainer", used_by="others")
        if self.starting.sends_rollouts:
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

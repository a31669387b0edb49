"""A job of prime-rl on one node: the servers have its first accelerators, the trainer the next ones.

Follows ``SingleNodeDeploymentConfig``, ``RLConfig.auto_setup_deployment`` and ``rl_local`` (559b447).
"""

from __future__ import annotations

from rankplan.sdk import Config, Device, Mask, Placer, Taken
from rankplan.trainers.prime_rl import faults, keys
from rankplan.trainers.prime_rl.components import Placed, Servers, place_servers
from rankplan.trainers.prime_rl.sections import is_stated
from rankplan.trainers.prime_rl.sources import port_of, samples_from_policy

_PORT = 8000
"""The port that the orchestrator asks without a URL."""


class OneNode:
    """The GPUs of the servers and of the trainer."""

    replicas = 1
    copies = None
    """The trainer has as many copies of the weights as its own key says."""

    def __init__(self, config: Config, inference: Config, *, serves: bool) -> None:
        self.gpus_per_node = config[keys.GPUS_PER_NODE]
        self.train_gpus = config[keys.TRAIN_GPUS]
        self.train_at = config.where(keys.TRAIN_GPUS)
        self.infer_gpus = config[keys.INFER_GPUS]
        self.infer_at = config.where(keys.INFER_GPUS)
        self.tensor = inference[keys.TENSOR]
        self.tensor_at = inference.where(keys.TENSOR)
        self.at = config.where(*keys.OF_ONE_NODE, keys.GPUS_PER_NODE)
        self.world = self.train_gpus
        program = next((program for program in config.programs if program.is_main), None)
        self.mask = Mask() if program is None else Mask.seen_with(program.variables, config.faults)
        counted = self.train_gpus + self.infer_gpus
        if counted > self.gpus_per_node:
            fault = faults.too_many(self.train_gpus, self.infer_gpus, self.gpus_per_node, serves=serves)
            config.faults.add(self.at, fault)
        if config[keys.BROADCAST] == "nccl" and counted < 2:
            config.faults.add(config.where(keys.BROADCAST), faults.one_gpu())
        if serves:
            self._check_servers(config, inference)
            self._check_port(config, inference)
        else:
            self.infer_gpus = 0
        self._check_mask(config)
        self.shares_experts = bool(inference[keys.EXPERT_PARALLEL])

    def _check_mask(self, config: Config) -> None:
        """Record a mask that is too small for the job (``partition_gpus``), or one that is no list of numbers."""
        if self.mask.where is None:
            return
        if self.mask.devices is None:
            config.faults.add(self.mask.where, faults.no_numbers(self.mask.stated))
        elif self.infer_gpus + self.train_gpus > len(self.mask.devices):
            fault = faults.small_mask(self.train_gpus, self.infer_gpus, self.mask.stated, len(self.mask.devices))
            config.faults.add(self.mask.where, fault)

    def _check_servers(self, config: Config, inference: Config) -> None:
        """Record servers that do not fit their GPUs, and sizes that prime-rl replaces by others."""
        if not self.infer_gpus:
            config.faults.add(self.infer_at, faults.no_gpus_to_serve())
            return
        if self.infer_gpus % self.tensor:
            at = self.tensor_at if is_stated(inference, keys.TENSOR) else self.infer_at
            config.faults.add(at, faults.undivided_servers(self.infer_gpus, self.tensor))
            return
        count = self.infer_gpus // self.tensor
        if is_stated(inference, keys.DATA) and inference[keys.DATA] != count:
            config.faults.warn(inference.where(keys.DATA), faults.replaced_size(inference[keys.DATA], count))
        kind = inference[keys.INFERENCE_DEPLOYMENT]
        if kind != keys.SINGLE_NODE:
            config.faults.warn(inference.where(keys.INFERENCE_DEPLOYMENT), faults.unused_deployment(kind))

    def _check_port(self, config: Config, inference: Config) -> None:
        """Record an orchestrator that asks another port than the servers have (``rl_local``).

        Without a URL, it asks the usual port; that of the servers, if no source samples from the trained model
        (``auto_setup_inference_client``).
        """
        port = inference[keys.SERVER_PORT]
        url = config[keys.BASE_URL]
        if url is not None:
            asked, at = port_of(url), config.where(keys.BASE_URL)
        else:
            asked = _PORT if samples_from_policy(config) else port
            at = inference.where(keys.SERVER_PORT)
        if asked != port:
            config.faults.add(at, faults.wrong_port(asked, port))

    def size(self) -> tuple[int, int]:
        """Return one node, and its GPUs."""
        return 1, max([self.gpus_per_node, *(device + 1 for device in self.mask.devices or ())])

    def place(self, placer: Placer) -> Placed:
        """Place the server, one process for all of its accelerators, and return those of the trainer."""
        gpus = self.infer_gpus + self.train_gpus
        taken = placer.nodes(1, gpus, "the job", self.at) if self.mask.devices is None else self._visible(placer, gpus)
        if not taken:
            return Placed(Taken(), None)
        if self.infer_gpus:
            group = self.infer_gpus // self.tensor
            server = Servers("inference", self.infer_gpus, self.tensor, group, shares_experts=self.shares_experts)
            place_servers(placer, server, taken.slice(0, self.infer_gpus), self.tensor_at)
        node = taken.nodes(placer.inventory.core)[0]
        return Placed(taken.slice(self.infer_gpus, gpus), node)

    def _visible(self, placer: Placer, gpus: int) -> Taken:
        """Return so many of the devices that the command sees, in the order of its mask."""
        core = placer.inventory.core
        present = core.num_accelerators(0)
        devices = (self.mask.devices or ())[:gpus]
        missing = next((device for device in devices if device >= present), None)
        if missing is not None:
            placer.reject(self.mask.where or self.at, faults.no_device(missing, present, self.mask.stated))
            return Taken()
        return placer.devices(Device(0, device) for device in devices)

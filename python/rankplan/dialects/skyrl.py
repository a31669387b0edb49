"""SkyRL: a number of nodes and of GPUs per node for each model, and inference engines.

With ``trainer.placement.colocate_all``, every model is on the engines' GPUs, and has a fifth of each. Otherwise the
engines take GPUs first, of one node if one has enough, and each model takes parts of nodes after them; the
reference model shares the policy's (``colocate_policy_ref``), with a quarter of each. A data-parallel rank of an engine
is a process of tensor x pipeline size GPUs.

Before version 0.3.0 the keys of the engines are in ``generator`` itself, and a model and an engine have 4 GPUs by
default (``ppo_base_config.yaml``).

Follows SkyRL's ``validate_cfg``, ``RayPPOTrainer.build_models``, ``PPORayActorGroup``, ``build_new_inference_client``
and ``create_inference_servers`` (a956457), and ``translate_legacy_config`` (skyrl-v0.2.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from rankplan._core import Requests, Taken
from rankplan.dialects.memory.skyrl import SKYRL as ROLES
from rankplan.dialects.placing.engines import engine_sizes
from rankplan.dialects.placing.job import Job, differing
from rankplan.dialects.placing.placer import Placer
from rankplan.dialects.tables import SKYRL, SKYRL_MODELS, SKYRL_OLDER
from rankplan.errors import Diagnostic, KeyPath
from rankplan.parallel import MEGATRON, Parallel
from rankplan.plans.requests import NodeOrder, Request
from rankplan.read.components import ASSUMED
from rankplan.read.text.reader import Reader
from rankplan.words import must_be, path_text

__all__ = ["assumed_inventory", "node_order", "plan", "read"]

_PLACEMENT: KeyPath = ("trainer", "placement")
_ENGINE: KeyPath = ("generator", "inference_engine")
_SIZES = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size"}
_GENERATOR = ("generator", (*_ENGINE, "num_engines"))
_SHARED = 5
_OLDER_GPUS = 4
"""GPUs of a model's node and of an engine's tensor group before 0.3.0, unless the config says it."""
_REMOVED = {"colocate_critic_reward", "reward_num_nodes", "reward_num_gpus_per_node"}
"""Keys of ``trainer.placement`` before 0.3.0, for a reward model that has left SkyRL."""
_PEER_ACCESS = Request("", None, (2,), (), optional=True)
"""From a head without GPUs, SkyRL asks two of a node whether they reach each other (``peer_access_supported``)."""


class _Job(Job):
    """The models of a SkyRL config, its engines and their sizes."""

    name, keys, roles = "skyrl", SKYRL, ROLES

    def __init__(self, reader: Reader) -> None:
        known, typos = SKYRL.known[_PLACEMENT], {fault.path for fault in reader.faults}
        older = reader.program.startswith("skyrl_train.")
        older = older or any(reader.at(("generator", key)) is not None for key in SKYRL_OLDER.values())
        gpus = _OLDER_GPUS if older else 1
        for key in reader.section_at(_PLACEMENT):
            if older and key in _REMOVED:
                continue
            if key not in known and f"{path_text(_PLACEMENT)}.{key}" not in typos:
                fault = Diagnostic("unknown-key", f"unknown key `{key}`", f"the keys are {', '.join(known)}")
                reader.add((*_PLACEMENT, str(key)), fault)
        loss = reader.switch(("trainer", "algorithm", "use_kl_loss"), default=True)
        reward = reader.switch(("trainer", "algorithm", "use_kl_in_reward"))
        absent = set() if loss or reward else {"ref"}
        absent |= {"critic"} if reader.at(("trainer", "critic", "model", "path")) is None else set()
        self.models: dict[str, tuple[int, int]] = {}
        for name in SKYRL_MODELS:
            if name not in absent:
                self.models[name] = (
                    reader.size(_count(name, "nodes"), 1),
                    reader.size(_count(name, "gpus_per_node"), gpus),
                )
        self.all = reader.switch((*_PLACEMENT, "colocate_all"), default=True)
        pair = not self.all and "ref" in self.models
        self.pair = pair and reader.switch((*_PLACEMENT, "colocate_policy_ref"), default=True)
        external = [reader.at((*_ENGINE, f"external_{what}")) for what in ("proxy_url", "server_urls")]
        local = external == [None, None] and reader.switch((*_ENGINE, "run_engines_locally"), default=True)
        self.tp = reader.size((*_ENGINE, _SIZES["tp"]), gpus)
        self.pp, self.dp = (reader.size((*_ENGINE, _SIZES[name]), 1) for name in ("pp", "dp"))
        engines = reader.size((*_ENGINE, "num_engines"), 1) if local else 0
        self.engines = engines * self.dp
        disaggregated = bool(engines) and reader.switch((*_ENGINE, "enable_pd"))
        prefill = reader.size((*_ENGINE, "num_prefill"), 0, 0) if disaggregated else 0
        self.prefill = prefill * self.dp
        if disaggregated and not 0 < prefill < engines:
            allowed = f"1 or more, and less than num_engines, which is {engines}: the other engines decode"
            fault = must_be(("num_prefill",), prefill, allowed, "use at least 2 engines, or set enable_pd: false")
            reader.add((*_ENGINE, "num_prefill"), fault)
        self._check(reader)

    def _check(self, reader: Reader) -> None:
        policy, each = self.models["policy"], self.tp * self.pp
        total, generating = policy[0] * policy[1], self.engines * each
        if self.all and self.engines and total != generating:
            message = f"colocate_all: the policy has {total} GPUs, but the engines have {generating}"
            message += f" ({self.engines // self.dp} engines x {each * self.dp})"
            help = "make policy_num_nodes x policy_num_gpus_per_node equal to it, or set colocate_all: false"
            reader.add((*_ENGINE, "num_engines"), Diagnostic("invalid-value", message, help))
        if self.all and each > policy[1] and reader.at((*_ENGINE, "distributed_executor_backend")) == "mp":
            message = f"an engine of {each} GPUs needs several nodes of {policy[1]} (policy_num_gpus_per_node)"
            help = f"use at most {policy[1]}, or distributed_executor_backend: ray"
            fault = Diagnostic("spans-nodes", f"{message}, but the mp backend of vLLM starts it on one", help)
            reader.add((*_ENGINE, _SIZES["tp" if self.tp >= self.pp else "pp"]), fault)
        for name, size in self.models.items():
            # With `colocate_all`, SkyRL compares the numbers of GPUs only.
            if size[0] * size[1] != total if self.all else self.pair and name == "ref" and size != policy:
                paths = {one: (_count(one, "nodes"), _count(one, "gpus_per_node")) for one in ("policy", name)}
                flag = (*_PLACEMENT, "colocate_all" if self.all else "colocate_policy_ref")
                differing(reader, "SkyRL", {"policy": policy, name: size}, paths, flag)
        experts, whole = reader.size((*_ENGINE, "expert_parallel_size"), 1), self.tp * self.dp
        if experts not in (1, whole):
            message = f"`expert_parallel_size` is {experts}; SkyRL accepts 1, or tensor size x data size, which is "
            fault = Diagnostic("invalid-value", f"{message}{whole}", f"use 1 or {whole}")
            reader.add((*_ENGINE, "expert_parallel_size"), fault)
        self.experts = experts if experts == whole else 1

    def node_order(self) -> NodeOrder:
        """Return Ray node ids, by which bundles of one GPU are sorted (``ResolvedPlacementGroup``)."""
        return "id"

    def size(self) -> tuple[int, int]:
        """Return as many nodes of 8 GPUs, or of the largest model's GPUs per node, as the config needs."""
        each = max(ASSUMED, *(per_node for _, per_node in self.models.values()))
        apart = [size for name, size in self.models.items() if not self.all and not (self.pair and name == "ref")]
        return max(1, sum(count for count, _ in apart) - (-self.engines * self.tp * self.pp // each)), each

    def place(self, placer: Placer) -> None:
        """Place ``policy``, ``ref``, ``critic``, and the servers of the ``generator``."""
        each = self.tp * self.pp
        if max(per_node for _, per_node in self.models.values()) > 1:
            placer.requests += Requests([_PEER_ACCESS])
        parallel = {name: _training(placer.reader, name) for name in self.models}
        engines = self._take_engines(placer, each, parallel)
        taken: dict[str, Taken] = {}
        for name, (nodes, per_node) in self.models.items():
            if self.all:
                taken[name], share = engines, placer.share(_SHARED)
            elif self.pair and name == "ref":
                taken[name], share = taken["policy"], 0.25
            else:
                taken[name] = placer.nodes(nodes, per_node, name, _count(name, "nodes"))
                together = per_node > 1 or (self.pair and name == "policy")  # else its actors ask for themselves
                order: NodeOrder | None = "id" if together and per_node == 1 else None
                strategy = "PACK" if together else None
                placer.ask(name, taken[name], bundles=[per_node], strategy=strategy, order=order)
                share = 0.75 if self.pair and name == "policy" else 1.0
            sizes, where = parallel[name]
            placer.component(name, taken[name], where, sizes=sizes, share=share)
        if self.engines:
            sizes = engine_sizes(self.tp, self.pp, self.experts)
            share = placer.share(_SHARED) if self.all else 1.0
            where = (*_ENGINE, _SIZES["tp"])
            placer.component("generator", engines, where, each, sizes=sizes, share=share, engines=self.dp)

    def _take_engines(self, placer: Placer, each: int, parallel: Mapping[str, tuple[Parallel, KeyPath]]) -> Taken:
        """Take the accelerators of the engines, or of all models if they share them.

        Alone, the engines that prefill are packed by themselves.
        """
        nodes, per_node = self.models["policy"]
        count = self.engines * each or (nodes * per_node if self.all else 0)
        ahead = 0 if self.all else self.prefill * each
        steps = {each} | {sizes.tp * sizes.cp for sizes, _ in parallel.values() if self.all}
        engines = Taken()
        for part in (ahead, count - ahead):
            if part:
                name, where = _GENERATOR
                taken = placer.take(part, name, where, whole=steps)
                placer.ask("generator" if self.engines else "policy", taken, order="id")
                engines += taken
        return engines


read, plan, assumed_inventory, node_order = _Job.read, _Job.plan, _Job.assumed_inventory, _Job.order


def _count(name: str, what: str) -> KeyPath:
    return (*_PLACEMENT, f"{name}_num_{what}")


def _training(reader: Reader, name: str) -> tuple[Parallel, KeyPath]:
    """Return the sizes of a model: Megatron's, or the sequence size."""
    path: KeyPath = ("trainer", name)
    if reader.at(("trainer", "strategy")) == "megatron":
        return reader.sizes((*path, "megatron_config"), MEGATRON), (*path, "megatron_config")
    return Parallel(cp=reader.size((*path, "sequence_parallel_size"), 1)), (*path, "sequence_parallel_size")

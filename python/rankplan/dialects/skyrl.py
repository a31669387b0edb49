"""SkyRL: a number of nodes and of GPUs per node for each model, and inference engines.

With ``trainer.placement.colocate_all``, every model is on the engines' GPUs, and has a fifth of each. Otherwise the
engines take GPUs first, of one node if one has enough, and each model takes whole parts of nodes after them; the
reference model shares the policy's (``colocate_policy_ref``), with a quarter of each. A data-parallel rank of an engine
is a process of tensor x pipeline size GPUs.

Follows SkyRL's ``RayPPOTrainer.build_models`` and ``create_ray_wrapped_inference_engines``.
"""

from __future__ import annotations

from functools import partial

from rankplan.config.text.faults import KeyPath
from rankplan.config.text.reader import Config, Reader
from rankplan.dialects.keys import SKYRL, SKYRL_MODELS, SKYRL_SIZES
from rankplan.dialects.pools import Pools, engine_sizes
from rankplan.errors import Diagnostic
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import MEGATRON, Parallel
from rankplan.plans.configured import ASSUMED, assumed, for_inventory
from rankplan.plans.plan import Plan

__all__ = ["assumed_inventory", "plan", "read", "recognised"]

_PLACEMENT: KeyPath = ("trainer", "placement")
_ENGINE: KeyPath = ("generator", "inference_engine")
_SIZES = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size"}
_SHARED = 5


class _Job:
    """The models of a SkyRL config, its engines and their sizes."""

    def __init__(self, reader: Reader) -> None:
        for key in reader.section_at(_PLACEMENT):
            if key not in SKYRL.known[_PLACEMENT] and not any(
                fault.path == f"trainer.placement.{key}" for fault in reader.faults
            ):
                help = f"the keys are {', '.join(SKYRL.known[_PLACEMENT])}"
                reader.add((*_PLACEMENT, str(key)), Diagnostic("unknown-key", f"unknown key `{key}`", help))
        losses = (
            reader.switch(("trainer", "algorithm", "use_kl_loss"), default=True),
            reader.switch(("trainer", "algorithm", "use_kl_in_reward")),
        )
        present = {
            "policy": True,
            "ref": any(losses),
            "critic": reader.at(("trainer", "critic", "model", "path")) is not None,
        }
        self.models = {
            name: (
                reader.size((*_PLACEMENT, f"{name}_num_nodes"), 1),
                reader.size((*_PLACEMENT, f"{name}_num_gpus_per_node"), 1),
            )
            for name in SKYRL_MODELS
            if present[name]
        }
        self.all = reader.switch((*_PLACEMENT, "colocate_all"), default=True)
        self.pair = (
            not self.all and "ref" in self.models and reader.switch((*_PLACEMENT, "colocate_policy_ref"), default=True)
        )
        local = reader.switch((*_ENGINE, "run_engines_locally"), default=True)
        self.tp, self.pp, self.dp = (reader.size((*_ENGINE, key), 1) for key in _SIZES.values())
        self.engines = reader.size((*_ENGINE, "num_engines"), 1) * self.dp if local else 0
        self._check(reader)

    def _check(self, reader: Reader) -> None:
        policy = self.models["policy"]
        total, generating = policy[0] * policy[1], self.engines * self.tp * self.pp
        if self.all and self.engines and total != generating:
            message = f"colocate_all: the policy has {total} GPUs, but the engines have {generating}"
            message += f" ({self.engines // self.dp} engines x {self.tp * self.pp * self.dp})"
            help = "make policy_num_nodes x policy_num_gpus_per_node equal to it, or set colocate_all: false"
            reader.add_in_config((*_ENGINE, "num_engines"), Diagnostic("invalid-value", message, help))
        for name, size in self.models.items():
            if (self.all or (self.pair and name == "ref")) and size != policy:
                sizes = f"{size[0]} x {size[1]} instead of {policy[0]} x {policy[1]}"
                message = f"{name} shares the GPUs of the policy, but has {sizes}"
                help = f"give it the policy's {name}_num_nodes and {name}_num_gpus_per_node, or do not colocate it"
                key = next(
                    (key for key in SKYRL_SIZES if key.startswith(name) and reader.at((*_PLACEMENT, key)) is not None),
                    None,
                )
                path = (*_PLACEMENT, key) if key else _PLACEMENT
                reader.add_in_config(path, Diagnostic("invalid-value", message, help))
        experts = reader.size((*_ENGINE, "expert_parallel_size"), 1)
        if experts not in (1, self.tp * self.dp):
            whole = self.tp * self.dp
            message = (
                f"`expert_parallel_size` is {experts}; SkyRL accepts 1, or tensor size x data size, which is {whole}"
            )
            fault = Diagnostic("invalid-value", message, f"use 1 or {whole}")
            reader.add_in_config((*_ENGINE, "expert_parallel_size"), fault)
        self.experts = experts if experts == self.tp * self.dp else 1


recognised = SKYRL.recognises
read = partial(SKYRL.read, state=_Job)


def plan(config: Config | Reader, inventory: Inventory, *, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of a SkyRL config: ``policy``, ``ref``, ``critic``, and the servers of the ``generator``.

    Raises `PlacementError` with every fault.
    """
    reader = for_inventory(read(config), inventory)
    job: _Job = reader.state
    pools = Pools(reader, inventory, isolate=isolate_accelerator)
    each = job.tp * job.pp
    policy = job.models["policy"]
    count = job.engines * each or (policy[0] * policy[1] if job.all else 0)
    engines = pools.packed(count, "generator", (*_ENGINE, "num_engines")) if count else []
    shared: dict[str, list[int]] = {}
    for name, (nodes, per_node) in job.models.items():
        path: KeyPath = (*_PLACEMENT, f"{name}_num_nodes")
        if job.all:
            taken, share = engines, pools.share(_SHARED)
        elif job.pair and name == "ref":
            taken, share = shared["policy"], 0.25
        else:
            taken, share = pools.nodes(nodes, per_node, name, path), 0.75 if job.pair and name == "policy" else 1.0
        shared[name] = taken
        sizes, where = _training(reader, name)
        pools.place(name, taken, where, parallel=sizes, share=share)
    if job.engines:
        sizes = engine_sizes(job.tp, job.pp, job.experts)
        share = pools.share(_SHARED) if job.all else 1.0
        where = (*_ENGINE, _SIZES["tp"])
        pools.place("generator", engines, where, each, parallel=sizes, share=share, engines=job.dp)
    reader.finish()
    return Plan(inventory, pools.components)


def _training(reader: Reader, name: str) -> tuple[Parallel, KeyPath]:
    """Return the sizes of a model: Megatron's, or the sequence size."""
    path: KeyPath = ("trainer", name)
    if reader.at(("trainer", "strategy")) == "megatron":
        return reader.sizes((*path, "megatron_config"), MEGATRON), (*path, "megatron_config")
    return Parallel(cp=reader.size((*path, "sequence_parallel_size"), 1)), (*path, "sequence_parallel_size")


def assumed_inventory(config: Config | Reader) -> Inventory:
    """Return as many nodes of 8 GPUs, or of the largest model's GPUs per node, as the config needs."""
    reader = read(config)
    reader.finish()
    job: _Job = reader.state
    each = max(ASSUMED, *(per_node for _, per_node in job.models.values()))
    nodes = -(-job.engines * job.tp * job.pp // each)
    if not job.all:
        apart = [size for name, size in job.models.items() if not (job.pair and name == "ref")]
        nodes += sum(count for count, _ in apart)
    return assumed(reader, max(nodes, 1), each)

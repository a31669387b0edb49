"""The engines of verl: of the rollout, of a reward model and of teachers."""

from __future__ import annotations

from typing import NamedTuple

from rankplan import Diagnostic
from rankplan.sdk import Config, Engine, Placer, Sizes, Taken, Where
from rankplan.sdk.placing import Short, engine_sizes
from rankplan.trainers.verl import faults, keys
from rankplan.trainers.verl.pools import Pool, group_name

_USERS = 2
"""``max_colocate_count`` of the pools that an engine has for itself: also the CPUs of a bundle."""

SECTIONS = {"rollout": "rollout", "reward": "rollout", "teacher": "inference"}
"""The section of an engine's sizes, inside that of its role."""


class Engines(NamedTuple):
    """The engines of a component: all are alike. ``fault`` is why verl starts none with their experts."""

    engine: Engine
    fault: Diagnostic | None = None
    fault_at: Where = Where()
    is_vllm: bool = True

    @property
    def size(self) -> int:
        """The accelerators of an engine."""
        return self.engine.size

    def place(self, placer: Placer, name: str, taken: Taken, per_node: int, share: float | None) -> None:
        """Place engines one after the other on a pool with ``per_node`` accelerators per node, unless it is empty."""
        self._check(placer)
        placer.engines(name, taken, per_node, self.engine, share)
        self._check_sockets(placer, name, taken, min(per_node, self.size))

    def place_alone(self, placer: Placer, name: str, pool: Pool, prefix: str, *, keys_of: str | None = None) -> None:
        """Place engines that each have nodes of their own (verl: ``RolloutReplica.init_standalone``).

        An engine on its own takes room where it finds it: a node of the config may be a part of a real one. The groups
        of the pool of an engine have a name with a prefix. ``keys_of`` is the component whose keys of memory they have.
        """
        self._check(placer)
        engine = self.engine
        per_process = min(pool.gpus_per_node, engine.size)
        if pool.gpus > placer.free_for(name):
            pool.take_nodes(placer, [name])  # which is a fault
            return
        fault = engine.size_fault(name, per_process, pool.gpus)
        if fault is not None:
            placer.reject(engine.path, fault)
            return

        def torn(short: Short) -> Diagnostic:
            number = short.bundles * per_process // engine.size
            return faults.torn_engine(number, name, per_process, engine.keys, short.free)

        taken = placer.bundles(pool.gpus, [per_process], name, engine.path, torn)
        processes = engine.size // per_process
        pools = group_name(processes, per_process), processes
        placer.ask(name, taken, per_group=per_process, name=prefix, pools=pools, order="text", cpus=_USERS)
        share = placer.share(_USERS)
        sizes = engine.parallel
        placer.component(
            name, taken, engine.where, per_process, sizes=sizes, share=share, engines=processes, keys_of=keys_of
        )
        self._check_sockets(placer, name, taken, per_process)

    def _check_sockets(self, placer: Placer, name: str, taken: Taken, each: int) -> None:
        """Warn of an engine with two groups of ``each`` accelerators on one node, whose processes share sockets.

        A process is numbered in its group (``ServerAdapter.__init__`` in verl/workers/rollout/vllm_rollout, 1dda039).
        """
        groups = self.size // each
        if not self.is_vllm or groups < 2 or not taken or placer.faults:
            return
        sharing = taken.sharing_numbers(placer.inventory.core, each, groups)
        if sharing is not None:
            placer.faults.warn(self.engine.path, faults.shared_sockets(name, *sharing, each))

    def _check(self, placer: Placer) -> None:
        if self.fault is not None:
            placer.reject(self.fault_at, self.fault)


def read_engines(section: Config) -> Engines:
    """Return the engines that the sizes in a section make; a tensor size that is not stated is 2, as in verl.

    Follows verl's ``LLMServerManager._initialize_llm_servers``.
    """
    sizes = {kind: section[key] for kind, key in keys.ENGINE_SIZES.items()}
    tensor, data, pipeline = sizes.values()
    if section[keys.DISAGGREGATED]:
        return Engines(_disaggregated(section, tensor))
    experts = section[keys.ENGINE_EXPERTS]
    is_whole = experts == tensor * data
    largest = max(sizes, key=lambda kind: (sizes[kind], kind == "tp"))
    places = {kind: section.where(key) for kind, key in keys.ENGINE_SIZES.items() if section.stated(key)}
    paths = {kind: section.path(key) for kind, key in keys.ENGINE_SIZES.items()}
    engine = Engine(
        tensor * data * pipeline,
        _text(section, sizes, is_default="tp" not in places),
        Sizes(engine_sizes(tensor, pipeline, experts if is_whole else 1), section.place, places, paths),
        section.where(keys.ENGINE_SIZES[largest]),
        section.place,
    )
    is_vllm = section[keys.ENGINE_NAME] in (None, "vllm")
    if experts == 1 or is_whole or section[keys.ENGINE_NAME] == "trtllm":
        return Engines(engine, is_vllm=is_vllm)
    fault = faults.experts_of_engine(experts, tensor * data)
    return Engines(engine, fault, section.where(keys.ENGINE_EXPERTS))


def _text(section: Config, sizes: dict[str, int], *, is_default: bool) -> str:
    """Return the sizes of an engine as messages name them; ``is_default``: the config states no tensor size."""
    names = {kind: section.path(key)[-1] for kind, key in keys.ENGINE_SIZES.items()}
    parts = [f"{names[kind]} {size}" for kind, size in sizes.items() if size > 1 or kind == "tp"]
    if is_default:
        parts[0] = f"{section.system}'s default {parts[0]}; the file does not set it"
    return " x ".join(parts)


def _disaggregated(section: Config, tensor: int) -> Engine:
    """Return an engine with other processes for the prefill."""
    prefill = section[keys.PREFILL_REPLICAS]
    decode = section[keys.DECODE_REPLICAS] * section.get(keys.DECODE_TENSOR, tensor)
    text = f"prefill {prefill} x {tensor} + decode {decode}"
    where = section.inner("disaggregation").place
    return Engine(prefill * tensor + decode, text, Sizes(where=where), where, where)

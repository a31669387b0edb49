"""open-instruct: learners on nodes of their own, and engines of vLLM on what is left.

``num_learners_per_node`` has a number for each node. They are the bundles of one placement group, with a GPU and 10
CPUs for each learner: with ``grpo_fast.py`` no two of them on one node (``STRICT_SPREAD``), with ``grpo.py``
(OLMo-core) if that is possible (``SPREAD``). Engines are the bundles of a second group, each with as many GPUs and
CPUs as its tensor size, packed. With ``single_gpu_mode``, engine i has a half of a GPU of the learners' bundle i.

mason.py states nodes and their GPUs: the job must fit them.

Follows open-instruct's ``create_model_and_optimizer`` and ``ModelGroup`` (`grpo_fast.py`), ``main`` of `grpo.py`,
``create_vllm_engines`` (`vllm_utils.py`) and ``build_grpo_fast_startup_requirements`` (e6c3044).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankplan import Actors, Diagnostic, Parallel
from rankplan.sdk import Config, Job, Placer, Sizes, Taken
from rankplan.sdk.words import whole_number
from rankplan.trainers.open_instruct import faults, keys

_LEARNER, _ENGINE = "learner", "vllm"
_CPUS = 10
"""The CPUs of a bundle for each learner (``LEARNER_PLACEMENT_GROUP_CPU_PER_GPU``)."""
_OLMO_CORE = "open_instruct.grpo"
"""The program whose learners may share a node."""
_HALF = 0.5
"""What an engine asks for of a GPU in ``single_gpu_mode``, and a learner of OLMo-core."""
_PART = 0.48
"""What a learner asks for of a GPU in ``single_gpu_mode`` (``ModelGroup``)."""


class LearnersJob(Job):
    """The learners and the engines of a command."""

    def __init__(self, config: Config) -> None:
        self.is_olmo_core = config.program.endswith(_OLMO_CORE)
        self.states_memory = not self.is_olmo_core  # FSDP of OLMo-core has other keys
        if config.stated(keys.OLDER_LEARNERS):
            config.faults.add(config.key_place(keys.OLDER_LEARNERS), faults.renamed_learners())
        self.learners = _learners(config)
        self.learners_at = config.where(keys.LEARNERS)
        self.num_engines, self.tensor = config[keys.NUM_ENGINES], config[keys.TENSOR]
        self.engines_at = config.where(keys.NUM_ENGINES, keys.TENSOR)
        self.is_single = config[keys.SINGLE_GPU]
        if self.is_single:
            self._check_single(config)
        self._check_batch(config)
        self.sizes = self._read_sizes(config)
        tensor = config.path(keys.TENSOR)
        places = {"tp": config.where(keys.TENSOR)} if config.stated(keys.TENSOR) else {}
        self.engine = Sizes(
            Parallel(tp=self.tensor, order=Parallel.ENGINE_ORDER), self.engines_at, places, {"tp": tensor}
        )
        mason = config.part(keys.MASON)
        self.nodes, self.gpus = (0, 0) if mason is None else (mason[keys.NUM_NODES], mason[keys.GPUS])

    def _check_single(self, config: Config) -> None:
        """Record engines that cannot share the GPUs of the learners."""
        if self.tensor > 1:
            config.faults.add(config.where(keys.TENSOR), faults.large_single(self.tensor))
        elif self.num_engines > len(self.learners):
            fault = faults.engines_without_node(self.num_engines, len(self.learners))
            config.faults.add(config.where(keys.NUM_ENGINES), fault)
        if max(self.learners) > 1:
            config.faults.warn(self.learners_at, faults.shared_gpus(max(self.learners)))

    def _check_batch(self, config: Config) -> None:
        """Record a batch that leaves a learner without a sample (``validate_configs``); OLMo-core checks nothing."""
        samples = config[keys.PROMPTS] * config[keys.SAMPLES]
        ranks = sum(self.learners) // config[keys.SEQUENCE]
        if not self.is_olmo_core and samples < ranks:
            config.faults.add(config.where(keys.PROMPTS, keys.SAMPLES), faults.small_batch(samples, ranks))

    def _read_sizes(self, config: Config) -> Sizes:
        """Return the sizes of the learners: those that share a sequence, and shards of FSDP."""
        learners = sum(self.learners)
        shards, replicas = config[keys.SHARD_DEGREE], config[keys.REPLICAS]
        if shards and replicas and shards * replicas != learners:
            config.faults.add(config.where(keys.SHARD_DEGREE), faults.other_shards(shards, replicas, learners))
            return Sizes()
        for key, size in ((keys.SHARD_DEGREE, shards), (keys.REPLICAS, replicas)):
            if size and learners % size:
                config.faults.add(config.where(key), faults.undivided(key.path, size, learners))
                return Sizes()
        if shards is None and replicas:
            shards = learners // replicas
        parallel = Parallel(cp=config[keys.SEQUENCE], fsdp=(shards or 1) if self.is_olmo_core else 1)
        return Sizes(parallel, config.where(keys.SEQUENCE))

    def size(self) -> tuple[int, int]:
        """Return the nodes of mason.py; else as many of the usual size as the learners and engines need."""
        if self.gpus:
            return self.nodes, self.gpus
        engines = 0 if self.is_single else self.num_engines
        together = sum(self.learners) + engines * self.tensor
        if len(self.learners) == 1 and together <= self.usual_accelerators:
            return 1, together
        each = max(self.usual_accelerators, self.tensor, *self.learners)
        left = sum((each - count) // self.tensor for count in self.learners)
        further = max(engines - left, 0)
        return len(self.learners) + -(-further // (each // self.tensor)), each

    def place(self, placer: Placer) -> None:
        """Place the learners, then the engines, and record both groups and the actors beside them."""
        sizes, is_strict = self.learners, not self.is_olmo_core
        learners = placer.spread(
            sizes,
            _LEARNER,
            self.learners_at,
            lambda short: faults.no_node(sizes, short.bundles, placer.inventory.num_nodes),
            strict=is_strict,
        )
        strategy = "STRICT_SPREAD" if is_strict else "SPREAD"
        placer.ask(_LEARNER, learners, bundles=sizes, strategy=strategy, cpus=_CPUS)
        placer.hold(Actors("data preparation", cpus=2))
        if is_strict:  # counted before the job starts, as if it held a CPU
            placer.hold(Actors("actor manager", cpus=1))
        share = None
        if self.is_single:
            share = _HALF if self.is_olmo_core else _PART
        placer.component(_LEARNER, learners, self.sizes.where, sizes=self.sizes, share=share)
        if self.is_single:
            self._place_shared(placer, learners)
        else:
            self._place_apart(placer)

    def _place_apart(self, placer: Placer) -> None:
        """Place engines in a group of their own: on one node if one has room for all, else where there is room."""
        count = self.num_engines * self.tensor

        def torn(short: Any) -> Diagnostic:
            return faults.no_room(short.bundles, self.tensor, short.free)

        if count <= placer.pool_for(_ENGINE).largest:
            taken = placer.take(count, _ENGINE, self.engines_at)
        else:
            taken = placer.bundles(count, [self.tensor], _ENGINE, self.engines_at, torn)
        placer.ask(_ENGINE, taken, bundles=[self.tensor], cpus=1)
        placer.component(_ENGINE, taken, self.engines_at, self.tensor, sizes=self.engine)

    def _place_shared(self, placer: Placer, learners: Taken) -> None:
        """Place an engine on the first GPU of each of the first bundles of the learners."""
        taken, first = Taken(), 0
        for count in self.learners[: self.num_engines]:
            taken += learners.slice(first, first + 1)
            first += count
        placer.component(_ENGINE, taken, self.engines_at, sizes=self.engine, share=_HALF)


def _learners(config: Config) -> Sequence[int]:
    """Return the number of learners of each node; a value that states none is a fault."""
    value = config.raw(keys.LEARNERS)
    if value is None:
        return [1]
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else str(value).split()
    numbers = [whole_number(item) for item in items]
    sizes = [number for number in numbers if number is not None and number > 0]
    if not sizes or len(sizes) < len(numbers):
        config.faults.add(config.where(keys.LEARNERS), faults.not_learners(value))
        return [1]
    return sizes

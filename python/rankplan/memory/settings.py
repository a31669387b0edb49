"""The settings of a trainer and of an engine, as the core reads them."""

from __future__ import annotations

from rankplan.frozen import frozen

GIB = 1 << 30

FRAMEWORKS = ("megatron", "fsdp", "deepspeed")
DIVIDED_BY_DATA = frozenset({"fsdp", "deepspeed"})
"""Frameworks whose states are divided among the data ranks, whatever other sizes are stated."""
ENGINES = ("vllm", "sglang", "trtllm")
USAGES = ("llm", "server", "engine")
OPTIMIZERS = ("adam", "adam-precision-aware", "adam-8bit", "sgd", "muon")
RECOMPUTE = ("none", "selective", "full")
SLEEP = ("none", "host", "free")
PRECISIONS = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp4": 0.5}
"""Bytes of an element."""


@frozen(kw_only=True)
class Training:
    """A trainer, or a model that only computes (``framework`` forward). ``None``: not stated.

    ``slots`` are all of the component. ``chunks`` are the model chunks of a rank, ``shard`` the slots that share the
    states (FSDP), ``zero`` the stage of DeepSpeed. ``weight`` and ``gradient`` are bytes of an element, ``on_host`` the
    fraction of the optimizer on the host. ``distributed``: the data ranks divide Megatron's optimizer. ``tokens`` are
    those of a micro-batch, all of which it has with ``fixed_length``; ``trained_tokens`` are those of one with a
    backward pass. ``optimizer_in_step``: the optimizer is on the accelerator only while it updates the weights.
    ``length`` is that of a sequence. ``unfused``: attention stores its scores. ``whole_gradients``: they stay undivided
    until the last micro-batch of a step. ``wide_logits``: logits have several copies of 32 bits. ``fused_logits``: they
    are computed in chunks, and never whole; ``logits_in_place``: they keep 16 bits, and their gradient replaces them;
    ``logits_chunk``: only so many tokens have some in 32 bits.
    ``empties_cache``: the allocator is emptied before others have their turn.
    """

    framework: str
    slots: int = 1
    tp: int = 1
    cp: int = 1
    pp: int = 1
    chunks: int = 1
    ep: int = 1
    etp: int = 1
    first_layers: int | None = None
    last_layers: int | None = None
    shard: int | None = None
    zero: int | None = None
    weight: float = 2.0
    gradient: float | None = None
    optimizer: str = "adam"
    on_host: float = 0.0
    weights_on_host: bool = False
    distributed: bool | None = None
    sequence_parallel: bool | None = None
    recompute: str | None = None
    tokens: int | None = None
    trained_tokens: int | None = None
    optimizer_in_step: bool = False
    length: int | None = None
    fixed_length: bool = False
    unfused: bool = False
    whole_gradients: bool = False
    micro_batches: int | None = None
    lora: bool = False
    wide_logits: bool = False
    fused_logits: bool = False
    logits_in_place: bool = False
    logits_chunk: int | None = None
    empties_cache: bool = False
    sleep: str | None = None


@frozen(kw_only=True)
class Engine:
    """An inference engine. ``None``: not stated.

    ``share`` is its part of a card: of all of it (vLLM), of what was free before (SGLang), or of what the weights
    leave (TensorRT-LLM). ``length`` is that of the longest request, and ``longest`` that of the longest sequence of the
    model, which an engine serves if no length is stated. ``weight`` are the bytes of a weight, at least and at
    most, ``cache`` those of an element of the cache. ``sequences`` and ``batch`` are the most requests and tokens of a
    step: of vLLM, ``usage``, how it is built, and ``on_a100``, whether its cards are A100s, decide them if none are
    stated. ``graphs``: it may capture graphs. ``cache_size`` are the bytes of its cache, whatever its share (vLLM).
    """

    kind: str
    tp: int = 1
    pp: int = 1
    ep: int = 1
    share: float | None = None
    length: int | None = None
    longest: int | None = None
    weight: tuple[float, float] = (2.0, 2.0)
    cache: float = 2.0
    sequences: int | None = None
    batch: int | None = None
    graphs: bool = True
    cache_size: float | None = None
    usage: str | None = None
    on_a100: bool = False
    sleep: str | None = None

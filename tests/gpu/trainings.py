"""Peaks of small trainings with PyTorch's FSDP on one card, beside the bounds that rankplan gives for them."""

from __future__ import annotations

import gc
import os
import tempfile
from dataclasses import asdict, dataclass
from typing import Any

from gpu.report import Report
from rankplan.memory.settings import GIB
from rankplan.plans.model import Model
from support.memory_rows import peak


@dataclass(frozen=True)
class Case:
    """A training: a model of the table, the tokens of a micro-batch in sequences of ``length``, and how it is stored.

    ``precision`` is that of the stored weights and their optimizer; computation is always in 16 bits. ``loss`` is
    ``fused`` (logits of 16 bits) or ``upcast`` (logits of 32 bits, as models of Transformers do it).
    """

    model: str
    tokens: int
    length: int
    recompute: str
    precision: str = "fp32"
    loss: str = "upcast"
    micro_batches: int = 1


FEW = (
    Case("Qwen/Qwen2.5-0.5B", 4096, 2048, "none"),
    Case("Qwen/Qwen2.5-0.5B", 16384, 4096, "full"),
    Case("meta-llama/Llama-3.2-1B", 8192, 4096, "full", precision="bf16"),
)
"""The trainings of every run."""

MANY = tuple(
    Case(model, tokens, length, recompute, precision, loss, micro_batches)
    for model in ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-0.6B", "meta-llama/Llama-3.2-1B", "Qwen/Qwen2.5-1.5B")
    for tokens, length in ((4096, 1024), (16384, 4096))
    for recompute in ("none", "full")
    for precision, loss, micro_batches in (("fp32", "upcast", 1), ("bf16", "fused", 2))
)
"""A grid of trainings, for evidence behind the bounds."""


@dataclass(frozen=True)
class Peak:
    """Bytes that PyTorch's allocator had in a step: at most, reserved at most, and before it."""

    peak_bytes: int
    reserved_bytes: int
    between_steps_bytes: int


def check_trainings(report: Report, cases: tuple[Case, ...]) -> None:
    """Measure each training, and compare its peak with the bounds."""
    try:
        import torch
        import transformers
    except ImportError as missing:
        report.not_there("training", "peaks of PyTorch", missing)
        return
    source = f"tests/gpu/run: PyTorch {torch.__version__}, Transformers {transformers.__version__}"
    properties = torch.cuda.get_device_properties(0)
    card = {"name": properties.name, "gib": round(properties.total_memory / GIB, 2)}
    rows: list[dict[str, Any]] = []
    report.record("trainings", rows)
    for case in cases:
        subject = f"{case.model}, {case.tokens} tokens, {case.recompute} recompute, {case.precision}, {case.loss}"
        row = {"source": source, "card": card, **row_of(case)}
        lower, upper = peak(row)
        try:
            found = measured(case)
        except torch.cuda.OutOfMemoryError:
            report.not_there("training", subject, f"the card is too small; bounds {_gib(lower)} to {_gib(upper)} GiB")
            continue
        finally:
            gc.collect()
            torch.cuda.empty_cache()
        seen = f"{_gib(found.peak_bytes)} GiB, bounds {_gib(lower)} to {_gib(upper)}"
        if lower <= found.peak_bytes <= upper:
            report.right("training", subject, seen)
        else:
            report.wrong("training", subject, seen)
        rows.append({**row, "answer": asdict(found)})


def row_of(case: Case) -> dict[str, Any]:
    """Return a training as a row of the goldens of memory, without its card and its answer."""
    train = {
        "framework": "fsdp",
        "accelerators": 1,
        "precision": case.precision,
        "compute": "bf16",
        "recompute": case.recompute,
        "micro_batch": case.tokens // case.length,
        "seq": case.length,
        "micro_batches": case.micro_batches,
        "fixed_length": True,
        "logits": "fp32" if case.loss == "upcast" else "bf16",
    }
    return {"kind": "train-peak", "nodes": 1, "gpus_per_node": 1, "model": case.model, "train": train}


def measured(case: Case) -> Peak:
    """Train two steps with random weights and tokens, and return the peak of the second."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    _join()
    torch.manual_seed(0)
    stored = torch.float32 if case.precision == "fp32" else torch.bfloat16
    with torch.device("cuda"):  # random weights are made there, which takes seconds on a CPU
        model = _model(case).to(dtype=stored)
    model.train()
    if case.recompute == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    sequences = case.tokens // case.length
    tokens = torch.randint(0, model.config.vocab_size, (sequences, case.length), device="cuda")
    steady = 0
    for _ in range(2):
        steady = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(case.micro_batches):
            _loss(model, tokens, case.loss).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    return Peak(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), steady)


def _loss(model: Any, tokens: Any, kind: str) -> Any:
    """Return the loss of the next token; logits of 32 bits are a copy of those of 16 bits."""
    import torch

    logits = model(tokens, use_cache=False).logits[:, :-1].flatten(0, 1)
    if kind == "upcast":
        logits = logits.float()
    return torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())


def _model(case: Case) -> Any:
    """Return the model with random weights, as Transformers builds it from its sizes."""
    from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

    shape = Model.of(case.model).shape
    if shape is None:
        raise ValueError(f"the sizes of {case.model} are unknown")
    kind = LlamaConfig if "llama" in case.model else Qwen3Config if "Qwen3" in case.model else Qwen2Config
    config = kind(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=max(case.length, 32768),
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def _join() -> None:
    """Make this process a group of one, once."""
    import torch.distributed as dist

    if not dist.is_initialized():
        store = dist.FileStore(os.path.join(tempfile.mkdtemp(), "store"), 1)  # noqa: PTH118
        dist.init_process_group("nccl", store=store, rank=0, world_size=1)


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}"

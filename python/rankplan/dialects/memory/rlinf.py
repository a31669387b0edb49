"""RLinf a3816b5: `config.py`, `hybrid_engines/{fsdp,megatron}`, `workers/rollout/{vllm,sglang}`."""

from __future__ import annotations

from typing import Any

from rankplan.dialects.keys.roles import Role, Setting
from rankplan.dialects.memory import convert
from rankplan.dialects.memory.rules import CHUNK, layers, offloading, recomputing, rule, unless


def _tokens(length: Any, by_tokens: Any, tokens: Any, batch: Any, forward: Any) -> int | None:
    """Return the most tokens of a micro-batch, in training and in the forward pass."""
    train = convert.micro_batch(by_tokens, convert.most(tokens, length), batch, length)
    return convert.most(train, train if by_tokens else convert.micro_batch(None, None, forward, length))


def _left(weights: Any, optimizer_too: Any, everything: Any) -> str | None:
    if everything is not None:
        return convert.asleep(everything)
    return None if None in (weights, optimizer_too) else convert.asleep(weights, optimizer_too)


def _divided(strategy: Any) -> Any:
    """Return `EFFECT` for ways to divide weights that no setting states."""
    return None if strategy == "full_shard" else convert.EFFECT


def _kind(trained: Any) -> Any:
    """Return the kind of a model that a task trains or computes with; others than language models are unknown."""

    def found(backend: Any, task: Any) -> Any:
        return trained(backend) if task is None or str(task).startswith(("reasoning", "coding")) else None

    return found


def _served(name: Any) -> Any:
    return convert.served(None, name)


_BACKEND = "text @.training_backend actor.training_backend"
_TASK = "text runner.task_type"
_SHARED: tuple[Setting, ...] = (
    rule("length", "size runner.seq_length"),
    rule("precision", "text @.model.precision actor.model.precision", "any @.model.fp8", by=convert.precision),
    rule(
        "tokens",
        "size runner.seq_length",
        "switch runner.enable_dynamic_batch_size = false",
        "size runner.max_tokens_per_mbs = 2048",
        "size algorithm.training_batch_size_per_gpu @.micro_batch_size",
        "size algorithm.logprob_forward_micro_batch_size",
        by=_tokens,
    ),
    rule("optimizer_on_host", "switch @.fsdp_config.cpu_offload = false", by=convert.whole, only="fsdp"),
    rule("", "text @.fsdp_config.sharding_strategy = full_shard", by=_divided, only="fsdp"),
    rule("", "any @.fsdp_config.reshard_after_forward = true", by=convert.resharded, only="fsdp"),
    layers("@.model.override_config"),
    unless("@.model.pipeline_model_parallel_layout", only="megatron"),
)
_TRAINING = (
    *_SHARED,
    rule(
        "recompute",
        "switch @.fsdp_config.gradient_checkpointing @.model.gradient_checkpointing",
        by=convert.checkpointed,
        only="fsdp",
    ),
    rule("lora", "size @.model.lora_rank", "switch @.model.is_lora = false", by=convert.adapters),
    rule("sleep", "switch @.offload_weight", "switch @.offload_optimizer", "switch @.enable_offload", by=_left),
    rule("whole_gradients", "switch @.fsdp_config.enable_gradient_accumulation = false", only="fsdp"),
    # Megatron; MegatronModelManager adds gradients in 32 bits
    rule("gradients", _BACKEND, by=convert.always("fp32"), only="megatron"),
    rule(
        "optimizer",
        "text @.optim.optimizer = adam",
        "any @.optim.use_precision_aware_optimizer",
        by=convert.optimizer,
        only="megatron",
    ),
    offloading("@.optim.", fraction=0.0, only="megatron"),
    rule("distributed_optimizer", "switch @.optim.use_distributed_optimizer", only="megatron"),
    rule("sequence_parallel", "switch @.model.sequence_parallel", only="megatron"),
    recomputing("@.model.", only="megatron"),
    rule("chunks", "size @.model.virtual_pipeline_model_parallel_size", only="megatron"),
)
_MODEL = rule("model", "text @.model.model_path rollout.model.model_path")

RLINF = (
    Role(
        {"actor": "actor", "critic": "critic"},
        rule("training", _BACKEND, _TASK, by=_kind(convert.trains)),
        _MODEL,
        _TRAINING,
    ),
    Role(
        {"inference": "actor", "actor_inference": "actor"},
        rule("forward", _BACKEND, _TASK, by=_kind(convert.computes)),
        _MODEL,
        _SHARED,
    ),
    Role(
        {"rollout": "rollout"},
        rule("engine", "text @.rollout_backend", by=convert.serves),
        _MODEL,
        (
            rule("share", "share @.gpu_memory_utilization = 0.65"),
            # VLLMWorker: max_model_len
            rule("length", "size runner.seq_length", only="vllm"),
            rule("sequences", "size @.max_running_requests"),
            rule("graphs", "switch @.enforce_eager", by=convert.captured, only="vllm"),
            rule("tokens", "size @.vllm.max_num_batched_tokens", only="vllm"),
            # SGLangWorker leaves the chunks to SGLang
            rule("tokens", "text @.rollout_backend", by=convert.always(CHUNK), only="sglang"),
            rule("precision", "text @.model.precision", by=_served),
        ),
    ),
)

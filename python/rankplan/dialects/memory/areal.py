"""AReaL 4aef98d: `api/cli_args.py`, ``FSDPEngine`` and ``MegatronEngine`` of `engine`."""

from __future__ import annotations

from typing import Any

from rankplan.dialects.keys.roles import Role, Setting
from rankplan.dialects.memory import convert
from rankplan.dialects.memory.rules import REQUESTS, rule, unless


def _recompute(enabled: Any, name: Any, method: Any) -> str | None:
    return convert.granularity(name, method, enabled) if enabled is not None else None


def _optimizer(name: Any, aware: Any) -> str:
    """Return Megatron's optimizer; ``adam_bf16`` is Adam with smaller moments (``MegatronEngine``)."""
    return convert.optimizer("adam", "aware") if name == "adam_bf16" else convert.optimizer(name, aware)


def _torch(name: Any) -> str:
    return convert.torch_optimizer("adam" if name == "adam_bf16" else name)


def _narrow(wide: Any, name: Any, aware: Any, dtype: Any) -> str | None:
    return convert.gradients(wide, name == "adam_bf16", aware and dtype != "float32")


def _tokens(tokens: Any, prompt: Any, response: Any) -> int | None:
    """Return the most tokens of a micro-batch, which a longer sequence may exceed alone."""
    return None if None in (prompt, response) else convert.most(tokens, prompt + response)


def _offloaded(enabled: Any, offload: Any) -> str | None:
    return "host" if enabled and offload else None


_LONGEST = "size train_dataset.max_length", "size gconfig.max_new_tokens"
_SHARED: tuple[Setting, ...] = (
    rule(
        "precision",
        "text @.dtype = bfloat16",
        "any @.megatron.fp8_config",
        "any @.megatron.ddp.fp8_param_gather",
        by=convert.precision,
    ),
    rule("tokens", "size @.mb_spec.max_tokens_per_mb", *_LONGEST, by=_tokens),
    rule("optimizer_on_host", "switch @.fsdp.offload_params = false", by=convert.whole, only="fsdp"),
    rule("sleep", "switch enable_offload = false", "switch @.offload = false", by=_offloaded),
    unless("@.megatron.use_torch_fsdp2", "@.megatron.use_custom_fsdp", only="megatron"),
)
_TRAINING = (
    *_SHARED,
    rule("recompute", "switch @.gradient_checkpointing = false", by=convert.checkpointed, only="fsdp"),
    rule("optimizer", "text @.optimizer.type = adam", by=_torch, only="fsdp"),
    rule("lora", "size @.lora_rank = 32", "switch @.use_lora = false", by=convert.adapters),
    unless("@.fsdp.per_layer_optim_step", only="fsdp"),
    # Megatron
    rule(
        "gradients",
        "switch @.megatron.ddp.grad_reduce_in_fp32 = true",
        "text @.optimizer.type = adam",
        "switch @.megatron.use_precision_aware_optimizer = false",
        "text @.megatron.main_grads_dtype = float32",
        by=_narrow,
        only="megatron",
    ),
    rule(
        "optimizer",
        "text @.optimizer.type = adam",
        "switch @.megatron.use_precision_aware_optimizer = false",
        by=_optimizer,
        only="megatron",
    ),
    rule("distributed_optimizer", "switch @.megatron.ddp.use_distributed_optimizer = true", only="megatron"),
    rule(
        "recompute",
        "switch @.gradient_checkpointing = false",
        "text @.megatron.recompute_granularity = full",
        "text @.megatron.recompute_method = uniform",
        by=_recompute,
        only="megatron",
    ),
    rule("chunks", "size @.megatron.virtual_pipeline_parallel_size = 1", only="megatron"),
)

AREAL = (
    Role(
        {"actor": "actor", "critic": "critic"},
        rule("training", "fact backend", by=convert.trains),
        rule("model", "text @.path"),
        _TRAINING,
    ),
    Role(
        {"ref": "ref", "teacher": "teacher"},
        rule("forward", "fact backend", by=convert.computes),
        rule("model", "text @.path"),
        _SHARED,
    ),
    Role(
        {"rollout": "rollout", "gen": "gen"},
        rule("engine", "fact backend", by=convert.serves),
        rule("model", "text vllm.model sglang.model_path actor.path"),
        (
            rule("share", "share vllm.gpu_memory_utilization = 0.9", only="vllm"),
            rule("length", "size vllm.max_model_len = 32768", only="vllm"),
            rule("sequences", "size vllm.max_num_seqs = 256", only="vllm"),
            rule("graphs", "switch vllm.enforce_eager", by=convert.captured, only="vllm"),
            rule("precision", "text vllm.quantization", "text vllm.dtype = bfloat16", by=convert.served, only="vllm"),
            unless("vllm.cpu_offload_gb", "vllm.kv_cache_dtype", only="vllm"),
            rule("share", "share sglang.mem_fraction_static = 0.9", only="sglang"),
            rule("length", "size sglang.context_length = 32768", only="sglang"),
            rule(
                "tokens",
                "size sglang.chunked_prefill_size",
                "size sglang.max_prefill_tokens = 32768",
                "size sglang.context_length = 32768",
                by=convert.step,
                only="sglang",
            ),
            rule("sequences", f"size sglang.max_running_requests = {REQUESTS}", only="sglang"),
            rule(
                "precision",
                "text sglang.quantization",
                "text sglang.dtype = bfloat16",
                by=convert.served,
                only="sglang",
            ),
            rule("cache_precision", "text sglang.kv_cache_dtype", by=convert.cached, only="sglang"),
            unless("sglang.cpu_offload_gb", "sglang.torchao_config", only="sglang"),
        ),
    ),
)

"""AReaL 4aef98d: `api/cli_args.py`, ``FSDPEngine`` and ``MegatronEngine`` of `engine`."""

from __future__ import annotations

from typing import Any

from rankplan.sdk import Role, anything, fact, setting, share, size, switch, text
from rankplan.sdk.memory import REQUESTS, SGLANG_EFFECTS, VLLM_EFFECTS, convert, fixed, nearly, unless

_BACKEND = fact("backend")
_PATH = text("@.path")
_TOKENS = size("@.mb_spec.max_tokens_per_mb")
_LONGEST = size("train_dataset.max_length"), size("gconfig.max_new_tokens")
_CHECKPOINTING = switch("@.gradient_checkpointing")
_OPTIMIZER = text("@.optimizer.type", default="adam")
_PRECISION_AWARE = switch("@.megatron.use_precision_aware_optimizer")
_CONTEXT = size("sglang.context_length", default=32768)


def _recompute(enabled: Any, name: Any, method: Any, layers: Any) -> Any:
    return convert.granularity(name, method, layers, enabled) if enabled is not None else None


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


_SHARED = (
    setting(
        "precision",
        text("@.dtype", default="bfloat16"),
        anything("@.megatron.fp8_config"),
        anything("@.megatron.ddp.fp8_param_gather"),
        by=convert.precision,
    ),
    setting("tokens", _TOKENS, *_LONGEST, by=_tokens),
    setting("target_tokens", _TOKENS),
    setting("optimizer_on_host", switch("@.fsdp.offload_params"), by=convert.whole, only="fsdp"),
    setting("sleep", switch("enable_offload"), switch("@.offload"), by=_offloaded),
    unless("@.megatron.use_torch_fsdp2", "@.megatron.use_custom_fsdp", only="megatron"),
)
_TRAINING = (
    *_SHARED,
    setting("recompute", _CHECKPOINTING, by=convert.checkpointed, only="fsdp"),
    setting("optimizer", _OPTIMIZER, by=_torch, only="fsdp"),
    setting("lora", size("@.lora_rank", default=32), switch("@.use_lora"), by=convert.adapters),
    unless("@.fsdp.per_layer_optim_step", only="fsdp"),
    # Megatron
    setting(
        "gradients",
        switch("@.megatron.ddp.grad_reduce_in_fp32", default=True),
        _OPTIMIZER,
        _PRECISION_AWARE,
        text("@.megatron.main_grads_dtype", default="float32"),
        by=_narrow,
        only="megatron",
    ),
    setting("optimizer", _OPTIMIZER, _PRECISION_AWARE, by=_optimizer, only="megatron"),
    setting("distributed_optimizer", switch("@.megatron.ddp.use_distributed_optimizer", default=True), only="megatron"),
    setting(
        "recompute",
        _CHECKPOINTING,
        text("@.megatron.recompute_granularity", default="full"),
        text("@.megatron.recompute_method", default="uniform"),
        size("@.megatron.recompute_num_layers", default=1),
        by=_recompute,
        only="megatron",
    ),
    setting("chunks", size("@.megatron.virtual_pipeline_parallel_size", default=1), only="megatron"),
)
_VLLM = (
    setting("share", share("vllm.gpu_memory_utilization", default=0.9), only="vllm"),
    setting("length", size("vllm.max_model_len", default=32768), only="vllm"),
    setting("sequences", size("vllm.max_num_seqs", default=256), only="vllm"),
    fixed("usage", "server", only="vllm"),
    setting("graphs", switch("vllm.enforce_eager", default=None), by=convert.captured, only="vllm"),
    setting(
        "precision",
        text("vllm.quantization"),
        text("vllm.dtype", default="bfloat16"),
        by=convert.served,
        only="vllm",
    ),
    unless("vllm.cpu_offload_gb", "vllm.kv_cache_dtype", only="vllm"),
    nearly(*(f"vllm.{name}" for name in VLLM_EFFECTS), only="vllm"),
)
_SGLANG = (
    setting("share", share("sglang.mem_fraction_static", default=0.9), only="sglang"),
    setting("length", _CONTEXT, only="sglang"),
    setting(
        "tokens",
        size("sglang.chunked_prefill_size"),
        size("sglang.max_prefill_tokens", default=32768),
        _CONTEXT,
        by=convert.step,
        only="sglang",
    ),
    setting("sequences", size("sglang.max_running_requests", default=REQUESTS), only="sglang"),
    setting(
        "precision",
        text("sglang.quantization"),
        text("sglang.dtype", default="bfloat16"),
        by=convert.served,
        only="sglang",
    ),
    setting("cache_precision", text("sglang.kv_cache_dtype"), by=convert.cached, only="sglang"),
    unless(
        "sglang.cpu_offload_gb",
        "sglang.torchao_config",
        only="sglang",
    ),
    nearly(*(f"sglang.{name}" for name in SGLANG_EFFECTS), only="sglang"),
)

ROLES = (
    Role(
        {"actor": "actor", "critic": "critic"},
        setting("training", _BACKEND, by=convert.trains),
        setting("model", _PATH),
        _TRAINING,
    ),
    Role(
        {"ref": "ref", "teacher": "teacher"},
        setting("forward", _BACKEND, by=convert.computes),
        setting("model", _PATH),
        _SHARED,
    ),
    Role(
        {"rollout": "rollout", "gen": "gen"},
        setting("engine", _BACKEND, by=convert.serves),
        setting("model", text("vllm.model", fallbacks=("sglang.model_path", "actor.path"))),
        (*_VLLM, *_SGLANG),
    ),
)

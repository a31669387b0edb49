"""verl 1dda039: `trainer/config`, ``FSDPEngine`` and ``MegatronEngine`` of `workers/engine`, ``vLLMHttpServer``."""

from __future__ import annotations

from typing import Any

from rankplan.dialects.keys.roles import Role, Setting
from rankplan.dialects.memory import convert
from rankplan.dialects.memory.rules import (
    end_stages,
    fixed,
    layers,
    offloading,
    recomputing,
    rule,
    sglang_steps,
    stage_keys,
    unless,
)

_A = "actor_rollout_ref"
_TF = "@.megatron.override_transformer_config"
_OVER = "@.optim.override_optimizer_config"
_TEACHERS = "distillation.teacher_models"
_PROMPT, _RESPONSE = "size data.max_prompt_length = 512", "size data.max_response_length = 512"
_BY_TOKENS = f"switch @.use_dynamic_bsz {_A}.actor.use_dynamic_bsz = false"
_AWARE = "any @.optim.use_precision_aware_optimizer", f"any {_OVER}.use_precision_aware_optimizer"


def _tokens(
    prompt: int | None, response: int | None, cp: int, by_tokens: Any, tokens: Any, batch: Any, *forward: Any
) -> int | None:
    """Return the most tokens of a micro-batch, also of the forward pass: on each of the context ranks, so many.

    What is not stated about the forward pass is as in training (``rearrange_micro_batches``).
    """
    pairs = [(by_tokens, tokens, batch)]
    if forward:
        own, most_tokens, own_batch = forward
        also = by_tokens if own is None else own
        pairs.append((also, tokens if most_tokens is None else most_tokens, own_batch))
    return convert.most(
        *(convert.micro_batch(by, each and each * cp, one, convert.added(prompt, response)) for by, each, one in pairs)
    )


def _narrow(wide: Any, aware: Any, also_aware: Any, dtype: Any) -> str | None:
    return convert.gradients(wide, aware, also_aware, dtype == "float16")


def _optimizer(name: Any, aware: Any, also_aware: Any, dtype: Any) -> str:
    return convert.optimizer(name, aware, also_aware, dtype == "float16")


def _policy(policy: Any, strategy: Any) -> float | None:
    return convert.whole(policy and strategy == "fsdp2")


def _released(enabled: Any, name: Any, lora: Any) -> str | None:
    """Return where a sleeping engine goes: SGLang keeps its weights if only adapters change."""
    if not enabled:
        return "none"
    return "free" if not lora else "host" if name == "vllm" else None


_STATES = (
    rule("length", _PROMPT, _RESPONSE, by=convert.added),
    # FSDP
    rule("precision", "text @.fsdp_config.model_dtype = fp32", by=convert.precision, only="fsdp"),
    rule(
        "sleep",
        "switch @.fsdp_config.param_offload = false",
        "switch @.fsdp_config.optimizer_offload = false",
        by=convert.asleep,
        only="fsdp",
    ),
    rule(
        "optimizer_on_host",
        "switch @.fsdp_config.offload_policy = false",
        f"text @.strategy {_A}.actor.strategy",
        by=_policy,
        only="fsdp",
        words="fsdp2",
    ),
    rule(
        "optimizer",
        "text @.optim.optimizer = AdamW",
        "text @.optim.optimizer_impl = torch.optim",
        by=convert.torch_optimizer,
        only="fsdp",
    ),
    rule("", "any @.fsdp_config.reshard_after_forward = true", by=convert.resharded, only="fsdp"),
    # FSDPEngine._gradient_sync_context
    fixed("whole_gradients", value=True, only="fsdp"),
    # Megatron
    rule("precision", "text @.megatron.dtype = bfloat16", f"any {_TF}.fp8", by=convert.precision, only="megatron"),
    rule(
        "sleep",
        "switch @.megatron.param_offload = false",
        "switch @.megatron.optimizer_offload = false",
        by=convert.asleep,
        only="megatron",
    ),
    rule(
        "gradients",
        "switch @.megatron.override_ddp_config.grad_reduce_in_fp32 = true",
        *_AWARE,
        "text @.megatron.dtype = bfloat16",
        by=_narrow,
        only="megatron",
    ),
    rule(
        "optimizer",
        "text @.optim.optimizer = adam",
        *_AWARE,
        "text @.megatron.dtype = bfloat16",
        by=_optimizer,
        only="megatron",
    ),
    offloading(f"{_OVER}.", only="megatron"),
    rule("distributed_optimizer", "switch @.megatron.use_distributed_optimizer = true", only="megatron"),
    rule("sequence_parallel", "switch @.megatron.sequence_parallel = true", only="megatron"),
    recomputing(f"{_TF}.", only="megatron"),
    *end_stages(f"{_TF}."),
    rule("chunks", "size @.megatron.virtual_pipeline_model_parallel_size", only="megatron"),
)
_STAGES = unless("@.megatron.use_megatron_fsdp", *stage_keys(f"{_TF}."), only="megatron")


def _adapted(model: str) -> tuple[Setting, ...]:
    """Return the rules about the model of a trainer, which is in a section."""
    return (
        layers(f"{model}.override_config", f"{model}.override_config.model_config", _TF),
        rule("lora", f"size {model}.lora_rank {model}.lora.rank", by=convert.adapters),
        unless(f"{model}.lora_adapter_path", f"{model}.lora.adapter_path"),
        rule("recompute", f"switch {model}.enable_gradient_checkpointing = true", by=convert.checkpointed, only="fsdp"),
    )


def _engine(components: dict[str, str], model: str, requests: int, at: str = "@") -> Role:
    """Return the role of engines; ``requests`` is the most that they serve at once, and their section is ``at``."""
    usual = f" {_A}.rollout" if at != "@" else ""  # teachers interpolate the rollout's
    vllm, sglang = f"{at}.engine_kwargs.vllm", f"{at}.engine_kwargs.sglang"
    return Role(
        components,
        rule("engine", f"text {at}.name{usual and f'{usual}.name'}", by=convert.serves),
        rule("model", f"text {model}"),
        (
            rule("share", f"share {vllm}.gpu_memory_utilization {at}.gpu_memory_utilization = 0.5"),
            rule("length", f"size {vllm}.max_model_len {at}.max_model_len"),
            rule("sequences", f"size {vllm}.max_num_seqs {at}.max_num_seqs = {requests}", only="vllm"),
            rule("sequences", f"size {sglang}.max_running_requests {at}.max_num_seqs = {requests}", only="sglang"),
            rule("sequences", f"size {at}.max_num_seqs = {requests}", only="trtllm"),
            rule("tokens", f"size {vllm}.max_num_batched_tokens {at}.max_num_batched_tokens = 8192", only="vllm"),
            rule("tokens", f"size {at}.max_num_batched_tokens = 8192", only="trtllm"),
            rule("graphs", f"switch {vllm}.enforce_eager {at}.enforce_eager", by=convert.captured, only="vllm"),
            # SGLangHttpServer leaves the chunks to SGLang
            sglang_steps(f"{sglang}.", f"{sglang}.context_length")[0],
            rule(
                "precision",
                f"text {at}.quantization",
                f"text {at}.dtype{usual and f'{usual}.dtype'} = bfloat16",
                by=convert.served,
            ),
            rule("cache_precision", f"text {vllm}.kv_cache_dtype {sglang}.kv_cache_dtype", by=convert.cached),
            rule(
                "sleep",
                f"switch {at}.free_cache_engine = true",
                f"text {at}.name",
                f"size {_A}.model.lora_rank {_A}.model.lora.rank",
                by=_released,
            ),
            layers(f"{_A}.model.override_config", f"{_A}.model.override_config.model_config"),
            unless(
                f"{_A}.actor.qat.enable",
                f"{_A}.actor.fsdp_config.qat.enable",
                f"{_A}.actor.megatron.qat.enable",
                *(f"{one}.{key}" for one in (vllm, sglang) for key in ("quantization", "cpu_offload_gb")),
                f"{vllm}.hf_overrides",
                f"{vllm}.decode_context_parallel_size",
                f"{at}.disaggregation.enabled",
            ),
        ),
    )


VERL = (
    Role(
        {"actor": f"{_A}.actor"},
        rule("training", "fact engine", by=convert.trains),
        rule("model", f"text {_A}.model.path"),
        (
            *_STATES,
            _STAGES,
            *_adapted(f"{_A}.model"),
            rule(
                "tokens",
                _PROMPT,
                _RESPONSE,
                "fact cp",
                _BY_TOKENS,
                "size @.ppo_max_token_len_per_gpu = 16384",
                "size @.ppo_micro_batch_size_per_gpu",
                f"switch {_A}.rollout.log_prob_use_dynamic_bsz",
                f"size {_A}.rollout.log_prob_max_token_len_per_gpu",
                f"size {_A}.rollout.log_prob_micro_batch_size_per_gpu",
                by=_tokens,
            ),
        ),
    ),
    Role(
        {"critic": "critic"},
        rule("training", "fact engine", by=convert.trains),
        rule("model", "text critic.model.path"),
        (
            *_STATES,
            _STAGES,
            *_adapted("critic.model"),
            rule(
                "tokens",
                _PROMPT,
                _RESPONSE,
                "fact cp",
                _BY_TOKENS,
                "size @.ppo_max_token_len_per_gpu = 32768",
                "size @.ppo_micro_batch_size_per_gpu",
                "switch @.forward_use_dynamic_bsz",
                "size @.forward_max_token_len_per_gpu",
                "size @.forward_micro_batch_size_per_gpu @.ppo_micro_batch_size_per_gpu",
                by=_tokens,
            ),
        ),
    ),
    Role(
        {"ref": f"{_A}.ref"},
        rule("forward", "fact engine", by=convert.computes),
        rule("model", f"text {_A}.model.path"),
        (
            *(one for one in _STATES if one.name in ("length", "precision")),
            # FSDPEngine: a model without a backward pass keeps its parameters on the host
            fixed("optimizer_on_host", 1.0, only="fsdp"),
            fixed("sleep", "host", only="fsdp"),
            rule(
                "sleep",
                f"switch @.megatron.param_offload {_A}.actor.megatron.param_offload = false",
                by=convert.asleep,
                only="megatron",
            ),
            _STAGES,
            layers(f"{_A}.model.override_config", f"{_A}.model.override_config.model_config", _TF),
            rule(
                "tokens",
                _PROMPT,
                _RESPONSE,
                "fact cp",
                f"switch @.log_prob_use_dynamic_bsz {_A}.actor.use_dynamic_bsz = false",
                f"size @.log_prob_max_token_len_per_gpu {_A}.actor.ppo_max_token_len_per_gpu = 16384",
                "size @.log_prob_micro_batch_size_per_gpu",
                by=_tokens,
            ),
        ),
    ),
    _engine({"rollout": f"{_A}.rollout", "rollout_standalone": f"{_A}.rollout"}, f"{_A}.model.path", 256),
    _engine({"reward": "reward.reward_model.rollout"}, "reward.reward_model.model_path", 1024),
    _engine(
        {"teacher": f"{_TEACHERS}.teacher_model", "teacher.*": f"{_TEACHERS}.*"}, "@.model_path", 1024, "@.inference"
    ),
)

"""verl 1dda039: `trainer/config`, ``FSDPEngine`` and ``MegatronEngine`` of `workers/engine`, ``vLLMHttpServer``."""

from __future__ import annotations

from typing import Any

from rankplan.dialects.keys.key import anything, fact, share, size, switch, text
from rankplan.dialects.keys.roles import Role, Setting, setting
from rankplan.dialects.memory import convert
from rankplan.dialects.memory.common import (
    end_stages,
    fixed,
    layers,
    offloading,
    recomputing,
    sglang_steps,
    stage_keys,
    unless,
)

_A = "actor_rollout_ref"
_TF = "@.megatron.override_transformer_config"
_OVER = "@.optim.override_optimizer_config"
_TEACHERS = "distillation.teacher_models"
_PROMPT, _RESPONSE = size("data.max_prompt_length", default=512), size("data.max_response_length", default=512)
_BY_TOKENS = switch("@.use_dynamic_bsz", fallbacks=(f"{_A}.actor.use_dynamic_bsz",))
_AWARE = anything("@.optim.use_precision_aware_optimizer"), anything(f"{_OVER}.use_precision_aware_optimizer")


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
    setting("length", _PROMPT, _RESPONSE, by=convert.added),
    # FSDP
    setting("precision", text("@.fsdp_config.model_dtype", default="fp32"), by=convert.precision, only="fsdp"),
    setting(
        "sleep",
        switch("@.fsdp_config.param_offload"),
        switch("@.fsdp_config.optimizer_offload"),
        by=convert.asleep,
        only="fsdp",
    ),
    setting(
        "optimizer_on_host",
        switch("@.fsdp_config.offload_policy"),
        text("@.strategy", fallbacks=(f"{_A}.actor.strategy",)),
        by=_policy,
        only="fsdp",
        words="fsdp2",
    ),
    setting(
        "optimizer",
        text("@.optim.optimizer", default="AdamW"),
        text("@.optim.optimizer_impl", default="torch.optim"),
        by=convert.torch_optimizer,
        only="fsdp",
    ),
    setting("", anything("@.fsdp_config.reshard_after_forward", default=True), by=convert.resharded, only="fsdp"),
    # FSDPEngine._gradient_sync_context
    fixed("whole_gradients", value=True, only="fsdp"),
    # Megatron
    setting(
        "precision",
        text("@.megatron.dtype", default="bfloat16"),
        anything(f"{_TF}.fp8"),
        by=convert.precision,
        only="megatron",
    ),
    setting(
        "sleep",
        switch("@.megatron.param_offload"),
        switch("@.megatron.optimizer_offload"),
        by=convert.asleep,
        only="megatron",
    ),
    setting(
        "gradients",
        switch("@.megatron.override_ddp_config.grad_reduce_in_fp32", default=True),
        *_AWARE,
        text("@.megatron.dtype", default="bfloat16"),
        by=_narrow,
        only="megatron",
    ),
    setting(
        "optimizer",
        text("@.optim.optimizer", default="adam"),
        *_AWARE,
        text("@.megatron.dtype", default="bfloat16"),
        by=_optimizer,
        only="megatron",
    ),
    offloading(f"{_OVER}.", only="megatron"),
    setting("distributed_optimizer", switch("@.megatron.use_distributed_optimizer", default=True), only="megatron"),
    setting("sequence_parallel", switch("@.megatron.sequence_parallel", default=True), only="megatron"),
    recomputing(f"{_TF}.", only="megatron"),
    *end_stages(f"{_TF}."),
    setting("chunks", size("@.megatron.virtual_pipeline_model_parallel_size"), only="megatron"),
)
_STAGES = unless("@.megatron.use_megatron_fsdp", *stage_keys(f"{_TF}."), only="megatron")


def _adapted(model: str) -> tuple[Setting, ...]:
    """Return the rules about the model of a trainer, which is in a section."""
    return (
        layers(f"{model}.override_config", f"{model}.override_config.model_config", _TF),
        setting("lora", size(f"{model}.lora_rank", fallbacks=(f"{model}.lora.rank",)), by=convert.adapters),
        unless(f"{model}.lora_adapter_path", f"{model}.lora.adapter_path"),
        setting(
            "recompute",
            switch(f"{model}.enable_gradient_checkpointing", default=True),
            by=convert.checkpointed,
            only="fsdp",
        ),
    )


def _engine(components: dict[str, str], model: str, requests: int, at: str = "@") -> Role:
    """Return the role of engines; ``requests`` is the most that they serve at once, and their section is ``at``."""

    def usual(name: str) -> tuple[str, ...]:
        return () if at == "@" else (f"{_A}.rollout.{name}",)  # teachers interpolate the rollout's

    vllm, sglang = f"{at}.engine_kwargs.vllm", f"{at}.engine_kwargs.sglang"
    return Role(
        components,
        setting("engine", text(f"{at}.name", fallbacks=usual("name")), by=convert.serves),
        setting("model", text(model)),
        (
            setting(
                "share",
                share(f"{vllm}.gpu_memory_utilization", default=0.5, fallbacks=(f"{at}.gpu_memory_utilization",)),
            ),
            setting("length", size(f"{vllm}.max_model_len", fallbacks=(f"{at}.max_model_len",))),
            setting(
                "sequences",
                size(f"{vllm}.max_num_seqs", default=requests, fallbacks=(f"{at}.max_num_seqs",)),
                only="vllm",
            ),
            setting(
                "sequences",
                size(f"{sglang}.max_running_requests", default=requests, fallbacks=(f"{at}.max_num_seqs",)),
                only="sglang",
            ),
            setting("sequences", size(f"{at}.max_num_seqs", default=requests), only="trtllm"),
            setting(
                "tokens",
                size(f"{vllm}.max_num_batched_tokens", default=8192, fallbacks=(f"{at}.max_num_batched_tokens",)),
                only="vllm",
            ),
            setting("tokens", size(f"{at}.max_num_batched_tokens", default=8192), only="trtllm"),
            setting(
                "graphs",
                switch(f"{vllm}.enforce_eager", default=None, fallbacks=(f"{at}.enforce_eager",)),
                by=convert.captured,
                only="vllm",
            ),
            # SGLangHttpServer leaves the chunks to SGLang
            sglang_steps(f"{sglang}.", size(f"{sglang}.context_length"))[0],
            setting(
                "precision",
                text(f"{at}.quantization"),
                text(f"{at}.dtype", default="bfloat16", fallbacks=usual("dtype")),
                by=convert.served,
            ),
            setting(
                "cache_precision",
                text(f"{vllm}.kv_cache_dtype", fallbacks=(f"{sglang}.kv_cache_dtype",)),
                by=convert.cached,
            ),
            setting(
                "sleep",
                switch(f"{at}.free_cache_engine", default=True),
                text(f"{at}.name"),
                size(f"{_A}.model.lora_rank", fallbacks=(f"{_A}.model.lora.rank",)),
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
        setting("training", fact("engine"), by=convert.trains),
        setting("model", text(f"{_A}.model.path")),
        (
            *_STATES,
            _STAGES,
            *_adapted(f"{_A}.model"),
            setting(
                "tokens",
                _PROMPT,
                _RESPONSE,
                fact("cp"),
                _BY_TOKENS,
                size("@.ppo_max_token_len_per_gpu", default=16384),
                size("@.ppo_micro_batch_size_per_gpu"),
                switch(f"{_A}.rollout.log_prob_use_dynamic_bsz", default=None),
                size(f"{_A}.rollout.log_prob_max_token_len_per_gpu"),
                size(f"{_A}.rollout.log_prob_micro_batch_size_per_gpu"),
                by=_tokens,
            ),
        ),
    ),
    Role(
        {"critic": "critic"},
        setting("training", fact("engine"), by=convert.trains),
        setting("model", text("critic.model.path")),
        (
            *_STATES,
            _STAGES,
            *_adapted("critic.model"),
            setting(
                "tokens",
                _PROMPT,
                _RESPONSE,
                fact("cp"),
                _BY_TOKENS,
                size("@.ppo_max_token_len_per_gpu", default=32768),
                size("@.ppo_micro_batch_size_per_gpu"),
                switch("@.forward_use_dynamic_bsz", default=None),
                size("@.forward_max_token_len_per_gpu"),
                size("@.forward_micro_batch_size_per_gpu", fallbacks=("@.ppo_micro_batch_size_per_gpu",)),
                by=_tokens,
            ),
        ),
    ),
    Role(
        {"ref": f"{_A}.ref"},
        setting("forward", fact("engine"), by=convert.computes),
        setting("model", text(f"{_A}.model.path")),
        (
            *(one for one in _STATES if one.name in ("length", "precision")),
            # FSDPEngine: a model without a backward pass keeps its parameters on the host
            fixed("optimizer_on_host", 1.0, only="fsdp"),
            fixed("sleep", "host", only="fsdp"),
            setting(
                "sleep",
                switch("@.megatron.param_offload", fallbacks=(f"{_A}.actor.megatron.param_offload",)),
                by=convert.asleep,
                only="megatron",
            ),
            _STAGES,
            layers(f"{_A}.model.override_config", f"{_A}.model.override_config.model_config", _TF),
            setting(
                "tokens",
                _PROMPT,
                _RESPONSE,
                fact("cp"),
                switch("@.log_prob_use_dynamic_bsz", fallbacks=(f"{_A}.actor.use_dynamic_bsz",)),
                size(
                    "@.log_prob_max_token_len_per_gpu",
                    default=16384,
                    fallbacks=(f"{_A}.actor.ppo_max_token_len_per_gpu",),
                ),
                size("@.log_prob_micro_batch_size_per_gpu"),
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

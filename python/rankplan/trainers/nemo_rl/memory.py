"""NeMo-RL 7ea279a: ``PolicyConfig``, `models/megatron/setup.py`, `models/automodel`, ``VllmGenerationWorker``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.sdk import Key, Role, anything, number, setting, share, size, switch, text
from rankplan.sdk.memory import (
    SGLANG_EFFECTS,
    VLLM_EFFECTS,
    convert,
    draft_keys,
    end_stages,
    fixed,
    layers,
    nearly,
    offloading,
    sglang_steps,
    stage_keys,
    unless,
)
from rankplan.trainers.nemo_rl import keys

_MEGATRON_CFG = "@.megatron_cfg"
_MEGATRON_DDP = f"{_MEGATRON_CFG}.distributed_data_parallel_config"
_MEGATRON_OPTIMIZER = f"{_MEGATRON_CFG}.optimizer"
_DTENSOR_CFG = "@.dtensor_cfg"
_NO_LANGUAGE = {
    "freeze_vision_model",
    "freeze_vision_projection",
    "freeze_audio_model",
    "freeze_audio_projection",
    "freeze_sound_encoder",
    "freeze_sound_projection",
}
"""Keys that freeze parts of a model other than the language model; no bound counts these parts."""
_VLLM_KWARGS = f"{keys.GENERATION}.vllm_kwargs"


def _trainer(megatron: Any, dtensor: Any) -> Any:
    if megatron:
        return {"training": "megatron"}
    return {"training": "fsdp"} if dtensor else None


def _shared(shared: Any) -> str | None:
    """Return where the policy and its engines go, if they share their nodes."""
    return "host" if shared else None


def _tokens(length: Any, packs: Any, dynamic: Any, *sizes: Any) -> int | None:
    """Return the most tokens of a micro-batch; ``sizes`` are of training, then of log-probabilities."""
    train, forward, packed_train, packed_forward, dynamic_train, dynamic_forward = sizes
    if packs:
        return convert.most(packed_train, packed_forward)
    if dynamic:
        return convert.most(dynamic_train, dynamic_forward)
    return convert.most(*(convert.micro_batch(None, None, batch, length) for batch in (train, forward)))


def _recompute(name: Any, method: Any, enabled: Any) -> Any:
    """Return what Megatron computes again: of ``full``, one layer at a time (``_apply_performance_config``)."""
    return convert.granularity(name, method, enabled=enabled)


def _trained(length: Any, packs: Any, dynamic: Any, batch: Any, packed: Any, by_tokens: Any) -> int | None:
    """Return the most tokens of a micro-batch of training."""
    if packs or dynamic:
        return convert.most(packed if packs else by_tokens)
    return convert.micro_batch(None, None, batch, length)


def _scored(length: Any, packs: Any, dynamic: Any, packed: Any, size: Any) -> int | None:
    """Return the most tokens of a teacher's micro-batch (``TeacherWorkerGroup.get_logprobs``)."""
    return None if dynamic else convert.micro_batch(packs, packed, size, length)


def _served(name: Any, wide_first: Any, wide_last: Any) -> Any:
    quantized = "fp8" if str(name).lower() == "fp8" else None
    return convert.EFFECT if quantized and (wide_first or wide_last) else convert.served(quantized, name)


def _wakes_uncertainly(shared: Any, precision: Any, cache: Any) -> bool:
    return bool(shared) and str(precision).lower() == "fp8" and cache is None


def _as_checkpoint(name: Any) -> Any:
    return convert.served(None, name)


def _frozen(config: Any) -> Any:
    """Return `EFFECT` if a part of the language model may be frozen.

    The keys are arguments of the model's own ``freeze``.
    """
    if not isinstance(config, Mapping):
        return convert.unset(config)
    return convert.unset(*(value for key, value in config.items() if str(key) not in _NO_LANGUAGE))


def _of_teacher(name: str) -> Key[Any]:
    """Return a key of a teacher's Megatron, which is the policy's unless it has its own."""
    fallbacks = (f"{keys.TEACHER}.{name}", f"{keys.POLICY_MEGATRON}.{name}")
    return anything(f"{keys.TEACHER}.{keys.MEGATRON_OVERRIDES}.{name}", fallbacks=fallbacks)


_MODEL = text("@.model_name")
_POLICY_MODEL = text("policy.model_name")
_LENGTH = size("@.max_total_sequence_length")
_POLICY_LENGTH = size("policy.max_total_sequence_length")
_REPLICAS = size(f"{_DTENSOR_CFG}.dp_replicate_size", default=1)
_SGLANG_LENGTH = size(f"{keys.SGLANG}.context_length")
_POLICY_CONFIG = anything("policy.hf_config_overrides")
_OWN_CONFIG = anything("@.hf_config_overrides")

_MEGATRON = (
    setting(
        "precision",
        text("@.precision"),
        anything(f"{_MEGATRON_CFG}.fp8_cfg.fp8_param"),
        by=convert.precision,
        only="megatron",
    ),
    setting(
        "gradients",
        switch(f"{_MEGATRON_DDP}.grad_reduce_in_fp32", default=None),
        by=convert.gradients,
        only="megatron",
    ),
    setting(
        "optimizer",
        text(f"{_MEGATRON_OPTIMIZER}.optimizer", default="adam"),
        anything(f"{_MEGATRON_OPTIMIZER}.use_precision_aware_optimizer"),
        by=convert.optimizer,
        only="megatron",
    ),
    offloading(f"{_MEGATRON_OPTIMIZER}.", only="megatron"),
    setting(
        "distributed_optimizer",
        switch(f"{_MEGATRON_OPTIMIZER}.use_distributed_optimizer", default=None),
        only="megatron",
    ),
    setting("sequence_parallel", switch(f"{_MEGATRON_CFG}.sequence_parallel", default=None), only="megatron"),
    # DistributedLogprob: 32-bit logits, their softmax and log-probabilities
    fixed("wide_logits", value=True, only="megatron"),
    # ChunkedDistributedLogprob; _validate_chunking_config: it demands defer_fp32_logits
    setting(
        "logits_chunk",
        size("@.logprob_chunk_size"),
        switch(f"{_MEGATRON_CFG}.defer_fp32_logits"),
        by=lambda chunk, deferred: chunk if deferred else None,
        only="megatron",
    ),
    setting(
        "recompute",
        text(f"{_MEGATRON_CFG}.recompute_granularity", default="full"),
        text(f"{_MEGATRON_CFG}.recompute_method"),
        switch(f"{_MEGATRON_CFG}.activation_checkpointing", default=None),
        by=_recompute,
        only="megatron",
    ),
    *end_stages(f"{_MEGATRON_CFG}."),
    setting("chunks", size(f"{_MEGATRON_CFG}.virtual_pipeline_model_parallel_size"), only="megatron"),
    setting(
        "lora",
        size(f"{_MEGATRON_CFG}.peft.dim"),
        switch(f"{_MEGATRON_CFG}.peft.enabled"),
        by=convert.adapters,
        only="megatron",
    ),
    layers(f"{_MEGATRON_CFG}.model_overrides", only="megatron"),
    unless(f"{_MEGATRON_DDP}.use_custom_fsdp", only="megatron"),
    setting("", anything(f"{_MEGATRON_CFG}.freeze_config"), by=_frozen, only="megatron"),
    nearly(
        *stage_keys(f"{_MEGATRON_CFG}."),
        *draft_keys(f"{_MEGATRON_CFG}."),
        only="megatron",
    ),
)
_DTENSOR = (
    # DTensorPolicyWorker and _disable_automodel_checkpoint_dtype_restore: weights are always loaded in 32 bits
    setting("precision", keys.DTENSOR_ENABLED, by=convert.always("fp32"), only="fsdp"),
    setting(
        "optimizer", text("@.optimizer.name", default="torch.optim.AdamW"), by=convert.torch_optimizer, only="fsdp"
    ),
    setting("optimizer_on_host", switch(f"{_DTENSOR_CFG}.cpu_offload"), by=convert.whole, only="fsdp"),
    setting(
        "recompute",
        switch(f"{_DTENSOR_CFG}.activation_checkpointing", default=None),
        by=convert.checkpointed,
        only="fsdp",
    ),
    setting("", anything(f"{_DTENSOR_CFG}.reshard_after_forward", default=True), by=convert.resharded, only="fsdp"),
    setting("", _REPLICAS, by=convert.several, only="fsdp"),
    unless(f"{_DTENSOR_CFG}.automodel_kwargs.freeze_config.freeze_language_model", only="fsdp"),
    setting(
        "whole_gradients",
        switch(f"{_DTENSOR_CFG}._v2"),
        switch(f"{_DTENSOR_CFG}.defer_fsdp_grad_sync", default=True),
        by=lambda *deferred: all(deferred),
        only="fsdp",
    ),
    # DTensorPolicyWorkerV2: `zero_grad` after a step, `empty_cache` before and after the refit
    fixed("empties_cache", value=True, only="fsdp"),
    setting(
        "lora",
        size(f"{_DTENSOR_CFG}.lora_cfg.dim"),
        switch(f"{_DTENSOR_CFG}.lora_cfg.enabled"),
        by=convert.adapters,
        only="fsdp",
    ),
)
_STUDENT = (
    layers(_POLICY_CONFIG),
    nearly("policy.quant_cfg", "policy.draft.enabled", keys.CROSS_TEACHER, keys.CROSS_TEACHERS),
)
_TRAINER = (
    setting("training", keys.MEGATRON_ENABLED, keys.DTENSOR_ENABLED, by=_trainer),
    setting("model", _MODEL),
)
_PACKS = switch("@.sequence_packing.enabled")
_DYNAMIC = switch("@.dynamic_batching.enabled")
_TRAINED = (
    size("@.train_micro_batch_size"),
    size("@.sequence_packing.train_mb_tokens"),
    size("@.dynamic_batching.train_mb_tokens"),
)
_STATES = (
    setting("length", _LENGTH),
    *_MEGATRON,
    *_DTENSOR,
    setting("trained_tokens", _LENGTH, _PACKS, _DYNAMIC, *_TRAINED, by=_trained),
    setting(
        "tokens",
        _LENGTH,
        _PACKS,
        _DYNAMIC,
        _TRAINED[0],
        size("@.logprob_batch_size"),
        _TRAINED[1],
        size("@.sequence_packing.logprob_mb_tokens"),
        _TRAINED[2],
        size("@.dynamic_batching.logprob_mb_tokens"),
        by=_tokens,
    ),
)
_VLLM_PRECISION = text(f"{keys.VLLM}.precision")
_CACHE_BYTES = number(f"{_VLLM_KWARGS}.kv_cache_memory_bytes")
_VLLM = (
    setting("length", size(f"{keys.VLLM}.max_model_len"), only="vllm"),
    setting("share", share(f"{keys.VLLM}.gpu_memory_utilization"), only="vllm"),
    setting("sequences", size(f"{_VLLM_KWARGS}.max_num_seqs"), only="vllm"),
    setting("tokens", size(f"{_VLLM_KWARGS}.max_num_batched_tokens"), only="vllm"),
    # VllmGenerationWorker: `LLM`; VllmAsyncGenerationWorker: `AsyncLLM`
    setting(
        "usage",
        switch(f"{keys.VLLM}.async_engine"),
        by=lambda is_async: "engine" if is_async else "llm",
        only="vllm",
    ),
    setting("cache_size", _CACHE_BYTES, by=convert.cache_size, only="vllm"),
    setting("graphs", switch(f"{keys.VLLM}.enforce_eager", default=None), by=convert.captured, only="vllm"),
    setting(
        "precision",
        _VLLM_PRECISION,
        size(f"{keys.VLLM}.num_first_layers_in_bf16"),
        size(f"{keys.VLLM}.num_last_layers_in_bf16"),
        by=_served,
        only="vllm",
    ),
    setting("cache_precision", text(f"{keys.VLLM}.kv_cache_dtype"), by=convert.cached, only="vllm"),
    # NVIDIA-NeMo/RL#3280: of the same share, vLLM 0.25 made a cache of 34 GiB where 0.20 had made one of 20, and could
    # not map it again beside the policy; recipes with 8-bit rollouts were out of memory, also with a share of 0.5
    setting(
        "uncertain_wake",
        keys.IS_COLOCATED,
        _VLLM_PRECISION,
        _CACHE_BYTES,
        by=_wakes_uncertainly,
        only="vllm",
    ),
    # VllmGenerationWorker.sleep: level 1
    setting("sleep", keys.IS_COLOCATED, by=_shared, only="vllm"),
    unless(
        *(f"{_VLLM_KWARGS}.{name}" for name in ("quantization", "hf_overrides", "cpu_offload_gb")),
        f"{_VLLM_KWARGS}.kv_cache_dtype",
        only="vllm",
    ),
    nearly(
        f"{_VLLM_KWARGS}.decode_context_parallel_size",
        *(f"{_VLLM_KWARGS}.{name}" for name in VLLM_EFFECTS),
        f"{keys.GENERATION}.quant_cfg",
        f"{keys.GENERATION}.real_quant",
        only="vllm",
    ),
)
_SGLANG = (
    setting("length", _SGLANG_LENGTH, only="sglang"),
    setting("share", share(f"{keys.SGLANG}.mem_fraction_static"), only="sglang"),
    *sglang_steps(f"{keys.SGLANG}.", _SGLANG_LENGTH),
    setting("precision", text(f"{keys.SGLANG}.dtype"), by=_as_checkpoint, only="sglang"),
    setting("cache_precision", text(f"{keys.SGLANG}.kv_cache_dtype"), by=convert.cached, only="sglang"),
    unless(
        *(f"{keys.SGLANG}.{name}" for name in ("quantization", "torchao_config", "cpu_offload_gb")),
        only="sglang",
    ),
    nearly(*(f"{keys.SGLANG}.{name}" for name in SGLANG_EFFECTS), only="sglang"),
)
_TRTLLM = (
    setting("length", size(f"{keys.TRTLLM}.max_model_len"), only="trtllm"),
    setting("share", share(f"{keys.TRTLLM}.gpu_memory_utilization"), only="trtllm"),
    setting("precision", text(f"{keys.TRTLLM}.precision"), by=_as_checkpoint, only="trtllm"),
    nearly(f"{keys.TRTLLM}.kv_cache_config", only="trtllm"),
)

ROLES = (
    Role(
        {"policy": "policy"},
        *_TRAINER,
        (
            *_STUDENT,
            *_STATES,
            # offload_after_refit: weights and optimizer leave before generation
            setting("sleep", keys.IS_COLOCATED, by=_shared),
        ),
    ),
    Role({"value": "value"}, *_TRAINER, (layers(_OWN_CONFIG), nearly("@.quant_cfg"), *_STATES)),
    Role(
        {"reward_model": keys.REWARD},
        # RewardModelEnvironment: always DTensor, without an optimizer
        fixed("forward", {"forward": "fsdp"}),
        setting("model", _MODEL),
        (
            layers(_OWN_CONFIG),
            setting("length", size("@.max_model_len")),
            setting("", _REPLICAS, by=convert.several),
        ),
    ),
    Role(
        # TeacherWorkerGroup: the policy's Megatron with another checkpoint, without an optimizer and gradients
        {"teacher.*": f"{keys.CHECKPOINTS.path}.*"},
        fixed("forward", {"forward": "megatron"}),
        setting("model", text("@")),
        (
            layers(_POLICY_CONFIG, _of_teacher("model_overrides")),
            setting("precision", text("policy.precision"), _of_teacher("fp8_cfg.fp8_param"), by=convert.precision),
            setting("length", _POLICY_LENGTH),
            fixed("wide_logits", value=True),
            setting(
                "tokens",
                _POLICY_LENGTH,
                switch("policy.sequence_packing.enabled"),
                switch("policy.dynamic_batching.enabled"),
                size("policy.sequence_packing.logprob_mb_tokens"),
                size(f"{keys.TEACHER}.micro_batch_size", default=4),
                by=_scored,
            ),
            unless(
                keys.TEACHER_OVERRIDES,
                _of_teacher("num_layers_in_first_pipeline_stage"),
                _of_teacher("num_layers_in_last_pipeline_stage"),
            ),
            nearly(*map(_of_teacher, stage_keys(""))),
        ),
    ),
    Role(
        {"generation": keys.GENERATION},
        setting("engine", keys.BACKEND, by=convert.serves),
        setting("model", _POLICY_MODEL),
        (*_STUDENT, *_VLLM, *_SGLANG, *_TRTLLM),
    ),
)

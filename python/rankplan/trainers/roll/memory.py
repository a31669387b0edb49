"""ROLL 8eb27cc: ``ModelArguments``, ``WorkerConfig``, mcore_adapter's ``TrainingArguments``, `distributed/strategy`."""

from __future__ import annotations

from typing import Any

from rankplan.sdk import Key, Role, anything, fact, number, setting, share, size, switch, text
from rankplan.sdk.memory import (
    SGLANG_EFFECTS,
    VLLM_EFFECTS,
    convert,
    draft_keys,
    fixed,
    layers,
    nearly,
    sglang_steps,
    stage_keys,
    unless,
)
from rankplan.trainers.roll import keys

_S = "@.strategy_args.strategy_config"
_ZERO = f"{_S}.zero_optimization"
_FRAMEWORKS = {"megatron": "megatron", "fsdp2": "fsdp", "deepspeed": "deepspeed"}


def _kind(strategy: Any) -> Any:
    """Return what a strategy does: ``megatron_train``, ``fsdp2_infer``, ``hf_infer``, ``vllm``."""
    name, _, task = str(strategy).rpartition("_")
    if task in ("vllm", "sglang"):
        return {"engine": task}
    if task == "train" and name in _FRAMEWORKS:
        return {"training": _FRAMEWORKS[name]}
    return {"forward": _FRAMEWORKS.get(name, True)} if task == "infer" and name else None


def _model(section: Any, actor: Any, reference: Any, infer: Any, own: Any, pretrain: Any, reward: Any) -> Any:
    """Return the model: if one of the three states none, `pretrain` replaces all (``PPOConfig.__post_init__``)."""
    if section in ("actor_train", "actor_infer", "reference"):
        return pretrain if None in (actor, reference, infer) else own
    return reward if section == "critic" and own is None else own


def _length(whole_length: Any, prompt: Any, response: Any) -> int | None:
    if whole_length is not None:
        return int(whole_length)
    return None if prompt is None or response is None else int(prompt + response)


def _tokens(length: Any, prompt: Any, response: Any, packs: Any, *sizes: Any) -> int | None:
    """Return the most tokens of a micro-batch of training, and of the forward pass."""
    if packs:
        return None
    train_by, train_tokens, train_batch, infer_by, infer_tokens, infer_batch = sizes
    whole_length = _length(length, prompt, response)
    train = convert.micro_batch(train_by, train_tokens, train_batch, whole_length)
    return convert.most(train, convert.micro_batch(infer_by, infer_tokens, infer_batch, whole_length))


def _shards(size: int | None, slots: int) -> int | None:
    """Return how many slots share the states: 1 stands for all (``create_device_mesh_with_ep``)."""
    return None if size == 1 else convert.shards(size, slots)


def _trained(length: Any, prompt: Any, response: Any, packs: Any, *sizes: Any) -> int | None:
    """Return the most tokens of a micro-batch of training."""
    by_tokens, tokens, batch = sizes
    return None if packs else convert.micro_batch(by_tokens, tokens, batch, _length(length, prompt, response))


def _on_host(device: Any) -> float | None:
    return convert.whole(str(device).lower() in ("cpu", "nvme"))


def _slept(level: Any) -> str:
    return "free" if level == 2 else "host"


_PRECISION = text("@.model_args.dtype", default="bf16")
_SGLANG_LENGTH = size(f"{_S}.context_length")
_TRAINED: tuple[Key[Any], ...] = (
    switch("@.use_sequence_packing"),
    switch("@.use_dynamic_batching_in_train"),
    size("@.max_tokens_per_microbatch_in_train"),
    size("@.training_args.per_device_train_batch_size", default=8),
)
_LENGTHS = size("sequence_length"), size("prompt_length"), size("response_length")

ROLES = (
    Role(
        {"*": "*"},
        setting("kind", keys.STRATEGY_NAME, by=_kind),
        setting(
            "model",
            fact("name"),
            *(text(f"{one}.model_args.model_name_or_path") for one in ("actor_train", "reference", "actor_infer")),
            text("@.model_args.model_name_or_path"),
            text("pretrain"),
            text("reward_pretrain"),
            by=_model,
        ),
        (
            setting("length", *_LENGTHS, by=_length, only="training forward"),
            setting("trained_tokens", *_LENGTHS, *_TRAINED, by=_trained, only="training"),
            setting(
                "tokens",
                *_LENGTHS,
                *_TRAINED,
                switch("@.use_dynamic_batching_in_infer"),
                size("@.max_tokens_per_microbatch_in_infer"),
                size("@.infer_batch_size", default=16),
                by=_tokens,
                only="training forward",
            ),
            unless("@.model_args.freeze_module_prefix", f"{_S}.additional_configs", only="training forward"),
            layers("@.model_args.model_config_kwargs", keys.STRATEGY_CONFIG),
            setting(
                "lora",
                size("@.model_args.lora_rank", default=8),
                keys.ADAPTER,
                by=convert.adapters,
            ),
            # Megatron
            setting(
                "precision",
                _PRECISION,
                anything(f"{_S}.fp8_param"),
                anything(f"{_S}.fp8"),
                by=convert.precision,
                only="megatron",
            ),
            # TrainingArguments.__post_init__: with 16-bit weights of this type, gradients are added in 32 bits
            setting(
                "gradients",
                _PRECISION,
                by=lambda name: convert.gradients(name == "bf16"),
                only="megatron",
            ),
            setting("optimizer", text(f"{_S}.optimizer", default="adam"), by=convert.optimizer, only="megatron"),
            setting("distributed_optimizer", switch(f"{_S}.use_distributed_optimizer"), only="megatron"),
            setting("sequence_parallel", switch(f"{_S}.sequence_parallel"), only="megatron"),
            setting(
                "recompute",
                text(f"{_S}.recompute_granularity"),
                text(f"{_S}.recompute_method"),
                size(f"{_S}.recompute_num_layers"),
                by=convert.granularity,
                only="megatron",
            ),
            setting("chunks", size(f"{_S}.virtual_pipeline_model_parallel_size"), only="megatron"),
            unless(f"{_S}.optimizer_cpu_offload", only="megatron"),
            nearly(*stage_keys(f"{_S}."), *draft_keys(f"{_S}."), "@.mtp_training_mode", only="megatron"),
            # MegatronTrainStrategy.train_step loads the optimizer for its step
            setting("optimizer_in_step", keys.STRATEGY_NAME, by=convert.always(setting=True), only="megatron"),
            # state_offload_manger: each call of a worker loads its states, and offloads them after it
            setting("sleep", keys.STRATEGY_NAME, by=convert.always("host"), only="training forward"),
            # FSDP
            setting("optimizer_on_host", switch(f"{_S}.offload_policy"), by=convert.whole, only="fsdp"),
            setting(
                "recompute",
                switch("@.model_args.disable_gradient_checkpointing"),
                by=lambda disabled: "none" if disabled else "full",
                only="fsdp deepspeed",
            ),
            setting("", anything(f"{_S}.reshard_after_forward"), by=convert.resharded, only="fsdp"),
            setting("shards", size(f"{_S}.fsdp_size"), fact("slots"), by=_shards, only="fsdp"),
            setting("", size(f"{_S}.ep_size", default=1), by=convert.several, only="fsdp"),
            setting(
                "whole_gradients",
                switch(f"{_S}.reduce_scatter_during_grad_accumulation", default=True),
                by=lambda reduced: not reduced,
                only="fsdp",
            ),
            # DeepSpeed, in older versions
            setting("zero_stage", size(f"{_ZERO}.stage"), only="deepspeed"),
            setting("optimizer_on_host", text(f"{_ZERO}.offload_optimizer.device"), by=_on_host, only="deepspeed"),
            unless(f"{_ZERO}.offload_param.device", f"{_ZERO}.zero_hpz_partition_size", only="deepspeed"),
            # engines
            setting("share", share(f"{_S}.gpu_memory_utilization"), only="vllm"),
            setting("share", share(f"{_S}.mem_fraction_static"), only="sglang"),
            setting("length", size(f"{_S}.max_model_len"), only="vllm"),
            setting("length", _SGLANG_LENGTH, only="sglang"),
            setting("sequences", size(f"{_S}.max_num_seqs"), only="vllm"),
            setting("tokens", size(f"{_S}.max_num_batched_tokens", default=8192), only="vllm"),
            fixed("usage", "engine", only="vllm"),  # create_async_llm: `UsageContext.ENGINE_CONTEXT`
            setting("cache_size", number(f"{_S}.kv_cache_memory_bytes"), by=convert.cache_size, only="vllm"),
            setting("graphs", switch(f"{_S}.enforce_eager", default=None), by=convert.captured, only="vllm"),
            *sglang_steps(f"{_S}.", _SGLANG_LENGTH),
            setting(
                "precision",
                text(f"{_S}.quantization"),
                _PRECISION,
                by=convert.served,
                only="engine",
            ),
            setting("cache_precision", text(f"{_S}.kv_cache_dtype"), by=convert.cached, only="engine"),
            setting("sleep", size(f"{_S}.sleep_level", default=1), by=_slept, only="vllm"),
            nearly(*(f"{_S}.{name}" for name in VLLM_EFFECTS), only="engine"),
            nearly(*(f"{_S}.{name}" for name in SGLANG_EFFECTS if name not in VLLM_EFFECTS), only="sglang"),
            nearly(f"{_S}.decode_context_parallel_size", only="engine"),
            unless(f"{_S}.cpu_offload_gb", f"{_S}.hf_overrides", only="engine"),
        ),
    ),
)

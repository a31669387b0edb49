"""SkyRL a956457: `train/config/config.py`, `workers/fsdp`, `workers/megatron`, `inference_servers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rankplan.sdk import Key, Role, anything, fact, number, setting, share, size, switch, text
from rankplan.sdk.memory import (
    VLLM_EFFECTS,
    convert,
    draft_keys,
    end_stages,
    layers,
    nearly,
    offloading,
    stage_keys,
    unless,
)
from rankplan.trainers.skyrl import keys

_OPTIMIZER = "@.megatron_config.optimizer_config_kwargs"
_MODEL = "@.megatron_config.transformer_config_kwargs"
_ENGINE = f"{keys.ENGINE}.engine_init_kwargs"

_FUSED = switch("trainer.fused_lm_head_logprob")
_CHUNK = size("trainer.logprobs_chunk_size", default=1024, takes_null=True)
_DRAFTS = anything("trainer.mtp.enabled")

_PROMPT = size("trainer.max_prompt_length", default=512)
_INPUT = size("generator.max_input_length")
_RESPONSE = size("generator.sampling_params.max_generate_length", default=1024)
_LENGTH = (_PROMPT, _INPUT, _RESPONSE)
_PATH = text("@.model.path", fallbacks=("trainer.policy.model.path",))
_POLICY = text("trainer.policy.model.path")
_POLICY_RANK = size("trainer.policy.model.lora.rank", default=0)
_QUANTIZED = "trainer.policy.model.fake_int4_qat.enabled"


def _framework(strategy: Any) -> str:
    return {"fsdp2": "fsdp"}.get(str(strategy), str(strategy))


def _length(prompt: int | None, longest: int | None, response: int | None) -> int | None:
    """Return the longest sequence; several turns add to the input, up to its own limit."""
    return None if prompt is None or response is None else max(prompt, longest or 0) + response


def _tokens(prompt: int | None, longest: int | None, response: int | None, tokens: Any, *batches: Any) -> int | None:
    """Return the most tokens of a micro-batch, in training and in the forward pass; a longer sequence is alone."""
    length = _length(prompt, longest, response)
    if tokens is not None:
        return convert.most(tokens, length)
    return convert.most(*(convert.micro_batch(None, None, batch, length) for batch in batches))


def _has_chunks(fused: Any, chunk: int | None) -> bool:
    """Return whether logits are computed in chunks, and never whole; without a size, one chunk has all of them."""
    return bool(fused) and chunk is not None


def _left(shared: Any, *leaves: Any) -> str | None:
    """Return where a model goes: all of it, if the optimizer leaves too."""
    return "host" if shared and all(leaves) else None


def _engine_sleep(shared: Any, lora: Any) -> str | None:
    """Return where the engines go: with adapters only, they keep a copy (``RemoteInferenceClient.sleep``)."""
    return ("host" if lora else "free") if shared else None


def _of_engine(make: Callable[..., Key[Any]], name: str, **more: Any) -> Key[Any]:
    """Return a key of the engines, which ``engine_init_kwargs`` override; before 0.3.0 it was in ``generator``."""
    older = f"generator.{name}"
    return make(f"{_ENGINE}.{name}", fallbacks=(f"{keys.ENGINE}.{name}", older), **more)


_TRAINED: tuple[Key[Any], ...] = (
    size("trainer.max_tokens_per_microbatch"),
    size("trainer.micro_train_batch_size_per_gpu", default=1),
)
_SHARED = (
    setting("length", *_LENGTH, by=_length),
    setting(
        "tokens",
        *_LENGTH,
        *_TRAINED,
        size("trainer.micro_forward_batch_size_per_gpu", default=1),
        by=_tokens,
    ),
    setting("optimizer_on_host", switch("@.fsdp_config.cpu_offload"), by=convert.whole, only="fsdp"),
    setting("", anything("@.fsdp_config.reshard_after_forward", default=True), by=convert.resharded, only="fsdp"),
    setting("shards", size("@.fsdp_config.fsdp_size"), fact("slots"), by=convert.shards, only="fsdp"),
    # WorkerDispatch empties every model's allocator after the forward passes and after training
    setting("empties_cache", keys.COLOCATE_ALL, by=bool),
    setting("fused_logits", _FUSED, _CHUNK, by=_has_chunks, only="megatron"),
    setting("", _FUSED, _CHUNK, by=convert.large_chunk, only="megatron"),
    # FSDPStrategy._fsdp_init_model
    setting("", text("@.fsdp_config.mixed_precision.param_dtype"), by=convert.computed_wide, only="fsdp"),
    # HFModelWrapper.forward: log-probabilities in place; without its loss, the entropy has no gradient
    setting("logits_in_place", switch("trainer.algorithm.use_entropy_loss"), by=lambda used: not used, only="fsdp"),
    layers("@.model_config_kwargs", "@.megatron_config.model_config_kwargs", _MODEL),
    unless("@.inference_only_init", f"{_MODEL}.fp8"),
    nearly("@.model.fake_int4_qat.enabled", _DRAFTS, *stage_keys(f"{_MODEL}."), *draft_keys(f"{_MODEL}.")),
)
_TRAINING = (
    *_SHARED,
    setting("trained_tokens", *_LENGTH, *_TRAINED, by=_tokens),
    # FSDPPolicyWorkerBase, FSDPCriticWorkerBase: trained weights are always in 32 bits
    setting("precision", keys.STRATEGY, by=convert.always("fp32"), only="fsdp"),
    setting("recompute", switch("trainer.gradient_checkpointing", default=True), by=convert.checkpointed, only="fsdp"),
    setting("lora", size("@.model.lora.rank", default=0), by=convert.adapters),
    setting("sleep", keys.COLOCATE_ALL, switch("@.optimizer_config.offload_after_step", default=True), by=_left),
    # Megatron
    setting(
        "gradients",
        switch("@.megatron_config.ddp_config.grad_reduce_in_fp32", default=True),
        by=convert.gradients,
        only="megatron",
    ),
    setting(
        "optimizer",
        text(f"{_OPTIMIZER}.optimizer", default="adam", fallbacks=("@.optimizer_config.optimizer",)),
        anything(f"{_OPTIMIZER}.use_precision_aware_optimizer"),
        by=convert.optimizer,
        only="megatron",
    ),
    offloading(f"{_OPTIMIZER}.", fraction=0.0, only="megatron"),
    # init_megatron_optim_config: always
    setting("distributed_optimizer", keys.STRATEGY, by=convert.always(setting=True), only="megatron"),
    setting("sequence_parallel", keys.STRATEGY, by=convert.always(setting=True), only="megatron"),
    setting(
        "recompute",
        text(f"{_MODEL}.recompute_granularity", default="full"),
        text(f"{_MODEL}.recompute_method", default="uniform"),
        size(f"{_MODEL}.recompute_num_layers"),
        by=convert.granularity,
        only="megatron",
    ),
    *end_stages(f"{_MODEL}."),
    setting("chunks", size(f"{_MODEL}.virtual_pipeline_model_parallel_size"), only="megatron"),
)

ROLES = (
    Role(
        {"policy": "trainer.policy", "critic": "trainer.critic"},
        setting("training", keys.STRATEGY, by=lambda name: convert.trains(_framework(name))),
        setting("model", _PATH),
        _TRAINING,
    ),
    Role(
        {"ref": "trainer.ref"},
        setting("forward", keys.STRATEGY, by=lambda name: convert.computes(_framework(name))),
        setting("model", _PATH),
        (
            *_SHARED,
            setting(
                "precision",
                switch("trainer.bf16", default=True),
                by=lambda small: convert.precision("bf16" if small else "fp32"),
            ),
            setting("sleep", keys.COLOCATE_ALL, by=_left),
        ),
    ),
    Role(
        {"generator": keys.ENGINE},
        setting(
            "engine",
            text(f"{keys.ENGINE}.backend", default="vllm", fallbacks=("generator.backend",)),
            by=lambda name: {"engine": name} if name == "vllm" else None,
        ),
        setting("model", _POLICY),
        (
            setting("share", _of_engine(share, "gpu_memory_utilization", default=0.8)),
            setting("length", size(f"{_ENGINE}.max_model_len")),
            setting("sequences", _of_engine(size, "max_num_seqs", default=1024)),
            setting("tokens", _of_engine(size, "max_num_batched_tokens", default=8192)),
            setting("cache_size", number(f"{_ENGINE}.kv_cache_memory_bytes"), by=convert.cache_size),
            setting("graphs", _of_engine(switch, "enforce_eager", default=None), by=convert.captured),
            setting(
                "precision",
                text(f"{_ENGINE}.quantization"),
                text(f"{keys.ENGINE}.model_dtype", default="bfloat16", fallbacks=("generator.model_dtype",)),
                by=convert.served,
            ),
            setting("cache_precision", text(f"{_ENGINE}.kv_cache_dtype"), by=convert.cached),
            setting("sleep", keys.COLOCATE_ALL, _POLICY_RANK, by=_engine_sleep),
            unless(
                *(f"{_ENGINE}.{name}" for name in ("cpu_offload_gb", "hf_overrides")),
            ),
            nearly(
                f"{_ENGINE}.decode_context_parallel_size",
                *(f"{_ENGINE}.{name}" for name in VLLM_EFFECTS),
                _DRAFTS,
                _QUANTIZED,
            ),
        ),
    ),
)

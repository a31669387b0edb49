"""SkyRL a956457: `train/config/config.py`, `workers/fsdp`, `workers/megatron`, `inference_servers`."""

from __future__ import annotations

from typing import Any

from rankplan.dialects.memory import convert
from rankplan.dialects.memory.roles import Role, Setting
from rankplan.dialects.memory.rules import end_stages, layers, offloading, rule, stage_keys, unless

_M, _E, _KW = "@.megatron_config", "generator.inference_engine", "engine_init_kwargs"
_OPT, _TF = f"{_M}.optimizer_config_kwargs", f"{_M}.transformer_config_kwargs"
_LENGTH = (
    "size trainer.max_prompt_length = 512",
    "size generator.max_input_length",
    "size generator.sampling_params.max_generate_length = 1024",
)


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


def _left(shared: Any, *leaves: Any) -> str | None:
    """Return where a model goes: all of it, if the optimizer leaves too."""
    return "host" if shared and all(leaves) else None


def _engine_sleep(shared: Any, lora: Any) -> str | None:
    """Return where the engines go: with adapters only, they keep a copy (``RemoteInferenceClient.sleep``)."""
    return ("host" if lora else "free") if shared else None


_ALL = "switch trainer.placement.colocate_all = true"
_STRATEGY = "text trainer.strategy = fsdp"
_SHARED: tuple[Setting, ...] = (
    rule("length", *_LENGTH, by=_length),
    rule(
        "tokens",
        *_LENGTH,
        "size trainer.max_tokens_per_microbatch",
        "size trainer.micro_train_batch_size_per_gpu = 1",
        "size trainer.micro_forward_batch_size_per_gpu = 1",
        by=_tokens,
    ),
    rule("optimizer_on_host", "switch @.fsdp_config.cpu_offload = false", by=convert.whole, only="fsdp"),
    rule("", "any @.fsdp_config.reshard_after_forward = true", by=convert.resharded, only="fsdp"),
    rule("", "size @.fsdp_config.fsdp_size", "fact slots", by=convert.replicated, only="fsdp"),
    layers("@.model_config_kwargs", f"{_M}.model_config_kwargs", _TF),
    unless("@.model.fake_int4_qat.enabled", "@.inference_only_init", *stage_keys(f"{_TF}."), f"{_TF}.fp8"),
)
_TRAINING = (
    *_SHARED,
    # FSDPPolicyWorkerBase, FSDPCriticWorkerBase: trained weights are always in 32 bits
    rule("precision", _STRATEGY, by=convert.always("fp32"), only="fsdp"),
    rule("recompute", "switch trainer.gradient_checkpointing = true", by=convert.checkpointed, only="fsdp"),
    rule("lora", "size @.model.lora.rank = 0", by=convert.adapters),
    rule("sleep", _ALL, "switch @.optimizer_config.offload_after_step = true", by=_left),
    # Megatron
    rule(
        "gradients",
        "switch @.megatron_config.ddp_config.grad_reduce_in_fp32 = true",
        by=convert.gradients,
        only="megatron",
    ),
    rule(
        "optimizer",
        f"text {_OPT}.optimizer @.optimizer_config.optimizer = adam",
        f"any {_OPT}.use_precision_aware_optimizer",
        by=convert.optimizer,
        only="megatron",
    ),
    offloading(f"{_OPT}.", fraction=0.0, only="megatron"),
    # init_megatron_optim_config: always
    rule("distributed_optimizer", _STRATEGY, by=convert.always(setting=True), only="megatron"),
    rule("sequence_parallel", _STRATEGY, by=convert.always(setting=True), only="megatron"),
    rule(
        "recompute",
        f"text {_TF}.recompute_granularity = full",
        f"text {_TF}.recompute_method = uniform",
        by=convert.granularity,
        only="megatron",
    ),
    *end_stages(f"{_TF}."),
    rule("chunks", f"size {_TF}.virtual_pipeline_model_parallel_size", only="megatron"),
)

SKYRL = (
    Role(
        {"policy": "trainer.policy", "critic": "trainer.critic"},
        rule("training", _STRATEGY, by=lambda name: convert.trains(_framework(name))),
        rule("model", "text @.model.path"),
        _TRAINING,
    ),
    Role(
        {"ref": "trainer.ref"},
        rule("forward", _STRATEGY, by=lambda name: convert.computes(_framework(name))),
        rule("model", "text @.model.path trainer.policy.model.path"),
        (
            *_SHARED,
            rule(
                "precision",
                "switch trainer.bf16 = true",
                by=lambda small: convert.precision("bf16" if small else "fp32"),
            ),
            rule("sleep", _ALL, by=_left),
        ),
    ),
    Role(
        {"generator": _E},
        rule("engine", "text @.backend = vllm", by=lambda name: {"engine": name} if name == "vllm" else None),
        rule("model", "text trainer.policy.model.path"),
        (
            rule("share", f"share @.{_KW}.gpu_memory_utilization @.gpu_memory_utilization = 0.8"),
            rule("length", f"size @.{_KW}.max_model_len"),
            rule("sequences", f"size @.{_KW}.max_num_seqs @.max_num_seqs = 1024"),
            rule("tokens", f"size @.{_KW}.max_num_batched_tokens @.max_num_batched_tokens = 8192"),
            rule("graphs", f"switch @.{_KW}.enforce_eager @.enforce_eager", by=convert.captured),
            rule("precision", f"text @.{_KW}.quantization", "text @.model_dtype = bfloat16", by=convert.served),
            rule("cache_precision", f"text @.{_KW}.kv_cache_dtype", by=convert.cached),
            rule("sleep", _ALL, "size trainer.policy.model.lora.rank = 0", by=_engine_sleep),
            unless(
                *(f"@.{_KW}.{key}" for key in ("cpu_offload_gb", "hf_overrides", "decode_context_parallel_size")),
                "trainer.policy.model.fake_int4_qat.enabled",
            ),
        ),
    ),
)

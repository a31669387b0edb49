"""NeMo-RL 7ea279a: ``PolicyConfig``, `models/megatron/setup.py`, `models/automodel`, ``VllmGenerationWorker``."""

from __future__ import annotations

from typing import Any

from rankplan.dialects.keys.roles import Role
from rankplan.dialects.memory import convert
from rankplan.dialects.memory.rules import end_stages, layers, offloading, rule, sglang_steps, stage_keys, unless

_M, _D, _O = "@.megatron_cfg", "@.dtensor_cfg", "@.megatron_cfg.optimizer"
_DDP = f"{_M}.distributed_data_parallel_config"
_G, _V = "policy.generation", "policy.generation.vllm_cfg"
_OPD, _APART = "on_policy_distillation", "on_policy_distillation.non_colocated_teachers"
_TEACHER = f"{_APART}.default_teacher_cfg"


def _trainer(megatron: Any, dtensor: Any) -> Any:
    return {"training": "megatron"} if megatron else {"training": "fsdp"} if dtensor else None


def _shared(shared: Any) -> str | None:
    """Return where the policy and its engines go, if they share their nodes."""
    return "host" if shared else None


def _tokens(length: Any, packs: Any, dynamic: Any, *sizes: Any) -> int | None:
    """Return the most tokens of a micro-batch; ``sizes`` are of training, then of log-probabilities."""
    train, forward, *bins = sizes
    packed, batched = ((packs, *bins[:2]), (dynamic, *bins[2:]))
    stated = next((found[1:] for found in (packed, batched) if found[0]), None)
    if stated is not None:
        return convert.most(*stated)
    return convert.most(*(convert.micro_batch(None, None, one, length) for one in (train, forward)))


def _scored(length: Any, packs: Any, dynamic: Any, packed: Any, size: Any) -> int | None:
    """Return the most tokens of a teacher's micro-batch (``TeacherWorkerGroup.get_logprobs``)."""
    return None if dynamic else convert.micro_batch(packs, packed, size, length)


def _inherited(*keys: str) -> tuple[str, ...]:
    """Return the paths of Megatron's keys of a teacher, which are the policy's unless it has its own."""
    sections = (f"{_TEACHER}.megatron_cfg_overrides", _TEACHER, "policy.megatron_cfg")
    return tuple(" ".join(f"{section}.{key}" for section in sections) for key in keys)


(_FP8,) = _inherited("fp8_cfg.fp8_param")


def _served(name: Any, wide_first: Any, wide_last: Any) -> Any:
    quantized = "fp8" if str(name).lower() == "fp8" else None
    return convert.EFFECT if quantized and (wide_first or wide_last) else convert.served(quantized, name)


_MEGATRON = (
    rule("precision", "text @.precision", f"any {_M}.fp8_cfg.fp8_param", by=convert.precision, only="megatron"),
    rule("gradients", f"switch {_DDP}.grad_reduce_in_fp32", by=convert.gradients, only="megatron"),
    rule(
        "optimizer",
        f"text {_O}.optimizer = adam",
        f"any {_O}.use_precision_aware_optimizer",
        by=convert.optimizer,
        only="megatron",
    ),
    offloading(f"{_O}.", only="megatron"),
    rule("distributed_optimizer", f"switch {_O}.use_distributed_optimizer", only="megatron"),
    rule("sequence_parallel", f"switch {_M}.sequence_parallel", only="megatron"),
    rule(
        "recompute",
        f"text {_M}.recompute_granularity = full",
        f"text {_M}.recompute_method",
        f"switch {_M}.activation_checkpointing",
        by=convert.granularity,
        only="megatron",
    ),
    *end_stages(f"{_M}."),
    rule("chunks", f"size {_M}.virtual_pipeline_model_parallel_size", only="megatron"),
    rule("lora", f"size {_M}.peft.dim", f"switch {_M}.peft.enabled = false", by=convert.adapters, only="megatron"),
    layers(f"{_M}.model_overrides", only="megatron"),
    unless(f"{_DDP}.use_custom_fsdp", *stage_keys(f"{_M}."), only="megatron"),
)
_DTENSOR = (
    # DTensorPolicyWorker and _disable_automodel_checkpoint_dtype_restore: weights are always loaded in 32 bits
    rule("precision", f"switch {_D}.enabled", by=convert.always("fp32"), only="fsdp"),
    rule("optimizer", "text @.optimizer.name = torch.optim.AdamW", by=convert.torch_optimizer, only="fsdp"),
    rule("optimizer_on_host", f"switch {_D}.cpu_offload = false", by=convert.whole, only="fsdp"),
    rule("recompute", f"switch {_D}.activation_checkpointing", by=convert.checkpointed, only="fsdp"),
    rule("", f"any {_D}.reshard_after_forward = true", by=convert.resharded, only="fsdp"),
    rule("", f"size {_D}.dp_replicate_size = 1", by=convert.several, only="fsdp"),
    rule(
        "whole_gradients",
        f"switch {_D}._v2 = false",
        f"switch {_D}.defer_fsdp_grad_sync = true",
        by=lambda *deferred: all(deferred),
        only="fsdp",
    ),
    rule("lora", f"size {_D}.lora_cfg.dim", f"switch {_D}.lora_cfg.enabled = false", by=convert.adapters, only="fsdp"),
)
_STUDENT = (
    layers("policy.hf_config_overrides"),
    unless("policy.quant_cfg", "teacher", "teachers"),
)
_TRAINER = (
    rule("training", f"switch {_M}.enabled = false", f"switch {_D}.enabled = false", by=_trainer),
    rule("model", "text @.model_name"),
)
_STATES = (
    rule("length", "size @.max_total_sequence_length"),
    *_MEGATRON,
    *_DTENSOR,
    rule(
        "tokens",
        "size @.max_total_sequence_length",
        "switch @.sequence_packing.enabled = false",
        "switch @.dynamic_batching.enabled = false",
        "size @.train_micro_batch_size",
        "size @.logprob_batch_size",
        "size @.sequence_packing.train_mb_tokens",
        "size @.sequence_packing.logprob_mb_tokens",
        "size @.dynamic_batching.train_mb_tokens",
        "size @.dynamic_batching.logprob_mb_tokens",
        by=_tokens,
    ),
)

NEMO_RL = (
    Role(
        {"policy": "policy"},
        *_TRAINER,
        (
            *_STUDENT,
            *_STATES,
            # offload_after_refit: weights and optimizer leave before generation
            rule("sleep", f"switch {_G}.colocated.enabled = true", by=_shared),
        ),
    ),
    Role({"value": "value"}, *_TRAINER, (layers("@.hf_config_overrides"), unless("@.quant_cfg"), *_STATES)),
    Role(
        {"reward_model": "env.reward_model"},
        # RewardModelEnvironment: always DTensor, without an optimizer
        rule("forward", f"switch {_D}.enabled = true", by=convert.always({"forward": "fsdp"})),
        rule("model", "text @.model_name"),
        (
            layers("@.hf_config_overrides"),
            rule("length", "size @.max_model_len"),
            rule("", f"size {_D}.dp_replicate_size = 1", by=convert.several),
        ),
    ),
    Role(
        # TeacherWorkerGroup: the policy's Megatron with another checkpoint, without an optimizer and gradients
        {"teacher.*": f"{_OPD}.teacher_model_by_agent_name.*"},
        rule("forward", f"switch {_APART}.enabled = true", by=convert.always({"forward": "megatron"})),
        rule("model", "text @"),
        (
            layers("policy.hf_config_overrides", *_inherited("model_overrides")),
            rule("precision", "text policy.precision", f"any {_FP8}", by=convert.precision),
            rule("length", "size policy.max_total_sequence_length"),
            rule(
                "tokens",
                "size policy.max_total_sequence_length",
                "switch policy.sequence_packing.enabled = false",
                "switch policy.dynamic_batching.enabled = false",
                "size policy.sequence_packing.logprob_mb_tokens",
                f"size {_TEACHER}.micro_batch_size = 4",
                by=_scored,
            ),
            unless(
                f"{_APART}.teacher_overrides",
                *_inherited("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"),
                *_inherited(*stage_keys("")),
            ),
        ),
    ),
    Role(
        {"generation": _G},
        rule("engine", f"text {_G}.backend", by=convert.serves),
        rule("model", "text policy.model_name"),
        (
            *_STUDENT,
            rule("length", f"size {_V}.max_model_len", only="vllm"),
            rule("length", f"size {_G}.sglang_cfg.context_length", only="sglang"),
            rule("length", f"size {_G}.trtllm_cfg.max_model_len", only="trtllm"),
            rule("share", f"share {_V}.gpu_memory_utilization", only="vllm"),
            rule("share", f"share {_G}.sglang_cfg.mem_fraction_static", only="sglang"),
            rule("share", f"share {_G}.trtllm_cfg.gpu_memory_utilization", only="trtllm"),
            rule("sequences", f"size {_G}.vllm_kwargs.max_num_seqs", only="vllm"),
            rule("tokens", f"size {_G}.vllm_kwargs.max_num_batched_tokens", only="vllm"),
            rule("graphs", f"switch {_V}.enforce_eager", by=convert.captured, only="vllm"),
            *sglang_steps(f"{_G}.sglang_cfg.", f"{_G}.sglang_cfg.context_length"),
            rule(
                "precision",
                f"text {_V}.precision",
                f"size {_V}.num_first_layers_in_bf16",
                f"size {_V}.num_last_layers_in_bf16",
                by=_served,
                only="vllm",
            ),
            rule("cache_precision", f"text {_V}.kv_cache_dtype", by=convert.cached, only="vllm"),
            rule("cache_precision", f"text {_G}.sglang_cfg.kv_cache_dtype", by=convert.cached, only="sglang"),
            # VllmGenerationWorker.sleep: level 1
            rule("sleep", f"switch {_G}.colocated.enabled = true", by=_shared, only="vllm"),
            unless(
                *(f"{_G}.vllm_kwargs.{key}" for key in ("quantization", "hf_overrides", "cpu_offload_gb")),
                f"{_G}.vllm_kwargs.kv_cache_dtype",
                f"{_G}.vllm_kwargs.decode_context_parallel_size",
                f"{_G}.quant_cfg",
                only="vllm",
            ),
            unless(
                *(f"{_G}.sglang_cfg.{key}" for key in ("quantization", "torchao_config", "cpu_offload_gb")),
                only="sglang",
            ),
            unless(f"{_G}.trtllm_cfg.kv_cache_config", f"{_G}.trtllm_cfg.precision", only="trtllm"),
        ),
    ),
)

"""ROLL 8eb27cc: ``ModelArguments``, ``WorkerConfig``, mcore_adapter's ``TrainingArguments``, `distributed/strategy`."""

from __future__ import annotations

from typing import Any

from rankplan.dialects.keys.roles import Role
from rankplan.dialects.memory import convert
from rankplan.dialects.memory.rules import layers, rule, sglang_steps, stage_keys, unless

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


def _on_host(device: Any) -> float | None:
    return convert.whole(str(device).lower() in ("cpu", "nvme"))


def _slept(level: Any) -> str:
    return "free" if level == 2 else "host"


_LENGTHS = "size sequence_length", "size prompt_length", "size response_length"

ROLL = (
    Role(
        {"*": "*"},
        rule("kind", "text @.strategy_args.strategy_name", by=_kind),
        rule(
            "model",
            "fact name",
            *(f"text {one}.model_args.model_name_or_path" for one in ("actor_train", "reference", "actor_infer")),
            "text @.model_args.model_name_or_path",
            "text pretrain",
            "text reward_pretrain",
            by=_model,
        ),
        (
            rule("length", *_LENGTHS, by=_length, only="training forward"),
            rule(
                "tokens",
                *_LENGTHS,
                "switch @.use_sequence_packing = false",
                "switch @.use_dynamic_batching_in_train = false",
                "size @.max_tokens_per_microbatch_in_train",
                "size @.training_args.per_device_train_batch_size = 8",
                "switch @.use_dynamic_batching_in_infer = false",
                "size @.max_tokens_per_microbatch_in_infer",
                "size @.infer_batch_size = 16",
                by=_tokens,
                only="training forward",
            ),
            unless("@.model_args.freeze_module_prefix", f"{_S}.additional_configs", only="training forward"),
            layers("@.model_args.model_config_kwargs", _S),
            rule("lora", "size @.model_args.lora_rank = 8", "any @.model_args.lora_target", by=convert.adapters),
            # Megatron
            rule(
                "precision",
                "text @.model_args.dtype = bf16",
                f"any {_S}.fp8_param",
                f"any {_S}.fp8",
                by=convert.precision,
                only="megatron",
            ),
            # TrainingArguments.__post_init__: with 16-bit weights of this type, gradients are added in 32 bits
            rule(
                "gradients",
                "text @.model_args.dtype = bf16",
                by=lambda name: convert.gradients(name == "bf16"),
                only="megatron",
            ),
            rule("optimizer", f"text {_S}.optimizer = adam", by=convert.optimizer, only="megatron"),
            rule("distributed_optimizer", f"switch {_S}.use_distributed_optimizer = false", only="megatron"),
            rule("sequence_parallel", f"switch {_S}.sequence_parallel = false", only="megatron"),
            rule(
                "recompute",
                f"text {_S}.recompute_granularity",
                f"text {_S}.recompute_method",
                by=convert.granularity,
                only="megatron",
            ),
            rule("chunks", f"size {_S}.virtual_pipeline_model_parallel_size", only="megatron"),
            unless(f"{_S}.optimizer_cpu_offload", *stage_keys(f"{_S}."), only="megatron"),
            # MegatronTrainStrategy.offload_states: after each turn
            rule("sleep", "text @.strategy_args.strategy_name", by=convert.always("host"), only="megatron"),
            # FSDP
            rule("optimizer_on_host", f"switch {_S}.offload_policy = false", by=convert.whole, only="fsdp"),
            rule(
                "recompute",
                "switch @.model_args.disable_gradient_checkpointing = false",
                by=lambda disabled: "none" if disabled else "full",
                only="fsdp deepspeed",
            ),
            rule("", f"any {_S}.reshard_after_forward", by=convert.resharded, only="fsdp"),
            rule("", f"size {_S}.fsdp_size", "fact slots", by=convert.replicated, only="fsdp"),
            rule("", f"size {_S}.ep_size = 1", by=convert.several, only="fsdp"),
            rule(
                "whole_gradients",
                f"switch {_S}.reduce_scatter_during_grad_accumulation = true",
                by=lambda reduced: not reduced,
                only="fsdp",
            ),
            # DeepSpeed, in older versions
            rule("zero_stage", f"size {_ZERO}.stage", only="deepspeed"),
            rule("optimizer_on_host", f"text {_ZERO}.offload_optimizer.device", by=_on_host, only="deepspeed"),
            unless(f"{_ZERO}.offload_param.device", f"{_ZERO}.zero_hpz_partition_size", only="deepspeed"),
            # engines
            rule("share", f"share {_S}.gpu_memory_utilization", only="vllm"),
            rule("share", f"share {_S}.mem_fraction_static", only="sglang"),
            rule("length", f"size {_S}.max_model_len", only="vllm"),
            rule("length", f"size {_S}.context_length", only="sglang"),
            rule("sequences", f"size {_S}.max_num_seqs", only="vllm"),
            rule("tokens", f"size {_S}.max_num_batched_tokens = 8192", only="vllm"),
            rule("graphs", f"switch {_S}.enforce_eager", by=convert.captured, only="vllm"),
            *sglang_steps(f"{_S}.", f"{_S}.context_length"),
            rule(
                "precision",
                f"text {_S}.quantization",
                "text @.model_args.dtype = bf16",
                by=convert.served,
                only="engine",
            ),
            rule("cache_precision", f"text {_S}.kv_cache_dtype", by=convert.cached, only="engine"),
            rule("sleep", f"size {_S}.sleep_level = 1", by=_slept, only="vllm"),
            unless(f"{_S}.cpu_offload_gb", f"{_S}.hf_overrides", f"{_S}.decode_context_parallel_size", only="engine"),
        ),
    ),
)

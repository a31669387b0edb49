"""slime 624b824: `utils/arguments.py`, `backends/megatron_utils`, `backends/sglang_utils`; Megatron's own flags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rankplan import Model
from rankplan.sdk import Key, Role, anything, fact, setting, share, size, switch, text
from rankplan.sdk.memory import (
    SGLANG_EFFECTS,
    Experts,
    Latent,
    Shape,
    convert,
    draft_keys,
    fixed,
    nearly,
    offloading,
    recomputing,
    sglang_steps,
    stage_keys,
    unless,
)
from rankplan.trainers.slime import keys

_REPEATED = re.compile(r"\[\s*([01])\s*\]\s*(?:\*\s*([0-9]{1,6}))?")
_LATENT = "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"
_SMALLEST = 0.5
"""Bytes of a weight in a checkpoint, at least: the flags say nothing about it."""
_SIZES = "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "vocab_size"
"""The flags without which the model is unknown."""
_SHAPE: tuple[Key[Any], ...] = (
    *(size(name) for name in _SIZES),
    switch("group_query_attention"),
    size("num_query_groups"),
    size("kv_channels"),
    switch("swiglu"),
    switch("untie_embeddings_and_output_weights"),
    switch("add_qkv_bias"),
    switch("qk_layernorm"),
    switch("multi_latent_attention"),
    *(size(name) for name in _LATENT),
    size("num_experts"),
    size("moe_router_topk"),
    size("moe_ffn_hidden_size"),
    size("moe_shared_expert_intermediate_size"),
    anything("moe_layer_freq"),
    anything("spec"),
    anything("hybrid_override_pattern"),
)
"""The flags that decide the shape of a model."""


def _model(checkpoint: Any, *values: Any) -> Any:
    """Return the name of a checkpoint, unless its model is unknown and Megatron's flags are those of one.

    The values are those of the keys in ``_SHAPE``.
    """
    flags = {key.name: value for key, value in zip(_SHAPE, values, strict=True)}
    if checkpoint is None:
        return _of_flags(flags)
    try:
        Model.of(str(checkpoint))
    except (ValueError, OSError):  # a PlacementError is one
        return _of_flags(flags) or checkpoint
    return checkpoint


def _of_flags(flags: Mapping[str, Any]) -> Model | None:
    """Return the model of Megatron's flags, ``None`` if a size is missing, or its layers are of several kinds."""
    if any(flags[name] is None for name in _SIZES):
        return None
    if flags["hybrid_override_pattern"] or str(flags["spec"]).lower() not in ("none", "", "false"):
        return None
    latent = None
    if flags["multi_latent_attention"]:
        query_rank, *sizes = (flags[name] for name in _LATENT)
        if None in sizes:
            return None
        latent = Latent(query_rank or 0, *sizes)
    experts = None
    if flags["num_experts"]:
        experts = _experts(flags)
        if experts is None:
            return None
    layers = flags["num_layers"]
    hidden = flags["hidden_size"]
    heads = flags["num_attention_heads"]
    shape = Shape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=(flags["num_query_groups"] or 1) if flags["group_query_attention"] else heads,
        head_dim=flags["kv_channels"] or max(hidden // heads, 1),
        ffn=flags["ffn_hidden_size"],
        vocab=flags["vocab_size"],
        cached_layers=layers,
        gated=bool(flags["swiglu"]),
        tied=not flags["untie_embeddings_and_output_weights"],
        qkv_bias=bool(flags["add_qkv_bias"]),
        qk_norm=bool(flags["qk_layernorm"]),
        experts=experts,
        latent=latent,
    )
    return Model(f"{layers} layers of {hidden}", shape, stored=_SMALLEST)


def _experts(flags: Mapping[str, Any]) -> Experts | None:
    """Return the experts of a model, ``None`` if layers without them are not the first ones."""
    dense_layers = _dense(flags["moe_layer_freq"], flags["num_layers"])
    if dense_layers is None:
        return None
    return Experts(
        flags["num_experts"],
        flags["moe_router_topk"] or 2,
        flags["moe_ffn_hidden_size"] or flags["ffn_hidden_size"],
        flags["moe_shared_expert_intermediate_size"] or 0,
        dense_layers,
    )


def _dense(frequency: Any, layers: int) -> int | None:
    """Return how many dense layers are before those with experts, of ``[0]*3+[1]*58``; ``None`` for other orders."""
    text = str(1 if frequency is None else frequency).replace(" ", "")
    if text == "1":
        return 0
    if re.fullmatch(r"\[[01](,[01])*\]", text):
        kinds = text[1:-1].replace(",", "")
    else:
        parts = [_REPEATED.fullmatch(part) for part in text.split("+")]
        if None in parts or sum(int(part[2] or 1) for part in parts if part) != layers:
            return None
        kinds = "".join(part[1] * int(part[2] or 1) for part in parts if part)
    return kinds.count("0") if re.fullmatch("0*1+", kinds) and len(kinds) == layers else None


_COLOCATE = switch("offload"), keys.COLOCATE


def _leaves(own: Any, stays: Any, both: Any, colocate: Any) -> bool:
    """Return whether a side leaves: with ``colocate``, both do unless told otherwise (``slime_validate_args``)."""
    if both:
        return True
    if stays:
        return False
    return bool(colocate if own is None else own)


def _offload(own: Any, stays: Any, both: Any, colocate: Any, releases: Any) -> str:
    """Return where a side goes."""
    return "host" if releases or _leaves(own, stays, both, colocate) else "none"


def _dropped(own: Any, stays: Any, both: Any, colocate: Any, kept: Any) -> str:
    """Return where an engine goes; SGLang drops its weights unless it has a copy."""
    if not _leaves(own, stays, both, colocate):
        return "none"
    return "host" if kept else "free"


def _offloading(side: str) -> tuple[Key[Any], ...]:
    """Return the flags that tell whether a side leaves its accelerators, as `_leaves` takes them."""
    own = switch(f"offload_{side}", default=None), switch(f"no_offload_{side}")
    return (*own, *_COLOCATE)


def _tokens(cp: int, by_tokens: Any, tokens: Any, forward: Any, batch: Any, length: Any, longest: Any) -> int | None:
    """Return the most tokens of a micro-batch; a longer sample is one of its own (`utils/dp_schedule.py`)."""
    if not by_tokens:
        return convert.micro_batch(None, None, batch, length)
    found = convert.most(tokens, tokens if forward is None else forward, longest)
    return None if found is None else max(found if found == longest else found * cp, longest)


def _target(cp: int, by_tokens: Any, tokens: Any) -> int | None:
    """Return the tokens that a micro-batch is filled up to."""
    return tokens * cp if by_tokens and tokens else None


_LONGEST = size("rollout_max_context_len")
_BY_TOKENS = switch("use_dynamic_batch_size")
_TOKENS = size("max_tokens_per_gpu")
_SGLANG_LENGTH = size("sglang_context_length")
_SIDE = (
    setting("length", _LONGEST),
    setting(
        "precision", switch("fp16"), anything("fp8_param_gather"), by=lambda _, fp8: convert.precision("bf16", fp8)
    ),
    setting("gradients", switch("accumulate_allreduce_grads_in_fp32"), by=convert.gradients),
    setting(
        "optimizer",
        text("optimizer", default="adam"),
        switch("use_stateless_adam"),
        anything("use_precision_aware_optimizer"),
        by=lambda name, stateless, aware: convert.optimizer("stateless" if stateless else name, aware),
    ),
    offloading("", fraction=1.0),
    # _VocabParallelLogProbEntropy: it keeps the softmax of all its chunks (log_probs_chunk_size) for the backward pass
    fixed("wide_logits", value=True),
    # set_default_megatron_args: always
    fixed("distributed_optimizer", value=True),
    setting("sequence_parallel", switch("sequence_parallel")),
    recomputing(""),
    setting("first_layers", size("decoder_first_pipeline_num_layers")),
    setting("last_layers", size("decoder_last_pipeline_num_layers")),
    setting("lora", size("lora_rank"), by=convert.adapters),
    setting("sleep", *_offloading("train"), switch("release_train"), by=_offload),
    setting(
        "tokens",
        fact("cp"),
        _BY_TOKENS,
        _TOKENS,
        size("log_probs_max_tokens_per_gpu"),
        size("micro_batch_size", default=1),
        size("seq_length", default=4096),
        _LONGEST,
        by=_tokens,
    ),
    setting("target_tokens", fact("cp"), _BY_TOKENS, _TOKENS, by=_target),
    unless(
        "only_train_params_name_list",
        "freeze_params_name_list",
        "num_layers_per_virtual_pipeline_stage",
        "num_virtual_stages_per_pipeline_rank",
        "use_megatron_fsdp",
        "use_custom_fsdp",
        "use_torch_fsdp2",
        "cpu_offloading",
        "custom_model_provider_path",
        keys.MEGATRON_CONFIG,
    ),
    nearly(*stage_keys(""), *draft_keys(""), "enable_mtp_training"),
)
_MODEL = setting("model", text("hf_checkpoint"), *_SHAPE, by=_model)

ROLES = (
    Role(
        {"actor": "actor", "critic": "critic"},
        setting("training", text("train_backend", default="megatron"), by=convert.trains),
        _MODEL,
        _SIDE,
    ),
    Role(
        {"rollout": "rollout"},
        fixed("engine", {"engine": "sglang"}),
        _MODEL,
        (
            setting("share", share("sglang_mem_fraction_static")),
            setting("length", _SGLANG_LENGTH),
            *sglang_steps("sglang_", _SGLANG_LENGTH),
            setting("precision", text("sglang_quantization"), text("sglang_dtype"), by=convert.served),
            setting("cache_precision", text("sglang_kv_cache_dtype"), by=convert.cached),
            setting(
                "sleep",
                *_offloading("rollout"),
                switch("sglang_enable_weights_cpu_backup"),
                by=_dropped,
            ),
            unless(
                "sglang_config",
                "sglang_cpu_offload_gb",
                "sglang_json_model_override_args",
                "sglang_torchao_config",
            ),
            nearly(*(f"sglang_{name}" for name in SGLANG_EFFECTS)),
        ),
    ),
)

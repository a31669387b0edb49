"""verl 1dda039: `trainer/config`, ``FSDPEngine`` and ``MegatronEngine`` of `workers/engine`, ``vLLMHttpServer``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rankplan.sdk import Key, Role, anything, fact, number, setting, share, size, switch, text
from rankplan.sdk.memory import (
    SGLANG_EFFECTS,
    VLLM_EFFECTS,
    Setting,
    convert,
    draft_keys,
    end_stages,
    fixed,
    layers,
    nearly,
    offloading,
    recomputing,
    sglang_steps,
    stage_keys,
    unless,
)
from rankplan.trainers.verl import keys

_PROMPT = size("data.max_prompt_length", default=512)
_RESPONSE = size("data.max_response_length", default=512)
_LENGTH = setting("length", _PROMPT, _RESPONSE, by=convert.added)

_MODEL_PATH = text(f"{keys.MODEL}.path")
_MODEL_LAYERS = tuple(anything(f"{keys.MODEL}.{name}") for name in ("override_config", "override_config.model_config"))
_BY_TOKENS = switch(f"{keys.ACTOR}.use_dynamic_bsz")
_STRATEGY = text(f"{keys.ACTOR}.strategy")
_DRAFT = anything(f"{keys.MODEL}.mtp.enable")
_QUANTIZED_TRAINING = tuple(
    anything(f"{keys.ACTOR}.{name}") for name in ("qat.enable", "fsdp_config.qat.enable", "megatron.qat.enable")
)


def _tokens(
    prompt: int | None, response: int | None, cp: int, by_tokens: Any, tokens: Any, batch: Any, *forward: Any
) -> int | None:
    """Return the most tokens of a micro-batch, also of the forward pass: on each of the context ranks, so many.

    What is not stated about the forward pass is as in training (``rearrange_micro_batches``).
    """
    length = convert.added(prompt, response)

    def micro_batch(is_by_tokens: Any, tokens_of_rank: Any, sequences: Any) -> int | None:
        return convert.micro_batch(is_by_tokens, tokens_of_rank and tokens_of_rank * cp, sequences, length)

    training = micro_batch(by_tokens, tokens, batch)
    if not forward:
        return convert.most(training)
    forward_by_tokens, forward_tokens, forward_batch = forward
    if forward_by_tokens is None:
        forward_by_tokens = by_tokens
    if forward_tokens is None:
        forward_tokens = tokens
    return convert.most(training, micro_batch(forward_by_tokens, forward_tokens, forward_batch))


def _narrow(wide: Any, aware: Any, also_aware: Any, dtype: Any) -> str | None:
    return convert.gradients(wide, aware, also_aware, dtype == "float16")


def _optimizer(name: Any, aware: Any, also_aware: Any, dtype: Any) -> str:
    return convert.optimizer(name, aware, also_aware, dtype == "float16")


def _policy(policy: Any, strategy: Any) -> float | None:
    return convert.whole(policy and strategy == "fsdp2")


def _shards(size: int | None, cp: int, slots: int) -> int | None:
    """Return how many slots share the states, where the plan's groups do not tell: context ranks share them, too."""
    if size is None or size < 1 or (size > 1 and cp == 1):
        return None
    return convert.shards(size, slots)


def _released(enabled: Any, can_sleep: Any, name: Any, lora: Any) -> str | None:
    """Return where a sleeping engine goes: SGLang keeps its weights if only adapters change.

    Only vLLM and TensorRT-LLM have a switch for whether they can sleep at all.
    """
    if not enabled or (can_sleep is False and name != "sglang"):
        return "none"
    if not lora:
        return "free"
    return "host" if name == "vllm" else None


def _offloaded(section: str, *, only: str) -> Setting:
    """Return the setting of the weights and the optimizer that leave the accelerators between turns."""
    weights, optimizer = switch(f"{section}.param_offload"), switch(f"{section}.optimizer_offload")
    return setting("sleep", weights, optimizer, by=convert.asleep, only=only)


_FUSED = switch(f"{keys.MODEL}.use_fused_kernels")
_UNPADDED = switch(f"{keys.MODEL}.use_remove_padding", default=True)

_ENTROPY = number(f"{keys.ACTOR}.entropy_coeff", default=0.0)
_ENTROPY_SHOWN = switch(f"{keys.ACTOR}.calculate_entropy")


def _in_place(unpadded: Any, coefficient: float | None, is_shown: Any) -> bool:
    """Whether the gradient of the loss replaces the logits: not if an entropy is computed of them, too.

    See ``inplace_backward`` in ``FSDPEngine.prepare_model_outputs``. With padding, logits are copied first.
    """
    return bool(unpadded) and coefficient == 0 and not is_shown


_AS_A_TRAINER = (
    # ActorRolloutRefWorker.update_weights: aggressive_empty_cache before the engine wakes, and again before its cache
    fixed("empties_cache", value=True),
    # create_colocated_worker_cls: one process for all trainers and references of a pool
    fixed("shares_process", value=True),
)
_LOGITS = (
    # FusedLinearForPPO, efficient_entropy_backward: in chunks of tokens, or of the vocabulary
    setting("fused_logits", _FUSED, by=bool, only="fsdp"),
    # MegatronEngine._maybe_enable_fused_kernels
    setting("fused_logits", _FUSED, _UNPADDED, by=lambda fused, unpadded: bool(fused and unpadded), only="megatron"),
)
"""``entropy_from_logits_with_chunking`` decides no peak: PyTorch keeps the softmax of every chunk, in 32 bits, for the
backward pass."""


class _Model:
    """The keys of a model in a section that FSDP or Megatron trains or computes."""

    def __init__(self, section: str) -> None:
        self.section = section
        self.transformer = anything(f"{section}.megatron.override_transformer_config")
        self._fp8 = anything(f"{self.transformer.path}.fp8")
        self.megatron_dtype = text(f"{section}.megatron.dtype", default="bfloat16")
        self.precision_with_fsdp = setting(
            "precision",
            text(f"{section}.fsdp_config.model_dtype", default="fp32"),
            by=convert.precision,
            only="fsdp",
        )
        self.computed_wide = setting(
            "",
            text(f"{section}.fsdp_config.mixed_precision.param_dtype", fallbacks=(f"{section}.fsdp_config.dtype",)),
            by=convert.computed_wide,
            only="fsdp",
        )
        self.shards = setting("shards", keys.FSDP_SIZE, fact("cp"), fact("slots"), by=_shards, only="fsdp")
        self.precision_with_megatron = setting(
            "precision", self.megatron_dtype, self._fp8, by=convert.precision, only="megatron"
        )
        self.stages = (
            unless(f"{section}.megatron.use_megatron_fsdp", only="megatron"),
            nearly(
                *stage_keys(f"{self.transformer.path}."),
                *draft_keys(f"{self.transformer.path}."),
                only="megatron",
            ),
        )

    def trained(self, strategy: Key[str | None]) -> tuple[Setting, ...]:
        """Return the settings of what is kept while the model is trained."""
        optimizer = text(f"{self.section}.optim.optimizer", default="adam")
        return (_LENGTH, *self._with_fsdp(optimizer, strategy), *self._with_megatron(optimizer), *self.stages)

    def _with_fsdp(self, optimizer: Key[str], strategy: Key[str | None]) -> tuple[Setting, ...]:
        fsdp = f"{self.section}.fsdp_config"
        optimizer_module = text(f"{self.section}.optim.optimizer_impl", default="torch.optim")
        return (
            self.precision_with_fsdp,
            _offloaded(fsdp, only="fsdp"),
            setting(
                "optimizer_on_host",
                switch(f"{fsdp}.offload_policy"),
                strategy,
                by=_policy,
                only="fsdp",
                words="fsdp2",
            ),
            setting("optimizer", optimizer, optimizer_module, by=convert.torch_optimizer, only="fsdp"),
            setting("", anything(f"{fsdp}.reshard_after_forward", default=True), by=convert.resharded, only="fsdp"),
            self.shards,
            self.computed_wide,
            # FSDPEngine._gradient_sync_context
            fixed("whole_gradients", value=True, only="fsdp"),
        )

    def _with_megatron(self, optimizer: Key[str]) -> tuple[Setting, ...]:
        megatron = f"{self.section}.megatron"
        optimizer_overrides = f"{self.section}.optim.override_optimizer_config"
        is_aware = (
            anything(f"{self.section}.optim.use_precision_aware_optimizer"),
            anything(f"{optimizer_overrides}.use_precision_aware_optimizer"),
        )
        return (
            self.precision_with_megatron,
            _offloaded(megatron, only="megatron"),
            setting(
                "gradients",
                switch(f"{megatron}.override_ddp_config.grad_reduce_in_fp32", default=True),
                *is_aware,
                self.megatron_dtype,
                by=_narrow,
                only="megatron",
            ),
            setting("optimizer", optimizer, *is_aware, self.megatron_dtype, by=_optimizer, only="megatron"),
            offloading(f"{optimizer_overrides}.", only="megatron"),
            setting(
                "distributed_optimizer",
                switch(f"{megatron}.use_distributed_optimizer", default=True),
                only="megatron",
            ),
            setting("sequence_parallel", switch(f"{megatron}.sequence_parallel", default=True), only="megatron"),
            recomputing(f"{self.transformer.path}.", only="megatron"),
            *end_stages(f"{self.transformer.path}."),
            nearly(f"{self.section}.optim.use_layer_wise_distributed_optimizer", only="megatron"),
            setting("chunks", size(f"{megatron}.virtual_pipeline_model_parallel_size"), only="megatron"),
        )


def _adapted(
    model: str, model_layers: Sequence[Key[Any]], lora_rank: Key[int | None], adapter_path: Key[Any]
) -> tuple[Setting, ...]:
    """Return the settings of a trained model whose name and adapters are in a section of their own."""
    return (
        layers(*model_layers),
        setting("lora", lora_rank, by=convert.adapters),
        unless(adapter_path, f"{model}.lora.adapter_path"),
        setting(
            "recompute",
            switch(f"{model}.enable_gradient_checkpointing", default=True),
            by=convert.checkpointed,
            only="fsdp",
        ),
    )


def _actor() -> Role:
    actor = _Model(keys.ACTOR)
    trained: tuple[Key[Any], ...] = (
        _PROMPT,
        _RESPONSE,
        fact("cp"),
        _BY_TOKENS,
        size(f"{keys.ACTOR}.ppo_max_token_len_per_gpu", default=16384),
        size(f"{keys.ACTOR}.ppo_micro_batch_size_per_gpu"),
    )
    return Role(
        {"actor": keys.ACTOR},
        setting("training", fact("engine"), by=convert.trains),
        setting("model", _MODEL_PATH),
        (
            *actor.trained(_STRATEGY),
            *_adapted(keys.MODEL, (*_MODEL_LAYERS, actor.transformer), keys.LORA_RANK, keys.LORA_ADAPTER),
            nearly(_DRAFT),
            *_AS_A_TRAINER,
            *_LOGITS,
            setting("logits_in_place", _UNPADDED, _ENTROPY, _ENTROPY_SHOWN, by=_in_place, only="fsdp"),
            setting("trained_tokens", *trained, by=_tokens),
            setting(
                "tokens",
                *trained,
                switch(f"{keys.ROLLOUT}.log_prob_use_dynamic_bsz", default=None),
                size(f"{keys.ROLLOUT}.log_prob_max_token_len_per_gpu"),
                size(f"{keys.ROLLOUT}.log_prob_micro_batch_size_per_gpu"),
                by=_tokens,
            ),
        ),
    )


def _critic() -> Role:
    section = keys.CRITIC
    model = f"{section}.model"
    critic = _Model(section)
    model_layers = [anything(f"{model}.{name}") for name in ("override_config", "override_config.model_config")]
    lora_rank = size(f"{model}.lora_rank", fallbacks=(f"{model}.lora.rank",))
    sequences = size(f"{section}.ppo_micro_batch_size_per_gpu")
    trained: tuple[Key[Any], ...] = (
        _PROMPT,
        _RESPONSE,
        fact("cp"),
        switch(f"{section}.use_dynamic_bsz", fallbacks=(_BY_TOKENS.path,)),
        size(f"{section}.ppo_max_token_len_per_gpu", default=32768),
        sequences,
    )
    return Role(
        {"critic": section},
        setting("training", fact("engine"), by=convert.trains),
        setting("model", text(f"{model}.path")),
        (
            *critic.trained(text(f"{section}.strategy", fallbacks=(_STRATEGY.path,))),
            *_adapted(model, (*model_layers, critic.transformer), lora_rank, anything(f"{model}.lora_adapter_path")),
            *_AS_A_TRAINER,
            setting("trained_tokens", *trained, by=_tokens),
            setting(
                "tokens",
                *trained,
                switch(f"{section}.forward_use_dynamic_bsz", default=None),
                size(f"{section}.forward_max_token_len_per_gpu"),
                size(f"{section}.forward_micro_batch_size_per_gpu", fallbacks=(sequences.path,)),
                by=_tokens,
            ),
        ),
    )


def _reference() -> Role:
    section = keys.REFERENCE
    reference = _Model(section)
    return Role(
        {"ref": section},
        setting("forward", fact("engine"), by=convert.computes),
        setting("model", _MODEL_PATH),
        (
            _LENGTH,
            reference.precision_with_fsdp,
            reference.precision_with_megatron,
            reference.shards,
            reference.computed_wide,
            # FSDPEngine: a model without a backward pass keeps its parameters on the host
            fixed("optimizer_on_host", 1.0, only="fsdp"),
            fixed("sleep", "host", only="fsdp"),
            setting(
                "sleep",
                switch(f"{section}.megatron.param_offload", fallbacks=(f"{keys.ACTOR}.megatron.param_offload",)),
                by=convert.asleep,
                only="megatron",
            ),
            *reference.stages,
            nearly(_DRAFT),
            *_AS_A_TRAINER,
            *_LOGITS,
            setting("logits_in_place", _UNPADDED, by=bool, only="fsdp"),
            layers(*_MODEL_LAYERS, reference.transformer),
            setting(
                "tokens",
                _PROMPT,
                _RESPONSE,
                fact("cp"),
                switch(f"{section}.log_prob_use_dynamic_bsz", fallbacks=(_BY_TOKENS.path,)),
                size(
                    f"{section}.log_prob_max_token_len_per_gpu",
                    default=16384,
                    fallbacks=(f"{keys.ACTOR}.ppo_max_token_len_per_gpu",),
                ),
                size(f"{section}.log_prob_micro_batch_size_per_gpu"),
                by=_tokens,
            ),
        ),
    )


def _share(section: str, *own: str) -> Setting:
    """Return the share of engines. An argument of vLLM counts before verl's own keys, and ``own`` before the usual."""
    name = "gpu_memory_utilization"
    return setting(
        "share", share(f"{section}.engine_kwargs.vllm.{name}", default=0.5, fallbacks=(*own, f"{section}.{name}"))
    )


def _engine(
    components: dict[str, str],
    section: str,
    model: Key[str | None],
    *,
    requests: int,
    name: Key[str | None],
    dtype: Key[str],
    disaggregated: Key[Any],
) -> Role:
    """Return the role of engines with their keys in a section; ``requests`` is the most that they serve at once."""
    vllm = f"{section}.engine_kwargs.vllm"
    sglang = f"{section}.engine_kwargs.sglang"
    max_sequences = size(f"{section}.max_num_seqs", default=requests)
    max_tokens = size(f"{section}.max_num_batched_tokens", default=8192)
    other_effects = [f"{kwargs}.{key}" for kwargs in (vllm, sglang) for key in ("quantization", "cpu_offload_gb")]
    small_effects = [f"{vllm}.{key}" for key in VLLM_EFFECTS]
    small_effects += [f"{sglang}.{key}" for key in SGLANG_EFFECTS]
    bucket = "update_weights_bucket_megabytes"

    def of_vllm(make: Callable[..., Key[Any]], key: str, default: Any = None) -> Key[Any]:
        """Return the key of an argument of vLLM, which counts before verl's own."""
        return make(f"{vllm}.{key}", default=default, fallbacks=(f"{section}.{key}",))

    settings = (
        _share(section),
        setting("length", of_vllm(size, "max_model_len")),
        setting("sequences", of_vllm(size, "max_num_seqs", requests), only="vllm"),
        setting(
            "sequences",
            size(f"{sglang}.max_running_requests", default=requests, fallbacks=(max_sequences.path,)),
            only="sglang",
        ),
        setting("sequences", max_sequences, only="trtllm"),
        setting("tokens", of_vllm(size, "max_num_batched_tokens", 8192), only="vllm"),
        setting("tokens", max_tokens, only="trtllm"),
        setting("graphs", of_vllm(switch, "enforce_eager"), by=convert.captured, only="vllm"),
        setting("cache_size", number(f"{vllm}.kv_cache_memory_bytes"), by=convert.cache_size, only="vllm"),
        # SGLangHttpServer leaves the chunks to SGLang
        sglang_steps(f"{sglang}.", size(f"{sglang}.context_length"))[0],
        setting("precision", text(f"{section}.quantization"), dtype, by=convert.served),
        setting(
            "cache_precision",
            text(f"{vllm}.kv_cache_dtype", fallbacks=(f"{sglang}.kv_cache_dtype",)),
            by=convert.cached,
        ),
        setting(
            "sleep",
            switch(f"{section}.free_cache_engine", default=True),
            switch(f"{section}.enable_sleep_mode", default=True),
            name,
            keys.LORA_RANK,
            by=_released,
        ),
        layers(*_MODEL_LAYERS),
        setting(
            "",
            size(f"{section}.checkpoint_engine.{bucket}", fallbacks=(f"{section}.{bucket}",)),
            by=convert.large_bucket,
        ),
        nearly(
            *_QUANTIZED_TRAINING,
            _DRAFT,
            *small_effects,
            f"{vllm}.decode_context_parallel_size",
            disaggregated,
        ),
        unless(*other_effects, f"{vllm}.hf_overrides"),
    )
    return Role(components, setting("engine", name, by=convert.serves), setting("model", model), settings)


def _standalone(rollout: Role) -> Role:
    """Return the role of the engines of ``FullyAsyncLLMServerManager``, which have one more key for their share.

    `VerlJob` tells which engines these are.
    """
    own = _share(keys.ROLLOUT, f"{keys.ROLLOUT}.standalone_gpu_memory_utilization")
    others = (one for one in rollout.settings if one.name != own.name)
    return replace(rollout, components={"rollout_standalone": keys.ROLLOUT}, settings=(own, *others))


_TEACHER_MODELS = f"{keys.TEACHERS}.teacher_models"
_TEACHER = "@.inference"
_ENGINE_DTYPE = text(f"{keys.ROLLOUT}.dtype", default="bfloat16")
_ROLLOUT = _engine(
    {"rollout": keys.ROLLOUT},
    keys.ROLLOUT,
    _MODEL_PATH,
    requests=256,
    name=keys.ENGINE_NAME,
    dtype=_ENGINE_DTYPE,
    disaggregated=keys.DISAGGREGATED,
)

ROLES = (
    _actor(),
    _critic(),
    _reference(),
    _ROLLOUT,
    _standalone(_ROLLOUT),
    _engine(
        {"reward": keys.REWARD_ENGINE},
        keys.REWARD_ENGINE,
        text(f"{keys.REWARD}.model_path"),
        requests=1024,
        name=keys.ENGINE_NAME,
        dtype=text(f"{keys.REWARD_ENGINE}.dtype", default="bfloat16"),
        disaggregated=keys.DISAGGREGATED,
    ),
    # A teacher has the engine and the type of the rollout unless it states its own.
    _engine(
        {"teacher": f"{_TEACHER_MODELS}.teacher_model", "teacher.*": f"{_TEACHER_MODELS}.*"},
        _TEACHER,
        text("@.model_path"),
        requests=1024,
        name=text(f"{_TEACHER}.name", fallbacks=(f"{keys.ROLLOUT}.name",)),
        dtype=text(f"{_TEACHER}.dtype", default="bfloat16", fallbacks=(_ENGINE_DTYPE.path,)),
        disaggregated=anything(f"{_TEACHER}.disaggregation.enabled"),
    ),
)

"""RLinf a3816b5: `config.py`, `hybrid_engines/{fsdp,megatron}`, `workers/rollout/{vllm,sglang}`."""

from __future__ import annotations

from typing import Any

from rankplan.dialects.keys.key import Key, anything, share, size, switch, text
from rankplan.dialects.keys.roles import Role, Setting, setting
from rankplan.dialects.memory import convert
from rankplan.dialects.memory.common import CHUNK, fixed, layers, offloading, recomputing, unless
from rankplan.hardware.cards import SMALLEST_SIZE
from rankplan.rlinf.keys import ROLLOUT_BACKEND, TASK


def _length(task: Any, length: int | None, prompt: int | None) -> int | None:
    """Return the tokens of the longest sequence; those of supervised training are padded prompts with answers."""
    return prompt if task == _SUPERVISED else length


def _tokens(*values: Any) -> int | None:
    """Return the most tokens of a micro-batch, in training and in the forward pass."""
    *training, forward = values
    task, length, _, by_tokens, *_ = training
    train = _trained(*training)
    if task == _SUPERVISED:
        return train
    return convert.most(train, train if by_tokens else convert.micro_batch(None, None, forward, length))


def _trained(
    task: Any, length: Any, prompt: Any, by_tokens: Any, tokens: Any, batch: Any, own_batch: Any
) -> int | None:
    """Return the most tokens of a micro-batch of training."""
    if task == _SUPERVISED:
        return convert.micro_batch(None, None, own_batch, prompt)
    return convert.micro_batch(by_tokens, convert.most(tokens, length), batch or own_batch, length)


def _divided(strategy: Any) -> Any:
    """Return `EFFECT` for ways to divide weights that no setting states."""
    return None if strategy == "full_shard" else convert.EFFECT


_LANGUAGE = ("qwen2.5", "qwen2.5_vl", "qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe", "deepseek_v3")
"""``SupportedModel``, without the models of robots and of diffusion."""
_SUPERVISED = "sft"
_SUPERVISED_LANGUAGE = ("qwen2.5_vl", "qwen3_vl", "qwen3_vl_moe")
"""The types of language models that supervised training takes (``FSDPVlmSftWorker``, ``MegatronVlmSftWorker``)."""


def _is_of_language(task: Any) -> bool:
    return task is None or str(task).startswith(("reasoning", "coding"))


def _kind(trained: Any) -> Any:
    """Return the kind of a model that a task trains or computes with; others than language models are unknown."""

    def kind_of(backend: Any, task: Any, model: Any) -> Any:
        if _is_of_language(task) or (task == _SUPERVISED and model in _SUPERVISED_LANGUAGE):
            return trained(backend)
        if model in (None, *_LANGUAGE):
            return convert.Foreign(TASK, str(task))
        return convert.Foreign(_TYPE, str(task), str(model))

    return kind_of


def _rewarded(is_model: Any, task: Any) -> Any:
    """Return what rewards keep without a model (`RewardWorker`): rules are computed on CPUs."""
    return {"resident": SMALLEST_SIZE} if is_model is False and _is_of_language(task) else None


def _served(name: Any) -> Any:
    return convert.served(None, name)


_TYPE = text("@.model.model_type", fallbacks=("actor.model.model_type",))
_LENGTH = size("runner.seq_length")
_LENGTHS: tuple[Key[Any], ...] = (TASK, _LENGTH, size("data.max_prompt_length"))
_BACKEND = text("@.training_backend", fallbacks=("actor.training_backend",))
_TRAINED: tuple[Key[Any], ...] = (
    *_LENGTHS,
    switch("runner.enable_dynamic_batch_size"),
    size("runner.max_tokens_per_mbs", default=2048),
    size("algorithm.training_batch_size_per_gpu"),
    size("@.micro_batch_size"),
)
_SHARED: tuple[Setting, ...] = (
    setting("length", *_LENGTHS, by=_length),
    setting(
        "precision",
        text("@.model.precision", fallbacks=("actor.model.precision",)),
        anything("@.model.fp8"),
        by=convert.precision,
    ),
    setting(
        "tokens",
        *_TRAINED,
        size("algorithm.logprob_forward_micro_batch_size"),
        by=_tokens,
    ),
    setting("optimizer_on_host", switch("@.fsdp_config.cpu_offload"), by=convert.whole, only="fsdp"),
    setting("", text("@.fsdp_config.sharding_strategy", default="full_shard"), by=_divided, only="fsdp"),
    # FSDPModelManager.model_provider_func
    unless("@.model.load_in_8bit", "@.model.gptq_model", only="fsdp"),
    setting("", anything("@.fsdp_config.reshard_after_forward", default=True), by=convert.resharded, only="fsdp"),
    layers("@.model.override_config"),
    unless("@.model.pipeline_model_parallel_layout", only="megatron"),
)
_TRAINING = (
    *_SHARED,
    setting("trained_tokens", *_TRAINED, by=_trained),
    setting(
        "recompute",
        switch("@.fsdp_config.gradient_checkpointing", default=None, fallbacks=("@.model.gradient_checkpointing",)),
        by=convert.checkpointed,
        only="fsdp",
    ),
    # get_model adds adapters to the models of robots only
    unless("@.model.is_lora"),
    setting("sleep", switch("@.enable_offload", default=None), by=convert.asleep, only="fsdp"),
    setting("whole_gradients", switch("@.fsdp_config.enable_gradient_accumulation"), only="fsdp"),
    # FSDPModelManager: without a type of its own, FSDP computes in that of the weights
    setting("", text("@.fsdp_config.mixed_precision.param_dtype"), by=convert.computed_wide, only="fsdp"),
    # Megatron: MegatronWorker has a switch for each part
    setting(
        "sleep",
        switch("@.offload_weight", default=None),
        switch("@.offload_optimizer", default=None),
        switch("@.offload_grad", default=None),
        by=convert.asleep,
        only="megatron",
    ),
    # setup_mbridge_model_and_optimizer
    unless(
        "@.model.freeze_language_model",
        "@.model.freeze_vision_model",
        "@.model.freeze_vision_projection",
        "@.model.decoder_first_pipeline_num_layers",
        "@.model.decoder_last_pipeline_num_layers",
        only="megatron",
    ),
    # MegatronModelManager adds gradients in 32 bits
    setting("gradients", _BACKEND, by=convert.always("fp32"), only="megatron"),
    setting(
        "optimizer",
        text("@.optim.optimizer", default="adam"),
        anything("@.optim.use_precision_aware_optimizer"),
        by=convert.optimizer,
        only="megatron",
    ),
    offloading("@.optim.", fraction=0.0, only="megatron"),
    setting("distributed_optimizer", switch("@.optim.use_distributed_optimizer", default=None), only="megatron"),
    setting("sequence_parallel", switch("@.model.sequence_parallel", default=None), only="megatron"),
    recomputing("@.model.", only="megatron"),
    setting("chunks", size("@.model.virtual_pipeline_model_parallel_size"), only="megatron"),
)
_MODEL = setting("model", text("@.model.model_path", fallbacks=("rollout.model.model_path",)))

RLINF = (
    Role(
        {"actor": "actor", "critic": "critic"},
        setting("training", _BACKEND, TASK, _TYPE, by=_kind(convert.trains)),
        _MODEL,
        _TRAINING,
    ),
    Role(
        {"inference": "actor", "actor_inference": "actor"},
        setting("forward", _BACKEND, TASK, _TYPE, by=_kind(convert.computes)),
        _MODEL,
        _SHARED,
    ),
    Role(
        {"reward": "reward"},
        setting("kind", switch("@.use_reward_model"), TASK, by=_rewarded),
        _MODEL,
        (),
    ),
    Role(
        {"rollout": "rollout"},
        setting("engine", ROLLOUT_BACKEND, by=convert.serves),
        _MODEL,
        (
            setting("share", share("@.gpu_memory_utilization", default=0.65)),
            # VLLMWorker: max_model_len
            setting("length", _LENGTH, only="vllm"),
            setting("sequences", size("@.max_running_requests")),
            setting("graphs", switch("@.enforce_eager", default=None), by=convert.captured, only="vllm"),
            setting("tokens", size("@.vllm.max_num_batched_tokens"), only="vllm"),
            fixed("usage", "engine", only="vllm"),  # VLLMWorker: `create_engine_config()`
            # SGLangWorker leaves the chunks to SGLang
            setting("tokens", ROLLOUT_BACKEND, by=convert.always(CHUNK), only="sglang"),
            setting("precision", text("rollout.model.precision"), by=_served),
        ),
    ),
)

"""OpenRLHF 3c3be62: `cli/train_ppo_ray.py`, `utils/deepspeed`, `trainer/ray`; and the flags of older versions."""

from __future__ import annotations

from typing import Any

from rankplan.sdk import Role, anything, setting, share, size, switch, text
from rankplan.sdk.memory import convert, fixed, unless
from rankplan.trainers.openrlhf import keys


def _length(longest: Any, prompt: Any, response: Any) -> int | None:
    """Return the longest sequence; older versions add the prompt and what is generated."""
    if prompt is None and response is None:
        return 2048 if longest is None else int(longest)
    return None if None in (prompt, response) else int(prompt + response)


def _tokens(*values: Any) -> int | None:
    """Return the most tokens of a micro-batch, in training and in the forward pass."""
    length, (by_tokens, tokens, forward, batch, forward_batch) = _length(*values[:3]), values[3:]
    return convert.most(
        convert.micro_batch(by_tokens, convert.most(tokens, length), batch, length),
        convert.micro_batch(
            by_tokens, convert.most(tokens if forward is None else forward, length), forward_batch, length
        ),
    )


def _trained(longest: Any, prompt: Any, response: Any, by_tokens: Any, tokens: Any, batch: Any) -> int | None:
    """Return the most tokens of a micro-batch of training."""
    length = _length(longest, prompt, response)
    return convert.micro_batch(by_tokens, convert.most(tokens, length), batch, length)


_REF_OFFLOAD = switch("ref.offload", fallbacks=("ref_offload", "ref_reward_offload"))
_REWARD_OFFLOAD = switch("reward.offload", fallbacks=("ref_reward_offload",))
_SHARE = share("vllm.gpu_memory_utilization", default=0.95, fallbacks=("vllm_gpu_memory_utilization",))
_EAGER = switch("vllm.enforce_eager", default=None, fallbacks=("vllm_enforce_eager",))
_REWARD = text("reward.model_name_or_path", fallbacks=("reward_pretrain",))
_ACTOR = text("actor.model_name_or_path", fallbacks=("pretrain",))
_CRITIC = text("critic.model_name_or_path", fallbacks=("critic_pretrain", *_REWARD.paths))
_LENGTH = size("data.max_len", fallbacks=("max_len",)), size("prompt_max_len"), size("generate_max_len")
_BY_TOKENS = switch("train.dynamic_batch_enable", fallbacks=("use_dynamic_batch",))
_TRAIN_TOKENS = size("train.max_tokens_per_gpu", default=16192, fallbacks=("train_max_tokens_per_gpu",))
_TRAIN_BATCH = size("train.micro_batch_size", default=1, fallbacks=("micro_train_batch_size",))
_SHARED = (
    setting("length", *_LENGTH, by=_length),
    setting("zero_stage", size("ds.zero_stage", default=2, fallbacks=("zero_stage",))),
    unless(anything("ds.load_in_4bit", fallbacks=("load_in_4bit",))),
    setting(
        "tokens",
        *_LENGTH,
        _BY_TOKENS,
        _TRAIN_TOKENS,
        size("rollout.max_tokens_per_gpu", fallbacks=("rollout_max_tokens_per_gpu",)),
        _TRAIN_BATCH,
        size("rollout.micro_batch_size", default=1, fallbacks=("micro_rollout_batch_size",)),
        by=_tokens,
    ),
)
_TRAINING = (
    *_SHARED,
    setting("trained_tokens", *_LENGTH, _BY_TOKENS, _TRAIN_TOKENS, _TRAIN_BATCH, by=_trained),
    setting("optimizer_on_host", switch("ds.adam_offload", fallbacks=("adam_offload",)), by=convert.whole),
    setting("optimizer", text("@.optim", default="adam"), by=convert.optimizer),
    setting("", size("ds.zpg", default=1, fallbacks=("zpg",)), by=convert.several),
    setting("lora", size("ds.lora.rank", default=0, fallbacks=("lora_rank",)), by=convert.adapters),
    setting(
        "recompute",
        switch("actor.gradient_checkpointing_enable", fallbacks=("gradient_checkpointing",)),
        by=convert.checkpointed,
    ),
    # offload_deepspeed_states leaves the weights, and does nothing with adam_offload
    setting(
        "sleep",
        switch("ds.enable_sleep", fallbacks=("deepspeed_enable_sleep",)),
        by=lambda enabled: None if enabled else "none",
    ),
)


_STAYS = fixed("sleep", "none")
"""ReferenceModelActor and RewardModelActor have no turns: what is not offloaded stays."""


def _engine(colocated: Any, asynchronous: Any, enabled: Any) -> str | None:
    return ("host" if enabled else "none") if colocated and not asynchronous else None


ROLES = (
    Role(
        {"actor": "actor"},
        fixed("training", {"training": "deepspeed"}),
        setting("model", _ACTOR),
        (*_TRAINING, unless(anything("train.enable_ema", fallbacks=("enable_ema",)))),
    ),
    Role(
        {"critic": "critic"},
        fixed("training", {"training": "deepspeed"}),
        setting("model", _CRITIC),
        _TRAINING,
    ),
    Role(
        {"ref": "ref"},
        fixed("forward", {"forward": "deepspeed"}),
        setting("model", _ACTOR),
        (
            *_SHARED,
            setting("optimizer_on_host", _REF_OFFLOAD, by=convert.whole),
            _STAYS,
        ),
    ),
    Role(
        {"reward": "reward"},
        fixed("forward", {"forward": "deepspeed"}),
        setting("model", _REWARD),
        (*_SHARED, setting("optimizer_on_host", _REWARD_OFFLOAD, by=convert.whole), _STAYS),
    ),
    Role(
        {"vllm": "vllm"},
        fixed("engine", {"engine": "vllm"}),
        setting("model", _ACTOR),
        (
            setting("share", _SHARE),
            setting("length", *_LENGTH, by=_length),
            setting("graphs", _EAGER, by=convert.captured),
            fixed("usage", "engine"),  # RolloutRayActor: `AsyncLLMEngine`
            setting(
                "sleep",
                keys.COLOCATE_ALL,
                keys.ASYNCHRONOUS,
                switch("vllm.enable_sleep", fallbacks=("vllm_enable_sleep",)),
                by=_engine,
            ),
        ),
    ),
)

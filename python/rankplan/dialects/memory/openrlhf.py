"""OpenRLHF 3c3be62: `cli/train_ppo_ray.py`, `utils/deepspeed`, `trainer/ray`; and the flags of older versions."""

from __future__ import annotations

from typing import Any

from rankplan.dialects.keys.roles import Role
from rankplan.dialects.memory import convert
from rankplan.dialects.memory.rules import fixed, rule, unless


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


_LENGTH = "size data.max_len max_len", "size prompt_max_len", "size generate_max_len"
_SHARED = (
    rule("length", *_LENGTH, by=_length),
    rule("zero_stage", "size ds.zero_stage zero_stage = 2"),
    unless("ds.load_in_4bit load_in_4bit"),
    rule(
        "tokens",
        *_LENGTH,
        "switch train.dynamic_batch_enable use_dynamic_batch = false",
        "size train.max_tokens_per_gpu train_max_tokens_per_gpu = 16192",
        "size rollout.max_tokens_per_gpu rollout_max_tokens_per_gpu",
        "size train.micro_batch_size micro_train_batch_size = 1",
        "size rollout.micro_batch_size micro_rollout_batch_size = 1",
        by=_tokens,
    ),
)
_TRAINING = (
    *_SHARED,
    rule("optimizer_on_host", "switch ds.adam_offload adam_offload = false", by=convert.whole),
    rule("optimizer", "text @.optim = adam", by=convert.optimizer),
    rule("", "size ds.zpg zpg = 1", by=convert.several),
    rule("lora", "size ds.lora.rank lora_rank = 0", by=convert.adapters),
    rule(
        "recompute",
        "switch actor.gradient_checkpointing_enable gradient_checkpointing = false",
        by=convert.checkpointed,
    ),
    # offload_deepspeed_states leaves the weights, and does nothing with adam_offload
    rule(
        "sleep", "switch ds.enable_sleep deepspeed_enable_sleep = false", by=lambda enabled: None if enabled else "none"
    ),
)


def _engine(colocated: Any, asynchronous: Any, enabled: Any) -> str | None:
    return ("host" if enabled else "none") if colocated and not asynchronous else None


OPENRLHF = (
    Role(
        {"actor": "actor"},
        fixed("training", {"training": "deepspeed"}),
        rule("model", "text actor.model_name_or_path pretrain"),
        (*_TRAINING, unless("train.enable_ema enable_ema")),
    ),
    Role(
        {"critic": "critic"},
        fixed("training", {"training": "deepspeed"}),
        rule("model", "text critic.model_name_or_path critic_pretrain reward.model_name_or_path reward_pretrain"),
        _TRAINING,
    ),
    Role(
        {"ref": "ref"},
        fixed("forward", {"forward": "deepspeed"}),
        rule("model", "text actor.model_name_or_path pretrain"),
        (
            *_SHARED,
            rule("optimizer_on_host", "switch ref.offload ref_offload ref_reward_offload = false", by=convert.whole),
        ),
    ),
    Role(
        {"reward": "reward"},
        fixed("forward", {"forward": "deepspeed"}),
        rule("model", "text reward.model_name_or_path reward_pretrain"),
        (*_SHARED, rule("optimizer_on_host", "switch reward.offload ref_reward_offload = false", by=convert.whole)),
    ),
    Role(
        {"vllm": "vllm"},
        fixed("engine", {"engine": "vllm"}),
        rule("model", "text actor.model_name_or_path pretrain"),
        (
            rule("share", "share vllm.gpu_memory_utilization vllm_gpu_memory_utilization = 0.95"),
            rule("length", *_LENGTH, by=_length),
            rule("graphs", "switch vllm.enforce_eager vllm_enforce_eager", by=convert.captured),
            rule(
                "sleep",
                "switch train.colocate_all colocate_all_models = false",
                "switch train.async_enable async_train = false",
                "switch vllm.enable_sleep vllm_enable_sleep = false",
                by=_engine,
            ),
        ),
    ),
)

"""open-instruct e6c3044: `grpo_utils.py`, `data_loader.py`, `model_utils.py`, `vllm_utils.py`."""

from __future__ import annotations

from typing import Any

from rankplan.sdk import EFFECT, Role, anything, number, setting, share, size, switch, text
from rankplan.trainers.open_instruct import keys

_MODEL = text("model_name_or_path")
_STAGE = size("deepspeed_stage", default=0, least=0)
_PACK = size("pack_length", default=512)


def _tokens(length: int | None, batch: int | None) -> int | None:
    """Return the most tokens of a micro-batch: packs of full length."""
    return None if batch is None or length is None else batch * length


def _length(prompt: int | None, response: int | None, evaluated: int | None) -> int | None:
    """Return the longest sequence of an engine (``create_model_and_optimizer``)."""
    if prompt is None or response is None:
        return None
    return prompt + max(response, evaluated or 0)


def _copied(stage: Any, copies: Any) -> Any:
    """Return `EFFECT` for weights of stage 3 that each node keeps a copy of (``zero_hpz_partition_size``)."""
    return EFFECT if stage == 3 and copies is not None and copies > 1 else None


def _reference(loads: Any, beta: Any) -> Any:
    """Return `EFFECT` for a reference model, which is inside the process of a learner."""
    return EFFECT if loads and beta != 0 else None


def _recomputed(enabled: Any) -> str | None:
    """Return whether every layer is computed again."""
    if enabled is None:
        return None
    return "full" if enabled else "none"


def _effect(*values: Any) -> Any:
    """Return `EFFECT` if any value is set: no setting states what it does."""
    return (
        EFFECT
        if any(value is not None and str(value).lower() not in ("none", "false", "0") for value in values)
        else None
    )


ROLES = (
    Role(
        {"learner": ""},
        setting("training", by=lambda: {"training": "deepspeed"}),
        setting("model", _MODEL),
        (
            setting("length", _PACK),
            setting("tokens", _PACK, size("per_device_train_batch_size", default=1), by=_tokens),
            setting("zero_stage", _STAGE),
            setting(
                "optimizer_on_host", switch("deepspeed_offload_optimizer"), by=lambda offload: 1.0 if offload else None
            ),
            setting("recompute", switch("gradient_checkpointing"), by=_recomputed),
            setting("", switch("load_ref_policy", default=True), number("beta", default=0.05), by=_reference),
            setting("", _STAGE, size("deepspeed_zpg", default=8), by=_copied),
            setting("", anything("deepspeed_offload_param"), keys.SHARD_DEGREE, keys.REPLICAS, by=_effect),
            setting("sleep", by=lambda: "none"),
        ),
    ),
    Role(
        {"vllm": ""},
        setting("engine", by=lambda: {"engine": "vllm"}),
        setting("model", _MODEL),
        (
            setting("share", share("vllm_gpu_memory_utilization", default=0.9)),
            setting(
                "length",
                size("max_prompt_token_length", default=256),
                size("response_length", default=256),
                size("eval_response_length"),
                by=_length,
            ),
            setting("usage", by=lambda: "engine"),  # LLMRayActor: `AsyncLLMEngine`
            setting("graphs", switch("vllm_enforce_eager", default=False), by=lambda eager: not eager),
            setting("sleep", by=lambda: "none"),
        ),
    ),
)

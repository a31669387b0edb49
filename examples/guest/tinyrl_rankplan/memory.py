"""What TinyRL's keys say about memory."""

from __future__ import annotations

from typing import Any

from rankplan import sdk

from tinyrl_rankplan import keys


def _kind(engine: Any) -> dict[str, Any]:
    return {"engine": "vllm"} if engine == "vllm" else {"training": "fsdp"}


def _optimizer(name: str) -> Any:
    return name if name in ("adam", "sgd") else sdk.EFFECT  # what another one keeps is unknown


ROLES = (
    sdk.Role(
        {"learner": "learner"},
        kind=sdk.setting("", keys.KIND, by=_kind),
        model=sdk.setting("model", keys.MODEL),
        settings=(
            sdk.setting("optimizer", keys.OPTIMIZER, by=_optimizer),
            sdk.setting("", keys.QUANTIZED, by=lambda quantized: sdk.EFFECT if quantized else None),
        ),
    ),
    sdk.Role(
        {"sampler": "sampler"},
        kind=sdk.setting("", keys.KIND, by=_kind),
        model=sdk.setting("model", keys.MODEL),
        settings=(
            sdk.setting("share", keys.CACHE),
            sdk.setting("batch_tokens", keys.LENGTH, by=int),
        ),
    ),
)

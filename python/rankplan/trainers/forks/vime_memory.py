"""What the flags of vime's engines say about their memory; those of the training are slime's."""

from __future__ import annotations

from typing import Any

from rankplan.sdk import Role, setting, share, size, switch, text
from rankplan.sdk.memory import convert, fixed


def _stays(own: Any, stays: Any, both: Any, colocate: Any) -> str | None:
    """Return that an engine keeps its accelerators; where it goes otherwise depends on the version of vLLM."""
    leaves = bool(colocate if own is None else own)
    return "none" if not both and (stays or not leaves) else None


ROLES = (
    Role(
        {"rollout": "rollout"},
        fixed("engine", {"engine": "vllm"}),
        setting("model", text("hf_checkpoint")),
        (
            setting("share", share("vllm_gpu_memory_utilization")),
            setting("length", size("vllm_max_model_len")),
            setting("sequences", size("vllm_max_num_seqs")),
            setting("tokens", size("vllm_max_num_batched_tokens")),
            fixed("usage", "server"),
            setting("graphs", switch("vllm_enforce_eager"), by=convert.captured),
            setting("precision", text("vllm_quantization"), by=convert.served),
            setting("cache_precision", text("vllm_kv_cache_dtype"), by=convert.cached),
            setting(
                "sleep",
                switch("offload_rollout", default=None),
                switch("no_offload_rollout"),
                switch("offload"),
                switch("colocate"),
                by=_stays,
            ),
        ),
    ),
)

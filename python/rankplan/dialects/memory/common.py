"""Settings of ``memory`` that several systems have, with their keys."""

from __future__ import annotations

from typing import Any

from rankplan.dialects.keys.key import Key, anything, size, switch, text
from rankplan.dialects.keys.key import fraction as key_of_fraction
from rankplan.dialects.keys.roles import Setting, setting
from rankplan.dialects.memory import convert


def fixed(name: str, value: Any, only: str = "") -> Setting:
    """Return a setting of a system that has one value for it, whatever its config says."""
    return setting(name, by=convert.always(value), only=only)


def recomputing(section: str, only: str = "") -> Setting:
    """Return the setting of Megatron's recomputation; ``section`` ends in a dot or is empty.

    Megatron-LM demands a method and a number of layers with ``full`` (``TransformerConfig.__post_init__``).
    """
    granularity = text(f"{section}recompute_granularity")
    method, layers = text(f"{section}recompute_method"), size(f"{section}recompute_num_layers")
    also: dict[Key[Any], Any] = {method: "uniform", layers: 1}
    return setting("recompute", granularity, method, layers, by=convert.granularity, only=only, also=also)


def offloading(section: str, fraction: float | None = None, only: str = "") -> Setting:
    """Return the setting of Megatron's optimizer on the host; ``fraction`` is the default of the system."""
    is_offloaded = switch(f"{section}optimizer_cpu_offload")
    part = key_of_fraction(f"{section}optimizer_offload_fraction", default=fraction)
    return setting("optimizer_on_host", is_offloaded, part, by=convert.offloaded, only=only)


def end_stages(section: str) -> tuple[Setting, Setting]:
    """Return the settings of the layers of Megatron's first and last stage; ``section`` ends in a dot."""
    return (
        setting("first_layers", size(f"{section}num_layers_in_first_pipeline_stage"), only="megatron"),
        setting("last_layers", size(f"{section}num_layers_in_last_pipeline_stage"), only="megatron"),
    )


def _any(path: str | Key[Any]) -> Key[Any]:
    """Return the key of a value of any type at a path; a key is returned unchanged."""
    return path if isinstance(path, Key) else anything(path)


def unless(*paths: str | Key[Any], only: str = "") -> Setting:
    """Return the setting of keys that, if they are set, have an effect that no setting states."""
    return setting("", *map(_any, paths), by=convert.unset, only=only)


def nearly(*paths: str | Key[Any], only: str = "") -> Setting:
    """Return the setting of keys that, if they are set, change little: the likely value stays, and no bound does."""
    return setting("", *map(_any, paths), by=convert.small, only=only)


def stage_keys(section: str) -> tuple[str, ...]:
    """Return Megatron's keys for `unless` that divide the layers unevenly among stages; ``section`` ends in a dot."""
    keys = "pipeline_model_parallel_layout account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split"
    return tuple(f"{section}{key}" for key in keys.split())


CHUNK, BATCH, REQUESTS = 16384, 16384, 4096
"""SGLang's own defaults: tokens of a chunk (`server_args.py`: at most these, by memory), ``max_prefill_tokens``, and
requests (``ModelRunner.init_memory_pool``: at most these)."""


def sglang_steps(section: str, length: Key[int | None]) -> tuple[Setting, Setting]:
    """Return the settings of the most tokens and requests of SGLang.

    ``section`` ends in a dot or an underscore; ``length`` is the key of the longest sequence.
    """
    return (
        setting(
            "tokens",
            size(f"{section}chunked_prefill_size", default=CHUNK),
            size(f"{section}max_prefill_tokens", default=BATCH),
            length,
            by=convert.step,
            only="sglang",
        ),
        setting("sequences", size(f"{section}max_running_requests", default=REQUESTS), only="sglang"),
    )


VLLM_EFFECTS = ("speculative_config", "num_gpu_blocks_override", "enable_lora")
SGLANG_EFFECTS = ("speculative_algorithm", "enable_dp_attention", "max_total_tokens", "enable_lora")
"""Arguments of engines with effects that no setting states: draft models, copies of attention, another cache, buffers
of adapters."""


def draft_keys(section: str) -> tuple[str, ...]:
    """Return Megatron's keys for `unless` of layers that predict further tokens; ``section`` ends in a dot."""
    return (f"{section}mtp_num_layers",)


def layers(*paths: str | Key[Any], only: str = "") -> Setting:
    """Return the setting of mappings that may change the layers of the model."""
    return setting("", *map(_any, paths), by=convert.reshaped, only=only)

"""ms-swift 3602360: `megatron/arguments`, `rlhf_trainers/args_mixin.py`, `ray/megatron/model_worker.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rankplan.dialects.memory import convert
from rankplan.dialects.memory.common import VLLM_EFFECTS, draft_keys, fixed, stage_keys, unless
from rankplan.sdk import EFFECT, Key, Role, anything, fact, number, setting, share, size, switch, text
from rankplan.trainers.ms_swift import keys


def _trained(make: Callable[..., Key[Any]], name: str, **more: Any) -> Key[Any]:
    """Return a key of the training, or of all roles at the top."""
    return make(f"{keys.TRAIN}.{name}", fallbacks=(name,), **more)


def _served(make: Callable[..., Key[Any]], name: str, **more: Any) -> Key[Any]:
    """Return a key of a role of engines, or of all roles at the top."""
    return make(f"@.{name}", fallbacks=(name,), **more)


_LENGTH = (_trained(size, "max_length"), _trained(size, "max_completion_length", default=512))
_ENGINE_MODEL = _served(text, "model")
_TUNER = _trained(text, "tuner_type", default="full")


def _tokens(prompt: int | None, completion: int | None, batch: int | None) -> int | None:
    """Return the most tokens of a micro-batch: samples of full length."""
    return convert.micro_batch(None, None, batch, convert.added(prompt, completion))


def _adapters(tuner: Any, rank: Any) -> Any:
    return rank if tuner == "lora" else None


def _reference(tuner: Any, beta: Any) -> Any:
    """Return `EFFECT` for a full training that keeps a reference model beside the trained one."""
    return None if tuner == "lora" or beta == 0 else EFFECT


def _left(is_hybrid: Any, optimizer: Any) -> str | None:
    """Return where the training goes while engines generate: its weights always do if they share GPUs."""
    if not is_hybrid:
        return "none"
    return "host" if optimizer else None


def _asleep(is_hybrid: Any, level: Any) -> str:
    """Return where engines go while the training runs: vLLM's level 1 keeps the weights on the host."""
    if not is_hybrid or not level:
        return "none"
    return "host" if level == 1 else "free"


_HYBRID = fact("is_hybrid")
"""Whether the rollout shares the GPUs of the training (``_is_rollout_hybrid``)."""

_SERVED = (
    setting("share", _served(share, "vllm_gpu_memory_utilization", default=0.9)),
    setting("length", _served(size, "vllm_max_model_len")),
    setting("sequences", _served(size, "vllm_max_num_seqs", default=256)),
    setting("graphs", _served(switch, "vllm_enforce_eager", default=False), by=convert.captured),
    setting("precision", _served(text, "vllm_quantization"), by=convert.served),
    unless(
        *(_served(anything, f"vllm_engine_kwargs.{name}") for name in VLLM_EFFECTS),
        _served(anything, "vllm_speculative_config"),
    ),
)

ROLES = (
    Role(
        {keys.TRAIN: keys.TRAIN},
        fixed("training", {"training": "megatron"}),
        setting("model", _trained(text, "model")),
        (
            setting("length", *_LENGTH, by=convert.added),
            setting("tokens", *_LENGTH, _trained(size, "micro_batch_size", default=1), by=_tokens),
            setting(
                "precision",
                _trained(anything, "fp8_param_gather"),
                by=lambda fp8: convert.precision("bf16", fp8),
            ),
            setting(
                "gradients",
                _trained(switch, "accumulate_allreduce_grads_in_fp32", default=None),
                by=convert.gradients,
            ),
            setting(
                "optimizer",
                _trained(text, "optimizer", default="adam"),
                _trained(switch, "use_precision_aware_optimizer"),
                by=convert.optimizer,
            ),
            setting(
                "optimizer_on_host",
                _trained(switch, "optimizer_cpu_offload"),
                _trained(number, "optimizer_offload_fraction", default=1.0),
                by=convert.offloaded,
            ),
            setting("distributed_optimizer", _trained(switch, "use_distributed_optimizer", default=True)),
            setting("sequence_parallel", _trained(switch, "sequence_parallel")),
            setting(
                "recompute",
                _trained(text, "recompute_granularity", default="selective"),
                _trained(text, "recompute_method"),
                by=convert.granularity,
            ),
            setting("first_layers", _trained(size, "decoder_first_pipeline_num_layers")),
            setting("last_layers", _trained(size, "decoder_last_pipeline_num_layers")),
            setting("chunks", _trained(size, "virtual_pipeline_model_parallel_size")),
            setting("lora", _TUNER, _trained(size, "lora_rank", default=8), by=_adapters),
            setting("sleep", _HYBRID, _trained(switch, "offload_optimizer"), by=_left),
            setting("", _TUNER, _trained(number, "beta"), by=_reference),
            unless(
                *(_trained(anything, name) for name in ("teacher_model", "use_megatron_fsdp", "freeze_parameters")),
                *(_trained(anything, name) for name in ("megatron_extra_kwargs", "fp4_format")),
                *(_trained(anything, name) for name in (*stage_keys(""), *draft_keys(""))),
            ),
        ),
    ),
    Role(
        {keys.ROLLOUT: keys.ROLLOUT},
        fixed("engine", {"engine": "vllm"}),
        setting("model", _ENGINE_MODEL),
        (*_SERVED, setting("sleep", _HYBRID, keys.SLEEP_LEVEL, by=_asleep)),
    ),
    Role(
        {keys.TEACHER: keys.TEACHER},
        fixed("engine", {"engine": "vllm"}),
        setting("model", _ENGINE_MODEL),
        (*_SERVED, fixed("sleep", "none")),
    ),
)

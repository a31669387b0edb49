"""ms-swift 3602360: `megatron/arguments`, `rlhf_trainers/args_mixin.py`, `ray/megatron/model_worker.py`.

Without Ray, what trains and DeepSpeed's stage are facts of the command. Of other frameworks nothing is said, and of a
server neither: its own command states what it keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rankplan.sdk import EFFECT, Key, Role, anything, fact, number, setting, share, size, switch, text
from rankplan.sdk.memory import VLLM_EFFECTS, convert, draft_keys, fixed, stage_keys, unless
from rankplan.trainers.ms_swift import keys


def _trained(make: Callable[..., Key[Any]], name: str, **more: Any) -> Key[Any]:
    """Return a key of the training, or of all roles at the top."""
    return make(f"{keys.TRAIN}.{name}", fallbacks=(name,), **more)


def _served(make: Callable[..., Key[Any]], name: str, **more: Any) -> Key[Any]:
    """Return a key of a role of engines, or of all roles at the top."""
    return make(f"@.{name}", fallbacks=(name,), **more)


_LENGTH = (_trained(size, "max_length"), _trained(size, "max_completion_length", default=512))
_BATCH = _trained(size, "per_device_train_batch_size", default=1)
_ENGINE_MODEL = _served(text, "model")
_TUNER = _trained(text, "tuner_type")


def _tokens(prompt: int | None, completion: int | None, batch: int | None) -> int | None:
    """Return the most tokens of a micro-batch: samples of full length."""
    return convert.micro_batch(None, None, batch, convert.added(prompt, completion))


def _has_adapters(framework: Any, tuner: Any) -> bool:
    """Return whether adapters are trained: with `swift` by default, with `megatron` only if that is stated."""
    return tuner == "lora" or (tuner is None and framework == "deepspeed")


def _adapters(framework: Any, tuner: Any, rank: Any) -> Any:
    return rank if _has_adapters(framework, tuner) else None


def _reference(framework: Any, tuner: Any, beta: Any) -> Any:
    """Return `EFFECT` for a full training that keeps a reference model beside the trained one."""
    return None if _has_adapters(framework, tuner) or beta == 0 else EFFECT


def _trains(framework: Any) -> Any:
    """Return the kind of the training; on Ray, it is Megatron."""
    return convert.trains("megatron" if framework is None else framework)


def _engine(mode: Any) -> Any:
    """Return the kind of an engine, ``None`` for those of a server."""
    return None if mode == keys.SERVER else convert.serves("vllm")


def _left(is_hybrid: Any, framework: Any, model: Any, optimizer: Any) -> str | None:
    """Return where the training goes while engines generate: on Ray, its weights always do if they share GPUs."""
    if not is_hybrid:
        return "none"
    if framework is not None and not model and not optimizer:
        return "none"
    return "host" if optimizer and (model or framework is None) else None


def _asleep(is_hybrid: Any, without_ray: Any, on_ray: Any) -> str:
    """Return where engines go while the training runs: vLLM's level 1 keeps the weights on the host."""
    level = on_ray if without_ray is None else without_ray
    if not is_hybrid or not level:
        return "none"
    return "host" if level == 1 else "free"


def _requests(mode: Any, count: int | None) -> int | None:
    """Return the most sequences of an engine; in the processes of the training, ms-swift computes them by default."""
    return _SEQUENCES if count is None and mode is None else count


_HYBRID = fact("is_hybrid")
"""Whether the rollout shares the GPUs of the training (``_is_rollout_hybrid``)."""
_FRAMEWORK = fact("framework")
"""What trains, without Ray."""
_MODE = fact("mode")
"""Where the engines are, without Ray."""
_LEVEL = fact("sleep_level")
"""The level without Ray, where engines do not sleep by default."""
_SEQUENCES = 256
_OFFLOADED = (_trained(switch, "offload_model"), _trained(switch, "offload_optimizer"))
_ADAM = ("adamw_torch", "adamw_torch_fused", "adamw_hf")

_SERVED = (
    setting("share", _served(share, "vllm_gpu_memory_utilization", default=0.9)),
    setting("length", _served(size, "vllm_max_model_len")),
    setting("sequences", _MODE, _served(size, "vllm_max_num_seqs"), by=_requests),
    fixed("usage", "engine"),  # VllmEngine: `from_engine_args`
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
        setting("training", _FRAMEWORK, by=_trains),
        setting("model", _trained(text, "model")),
        (
            setting("length", *_LENGTH, by=convert.added),
            setting("tokens", *_LENGTH, _trained(size, "micro_batch_size", default=1), by=_tokens, only="megatron"),
            setting(
                "tokens",
                *_LENGTH,
                _BATCH,
                by=_tokens,
                only="deepspeed",
            ),
            setting("zero_stage", fact("zero_stage"), only="deepspeed"),
            setting("precision", _trained(text, "torch_dtype"), by=convert.precision, only="deepspeed"),
            setting(
                "precision",
                _trained(anything, "fp8_param_gather"),
                by=lambda fp8: convert.precision("bf16", fp8),
                only="megatron",
            ),
            setting(
                "gradients",
                _trained(switch, "accumulate_allreduce_grads_in_fp32", default=None),
                by=convert.gradients,
                only="megatron",
            ),
            setting(
                "optimizer",
                _trained(text, "optimizer", default="adam"),
                _trained(switch, "use_precision_aware_optimizer"),
                by=convert.optimizer,
                only="megatron",
            ),
            setting(
                "optimizer",
                _trained(text, "optim", default=_ADAM[0]),
                by=lambda name: "adam" if name in _ADAM else EFFECT,
                only="deepspeed",
            ),
            setting(
                "optimizer_on_host",
                _trained(switch, "optimizer_cpu_offload"),
                _trained(number, "optimizer_offload_fraction", default=1.0),
                by=convert.offloaded,
                only="megatron",
            ),
            setting(
                "distributed_optimizer",
                _trained(switch, "use_distributed_optimizer", default=True),
                only="megatron",
            ),
            setting("sequence_parallel", _trained(switch, "sequence_parallel"), only="megatron"),
            setting(
                "recompute",
                _trained(text, "recompute_granularity", default="selective"),
                _trained(text, "recompute_method"),
                _trained(size, "recompute_num_layers"),
                by=convert.granularity,
                only="megatron",
            ),
            setting(
                "recompute",
                _trained(switch, "gradient_checkpointing", default=True),
                by=convert.checkpointed,
                only="deepspeed",
            ),
            setting("first_layers", _trained(size, "decoder_first_pipeline_num_layers"), only="megatron"),
            setting("last_layers", _trained(size, "decoder_last_pipeline_num_layers"), only="megatron"),
            setting("chunks", _trained(size, "virtual_pipeline_model_parallel_size"), only="megatron"),
            setting("lora", _FRAMEWORK, _TUNER, _trained(size, "lora_rank", default=8), by=_adapters),
            setting("sleep", _HYBRID, _FRAMEWORK, *_OFFLOADED, by=_left),
            setting("", _FRAMEWORK, _TUNER, _trained(number, "beta"), by=_reference),
            unless(
                *(_trained(anything, name) for name in ("quant_method", "reward_model", "freeze_parameters_ratio")),
                only="deepspeed",
            ),
            unless(
                *(_trained(anything, name) for name in ("teacher_model", "use_megatron_fsdp", "freeze_parameters")),
                *(_trained(anything, name) for name in ("megatron_extra_kwargs", "fp4_format")),
                *(_trained(anything, name) for name in (*stage_keys(""), *draft_keys(""))),
            ),
        ),
    ),
    Role(
        {keys.ROLLOUT: keys.ROLLOUT},
        setting("engine", _MODE, by=_engine),
        setting("model", _ENGINE_MODEL),
        (*_SERVED, setting("sleep", _HYBRID, _LEVEL, keys.SLEEP_LEVEL, by=_asleep)),
    ),
    Role(
        {keys.TEACHER: keys.TEACHER},
        fixed("engine", {"engine": "vllm"}),
        setting("model", _ENGINE_MODEL),
        (*_SERVED, fixed("sleep", "none")),
    ),
)

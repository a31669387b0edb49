"""TRL f2cd577: `trl/trainer/grpo_config.py`, `model_config.py`, `generation/vllm_generation.py`.

What trains, and DeepSpeed's stage, are facts of accelerate. The reference model and reward models are in the processes
of the trainer, and no setting states that: with them, nothing is said of the trainer.
"""

from __future__ import annotations

from typing import Any

from rankplan.sdk import Role, anything, fact, setting, share, size, switch, text
from rankplan.sdk.memory import convert, fixed, unless
from rankplan.trainers.trl import keys

_MODEL = text("model_name_or_path")
_PROMPT = size("max_prompt_length")
_RESPONSE = size("max_completion_length", default=512)
_ADAM = ("adamw_torch", "adamw_torch_fused", "adamw_hf")
_COLOCATE = fact("mode")


def _tokens(prompt: int | None, response: int | None, batch: int) -> int | None:
    """Return the most tokens of a micro-batch: sequences of full length."""
    length = convert.added(prompt, response)
    return convert.micro_batch(None, None, batch, length)


def _engine(mode: Any) -> Any:
    """Return the kind of an engine in the trainer; what a server keeps is stated by its own command."""
    return convert.serves("vllm") if mode == keys.COLOCATE else None


def _sequences(batch: int, tensor: int, accumulation: int, steps: int | None, whole: int | None) -> int | None:
    """Return the most requests of an engine; those of a whole generation batch depend on the number of processes."""
    if steps is None and whole is not None:
        return None
    return batch * tensor * (steps or accumulation)


def _sleep(enabled: Any) -> str:
    """Return where an engine leaves its weights while the trainer works (``llm.sleep(level=2)``)."""
    return "free" if enabled else "none"


ROLES = (
    Role(
        {"actor": ""},
        setting("training", fact("framework"), by=convert.trains),
        setting("model", _MODEL),
        (
            setting("zero_stage", fact("zero_stage"), only="deepspeed"),
            setting(
                "precision",
                text("dtype", default="float32", fallbacks=("torch_dtype",)),
                by=convert.precision,
                only="fsdp",
            ),
            setting("length", _PROMPT, _RESPONSE, by=convert.added),
            setting("tokens", _PROMPT, _RESPONSE, keys.BATCH, by=_tokens),
            setting("recompute", switch("gradient_checkpointing", default=True), by=convert.checkpointed),
            setting("lora", size("lora_r", default=16), switch("use_peft"), by=convert.adapters),
            setting(
                "optimizer", text("optim", default="adamw_torch"), by=lambda name: "adam" if name in _ADAM else "sgd"
            ),
            unless("beta", "load_in_4bit", "load_in_8bit", "reward_model_name_or_path", "reward_model_path"),
        ),
    ),
    Role(
        {"rollout": ""},
        setting("engine", _COLOCATE, by=_engine),
        setting("model", _MODEL),
        (
            setting("share", share("vllm_gpu_memory_utilization", default=0.3)),
            setting("length", size("vllm_max_model_length")),
            setting(
                "sequences",
                keys.BATCH,
                keys.TENSOR,
                keys.ACCUMULATION,
                keys.STEPS_PER_GENERATION,
                keys.GENERATION_BATCH,
                by=_sequences,
            ),
            fixed("tokens", 4096),  # VLLMGeneration: `max_num_batched_tokens`
            fixed("usage", "llm"),
            setting("sleep", switch("vllm_enable_sleep_mode"), by=_sleep),
            unless(anything("model_init_kwargs")),
        ),
    ),
)

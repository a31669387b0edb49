"""The values that settings usually have where a config leaves them out: a likely value rests on them, and says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from rankplan._core import USUAL_LENGTH, usual_share
from rankplan.memory.settings import Engine, Training


class Usual(NamedTuple):
    """A setting that is not stated, and the value that a likely value assumes for it."""

    setting: str
    value: Any

    def text(self, key: str | None) -> str:
        """Return the assumption with the ``key`` of the config that would state it: ``micro_batch 1 (`mb`)``."""
        if self.setting == UNREAD:
            return f"no effect of {self.value}"
        if self.setting == AS_MEASURED:
            return f"the measured {self.value}"
        value = f"{self.value:,}" if isinstance(self.value, int) else self.value
        return f"{self.setting} {value}" + (f" ({key})" if key else "")


UNREAD = "unread"
"""The setting of keys whose effect is small, and not counted."""
AS_MEASURED = "measured"
"""Stands for a whole phase that was measured."""
RECOMPUTE = {"megatron": "selective", "fsdp": "full", "deepspeed": "full"}
"""Megatron-Bridge's recipes; verl's ``enable_gradient_checkpointing``, OpenRLHF's and SkyRL's examples."""
MICRO_BATCH = 1
"""The recipes that NeMo-RL tests, and the defaults of SkyRL and Megatron-LM."""
ZERO_STAGE = 2
"""OpenRLHF's ``ds.zero_stage``."""

SLEEP = "host"
"""What shares an accelerator with an engine takes turns: every trainer has a switch for it, mostly on."""
RESIDENT = "none"
"""Models that share an accelerator without an engine stay on it, as in OpenRLHF."""
FORWARD_TOKENS = 4096
"""Tokens of a model that only computes: few of its bytes depend on them."""


def usual_training(training: Training) -> tuple[Training, list[Usual]]:
    """Return a trainer's settings with usual values for those that are not stated, and these values."""
    assumed: list[Usual] = []
    computes = training.framework == "forward"
    if training.recompute is None and not computes:
        assumed.append(Usual("recompute", RECOMPUTE[training.framework]))
    if training.zero is None and training.framework == "deepspeed":
        assumed.append(Usual("zero_stage", ZERO_STAGE))
    values: dict[str, Any] = {usual.setting: usual.value for usual in assumed}
    if "zero_stage" in values:
        values["zero"] = values.pop("zero_stage")
    if training.tokens is None and training.length is not None:
        assumed.append(Usual("micro_batch", MICRO_BATCH))
        values["tokens"] = MICRO_BATCH * training.length
    elif training.tokens is None and computes:
        assumed.append(Usual("tokens", FORWARD_TOKENS))
        values["tokens"] = FORWARD_TOKENS
    return replace(training, **values), assumed


def usual_engine(engine: Engine) -> tuple[Engine, list[Usual]]:
    """Return an engine's settings with a usual share and length if none are stated, and these values."""
    is_shared, has_length = engine.cache_size is None, (engine.length or engine.longest) is not None
    assumed = [Usual("share", usual_share(engine.kind))] if engine.share is None and is_shared else []
    if engine.kind == "vllm" and not has_length:
        assumed.append(Usual("length", USUAL_LENGTH))
    return replace(engine, **{usual.setting: usual.value for usual in assumed}), assumed

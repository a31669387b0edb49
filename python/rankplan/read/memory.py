"""What a component needs: the key ``memory`` of an entry, and the keys of the section that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from rankplan._core import MAX_PROCESSES
from rankplan.hardware.policies import MEMORY_POLICIES
from rankplan.memory.settings import ENGINES, FRAMEWORKS, OPTIMIZERS, PRECISIONS, RECOMPUTE, SLEEP
from rankplan.plans.faults import ONE_KIND
from rankplan.plans.memory_settings import LARGEST_COUNT, MemorySettings, unfit
from rankplan.plans.model import LARGEST
from rankplan.read.base import Model, enum_of, one_of
from rankplan.read.simple import size_in
from rankplan.read.sizes import ModelName
from rankplan.read.text.faults import as_pydantic, number
from rankplan.read.text.invalid import THIS
from rankplan.read.text.unresolved import RESOLVE, unresolved
from rankplan.words import must_be, whole_number


def _float(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, str) and not _is_number(value)):
        raise as_pydantic(must_be(THIS, value, "a number", RESOLVE if unresolved(value) else "write a number"))
    return value


def _forward(value: Any) -> Any:
    if not isinstance(value, bool) and value not in FRAMEWORKS:
        allowed = f"true, or one of {', '.join(FRAMEWORKS)}"
        raise as_pydantic(must_be("`forward`", value, allowed, "write `forward: true`"))
    return value


def _is_number(text: str) -> bool:
    """Whether a text is a number; YAML 1.1 reads 7e9 as a text."""
    try:
        return "_" not in text and float(text) == float(text)
    except ValueError:
        return False


_Count = Annotated[int, Field(ge=1, le=LARGEST_COUNT), BeforeValidator(number)]
_Stage = Annotated[int, Field(ge=0, le=3), BeforeValidator(number)]
_Number = Annotated[float, BeforeValidator(_float), Field(allow_inf_nan=False)]


def _resident(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return size_in(value)
    sizes: dict[int, int] = {}
    for accelerators, size in value.items():
        count = whole_number(accelerators)
        if count is None or not 1 <= count <= MAX_PROCESSES:
            raise as_pydantic(must_be(THIS, accelerators, "a number of accelerators", "write {8: 17 GiB, 16: 9 GiB}"))
        sizes[count] = size_in(size)
    return sizes or size_in(None)


_Resident = Annotated[
    int | dict[int, int],
    BeforeValidator(_resident),
    WithJsonSchema({"type": ["string", "integer", "object"], "examples": ["17 GiB", {"8": "17 GiB", "16": "9 GiB"}]}),
]
_Training = Annotated[str, one_of("training", FRAMEWORKS), enum_of(FRAMEWORKS)]
_Forward = Annotated[bool | str, BeforeValidator(_forward), WithJsonSchema({"enum": [True, False, *FRAMEWORKS]})]
_Engine = Annotated[str, one_of("engine", ENGINES), enum_of(ENGINES)]
_Precision = Annotated[str, one_of("precision", PRECISIONS), enum_of(PRECISIONS)]
_Sleep = Annotated[str, one_of("sleep", SLEEP), enum_of(SLEEP)]
_Gradients = Annotated[str, one_of("gradients", ("fp32", "bf16")), enum_of(("fp32", "bf16"))]
_Optimizer = Annotated[str, one_of("optimizer", OPTIMIZERS), enum_of(OPTIMIZERS)]
_Recompute = Annotated[str, one_of("recompute", RECOMPUTE), enum_of(RECOMPUTE)]
_CachePrecision = Annotated[str, one_of("cache_precision", PRECISIONS), enum_of(PRECISIONS)]


class MemoryEntry(Model):
    """What a component keeps in memory, and what decides how much."""

    training: _Training | None = Field(default=None, description="It trains, in this framework.")
    forward: _Forward = Field(
        default=False, description="It only computes: a reference or a reward model; true, or its framework."
    )
    engine: _Engine | None = Field(default=None, description="It serves, with this engine.")
    resident: _Resident | None = Field(
        default=None, description="Measured: what it keeps on each accelerator, also by the number of them."
    )
    model: ModelName | None = Field(default=None, description="Name of a model, or the path of its config.json.")
    params: Annotated[_Number, Field(gt=0, le=LARGEST)] | None = Field(
        default=None, description="Number of parameters, in place of a model."
    )
    precision: _Precision | None = Field(
        default=None, description="Of the weights (trainers: bf16; engines: as in the checkpoint)."
    )
    undivided: bool = Field(
        default=False, description="Sizes that `parallel` leaves out are 1, as in a trainer, rather than unknown."
    )
    sleep: _Sleep | None = Field(
        default=None, description="Where it goes while others have their turn: nowhere (none), to the host, or away."
    )
    length: _Count | None = Field(default=None, description="Tokens of the longest sequence.")
    tokens: _Count | None = Field(default=None, description="The most tokens in a micro-batch, or an engine's step.")
    # trainers, and models that only compute
    micro_batch: _Count | None = Field(default=None, description="Sequences in a micro-batch.")
    optimizer_on_host: Annotated[_Number, Field(ge=0, le=1)] = Field(
        default=0.0, description="Fraction of the optimizer (FSDP: of all states) that stays on the host."
    )
    # trainers
    gradients: _Gradients | None = Field(default=None, description="Of the gradients.")
    optimizer: _Optimizer = Field(default="adam", description="The optimizer.")
    distributed_optimizer: bool | None = Field(default=None, description="Megatron: data ranks divide the optimizer.")
    sequence_parallel: bool | None = Field(default=None, description="Megatron: tensor groups divide norms too.")
    recompute: _Recompute | None = Field(
        default=None, description="Activations that are computed again: none, selective, or full."
    )
    whole_gradients: bool = Field(
        default=False, description="FSDP: gradients stay whole until the last micro-batch of a step."
    )
    zero_stage: _Stage | None = Field(default=None, description="DeepSpeed: its stage.")
    lora: _Count | None = Field(default=None, description="Rank of the adapters; the model itself is frozen.")
    first_layers: _Count | None = Field(default=None, description="Layers of the first pipeline stage.")
    last_layers: _Count | None = Field(default=None, description="Layers of the last pipeline stage.")
    chunks: _Count = Field(default=1, description="Model chunks of a pipeline rank (virtual stages).")
    # engines
    share: Annotated[_Number, Field(gt=0, le=1)] | None = Field(
        default=None, description="Its share of an accelerator: gpu_memory_utilization, mem_fraction_static."
    )
    cache_precision: _CachePrecision = Field(default="bf16", description="Of the cache.")
    graphs: bool | None = Field(default=None, description="Whether it captures graphs (false: enforce_eager).")
    sequences: _Count | None = Field(default=None, description="The most requests at once.")

    def value(self) -> MemorySettings:
        """Return the settings as plain data."""
        return MemorySettings(**{name: getattr(self, name) for name in type(self).model_fields})

    @model_validator(mode="before")
    @classmethod
    def _mapping(cls, value: Any) -> Any:
        if not isinstance(value, (Mapping, MemoryEntry)):
            help = f"write `memory_binding: {value}`" if value in MEMORY_POLICIES else ONE_KIND
            raise as_pydantic(must_be("`memory`", value, "a mapping", help))
        return value

    @model_validator(mode="after")
    def _fitting(self) -> MemoryEntry:
        stated = {key: getattr(self, key) for key in self.model_fields_set}
        for path, fault in unfit(stated, self.value()):
            raise as_pydantic(fault, path)
        return self

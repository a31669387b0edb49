"""The models of a costs file such as ``costs.yaml``, and of a profile: their keys, and the faults of single values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rankplan._core import MAX_PROCESSES
from rankplan.errors import Diagnostic, KeyPath
from rankplan.parallel import Parallel
from rankplan.read.base import Model
from rankplan.read.parallel import read_parallel
from rankplan.read.text.faults import diagnostics, fault
from rankplan.read.text.reader import Reader
from rankplan.read.text.unresolved import RESOLVE, unresolved
from rankplan.tuning.async_terms import Rule
from rankplan.words import as_int, listed, shown, whole_number

_ITSELF, _VALUE = "{itself}", "{value}"
"""Stand in a message for the key of the value, and for the value."""

SHAPES = ("disaggregated", "collocated", "hybrid")
"""Which components share accelerators: none, all, or some."""

TIMES = "write seconds by number of accelerators, e.g. {8: 120, 16: 64}"
_LIST = "write a list such as [1, 2, 4, 8]"
_NUMBER = "write a number such as 12.5"
_AT_LEAST_0 = "be a number of 0 or more"
_LEAVE_OUT = "write sharing: [disaggregated, collocated] to leave out hybrid placements"

_Parallel = Annotated[Parallel, BeforeValidator(read_parallel)]

_Model = TypeVar("_Model", bound=BaseModel)


def _error(message: str, value: Any, help: str) -> PydanticCustomError:
    return fault("invalid-value", message.replace(_VALUE, shown(value)), help)


def _valid(read: Callable[[Any], Any], message: str, help: str) -> BeforeValidator:
    """Return the validator that gives the result of ``read``; values for which that is ``None`` are invalid."""

    def check(value: Any) -> Any:
        if (found := read(value)) is None:
            raise _error(message, value, help)
        return found

    return BeforeValidator(check)


def _rule(rule: str) -> str:
    return f"`{_ITSELF}` is {_VALUE}; it must {rule}"


def _must(read: Callable[[Any], Any], rule: str, help: str) -> BeforeValidator:
    return _valid(read, _rule(rule), help)


def _number(value: Any) -> float | None:
    """Return a finite number of 0 or more as a float, ``None`` for anything else."""
    try:
        number = -1.0 if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        return None
    return number if 0 <= number < math.inf else None


def _above_0(value: Any) -> float | None:
    return _number(value) or None


def _whole(value: Any) -> int:
    number = as_int(value)
    if number is None or number < 1:
        help = "remove the quotes" if isinstance(value, str) and value.isdecimal() else "write a number such as 1"
        raise _error(_rule("be a whole number of 1 or more"), value, RESOLVE if unresolved(value) else help)
    if number > MAX_PROCESSES:
        raise _error(_rule(f"be {MAX_PROCESSES} or less"), number, f"use {MAX_PROCESSES} or less")
    return number


def _item(value: Any) -> int | None:
    number = as_int(value)
    return number if number is not None and number >= 1 else None


def _key(most: float) -> Callable[[Any], int | None]:
    """Return the reader of whole numbers from 1, which may be texts."""
    return lambda value: number if (number := whole_number(value)) is not None and 1 <= number <= most else None


def _mapping(value: Any) -> Mapping[Any, Any] | None:
    return value if isinstance(value, Mapping) else None


def _listed(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) and value else None


def _mode(value: Any) -> Any:
    return value if value in ("sync", "async") else None


def _texts(value: Any) -> list[str] | None:
    """Return a text or a list of texts as a list, ``None`` for anything else."""
    texts = [value] if isinstance(value, str) else value
    return texts if isinstance(texts, list) and all(isinstance(text, str) for text in texts) else None


def _shapes(value: Any) -> list[str] | None:
    shapes = _texts(value) or []
    return shapes if shapes and set(shapes) <= {*SHAPES} else None


def _sizes(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if value in ("any", "measured"):
        return None if value == "any" else value
    if isinstance(value, str):
        raise _error(_rule("be measured, any, or a list of numbers"), value, "write sizes: measured")
    return handler(value)


def _memory(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, Mapping):
        return handler(value)
    if (number := _number(value)) is None:
        raise _error(_rule(_AT_LEAST_0), value, _NUMBER)
    return {0: number}


def validated(
    model: type[_Model], content: Any, path: KeyPath, add: Callable[[KeyPath, Diagnostic], None]
) -> _Model | None:
    """Return the content at a path as a model, ``None`` if it has faults, which are added with their paths."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        for where, found in diagnostics(error, {"": model}, path):
            add(where, replace(found, message=found.message.replace(_ITSELF, str(where[-1]) if where else "")))
        return None


def plain(reader: Reader, value: Any, path: KeyPath) -> Any:
    """Return mappings and sequences of any type as dicts with texts as keys, and lists; ``path`` is in the config."""
    if isinstance(value, Mapping):
        return {str(key): plain(reader, reader.value(value, key, path), (*path, str(key))) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(reader, item, (*path, index)) for index, item in enumerate(value)]
    return value


def _bool(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _level(value: Any) -> float:
    """Return a staleness: a finite number of 0 or more."""
    if (number := _number(value)) is None:
        message = f"the staleness is {shown(value)}; it must be a number of 0 or more"
        raise fault("bad-staleness", message, "write the batches that generation may run ahead, such as 0.5")
    return number


def _levels(value: Any) -> list[float]:
    """Return one staleness or several as a list."""
    values = value if isinstance(value, list) and value else [value]
    return sorted({_level(item) for item in values})


def _rule_of(value: Any) -> Rule:
    rules = [rule.value for rule in Rule]
    if value not in rules:
        raise fault("bad-rule", f"the rule is {shown(value)}; it must be {listed(rules)}", _RULE_HELP)
    return Rule(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _error(_rule("be true or false"), value, "write lend: true for a run whose trainer lends")
    return value


_RULE_HELP = "write partial if responses are interrupted for new weights, batch if a whole batch is generated ahead"

_WHOLE_RUN_HELP = "write whole_run: true if other components had their turns on the accelerator meanwhile"

_Whole = Annotated[int, BeforeValidator(_whole)]
_Item = Annotated[int, _valid(_item, f"{_VALUE} is not a whole number of 1 or more", _LIST)]
_Items = Annotated[list[_Item], _must(_listed, "be a list of whole numbers", _LIST)]
_Number = Annotated[float | None, _must(_number, _AT_LEAST_0, _NUMBER)]  # rejects null; a missing key gives None
_Above0 = Annotated[float, _must(_above_0, "be a number above 0", _NUMBER)]
_Size = Annotated[int, _valid(_key(MAX_PROCESSES), f"{_VALUE} is not a number of accelerators", TIMES)]
_Times = Annotated[dict[_Size, _Above0], _must(_mapping, "map numbers to seconds", TIMES)]
_Sizes = Annotated[_Items | None, WrapValidator(_sizes)]
_Text = Annotated[str, BeforeValidator(str)]
_Mode = Annotated[str, _must(_mode, "be sync or async", "write mode: async if iterations overlap")]
_Before = Annotated[list[str], _must(_texts, f"be the components before `{_ITSELF}`", "write a list such as [rollout]")]
_Sharing = Annotated[list[str], _must(_shapes, f"be some of {', '.join(SHAPES)}", _LEAVE_OUT)]
_Load = Annotated[int, _valid(_key(math.inf), f"{_VALUE} is not a number of environments", "write 1 or more")]
_Cost = Annotated[float, _must(_above_0, "be a number of seconds above 0", _NUMBER)]


class PeakModel(Model):
    """An entry of ``peak``, as a run writes it; see `rankplan.memory.peaks.Peak`."""

    call: _Text
    accelerators: _Item
    reserved: _Item | None = None
    allocated: _Item | None = None
    used: _Item | None = None
    of: _Item | None = None
    parallel: dict[str, Any] | None = None
    memory: dict[str, Any] | None = None
    length: _Item | None = None
    beside: dict[_Text, _Item] | None = None
    whole_run: Annotated[bool, _must(_bool, "be true or false", _WHOLE_RUN_HELP)] = False

    @model_validator(mode="after")
    def _has_bytes(self) -> PeakModel:
        if self.reserved is None and self.used is None:
            raise fault("missing-key", "a peak has neither `reserved` nor `used`", "write the bytes that were measured")
        return self


class ComponentModel(Model):
    """An entry of ``components``; see `rankplan.ComponentCosts`."""

    seconds: _Times | None = None
    seconds_by_environments: _Times | None = None
    parallel: _Parallel | None = None
    dp: _Items | None = None
    sizes: _Sizes = None
    memory: Annotated[dict[_Size, _Above0], WrapValidator(_memory)] = Field(default_factory=dict)
    switch: _Number = None
    peak: list[PeakModel] = Field(default_factory=list)
    runs_with: _Text | None = Field(default=None, alias="with")


class SyncModel(Model):
    """An entry of ``sync``: weights that a component sends to another once an iteration."""

    sender: Any = Field(default=None, alias="from")
    to: Any = None
    bytes: _Number = None


class LendModel(Model):
    """The ``lend`` of a costs file; see `rankplan.tuning.costs.Lend`."""

    trainer: _Text | None = Field(default=None, alias="from")
    rollout: _Text | None = Field(default=None, alias="to")
    switch: _Number = None
    speed: _Above0 | None = None
    ahead: _Number = None


class AsyncModel(Model):
    """The ``async`` of a costs file; see `rankplan.tuning.async_terms.AsyncTerms`."""

    staleness: Annotated[list[float] | None, BeforeValidator(_levels)] = None
    rule: Annotated[Rule | None, BeforeValidator(_rule_of)] = None
    samples: _Whole | None = None
    mean: _Above0 | None = None
    max: _Above0 | None = None
    sync: _Number = None
    switch: _Number = None


class RunModel(Model):
    """An entry of ``runs``; `run_model` adds the two keys that are named like the components."""

    cards: _Whole | None = None
    step: _Above0 | None = None
    staleness: Annotated[float | None, BeforeValidator(_level)] = None
    wait: _Number = None
    train: _Number = None
    lend: Annotated[bool, BeforeValidator(_flag)] = False
    trainer: _Above0 | None = None
    rollout: _Above0 | None = None


def run_model(trainer: str, rollout: str) -> type[RunModel]:
    """Return the model of a run of these components: their accelerators, or their seconds if they are colocated."""
    number: Any = Annotated[float | None, _must(_above_0, "be a number above 0", _NUMBER)]
    keys: dict[str, Any] = {"trainer": (number, Field(default=None, alias=trainer))}
    keys["rollout"] = (number, Field(default=None, alias=rollout))
    return create_model("RunOf", __base__=RunModel, **keys)


class ProfileModel(BaseModel):
    """RLinf's ``profile_data``: seconds on all accelerators of a component, or by environments of an instance."""

    rollout_cost: _Cost | None = None
    inference_cost: _Cost | None = None
    actor_cost: _Cost | None = None
    env_profile_data: dict[_Load, _Cost] | None = None
    rollout_profile_data: dict[_Load, _Cost] | None = None


class CostsModel(Model):
    """A costs file; see `rankplan.Costs`. Its components and transfers have models of their own."""

    batches: _Whole | None = None
    mode: _Mode | None = None
    after: dict[_Text, _Before] | None = None
    components: Any = None
    sharing: _Sharing | None = None
    memory: _Number = None
    unit: _Whole | None = None
    environments: _Whole | None = None
    sizes: _Sizes = None
    sync: Any = None
    bandwidth: dict[_Text, _Above0] | None = None
    lend: LendModel | None = None
    asynchronous: Any = Field(default=None, alias="async")
    runs: Any = None

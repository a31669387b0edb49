"""The models of a costs file such as ``costs.yaml``, and of a profile: their keys, and the faults of single values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from rankplan._core import MAX_PROCESSES
from rankplan.config.base import Model
from rankplan.config.parallel import ParallelEntry
from rankplan.config.text.faults import RESOLVE, KeyPath, diagnostics, fault, unresolved
from rankplan.config.text.reader import Reader
from rankplan.errors import Diagnostic
from rankplan.words import as_int, shown, whole_number

_ITSELF = "{itself}"
"""Stands in a message for the key of the value."""

SHAPES = ("disaggregated", "collocated", "hybrid")
"""Which components share accelerators: none, all, or some."""

TIMES = "write seconds by number of accelerators, e.g. {8: 120, 16: 64}"
_LIST = "write a list such as [1, 2, 4, 8]"
_NUMBER = "write a number such as 12.5"


_Model = TypeVar("_Model", bound=BaseModel)


def _must(value: Any, rule: str, help: str) -> PydanticCustomError:
    return fault("invalid-value", f"`{_ITSELF}` is {shown(value)}; it must {rule}", help)


def _whole(value: Any) -> int:
    number = as_int(value)
    if number is None or number < 1:
        help = "remove the quotes" if isinstance(value, str) and value.isdecimal() else "write a number such as 1"
        raise _must(value, "be a whole number of 1 or more", RESOLVE if unresolved(value) else help)
    if number > MAX_PROCESSES:
        raise _must(number, f"be {MAX_PROCESSES} or less", f"use {MAX_PROCESSES} or less")
    return number


def _item(value: Any) -> int:
    number = as_int(value)
    if number is None or number < 1:
        raise fault("invalid-value", f"{shown(value)} is not a whole number of 1 or more", _LIST)
    return number


def _items(value: Any) -> Any:
    if not isinstance(value, list) or not value:
        raise _must(value, "be a list of whole numbers", _LIST)
    return value


def _finite(value: Any) -> float:
    """Return a number as a float; -1 for one that is not finite, and for anything else."""
    try:
        number = -1.0 if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        return -1.0
    return number if math.isfinite(number) else -1.0


def _number(value: Any) -> float:
    if (number := _finite(value)) < 0:
        raise _must(value, "be a number of 0 or more", _NUMBER)
    return number


def _above_0(value: Any) -> float:
    if (number := _finite(value)) <= 0:
        raise _must(value, "be a number above 0", _NUMBER)
    return number


def _size(value: Any) -> int:
    number = whole_number(value)
    if number is None or not 1 <= number <= MAX_PROCESSES:
        raise fault("invalid-value", f"{shown(value)} is not a number of accelerators", TIMES)
    return number


def _points(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise _must(value, "map numbers to seconds", TIMES)
    return value


def _memory(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    return handler(value) if isinstance(value, Mapping) else {0: _number(value)}


def _sizes(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if value in ("any", "measured"):
        return None if value == "any" else value
    if isinstance(value, str):
        raise _must(value, "be measured, any, or a list of numbers", "write sizes: measured")
    return handler(value)


def _mode(value: Any) -> Any:
    if value not in (None, "sync", "async"):
        raise _must(value, "be sync or async", "write mode: async if iterations overlap")
    return value


def _sharing(value: Any) -> Any:
    chosen = [value] if isinstance(value, str) else value
    if not isinstance(chosen, list) or not chosen or not all(one in SHAPES for one in chosen):
        help = "write sharing: [disaggregated, collocated] to leave out hybrid placements"
        raise _must(value, f"be some of {', '.join(SHAPES)}", help)
    return chosen


def _before(value: Any) -> Any:
    before = [value] if isinstance(value, str) else value
    if not isinstance(before, list) or not all(isinstance(one, str) for one in before):
        raise _must(value, f"be the components before `{_ITSELF}`", "write a list such as [rollout]")
    return before


def validated(
    model: type[_Model], content: Any, path: KeyPath, add: Callable[[KeyPath, Diagnostic], None]
) -> _Model | None:
    """Return the content at a path as a model, ``None`` if it has faults, which are added with their paths."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        for where, found in diagnostics(error, {"": model, "parallel": ParallelEntry}, path):
            add(where, replace(found, message=found.message.replace(_ITSELF, str(where[-1]) if where else "")))
        return None


def plain(reader: Reader, value: Any, path: KeyPath) -> Any:
    """Return mappings and sequences of any type as dicts with texts as keys, and lists; ``path`` is in the config."""
    if isinstance(value, Mapping):
        return {str(key): plain(reader, reader.value(value, key, path), (*path, str(key))) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(reader, item, (*path, index)) for index, item in enumerate(value)]
    return value


_Whole = Annotated[int, BeforeValidator(_whole)]
_Items = Annotated[list[Annotated[int, BeforeValidator(_item)]], BeforeValidator(_items)]
_Number = Annotated[float | None, BeforeValidator(_number)]  # null is no number; a missing key has none
_Above0 = Annotated[float, BeforeValidator(_above_0)]
_Points = dict[Annotated[int, BeforeValidator(_size)], _Above0]
_Times = Annotated[_Points, BeforeValidator(_points)]
_Sizes = Annotated[_Items | None, WrapValidator(_sizes)]
_Text = Annotated[str, BeforeValidator(str)]


class ComponentModel(Model):
    """An entry of ``components``; see `rankplan.ComponentCosts`."""

    seconds: _Times | None = None
    seconds_by_environments: _Times | None = None
    parallel: ParallelEntry | None = None
    dp: _Items | None = None
    sizes: _Sizes = None
    memory: Annotated[_Points, WrapValidator(_memory)] = Field(default_factory=dict)
    switch: _Number = None
    runs_with: _Text | None = Field(default=None, alias="with")


class SyncModel(Model):
    """An entry of ``sync``: weights that a component sends to another once an iteration."""

    sender: Any = Field(default=None, alias="from")
    to: Any = None
    bytes: _Number = None


def _load(value: Any) -> int:
    number = whole_number(value)
    if number is None or number < 1:
        raise fault("invalid-value", f"{shown(value)} is not a number of environments", "write 1 or more")
    return number


def _cost(value: Any) -> float:
    if (number := _finite(value)) <= 0:
        raise _must(value, "be a number of seconds above 0", _NUMBER)
    return number


_Cost = Annotated[float, BeforeValidator(_cost)]
_ByLoad = dict[Annotated[int, BeforeValidator(_load)], _Cost]


class ProfileModel(BaseModel):
    """RLinf's ``profile_data``: seconds on all accelerators of a component, or by environments of an instance."""

    rollout_cost: _Cost | None = None
    inference_cost: _Cost | None = None
    actor_cost: _Cost | None = None
    env_profile_data: _ByLoad | None = None
    rollout_profile_data: _ByLoad | None = None


class CostsModel(Model):
    """A costs file; see `rankplan.Costs`. Its components and transfers have models of their own."""

    batches: _Whole | None = None
    mode: Annotated[str | None, BeforeValidator(_mode)] = None
    after: dict[_Text, Annotated[list[str], BeforeValidator(_before)]] | None = None
    components: Any = None
    sharing: Annotated[list[str], BeforeValidator(_sharing)] | None = None
    memory: _Number = None
    unit: _Whole | None = None
    environments: _Whole | None = None
    sizes: _Sizes = None
    sync: Any = None
    bandwidth: dict[_Text, _Above0] | None = None

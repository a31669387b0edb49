"""The errors of RLinf's classes, whose users catch ``AssertionError``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from rankplan.errors import PlacementError, ResourceOutOfRangeError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class RlinfPlacementError(PlacementError, AssertionError):
    """A ``PlacementError`` of RLinf's classes: RLinf checks placements with ``assert``."""


class RlinfOutOfRangeError(ResourceOutOfRangeError, RlinfPlacementError):
    """A ``ResourceOutOfRangeError`` of RLinf's classes."""


def as_assertion(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return a function that raises its `PlacementError` as one that is an ``AssertionError``, too."""

    @wraps(function)
    def converted(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
        try:
            return function(*arguments, **keywords)
        except RlinfPlacementError:
            raise
        except PlacementError as error:
            kind = RlinfOutOfRangeError if isinstance(error, ResourceOutOfRangeError) else RlinfPlacementError
            raise kind(error.diagnostics).with_traceback(error.__traceback__) from error.__cause__

    return converted

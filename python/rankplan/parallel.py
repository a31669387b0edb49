"""Sizes of the parallel groups of a component, and the order of its slots."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, ClassVar

from rankplan._core import MAX_PROCESSES
from rankplan.errors import Diagnostic, Label, PlacementError
from rankplan.frozen import frozen
from rankplan.words import as_int, must_be, shown

MEGATRON = {
    "tp": ("tensor_model_parallel_size",),
    "cp": ("context_parallel_size",),
    "ep": ("expert_model_parallel_size",),
    "etp": ("expert_tensor_parallel_size",),
    "pp": ("pipeline_model_parallel_size",),
}
"""Megatron's keys of parallel sizes."""

KINDS = ("tp", "cp", "dp", "pp", "etp", "ep", "edp", "fsdp", "replica")
"""Every kind of parallel group, as `Component.groups` takes it."""

SIZE = r"\b(etp|ep|edp|tp|cp|dp|pp|fsdp)\b(?: ([0-9]+))?"
"""A kind of parallel group in a message, with its size."""

_LETTERS = {"d": "dp", "t": "tp", "p": "pp", "c": "cp", "e": "ep"}
_TOKEN = r"(?P<letters>[A-Za-z]+)\s*(?P<digits>[0-9]*)|[^A-Za-z\s]+"
_COMPACT = "write sizes such as d4t2p1: d (data), t (tensor), p (pipeline), c (context), e (expert)"


@frozen(repr=False)
class Parallel:
    """Sizes of parallel groups: tensor, context, expert, expert-tensor, pipeline, data, and shards of data groups.

    ``dp`` follows from the other sizes and the number of slots; a stated ``dp`` must agree. ``fsdp`` is the number of
    consecutive members of a data group that shard the parameters. ``order`` names the kinds, fastest first. ``etp``
    takes the place of ``tp`` for experts, and expert-data (``edp``) that of ``dp``.

    Raises `PlacementError` (``invalid-value``) for a size that is not a whole number of 1 or more, or a bad order.
    """

    ORDER: ClassVar[str] = "tp-cp-ep-dp-pp"
    """The usual ``order``, that of Megatron-LM's ``parallel_state.initialize_model_parallel``."""
    ENGINE_ORDER: ClassVar[str] = "tp-cp-ep-pp-dp"
    """The ``order`` of inference engines: the slots of an engine are consecutive."""

    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    pp: int = 1
    dp: int | None = None
    fsdp: int = 1
    order: str = ORDER

    def __post_init__(self) -> None:
        faults = []
        for field in fields(self)[:-1]:
            value = getattr(self, field.name)
            size = as_int(value)
            if size is not None and 1 <= size <= MAX_PROCESSES:
                object.__setattr__(self, field.name, size)
            elif not (value is None and field.name == "dp"):
                faults.append(must_be((field.name,), value, "a whole number of 1 or more", f"use 1 to {MAX_PROCESSES}"))
        if (fault := order_fault(self.order)) is not None:
            faults.append(fault)
        if faults:
            raise PlacementError(faults)

    @classmethod
    def parse(cls, text: str) -> Parallel:
        """Read a compact text such as ``d4t2p1``: the letters d, t, p, c and e, each with a size, in any order.

        AReaL: ``ModelAllocation.from_str``.

        Raises `PlacementError` (``invalid-value``) with every fault and its place in the text.
        """
        sizes, faults = _sizes(text)
        if faults:
            raise PlacementError(faults)
        return cls(**sizes)  # type: ignore[arg-type]  # the keys are sizes; `order` is none of them

    @property
    def dense(self) -> int:
        """The slots of a replica: ``tp * cp * pp``."""
        return self.tp * self.cp * self.pp

    @property
    def expert(self) -> int:
        """The slots of a replica of the experts: ``etp * ep * pp``."""
        return self.etp * self.ep * self.pp

    def breaking(self, slots: int) -> str | None:
        """Return the first size by which the slots cannot be divided further, ``None`` if all replicas fit."""
        for kinds in (("tp", "cp", "pp"), ("etp", "ep", "pp")):
            product = 1
            for kind in kinds:
                product *= getattr(self, kind)
                if slots % product:
                    return kind
        return None

    @property
    def stated(self) -> bool:
        """Whether any size is stated."""
        sizes = self.tp, self.cp, self.ep, self.etp, self.pp, self.dp, self.fsdp
        return sizes != (1, 1, 1, 1, 1, None, 1)

    def plain(self) -> dict[str, Any]:
        """Return the fields that are not the usual ones, by name."""
        stated = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                stated[field.name] = value
        return stated

    def __str__(self) -> str:
        sizes = ((field.name, getattr(self, field.name)) for field in fields(self)[:-1])
        return " x ".join(f"{name} {size}" for name, size in sizes if size not in (1, None)) or "no sizes"

    def __repr__(self) -> str:
        stated = [f"{name}={value!r}" for name, value in self.plain().items()]
        return f"Parallel({', '.join(stated)})"


def order_fault(order: Any) -> Diagnostic | None:
    """Return the fault of an order that does not name each kind once, or ``None``."""
    names = order.split("-") if isinstance(order, str) else []
    known = Parallel.ORDER.split("-")
    if sorted(names) == sorted(known):
        return None
    message = f"`order` is {shown(order)}; it must name tp, cp, ep, dp and pp once each, fastest first"
    missing = [name for name in known if name not in names]
    help = (
        f"add {', '.join(missing)}" if 0 < len(missing) < 5 and set(names) < set(known) else f"write {Parallel.ORDER}"
    )
    return Diagnostic("invalid-value", message, help)


def _sizes(text: str) -> tuple[dict[str, int], list[Diagnostic]]:
    sizes: dict[str, int] = {}
    faults: list[Diagnostic] = []

    def fault(start: int, end: int, message: str, help: str = _COMPACT) -> None:
        faults.append(Diagnostic("invalid-value", message, help, (Label(start, end),), text))

    tokens = list(re.finditer(_TOKEN, text))
    if not tokens:
        fault(0, len(text), "the text has no size")
    for token in tokens:
        letters, digits = token["letters"], token["digits"]
        name = _LETTERS.get(letters)
        if letter := next((letter for letter, name in _LETTERS.items() if name == letters), None):
            fault(*token.span(), f"unknown size `{letters}`", f"write {letter}{digits}")
        elif name is None:
            found = f"unknown size `{letters}`" if letters else f"{shown(token[0])} is not a letter and a size"
            fault(*token.span(), found)
        elif not digits:
            fault(*token.span("letters"), f"`{letters}` has no size", f"write {letters}1, or remove it")
        elif digits.startswith("0") or int(digits[:9]) > MAX_PROCESSES:
            message = f"`{letters}` is {digits[:9]}; it must be 1 to {MAX_PROCESSES}, without a leading zero"
            fault(*token.span("digits"), message, "use 1 or more")
        elif name in sizes:
            fault(*token.span(), f"`{letters}` is given twice", "remove one of the two")
        else:
            sizes[name] = int(digits)
    return sizes, faults


NO_SIZES = Parallel()
"""No group but the data group of all slots."""

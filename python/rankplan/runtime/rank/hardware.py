"""The configured hardware of a process, such as robots, as the registered models read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import ValidationError

from rankplan._core import Placement
from rankplan.errors import refusal
from rankplan.nodes.inventory import Inventory
from rankplan.read.hardware import HardwareConfig, hardware_model
from rankplan.read.text.faults import diagnostics


def hardware_of(inventory: Inventory, placement: Placement) -> list[HardwareConfig]:
    """Return the hardware of a process, in the order of its ``local_hardware_ranks``; empty without any.

    Raises `PlacementError` if a model that was registered after the config was read rejects a piece.
    """
    group = inventory.group(placement.node_group_label)
    if group is None or group.hardware is None or placement.resource_type != group.hardware.type:
        return []
    model = hardware_model(group.hardware.type)
    pieces = group.hardware.on(placement.cluster_node_rank)
    try:
        return [model.model_validate(pieces[index].plain()) for index in placement.local_hardware_ranks]
    except ValidationError as error:
        raise refusal([found for _, found in diagnostics(error, {"": model})]) from None


def on_node(
    pieces: Iterable[HardwareConfig], indices: Iterable[int], environment: Mapping[str, str]
) -> tuple[HardwareConfig, ...]:
    """Return the pieces of a rank with the facts that only its node knows; ``indices`` are their local indices."""
    return tuple(piece.on_node(environment, index) for piece, index in zip(pieces, indices, strict=False))

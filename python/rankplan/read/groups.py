"""Pieces of hardware whose type has a model of its own: what the model finds wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rankplan.nodes.group_rules import Fault
from rankplan.nodes.groups import GroupHardware, NodeGroup


def piece_faults(groups: Mapping[int, NodeGroup]) -> Iterator[Fault]:
    """Yield the faults of the pieces of each node group, by its index in the list."""
    for index, group in groups.items():
        if group.hardware is not None and group.hardware.pieces:
            for path, fault in _faults_of(group.hardware):
                yield (index, "hardware", "configs", *path), fault


def _faults_of(hardware: GroupHardware) -> Iterator[Fault]:
    from pydantic import ValidationError

    from rankplan.read.hardware import hardware_model
    from rankplan.read.text.faults import diagnostics

    model = hardware_model(hardware.type)
    for index, piece in enumerate(hardware.pieces or ()):
        try:
            model.model_validate(piece.plain())
        except ValidationError as error:
            yield from diagnostics(error, {"": model}, (index,))

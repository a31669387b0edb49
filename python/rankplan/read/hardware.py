"""Hardware that a config declares: robots, and other types that a trainer registers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from rankplan.errors import Diagnostic, PlacementError
from rankplan.hardware.types import HARDWARE_TYPES
from rankplan.nodes.groups import NodeGroup
from rankplan.read.text.faults import fault, number
from rankplan.words import counted, nearest

NodeRank = Annotated[int, BeforeValidator(number), Field(ge=0)]


class HardwareConfig(BaseModel):
    """One piece of hardware. Unregistered types keep all their fields as written."""

    model_config = ConfigDict(extra="allow", frozen=True)

    node_rank: NodeRank

    @model_validator(mode="before")
    @classmethod
    def _plain_values(cls, value: Any) -> Any:
        """Reject values that a saved plan cannot restore."""
        try:
            kept = json.loads(json.dumps(value, allow_nan=False)) == value
        except (TypeError, ValueError, RecursionError):
            kept = False
        if isinstance(value, dict) and not kept:
            message = "a hardware config contains values other than text, numbers and lists"
            raise fault("invalid-value", message, "write plain values")
        return value

    def on_node(self, environment: Mapping[str, str], index: int) -> HardwareConfig:
        """Return the piece with the facts that only its node knows.

        Called in each rank that uses it, before the worker starts.

        ``environment`` is that of the rank; ``index`` counts the pieces of this type on the node. Override it to fill
        in fields; an exception ends the launch.
        """
        return self


ROBOT_IP = "ROBOT_IP"
"""The variable with the addresses of a node's robots, separated by commas."""


class Franka(HardwareConfig):
    """A Franka arm: its address, its cameras and its gripper.

    Without ``robot_ip``, the address comes from the variable ``ROBOT_IP`` of the rank: set it on the node before
    ``ray start``, or in ``env_vars``. On a node with several robots, separate their addresses by commas.
    """

    model_config = ConfigDict(coerce_numbers_to_str=True)

    robot_ip: str | None = None
    camera_serials: tuple[str, ...] | None = None
    camera_type: str | None = None
    gripper_type: str | None = None
    gripper_connection: str | None = None
    controller_node_rank: NodeRank | None = None
    disable_validate: bool = False

    @model_validator(mode="before")
    @classmethod
    def _spelt_right(cls, value: Any) -> Any:
        """Reject a typo of ``robot_ip``, which would pass as a field of its own."""
        others = [] if not isinstance(value, dict) or "robot_ip" in value else value.keys() - cls.model_fields.keys()
        if (near := nearest("robot_ip", map(str, others), 0.8)) is not None:
            raise fault("missing-key", "`robot_ip` is missing", f"rename `{near}` to `robot_ip`")
        return value

    def on_node(self, environment: Mapping[str, str], index: int) -> HardwareConfig:
        """Return the robot with its address. Raises `PlacementError` (``missing-key``) if its address is unknown."""
        if self.robot_ip is not None:
            return self
        addresses = [text.strip() for text in environment.get(ROBOT_IP, "").split(",") if text.strip()]
        if index >= len(addresses):
            raise PlacementError([_robot_without_address(self.node_rank, index, len(addresses))])
        return self.model_copy(update={"robot_ip": addresses[index]})


def _robot_without_address(node_rank: int, index: int, addresses: int) -> Diagnostic:
    found = f"{ROBOT_IP} has {counted(addresses, 'address', 'addresses')}" if addresses else f"{ROBOT_IP} is not set"
    message = f"robot {index} of node {node_rank} has no `robot_ip`, and {found}"
    help = f"write robot_ip, or set {ROBOT_IP} on the node before `ray start`, one address per robot"
    return Diagnostic("missing-key", message, help)


_MODELS: dict[str, type[HardwareConfig]] = {"Franka": Franka}


def register_hardware(hardware_type: str, model: type[HardwareConfig]) -> None:
    """Validate the configs of ``hardware: {type: hardware_type}`` with ``model``, a subclass of `HardwareConfig`.

    Workers receive instances of it as ``self.hardware``. Registering a type again replaces its model.
    Raises ``TypeError`` if ``model`` is not a subclass of `HardwareConfig`.
    """
    if not (isinstance(model, type) and issubclass(model, HardwareConfig)):
        raise TypeError(f"{model!r} is not a subclass of rankplan.HardwareConfig")
    _MODELS[hardware_type] = model
    if hardware_type not in HARDWARE_TYPES:
        HARDWARE_TYPES.append(hardware_type)


def hardware_model(hardware_type: Any) -> type[HardwareConfig]:
    """Return the model of a type; unregistered types allow any field."""
    return _MODELS.get(hardware_type, HardwareConfig) if isinstance(hardware_type, str) else HardwareConfig


def _text(value: Any) -> str | list[str] | None:
    """Return a text, a list of texts, or ``None`` for anything else."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return list(value)
    return value if isinstance(value, str) else None


def with_texts_as_written(group: NodeGroup, stated: Mapping[str, Any]) -> NodeGroup:
    """Return a node group whose hardware has the texts that its entry states.

    Fields that the registered model reads as text stay as written: a saved serial 0322 must not become 322.
    """
    hardware = group.hardware
    if hardware is None or not hardware.pieces:
        return group
    model = hardware_model(hardware.type)
    pieces = []
    for piece, config in zip(hardware.pieces, stated["hardware"]["configs"], strict=True):
        fields = dict(piece.fields)
        with suppress(ValidationError):
            read = model.model_validate(config).model_dump(include=set(fields))
            texts = {key: _text(value) for key, value in read.items()}
            fields |= {key: text for key, text in texts.items() if text is not None}
        pieces.append(replace(piece, fields=fields))
    return replace(group, hardware=replace(hardware, pieces=tuple(pieces)))

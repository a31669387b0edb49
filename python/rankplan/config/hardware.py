"""Hardware that a config declares: robots, and other types that a trainer registers."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from rankplan.config.faults import fault, number

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


class Franka(HardwareConfig):
    """A Franka arm: its address, its cameras and its gripper."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    robot_ip: str
    camera_serials: tuple[str, ...] | None = None
    camera_type: str | None = None
    gripper_type: str | None = None
    gripper_connection: str | None = None
    controller_node_rank: NodeRank | None = None
    disable_validate: bool = False


_MODELS: dict[str, type[HardwareConfig]] = {"Franka": Franka}


def register_hardware(hardware_type: str, model: type[HardwareConfig]) -> None:
    """Validate the configs of ``hardware: {type: hardware_type}`` with ``model``, a subclass of `HardwareConfig`.

    Workers receive instances of it as ``self.hardware``. Registering a type again replaces its model.
    Raises ``TypeError`` if ``model`` is not a subclass of `HardwareConfig`.
    """
    if not (isinstance(model, type) and issubclass(model, HardwareConfig)):
        raise TypeError(f"{model!r} is not a subclass of rankplan.HardwareConfig")
    _MODELS[hardware_type] = model


def hardware_types() -> list[str]:
    """Return the registered types."""
    return list(_MODELS)


def hardware_model(hardware_type: Any) -> type[HardwareConfig]:
    """Return the model of a type; unregistered types allow any field."""
    return _MODELS.get(hardware_type, HardwareConfig) if isinstance(hardware_type, str) else HardwareConfig

"""Files with keys of TRL or accelerate that are no job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def unplaced(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the message and the help for a config of accelerate alone; see `Unplaced`."""
    if "distributed_type" in config and "use_vllm" not in config:
        message = "this is a config of accelerate, which starts any program: it is not the config of a job"
        return message, "pass the script with the command: accelerate launch --config_file FILE ..."
    return None

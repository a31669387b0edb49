"""Keys that several trainers have: Megatron's parallel sizes."""

from rankplan.dialects.keys.megatron import megatron_sizes

__all__ = ["megatron_sizes"]

"""What `Dialect.resized` is made of: the requests of a component that grows or shrinks."""

from rankplan.dialects.placing.resizing import (
    accelerators,
    as_larger_groups,
    by_component,
    larger_group,
    more_groups,
    own_accelerators,
)

__all__ = ["accelerators", "as_larger_groups", "by_component", "larger_group", "more_groups", "own_accelerators"]

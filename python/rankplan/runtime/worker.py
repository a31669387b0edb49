"""The base class of the classes that users run in the ranks of a group."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self

from rankplan.errors import LaunchError
from rankplan.runtime import context
from rankplan.runtime.group import GroupSpec

if TYPE_CHECKING:
    from rankplan.placement import Placement

_logger = logging.getLogger("rankplan.worker")


class Worker:
    """One rank of a component. Subclass it, give it plain methods, and launch it::

        class Actor(Worker):
            def run(self):
                return self.rank

        group = Actor.create_group().launch(cluster, placement_strategy=placement.get_strategy("actor"))
        ranks = group.run().wait()

    What a rank knows about itself is there before ``__init__`` runs; calling ``super().__init__()`` is not needed.
    Constructed anywhere but in a rank, it raises ``LaunchError``.
    """

    _context: context.RankContext
    _rank: int
    _world_size: int

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        here = context.current()
        if here is None:
            raise LaunchError(
                f"{cls.__name__} is constructed in the ranks of a group, not by hand: use {cls.__name__}.create_group"
                "(...).launch(cluster, placement_strategy=...), with the arguments of the constructor in create_group"
            )
        worker = super().__new__(cls)
        worker._context = here
        worker._rank = here.placement.rank
        worker._world_size = here.placement.world_size
        return worker

    def __init__(self) -> None:
        """Take no arguments; a subclass that takes some need not call this one."""
        super().__init__()

    @classmethod
    def create_group(cls, *args: Any, **kwargs: Any) -> GroupSpec:
        """Return a group of this class that can be launched; every rank is constructed with these arguments.

        Raises ``TypeError`` when the constructor does not take them, or the group has a method of its own by the name
        of one of the class.
        """
        return GroupSpec(cls, args, kwargs)

    @property
    def component(self) -> str:
        """The name of the component that this rank belongs to."""
        return self._context.component

    @property
    def rank(self) -> int:
        """The process rank in the component, ``0`` to ``world_size - 1``."""
        return self._rank

    @property
    def world_size(self) -> int:
        """The number of processes of the component."""
        return self._world_size

    @property
    def local_rank(self) -> int:
        """The index of this process among the component's processes on its node."""
        return self.placement.local_rank

    @property
    def placement(self) -> Placement:
        """The row of the plan that this process was started from."""
        return self._context.placement

    @property
    def hardware(self) -> list[Any]:
        """The configs of the robots that this process was given, in the order of ``placement.local_hardware_ranks``.

        They are instances of the model that is registered for their type, else of `HardwareConfig`. Empty for a process
        without.
        """
        return list(self._context.hardware)

    def log_debug(self, message: object) -> None:
        """Log to the worker's output when the driver's ``rankplan`` logger was at DEBUG as the group was launched."""
        self._log(logging.DEBUG, message)

    def log_info(self, message: object) -> None:
        """Log to the worker's output, which Ray brings to the driver, unless its ``rankplan`` logger was above INFO."""
        self._log(logging.INFO, message)

    def log_warning(self, message: object) -> None:
        """Log a warning, like `log_info`, unless the driver's logger was above WARNING."""
        self._log(logging.WARNING, message)

    def log_error(self, message: object) -> None:
        """Log an error, like `log_info`, unless the driver's logger was above ERROR."""
        self._log(logging.ERROR, message)

    def _log(self, level: int, message: object) -> None:
        _logger.log(level, "[%s rank %d] %s", self.component, self._rank, message)

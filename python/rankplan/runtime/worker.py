"""The base class of user classes that run in the ranks of a group."""

from __future__ import annotations

import logging
from typing import Any, Self

from rankplan.errors import LaunchError
from rankplan.placement import Placement
from rankplan.runtime import context
from rankplan.runtime.spec import GroupSpec

_logger = logging.getLogger("rankplan.worker")


class Worker:
    """One rank of a component. Subclass it, give it plain methods, and launch it::

        class Actor(Worker):
            def run(self):
                return self.rank

        group = Actor.create_group().launch(cluster, placement_strategy=placement.get_strategy("actor"))
        ranks = group.run().wait()

    The properties of a rank are set before ``__init__`` runs; calling ``super().__init__()`` is not required.
    Constructing a worker outside a rank raises ``LaunchError``.
    """

    _context: context.RankContext
    _rank: int
    _world_size: int

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        here = context.current()
        if here is None:
            raise LaunchError(
                f"{cls.__name__} can only be constructed in the ranks of a group: use {cls.__name__}.create_group(...)"
                ".launch(cluster, placement_strategy=...), and pass the arguments of the constructor to create_group"
            )
        worker = super().__new__(cls)
        worker._context = here
        worker._rank = here.placement.rank
        worker._world_size = here.placement.world_size
        return worker

    def __init__(self) -> None:
        """Take no arguments; a subclass with arguments need not call this."""
        super().__init__()

    @classmethod
    def create_group(cls, *args: Any, **kwargs: Any) -> GroupSpec:
        """Return a group of this class to launch; every rank is constructed with these arguments.

        Raises ``TypeError`` if the constructor does not accept them, or if a method of the class has the name of one of
        the group's own.
        """
        return GroupSpec(cls, args, kwargs)

    @property
    def component(self) -> str:
        """The name of this rank's component."""
        return self._context.component

    @property
    def rank(self) -> int:
        """The process rank within the component, ``0`` to ``world_size - 1``."""
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
        """The row of the plan for this process."""
        return self._context.placement

    @property
    def hardware(self) -> list[Any]:
        """The configs of this process's robots, in the order of ``placement.local_hardware_ranks``; often empty.

        They are instances of the model registered for their type, or else of `HardwareConfig`.
        """
        return list(self._context.hardware)

    def log_debug(self, message: object) -> None:
        """Log to the worker's output if the driver's ``rankplan`` logger was at DEBUG when the group was launched."""
        self._log(logging.DEBUG, message)

    def log_info(self, message: object) -> None:
        """Log to the worker's output, which Ray shows in the driver, unless its ``rankplan`` logger was above INFO."""
        self._log(logging.INFO, message)

    def log_warning(self, message: object) -> None:
        """Log a warning, like `log_info`, unless the driver's logger was above WARNING."""
        self._log(logging.WARNING, message)

    def log_error(self, message: object) -> None:
        """Log an error, like `log_info`, unless the driver's logger was above ERROR."""
        self._log(logging.ERROR, message)

    def _log(self, level: int, message: object) -> None:
        _logger.log(level, "[%s rank %d] %s", self.component, self._rank, message)

"""The base class of user classes that run in the ranks of a group."""

from __future__ import annotations

import logging
import os
from copy import deepcopy
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from rankplan._core import Placement
from rankplan.accelerators import vendor
from rankplan.errors import LaunchError
from rankplan.runtime.rank.host import OfRank, RankProcess, this_process
from rankplan.runtime.rank.spec import RankSpec
from rankplan.runtime.rank.timing import timer

if TYPE_CHECKING:
    from typing_extensions import Self

    from rankplan.plans.component import Coordinates
    from rankplan.runtime.group.spec import GroupSpec


def _torch_device_type(here: RankSpec) -> str:
    row = vendor(here.placement.accelerator_type)
    if row is None:
        return "cpu"
    if row.torch_device is None:
        raise AttributeError(f"no PyTorch device type is known for {row.accelerator_type}")
    return row.torch_device


def _torch_platform(here: RankSpec) -> ModuleType:
    row, name = vendor(here.placement.accelerator_type), _torch_device_type(here)
    torch = import_module("torch")
    if row is not None and row.torch_plugin is not None:
        import_module(row.torch_plugin)
    module = getattr(torch, name, None)
    if not isinstance(module, ModuleType):
        raise AttributeError(f"PyTorch has no module torch.{name} for {here.placement.accelerator_type}")
    return module


_logger = logging.getLogger("rankplan.worker")


class Worker:
    """One rank of a component. Subclass it, give it plain methods, and launch it::

        class Actor(Worker):
            def run(self):
                return self.rank

        group = Actor.create_group().launch(cluster, placement_strategy=placement.get_strategy("actor"))
        ranks = group.run().wait()

    The properties of a rank are set before ``__init__`` runs; calling ``super().__init__()`` is not required. A worker
    may set attributes of the same names. Its methods must not have the names of its group, such as ``shutdown``.
    Constructing a worker outside a rank raises ``LaunchError``.
    """

    _rank: int
    _world_size: int
    _hides_group: ClassVar[bool] = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        here = this_process()
        if here is None:
            raise LaunchError(
                f"{cls.__name__} can only be constructed in the ranks of a group: use {cls.__name__}.create_group(...)"
                ".launch(cluster, placement_strategy=...), and pass the arguments of the constructor to create_group"
            )
        worker = super().__new__(cls)
        worker._rank = here.spec.placement.rank
        worker._world_size = here.spec.placement.world_size
        return worker

    def __init__(self) -> None:
        """Take no arguments; a subclass with arguments need not call this."""
        super().__init__()

    @classmethod
    def create_group(cls, *args: Any, **kwargs: Any) -> GroupSpec:
        """Return a group of this class to launch; every rank is constructed with these arguments.

        Raises ``TypeError`` if the constructor does not accept them, or a method has a name of the group.
        """
        from rankplan.runtime.group.spec import GroupSpec  # ranks create no groups, and start faster without it

        return GroupSpec(cls, args, kwargs)

    timer = staticmethod(timer)

    accelerator_type = OfRank(lambda here: here.placement.accelerator_type)
    """The type of the accelerators that the rank sees, such as ``NV_GPU``; ``NO_ACCEL`` without any."""
    torch_device_type = OfRank(_torch_device_type)
    """PyTorch's name of the device type, such as ``cuda`` or ``cpu``. On the class or on a worker, in a rank only.

    Raises ``AttributeError`` if PyTorch has no such type.
    """
    torch_platform = OfRank(_torch_platform)
    """PyTorch's module of the device type, such as ``torch.cuda``; PyTorch is imported when this is used.

    Raises ``ImportError`` without PyTorch or the vendor's plugin, ``AttributeError`` if there is no such module.
    """

    @cached_property
    def component(self) -> str:
        """The name of this rank's component."""
        return _here().component

    @cached_property
    def rank(self) -> int:
        """The process rank within the component, ``0`` to ``world_size - 1``."""
        return _here().placement.rank

    @cached_property
    def world_size(self) -> int:
        """The number of processes of the component."""
        return _here().placement.world_size

    @cached_property
    def local_rank(self) -> int:
        """The index of this process among the component's processes on its node."""
        return _here().placement.local_rank

    @cached_property
    def placement(self) -> Placement:
        """The row of the plan for this process."""
        return _here().placement

    @cached_property
    def coordinates(self) -> list[Coordinates]:
        """The position of each slot of this process in its parallel groups: ``[{"tp": 1, "dp": 0, "pp": 2}]``.

        A position has every kind with groups of two or more slots, and ``dp``; see `Component.coordinates`.
        """
        return deepcopy(_here().coordinates)

    @cached_property
    def hardware(self) -> list[Any]:
        """The configs of this process's robots, in the order of ``placement.local_hardware_ranks``; often empty.

        They are instances of the model registered for their type, or else of `HardwareConfig`.
        """
        return list(_process().hardware)

    def _renew(self, before: RankSpec) -> None:
        """Forget the properties that were read from the old spec, but no attribute that the worker has set itself."""
        self._world_size = _here().placement.world_size
        stale = {name: getattr(before.placement, name) for name in ("world_size", "local_rank")}
        stale |= {"placement": before.placement, "coordinates": before.coordinates}
        for name, value in stale.items():
            if vars(self).get(name) == value:
                del vars(self)[name]

    def log_debug(self, message: object) -> None:
        """Log to the worker's output if the driver's ``rankplan`` logger was at DEBUG when the group was launched."""
        _log(logging.DEBUG, message)

    def log_info(self, message: object) -> None:
        """Log to the worker's output, which Ray shows in the driver, unless its ``rankplan`` logger was above INFO."""
        _log(logging.INFO, message)

    def log_warning(self, message: object) -> None:
        """Log a warning, like `log_info`, unless the driver's logger was above WARNING."""
        _log(logging.WARNING, message)

    def log_error(self, message: object) -> None:
        """Log an error, like `log_info`, unless the driver's logger was above ERROR."""
        _log(logging.ERROR, message)


class RLinfWorker(Worker):
    """A worker whose methods come before those of its group, as in RLinf: ``group.shutdown()`` runs its own.

    ``WorkerGroup.shutdown(group)`` always ends the ranks; the same holds for the other names of the group.
    """

    _hides_group = True


def _process() -> RankProcess:
    process = this_process()
    if process is None:
        raise AttributeError("a worker knows its rank only in the ranks of a group")
    return process


def _here() -> RankSpec:
    return _process().spec


def _log(level: int, message: object) -> None:
    here = _here()
    _logger.log(level, "[%s rank %d] %s", here.component, here.placement.rank, message)


class RollCall(Worker):
    """Reports its process id."""

    def run(self) -> int:
        """Return the process id."""
        return os.getpid()

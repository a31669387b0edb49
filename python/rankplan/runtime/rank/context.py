"""The rank that this process is, if it is one."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import ray

from rankplan._core import RankSet
from rankplan.accelerators import vendor
from rankplan.environment import reserved_variables
from rankplan.hardware import bind
from rankplan.hardware.driver import Question, Shown, plain, written
from rankplan.hardware.egl import VARIABLES, device_of, egl_devices
from rankplan.runtime.rank.report import RankReport
from rankplan.runtime.rank.spec import DEVICES, RankSpec
from rankplan.runtime.ray import timeouts

if TYPE_CHECKING:
    from rankplan.runtime.nodes.nodes import Nodes

_Value = TypeVar("_Value")


class RankProcess:
    """This process as a rank: its spec, with the state that exists only here and cannot be sent.

    ``hardware`` are the configs of its robots. ``pickled_nodes`` are the nodes of the driver's cluster, loaded only if
    the rank uses a `Cluster` itself.
    """

    def __init__(self, spec: RankSpec, pickled_nodes: bytes) -> None:
        self.spec, self.pickled_nodes = spec, pickled_nodes
        self.hardware: tuple[Any, ...] = ()
        self._thread = threading.get_native_id()
        self._question: Question | None = None
        self._egl_device: int | None = None

    def settle(self) -> None:
        """Bind this process, set the variables that its node group leaves open, and start asking the driver."""
        spec = self.spec
        if spec.bound.cpus:
            bind.move(spec.bound.cpus)
        if spec.bound.memory_nodes:
            bind.set_memory_policy(spec.bound.memory, spec.bound.memory_nodes)
        os.environ |= {name: value for name, value in spec.nic_variables.items() if name not in spec.env_vars}
        if spec.proof == DEVICES:
            self._question = Question(os.environ)
        if spec.egl:
            self._egl_device = self._find_egl_device()

    def load_hardware(self) -> None:
        """Load the configs of the robots, with the modules of their models."""
        if self.spec.hardware:
            from rankplan.config.hardware import on_node  # most ranks have no robots, and need no pydantic

            robots = pickle.loads(self.spec.hardware)
            self.hardware = on_node(robots, self.spec.placement.local_hardware_ranks, os.environ)

    def nodes(self) -> Nodes:
        """Return the nodes of the driver's cluster, with their node groups."""
        from rankplan.runtime.nodes.nodes import Nodes  # few ranks need them

        nodes = pickle.loads(self.pickled_nodes)
        if not isinstance(nodes, Nodes):
            raise TypeError(f"expected the nodes of a cluster, found {type(nodes).__name__}")
        return nodes

    def report(self) -> RankReport:
        """Return the report of this process. The driver is asked again unless an answer is due."""
        spec, shown = self.spec, Shown()
        if spec.proof == DEVICES:
            question, self._question = self._question or Question(os.environ), None
            shown = question.answer(timeouts.DRIVER)
        row, bound = vendor(spec.placement.accelerator_type), spec.bound
        known = {plain(uuid): uuid for uuid in spec.uuids}
        environment = {name: os.environ[name] for name in reserved_variables() if name in os.environ}
        return RankReport(
            component=spec.component,
            rank=spec.placement.rank,
            node_rank=spec.placement.cluster_node_rank,
            pid=os.getpid(),
            accelerators=(row and row.shown(environment)) or (),
            proof=spec.proof,
            uuids=tuple(written(uuid, known) for uuid in shown.uuids),
            planned_cpus=bound.cpus or None,
            cpus=bind.allowed_cpus(),
            planned_memory=_memory(bound.memory, bound.memory_nodes),
            memory=_memory(*bind.memory_policy(self._thread)),
            nics=spec.nics,
            egl_device=self._egl_device,
            node_id=ray.get_runtime_context().get_node_id(),
            environment=environment,
            driver_problem=shown.problem,
        )

    def _find_egl_device(self) -> int | None:
        """Return the number of the EGL device of the first accelerator, and set the variables that select it."""
        row = vendor(self.spec.placement.accelerator_type)
        masks = {row.env_var} if row else set()
        number = device_of(egl_devices(os.environ, masks), self.spec.ordinal, self.spec.pci)
        if number is None:
            print("EGL shows no device for the first accelerator of this rank; it renders as before", file=sys.stderr)
            return None
        os.environ |= {name: str(number) for name in VARIABLES if name not in self.spec.env_vars}
        return number


def _memory(policy: str, nodes: RankSet | None) -> str | None:
    return f"{policy} {nodes}" if nodes else None


_current: RankProcess | None = None


def enter(process: RankProcess) -> None:
    """Make this process that rank, for good."""
    global _current
    _current = process


def current() -> RankProcess | None:
    """Return the rank that this process is, or ``None`` if it is no rank of a group, but a driver, say."""
    return _current


class OfRank(Generic[_Value]):
    """A fact of the rank that this process is, readable on the worker class and on the worker.

    A worker may have an attribute of its own by that name. Raises ``AttributeError`` outside a rank.
    """

    def __init__(self, read: Callable[[RankSpec], _Value]) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, worker: object, owner: type) -> _Value:
        if _current is None:
            raise AttributeError(f"{owner.__name__}.{self._name} is known only in the ranks of a group")
        return self._read(_current.spec)

"""Node groups: labelled nodes with their environments, and hardware that is counted in place of accelerators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from rankplan._core import NodeSpec, RankSet
from rankplan.environment import PATH_MODE
from rankplan.frozen import frozen

PREPEND, REPLACE = "prepend", "replace"
PATH_MODES = (PREPEND, REPLACE)


@frozen
class NodeEnvironment:
    """Variables and the interpreter of some nodes of a group.

    ``path_mode``: whether PATH and other lists of folders are put before the node's own (``prepend``) or replace them
    (``replace``). Without an ``interpreter``, ranks have that of Ray.
    """

    node_ranks: RankSet
    variables: Mapping[str, str] = field(default_factory=dict)
    interpreter: str | None = None
    path_mode: str = PREPEND

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> NodeEnvironment:
        """Return the environment of an entry of ``env_configs`` that the core has read."""
        interpreter = values.get("python_interpreter_path")
        return cls(values["node_ranks"], values.get("env_vars", {}), interpreter, values.get("path_env", PREPEND))

    def plain(self) -> dict[str, Any]:
        """Return the keys and values of an entry of ``env_configs``."""
        return {
            "node_ranks": str(self.node_ranks),
            "env_vars": dict(self.variables),
            "python_interpreter_path": self.interpreter,
            "path_env": self.path_mode,
        }


@frozen
class Piece:
    """A piece of hardware: the node that it is on, and the fields that its config states."""

    node_rank: int
    fields: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return the keys and values of an entry of ``configs``."""
        return {"node_rank": self.node_rank, **self.fields}


@frozen
class GroupHardware:
    """Hardware other than accelerators, such as robots; without ``pieces``, as many as the nodes have."""

    type: str
    pieces: tuple[Piece, ...] | None = None
    _by_node: dict[int, list[Piece]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for piece in self.pieces or ():
            self._by_node.setdefault(piece.node_rank, []).append(piece)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> GroupHardware:
        """Return the hardware of a mapping that the core has read."""
        configs = values.get("configs")
        if configs is None:
            return cls(values["type"])
        pieces = []
        for config in configs:
            stated = {key: value for key, value in config.items() if key != "node_rank"}
            pieces.append(Piece(config["node_rank"], stated))
        return cls(values["type"], tuple(pieces))

    def counts(self) -> list[tuple[int, int]]:
        """Return (node rank, number of pieces) for every node with hardware, ascending."""
        return sorted((node, len(pieces)) for node, pieces in self._by_node.items())

    def on(self, node_rank: int) -> Sequence[Piece]:
        """Return the pieces on a node, in the order of their local indices."""
        return self._by_node.get(node_rank, [])

    def plain(self) -> dict[str, Any]:
        """Return the keys and values of ``hardware``."""
        configs = None if self.pieces is None else [piece.plain() for piece in self.pieces]
        return {"type": self.type, "configs": configs}


@frozen
class NodeGroup:
    """A labelled set of nodes."""

    label: str
    node_ranks: RankSet
    environments: tuple[NodeEnvironment, ...] = ()
    hardware: GroupHardware | None = None
    ignore_hardware: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> NodeGroup:
        """Return the group of an entry of ``node_groups`` that the core has read."""
        environments = tuple(map(NodeEnvironment.of, values.get("env_configs", ())))
        stated = values.get("hardware")
        hardware = None if stated is None else GroupHardware.of(stated)
        ignored = values.get("ignore_hardware", False)
        return cls(values["label"], values["node_ranks"], environments, hardware, ignored)

    def environment(self, node_rank: int) -> tuple[dict[str, str], str | None]:
        """Return the variables and the interpreter of a node in the group."""
        for environment in self.environments:
            if node_rank in environment.node_ranks:
                mode = {PATH_MODE: "override"} if environment.path_mode == REPLACE else {}
                return {**environment.variables, **mode}, environment.interpreter
        return {}, None

    def renumbered(self, ranks: Mapping[int, int]) -> NodeGroup:
        """Return the group of the same nodes with other ranks, by their ranks before; it loses nodes without one."""
        environments = tuple(
            replace(one, node_ranks=RankSet(ranks[node] for node in one.node_ranks if node in ranks))
            for one in self.environments
        )
        hardware = self.hardware
        if hardware is not None and hardware.pieces is not None:
            present = [piece for piece in hardware.pieces if piece.node_rank in ranks]
            pieces = tuple(Piece(ranks[piece.node_rank], piece.fields) for piece in present)
            hardware = GroupHardware(hardware.type, pieces)
        nodes = RankSet(ranks[node] for node in self.node_ranks if node in ranks)
        return replace(self, node_ranks=nodes, environments=environments, hardware=hardware)

    def equipped(self, stretches: Iterable[tuple[range, NodeSpec]]) -> NodeGroup:
        """Return the group with the pieces of hardware that its nodes have, if it states none of its own."""
        hardware = self.hardware
        if hardware is None or hardware.pieces is not None:
            return self
        pieces: list[Piece] = []
        for nodes, record in stretches:
            count = record.hardware.get(hardware.type, 0)
            for node in RankSet(nodes) & self.node_ranks if count else ():
                pieces += [Piece(node)] * count
        return replace(self, hardware=replace(hardware, pieces=tuple(pieces)))

    def plain(self) -> dict[str, Any]:
        """Return the keys and values of an entry of ``node_groups``."""
        return {
            "label": self.label,
            "node_ranks": str(self.node_ranks),
            "env_configs": [environment.plain() for environment in self.environments],
            "hardware": None if self.hardware is None else self.hardware.plain(),
            "ignore_hardware": self.ignore_hardware,
        }

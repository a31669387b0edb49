"""What a slot holds: boxes of the weights and of the states of the optimizer, by its coordinates.

Sources: Megatron-LM's ``parallel_state`` and ``distrib_optimizer``; FSDP and ZeRO 3 divide each tensor; engines divide
experts by the larger of the tensor and the expert group. Key and value heads fewer than the tensor size are copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from rankplan.frozen import frozen
from rankplan.memory.settings import PRECISIONS
from rankplan.memory.slots import Evaluation
from rankplan.moving.boxes import WHOLE, Box, Interval, Layers, nth
from rankplan.parallel import Parallel
from rankplan.plans.component import Component
from rankplan.plans.memory_settings import MemorySettings
from rankplan.plans.model import Model
from rankplan.plans.shape import Shape

OPTIMIZER_BYTES = 12
"""32-bit weights and two moments of a parameter."""

_ADAPTER_BYTES = 14
"""A 16-bit weight and its optimizer: adapters are small, and stay whole."""

_MATRICES = 7
"""Linear layers with adapters: queries, keys, values, output, gate, up and down."""

Coordinates = Mapping[str, int]
Key = tuple[tuple[str, int], ...]
"""Coordinates, sorted by their kinds: all of a slot, or those of slots that hold the same."""

WITHOUT_DATA = frozenset({"tp", "cp", "pp", "ep", "etp", "fsdp"})

PARTS = "parts"
"""The state of a component of which only the parallel sizes are known: parts of it are known, not bytes."""

WEIGHTS = "weights"
OPTIMIZER = "optimizer"
STATES = "states"
ADAPTERS = "adapters"
RESIDENT = "resident"


class Piece(NamedTuple):
    """A class of tensors in a state: ``("weights", "experts")``."""

    state: str
    tensor: str


Holding = dict[Piece, Box]
"""What a slot holds: one box of each class of tensors."""


class _Tensor(NamedTuple):
    """A class of tensors: parameters of a layer, the layers that have it, and how it is divided.

    ``ends`` names the pipeline stages of a tensor that no layer has: ``first``, ``last`` or both.
    """

    params: int
    layers: Layers
    divided: str
    ends: tuple[str, ...] = ()


_NO_LAYER = Layers(1)


def _tensors(shape: Shape) -> dict[str, _Tensor]:
    """Return the classes of tensors of a model with known layers."""
    hidden, head = shape.hidden, shape.head_dim
    every = Layers(shape.layers)
    tensors: dict[str, _Tensor] = {}
    norms = 2 * hidden
    if shape.latent is not None:
        latent, size = shape.latent, shape.latent.plain + shape.latent.rotary
        queries = (latent.query_rank or hidden) * shape.heads * size
        values = latent.rank * shape.heads * (latent.plain + latent.value) + shape.heads * latent.value * hidden
        tensors["attention"] = _Tensor(queries + values, every, "width")
        norms += latent.query_rank * (hidden + 1) + hidden * (latent.rank + latent.rotary) + latent.rank
    else:
        queries, keys = shape.heads * head, shape.kv_heads * head
        bias = 1 if shape.qkv_bias else 0
        tensors["attention"] = _Tensor(2 * hidden * queries + bias * queries, every, "width")
        tensors["keys and values"] = _Tensor(2 * hidden * keys + 2 * bias * keys, every, "heads")
        norms += 2 * head if shape.qk_norm else 0
    tensors["norms"] = _Tensor(norms, every, "copied")
    matrices = (3 if shape.gated else 2) * hidden
    experts = shape.experts
    if experts is None:
        tensors["mlp"] = _Tensor(matrices * shape.ffn, every, "width")
    else:
        having = Layers(shape.layers, experts.dense_layers, experts.every, experts.offset)
        tensors["mlp"] = _Tensor(matrices * shape.ffn, having._replace(other=True), "width")
        tensors["shared experts"] = _Tensor(matrices * experts.shared_ffn, having, "width")
        tensors["router"] = _Tensor(hidden * experts.count, having, "copied")
        tensors["experts"] = _Tensor(experts.count * matrices * experts.ffn, having, "experts")
    ends = ("first", "last") if shape.tied else ("first",)
    tensors["embedding"] = _Tensor(shape.vocab * hidden, _NO_LAYER, "width", ends)
    if not shape.tied and not shape.scored:
        tensors["output layer"] = _Tensor(shape.vocab * hidden, _NO_LAYER, "width", ("last",))
    tensors["positions"] = _Tensor(shape.positions * hidden, _NO_LAYER, "copied", ("first",))
    tensors["last norm"] = _Tensor(hidden, _NO_LAYER, "copied", ("last",))
    return {name: tensor for name, tensor in tensors.items() if tensor.params}


def _one_tensor(params: int) -> dict[str, _Tensor]:
    """Return the classes of a model of which only the number of parameters is known: one, divided by pp and tp."""
    return {"model": _Tensor(params, Layers(1), "width")}


@frozen(slots=False)
class Keeper:
    """What the slots of a component hold.

    ``layers`` are those of the model as the pipeline divides them, ``states`` the bytes of a parameter in each state,
    empty if no bytes are known. ``width_shards`` and ``layer_shards`` name the states that the data ranks divide along
    the width of each tensor, and along the layers.
    """

    component: Component
    entry: MemorySettings | None
    tensors: Mapping[str, _Tensor]
    layers: int
    states: Mapping[str, float]
    width_shards: frozenset[str]
    layer_shards: frozenset[str]
    resident: float | None = None

    @classmethod
    def of(cls, component: Component) -> Keeper:
        """Return what the slots of a component hold, as its ``memory`` states."""
        entry = component.memory
        nothing = frozenset[str]()
        if entry is None or (entry.resident is None and entry.model is None and entry.params is None):
            return cls(component, entry, _one_tensor(1), 1, {}, nothing, nothing)
        if entry.resident is not None:
            size = Evaluation(component, entry).slot(0.0).parts["resident"][0]
            return cls(component, entry, {}, 1, {}, nothing, nothing, size)
        model = entry.model or Model.sized(entry.params or 0)
        tensors, layers = _one_tensor(model.params), 1
        if model.shape is not None and model.stated is None:
            tensors, layers = _tensors(model.shape), model.shape.layers
        states, by_width, by_layer = _states(entry, model)
        return cls(component, entry, tensors, layers, states, frozenset(by_width), frozenset(by_layer))

    @property
    def known(self) -> bool:
        """Whether the bytes of a slot are known."""
        return bool(self.states) or self.resident is not None

    def decides(self, coordinates: Key) -> Key:
        """Return the coordinates that decide what a slot holds: without shards, data ranks hold the same."""
        return coordinates if self.depends_on_data else _without_data(coordinates)

    @property
    def depends_on_data(self) -> bool:
        """Whether data ranks divide a state, so that what a slot holds depends on the number of its data group."""
        return bool(self.width_shards or self.layer_shards)

    def weighs(self, coordinates: Key) -> Key:
        """Return the coordinates that decide how many bytes a slot holds.

        Data ranks have equal parts, but those of a stage of different layers may have different bytes.
        """
        return _without_data(coordinates) if self.is_even else self.decides(coordinates)

    @cached_property
    def is_even(self) -> bool:
        """Whether all layers have the same tensors."""
        return all(tensor.layers.first == 0 and tensor.layers.every == 1 for tensor in self.tensors.values())

    @property
    def _shape(self) -> Shape | None:
        model = None if self.entry is None else self.entry.model
        return None if model is None else model.shape

    def precision(self, state: str) -> float:
        """Return the bytes of a parameter in a state."""
        return self.states.get(state, 0.0)

    def bytes(self, piece: Piece, box: Box) -> Fraction:
        """Return the bytes of a box; of a component without known bytes, its part of the whole."""
        if piece.state == RESIDENT:
            return Fraction(self.resident or 0)
        tensor = self.tensors[piece.tensor]
        if piece not in self._layer_bytes:
            params = self._adapter_params(tensor) if piece.state == ADAPTERS else Fraction(tensor.params)
            self._layer_bytes[piece] = params * Fraction(self.states.get(piece.state, 1))
        size = self._layer_bytes[piece] * tensor.layers.within(box.layers) * (box.width[1] - box.width[0])
        return size if box.experts is WHOLE else size * (box.experts[1] - box.experts[0])

    @cached_property
    def _layer_bytes(self) -> dict[Piece, Fraction]:
        """The bytes of a layer of each class of tensors in each state."""
        return {}

    def _adapter_params(self, tensor: _Tensor) -> Fraction:
        """Return the parameters of the adapters of a layer: of a matrix h x w, rank x (h + w)."""
        shape, rank = self._shape, 0
        if self.entry is not None:
            rank = self.entry.lora or 0
        if shape is None:
            return Fraction(tensor.params) * rank / 1000
        wide = Fraction(tensor.params, shape.hidden)
        if tensor.divided not in ("width", "heads"):
            return Fraction(0)
        return rank * (wide + Fraction(_MATRICES * shape.hidden, 2))

    def weights(self, coordinates: Coordinates) -> Holding:
        """Return what the slot with these coordinates holds as weights for other components."""
        holding: Holding = {}
        for name, tensor in self.tensors.items():
            box = self._weights(tensor, coordinates)
            for state in (WEIGHTS, STATES):
                if box is not None and state in self.states:
                    holding[Piece(WEIGHTS, name)] = self._divided(state, tensor, box, coordinates)
        return holding

    def decides_weights(self, coordinates: Key) -> Key:
        """Return the coordinates that decide what a slot holds as weights."""
        return coordinates if self.width_shards else _without_data(coordinates)

    def holding(self, coordinates: Coordinates) -> Holding:
        """Return what the slot with these coordinates holds."""
        sizes = self.component.parallel
        if self.resident is not None:
            return {Piece(RESIDENT, _resident_name(sizes, coordinates)): Box()}
        holding: Holding = {}
        for name, tensor in self.tensors.items():
            box = self._weights(tensor, coordinates)
            if box is None:
                continue
            for state in self.states or (PARTS,):
                if state == ADAPTERS and tensor.divided not in ("width", "heads"):
                    continue
                holding[Piece(state, name)] = self._divided(state, tensor, box, coordinates)
        return holding

    def _weights(self, tensor: _Tensor, coordinates: Coordinates) -> Box | None:
        """Return the box of the weights of a slot; ``None`` if its stage does not have this tensor."""
        sizes = self.component.parallel
        stage = coordinates.get("pp", 0)
        layers = WHOLE
        if tensor.ends:
            ends = {"first": stage == 0, "last": stage == sizes.pp - 1}
            if not any(ends[end] for end in tensor.ends):
                return None
        else:
            layers = self._stages[stage]
        if tensor.divided == "copied":
            return Box(layers)
        if tensor.divided == "experts":
            return self._experts(layers, coordinates)
        return Box(layers, width=self._width(tensor, coordinates.get("tp", 0)))

    def _nth(self, interval: Interval, index: int, count: int) -> Interval:
        """Return one of equal parts of an interval; many slots and tensors have the same ones."""
        part = self._parts.get((id(interval), index, count))
        if part is None:  # the interval is kept, so that its id is its own
            part = self._parts[id(interval), index, count] = nth(interval, index, count), interval
        return part[0]

    @cached_property
    def _parts(self) -> dict[tuple[int, int, int], tuple[Interval, Interval]]:
        return {}

    @cached_property
    def _stages(self) -> list[Interval]:
        """The layers of each pipeline stage."""
        return [self._stage(stage) for stage in range(self.component.parallel.pp)]

    def _stage(self, stage: int) -> Interval:
        """Return the layers of a pipeline stage: equal parts, unless the first or the last is stated."""
        sizes, entry = self.component.parallel, self.entry
        first = None if entry is None or sizes.pp == 1 else entry.first_layers
        last = None if entry is None or sizes.pp == 1 else entry.last_layers
        start, end = Fraction(first or 0), Fraction(self.layers - (last or 0))
        if first is not None and stage == 0:
            return Fraction(0), start
        if last is not None and stage == sizes.pp - 1:
            return end, Fraction(self.layers)
        ends = (first is not None) + (last is not None)
        return self._nth((start, end), stage - (first is not None), sizes.pp - ends)

    def _width(self, tensor: _Tensor, rank: int) -> Interval:
        size = self.component.parallel.tp
        shape = self._shape
        if tensor.divided == "heads" and shape is not None and 0 < shape.kv_heads < size:
            return self._nth(WHOLE, rank * shape.kv_heads // size, shape.kv_heads)
        return self._nth(WHOLE, rank, size)

    def _experts(self, layers: Interval, coordinates: Coordinates) -> Box:
        sizes = self.component.parallel
        if self.entry is not None and self.entry.kind == "engine" and sizes.ep * sizes.etp < sizes.tp:
            return Box(layers, width=self._nth(WHOLE, coordinates.get("tp", 0), sizes.tp))
        experts = self._nth(WHOLE, coordinates.get("ep", 0), sizes.ep)
        return Box(layers, experts, self._nth(WHOLE, coordinates.get("etp", 0), sizes.etp))

    def _divided(self, state: str, tensor: _Tensor, box: Box, coordinates: Coordinates) -> Box:
        """Return the part of the weights' box whose states a data rank keeps."""
        if state not in self.width_shards | self.layer_shards:
            return box
        index, count = self._shard(tensor, coordinates)
        if state in self.width_shards or tensor.ends:
            return box._replace(width=self._nth(box.width, index, count))
        return box._replace(layers=self._nth(box.layers, index, count))

    def _shard(self, tensor: _Tensor, coordinates: Coordinates) -> tuple[int, int]:
        """Return which of how many parts a slot keeps of what its data and context ranks divide."""
        sizes, layout = self.component.parallel, self.component.layout
        rank = coordinates.get("cp", 0) + sizes.cp * coordinates.get("dp", 0)
        count = sizes.cp * layout.size("dp")
        if tensor.divided == "experts":
            if sizes.ep * sizes.etp > 1:
                return coordinates.get("edp", 0), layout.size("edp")
            return coordinates.get("tp", 0) + sizes.tp * rank, sizes.tp * count
        shards = sizes.fsdp if sizes.fsdp > 1 else None
        if self.entry is not None and self.entry.shards is not None:
            shards = min(self.entry.shards, count)
        if shards is None or self.layer_shards:
            return rank, count
        return rank % shards, shards


def _without_data(coordinates: Key) -> Key:
    return tuple([pair for pair in coordinates if pair[0] in WITHOUT_DATA])


def _resident_name(sizes: Parallel, coordinates: Coordinates) -> str:
    """Return the name of the undivided state of slots with these sizes and coordinates; data ranks have copies."""
    same = {kind: at for kind, at in coordinates.items() if kind in WITHOUT_DATA}
    return f"{sizes.tp}.{sizes.cp}.{sizes.pp}.{sizes.ep}.{sizes.etp}.{sizes.fsdp} {sorted(same.items())}"


def _states(entry: MemorySettings, model: Model) -> tuple[dict[str, float], set[str], set[str]]:
    """Return the bytes of a parameter by state, and the states that data ranks divide by width, and by layers."""
    weight = PRECISIONS[entry.precision or "bf16"]
    if entry.kind == "engine":
        return {WEIGHTS: PRECISIONS[entry.precision] if entry.precision else min(model.stored, 2.0)}, set(), set()
    framework = entry.training or entry.forward
    is_sharded = framework == "fsdp" or (framework == "deepspeed" and entry.zero_stage in (None, 3))
    shards = {WEIGHTS, STATES} if is_sharded else set[str]()
    if entry.kind == "forward":
        return {WEIGHTS: weight}, shards, set()
    if entry.lora is not None:
        return {WEIGHTS: weight, ADAPTERS: _ADAPTER_BYTES}, shards, set()
    if is_sharded:
        return {STATES: OPTIMIZER_BYTES}, shards, set()
    by_layer = {OPTIMIZER} if entry.distributed_optimizer is not False else set[str]()
    return {WEIGHTS: weight, OPTIMIZER: OPTIMIZER_BYTES}, set(), by_layer

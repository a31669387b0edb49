"""The sizes of a model: from the table of names, from a ``config.json``, or only its number of parameters."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from rankplan._core import model_params
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.words import did_you_mean, shown

ROUNDED = 0.03
"""Published numbers of parameters are rounded by up to this part."""

LARGEST = 10**15
"""No number of parameters is larger, and no size of a `config.json`."""

_FILE_BYTES = 1 << 20
_PARAMS = "write a name of the table, a config.json, or `params: 7e9`"
_UNGATED = {"bloom", "falcon", "gpt_neox", "gptj", "nemotron", "opt", "phi", "starcoder2"}
_OTHER_LAYERS = (
    "mamba",
    "ssm_",
    "linear_",
    "hybrid_override_pattern",
    "vision_config",
    "rwkv",
    "full_attention_interval",
)
_ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}


@frozen
class Latent:
    """Latent attention (DeepSeek-V2): ranks of the projections, and the parts of a head. ``query_rank`` 0: none."""

    query_rank: int
    rank: int
    plain: int
    rotary: int
    value: int


@frozen
class Experts:
    """The experts of each layer after the first ``dense_layers``; ``shared_ffn`` is the width of all shared ones."""

    count: int
    top_k: int
    ffn: int
    shared_ffn: int = 0
    dense_layers: int = 0


@frozen
class Shape:
    """The layers of a model. ``cached_layers`` are those whose cache grows with the whole sequence.

    ``tied``: the embedding is the output layer, too. ``scored``: a scalar head may take the place of the output layer.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    cached_layers: int
    gated: bool = True
    tied: bool = False
    scored: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    positions: int = 0
    experts: Experts | None = None
    latent: Latent | None = None


@frozen
class Model:
    """What is known of a model.

    ``shape`` is its layers, if they are known. ``stated`` bounds the number of its parameters where they are not
    counted from the layers: layers are unknown, or some are of other kinds than attention. ``stored`` is the bytes of a
    weight in its checkpoint.
    """

    name: str
    shape: Shape | None = None
    stated: tuple[float, float] | None = None
    stored: float = 2.0

    @property
    def params(self) -> int:
        """The number of parameters, at least."""
        return int(model_params(self)[0])

    @property
    def layers(self) -> int | None:
        """The number of layers, if it is known."""
        return self.shape.layers if self.shape else None

    @property
    def named(self) -> bool:
        """Whether the table has this model by its name."""
        return self.name in _names() and self == _from_table(*_names()[self.name])

    @classmethod
    def of(cls, source: str | os.PathLike[str] | Mapping[str, Any]) -> Model:
        """Return the model of a name in the table, of a ``config.json``, its folder or its keys, or what `plain` gave.

        Raises `PlacementError` (``unknown-model``, ``model-keys``).
        """
        if isinstance(source, Mapping):
            return _from_plain(source) if "name" in source else _from_keys(Path("the model"), source)
        text = os.fspath(source)
        if (entry := _names().get(text)) is not None:
            return _from_table(*entry)
        path = Path(text)
        path = path / "config.json" if path.is_dir() else path
        if path.is_file():
            return _from_file(path)
        message = f"model {shown(text)} is in no table, and there is no such file or folder"
        if Path(text).is_dir() and text:
            raise _keys_fault(Path(text), "has no config.json")
        near = did_you_mean(text, _names()) if text else ""
        help = near if near.startswith("did you mean") else _PARAMS
        raise PlacementError([Diagnostic("unknown-model", message, help)])

    def scoring(self) -> Model:
        """Return the model as one that scores sequences (a critic, a reward model), which may lack an output layer."""
        shape, stated = self.shape, self.stated
        if shape is None:
            return self
        if stated is not None:
            stated = max(stated[0] - shape.vocab * shape.hidden, 0.0), stated[1]
        return replace(self, name=f"{self.name}, scoring", shape=replace(shape, scored=True), stated=stated)

    @classmethod
    def sized(cls, params: float) -> Model:
        """Return a model of which only the number of parameters is known."""
        return cls(f"{params:g} parameters", stated=(float(params), float(params)))

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of the table, without their aliases."""
        return list(_table())

    def plain(self) -> dict[str, Any]:
        """Return the model as plain values, which `of` reads."""
        plain = {key: value for key, value in asdict(self).items() if value is not None}
        if self.stated is not None:
            plain["stated"] = [None if math.isinf(bound) else bound for bound in self.stated]
        return plain


@cache
def _table() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("models.json").read_text("utf-8"))
    return table


@cache
def _names() -> dict[str, tuple[str, dict[str, Any]]]:
    return {name: (first, entry) for first, entry in _table().items() for name in (first, *entry.get("aliases", ()))}


def _from_table(name: str, entry: Mapping[str, Any]) -> Model:
    facts = {key: value for key, value in entry.items() if key in Shape.__dataclass_fields__}
    moe, mla = entry.get("moe"), entry.get("mla")
    if moe is not None:
        facts["experts"] = Experts(moe["experts"], moe["top_k"], moe["ffn"], moe["shared_ffn"], moe["dense_layers"])
    if mla is not None:
        rank = mla["q_lora_rank"] or 0
        facts["latent"] = Latent(rank, mla["kv_lora_rank"], mla["qk_nope"], mla["qk_rope"], mla["v"])
    shape = Shape(**{"ffn": 0, "cached_layers": entry["layers"], **facts})
    params, stated = entry.get("params"), None
    if params is not None:
        stated = (params * (1 - ROUNDED), params * (1 + ROUNDED) if entry["kind"] == "hybrid" else math.inf)
    return Model(name, shape, stated, entry.get("stored", 2.0))


def _from_plain(content: Mapping[str, Any]) -> Model:
    try:
        facts = dict(content)
        if (shape := facts.get("shape")) is not None:
            shape = dict(shape)
            for key, kind in (("experts", Experts), ("latent", Latent)):
                shape[key] = kind(**shape[key]) if shape.get(key) is not None else None
            facts["shape"] = Shape(**shape)
        if facts.get("stated") is not None:
            facts["stated"] = tuple(math.inf if bound is None else float(bound) for bound in facts["stated"])
        model = Model(**facts)
        _ = model.params + len(model.name)  # every size is a number, the name a text
    except (TypeError, ValueError, KeyError, OverflowError):
        message = f"{shown(content)} is not a model"
        raise PlacementError([Diagnostic("invalid-value", message, _PARAMS)]) from None
    return model


def _from_file(path: Path) -> Model:
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        raise _keys_fault(path, "is not a JSON file that can be read") from None
    if not isinstance(content, dict):
        raise _keys_fault(path, "is not a mapping")
    return _from_keys(path, content)


def _from_keys(path: Path, content: Mapping[str, Any]) -> Model:
    text = content.get("text_config")
    return _Facts(path, {**content, **text} if isinstance(text, Mapping) else content).model()


def _keys_fault(path: Path, what: str) -> PlacementError:
    return PlacementError([Diagnostic("model-keys", f"{path} {what}", "state its size instead: `params: 7e9`")])


@frozen
class _Facts:
    """The keys of a ``config.json``."""

    path: Path
    content: Mapping[str, Any]

    def size(self, key: str, *, usual: int | None = None) -> int:
        """Return a whole number; ``usual`` where the key is missing, which is a fault without it."""
        value = self.content.get(key)
        value = usual if value is None else value
        if value is None:
            raise _keys_fault(self.path, f"has no `{key}`")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
            raise _keys_fault(self.path, f"has `{key}` {shown(value)}; it must be a whole number up to {LARGEST:g}")
        return value

    def positive(self, key: str, *, usual: int | None = None) -> int:
        """Return a whole number above 0."""
        value = self.size(key, usual=usual)
        if value < 1:
            raise _keys_fault(self.path, f"has `{key}` 0; it must be 1 or more")
        return value

    def model(self) -> Model:
        kind = str(self.content.get("model_type", ""))
        hidden, heads = self.positive("hidden_size"), self.positive("num_attention_heads")
        layers = self.positive("num_hidden_layers")
        self._at_most("num_key_value_heads", "`num_attention_heads`", heads)
        shape = Shape(
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=self.positive("num_key_value_heads", usual=heads),
            head_dim=self.positive("head_dim", usual=max(hidden // heads, 1)),
            ffn=self.positive("intermediate_size"),
            vocab=self.positive("vocab_size"),
            cached_layers=self._cached(layers),
            gated=kind not in _UNGATED,
            tied=self.content.get("tie_word_embeddings") is True,
            qkv_bias=self.content.get("attention_bias") is True or kind.startswith("qwen2"),
            qk_norm=kind.startswith("qwen3"),
            experts=self._experts(layers),
            latent=self._latent(),
        )
        whole = Model(self.path.parent.name or str(self.path), shape, None, self._stored())
        if whole.params > LARGEST:
            raise _keys_fault(
                self.path, f"makes a model of {whole.params:.0e} parameters; at most {LARGEST:g} are counted"
            )
        if self._other_layers():
            return Model(whole.name, shape, (float(self._attention_only(shape)), math.inf), whole.stored)
        return whole

    def _at_most(self, key: str, other: str, most: int) -> None:
        """Raise the fault of a number that is larger than another one, which it is a part of."""
        if self.size(key, usual=most) > most:
            raise _keys_fault(self.path, f"has `{key}` {self.size(key)}, more than {other}, which is {most}")

    def _attention_only(self, shape: Shape) -> int:
        """Return the parameters that are surely there: the embeddings, and layers of other kinds count nothing."""
        types = self.content.get("layer_types")
        if isinstance(types, list) or any(str(key).startswith(("mamba", "ssm_", "hybrid")) for key in self.content):
            return shape.vocab * shape.hidden
        return Model("", shape).params

    def _stored(self) -> float:
        quantization = self.content.get("quantization_config")
        if not isinstance(quantization, dict):
            return 2.0
        return 1.0 if quantization.get("quant_method") == "fp8" else 0.5

    def _other_layers(self) -> bool:
        types = self.content.get("layer_types")
        if isinstance(types, list) and not _ATTENTION.issuperset(map(str, types)):
            return True
        return any(str(key).startswith(_OTHER_LAYERS) for key in self.content)

    def _cached(self, layers: int) -> int:
        types = self.content.get("layer_types")
        if not isinstance(types, list) or not types:
            return layers
        if len(types) != layers:
            raise _keys_fault(self.path, f"has {len(types)} `layer_types` for `num_hidden_layers` {layers}")
        return sum(kind == "full_attention" for kind in types)

    def _experts(self, layers: int) -> Experts | None:
        names = ("num_experts", "n_routed_experts", "num_local_experts")
        count = next((self.size(name) for name in names if self.content.get(name) is not None), 0)
        if not count:
            return None
        if self.size("decoder_sparse_step", usual=1) != 1 or self.content.get("mlp_only_layers"):
            raise _keys_fault(self.path, "has layers without experts between those with experts")
        self._at_most("num_experts_per_tok", "the number of experts", count)
        ffn = self.positive("moe_intermediate_size", usual=self.positive("intermediate_size"))
        shared = self.size("n_shared_experts", usual=0) * ffn
        shared = self.size("shared_expert_intermediate_size", usual=shared)
        dense = min(self.size("first_k_dense_replace", usual=0), layers)
        return Experts(count, self.positive("num_experts_per_tok"), ffn, shared, dense)

    def _latent(self) -> Latent | None:
        if self.content.get("kv_lora_rank") is None:
            return None
        ranks = self.size("q_lora_rank", usual=0), self.positive("kv_lora_rank")
        return Latent(*ranks, *map(self.size, ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")))

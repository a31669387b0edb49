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
from rankplan.plans.shape import Experts, Latent, Shape
from rankplan.words import shown

ROUNDED = 0.03
"""Published numbers of parameters are rounded by up to this part."""

_PARAMS = "write a name of the table, a config.json, or `params: 7e9`"


@frozen
class Model:
    """What is known of a model.

    ``shape`` is its layers, if they are known. ``stated`` bounds the number of its parameters where they are not
    counted from the layers: layers are unknown, or some are of other kinds than attention. ``stored`` is the bytes of a
    weight in its checkpoint, and ``longest`` the tokens of its longest sequence, if a ``config.json`` tells.
    """

    name: str
    shape: Shape | None = None
    stated: tuple[float, float] | None = None
    stored: float = 2.0
    longest: int | None = None

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
        if isinstance(source, Mapping) and "name" in source:
            return _from_plain(source)
        if isinstance(source, Mapping):
            from rankplan.plans.model_config import from_keys  # most models are in the table

            return cls(*from_keys(Path("the model"), source))
        text = os.fspath(source)
        entry = _names().get(text)
        return cls._on_disk(text) if entry is None else _from_table(*entry)

    @classmethod
    def _on_disk(cls, text: str) -> Model:
        """Return the model of a file or a folder, of the cache of Hugging Face, or else one with such a name."""
        from rankplan.plans.model_config import from_file, keys_fault
        from rankplan.plans.model_names import alike, cached_config, near

        path = Path(text) / "config.json" if Path(text).is_dir() else Path(text)
        if path.is_file():
            return cls(*from_file(path))
        if (cached := cached_config(text)) is not None:
            return cls(*from_file(cached))
        named = alike(text, {name: first for name, (first, _) in _names().items()})
        if named is not None:
            model = _from_table(*_names()[named.name])
            return model if named.stored is None else replace(model, stored=named.stored)
        if text and Path(text).is_dir():
            raise keys_fault(Path(text), "has no config.json")
        raise PlacementError([_unknown_model(text, near(text, _names()) or _PARAMS)])

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
    from rankplan.plans.model_names import plain_name

    names: dict[str, tuple[str, dict[str, Any]]] = {}
    for first, entry in _table().items():
        for name in (first, *entry.get("aliases", ())):
            names[plain_name(name)] = (first, entry)
    return names


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
    if isinstance(params, list):
        stated = (params[0], params[1])
    elif params is not None:
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
        raise PlacementError([_not_a_model(content)]) from None
    return model


def _unknown_model(text: str, help: str) -> Diagnostic:
    message = f"model {shown(text)} is in no table, and there is no such file or folder"
    return Diagnostic("unknown-model", message, help)


def _not_a_model(content: object) -> Diagnostic:
    return Diagnostic("invalid-value", f"{shown(content)} is not a model", _PARAMS)

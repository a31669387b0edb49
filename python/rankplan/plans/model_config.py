"""The model of a ``config.json``, as Transformers writes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rankplan._core import model_params
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.plans.shape import LARGEST, Experts, Latent, Shape
from rankplan.words import shown

_FILE_BYTES = 1 << 20
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


class ReadModel(NamedTuple):
    """What a file says of a model: the fields of a `Model`."""

    name: str
    shape: Shape
    stated: tuple[float, float] | None
    stored: float


def from_file(path: Path) -> ReadModel:
    """Return the model of a file. Raises `PlacementError` (``model-keys``)."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        raise keys_fault(path, "is not a JSON file that can be read") from None
    if not isinstance(content, dict):
        raise keys_fault(path, "is not a mapping")
    return from_keys(path, content)


def from_keys(path: Path, content: Mapping[str, Any]) -> ReadModel:
    """Return the model of the keys of a file. Raises `PlacementError` (``model-keys``)."""
    text = content.get("text_config")
    return _Facts(path, {**content, **text} if isinstance(text, Mapping) else content).model()


def keys_fault(path: Path, what: str) -> PlacementError:
    """Return the fault of a file, or of a key in it."""
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
            raise keys_fault(self.path, f"has no `{key}`")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
            raise keys_fault(self.path, f"has `{key}` {shown(value)}; it must be a whole number up to {LARGEST:g}")
        return value

    def positive(self, key: str, *, usual: int | None = None) -> int:
        """Return a whole number above 0."""
        value = self.size(key, usual=usual)
        if value < 1:
            raise keys_fault(self.path, f"has `{key}` 0; it must be 1 or more")
        return value

    def model(self) -> ReadModel:
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
        whole = ReadModel(self.path.parent.name or str(self.path), shape, None, self._stored())
        params = int(model_params(whole)[0])
        if params > LARGEST:
            raise keys_fault(self.path, f"makes a model of {params:.0e} parameters; at most {LARGEST:g} are counted")
        if self._other_layers():
            return whole._replace(stated=(float(self._attention_only(shape)), math.inf))
        return whole

    def _at_most(self, key: str, other: str, most: int) -> None:
        """Raise the fault of a number that is larger than another one, which it is a part of."""
        if self.size(key, usual=most) > most:
            raise keys_fault(self.path, f"has `{key}` {self.size(key)}, more than {other}, which is {most}")

    def _attention_only(self, shape: Shape) -> int:
        """Return the parameters that are surely there: the embeddings, and layers of other kinds count nothing."""
        types = self.content.get("layer_types")
        if isinstance(types, list) or any(str(key).startswith(("mamba", "ssm_", "hybrid")) for key in self.content):
            return shape.vocab * shape.hidden
        return int(model_params(ReadModel("", shape, None, 2.0))[0])

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
            raise keys_fault(self.path, f"has {len(types)} `layer_types` for `num_hidden_layers` {layers}")
        return sum(kind == "full_attention" for kind in types)

    def _experts(self, layers: int) -> Experts | None:
        names = ("num_experts", "n_routed_experts", "num_local_experts")
        count = next((self.size(name) for name in names if self.content.get(name) is not None), 0)
        if not count:
            return None
        if self.size("decoder_sparse_step", usual=1) != 1 or self.content.get("mlp_only_layers"):
            raise keys_fault(self.path, "has layers without experts between those with experts")
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

"""The model of a ``config.json``, as Transformers writes it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rankplan._core import model_params
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.plans.model_defaults import DEFAULTS
from rankplan.plans.shape import LARGEST, Experts, Latent, Shape
from rankplan.words import shown

_FILE_BYTES = 1 << 20
_UNGATED = {"gpt_neox", "nemotron", "phi", "starcoder2"}
_TIED = ("gemma", "cohere")
"""Types of models whose embedding is the output layer, too, unless their file says otherwise."""
_DENSE = """llama mistral mistral3 qwen2 qwen3 gemma gemma2 gemma3 gemma3_text glm glm4 granite phi phi3 olmo olmo2
    internlm2 internlm3 mimo ernie4_5 seed_oss smollm3 starcoder2 gpt_neox nemotron cohere cohere2 stablelm qwen2_vl
    qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen3_vl qwen3_vl_text"""
_WITH_EXPERTS = """llama4 llama4_text mixtral qwen2_moe qwen3_moe deepseek deepseek_v2 deepseek_v3 kimi_k2 gpt_oss
    glm4_moe ernie4_5_moe qwen3_vl_moe qwen3_vl_moe_text"""
_TYPES = {*_DENSE.split(), *_WITH_EXPERTS.split()}
"""Values of ``model_type`` whose layers are those that the core counts, from these keys."""
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
_OF_LAYERS = re.compile("moe|expert|freq|pattern|interval|interleave|lora|quant|hybrid|sparse|offload")
_OF_CACHE = re.compile("window|attn_type|chunk_size|cache|(?<!q)kv_")
"""Parts of the names of keys that decide which layers have experts, and how far they look back."""
_EXPERT_KEYS = """num_experts n_routed_experts num_local_experts moe_num_experts num_experts_per_tok experts_per_token
    moe_k moe_intermediate_size shared_expert_intermediate_size n_shared_experts moe_num_shared_experts
    first_k_dense_replace moe_layer_freq interleave_moe_layer_step moe_layer_start_index moe_layer_end_index
    moe_layer_interval moe_layers decoder_sparse_step mlp_only_layers"""
_WINDOW_KEYS = """sliding_window use_sliding_window max_window_layers sliding_window_pattern attention_chunk_size
    no_rope_layer_interval"""
_OTHER_KEYS = "q_lora_rank kv_lora_rank quantization_config no_rope_layers"
_READ = {*_EXPERT_KEYS.split(), *_WINDOW_KEYS.split(), *_OTHER_KEYS.split()}
_HARMLESS_KEYS = """use_cache cache_implementation rope_interleave moe_gate moe_gate_act moe_use_hard_gate moe_group
    moe_multimodal_dispatch_use_allgather moe_use_token_type_bias num_expert_group num_expert_groups expert_parallel
    moe_ep_size moe_tp_size"""
_HARMLESS = {*_HARMLESS_KEYS.split()}
"""Keys that change no size, reviewed one by one."""
_HARMLESS_PARTS = """router routed rope rotary aux capacity dropout norm loss jitter coef coeff topk alpha balance
    factor scaling score scoring temperature"""
_HARMLESS_WORDS = {*_HARMLESS_PARTS.split()}
"""Words in the names of keys that change no size: routing, positions, training."""
_PATTERNS = {"gemma3": 6, "gemma3_text": 6, "cohere2": 4, "gemma2": 2}
"""One of so many layers looks at the whole sequence, where a file does not say (Transformers: their configurations)."""
_EVERY_WINDOW = {"mistral", "mixtral", "phi3", "starcoder2"}
"""Types of models each of whose layers has the window."""
_CHUNKED = 4
"""One of so many layers of Llama 4 looks at the whole sequence (``no_rope_layer_interval``)."""


_QUANTIZED_FILES = "hf_quant_config.json", "quantize_config.json", "quant_config.json"
"""Files beside a ``config.json`` that state a quantization: of ModelOpt, AutoGPTQ and AutoAWQ."""
_FOUR_BITS = 0.5
_FEWEST_BITS = 0.125
"""Bytes of a weight at least: of most methods, and of one that is not known."""
_FOUR_BIT_METHODS = """awq gptq gptq_marlin awq_marlin bitsandbytes compressed-tensors modelopt modelopt_fp4 mxfp4 nvfp4
    fbgemm_fp8 quark torchao experts_int8 quanto"""
_OF_FOUR_BITS = {*_FOUR_BIT_METHODS.split()}
_EIGHT_BITS = {"fp8"}
_LEFT_OUT = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "llm_int8_skip_modules")
"""Lists of layers that keep their precision, by who writes them: Transformers, vLLM, llm-compressor, ModelOpt."""
_WIDE = re.compile("lm_head|embed|norm|attn|attention|router|gate$|visual|vision|proj_out")


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
    if any(path.with_name(name).is_file() for name in _QUANTIZED_FILES):
        content.setdefault("quantization_config", {})
    return from_keys(path, content)


def from_keys(path: Path, content: Mapping[str, Any]) -> ReadModel:
    """Return the model of the keys of a file. Raises `PlacementError` (``model-keys``)."""
    text = content.get("text_config")
    stated = {**content, **text} if isinstance(text, Mapping) else content
    usual = DEFAULTS.get(str(stated.get("model_type", "")), {})
    return _Facts(path, {**usual, **stated}).model()


def keys_fault(path: Path, what: str) -> PlacementError:
    """Return the fault of a file, or of a key in it."""
    return PlacementError([Diagnostic("model-keys", f"{path} {what}", "state its size instead: `params: 7e9`")])


def _leaves(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a mapping and of those in it, with their values."""
    for key, value in content.items():
        yield key, value
        if isinstance(value, Mapping):
            yield from _leaves(value)


def _bits(quantization: Mapping[str, Any]) -> Iterator[int]:
    """Yield the bits of weights that a quantization states."""
    for key, value in _leaves(quantization):
        if str(key) in ("bits", "num_bits", "w_bit", "weight_bits") and isinstance(value, int) and value > 0:
            yield value


def _is_set(value: Any) -> bool:
    """Whether a value says something."""
    return value not in (None, False, 0, 1, "", [], {})


def _is_harmless(name: str) -> bool:
    """Whether a key with this name changes no size."""
    return name in _HARMLESS or not _HARMLESS_WORDS.isdisjoint(name.split("_"))


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

    @property
    def kind(self) -> str:
        """The type of the model; empty: keys that a user states."""
        return str(self.content.get("model_type", ""))

    def model(self) -> ReadModel:
        """Return the model. What is not read takes its bounds away: of its layers, or only of its cache."""
        kind = self.kind
        hidden, heads = self.positive("hidden_size"), self.positive("num_attention_heads")
        layers = self.positive("num_hidden_layers")
        self._at_most("num_key_value_heads", "`num_attention_heads`", heads)
        cached = self._cached(layers)
        experts = self._experts(layers)
        shape = Shape(
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=self.positive("num_key_value_heads", usual=heads),
            head_dim=self.positive("head_dim", usual=max(hidden // heads, 1)),
            ffn=self._dense_ffn(),
            vocab=self.positive("vocab_size"),
            cached_layers=0 if cached is None else cached,
            gated=kind not in _UNGATED,
            tied=self.content.get("tie_word_embeddings", kind.startswith(_TIED)) is True,
            qkv_bias=self.content.get("attention_bias") is True or kind.startswith("qwen2"),
            qk_norm=kind.startswith("qwen3"),
            experts=experts,
            latent=self._latent(),
        )
        whole = ReadModel(self.path.parent.name or str(self.path), shape, None, self._stored())
        params = int(model_params(whole)[0])
        if params > LARGEST:
            raise keys_fault(self.path, f"makes a model of {params:.0e} parameters; at most {LARGEST:g} are counted")
        if (kind and kind not in _TYPES) or self._unread(_OF_LAYERS):
            least = shape.vocab * shape.hidden
            return whole._replace(shape=replace(shape, cached_layers=0), stated=(float(least), math.inf))
        if self._other_layers():
            return whole._replace(stated=(float(self._attention_only(shape)), math.inf))
        if self._leaves_out_more():
            return whole._replace(stated=(float(params), math.inf))
        if cached is None or self._has_stored_cache or self._unread(_OF_CACHE):
            return whole._replace(shape=replace(shape, cached_layers=0), stated=(float(params), float(params)))
        return whole

    def _unread(self, of: re.Pattern[str]) -> bool:
        """Whether a key with such a name is set that is not read."""
        for key, value in self.content.items():
            name = str(key)
            if of.search(name) and name not in _READ and not _is_harmless(name) and _is_set(value):
                return True
        return self._has_odd_pattern and of is _OF_LAYERS

    def _dense_ffn(self) -> int:
        """Return the width of a layer without experts; Llama 4 has a key of its own for it."""
        usual = self.positive("intermediate_size")
        return self.positive("intermediate_size_mlp", usual=usual)

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
        """Return the bytes of a weight in the checkpoint, at least."""
        quantization = self.content.get("quantization_config")
        if not isinstance(quantization, dict):
            return 2.0
        method = str(quantization.get("quant_method", "modelopt")).lower()
        if method in _EIGHT_BITS:
            return 1.0
        stored = _FOUR_BITS if method in _OF_FOUR_BITS else _FEWEST_BITS
        return min([stored, *(bits / 8 for bits in _bits(quantization))])

    @property
    def _has_stored_cache(self) -> bool:
        """Whether a checkpoint has its cache in fewer bits: engines then take these, too (vLLM: ``kv_cache_dtype``)."""
        quantization = self.content.get("quantization_config")
        if not isinstance(quantization, dict):
            return False
        return any("kv_cache" in str(key) and _is_set(value) for key, value in _leaves(quantization))

    def _leaves_out_more(self) -> bool:
        """Whether quantization leaves out other layers than attention, both ends, norms and routers.

        For these an engine's upper bound of its weights has 16 bits in any case.
        """
        quantization = self.content.get("quantization_config")
        if not isinstance(quantization, dict):
            return False
        for key in _LEFT_OUT:
            names = quantization.get(key)
            if isinstance(names, list) and not all(_WIDE.search(str(name)) for name in names):
                return True
        return False

    def _other_layers(self) -> bool:
        types = self.content.get("layer_types")
        if isinstance(types, list) and not _ATTENTION.issuperset(map(str, types)):
            return True
        return any(str(key).startswith(_OTHER_LAYERS) for key in self.content)

    def _cached(self, layers: int) -> int | None:
        """Return the layers whose cache grows with the whole sequence; ``None`` if it is not known which."""
        types = self.content.get("layer_types")
        if isinstance(types, list) and types:
            if len(types) != layers:
                raise keys_fault(self.path, f"has {len(types)} `layer_types` for `num_hidden_layers` {layers}")
            return int(sum(kind == "full_attention" for kind in types))
        whole = self.content.get("no_rope_layers")
        if self.content.get("attention_chunk_size") and isinstance(whole, list) and whole:
            return sum(not value for value in whole) if len(whole) == layers else None
        if self.content.get("attention_chunk_size"):
            return layers // self.positive("no_rope_layer_interval", usual=_CHUNKED)
        kind, is_used = self.kind, self.content.get("use_sliding_window", not self.kind.startswith("qwen"))
        if not self.content.get("sliding_window") or not is_used:
            return layers
        if kind in _PATTERNS:
            return layers // self.positive("sliding_window_pattern", usual=_PATTERNS[kind])
        if kind in _EVERY_WINDOW:
            return 0
        if kind.startswith("qwen"):
            return min(self.size("max_window_layers", usual=layers), layers)
        return None

    def _experts(self, layers: int) -> Experts | None:
        names = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
        count = next((self.size(name) for name in names if self.content.get(name) is not None), 0)
        if not count:
            return None
        per_token = "num_experts_per_tok" if self.content.get("moe_k") is None else "moe_k"
        self._at_most(per_token, "the number of experts", count)
        ffn = self.positive("moe_intermediate_size", usual=self.positive("intermediate_size"))
        number = self.size("moe_num_shared_experts", usual=self.size("n_shared_experts", usual=0))
        shared = self.size("shared_expert_intermediate_size", usual=number * ffn)
        if self.kind.startswith("llama4"):
            shared = ffn
        dense, every, offset = self._pattern(layers)
        return Experts(count, self.positive(per_token), ffn, shared, dense, every, offset)

    def _pattern(self, layers: int) -> tuple[int, int, int]:
        """Return the layers without experts before the first one with them, every how many have some, and which.

        Transformers: ``DeepseekV2DecoderLayer``, ``Qwen3MoeDecoderLayer``, ``Llama4TextConfig.moe_layers``,
        ``Ernie4_5_MoeDecoderLayer``.
        """
        if self.content.get("interleave_moe_layer_step") is not None:
            step = self.positive("interleave_moe_layer_step")
            return 0, step, step - 1
        if self.content.get("moe_layer_interval") is not None:
            step = self.positive("moe_layer_interval")
            return min(self.size("moe_layer_start_index", usual=0), layers), step, step - 1
        frequency = self.content.get("moe_layer_freq")
        if isinstance(frequency, list):
            return len(frequency) - sum(map(bool, frequency)), 1, 0
        dense = min(self.size("first_k_dense_replace", usual=len(self._only_mlp)), layers)
        if frequency is not None:
            return dense, self.positive("moe_layer_freq"), 0
        step = self.positive("decoder_sparse_step", usual=1)
        return dense, step, step - 1

    @property
    def _only_mlp(self) -> list[Any]:
        found = self.content.get("mlp_only_layers")
        return found if isinstance(found, list) else []

    @property
    def _has_odd_pattern(self) -> bool:
        """Whether layers have experts in an order that `Experts` does not state."""
        layers = self.positive("num_hidden_layers")
        if sorted(map(str, self._only_mlp)) != sorted(map(str, range(len(self._only_mlp)))):
            return True
        frequency = self.content.get("moe_layer_freq")
        if isinstance(frequency, list):
            return len(frequency) != layers or sorted(map(bool, frequency)) != list(map(bool, frequency))
        stated, (first, every, offset) = self.content.get("moe_layers"), self._pattern(layers)
        if isinstance(stated, list) and stated != [layer for layer in range(first, layers) if layer % every == offset]:
            return True
        end = self.content.get("moe_layer_end_index")
        return end is not None and end not in (-1, layers - 1)

    def _latent(self) -> Latent | None:
        if self.content.get("kv_lora_rank") is None:
            return None
        ranks = self.size("q_lora_rank", usual=0), self.positive("kv_lora_rank")
        return Latent(*ranks, *map(self.size, ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")))

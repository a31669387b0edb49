"""The model of a ``config.json``, as Transformers writes it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from rankplan._core import model_params
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.plans.model_defaults import DEFAULTS
from rankplan.plans.shape import LARGEST, Experts, Latent, Shape
from rankplan.words import shown

_FILE_BYTES = 1 << 20
_TIES = "tie_word_embeddings"
_UNGATED = {"gpt_neox", "nemotron", "phi", "starcoder2"}
_DENSE = """llama mistral mistral3 qwen2 qwen3 gemma gemma2 gemma3 gemma3_text glm glm4 granite phi phi3 olmo olmo2
    internlm2 internlm3 mimo ernie4_5 seed_oss smollm3 starcoder2 gpt_neox nemotron cohere cohere2 stablelm qwen2_vl
    qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen3_vl qwen3_vl_text"""
_LOCAL = ("num_local_experts", "num_experts")
_ROUTED = ("n_routed_experts", "num_local_experts")
_WITH_EXPERTS: Mapping[str, tuple[str, ...]] = {
    "deepseek": ("n_routed_experts",),
    "deepseek_v2": ("n_routed_experts", "num_experts"),
    "deepseek_v3": _ROUTED,
    "ernie4_5_moe": ("moe_num_experts", "num_experts", "moe_k", "moe_num_shared_experts"),
    "glm4_moe": _ROUTED,
    "gpt_oss": (*_LOCAL, "experts_per_token"),
    "kimi_k2": ("n_routed_experts",),
    "llama4": ("num_local_experts",),
    "llama4_text": ("num_local_experts",),
    "mixtral": _LOCAL,
    "qwen2_moe": ("num_experts",),
    "qwen3_moe": _LOCAL,
    "qwen3_vl_moe": _LOCAL,
    "qwen3_vl_moe_text": _LOCAL,
}
"""Types of models with experts, and their own names for numbers of experts (Transformers: ``attribute_map``)."""
_TYPES = {*_DENSE.split(), *_WITH_EXPERTS}
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
_OF_LAYERS = re.compile("moe|expert|freq|pattern|interval|interleave|lora|quant|hybrid|sparse|offload|mlp_layer")
_OF_CACHE = re.compile("window|attn_type|chunk_size|cache|(?<!q)kv_")
"""Parts of the names of keys that decide which layers have experts, and how far they look back."""
_COUNT_NAMES = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_TOKEN_NAMES = ("num_experts_per_tok", "moe_k", "experts_per_token")
_SHARED_NAMES = ("n_shared_experts", "moe_num_shared_experts")
_NAMES_OF_NUMBERS = (_COUNT_NAMES, _TOKEN_NAMES, _SHARED_NAMES)
"""Names of the number of experts, of those for each token, and of those for every token."""
_OF_ANY_TYPE = {"num_experts_per_tok", "n_shared_experts"}
_EXPERT_KEYS = """moe_intermediate_size shared_expert_intermediate_size first_k_dense_replace moe_layer_freq
    interleave_moe_layer_step moe_layer_start_index moe_layer_end_index moe_layer_interval moe_layers
    decoder_sparse_step mlp_only_layers"""
_WINDOW_KEYS = """sliding_window use_sliding_window max_window_layers sliding_window_pattern attention_chunk_size
    no_rope_layer_interval"""
_OTHER_KEYS = "q_lora_rank kv_lora_rank quantization_config no_rope_layers"
_READ = {*chain(*_NAMES_OF_NUMBERS), *_EXPERT_KEYS.split(), *_WINDOW_KEYS.split(), *_OTHER_KEYS.split()}
_HARMLESS_KEYS = """use_cache cache_implementation rope_interleave mrope_interleaved moe_gate moe_gate_act
    moe_use_hard_gate moe_use_aux_free moe_norm_min moe_norm_gate_logits moe_capacity moe_group
    moe_multimodal_dispatch_use_allgather moe_use_token_type_bias num_expert_group num_expert_groups expert_parallel
    moe_ep_size moe_tp_size moe_router_dtype moe_router_score_function moe_router_enable_expert_bias
    moe_router_topk_scaling_factor moe_routed_scaling_factor lora_alpha"""
_HARMLESS = {*_HARMLESS_KEYS.split()}
"""Keys that change no size, reviewed one by one."""
_HARMLESS_ENDS = ("_coef", "_coeff", "_dropout", "_dropout_prob", "_jitter_noise", "_loss_lambda", "_temperature")
"""Ends of the names of keys that are factors of a loss, probabilities or noise."""
_PATTERNS = {"gemma3": 6, "gemma3_text": 6, "cohere2": 4, "gemma2": 2}
"""One of so many layers looks at the whole sequence, where a file does not say (Transformers: their configurations)."""
_EVERY_WINDOW = {"mistral", "mixtral", "phi3", "starcoder2"}
"""Types of models each of whose layers has the window."""
_UNSCALED = ("default", "llama3", "longrope", "su", "mrope")
"""Kinds of ``rope_scaling`` whose factor ``max_position_embeddings`` has already."""
_CHUNKED = 4
"""One of so many layers of Llama 4 looks at the whole sequence (``no_rope_layer_interval``)."""


_QUANTIZED_FILES = {"hf_quant_config.json": "modelopt", "quantize_config.json": "gptq", "quant_config.json": "awq"}
"""Files beside a ``config.json`` that state a quantization, and who writes them: ModelOpt, AutoGPTQ and AutoAWQ."""
_FOUR_BITS = 0.5
_FEWEST_BITS = 0.125
"""Bytes of a weight at least: of most methods, and of one that is not known."""
_MOST_BITS = 64
_FOUR_BIT_METHODS = """awq awq_marlin bitsandbytes modelopt modelopt_fp4 mxfp4 nvfp4 fbgemm_fp8 experts_int8"""
_OF_FOUR_BITS = {*_FOUR_BIT_METHODS.split()}
"""Methods without fewer than 4 bits."""
_OF_STATED_BITS = {"gptq", "gptq_marlin", "compressed-tensors"}
"""Methods whose keys state the bits of all weights."""
_BITS_KEYS = {"bits", "nbits", "num_bits", "w_bit", "weight_bits"}
_EIGHT_BITS = {"fp8"}
_LEFT_OUT = {
    "modules_to_not_convert",
    "ignored_layers",
    "ignore",
    "exclude_modules",
    "llm_int8_skip_modules",
    "exclude",
}
"""Lists of layers that keep their precision, of Transformers, vLLM, llm-compressor, ModelOpt and Quark."""
_WIDE = re.compile("lm_head|embed|norm|attn|attention|router|gate$|visual|vision|proj_out")


class ReadModel(NamedTuple):
    """What a file says of a model: the fields of a `Model`."""

    name: str
    shape: Shape
    stated: tuple[float, float] | None
    stored: float
    longest: int | None


def from_file(path: Path) -> ReadModel:
    """Return the model of a file. Raises `PlacementError` (``model-keys``)."""
    content = _mapping(path)
    for name, method in _QUANTIZED_FILES.items():
        file = path.with_name(name)
        if file.is_file():
            quantization = content.get("quantization_config")
            stated = quantization if isinstance(quantization, Mapping) else {}
            content["quantization_config"] = {"quant_method": method, **stated, name: _mapping(file)}
    return from_keys(path, content)


def _mapping(path: Path) -> dict[str, Any]:
    """Return the content of a file. Raises `PlacementError` (``model-keys``)."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        raise keys_fault(path, "is not a JSON file that can be read") from None
    if not isinstance(content, dict):
        raise keys_fault(path, "is not a mapping")
    return content


def from_keys(path: Path, content: Mapping[str, Any]) -> ReadModel:
    """Return the model of the keys of a file. Raises `PlacementError` (``model-keys``)."""
    text = content.get("text_config")
    inner: Mapping[str, Any] = text if isinstance(text, Mapping) else {}
    stated = {**content, **inner}
    facts = {**_defaults(stated), **stated}
    ties = _ties(content, inner)
    if len(ties) > 1:  # the fewest parameters count
        facts[_TIES] = True
    return _Facts(path, facts, has_one_tie=len(ties) < 2).model()


def _ties(content: Mapping[str, Any], inner: Mapping[str, Any]) -> set[bool]:
    """Return whether the embedding is the output layer, as a file and its text part say, or else their types.

    Which of the two counts depends on the type and on the version of Transformers.
    """
    stated = {part[_TIES] is True for part in (content, inner) if part.get(_TIES) is not None}
    if stated or not inner:
        return stated
    return {_defaults(part).get(_TIES, False) for part in (content, {**content, **inner})}


def _defaults(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of the type of a model, without those of a number that the file states by another name."""
    kind = str(stated.get("model_type", ""))
    usual = {**DEFAULTS.get(f"{kind}_text", {}), **DEFAULTS.get(kind, {})}
    for names in _NAMES_OF_NUMBERS:
        if any(stated.get(name) is not None for name in names):
            for name in names:
                usual.pop(name, None)
    return usual


def keys_fault(path: Path, what: str) -> PlacementError:
    """Return the fault of a file, or of a key in it."""
    return PlacementError([Diagnostic("model-keys", f"{path} {what}", "state its size instead: `params: 7e9`")])


def _leaves(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a mapping and of those in it, also in its lists, with their values."""
    if isinstance(content, list):
        for value in content:
            yield from _leaves(value)
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield str(key), value
            yield from _leaves(value)


def _count(value: Any) -> int | None:
    """Return a value that is a whole number above 0 and not too large, ``None`` for any other."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST
    return value if is_count else None


def _is_set(value: Any) -> bool:
    """Whether a value says something."""
    return value not in (None, False, "", [], {})


def _is_harmless(name: str) -> bool:
    """Whether a key with this name changes no size."""
    return name in _HARMLESS or name.endswith(_HARMLESS_ENDS)


@frozen
class _Facts:
    """The keys of a ``config.json``."""

    path: Path
    content: Mapping[str, Any]
    has_one_tie: bool = True

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
            tied=self.content.get(_TIES) is True,
            qkv_bias=self.content.get("attention_bias") is True or kind.startswith("qwen2"),
            qk_norm=kind.startswith("qwen3"),
            experts=experts,
            latent=self._latent(),
        )
        whole = ReadModel(self.path.parent.name or str(self.path), shape, None, self._stored(), self._longest())
        params = int(model_params(whole)[0])
        if params > LARGEST:
            raise keys_fault(self.path, f"makes a model of {params:.0e} parameters; at most {LARGEST:g} are counted")
        if (kind and kind not in _TYPES) or self._unread(_OF_LAYERS):
            least = shape.vocab * shape.hidden
            return whole._replace(shape=replace(shape, cached_layers=0), stated=(float(least), math.inf))
        if self._other_layers():
            return whole._replace(stated=(float(self._attention_only(shape)), math.inf))
        if self._leaves_out_more() or not self.has_one_tie:
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
        return of is _OF_LAYERS and (self._has_odd_pattern or self._has_odd_numbers)

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
        return int(model_params(ReadModel("", shape, None, 2.0, None))[0])

    def _longest(self) -> int | None:
        """Return the tokens of the longest sequence (vLLM: ``_get_and_verify_max_len``), if the file tells."""
        positions = _count(self.content.get("max_position_embeddings"))
        scaling = self.content.get("rope_scaling") or self.content.get("rope_parameters") or {}
        if positions is None or not isinstance(scaling, Mapping):
            return None
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        if kind in _UNSCALED:
            return positions
        original = _count(scaling.get("original_max_position_embeddings", positions))
        factor = scaling.get("factor")
        if original is None or not isinstance(factor, (int, float)) or not 1 <= factor <= LARGEST:
            return None
        return int((original if kind == "yarn" else positions) * factor)

    def _stored(self) -> float:
        """Return the bytes of a weight in the checkpoint, at least."""
        quantization = self._quantization
        if quantization is None:
            return 2.0
        method, sizes = str(quantization.get("quant_method")).lower(), self._stated_sizes(quantization)
        if method in _EIGHT_BITS:
            return min([1.0, *sizes])
        # with sparsity_config, zeros are not stored
        is_stated = bool(sizes) and method in _OF_STATED_BITS and not _is_set(quantization.get("sparsity_config"))
        stored = _FOUR_BITS if method in _OF_FOUR_BITS or is_stated else _FEWEST_BITS
        return min([stored, *sizes])

    @property
    def _quantization(self) -> Mapping[str, Any] | None:
        """What is stated of a quantization, ``None`` without any."""
        quantization = self.content.get("quantization_config")
        if quantization is None:
            return None
        if not isinstance(quantization, Mapping):
            raise keys_fault(self.path, f"has `quantization_config` {shown(quantization)}; it must be a mapping")
        return quantization

    def _stated_sizes(self, quantization: Mapping[str, Any]) -> list[float]:
        """Return the bytes of a weight wherever a quantization states its bits."""
        sizes = []
        for key, bits in _leaves(quantization):
            if key not in _BITS_KEYS or bits is None:
                continue
            if isinstance(bits, bool) or not isinstance(bits, int):
                sizes.append(_FEWEST_BITS)
            elif 1 <= bits <= _MOST_BITS:
                sizes.append(bits / 8)
            else:
                raise keys_fault(self.path, f"has `{key}` {shown(bits)}; weights have 1 to {_MOST_BITS} bits")
        return sizes

    @property
    def _has_stored_cache(self) -> bool:
        """Whether a checkpoint has its cache in fewer bits: engines then take these, too (vLLM: ``kv_cache_dtype``)."""
        return any("kv_cache" in key and _is_set(value) for key, value in _leaves(self._quantization))

    def _leaves_out_more(self) -> bool:
        """Whether quantization leaves out other layers than attention, both ends, norms and routers.

        For these an engine's upper bound of its weights has 16 bits in any case.
        """
        for key, names in _leaves(self._quantization):
            if key in _LEFT_OUT and isinstance(names, list) and not all(_WIDE.search(str(name)) for name in names):
                return True
        return False

    def _other_layers(self) -> bool:
        types = self.content.get("layer_types")
        if isinstance(types, list) and not _ATTENTION.issuperset(map(str, types)):
            return True
        return any(str(key).startswith(_OTHER_LAYERS) for key in self.content)

    def _cached(self, layers: int) -> int | None:
        """Return the layers whose cache grows with the whole sequence; ``None`` if it is not known which.

        A list of types says it of each layer. Else layers look back over a chunk, or over a window, or over everything.
        """
        types = self.content.get("layer_types")
        if isinstance(types, list) and types:
            if len(types) != layers:
                raise keys_fault(self.path, f"has {len(types)} `layer_types` for `num_hidden_layers` {layers}")
            return int(sum(kind == "full_attention" for kind in types))
        if self.content.get("attention_chunk_size"):
            return self._cached_beside_chunks(layers)
        is_used = self.content.get("use_sliding_window", not self.kind.startswith("qwen"))
        if self.content.get("sliding_window") and is_used:
            return self._cached_beside_windows(layers)
        return layers

    def _cached_beside_chunks(self, layers: int) -> int | None:
        """Return the layers of Llama 4 that have no rotary positions: these look at the whole sequence."""
        have_positions = self.content.get("no_rope_layers")  # 1 is a layer with them (Transformers: `Llama4TextConfig`)
        if not isinstance(have_positions, list) or not have_positions:
            return layers // self.positive("no_rope_layer_interval", usual=_CHUNKED)
        return sum(not value for value in have_positions) if len(have_positions) == layers else None

    def _cached_beside_windows(self, layers: int) -> int | None:
        """Return the layers without the sliding window, by the type of the model."""
        kind = self.kind
        if kind in _PATTERNS:
            return layers // self.positive("sliding_window_pattern", usual=_PATTERNS[kind])
        if kind in _EVERY_WINDOW:
            return 0
        if kind.startswith("qwen"):
            return min(self.size("max_window_layers", usual=layers), layers)
        return None

    def _experts(self, layers: int) -> Experts | None:
        count = self.size(self._stated_name(_COUNT_NAMES), usual=0)
        if not count:
            return None
        per_token = self._stated_name(_TOKEN_NAMES)
        self._at_most(per_token, "the number of experts", count)
        ffn = self.positive("moe_intermediate_size", usual=self.positive("intermediate_size"))
        number = self.size(self._stated_name(_SHARED_NAMES), usual=0)
        shared = self.size("shared_expert_intermediate_size", usual=number * ffn)
        if self.kind.startswith("llama4"):
            shared = ffn
        dense, every, offset = self._pattern(layers)
        return Experts(count, self.positive(per_token), ffn, shared, dense, every, offset)

    def _stated_name(self, names: tuple[str, ...]) -> str:
        """Return the name by which a number is stated, the most usual one without any."""
        return next((name for name in names if self.content.get(name) is not None), names[0])

    @property
    def _has_odd_numbers(self) -> bool:
        """Whether a number of experts has a name that another type of models has for it, or two values."""
        own = {*_WITH_EXPERTS.get(self.kind, ())} | (_OF_ANY_TYPE if self.kind in _WITH_EXPERTS else set())
        for names in _NAMES_OF_NUMBERS:
            stated = {name: self.content[name] for name in names if self.content.get(name)}
            if len({*map(str, stated.values())}) > 1 or (self.kind and not own.issuperset(stated)):
                return True
        return False

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

"""What the ``config.json`` of a model leaves out: defaults of the configurations of Transformers 5.24.

A file need not state the defaults of its type. Only those are here that change a size and differ from what is usual: as
many heads of keys as of queries, of ``hidden_size`` together, an output layer of its own, no experts, no window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TIED = {"tie_word_embeddings": True}
_GEMMA = {**_TIED, "head_dim": 256}
_GLM_4 = {"num_key_value_heads": 2, "head_dim": 128}

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "cohere": _TIED,
    "cohere2": {**_TIED, "sliding_window": 4096},
    "deepseek_v2": {"n_routed_experts": 64, "moe_intermediate_size": 1407, "n_shared_experts": 2},
    "deepseek_v3": {
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
    },
    "ernie4_5": {**_TIED, "num_key_value_heads": 2, "head_dim": 128},
    "ernie4_5_moe": {
        **_TIED,
        "num_key_value_heads": 4,
        "moe_num_experts": 64,
        "moe_k": 6,
        "moe_intermediate_size": 1536,
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1,
        "moe_layer_interval": 1,
    },
    "gemma": _GEMMA,
    "gemma2": {**_GEMMA, "num_key_value_heads": 4, "sliding_window": 4096},
    "gemma3": _TIED,
    "gemma3_text": {
        **_GEMMA,
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "sliding_window": 4096,
    },
    "glm": _GLM_4,
    "glm4": _GLM_4,
    "glm4_moe": {
        "num_key_value_heads": 8,
        "n_routed_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1408,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    },
    "gpt_oss": {
        "num_key_value_heads": 8,
        "head_dim": 64,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
    },
    "internlm3": _GLM_4,
    "llama4_text": {
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size_mlp": 16384,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1,
        "attention_chunk_size": 8192,
    },
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "mistral3": _TIED,
    "mixtral": {"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_5_vl_text": {"num_key_value_heads": 8},
    "qwen2_moe": {
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
    },
    "qwen2_vl_text": {"num_key_value_heads": 8},
    "qwen3": {"head_dim": 128},
    "qwen3_moe": {
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
    },
    "qwen3_vl_moe_text": {**_TIED, "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408},
    "qwen3_vl_text": {"head_dim": 128},
    "seed_oss": {"num_key_value_heads": 8, "head_dim": 128},
    "smollm3": {**_TIED, "num_key_value_heads": 4},
    "starcoder2": {**_TIED, "num_key_value_heads": 2},
}
"""By ``model_type``."""

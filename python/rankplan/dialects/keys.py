"""The keys that place processes in every dialect but RLinf's, with the type of their values, for the JSON schema."""

from __future__ import annotations

from typing import Any

_UNRESOLVED = {"type": "string", "pattern": r"\$\{"}
_KINDS: dict[str, Any] = {
    "size": {"anyOf": [{"type": "integer", "minimum": -1}, {"type": "null"}, _UNRESOLVED]},
    "switch": {"anyOf": [{"type": "boolean"}, {"type": "null"}, _UNRESOLVED]},
    "text": {"type": ["string", "null"]},
}
_MEGATRON = "tensor_model_parallel_size context_parallel_size expert_model_parallel_size expert_tensor_parallel_size"
_MEGATRON += " pipeline_model_parallel_size"
_INFERENCE = "tensor_model_parallel_size data_parallel_size pipeline_model_parallel_size expert_parallel_size"
_ENGINE = "tensor_parallel_size pipeline_parallel_size data_parallel_size expert_parallel_size"
_POOL = "nnodes n_gpus_per_node"
_FSDP = "fsdp_config.fsdp_size fsdp_config.ulysses_sequence_parallel_size ulysses_sequence_parallel_size"

# A section, the kind of its values, and its keys.
_TABLE: list[tuple[str, str, str]] = [
    # verl
    ("trainer", "size", _POOL),
    ("rollout", "size", _POOL),
    ("actor_rollout_ref.rollout", "size", f"{_POOL} {_INFERENCE}"),
    ("actor_rollout_ref.actor", "size", _FSDP),
    ("actor_rollout_ref.actor.megatron", "size", _MEGATRON),
    ("actor_rollout_ref.ref.megatron", "size", _MEGATRON),
    ("actor_rollout_ref.actor", "switch", "use_kl_loss"),
    ("critic", "switch", "enable"),
    ("critic.megatron", "size", _MEGATRON),
    ("reward.reward_model", "size", _POOL),
    ("reward.reward_model", "switch", "enable enable_resource_pool"),
    ("reward.reward_model.rollout", "size", _INFERENCE),
    ("distillation", "size", _POOL),
    ("distillation", "switch", "enabled"),
    # NeMo-RL
    ("policy.generation.colocated", "switch", "enabled"),
    ("policy.generation.colocated.resources", "size", "num_nodes gpus_per_node"),
    ("policy.generation.vllm_cfg", "size", _ENGINE),
    ("policy.megatron_cfg", "size", _MEGATRON),
    ("policy.megatron_cfg", "switch", "enabled"),
    ("policy.dtensor_cfg", "size", "tensor_parallel_size context_parallel_size"),
    ("policy.dtensor_cfg", "switch", "enabled"),
    ("env.reward_model.resources", "size", "num_nodes gpus_per_node"),
    # AReaL
    *((engine, "text", "backend") for engine in ("rollout", "actor", "critic", "ref", "teacher")),
    ("", "text", "allocation_mode"),
    # OpenRLHF
    *((model, "size", "num_nodes num_gpus_per_node") for model in ("actor", "ref", "critic", "reward")),
    ("vllm", "size", "num_engines tensor_parallel_size"),
    ("ds", "size", "tensor_parallel_size ring_attn_size"),
    ("train", "switch", "colocate_all colocate_actor_ref colocate_critic_reward async_enable"),
    # SkyRL
    *(
        ("trainer.placement", "size", f"{model}_num_nodes {model}_num_gpus_per_node")
        for model in ("policy", "ref", "critic")
    ),
    ("trainer.placement", "switch", "colocate_all colocate_policy_ref"),
    ("generator.inference_engine", "size", f"num_engines {_ENGINE}"),
    ("generator.inference_engine", "switch", "run_engines_locally"),
    ("trainer.policy.megatron_config", "size", _MEGATRON),
    # slime
    ("", "size", "actor_num_nodes actor_num_gpus_per_node critic_num_nodes critic_num_gpus_per_node rollout_num_gpus"),
    ("", "size", f"rollout_num_gpus_per_engine num_gpus_per_node {_MEGATRON}"),
    ("", "switch", "colocate debug_train_only debug_rollout_only rollout_external use_critic"),
    # ROLL
    ("", "size", "num_nodes"),
]

_CLUSTER = ("num_nodes", "gpus_per_node", "segment_size", "n_nodes", "n_gpus_per_node")
OTHER_CLUSTER = {"properties": dict.fromkeys(_CLUSTER, _KINDS["size"])}
"""The ``cluster`` section of NeMo-RL and AReaL."""

ROLE = {
    "properties": {
        "device_mapping": {"type": ["string", "array", "null"]},
        "num_gpus_per_worker": _KINDS["size"],
        "world_size": _KINDS["size"],
    }
}
"""A role of ROLL; anything else may have other keys."""


def properties() -> dict[str, Any]:
    """Return the schema of each key at the top of a config; sections are nested, and may have other keys."""
    top: dict[str, Any] = {}
    for section, kind, keys in _TABLE:
        for key in keys.split():
            here = top
            *sections, last = [part for part in f"{section}.{key}".split(".") if part]
            for part in sections:
                here = here.setdefault(part, {"properties": {}})["properties"]
            here[last] = _KINDS[kind]
    return top

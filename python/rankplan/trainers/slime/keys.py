"""The flags by which slime places (624b824: `utils/arguments.py`), and Megatron's own."""

from __future__ import annotations

from rankplan.sdk import Key, KeyTable, anything, size, switch
from rankplan.sdk.keys import megatron_sizes

_ACTOR = "the GPUs of the actor"
ACTOR_NODES = size("actor_num_nodes", _ACTOR, default=1, least=0, tells="alone")
ACTOR_GPUS = size("actor_num_gpus_per_node", _ACTOR, default=8, least=0, tells="alone")
_CRITIC = "the GPUs of the critic, in older versions"
CRITIC_NODES = size("critic_num_nodes", _CRITIC, least=0)
CRITIC_GPUS = size("critic_num_gpus_per_node", _CRITIC, least=0)
ROLLOUT_GPUS = size("rollout_num_gpus", "the GPUs of the rollout", least=0, tells="tells")
ENGINE_GPUS = size("rollout_num_gpus_per_engine", "the size of an engine", default=1, tells="alone")
NODE_GPUS = size("num_gpus_per_node", "the GPUs of each node")
COLOCATE = switch("colocate", "whether the rollout starts at the first GPU")
_ELSEWHERE = "sides that do not run here"
TRAIN_ONLY = switch("debug_train_only", _ELSEWHERE)
ROLLOUT_ONLY = switch("debug_rollout_only", _ELSEWHERE)
EXTERNAL = switch("rollout_external", _ELSEWHERE)
USE_CRITIC = switch("use_critic", "whether there is a critic")

NAMED = (
    *(ACTOR_NODES, ACTOR_GPUS, CRITIC_NODES, CRITIC_GPUS, ROLLOUT_GPUS, ENGINE_GPUS, NODE_GPUS),
    *(COLOCATE, TRAIN_ONLY, ROLLOUT_ONLY, EXTERNAL, USE_CRITIC),
)
"""Flags whose typos are faults; slime ignores them silently. Flags of Megatron and SGLang resemble each other."""

TRAINING = megatron_sizes("sizes of training with Megatron")
ENGINE = {
    "pp": (
        size("sglang_pipeline_parallel_size", "sizes of an engine"),
        size("sglang_pp_size", "sizes of an engine"),
    ),
    "ep": (
        size("sglang_expert_parallel_size", "sizes of an engine"),
        size("sglang_ep_size", "sizes of an engine"),
    ),
}
"""Each size has two flags, of which the last one counts."""

ESTIMATOR = anything("advantage_estimator", "whether there is a critic")
DEBUG_DATA = anything("load_debug_rollout_data", _ELSEWHERE)
ENGINE_ADDRESSES = anything("rollout_external_engine_addrs", _ELSEWHERE)
MEGATRON_CONFIG = anything("megatron_config_path", "that the critic shares the actor's GPUs")

KEYS = KeyTable(Key.among(globals()), "rankplan.trainers.slime.memory:ROLES", flags=True)

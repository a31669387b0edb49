"""The keys by which NeMo-RL places (7ea279a: `models/policy/__init__.py`, `algorithms`, `distributed`)."""

from __future__ import annotations

from rankplan.sdk import Config, Key, KeyTable, anything, size, switch, text
from rankplan.sdk.keys import megatron_sizes

ALGORITHMS = ("async_rl", "ppo", "distillation", "grpo", "dpo", "rm", "sft")
"""The sections that name an algorithm; of several, the first counts."""

CLUSTER = "cluster"
GENERATION = "policy.generation"
COLOCATED = f"{GENERATION}.colocated"
RESOURCES = f"{COLOCATED}.resources"
VLLM = f"{GENERATION}.vllm_cfg"
SGLANG = f"{GENERATION}.sglang_cfg"
SGLANG_SERVER = f"{SGLANG}.sglang_server_config"
TRTLLM = f"{GENERATION}.trtllm_cfg"
MCORE = f"{GENERATION}.mcore_generation_config"
POLICY_MEGATRON = "policy.megatron_cfg"
REWARD = "env.reward_model"
REWARD_RESOURCES = f"{REWARD}.resources"
DISTILLATION = "on_policy_distillation"
APART = f"{DISTILLATION}.non_colocated_teachers"
TEACHER = f"{APART}.default_teacher_cfg"
MEGATRON_OVERRIDES = "megatron_cfg_overrides"
"""The section with Megatron's keys of a teacher, inside its own."""
TRAINED = ("policy", "value", REWARD)
"""The sections of models with Megatron's or DTensor's sizes."""


def usual_gpus_of_reward_model(config: Config) -> int:
    """Return the GPUs of a node that the reward model has by default."""
    return config[GPUS_PER_NODE]


NUM_NODES = size(f"{CLUSTER}.num_nodes", "the nodes of the job", default=1)
SEGMENT_SIZE = size(f"{CLUSTER}.segment_size", "the nodes that must be in one domain")
GPUS_PER_NODE = size(f"{CLUSTER}.gpus_per_node", "GPUs of each node", default=1, tells="alone")

TRAINING_SECTIONS = tuple(
    anything(f"policy.{name}", "training", tells="tells") for name in ("megatron_cfg", "dtensor_cfg")
)
GENERATION_SECTION = anything(GENERATION, "inference", tells="tells")
IS_COLOCATED = switch(f"{COLOCATED}.enabled", "whether inference shares the nodes of the training", default=True)
INFERENCE_NODES = size(f"{RESOURCES}.num_nodes", "the nodes or the GPUs of inference")
INFERENCE_GPUS = size(f"{RESOURCES}.gpus_per_node", "the nodes or the GPUs of inference")
BACKEND = text(f"{GENERATION}.backend", "the engines")

VLLM_SIZES = {
    kind: size(f"@.{name}", "the size of an engine", default=1, at=(VLLM,))
    for kind, name in (
        ("tp", "tensor_parallel_size"),
        ("pp", "pipeline_parallel_size"),
        ("ep", "expert_parallel_size"),
    )
}
SGLANG_SIZES = {
    kind: size(f"@.{name}", "sizes of an engine of SGLang", default=1, at=(SGLANG,))
    for kind, name in (("tp", "tp_size"), ("pp", "pp_size"), ("ep", "ep_size"))
}
SGLANG_DATA = size("@.dp_size", "sizes of an engine of SGLang", at=(SGLANG,))
"""Places nothing: it is inside an engine."""
SERVER_GPUS = size(f"{SGLANG_SERVER}.num_gpus", "the GPUs of all engines of SGLang")
GPUS_PER_SERVER = size(f"{SGLANG}.gpus_per_server", "the GPUs of an engine of SGLang, in older versions")
SERVER_GPUS_PER_ENGINE = size(f"{SGLANG_SERVER}.num_gpus_per_engine", "the GPUs of an engine of SGLang")
TRTLLM_SIZES = {
    kind: size(f"@.{name}", "sizes of an engine of TensorRT-LLM", default=1, at=(TRTLLM,))
    for kind, name in (
        ("tp", "tensor_parallel_size"),
        ("pp", "pipeline_parallel_size"),
        ("ep", "moe_expert_parallel_size"),
    )
}
TRTLLM_EXPERT_TENSOR = size("@.moe_tensor_parallel_size", "sizes of an engine of TensorRT-LLM", at=(TRTLLM,))
"""Places nothing, as the data size of SGLang."""
ENGINES = {"vllm": (VLLM, VLLM_SIZES), "sglang": (SGLANG, SGLANG_SIZES), "trtllm": (TRTLLM, TRTLLM_SIZES)}
"""The section of an engine, and its sizes, by backend."""
MCORE_SIZES = megatron_sizes("sizes of inference with Megatron", MCORE, inherited_from=POLICY_MEGATRON)

MEGATRON = megatron_sizes("sizes of training with Megatron", *(f"{model}.megatron_cfg" for model in TRAINED))
MEGATRON_ENABLED = switch("@.megatron_cfg.enabled", "whether Megatron trains", at=TRAINED)
DTENSOR = {
    kind: size(f"@.{name}", "sizes of training with DTensor", at=tuple(f"{model}.dtensor_cfg" for model in TRAINED))
    for kind, name in (("tp", "tensor_parallel_size"), ("cp", "context_parallel_size"))
}
DTENSOR_ENABLED = switch("@.dtensor_cfg.enabled", "whether DTensor trains", at=TRAINED)

CROSS_TEACHER = anything("teacher", "teachers on the GPUs of the policy")
CROSS_TEACHERS = anything("teachers", "teachers on the GPUs of the policy")
TEACHERS_ENABLED = switch(f"{DISTILLATION}.enabled", "whether there are teachers")
SHARE_CHECKPOINTS = switch(
    f"{DISTILLATION}.deduplicate_shared_teacher_checkpoints",
    "whether agents with the same checkpoint share a teacher",
    default=True,
)
CHECKPOINTS = anything(f"{DISTILLATION}.teacher_model_by_agent_name", "the teachers")
TEACHERS_APART = switch(f"{APART}.enabled", "whether teachers have nodes of their own")
_OF_TEACHER = "the nodes and the sizes of a teacher"
TEACHER_NODES = size("@.num_nodes", _OF_TEACHER, default=1, at=(TEACHER,))
TEACHER_GPUS = size("@.gpus_per_node", _OF_TEACHER, default=8, at=(TEACHER,))
TEACHER_SIZES = {
    **megatron_sizes(_OF_TEACHER, TEACHER),
    "etp": megatron_sizes(_OF_TEACHER, TEACHER, inherited_from=POLICY_MEGATRON)["etp"],
}
TEACHER_OVERRIDES = anything(f"{APART}.teacher_overrides", "the nodes and the sizes of a teacher, by agent")

REWARD_ENABLED = switch(f"{REWARD}.enabled", "whether there is a reward model", default=True)
REWARD_NODES = size(f"{REWARD_RESOURCES}.num_nodes", "the nodes of the reward model", default=1)
REWARD_GPUS = size(
    f"{REWARD_RESOURCES}.gpus_per_node", "the nodes of the reward model", default=usual_gpus_of_reward_model
)
DATA = tuple(anything(f"data.{name}", "whether there is a reward model") for name in ("train", "validation", "default"))
"""Data sets, which name their environments."""

KEYS = KeyTable(Key.among(globals()), "rankplan.trainers.nemo_rl.memory:ROLES", never="cluster.component_placement")

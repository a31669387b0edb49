"""The flags by which OpenRLHF places (3c3be62: `cli/train_ppo_ray.py`), and their names before 0.10.2 (ed62d0e)."""

from __future__ import annotations

from rankplan.sdk import Key, KeyTable, fact, number, size, switch, text

MODELS = ("actor", "ref", "critic", "reward")

_GPUS = "the GPUs of a model"
NODES = {
    name: size(
        f"{name}.num_nodes",
        _GPUS,
        default=1,
        fallbacks=(f"{name}_num_nodes",),
        tells="tells",
        older_tells="tells" if name == "ref" else "",  # slime has an `actor_num_nodes`, too
    )
    for name in MODELS
}
GPUS_PER_NODE = {
    name: size(f"{name}.num_gpus_per_node", _GPUS, default=8, fallbacks=(f"{name}_num_gpus_per_node",), tells="tells")
    for name in MODELS
}

KL_COEFFICIENT = number(
    "algo.kl.init_coef", "whether there is a reference model, if above 0", default=0.01, fallbacks=("init_kl_coef",)
)
ESTIMATOR = text("algo.advantage.estimator", "whether there is a critic", fallbacks=("advantage_estimator",))
REWARD_URL = text("reward.remote_url", "whether there is a reward model", fallbacks=("remote_rm_url",))
AGENT = text("train.agent_func_path", "an agent that rewards, instead of a model", fallbacks=("agent_func_path",))

NUM_ENGINES = size(
    "vllm.num_engines",
    "the number of engines",
    default=0,
    least=0,
    fallbacks=("vllm_num_engines",),
    tells="alone",
    older_tells="tells",
)
ENGINE_TENSOR = size(
    "vllm.tensor_parallel_size", "the size of an engine", default=1, fallbacks=("vllm_tensor_parallel_size",)
)
TENSOR = size("ds.tensor_parallel_size", "sizes of training", default=1, fallbacks=("ds_tensor_parallel_size",))
RING = size("ds.ring_attn_size", "sizes of training", default=1, fallbacks=("ring_attn_size",))

COLOCATE_ALL = switch(
    "train.colocate_all", "whether everything is on the actor's GPUs", fallbacks=("colocate_all_models",)
)
COLOCATE = {
    first: switch(
        f"train.colocate_{first}_{second}",
        "whether two models share GPUs",
        fallbacks=(f"colocate_{first}_{second}",),
    )
    for first, second in (("actor", "ref"), ("critic", "reward"))
}
"""The flags of two models that share GPUs, by the first of them."""
ASYNCHRONOUS = switch(
    "train.async_enable",
    "whether the engines have GPUs of their own despite `colocate_all`",
    fallbacks=("async_train",),
)

HAS_REFERENCE = fact("has_reference", "whether there is a reference model; nothing if its coefficient or program tells")
HAS_REWARD = fact("has_reward", "whether there is a reward model; nothing if a remote one or an agent tells")
"""What a fork of OpenRLHF may state otherwise."""

KEYS = KeyTable(Key.among(globals()), "rankplan.trainers.openrlhf.memory:ROLES")

"""The keys by which SkyRL places (a956457: `train/config/config.py`).

Before version 0.3.0 those of the engines were in ``generator`` itself (``translate_legacy_config``).
"""

from __future__ import annotations

from rankplan.sdk import Config, Key, KeyTable, anything, size, switch, text
from rankplan.sdk.keys import megatron_sizes

MODELS = ("policy", "ref", "critic")
PLACEMENT = "trainer.placement"
ENGINE = "generator.inference_engine"
MEGATRON_SECTIONS = tuple(f"trainer.{name}.megatron_config" for name in MODELS)

_OLDER_GPUS = 4
"""GPUs of a model's node and of an engine's tensor group before 0.3.0, unless the config says it."""


def is_older(config: Config) -> bool:
    """Return whether a config is for a version before 0.3.0: its program is, or it has keys that have moved."""
    if config.program.startswith("skyrl_train."):
        return True
    return any(value is not None for key in MOVED for value in config.older_values(key))


def usual_gpus(config: Config) -> int:
    """Return the GPUs of a model's node and of an engine's tensor group by default."""
    return _OLDER_GPUS if is_older(config) else 1


MODELS_SECTION = anything(PLACEMENT, "the models", tells="alone")
NODES = {name: size(f"{PLACEMENT}.{name}_num_nodes", "the GPUs of a model", default=1) for name in MODELS}
GPUS_PER_NODE = {
    name: size(f"{PLACEMENT}.{name}_num_gpus_per_node", "the GPUs of a model", default=usual_gpus) for name in MODELS
}
COLOCATE_ALL = switch(f"{PLACEMENT}.colocate_all", "whether every model is on the engines' GPUs", default=True)
COLOCATE_POLICY_REF = switch(
    f"{PLACEMENT}.colocate_policy_ref", "whether the reference shares the policy's GPUs", default=True
)

_SIZE = "the number of engines, and their size"
_OLDER = "generator.inference_engine"
ENGINES_SECTION = anything(ENGINE, "the engines", tells="alone")
NUM_ENGINES = size(f"{ENGINE}.num_engines", _SIZE, default=1, fallbacks=("generator.num_inference_engines",))
TENSOR = size(
    f"{ENGINE}.tensor_parallel_size", _SIZE, default=usual_gpus, fallbacks=(f"{_OLDER}_tensor_parallel_size",)
)
PIPELINE = size(f"{ENGINE}.pipeline_parallel_size", _SIZE, default=1, fallbacks=(f"{_OLDER}_pipeline_parallel_size",))
DATA = size(f"{ENGINE}.data_parallel_size", _SIZE, default=1, fallbacks=(f"{_OLDER}_data_parallel_size",))
EXPERT = size(f"{ENGINE}.expert_parallel_size", _SIZE, default=1, fallbacks=(f"{_OLDER}_expert_parallel_size",))
RUN_LOCALLY = switch(
    f"{ENGINE}.run_engines_locally",
    "whether the job starts the engines",
    default=True,
    fallbacks=("generator.run_engines_locally",),
)
PROXY_URL, SERVER_URLS = (
    anything(f"{ENGINE}.{name}", "engines of another job", fallbacks=(f"generator.{name}",))
    for name in ("external_proxy_url", "external_server_urls")
)
ENABLE_PD = switch(f"{ENGINE}.enable_pd", "whether other engines prefill")
NUM_PREFILL = size(f"{ENGINE}.num_prefill", "the engines that prefill", default=0, least=0)
BACKEND_OF_VLLM = text(f"{ENGINE}.distributed_executor_backend", "whether an engine may span nodes")

USE_KL_LOSS = switch("trainer.algorithm.use_kl_loss", "whether there is a reference model", default=True)
USE_KL_IN_REWARD = switch("trainer.algorithm.use_kl_in_reward", "whether there is a reference model")
CRITIC = text("trainer.critic.model.path", "whether there is a critic")

ARCTIC_COLOCATES = switch(
    "trainer.arctic_rl.colocate", "whether every model is on the engines' GPUs, in the integration of Arctic RL"
)
OVERRIDE_ENTRYPOINT = text("trainer.override_entrypoint", "another program, whose placement is not read")
STRATEGY = text("trainer.strategy", "whether Megatron trains", default="fsdp")
SEQUENCE = size(
    "@.sequence_parallel_size",
    "sizes of training with FSDP",
    default=1,
    at=tuple(f"trainer.{name}" for name in MODELS),
)
MEGATRON = megatron_sizes("sizes of training with Megatron", *MEGATRON_SECTIONS)

MOVED = (NUM_ENGINES, TENSOR, PIPELINE, DATA, EXPERT, RUN_LOCALLY, PROXY_URL, SERVER_URLS)
"""Keys that were elsewhere before 0.3.0."""

KEYS = KeyTable(Key.among(globals()), "rankplan.trainers.skyrl.memory:ROLES", never="")

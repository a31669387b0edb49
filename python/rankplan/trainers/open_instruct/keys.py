"""The flags by which open-instruct places (e6c3044: `grpo_utils.py`, `data_loader.py`), and those of mason.py."""

from __future__ import annotations

from rankplan.sdk import Key, KeyTable, anything, size, switch

MASON = "mason"
"""The program that starts a job on Beaker, with a number of nodes and of GPUs on each."""

LEARNERS = anything("num_learners_per_node", "the learners of each node: a GPU for each", tells="alone")
OLDER_LEARNERS = anything("actor_num_gpus_per_node", "nothing: it has become num_learners_per_node")
SINGLE_GPU = switch("single_gpu_mode", "whether engines share the GPUs of the learners")
NUM_ENGINES = size("vllm_num_engines", "the engines", default=1)
TENSOR = size("vllm_tensor_parallel_size", "the size of an engine", default=1)
SEQUENCE = size("sequence_parallel_size", "the learners that share a sequence", default=1)
SHARD_DEGREE = size("fsdp_shard_degree", "the learners that share the states (OLMo-core)")
REPLICAS = size("fsdp_num_replicas", "the copies of the states (OLMo-core)")
PROMPTS = size("num_unique_prompts_rollout", "the batch, of which each learner needs a sample", default=16)
SAMPLES = size("num_samples_per_prompt_rollout", "the samples of a prompt", default=4)
NUM_NODES = size("num_nodes", "the nodes of mason.py", default=1)
GPUS = size("gpus", "the GPUs of each node of mason.py", default=0, least=0)

KEYS = KeyTable(Key.among(globals()), "rankplan.trainers.open_instruct.memory:ROLES", flags=True)

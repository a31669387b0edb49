"""The keys of TinyRL's configs, each declared once."""

from __future__ import annotations

from typing import Any

from rankplan import sdk

NODES = sdk.size("tinyrl.nodes", "the nodes of the job", default=1, tells="alone", fallbacks=("tinyrl.num_nodes",))
GPUS = sdk.size("tinyrl.gpus_per_node", "GPUs of each node", default=8, tells="tells")
KEEP = sdk.text("tinyrl.keep", "the level of the network that the learner's tensor groups stay in")

LEARNERS = sdk.size("learner.gpus", "the GPUs of the learner", default=8)
TENSOR = sdk.size("learner.tensor", "the tensor size of the learner", default=1)
MODEL = sdk.text("learner.model")
OPTIMIZER = sdk.text("learner.optimizer", default="adam")
QUANTIZED = sdk.switch("learner.quantized")
KIND = sdk.fact("engine")

SAMPLERS = sdk.size("sampler.engines", "the engines that sample", default=1, least=0)
SAMPLER_TENSOR = sdk.size("sampler.tensor", "GPUs of an engine", default=1)
COLOCATED = sdk.switch("sampler.colocated", "whether the engines are on the learner's GPUs")
CACHE = sdk.share("sampler.gpu_share")
LENGTH = sdk.number("sampler.length", default=4096)

JUDGES = sdk.size("judge.processes", "processes that judge, without GPUs", default=0, least=0)
EXTRA: sdk.Key[Any] = sdk.anything("extra", "nothing: values of the user")

KEYS = sdk.KeyTable(sdk.Key.among(globals()), "tinyrl_rankplan.memory:ROLES")

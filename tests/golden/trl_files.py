"""Renews ``trl_files.jsonl.gz``: ``python tests/golden/trl_files.py TRL OPEN_R1``.

TRL and OPEN_R1 are checkouts (f2cd577, 1416fa0). Each YAML file that they ship becomes a line with its digest, its keys
that decide a placement, and the commands that use it as its repository says. What they start is counted here without
rankplan: accelerate starts one process for ``NO`` and otherwise ``num_processes``; the trainer of a recipe has all
devices of a node but that of its server, or a node of its own.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

LINES = Path(__file__).resolve().parent / "trl_files.jsonl.gz"
_OF_ACCELERATE = ("distributed_type", "num_processes", "num_machines", "machine_rank", "deepspeed_config", "gpu_ids")
_OF_TRAINER = (
    *("use_vllm", "vllm_mode", "vllm_device", "num_generations", "per_device_train_batch_size"),
    *("gradient_accumulation_steps", "steps_per_generation", "generation_batch_size"),
)
_ZERO2 = "recipes/accelerate_configs/zero2.yaml"
_ONE_NODE = "CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model M &\nCUDA_VISIBLE_DEVICES=1,2,3,4,5,6,7 {trainer}"
_TWO_NODES = (
    "N=($(scontrol show hostnames $SLURM_JOB_NODELIST))\n"
    "srun --nodes=1 --ntasks=1 --nodelist=${{N[1]}} trl vllm-serve --model M --data_parallel_size 8 &\n"
    "srun --nodes=1 --ntasks=1 --nodelist=${{N[0]}} {trainer}"
)
_TRAINER = (
    "accelerate launch --config_file " + _ZERO2 + " --num_processes={count} src/open_r1/grpo.py --config {path}\n"
)


def kept(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a file that decide a placement, with the sections that do."""
    names = (*_OF_ACCELERATE, *_OF_TRAINER)
    found = {name: config[name] for name in names if name in config}
    if isinstance(section := found.get("deepspeed_config"), dict):
        places = ("deepspeed_multinode_launcher", "zero_stage")
        found["deepspeed_config"] = {name: section[name] for name in places if name in section}
    return found


def uses(path: str, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the commands that use a file, and what they start; a file that no online trainer reads is refused."""
    if "distributed_type" in config:
        count = 1 if config["distributed_type"] == "NO" else config["num_processes"]
        script = f"accelerate launch --config_file {path} -m trl.scripts.grpo\n"
        yield {"script": script, "components": {"actor": [count, 1]}}
    elif "use_vllm" in config:
        yield recipe(path, config, _ONE_NODE, 7, {"actor": [7, 1], "rollout": [1, 1]})
        yield recipe(path, config, _TWO_NODES, 8, {"actor": [8, 1], "rollout": [8, 1]})
    else:
        yield {"refused": "no-components"}


def recipe(path: str, config: Mapping[str, Any], form: str, count: int, components: dict[str, Any]) -> dict[str, Any]:
    """Return the commands of a recipe with so many processes, and what they start."""
    script = form.format(trainer=_TRAINER.format(count=count, path=path))
    batch = config["per_device_train_batch_size"] * count * config["gradient_accumulation_steps"]
    answer = {"refused": "not-multiple"} if batch % config["num_generations"] else {"components": components}
    return {"script": script, **answer}


def main(trl: str, open_r1: str) -> None:
    """Record the files of both repositories."""
    folders = {"trl": (Path(trl), "trl/accelerate_configs", "examples"), "open-r1": (Path(open_r1), "recipes")}
    lines = []
    for name, (folder, *parts) in folders.items():
        for file in sorted(path for part in parts for path in (folder / part).rglob("*.yaml")):
            path, config = str(file.relative_to(folder)), yaml.safe_load(file.read_text())
            digest = sha256(file.read_bytes()).hexdigest()
            files = {path: kept(config)}
            if "use_vllm" in config:
                files[_ZERO2] = kept(yaml.safe_load((folder / _ZERO2).read_text()))
            found = {"repository": name, "path": path, "digest": digest, "files": files}
            lines += [{**found, **answer} for answer in uses(path, config)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    LINES.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Records ``ms_swift_pools.jsonl.gz``: what ms-swift's own ``MegatronRayPipeline`` asks Ray for, and where it ends.

``python tests/golden/ms_swift_pools.py CHECKOUT`` needs a checkout of ms-swift at 3602360, NumPy and PyYAML. It asks
all lines of the file again, and names those whose answer is another one. ``--held-out SEED COUNT`` draws configs beside
them, and appends them with their answers: rankplan reads them for the first time after they are recorded.

Ray is a stand-in of this file. It fills nodes first fit in the order of their addresses as text, counts the CPUs of
bundles and servers, and runs actors where they are made. What would wait for ever ends the run.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import logging
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
LINES = HERE / "ms_swift_pools.jsonl.gz"
STUBS = """
    accelerate datasets deepspeed einops huggingface_hub json_repair mcore_bridge megatron modelscope peft PIL
    qwen_vl_utils safetensors tokenizers torch transformers trl vllm uvicorn fastapi aiohttp openai requests pandas tqdm
"""
_ENVIRONMENT: dict[str, str] = {}
"""The variables of the actor that starts."""


class Waits(BaseException):
    """Ray never gives what is asked for."""


@dataclass
class Node:
    """A node of the stand-in: its free GPUs and CPUs."""

    address: str
    gpus: list[int]
    cpus: float


@dataclass
class Group:
    """A placement group on one node, with the GPU of each bundle."""

    id: int
    node: Node
    gpus: list[int]

    def ready(self) -> None:
        pass


@dataclass
class Cluster:
    """What the pipeline has asked for, and the nodes that are left."""

    nodes: list[Node]
    requests: list[dict[str, Any]] = field(default_factory=list)
    servers: list[list[Any]] = field(default_factory=list)
    ends: dict[str, list[list[Any]]] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)

    @classmethod
    def of(cls, described: dict[str, Any]) -> Cluster:
        """Return the nodes of a line, without what other jobs hold."""
        held = {address: set(gpus) for address, gpus in described["held"]}
        nodes = [
            Node(address, [gpu for gpu in range(gpus) if gpu not in held.get(address, ())], cpus)
            for address, gpus, cpus in described["joined"]
        ]
        return cls(sorted(nodes, key=lambda node: node.address))

    def node(self, address: str) -> Node:
        """Return the node with this address, which is its id, too."""
        return next(node for node in self.nodes if node.address == address)

    def reserve(self, bundles: list[dict[str, int]], strategy: str, name: str = "") -> Group:
        """Reserve a group on the first node with room for it."""
        assert strategy == "STRICT_PACK"
        alike = [[len(list(equal)), bundle] for bundle, equal in groupby(bundles)]
        self.requests.append({"name": name, "bundles": alike, "strategy": strategy})
        gpus, cpus = sum(bundle["GPU"] for bundle in bundles), sum(bundle["CPU"] for bundle in bundles)
        node = next((node for node in self.nodes if len(node.gpus) >= gpus and node.cpus >= cpus), None)
        if node is None:
            raise Waits(f"group of {len(bundles)}")
        group = Group(len(self.groups), node, node.gpus[:gpus])
        node.gpus, node.cpus = node.gpus[gpus:], node.cpus - cpus
        self.groups.append(group)
        return group

    def serve(self, name: str, node: Node) -> None:
        """Reserve the CPU of a server."""
        if node.cpus < 1:
            raise Waits(f"server {name}")
        node.cpus -= 1
        self.servers.append([name, node.address, 1])


class Remote:
    """A function or class behind ``ray.remote``, which runs when it is called; so do the methods of an actor."""

    def __init__(self, run: Callable[..., Any], ray: SimpleNamespace, **options: Any) -> None:
        self._run, self._ray, self._options = run, ray, options

    def options(self, **options: Any) -> Remote:
        return Remote(self._run, self._ray, **{**self._options, **options})

    def remote(self, *args: Any, **options: Any) -> Any:
        cluster, strategy = self._ray.cluster, self._options["scheduling_strategy"]
        if isinstance(strategy, str):
            node, gpu = cluster.node(strategy), None
        else:
            group, index = strategy
            node, gpu = group.node, group.gpus[index]
        if "name" in self._options:
            cluster.serve(self._options["name"], node)
        self._ray.here = SimpleNamespace(node=node, gpu=gpu, name=self._options.get("name", ""))
        _ENVIRONMENT.clear()
        _ENVIRONMENT.update(self._options.get("runtime_env") or {})
        made = self._run(*args, **options)
        return Actor(made) if isinstance(self._run, type) else made


class Actor:
    """The handle of an actor."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=getattr(self._made, name))


def stand_in() -> SimpleNamespace:
    """Put a stand-in in the place of Ray; return what it knows of the run: ``cluster``, and the actor that starts."""
    state = SimpleNamespace(cluster=None, here=None)

    def remote(*args: Any, **options: Any) -> Any:
        return Remote(args[0], state) if args else lambda run: Remote(run, state, **options)

    def context() -> SimpleNamespace:
        ids = {"GPU": [] if state.here.gpu is None else [str(state.here.gpu)]}
        return SimpleNamespace(get_node_id=lambda: state.here.node.address, get_accelerator_ids=lambda: ids)

    def table(group: int) -> dict[str, Any]:
        return {"bundles_to_node_id": {0: state.cluster.groups[group].node.address}}

    def nodes() -> list[dict[str, str]]:
        return [{"NodeID": node.address, "NodeManagerAddress": node.address} for node in state.cluster.nodes]

    modules = {
        "ray": {"remote": remote, "get": lambda value, **options: value, "nodes": nodes, "ObjectRef": object},
        "ray.util": {"get_node_ip_address": lambda: state.here.node.address},
        "ray.util.placement_group": {"placement_group": lambda *args, **kw: state.cluster.reserve(*args, **kw)},
        "ray.util.scheduling_strategies": {
            "PlacementGroupSchedulingStrategy": lambda placement_group, placement_group_bundle_index: (
                placement_group,
                placement_group_bundle_index,
            ),
            "NodeAffinitySchedulingStrategy": lambda node_id, soft: node_id,
        },
        "ray.runtime_env": {"RuntimeEnv": lambda env_vars: env_vars},
        "ray._private": {},
        "ray._private.state": {"state": SimpleNamespace(placement_group_table=table)},
    }
    for name, values in modules.items():
        module = sys.modules[name] = ModuleType(name)
        module.__dict__.update(values, __path__=[])
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
    sys.modules["ray"].get_runtime_context = context  # type: ignore[attr-defined]
    return state


def visible() -> list[int]:
    """Return the GPUs that ms-swift shows to the actor that starts."""
    return [int(gpu) for gpu in _ENVIRONMENT["CUDA_VISIBLE_DEVICES"].split(",")]


def pipeline_of(checkout: Path, state: SimpleNamespace) -> Any:
    """Return ms-swift's module with its pipeline, whose workers and servers only say where they are."""
    sys.path[:0] = [str(HERE.parent / "trainers" / "programs"), str(checkout)]
    from _stub import become

    for name in STUBS.split():
        become(name)

    def get_logger(*args: Any, **options: Any) -> logging.Logger:
        logger = logging.getLogger("modelscope")
        logger.addHandler(logging.NullHandler())
        return logger

    importlib.import_module("modelscope.utils.logger").get_logger = get_logger  # type: ignore[attr-defined]
    importlib.import_module("modelscope.hub.utils.utils").get_cache_dir = lambda *args: ""  # type: ignore[attr-defined]
    for name in ("base_trainer", "megatron_worker", "rollout.vllm_server"):
        become(f"swift.ray.megatron.{name}")

    class Worker:
        """A worker of the training."""

        def __init__(self) -> None:
            gpu = visible()[int(_ENVIRONMENT["LOCAL_RANK"])]
            row = [int(_ENVIRONMENT["RANK"]), 0, state.here.node.address, [gpu]]
            state.cluster.ends.setdefault("train", []).append(row)

        def init_actor(self, *args: Any, **options: Any) -> None:
            pass

        def get_parallel_info(self) -> dict[str, Any]:
            return {"dp_rank": 0, "is_collector": True, "dp_size": 1}

    class Server:
        """A server of an engine."""

        def __init__(self, node_rank: int, **options: Any) -> None:
            _, role, _, replica, _ = state.here.name.split("_")
            row = [int(replica), node_rank, state.here.node.address, visible()]
            state.cluster.ends.setdefault(role, []).append(row)

        def get_master_address(self) -> tuple[str, int, int]:
            return "", 0, 0

        def launch_server(self, **options: Any) -> None:
            pass

    sys.modules["swift.ray.megatron.megatron_worker"].MegatronWorker = Worker  # type: ignore[attr-defined]
    sys.modules["swift.ray.megatron.rollout.vllm_server"].VllmServer = Server  # type: ignore[attr-defined]
    pipeline = importlib.import_module("swift.ray.megatron.pipeline")
    pipeline.compute_iter_params = lambda *args: {"train_iters": 1}  # type: ignore[attr-defined]
    return pipeline


def answer(pipeline: Any, state: SimpleNamespace, config: dict[str, Any], described: dict[str, Any]) -> dict[str, Any]:
    """Return what the pipeline does with a config on a cluster."""
    cluster = state.cluster = Cluster.of(described)
    line: dict[str, Any] = {"cluster": described, "config": config}
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder) / "swift.yaml").write_text(json.dumps(config))
        try:
            job = pipeline.MegatronRayPipeline(str(file))
            job._data_info = {}
            job._compute_train_iters()
            job._create_pools()
            job._spawn_train_group("train")
            job._init_rollout_replicas()
            job._init_teacher_replicas()
        except Waits as waits:
            line["waits"] = str(waits)
        except Exception as error:
            line["error"] = f"{type(error).__name__}: {error}"
    return line | {"requests": cluster.requests, "servers": cluster.servers, "ends": cluster.ends}


def drawn(random: random.Random, described: dict[str, Any]) -> dict[str, Any]:
    """Return a config for a cluster; most of them can be placed."""
    nodes = random.choice([1, 1, 2, 2, 3])
    sizes = [size for size in (1, 2, 3, 4, 6, 8) if size <= max(gpus for _, gpus, _ in described["joined"])]
    each = random.choice(sizes)
    config: dict[str, Any] = {"rlhf_type": random.choice(["grpo", "gkd"]), "nnodes": nodes}
    if nodes == 1 and random.random() < 0.5:
        del config["nnodes"]
    groups = [[], [["train", "rollout"]], [["rollout", "teacher"]], [["train", "teacher"]]]
    colocated = random.choice([*groups, [["train", "rollout", "teacher"]]])
    if colocated or random.random() < 0.3:
        config["colocate_groups"] = colocated
    together = {role for group in colocated for role in group}
    roles = [
        role for role in ("train", "rollout", "teacher") if role in together or random.random() < 0.7 or role == "train"
    ]
    for role in roles:
        of_role = each if role in together else random.choice(sizes)
        config[role] = {"gpus": of_role * nodes}
        if random.random() < 0.08:
            config[role]["gpus"] += random.choice([1, -1, 2])
        if role == "train":
            key = random.choice(["tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"])
            divisors = [size for size in (1, 2, 3, 4) if of_role * nodes % size == 0]
            (config[role] if random.random() < 0.7 else config)[key] = random.choice(divisors)
            continue
        fitting = [size for size in (1, 2, 3, 4, 6, 8, 12, 16) if of_role * nodes % size == 0]
        tensor = random.choice(fitting)
        (config[role] if random.random() < 0.85 else config)["vllm_tensor_parallel_size"] = tensor
        if random.random() < 0.35:
            rest = [size for size in (1, 2, 3, 4) if of_role * nodes % (tensor * size) == 0]
            config[role]["vllm_data_parallel_size"] = random.choice(rest)
    return config


def held_out(
    pipeline: Any, state: SimpleNamespace, lines: list[dict[str, Any]], seed: int, count: int
) -> Iterator[Any]:
    """Yield lines with configs that no line has, on the clusters of the lines."""
    source = random.Random(seed)
    clusters = list({line["cluster"]["name"]: line["cluster"] for line in lines}.values())
    seen = {json.dumps([line["cluster"]["name"], line["config"]], sort_keys=True) for line in lines}
    number = 0
    while number < count:
        described = source.choice(clusters)
        config = drawn(source, described)
        key = json.dumps([described["name"], config], sort_keys=True)
        if key not in seen:
            seen.add(key)
            yield {"id": f"swift-h{number:03}-{described['name']}"} | answer(pipeline, state, config, described)
            number += 1


@contextmanager
def without_mask() -> Iterator[None]:
    """Run without a mask of the machine, by which ms-swift would rename the GPUs of Ray."""
    before = dict(os.environ)
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> int:
    """Ask all lines again, and append those that are held out; return how many answers are no longer the same."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--held-out", nargs=2, type=int, metavar=("SEED", "COUNT"))
    options = parser.parse_args()
    logging.disable()
    state = stand_in()
    lines = [json.loads(line) for line in gzip.decompress(LINES.read_bytes()).splitlines()]
    with without_mask():
        pipeline = pipeline_of(options.checkout, state)
        changed = [
            line["id"]
            for line in lines
            if line != {"id": line["id"]} | answer(pipeline, state, line["config"], line["cluster"])
        ]
        added = list(held_out(pipeline, state, lines, *options.held_out)) if options.held_out else []
    print(f"{len(lines)} lines, {len(changed)} with another answer", *changed, sep="\n")
    if added and not changed:
        text = "".join(json.dumps(line) + "\n" for line in [*lines, *added])
        LINES.write_bytes(gzip.compress(text.encode(), mtime=0))
    return len(changed)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)

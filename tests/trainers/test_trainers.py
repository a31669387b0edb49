"""The trainers' own placement code, with trivial workers, alone and under ``rankplan pin``.

Five nodes joined a cluster in odd order, and another job holds two accelerators. ``.ci/trainers`` gets the packages,
and sets ``RANKPLAN_TRAINERS`` to their folder; without it, nothing runs here. For slime, ROLL and NeMo-RL, which are
in no package index either, a program asks for their recorded groups.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from rankplan import Inventory, Plan
from rankplan.front.job import read_job
from rankplan.plans.node_order import in_trainers_order
from rankplan.runtime.ray.connection import head_of
from rankplan.runtime.ray.head import Head
from ray import cluster_utils
from support.goldens import lines
from support.raylets import ONE_WORKER_AT_A_TIME
from support.recorded_trainers import config

PACKAGES = os.environ.get("RANKPLAN_TRAINERS")
pytestmark = [
    pytest.mark.skipif(PACKAGES is None, reason="needs the trainers' packages: run .ci/trainers"),
    pytest.mark.timeout(900),
]

PROGRAMS = Path(__file__).with_name("programs")
STUBS = """
    accelerate aiofiles aiohttp backoff beaker cachetools codetiming colorlog datasets dateutil deepspeed einops
    fastapi flash_attn flask fsspec httpx huggingface_hub jaxtyping lark loguru megatron modelscope json_repair trl
    mcore_bridge qwen_vl_utils safetensors tokenizers dacite numba openai orjson pandas peft PIL pylatexenc regex
    sympy tenacity tensordict torch torch_memory_saver torchdata tqdm transfer_queue transformers uvicorn uvloop
    vllm vllm_router wandb werkzeug zmq
"""
"""What the trainers import, and rankplan's tests do not need."""

JOINED = ("127.0.0.11", "127.0.0.10", "127.0.0.9", "127.0.0.12", "127.0.0.3")
EACH, BUSY, HELD = 4, "127.0.0.12", 2


@dataclass(frozen=True)
class Trainer:
    """A trainer: its program with its arguments, and the file that rankplan plans.

    ``anyhow`` are components whose accelerators inside a bundle Ray deals in any order.
    """

    program: str
    arguments: tuple[str, ...]
    file: str
    text: str
    anyhow: frozenset[str] = field(default_factory=frozenset)

    @property
    def package(self) -> str:
        """The folder of its package."""
        return self.program.removesuffix("_groups").replace("_", "-")


OPENRLHF = shlex.split(
    "--actor.model_name_or_path M --actor.num_nodes 2 --actor.num_gpus_per_node 2 --ref.num_nodes 2"
    " --ref.num_gpus_per_node 2 --train.colocate_actor_ref --vllm.num_engines 3 --vllm.tensor_parallel_size 2"
    " --reward.model_name_or_path R --reward.num_nodes 2 --reward.num_gpus_per_node 1"
    " --algo.advantage.estimator rloo --rollout.n_samples_per_prompt 4"
)
VERL = shlex.split(
    "trainer.nnodes=2 trainer.n_gpus_per_node=4 trainer.v1.trainer_mode=separate_async algorithm.adv_estimator=grpo"
    " actor_rollout_ref.rollout.name=vllm actor_rollout_ref.model.path=M actor_rollout_ref.rollout.nnodes=1"
    " actor_rollout_ref.rollout.n_gpus_per_node=4 actor_rollout_ref.rollout.tensor_model_parallel_size=2"
    " actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"
)
SKYRL = shlex.split(
    "trainer.placement.colocate_all=false trainer.placement.policy_num_nodes=2"
    " trainer.placement.policy_num_gpus_per_node=2 trainer.placement.ref_num_nodes=2"
    " trainer.placement.ref_num_gpus_per_node=2 generator.inference_engine.num_engines=3"
    " generator.inference_engine.tensor_parallel_size=2"
)
MS_SWIFT = """\
rlhf_type: gkd
nnodes: 2
colocate_groups: [[train, rollout]]
train: {gpus: 4, tensor_model_parallel_size: 2}
rollout: {gpus: 4, vllm_tensor_parallel_size: 2}
"""
MS_SWIFT_GROUPS = {
    "nproc_per_node": 4,
    "train": {"device": "GPU", "ranks": "list(range(0, 6))", "workers": ["train"]},
    "sampler": {"device": "GPU", "ranks": 2, "workers": ["sampler"]},
}
OPEN_INSTRUCT = shlex.split("--num_learners_per_node 3 4 --vllm_num_engines 5 --vllm_tensor_parallel_size 2")
AREAL = """\
cluster: {n_nodes: 5, n_gpus_per_node: 4}
actor: {backend: 'fsdp:d6', scheduling_spec: [{gpu: 1, cpu: 1, mem: 1}]}
rollout: {backend: 'sglang:d3t2', scheduling_spec: [{gpu: 1, cpu: 1, mem: 1}]}
"""


def script(command: str, arguments: list[str]) -> str:
    return f"{command} {shlex.join(arguments)}\n"


def recorded(name: str) -> Trainer:
    """A trainer with the requests of a recorded line."""
    line = next(one for one in lines("trainer_requests") if one["id"] == name)
    requests = line["alone"]["requests"]
    for one in requests:
        one["order"] = line["order"] if line["trainer"] == "slime" or one["name"].endswith("-unified") else None
    text = json.dumps(config(line, Path()))
    return Trainer("recorded", (json.dumps(requests),), "conf.yaml", text)


TRAINERS: dict[str, Callable[[], Trainer]] = {
    "openrlhf": lambda: Trainer(
        "openrlhf", (*OPENRLHF,), "run.sh", script("python3 -m openrlhf.cli.train_ppo_ray", OPENRLHF)
    ),
    "verl": lambda: Trainer("verl", (*VERL,), "run.sh", script("python3 -m verl.trainer.main_ppo", VERL)),
    "skyrl": lambda: Trainer(
        "skyrl",
        (*SKYRL,),
        "run.sh",
        script("python3 -m skyrl.train.entrypoints.main_base", SKYRL),
        frozenset({"policy", "ref"}),
    ),
    "areal": lambda: Trainer(
        "areal", ('[["actor", 6, 1, "shared"], ["rollout", 3, 2, "separate"]]',), "conf.yaml", AREAL
    ),
    "ms_swift": lambda: Trainer("ms_swift", (MS_SWIFT,), "conf.yaml", MS_SWIFT),
    "ms_swift_groups": lambda: Trainer(
        "ms_swift_groups",
        (json.dumps(MS_SWIFT_GROUPS),),
        "conf.yaml",
        json.dumps({"use_ray": True, "device_groups": MS_SWIFT_GROUPS}),
    ),
    "open_instruct": lambda: Trainer(
        "open_instruct",
        ("3", "4", "5", "2"),
        "run.sh",
        script("python3 open_instruct/grpo_fast.py", OPEN_INSTRUCT),
        frozenset({"learner"}),
    ),
    "slime": lambda: recorded("slime-02-fours"),
    "roll": lambda: recorded("roll-04-fours"),
    "nemo_rl": lambda: recorded("nemo_rl-10-fours"),
}


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """Yield the head of the cluster, on which another job runs."""
    cluster = cluster_utils.Cluster()
    options = {"num_cpus": 200, "num_gpus": EACH, "memory": 64 << 30, "object_store_memory": 80 << 20}
    options |= {"env_vars": ONE_WORKER_AT_A_TIME}
    try:
        for number, address in enumerate(JOINED):
            first = {"include_dashboard": False, "no_monitor": True} if number == 0 else {}
            cluster.add_node(node_ip_address=address, **options, **first)
        command = [sys.executable, str(PROGRAMS / "other_program.py"), BUSY, str(HELD)]
        environment = {**os.environ, "RAY_ADDRESS": cluster.address}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment, **pipes) as other:
            assert other.stdout is not None and any(line == "holding\n" for line in other.stdout)
            yield head_of(cluster.address)
            other.kill()
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with stubs of what the trainers import."""
    folder = tmp_path_factory.mktemp("stubs")
    for name in STUBS.split():
        (folder / f"{name}.py").write_text("from _stub import become\n\nbecome(__name__)\n")
        (metadata := folder / f"{name}-99.0.dist-info").mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 99.0\n")
    return folder


def nodes(head: Head) -> tuple[Inventory, dict[str, str]]:
    """Return the nodes in the order of their addresses, without what the other job holds, and the address by id."""
    ids = {entry.node_id: entry.address for entry in head.tables().nodes}
    addresses = sorted(ids.values(), key=lambda address: int(address.split(".")[-1]))
    entries = [{"ranks": rank, "ip": ip, "accelerators": EACH} for rank, ip in enumerate(addresses)]
    return Inventory.from_dict({"nodes": entries}).without([f"{BUSY}/{gpu}" for gpu in range(HELD)]), ids


def node_ids(head: Head, inventory: Inventory) -> list[str]:
    """Return Ray's ids of the nodes of an inventory."""
    by_address = {address: node for node, address in nodes(head)[1].items()}
    return [by_address[str(inventory.node(rank).ip)] for rank in range(inventory.num_nodes)]


def planned(head: Head, file: Path) -> Plan:
    """Return the plan to pin, which knows Ray's node ids."""
    inventory, _ = nodes(head)
    return read_job(file, inventory).plan(pinned=True, node_ids=node_ids(head, inventory))


def wait_until_free(head: Head) -> None:
    """Wait until the run before has given back its accelerators."""
    deadline = time.monotonic() + 120
    while sum(free.get("GPU", 0) for free in head.tables().free.values()) < EACH * len(JOINED) - HELD:
        assert time.monotonic() < deadline, "the run before still holds accelerators"
        time.sleep(0.5)


def run(head: Head, stubs: Path, name: str, out: Path, pin: Path | None = None) -> tuple[list[Any], dict[str, Any]]:
    """Run a trainer; return what it asked for, and the accelerators of each component in rank order.

    ``out`` is a file for what its workers say, ``pin`` what to give ``rankplan pin``.
    """
    trainer = TRAINERS[name]()
    package = Path(PACKAGES or "") / trainer.package
    if trainer.program != "recorded" and not package.is_dir():
        pytest.skip(f"{trainer.program} is not in {PACKAGES}")
    wait_until_free(head)
    folders = [stubs, package, package / "skyrl-gym", PROGRAMS, *filter(None, [os.environ.get("PYTHONPATH")])]
    path = os.pathsep.join(map(str, folders))
    environment = {**os.environ, "RAY_ADDRESS": head.address, "PLACED": str(out), "PYTHONPATH": path}
    command = [sys.executable, str(PROGRAMS / f"{trainer.program}_program.py"), *trainer.arguments]
    if trainer.program == "verl":
        command += [f"+ray_kwargs.ray_init.runtime_env.env_vars.PYTHONPATH='{path}'", "hydra.output_subdir=null"]
    if pin is not None:
        command = [sys.executable, "-m", "rankplan", "pin", str(pin), "--ray", head.address, "--", *command]
    done = subprocess.run(command, env=environment, cwd=out.parent, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    said = [json.loads(line) for line in out.read_text().splitlines()]
    address = nodes(head)[1]
    places: dict[str, list[Any]] = {}
    for one in sorted((one for one in said if "component" in one), key=lambda one: (one["rank"], one["index"])):
        found = [(address[one["node"]], gpu) for gpu in sorted(one["gpus"])]
        places.setdefault(one["component"], []).extend(found)
    return [one for one in said if "bundles" in one], places


def written(name: str, folder: Path) -> Path:
    """Write the file that rankplan plans for a trainer."""
    trainer = TRAINERS[name]()
    (file := folder / trainer.file).write_text(trainer.text)
    return file


def expected(plan: Plan) -> dict[str, list[Any]]:
    """Return the accelerators of each component in rank order; all of them in turn as the component without a name."""
    ips = {rank: spec.ip for ranks, spec in plan.inventory.stretches() for rank in ranks}
    found: dict[str, list[Any]] = {
        name: [(ips[node], index) for row in one for node, index in row.devices] for name, one in plan.items()
    }
    return found | {"": list(dict.fromkeys(chain.from_iterable(found.values())))}


@pytest.mark.parametrize("name", TRAINERS)
def test_alone_a_trainer_asks_for_what_is_planned(name: str, head: Head, stubs: Path, tmp_path: Path) -> None:
    asked, places = run(head, stubs, name, tmp_path / "placed.jsonl")
    plan = planned(head, written(name, tmp_path))
    certain = [one for one in plan.requests if one.strategy is not None and not one.optional]
    assert [(tuple(one["bundles"]), one["strategy"]) for one in asked] == [
        (one.accelerators, one.strategy) for one in certain
    ]
    for mine, theirs in zip(certain, asked, strict=True):
        assert re.fullmatch(mine.name, theirs["name"]) if mine.name is not None else not theirs["name"]
    wanted = expected(plan)
    assert {component: len(found) for component, found in places.items()} == {
        component: len(wanted[component]) for component in places
    }
    pairs = chain.from_iterable(zip(wanted[one], found, strict=True) for one, found in places.items())
    elsewhere = sum(mine != theirs for mine, theirs in pairs)
    print(f"{name}: {elsewhere} of {sum(map(len, places.values()))} accelerators elsewhere than planned")


@pytest.mark.parametrize("name", TRAINERS)
def test_pinned_every_rank_is_where_it_is_planned(name: str, head: Head, stubs: Path, tmp_path: Path) -> None:
    file = written(name, tmp_path)
    _, places = run(head, stubs, name, tmp_path / "placed.jsonl", file)
    trainer, wanted = TRAINERS[name](), expected(planned(head, file))
    assert places
    for component, found in places.items():
        if component in trainer.anyhow:
            assert [node for node, _ in found] == [node for node, _ in wanted[component]]
            assert sorted(found) == sorted(wanted[component])
        else:
            assert found == wanted[component], component


def test_a_saved_plan_is_put_in_the_order_of_the_trainer(head: Head, stubs: Path, tmp_path: Path) -> None:
    """NeMo-RL sorts the nodes of its engine by Ray's ids, which no plan has: two of them are exchanged."""
    inventory, _ = nodes(head)
    ids = node_ids(head, inventory)
    job = read_job(written("nemo_rl", tmp_path), inventory)
    digits = str.maketrans("0123456789abcdef", "fedcba9876543210")
    saved = job.plan(pinned=True, node_ids=[node_id.translate(digits) for node_id in ids])
    saved.save(file := tmp_path / "plan.json")
    _, places = run(head, stubs, "nemo_rl", tmp_path / "placed.jsonl", file)
    after, changes = in_trainers_order(saved, node_ids(head, saved.inventory))
    assert len(changes) == 1 and places[""] == expected(after)[""]

"""Records ``prime_rl.jsonl.gz``: what prime-rl's own code starts, and on which devices; and
``prime_rl_commands.jsonl.gz``: with which words.

``python tests/golden/prime_rl.py CHECKOUT`` runs in an environment of its own with ``pip install prime-pydantic-config
jinja2 loguru`` and a checkout of prime-rl at the commit of ``commits.json``. Each line is a config with words of a
command. prime-rl's ``cli`` and pydantic models read them. A job on one node is started by its ``rl_local``, whose
processes are recorded and not started. One on several nodes is the script that its templates give: the part that
``srun`` runs on each node is run by bash, for each node, where the programs that it starts only write down their words
and their mask.
Packages that only check environments and renderers have stand-ins.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LINES = HERE / "prime_rl.jsonl.gz"
COMMANDS = HERE / "prime_rl_commands.jsonl.gz"
_STARTED = "started"
_PROGRAMS = ("uv", "vllm-router", "epp", "envoy", "pd-sidecar", "mooncake_master", "mooncake_client")
_MASK = "CUDA_VISIBLE_DEVICES"
_SILENT = ("ibv_devinfo", "nvidia-smi", "pkill", "ip", "getent", "sleep", "hostname", "ulimit")
_NOTE = """#!/bin/bash
note=$STARTED/$BASHPID
mkdir -p "$note"
printf '%s\\0' "$(basename "$0")" "$@" >"$note/words"
env -0 >"$note/environment"
while [ $# -gt 2 ]; do [ "$1" != --vllm ] || cp "$3" "$note/overrides"; shift; done
"""
"""A program that only writes down how it was started."""
_BODY = re.compile(r"srun --kill-on-bad-exit=1 bash -s <<'LAUNCH_SH'\n(.*?)\nLAUNCH_SH\n", re.DOTALL)

BASE: dict[str, Any] = {
    "trainer": {},
    "orchestrator": {"train": {"source": [{"name": "math", "env": {"taskset": {"id": "math"}}}]}},
    "inference": {},
}


def stand_ins() -> None:
    """Put modules in the place of packages whose values place nothing."""
    from pydantic import BaseModel, ConfigDict

    class Loose(BaseModel):
        model_config = ConfigDict(extra="allow")

    class Serve(Loose):
        address: str | None = None

    class Environment(Loose):
        @property
        def env_id(self) -> str:
            taskset = (self.model_extra or {}).get("taskset")
            return str((taskset or {}).get("id", "")) if isinstance(taskset, dict) else ""

    class Renderer(Loose):
        name: str = "auto"

    class EveryModel(dict[str, str]):
        def __contains__(self, name: object) -> bool:
            return True

    verifiers, inner = types.ModuleType("verifiers"), types.ModuleType("verifiers.v1")
    for name in ("EnvConfig", "SingleAgentEnvConfig"):
        setattr(inner, name, Environment)
    inner.ServeConfig = Serve  # type: ignore[attr-defined]
    inner.narrowed_env_annotation = lambda cls: Environment  # type: ignore[attr-defined]
    inner.resolve_env_field = lambda data, annotation: data  # type: ignore[attr-defined]
    verifiers.v1 = inner  # type: ignore[attr-defined]
    renderers, base = types.ModuleType("renderers"), types.ModuleType("renderers.base")
    for name in ("AutoRendererConfig", "DefaultRendererConfig", "RendererConfig"):
        setattr(renderers, name, Renderer)
    base.MODEL_RENDERER_MAP = EveryModel()  # type: ignore[attr-defined]
    title = types.ModuleType("setproctitle")
    title.setproctitle = lambda name: None  # type: ignore[attr-defined]
    modules = {"verifiers": verifiers, "verifiers.v1": inner, "renderers": renderers, "renderers.base": base}
    sys.modules.update(modules | {"setproctitle": title, "psutil": types.ModuleType("psutil")})


class Recorded:
    """A process that was not started."""

    calls: list[tuple[list[str], str | None]] = []  # noqa: RUF012  # of the whole run
    pid, returncode, stderr = 0, 0, None

    def __init__(self, words: Any, env: Any = None, **_: Any) -> None:
        if isinstance(words, list):
            mask = None if env is None else env.get("CUDA_VISIBLE_DEVICES")
            self.calls.append((words, mask))

    def wait(self, timeout: Any = None) -> int:
        return 0

    def poll(self) -> int:
        return 0


def devices(mask: str | None) -> list[int]:
    return [int(part) for part in (mask or "").split(",") if part]


def one_node(config: Any, folder: Path) -> list[list[Any]]:
    """Return what ``rl_local`` starts: the component, its node, its processes, and their devices together."""
    from prime_rl.entrypoints import rl

    Recorded.calls.clear()
    rl.Popen = Recorded
    rl.get_physical_gpu_ids = lambda: list(range(config.deployment.gpus_per_node))
    rl.cleanup_processes = rl.cleanup_threads = lambda *_: None
    rl.signal = types.SimpleNamespace(signal=lambda *_: None, SIGTERM=15)
    tools = types.ModuleType("prime_rl.utils.utils")
    tools.get_free_port = lambda: 1  # type: ignore[attr-defined]
    sys.modules["prime_rl.utils.utils"] = tools
    os.environ["PRL_RUN_ID"] = "x"
    rl.rl_local(config)
    started = []
    for words, mask in Recorded.calls:
        started.append(_component(words, 0, mask))
    return started


def _component(words: list[str], node: int, mask: str | None) -> list[Any]:
    name = words[0]
    if name == "torchrun":
        count = next(word.partition("=")[2] for word in words if word.startswith("--nproc-per-node="))
        return ["trainer", node, int(count), devices(mask)]
    if name == "env-server":
        return ["env", node, 1, []]
    return [name, node, 1, devices(mask)]


def several_nodes(config: Any, folder: Path) -> list[list[Any]]:
    """Return what the script of Slurm starts on each node; see `one_node`."""
    notes = notes_of_script(config, folder)
    return [entry for node, some in enumerate(notes) for entry in _started_on(node, some, config)]


def notes_of_script(config: Any, folder: Path) -> list[list[dict[str, Any]]]:
    """Return how the script of Slurm starts the programs of each node."""
    from prime_rl.entrypoints import rl

    rl.write_subconfigs(config, folder / "configs")
    script = folder / "rl.sbatch"
    config.slurm.project_dir = folder / "project"
    rl.write_slurm_script(config, folder / "configs", script)
    text = script.read_text()
    body = _BODY.search(text)
    head = text.partition("# Setup environment")[0]
    if body is None:
        raise ValueError("the template has another form")
    programs = _programs(folder)
    nodes = config.deployment.total_infer_nodes + config.deployment.num_train_nodes
    (folder / "nodes.txt").write_text("".join(f"h{node}\n" for node in range(nodes)))
    activate = folder / "project" / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.write_text("")
    setup = re.sub(r"^#SBATCH.*$", "", head, flags=re.MULTILINE)
    (folder / "setup.sh").write_text(f"{setup}\nenv -0 >{folder}/environment\n")
    base = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder), "USER": "u", "NODES": str(folder / "nodes.txt")}
    base |= {"SLURM_JOB_NODELIST": "h", "SLURM_JOB_NUM_NODES": str(nodes), "SLURM_JOB_ID": "1", "TMPDIR": str(folder)}
    subprocess.run(["bash", str(folder / "setup.sh")], env=base, check=True, capture_output=True, cwd=folder)
    entries = (folder / "environment").read_text().split("\0")
    environment = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    steps = body[1].partition("\nwait -n\n")[0]  # which ends a node with the first of its programs
    steps = steps.replace("/tmp/vllm-rpc", f"{folder}/vllm-rpc")
    notes = []
    for node in range(nodes):
        log = folder / f"{node}.{_STARTED}"
        log.mkdir()
        own = environment | {"SLURM_PROCID": str(node), "STARTED": str(log)}
        subprocess.run(["bash", "-s"], input=f"{steps}\nwait\n", text=True, env=own, capture_output=True, timeout=60)
        notes.append([_note(note) for note in log.iterdir()])
    return notes


def _note(folder: Path) -> dict[str, Any]:
    """Return how a program was started."""
    entries = (folder / "environment").read_text().split("\0")
    overrides = folder / "overrides"
    return {
        "words": (folder / "words").read_text().split("\0")[:-1],
        "overrides": json.loads(overrides.read_text()) if overrides.exists() else {},
        "environment": dict(entry.split("=", 1) for entry in entries if "=" in entry),
    }


def _programs(folder: Path) -> Path:
    """Return a folder with programs that only write down their words and their mask, or do nothing."""
    programs = folder / "programs"
    programs.mkdir()
    for name in _PROGRAMS:
        (programs / name).write_text(_NOTE)
    for name in _SILENT:
        (programs / name).write_text("#!/bin/bash\necho 10.0.0.1\n")
    (programs / "scontrol").write_text('#!/bin/bash\ncat "$NODES"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    return programs


def _started_on(node: int, notes: list[dict[str, Any]], config: Any) -> Iterator[list[Any]]:
    deployment = None if config.inference is None else config.inference.deployment
    lines = [(note["environment"].get(_MASK, "none"), " ".join(note["words"])) for note in notes]
    for mask, words in sorted(lines):
        if words.startswith("uv run inference"):
            name = "inference"
            if deployment.type == "disaggregated":
                port = int(re.search(r"--server.port ([0-9]+)", words)[1])  # type: ignore[index]
                name = "prefill" if port < deployment.decode_port else "decode"
            yield [name, node, 1, devices(mask)]
        elif words.startswith("uv run torchrun"):
            count = int(re.search(r"--nproc-per-node=([0-9]+)", words)[1])  # type: ignore[index]
            yield ["trainer", node, count, list(range(count))]
        elif words.startswith("uv run orchestrator"):
            yield ["orchestrator", node, 1, []]
        elif words.startswith("uv run env-server"):
            yield ["env", node, 1, []]
        elif words.startswith(("vllm-router", "epp")):
            yield ["router", node, 1, []]


def answer(config_file: Path, words: list[str]) -> dict[str, Any]:
    """Return what prime-rl starts for a config and words of a command, or the first line of its refusal."""
    from prime_rl.configs.rl import RLConfig
    from prime_rl.utils.config import cli

    try:
        config = cli(RLConfig, args=["@", str(config_file), *words])
    except Exception as error:
        return {"error": _first_line(error)}
    with tempfile.TemporaryDirectory() as name:
        config.output_dir = Path(name)
        silent = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
        try:
            with silent[0], silent[1]:
                many = config.deployment.type == "multi_node"
                started = several_nodes(config, Path(name)) if many else one_node(config, Path(name))
        except ValueError as error:
            return {"error": _first_line(error)}
    world = getattr(config.trainer.weight_broadcast, "inference_world_size", None)
    return {"started": started, "inference_world_size": world}


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(getattr(error, "message", error)).splitlines()]
    return next(
        (line for line in lines if line and "validation error" not in line and not line.startswith(("--", "<"))),
        lines[0],
    )


def started_words(config_file: Path, words: list[str]) -> list[dict[str, Any]]:
    """Return what the script of Slurm starts: the node, the words, overrides of vLLM and the environment."""
    from prime_rl.configs.rl import RLConfig
    from prime_rl.utils.config import cli

    config = cli(RLConfig, args=["@", str(config_file), *words])
    names = {_MASK, "MINE", "PRL_RUN_NAME", "CUDA_DEVICE_ORDER", "PYTHONUNBUFFERED", "OMP_NUM_THREADS", "UCX_TLS"}
    names |= {"GIT_LFS_SKIP_SMUDGE", "PYTORCH_CUDA_ALLOC_CONF", "VLLM_WORKER_MULTIPROC_METHOD"}
    names |= {"VLLM_ENGINE_READY_TIMEOUT_S"}
    with tempfile.TemporaryDirectory() as folder:
        config.output_dir = Path(folder)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            notes = notes_of_script(config, Path(folder))
        return [
            {
                "node": node,
                "words": [
                    word.replace(f"{folder}/configs", "CONFIGS").replace(folder, "OUTPUT") for word in note["words"]
                ],
                "overrides": note["overrides"],
                "environment": {name: value for name, value in sorted(note["environment"].items()) if name in names},
            }
            for node, some in enumerate(notes)
            for note in sorted(some, key=lambda note: note["words"])
        ]


def made_commands() -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield configs and words of jobs on several nodes."""
    sources = [{"name": "math", "env": {"taskset": {"id": "i3_math"}}}, {"env": {"taskset": {"id": "code"}}}]
    orchestrator = {
        "train": {"source": sources},
        "eval": {"source": [{"name": "e", "env": {"taskset": {"id": "e"}}}]},
        "env_vars": {"MINE": "of the orchestrator"},
    }
    config: dict[str, Any] = {
        "trainer": {},
        "orchestrator": orchestrator,
        "inference": {"env_vars": {"MINE": "of the servers"}},
        "deployment": {"type": "multi_node", "num_train_nodes": 2},
        "slurm": {},
        "run": {"name": "r"},
        "env_vars": {"MINE": "of all"},
    }
    shared = "--inference.vllm.enable-expert-parallel"
    for text in (
        "--inference.vllm.tensor-parallel-size 4",
        "--inference.vllm.tensor-parallel-size 2 --deployment.num-infer-nodes 2 --deployment.num-infer-replicas 2",
        f"{shared} --inference.vllm.tensor-parallel-size 4 --deployment.num-infer-nodes 2"
        " --inference.vllm.data-parallel-size 4",
        f"{shared} --inference.vllm.tensor-parallel-size 8 --deployment.num-infer-nodes 2"
        " --deployment.num-infer-replicas 2 --inference.vllm.data-parallel-size 2"
        " --inference.vllm.data-parallel-rpc-port 7000",
        f"{shared} --inference.vllm.tensor-parallel-size 8",
        "--inference.vllm.tensor-parallel-size 4 --deployment.num-infer-nodes 2 --deployment.orchestrator-on-inference",
        "--inference.vllm.tensor-parallel-size 4 --weight-broadcast.type filesystem"
        " --rollout-transport.type filesystem",
        "--inference.vllm.tensor-parallel-size 8 --inference.server.port 9000 --inference.router.type vllm-router"
        " --inference.router.policy round_robin --trainer.log.ranks-filter 0 1",
        "--inference.vllm.tensor-parallel-size 8 --inference.backend-port 9000 --trainer.model.lora.rank 8",
        "--inference.vllm.tensor-parallel-size 3 --deployment.gpus-per-node 4 --weight-broadcast.type filesystem",
    ):
        yield config, text.split()


def made() -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield configs and words of made-up sizes."""
    for train, infer, tensor, per_node in product((1, 2, 3, 6), (0, 1, 2, 4), (1, 2, 3), (4, 8)):
        words = ["--deployment.num-train-gpus", train, "--deployment.num-infer-gpus", infer]
        words += ["--deployment.gpus-per-node", per_node, "--inference.vllm.tensor-parallel-size", tensor]
        yield BASE, [str(word) for word in words]
    without = {name: section for name, section in BASE.items() if name != "inference"}
    for train, infer in product((1, 7, 8), (0, 1)):
        yield without, ["--deployment.num-train-gpus", str(train), "--deployment.num-infer-gpus", str(infer)]
    for port, url in product((8000, 8001), (None, "http://localhost:8001/v1", "http://localhost/v1")):
        yield (
            BASE,
            ["--inference.server.port", str(port), *(["--orchestrator.model.client.base-url", url] if url else [])],
        )
    many = BASE | {"deployment": {"type": "multi_node", "num_train_nodes": 2}, "slurm": {}}
    yield many | {"slurm": None}, []
    for nodes, replicas, tensor, on_inference in product((None, 0, 1, 2, 3), (1, 2), (1, 2, 4, 8, 16), (False, True)):
        words = ["--inference.vllm.tensor-parallel-size", str(tensor), "--deployment.num-infer-replicas", str(replicas)]
        words += ["--deployment.num-infer-nodes", str(nodes)] if nodes is not None else []
        yield many, [*words, *(["--deployment.orchestrator-on-inference"] if on_inference else [])]
    for tensor, data, nodes, per_node in product((1, 2, 3, 4, 8), (1, 2, 4, 8), (1, 2), (4, 8)):
        words = ["--inference.vllm.enable-expert-parallel", "--inference.vllm.tensor-parallel-size", tensor]
        words += ["--inference.vllm.data-parallel-size", data, "--deployment.num-infer-nodes", nodes]
        yield many, [str(word) for word in [*words, "--deployment.gpus-per-node", per_node]]
    for prefill, groups, decode, others, replicas in product((1, 2), (1, 2), (1, 3), (1, 2), (1, 2)):
        words = ["--inference.deployment.type", "disaggregated", "--deployment.num-infer-replicas", replicas]
        words += [
            "--inference.deployment.prefill-nodes-per-replica",
            prefill,
            "--inference.deployment.num-prefill-replicas",
            groups,
        ]
        words += [
            "--inference.deployment.decode-nodes-per-replica",
            decode,
            "--inference.deployment.num-decode-replicas",
            others,
        ]
        yield many, [str(word) for word in [*words, "--inference.vllm.tensor-parallel-size", 1 + prefill * 2 - 1]]
        if groups == others == 1:
            yield many, [str(word) for word in [*words, "--deployment.num-infer-nodes", 2]]
    for nodes, island in product((2, 4), (1, 2, 3)):
        yield many, ["--deployment.num-train-nodes", str(nodes), "--deployment.nodes-per-fsdp-group", str(island)]
    sources = [{"name": name, "env": {"taskset": {"id": name}}} for name in "abc"]
    sources[1]["serve"] = {"address": "tcp://h:1"}
    evaluation = {"source": [{"name": "e", "env": {"taskset": {"id": "e"}}}]}
    served = {"train": {"source": sources}, "eval": evaluation}
    yield BASE | {"orchestrator": served}, []
    yield many | {"orchestrator": served}, []
    yield {name: section for name, section in many.items() if name != "inference"}, []
    fake = many | {"trainer": {"data": {"fake": {}}}}
    yield {name: section for name, section in fake.items() if name != "inference"}, []
    yield fake, ["--deployment.num-infer-nodes", "0"]
    yield BASE, ["--deployment.num-train-nodes", "2"]
    yield many, ["--deployment.num-train-gpus", "2"]
    for missing in ("trainer", "orchestrator"):
        yield {name: section for name, section in BASE.items() if name != missing}, []
    for nodes, tensor in product((1, 2), (3, 5)):
        words = ["--inference.vllm.tensor-parallel-size", tensor, "--deployment.num-infer-nodes", nodes]
        yield many, [str(word) for word in words]


def record(checkout: Path) -> None:
    """Write the lines."""
    stand_ins()
    import prime_rl

    folders = [checkout / "src" / "prime_rl", checkout / "packages" / "prime-rl-configs" / "src" / "prime_rl"]
    prime_rl.__path__ = [str(folder) for folder in folders]
    import prime_rl.utils

    prime_rl.utils.__path__ = [str(folder / "utils") for folder in folders]
    with gzip.GzipFile(LINES, "w", mtime=0) as file, tempfile.TemporaryDirectory() as name:
        for number, (config, words) in enumerate(made()):
            path = Path(name) / "rl.json"
            path.write_text(json.dumps(config))
            line = {"id": f"prime-rl-{number:04}", "config": config, "words": words, "result": answer(path, words)}
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    with gzip.GzipFile(COMMANDS, "w", mtime=0) as file, tempfile.TemporaryDirectory() as name:
        for number, (config, words) in enumerate(made_commands()):
            path = Path(name) / "rl.json"
            path.write_text(json.dumps(config))
            started = started_words(path, words)
            line = {"id": f"prime-rl-commands-{number:02}", "config": config, "words": words, "started": started}
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


if __name__ == "__main__":
    sys.path[:0] = [str(Path(sys.argv[1]) / "src"), str(Path(sys.argv[1]) / "packages/prime-rl-configs/src")]
    record(Path(sys.argv[1]))

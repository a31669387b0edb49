"""Records ``ms_swift_scripts.jsonl.gz``: the scripts of ms-swift that run rlhf or rollout, as facts, and their answers.

``python tests/golden/ms_swift_scripts.py CHECKOUT`` needs a checkout of ms-swift at 3602360 and bash. bash runs each
script, where ``swift``, ``megatron``, ``torchrun`` and ``python`` only write down their words and variables; the words
that decide a placement are kept. What starts then is told by ms-swift's own ``cli_main``, and the devices of a server
by its own ``_set_visible_devices_for_dp_rank``. Placeholders such as ``<node1_ip>`` are words. ``--read`` reads the
files themselves with rankplan, and prints a table.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import hashlib
import importlib
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
LINES = HERE / "ms_swift_scripts.jsonl.gz"
VARIABLES = ("NPROC_PER_NODE", "NNODES", "NODE_RANK", "CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
FLAGS = (
    *("rlhf_type", "use_vllm", "vllm_mode", "vllm_server_host", "vllm_server_port", "vllm_server_base_url", "port"),
    *("vllm_tensor_parallel_size", "vllm_data_parallel_size", "tensor_model_parallel_size", "deepspeed", "fsdp"),
    *("pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size", "use_ray", "config"),
    *("sequence_parallel_size",),
)
OF_RUN = {"WORLD_SIZE": "2", "RANK": "0"}
"""Variables of a platform, on which some scripts rely."""
_RUNS = re.compile(r"\b(swift|megatron)\s+(rlhf|rollout)\b|cli/(_megatron/)?rlhf\.py")
_PROGRAMS = ("swift", "megatron", "torchrun", "accelerate", "python", "python3")
_PLACEHOLDER = re.compile(r"<([a-z]+)([0-9]*)(\w*)>")
"""A word of a document, which bash takes for a redirection: `<node1_ip>`."""
_SILENT = ("source", "sleep", "pip", "curl", "wget", "wait", "nvidia-smi")
_WRITE = """\
import json, os, sys
with open(os.environ["STARTED"], "a") as out:
    out.write(json.dumps([os.path.basename(sys.argv[0]), sys.argv[1:], dict(os.environ)]) + chr(10))
"""


def run(script: Path) -> list[tuple[str, list[str], dict[str, str]]]:
    """Return what a script starts: program, words and variables."""
    with tempfile.TemporaryDirectory() as folder:
        started = Path(folder) / "started.jsonl"
        for name in (*_PROGRAMS, *_SILENT):
            (program := Path(folder) / name).write_text(f"#!{sys.executable}\n{_WRITE}")
            program.chmod(0o755)
        environment = {"PATH": f"{folder}:/usr/bin:/bin", "STARTED": str(started), "HOME": folder, **OF_RUN}
        text = f"source() {{ :; }}\n{without_placeholders(script)}\nwait\n"
        subprocess.run(
            ["bash", "-c", text, str(script)], env=environment, cwd=folder, capture_output=True, timeout=30, check=False
        )
        lines = started.read_text().splitlines() if started.exists() else []
    return [(name, words, variables) for name, words, variables in map(json.loads, lines)]


def without_placeholders(script: Path) -> str:
    """Return the text of a script, in which the placeholders of documents are words, and ports numbers."""

    def word(found: re.Match[str]) -> str:
        return f"800{found[2]}" if found[3] == "_port" else "".join(found.groups())

    return _PLACEHOLDER.sub(word, script.read_text())


def flags_of(words: Sequence[str]) -> dict[str, Any]:
    """Return the flags that decide a placement."""
    flags: dict[str, Any] = {}
    position = 0
    while position < len(words):
        name, equals, value = words[position].partition("=")
        position += 1
        if not name.startswith("--"):
            continue
        values = [value] if equals else []
        while not equals and position < len(words) and not words[position].startswith("--"):
            values.append(words[position])
            position += 1
        if name == "--config":
            flags["config"] = [Path(value).name for value in values]
        elif name[2:] in FLAGS:
            flags[name[2:]] = values
    return flags


def processes_of_file(launch: Sequence[str], checkout: Path) -> dict[str, int]:
    """Return the processes in the file of accelerate, which has one node in these scripts."""
    if launch[0] != "accelerate":
        return {}
    file = json.loads((checkout / launch[launch.index("--config_file") + 1]).read_text())
    return {"processes": file["num_processes"] // file["num_machines"]}


def commands(started: Sequence[tuple[str, list[str], dict[str, str]]], checkout: Path) -> Iterator[dict[str, Any]]:
    """Yield the commands of ms-swift: the words before the program, the program, variables and flags."""
    for name, words, variables in started:
        kept = {variable: variables[variable] for variable in VARIABLES if variable in variables}
        script = next((number for number, word in enumerate(words) if word.endswith("rlhf.py")), None)
        if name in ("swift", "megatron") and words and words[0] in ("rlhf", "rollout"):
            yield {"launch": [], "program": f"{name} {words[0]}", "variables": kept, "flags": flags_of(words[1:])}
        elif name in ("torchrun", "accelerate") and script is not None:
            launch = [name, *words[:script]]
            command = {
                "launch": launch,
                "program": words[script],
                "variables": kept,
                "flags": flags_of(words[script + 1 :]),
            }
            yield command | processes_of_file(launch, checkout)


def own_code(checkout: Path) -> SimpleNamespace:
    """Return ms-swift's ``cli_main`` with its routes, and the slices of its servers."""
    sys.path[:0] = [str(HERE.parent / "trainers" / "programs"), str(checkout)]
    from _stub import become

    sys.path.insert(0, str(HERE))
    from ms_swift_pools import STUBS

    for name in STUBS.split():
        become(name)
    modules = importlib.import_module("modelscope.utils.logger")
    logger = logging.getLogger("modelscope")
    logger.addHandler(logging.NullHandler())
    modules.get_logger = lambda *args, **options: logger  # type: ignore[attr-defined]
    importlib.import_module("modelscope.hub.utils.utils").get_cache_dir = lambda *args: ""  # type: ignore[attr-defined]
    main = importlib.import_module("swift.cli.main")
    tree = ast.parse((checkout / "swift/pipelines/infer/rollout.py").read_text())
    function = next(node for node in tree.body if getattr(node, "name", "") == "_set_visible_devices_for_dp_rank")
    names: dict[str, Any] = {"os": os, "is_torch_npu_available": lambda: False, "is_torch_rocm": lambda: False}
    exec(compile(ast.Module([function], []), "rollout.py", "exec"), names)
    return SimpleNamespace(main=main, slice=names["_set_visible_devices_for_dp_rank"])


def torchrun_words(code: SimpleNamespace, command: Mapping[str, Any]) -> list[str]:
    """Return the words of torchrun with which ms-swift starts a command; none without it."""
    launch = command["launch"]
    if launch[:1] == ["accelerate"]:
        return ["--nproc_per_node", str(command["processes"])]
    if launch:
        return list(launch[1:])
    started: list[list[str]] = []
    program, word = command["program"].split()
    code.main.subprocess = SimpleNamespace(run=lambda words: started.append(words) or SimpleNamespace(returncode=0))
    code.main.importlib = SimpleNamespace(
        util=SimpleNamespace(find_spec=lambda name: SimpleNamespace(origin="program.py"))
    )
    before, argv = dict(os.environ), sys.argv
    os.environ.update(command["variables"])
    sys.argv = [program, word]
    try:
        code.main.cli_main({word: "program"}, is_megatron=program == "megatron")
    finally:
        os.environ.clear()
        os.environ.update(before)
        sys.argv = argv
    words = started[0]
    return words[words.index("torch.distributed.run") + 1 : words.index("program.py")] if "-m" in words else []


def number(words: Sequence[str], flag: str) -> int:
    """Return the value of a flag of torchrun, 1 without it."""
    found = [
        word.partition("=")[2] or words[place + 1] for place, word in enumerate(words) if word.partition("=")[0] == flag
    ]
    return int(found[-1]) if found else 1


def visible(command: Mapping[str, Any]) -> list[int] | None:
    """Return the devices that a command sees, ``None`` if it does not say so."""
    mask = command["variables"].get("CUDA_VISIBLE_DEVICES", command["variables"].get("ASCEND_RT_VISIBLE_DEVICES"))
    return None if mask is None else [int(device) for device in mask.split(",")]


def answer(code: SimpleNamespace, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the processes of each component as [node, devices], or the code of what ms-swift refuses."""
    trainers = [command for command in found if "rollout" not in command["program"]]
    servers = [command for command in found if "rollout" in command["program"]]
    if not trainers:
        return {"refused": "no-components"}
    first = max(trainers, key=lambda command: len(command["flags"]))
    flags = {name: values[-1] if values else "true" for name, values in first["flags"].items()}
    if flags.get("use_ray") == "true":
        return {"on_ray": True}
    algorithm = flags.get("rlhf_type", "dpo")
    if algorithm not in ("grpo", "gkd", "ppo"):
        return {"refused": "no-components"}
    is_megatron = "megatron" in first["program"]
    uses_vllm = algorithm != "ppo" and flags.get("use_vllm", str(is_megatron).lower()) == "true"
    mode = flags.get("vllm_mode", "") if uses_vllm else ""
    if uses_vllm and not mode:
        return {"refused": "missing-key"}
    words = torchrun_words(code, first)
    each, nodes = number(words, "--nproc_per_node"), number(words, "--nnodes")
    devices = visible(first)
    if devices is None:
        devices = list(range(8 if is_megatron else each))
    if is_megatron:
        taken = [[device] for device in devices[:each]]
    else:
        if len(devices) % each:
            return {"refused": "not-multiple"}
        if len(devices) > each and (uses_vllm or "deepspeed" in flags or "fsdp" in flags):
            return {"refused": "invalid-value"}
        taken = [devices[rank::each] for rank in range(each)]
    ranks = [[node, own] for node in range(nodes) for own in taken]
    components = {"train": ranks}
    tensor = int(flags.get("vllm_tensor_parallel_size", 1))
    if mode == "colocate":
        if len(ranks) % tensor:
            return {"refused": "parallel-not-divisible"}
        components["rollout"] = [
            [ranks[rank][0], [device for _, own in ranks[rank : rank + tensor] for device in own]]
            for rank in range(0, len(ranks), tensor)
        ]
    hosts = first["flags"].get("vllm_server_host") or []
    for index, server in enumerate(servers):
        own = {name: values[-1] for name, values in server["flags"].items() if values}
        host = hosts[min(index, len(hosts) - 1)] if hosts else ""
        is_local = host in ("", "127.0.0.1", "localhost", "0.0.0.0")
        node = 0 if is_local else nodes + list(dict.fromkeys(hosts)).index(host)
        for rank in range(int(own.get("vllm_data_parallel_size", 1))):
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, visible(server) or range(8)))
            code.slice(rank, int(own.get("vllm_tensor_parallel_size", 1)))
            slice_ = [int(device) for device in os.environ.pop("CUDA_VISIBLE_DEVICES").split(",")]
            components.setdefault("rollout", []).append([node, slice_])
    used = [[node, device] for node, own in ranks for device in own]
    if mode == "server" and any(
        [node, device] in used for node, own in components.get("rollout", ()) for device in own
    ):
        return {"refused": "duplicate-resource"}
    return {"components": components}


def recorded(checkout: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of the scripts of a checkout."""
    code = own_code(checkout)
    for script in sorted(checkout.rglob("examples/**/*.sh")):
        if not _RUNS.search(script.read_text()):
            continue
        found = list(commands(run(script), checkout))
        digest = hashlib.sha256(script.read_bytes()).hexdigest()[:16]
        line = {"file": str(script.relative_to(checkout)), "sha256": digest, "commands": found}
        yield line | (answer(code, found) if found else {"refused": "no-components"})


def table(checkout: Path, lines: Sequence[Mapping[str, Any]], folder: str) -> None:
    """Print how rankplan reads the files themselves."""
    import rankplan

    os.environ.update(OF_RUN)
    logging.disable()
    answers: Counter[str] = Counter()
    for line in lines:
        file = checkout / line["file"]
        if without_placeholders(file) != file.read_text():
            (copy := Path(folder) / file.name).write_text(without_placeholders(file))
            file = copy
        report = rankplan.check(file)
        if report.plan is None:
            own = "refused: " + report.faults[0].code
        else:
            places = {
                name: [[row.devices[0][0], [device for _, device in row.devices]] for row in component]
                for name, component in report.plan.items()
            }
            own = "on Ray" if "on_ray" in line else "read" if places == line.get("components") else f"other: {places}"
        expected = "on Ray" if "on_ray" in line else "read" if "components" in line else f"refused: {line['refused']}"
        answers[own if own == expected else f"{own}, expected {expected}"] += 1
        if own != expected:
            print(line["file"], own, "| expected", expected, [fault.message for fault in report.faults[:1]])
    print(*answers.most_common(), sep="\n")


def main() -> None:
    """Record the lines of a checkout, or read its files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--read", action="store_true")
    options = parser.parse_args()
    if options.read:
        lines = [json.loads(line) for line in gzip.decompress(LINES.read_bytes()).splitlines()]
        with tempfile.TemporaryDirectory() as folder:
            table(options.checkout, lines, folder)
        return
    text = "".join(json.dumps(line) + "\n" for line in recorded(options.checkout.resolve()))
    LINES.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()

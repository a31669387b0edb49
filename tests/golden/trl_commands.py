"""Renews ``trl_commands.jsonl.gz``: ``python tests/golden/trl_commands.py TRL OPEN_R1``.

TRL and OPEN_R1 are checkouts (f2cd577, 1416fa0). Each command in their documents and in the docstrings of their
examples becomes a line with the words that decide a placement, and what the rules of the systems start for them,
counted here without rankplan: flags of accelerate over its file, 8 devices of a node, a process for `python`, engines
by their sizes.
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

LINES = Path(__file__).resolve().parent / "trl_commands.jsonl.gz"
_DEVICES = 8
_KEPT = {
    *("--num_processes", "--config_file", "--accelerate_config", "--num_machines", "--machine_rank", "--multi_gpu"),
    *("--use_vllm", "--vllm_mode", "--vllm_tensor_parallel_size", "--num_generations", "--per_device_train_batch_size"),
    *("--gradient_accumulation_steps", "--generation_batch_size", "--tensor_parallel_size", "--data_parallel_size"),
    *("--tensor-parallel-size", "--port"),
}
_LAUNCHERS = ("accelerate", "launch", "python", "torchrun", "uv", "run", "-m", "-i")
_ONLINE = re.compile(r"(?:.*/)?(?:grpo|gspo|rloo|online_dpo|nash_md|xpo|async_grpo)(?:_\w+)?\.py")
_MASK = re.compile(r"CUDA_VISIBLE_DEVICES=[0-9,]+")


def fenced(text: str) -> Iterator[str]:
    """Yield the blocks of a text in Markdown that are commands."""
    block: list[str] | None = None
    kind = ""
    for line in text.splitlines():
        fence = re.match(r"\s*```+(.*)", line)
        if fence and block is None:
            block, kind = [], fence[1].strip().split(" ")[0]
        elif fence:
            if kind in ("bash", "sh", "shell", "console", ""):
                yield "\n".join(block or [])
            block = None
        elif block is not None:
            block.append(line)


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the blocks of commands in documents and docstrings, with the path of each."""
    for path in sorted({*folder.rglob("*.md"), *folder.glob("examples/**/*.py")}):
        text = path.read_text(errors="ignore")
        name = str(path.relative_to(folder))
        if path.suffix == ".md":
            yield from ((name, block) for block in fenced(text))
            continue
        for docstring in re.findall(r'(?s)"""(.*?)"""', text[:9000]):
            blocks = list(fenced(docstring))
            yield from ((name, block) for block in blocks or [docstring])


def commands(block: str) -> Iterator[list[str]]:
    """Yield the words of each command of a trainer, or of its server."""
    joined = re.sub(r"\\\n\s*", " ", block)
    for line in joined.splitlines():
        try:
            words = shlex.split(line.strip(), comments=True)
        except ValueError:
            continue
        names = [word for word in words if "=" not in word.split("/")[0] or word.startswith("-")]
        if names[:1] and (names[0] in ("accelerate", "python", "trl", "torchrun") or names[:2] == ["vllm", "serve"]):
            yield words


def reduced(words: list[str]) -> list[str] | None:
    """Return the words of a command that decide a placement; ``None`` for a program that is no online trainer."""
    kept = [word for word in words if _MASK.fullmatch(word)]
    rest = [word for word in words if "=" not in word.split("/")[0] or word.startswith("-")]
    is_server = rest[:2] in (["trl", "vllm-serve"], ["vllm", "serve"])
    is_trainer = rest[:2] in (["trl", "grpo"], ["trl", "rloo"]) or any(map(_ONLINE.fullmatch, rest))
    if not (is_server or is_trainer):
        return None
    position = 0
    while position < len(rest):
        word = rest[position]
        name, equals, _ = word.partition("=")
        value = rest[position + 1 : position + 2]
        has_value = not equals and bool(value) and not value[0].startswith("-")
        if position < 2 or _ONLINE.fullmatch(word) or word in _LAUNCHERS:
            kept.append(word)
        elif name in _KEPT:
            kept += [word, *(value if has_value else [])]
        position += 2 if name.startswith("--") and has_value else 1
    return kept


def stated(words: list[str], *names: str) -> str | None:
    """Return the last value of a flag, ``true`` for one without a value."""
    found = None
    for position, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            following = words[position + 1 : position + 2]
            found = value if equals else following[0] if following and not following[0].startswith("-") else "true"
    return found


def visible(words: list[str]) -> int:
    masks = [word for word in words if _MASK.fullmatch(word)]
    return len(masks[-1].partition("=")[2].split(",")) if masks else _DEVICES


def world(words: list[str], files: dict[str, Any]) -> int:
    """Return the processes of a trainer."""
    if "accelerate" not in words and "trl" not in words:
        return 1
    count = stated(words, "--num_processes")
    if count is not None:
        return int(count)
    name = stated(words, "--config_file") or stated(words, "--accelerate_config")
    if name is None:
        return visible(words)
    config = files.get(name) or {"distributed_type": "DEEPSPEED", "num_processes": 8}  # one that TRL brings
    return 1 if config["distributed_type"] == "NO" else int(config["num_processes"])


def expected(lines: list[list[str]], files: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the commands of a block start, ``None`` for several trainers."""
    servers = [words for words in lines if "vllm-serve" in words or "serve" in words]
    trainers = [words for words in lines if words not in servers]
    if len(trainers) > 1:
        return None
    if not trainers:
        return {"refused": "no-components"}
    (words,) = trainers
    processes = world(words, files)
    sizes = {"actor": [processes, 1]}
    uses = stated(words, "--use_vllm") in ("true", "True")
    mode = stated(words, "--vllm_mode") or "colocate"
    if uses and mode == "colocate":
        tensor = int(stated(words, "--vllm_tensor_parallel_size") or 1)
        sizes["rollout"] = [processes // tensor, tensor]
    for server in servers:
        tensor = int(stated(server, "--tensor_parallel_size", "--tensor-parallel-size") or 1)
        sizes["rollout"] = [int(stated(server, "--data_parallel_size") or 1), tensor]
    batch = int(stated(words, "--per_device_train_batch_size") or 8) * processes
    batch *= int(stated(words, "--gradient_accumulation_steps") or 1)
    batch = int(stated(words, "--generation_batch_size") or batch)
    is_rloo = any("rloo" in word for word in words)
    groups = int(stated(words, "--num_generations") or (2 if is_rloo else 8))
    has_groups = not any(re.search("online_dpo|nash_md|xpo|async_grpo", word) for word in words)
    # Without its file, a program of the examples may set other values itself.
    is_known = uses or any(word == "trl" or word.startswith("trl/scripts/") for word in words)
    if has_groups and batch % groups and is_known:
        return {"refused": "not-multiple"}
    return {"components": sizes}


def main(*folders: str) -> None:
    """Record the commands of both repositories."""
    lines: dict[str, dict[str, Any]] = {}
    for folder in map(Path, folders):
        for name, block in texts(folder):
            kept = [words for words in map(reduced, commands(block)) if words]
            named = {stated(words, "--config_file") for words in kept} - {None}
            files = {file: yaml.safe_load((folder / file).read_text()) for file in named if (folder / file).is_file()}
            places = (
                "distributed_type",
                "num_processes",
                "num_machines",
                "machine_rank",
                "deepspeed_config",
                "gpu_ids",
            )
            files = {file: {key: config[key] for key in places if key in config} for file, config in files.items()}
            answer = expected(kept, files) if kept and len(files) == len(named) else None
            if answer is not None:
                script = "".join(f"{shlex.join(words)}\n" for words in kept)
                line = lines.setdefault(script, {"files": [], "script": script, "accelerate": files, **answer})
                line["files"].append(name)
    text = "".join(json.dumps(line) + "\n" for line in lines.values())
    LINES.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])

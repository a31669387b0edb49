"""Renews ``accelerate_launches.jsonl.gz``: ``python tests/golden/accelerate_launches.py FOLDER``.

FOLDER has the package `accelerate`, as in its wheel. Its own functions read the flags and the file of each case, and
prepare the command: `_validate_launch_command`, `prepare_multi_gpu_env`, `prepare_deepspeed_cmd_env` and
`prepare_simple_launcher_cmd_env`. PyTorch is a stub that has a number of devices. Nothing is started.
"""

from __future__ import annotations

import gzip
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import os
import random
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LINES = Path(__file__).resolve().parent / "accelerate_launches.jsonl.gz"
_CASES = 450
_STUBS = ("torch", "safetensors", "huggingface_hub", "numpy", "psutil")
_TYPES = ("MULTI_GPU", "DEEPSPEED", "FSDP", "NO", None)


class _Anything:
    """An object that any use leaves as it is."""

    def __init__(self, *values: Any, **named: Any) -> None:
        pass

    def __call__(self, *values: Any, **named: Any) -> Any:
        return values[0] if len(values) == 1 and callable(values[0]) else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__


class _Stub(types.ModuleType):
    __path__ = ()
    __version__ = "2.7.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        is_class = name[:1].isupper()
        value = type(name, (), {"__init__": lambda self, *values, **named: None}) if is_class else _Anything()
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stub for each package that accelerate imports, and that this needs nothing of."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in _STUBS:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def cases() -> Iterator[dict[str, Any]]:
    """Yield flags, a file and a number of devices, drawn with a fixed seed."""
    draw = random.Random(40)
    for number in range(_CASES):
        yield {"id": number, "flags": flags(draw), "file": file(draw), "devices": draw.choice((1, 2, 8))}


def flags(draw: random.Random) -> list[str]:
    """Return flags of accelerate."""
    words: list[str] = []
    if draw.random() < 0.6:
        words += ["--num_processes", str(draw.choice((1, 2, 4, 7, 8, 15, 16)))]
    if draw.random() < 0.4:
        words += ["--num_machines", str(draw.choice((1, 2, 3, 4)))]
    if draw.random() < 0.4:
        words += ["--machine_rank", str(draw.choice((0, 1)))]
    if draw.random() < 0.3:
        words.append(draw.choice(("--multi_gpu", "--use_deepspeed", "--use_fsdp")))
    if draw.random() < 0.1:
        words.append("--use_fsdp")
    if draw.random() < 0.2:
        words += ["--gpu_ids", draw.choice(("all", "0", "0,1", "3,1"))]
    if draw.random() < 0.2:
        words += ["--rdzv_backend", draw.choice(("c10d", "static"))]
    if draw.random() < 0.15:
        words += ["--deepspeed_multinode_launcher", draw.choice(("standard", "pdsh"))]
    if draw.random() < 0.3:
        words += ["--main_process_ip", "n0", "--main_process_port", "6000"]
    return words


def file(draw: random.Random) -> dict[str, Any] | None:
    """Return a file of accelerate, ``None`` for none."""
    if draw.random() < 0.25:
        return None
    kind = draw.choice(_TYPES)
    config: dict[str, Any] = {} if kind is None and draw.random() < 0.3 else {"distributed_type": kind or "MULTI_GPU"}
    if draw.random() < 0.8:
        config["num_processes"] = draw.choice((1, 2, 4, 8, 16))
    if draw.random() < 0.6:
        config["num_machines"] = draw.choice((1, 2))
    if draw.random() < 0.3:
        config["machine_rank"] = draw.choice((0, 1))
    if draw.random() < 0.2:
        config["gpu_ids"] = draw.choice(("all", "1,0", "2"))
    if draw.random() < 0.4:
        config |= {"rdzv_backend": draw.choice(("static", "c10d")), "same_network": True}
    if kind == "DEEPSPEED":
        launcher = {"deepspeed_multinode_launcher": "standard"} if draw.random() < 0.7 else {}
        config["deepspeed_config"] = {"zero_stage": draw.choice((1, 2, 3)), **launcher}
    if draw.random() < 0.1:
        config["num_gpus"] = 8
    return config


def answer(launch: Any, case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return what accelerate does with the flags and the file of a case."""
    import torch
    import yaml
    from accelerate.utils import launch as prepare

    count = case["devices"]
    torch.cuda = types.SimpleNamespace(device_count=lambda: count, is_available=lambda: True)
    words = list(case["flags"])
    if case["file"] is not None:
        path = folder / "config.yaml"
        path.write_text(yaml.safe_dump(case["file"]))
        words = ["--config_file", str(path), *words]
    args = launch.launch_command_parser().parse_args([*words, "train.py"])
    try:
        args, _, _ = launch._validate_launch_command(args)
        if args.use_deepspeed:
            args.deepspeed_fields_from_accelerate_config = ""
            command, environment = prepare.prepare_deepspeed_cmd_env(args)
            kind = "deepspeed" if command is None else "hostfile"
        elif args.use_fsdp or args.multi_gpu:
            environment = prepare.prepare_multi_gpu_env(args)
            kind = "fsdp" if args.use_fsdp else "multi"
        else:
            _, environment = prepare.prepare_simple_launcher_cmd_env(args)
            return {"kind": "one", "mask": environment.get("CUDA_VISIBLE_DEVICES")}
    except (ValueError, TypeError, KeyError, AttributeError, AssertionError, ZeroDivisionError) as error:
        return {"refused": type(error).__name__, "message": str(error).split("\n")[0].replace(str(folder), "")}
    each = getattr(args, "nproc_per_node", None)
    if kind == "hostfile":
        each = args.num_processes // args.num_machines
    return {
        "kind": kind,
        "each": int(each),
        "nodes": args.num_machines,
        "rank": getattr(args, "node_rank", None),
        "rendezvous": args.rdzv_backend,
        "mask": environment.get("CUDA_VISIBLE_DEVICES"),
    }


def main(folder: str) -> None:
    """Record the answers to all cases."""
    sys.meta_path.insert(0, _Finder())
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: "2.7.0" if name == "torch" else version(name)
    sys.path.insert(0, folder)
    for name in ("CUDA_VISIBLE_DEVICES", "HF_HOME"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as home:
        os.environ["HF_HOME"] = home
        from accelerate.commands import launch
        from accelerate.utils import launch as prepare

        prepare.is_port_in_use = lambda port: False
        lines = [{**case, "result": answer(launch, case, Path(home))} for case in cases()]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    LINES.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1])

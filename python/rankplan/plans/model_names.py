"""Which model of the table a name means: exactly, in a folder, from another owner, or as a sibling of the same sizes.

A name is read from its end: ``/data/models/Qwen3-8B`` and ``unsloth/Qwen3-8B`` have the name ``Qwen3-8B``. What a
sibling adds changes how the weights were trained or stored, and no size: ``Instruct``, ``Coder``, ``FP8``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from rankplan.words import did_you_mean

_REMARK = re.compile(r"\s*\(.*\)$")
"""What the table adds to an alias: ``(untied)``."""
_SIZE = re.compile(r"(?<![a-z0-9.])([0-9]+(?:\.[0-9]+)?[bm])(?![a-z0-9])")
_ADDED = """instruct chat base thinking coder math it hf bf16 fp8 awq gptq int4 int8 w4a16 w8a8 nvfp4 mxfp4 dynamic
    unsloth bnb 4bit 8bit distill reasoning preview torch dist mcore megatron sft dpo rl rlvr rm reward mixture
    multiturn skywork"""
_ADDED_WORDS = frozenset(_ADDED.split())
_RELEASE = re.compile(r"[0-9]{4}|v[0-9.]+|[0-9]+k")
"""A release, or samples and lengths of training: ``2507``, ``v0.3``, ``700k``."""
_CHECKPOINT = re.compile(r"(global_?)?step[-_]?[0-9]+|checkpoint[-_]?[0-9]*|iter_[0-9]+|huggingface|hf|actor|latest")
"""Folders of a checkpoint, below the one with the name of a model."""
_STORED = {
    "fp8": 1.0,
    "int8": 1.0,
    "w8a8": 1.0,
    "8bit": 1.0,
    "awq": 0.5,
    "gptq": 0.5,
    "int4": 0.5,
    "w4a16": 0.5,
    "nvfp4": 0.5,
    "mxfp4": 0.5,
    "4bit": 0.5,
}
"""Bytes of a weight by the word for it in a name."""
_META = "meta-"
_CACHE = "models--"


class Named(NamedTuple):
    """A name of the table, and the bytes of a weight that the given name states, if any."""

    name: str
    stored: float | None = None


def plain_name(alias: str) -> str:
    """Return an alias of the table without its remark."""
    return _REMARK.sub("", alias)


def last_part(text: str) -> str:
    """Return the name of a model at the end of a path, or behind its owner; a folder of the cache has both.

    Folders of a checkpoint say nothing: ``qwen-2.5-7b-sft/global_step_372``.
    """
    parts = [part for part in re.split(r"[/\\]+", text) if part]
    while len(parts) > 1 and _CHECKPOINT.fullmatch(parts[-1]):
        parts.pop()
    cached = [part for part in parts if part.startswith(_CACHE)]
    if cached:
        return cached[0].rpartition("--")[2]
    return parts[-1] if parts else ""


def _words(name: str) -> tuple[str, ...]:
    words = tuple(re.split(r"[-_]+", name.lower().removeprefix(_META)))
    return tuple(word for word in words if word)


def _core(name: str) -> tuple[str, ...]:
    """Return the words of a name that decide its sizes."""
    words = [word for word in _words(name) if word not in _ADDED_WORDS and not _RELEASE.fullmatch(word)]
    return tuple(words)


def _stored(name: str) -> float | None:
    return next((_STORED[word] for word in _words(name) if word in _STORED), None)


def alike(text: str, names: Mapping[str, str]) -> Named | None:
    """Return the model whose sizes a name has; ``names`` has the first name in the table by each name of a model.

    ``None`` if no name of the table has these words, or names of several models do.
    """
    last = last_part(text)
    stored = _stored(last)
    same = {first for name, first in names.items() if last_part(name).lower() == last.lower()}
    if len(same) == 1:
        return Named(same.pop(), stored)
    core = _core(last)
    if not any(_SIZE.fullmatch(word) for word in core):
        return None
    # With and without a hyphen: `qwen-2.5-7b`, `qwen2.5-7b`.
    siblings = {first for name, first in names.items() if "".join(_core(last_part(name))) == "".join(core)}
    return Named(siblings.pop(), stored) if len(siblings) == 1 else None


def sizes_in(name: str) -> frozenset[str]:
    """Return the sizes in a name: ``{"30b", "a3b"}``."""
    return frozenset(re.findall(r"(?<![a-z0-9.])(a?[0-9]+(?:\.[0-9]+)?[bm])(?![a-z0-9])", name.lower()))


def near(text: str, names: Iterable[str]) -> str:
    """Return "did you mean" with a name of the same size, or nothing: another size is never meant."""
    sizes = sizes_in(last_part(text))
    suggestion = did_you_mean(text, [name for name in names if sizes_in(name) == sizes])
    return suggestion if suggestion.startswith("did you mean") else ""


def cached_config(name: str) -> Path | None:
    """Return the ``config.json`` of a model in the cache of Hugging Face on this machine, if it is there.

    ``HF_HUB_CACHE``, else ``hub`` in ``HF_HOME``, else in `~/.cache/huggingface` (`huggingface_hub.constants`).
    """
    if name.count("/") != 1 or name.startswith(("/", ".", "~")):
        return None
    home = Path(os.environ.get("HF_HOME") or Path("~/.cache/huggingface").expanduser())
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    folder = hub / f"{_CACHE}{name.replace('/', '--')}"
    revision = folder / "refs" / "main"
    try:
        commit = revision.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        commit = ""
    found = folder / "snapshots" / commit / "config.json" if commit else None
    if found is not None and found.is_file():
        return found
    snapshots = sorted((folder / "snapshots").glob("*/config.json"))
    return snapshots[-1] if snapshots else None

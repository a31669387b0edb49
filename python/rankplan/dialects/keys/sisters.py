"""Sizes under the name of another system, or in another section than the one that is read.

A trainer ignores such a key, or refuses it. Either way its own size would keep the default, without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeAlias

from rankplan.errors import Diagnostic, KeyPath
from rankplan.read.text.unresolved import unresolved
from rankplan.words import as_int, path_text, shown

SizePlaces: TypeAlias = tuple[KeyPath, ...]
"""The paths of a size in a section: its own, and then those of older versions."""

MEANINGS: tuple[frozenset[str], ...] = (
    frozenset({"nnodes", "num_nodes", "n_nodes"}),
    frozenset({"n_gpus_per_node", "gpus_per_node", "num_gpus_per_node"}),
    frozenset({"num_engines", "num_inference_engines", "num_rollout_engines"}),
    frozenset(
        {"tensor_model_parallel_size", "tensor_parallel_size", "tp_size", "inference_engine_tensor_parallel_size"}
    ),
    frozenset({"pipeline_model_parallel_size", "pipeline_parallel_size", "pp_size"}),
    frozenset(
        {
            *("context_parallel_size", "cp_size", "sequence_parallel_size", "ring_attn_size"),
            *("ulysses_sequence_parallel_size", "ulysses_parallel_size", "ulysses_size"),
        }
    ),
    frozenset({"expert_model_parallel_size", "expert_parallel_size", "ep_size", "moe_expert_parallel_size"}),
    frozenset({"data_parallel_size", "dp_size"}),
)
"""Names of the same size in the configs of all systems."""


_NAMES = frozenset().union(*MEANINGS)


def is_size_name(name: str) -> bool:
    """Return whether a system has a size with this name."""
    return name in _NAMES


def is_size(value: Any) -> bool:
    """Return whether a value may be a size: a whole number above 0, or one that only a run resolves."""
    number = as_int(value)
    return unresolved(value) or (number is not None and number > 0)


def same_size(name: str, others: Iterable[str]) -> str | None:
    """Return the first of these names that means the same size as another one."""
    meaning = next((names for names in MEANINGS if name in names), frozenset())
    return next((other for other in others if other != name and other in meaning), None)


def stated_beside(path: KeyPath, sizes: Iterable[SizePlaces], is_stated: Callable[[KeyPath], bool]) -> list[KeyPath]:
    """Return the sizes of the section of a path that mean the same as it, and that are stated, too."""
    name = str(path[-1])
    places = [place for size in sizes for place in size if place[:-1] == path[:-1]]
    return [place for place in dict.fromkeys(places) if same_size(name, (str(place[-1]),)) and is_stated(place)]


def ignored_size(path: KeyPath, value: Any, right: KeyPath, right_value: Any) -> Diagnostic:
    """Return the warning of a size under the name of another system, beside the one that counts and differs."""
    message = f"`{path_text(path)}` is {shown(value)}, but `{path_text(right)}` counts, which is {shown(right_value)}"
    return Diagnostic("not-read", message, "remove this key", warning=True)


def right_path(path: KeyPath, sizes: Collection[SizePlaces], is_stated: Callable[[KeyPath], bool]) -> KeyPath | None:
    """Return where a size that is written at a path belongs; ``None`` if no key means it, or several do.

    ``is_stated`` tells whether there is a value at a path. A key beside the written one is meant first. Otherwise it
    is the only key with this name in a section beside the written key; and if there is none, the only key with this
    meaning there. A size that is stated where it belongs, too, is ignored here without harm.
    """
    above, name = path[:-1], str(path[-1])
    beside = [size for size in sizes if size[0][:-1] == above and same_size(name, (str(size[0][-1]),))]
    inside = [size for size in sizes if len(size[0]) == len(path) + 1 and size[0][: len(above)] == above]
    same_name = [size for size in inside if size[0][-1] == name]
    same_meaning = [size for size in inside if same_size(name, (str(size[0][-1]),))]
    meant = beside[:1] or same_name or same_meaning
    if len(meant) != 1 or any(map(is_stated, meant[0])):
        return None
    return meant[0][0]

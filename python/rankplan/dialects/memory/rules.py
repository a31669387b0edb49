"""The parts of a table: keys of a config, and the setting of ``memory`` that they decide."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rankplan.memory.settings import ENGINES, FRAMEWORKS


class Unread(Enum):
    """Markers in place of a value."""

    RUN_TIME = "a value that only the run knows"
    EFFECT = "a value whose effect on the memory is unknown"


EFFECT, RUN_TIME = Unread.EFFECT, Unread.RUN_TIME

GUESSED = frozenset(
    {
        "",
        "precision",
        "optimizer",
        "optimizer_on_host",
        "lora",
        "cache_precision",
        "chunks",
        "first_layers",
        "whole_gradients",
        "last_layers",
    }
)
"""Settings whose missing value means something: with a value that is not read, the component says nothing. Any other
setting leaves both readings open."""


@dataclass(frozen=True, slots=True)
class Key:
    """A value of a config: the first of its ``paths`` that is stated.

    ``kind`` is its type: ``size``, ``switch``, ``text``, ``number``, ``share`` (above 0, up to 1), ``fraction`` (0 to
    1), ``any``, or what the plan says in place of a config: ``fact``. A path that starts with ``@.`` is below the
    section of its component. ``default`` is what the system takes if no path is stated; ``None``: nothing, or unknown.
    """

    kind: str
    paths: str
    default: Any = None


def key(text: str) -> Key:
    """Return a key from a text: its kind, its paths, and ``= default`` if it has one."""
    words, _, default = text.partition(" = ")
    kind, _, paths = words.partition(" ")
    return Key(kind, paths, _DEFAULTS.get(kind, str)(default) if default else None)


_DEFAULTS: dict[str, Callable[[str], Any]] = {
    "size": int,
    "switch": lambda text: text == "true",
    "any": lambda text: text == "true",
    "number": float,
    "share": float,
    "fraction": float,
}


@dataclass(frozen=True, slots=True)
class Rule:
    """Keys, and the setting of ``memory`` that ``convert`` makes of their values, in this order.

    ``convert`` returns ``None`` for no setting, and `EFFECT` for a value that it does not know. Without a setting, the
    rule tells only whether the component can be read. ``only`` are the kinds that it applies to: words such as
    ``fsdp`` or ``forward`` of the component's ``training``, ``forward`` or ``engine``.
    """

    setting: str
    keys: tuple[Key, ...]
    convert: Callable[..., Any]
    only: str = ""

    def applies(self, kind: Mapping[str, Any]) -> bool:
        """Return whether the rule is about a component of this kind."""
        words = {*kind, *map(str, kind.values())}
        return not self.only or not words.isdisjoint(self.only.split())


def same(value: Any) -> Any:
    """Return a value as it is."""
    return value


def rule(setting: str, *keys: str, by: Callable[..., Any] = same, only: str = "") -> Rule:
    """Return a rule for keys; see `key`."""
    return Rule(setting, tuple(map(key, keys)), by, only)


def unless(*paths: str, only: str = "") -> Rule:
    """Return a rule for keys that, if they are set, have an effect that no setting states."""
    return Rule("", tuple(Key("any", path) for path in paths), _unset, only)


def layers(*paths: str, only: str = "") -> Rule:
    """Return a rule for mappings that may change the layers of the model."""
    return Rule("", tuple(Key("any", path) for path in paths), _reshaped, only)


@dataclass(frozen=True, slots=True)
class Role:
    """Components with the same keys, each with its section; ``*`` stands for any name, also at the end of one.

    ``kind`` decides what they are: its ``convert`` returns settings such as ``{"training": "fsdp"}``, or ``None``.
    ``model`` is the name of their model, or what `Model.of` takes.
    """

    components: Mapping[str, str]
    kind: Rule
    model: Rule
    rules: tuple[Rule, ...]

    def section(self, component: str) -> str | None:
        """Return the section of a component, ``None`` if the role is not its own."""
        for name, section in self.components.items():
            if name == component:
                return section
            if name.endswith("*") and component.startswith(name[:-1]):
                return section.replace("*", component[len(name) - 1 :])
        return None


Table = tuple[Role, ...]


def stated_keys(table: Table) -> dict[str, dict[str, list[str]]]:
    """Return every key of a table by its path, with its kinds and the settings that it decides."""
    found: dict[str, dict[str, list[str]]] = {}
    for role in table:
        for one in (role.kind, role.model, *role.rules):
            for each in (key for key in one.keys if key.kind != "fact"):
                for section in dict.fromkeys(role.components.values()):
                    for path in each.paths.split():
                        here = found.setdefault(path.replace("@", section, 1), {"kinds": [], "settings": []})
                        for name, value in (("kinds", each.kind), ("settings", one.setting)):
                            here[name] += [value] if value and value not in here[name] else []
    return {path: about for path, about in found.items() if f"*.{path.partition('.')[2]}" not in found.keys() - {path}}


FOREIGN = re.compile(r"kwargs|override|strategy_config|\.optimizer$|[*]")
"""Sections that have keys of another library, too."""

_ADAM = {"adam", "adamw", "torch.optim.adamw", "torch.optim.adam", "fusedadam"}
_SHORT = {
    name: short
    for short, names in (
        ("fp32", "fp32 float32 float 32 32-true"),
        ("bf16", "bf16 bfloat16 bf16-mixed"),
        ("fp16", "fp16 float16 half 16 16-mixed"),
    )
    for name in names.split()
}
_SHAPE = {
    "num_hidden_layers",
    "num_layers",
    "hidden_size",
    "intermediate_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "num_query_groups",
    "vocab_size",
    "num_experts",
    "num_moe_experts",
    "n_routed_experts",
    "moe_intermediate_size",
}


def _unset(*values: Any) -> Any:
    """Return `EFFECT` if a value is set."""
    return EFFECT if any(_is_set(value) for value in values) else None


def _is_set(value: Any) -> bool:
    return str(value).lower() not in ("none", "false", "0", "0.0", "", "[]", "{}", "auto", "disabled")


def _reshaped(*values: Any) -> Any:
    """Return `EFFECT` if values of the model's own config change its layers."""
    found = (value for value in values if isinstance(value, Mapping))
    return EFFECT if any(not _SHAPE.isdisjoint(one) for one in found) else None


def always(setting: Any) -> Callable[..., Any]:
    """Return a function that returns a setting, whatever the values are."""
    return lambda *values: setting


def named(words: Mapping[str, Any], other: Any = None) -> Callable[..., Any]:
    """Return a function from a name to a setting; ``other`` is that of an unknown name."""

    def found(value: Any) -> Any:
        return None if value is None else words.get(str(value).lower(), other)

    return found


def precision(name: Any, *fp8: Any) -> Any:
    """Return the precision of trained weights; 8 bits, in whatever way, are the least."""
    if any(_is_set(value) for value in fp8):
        return "fp8"
    return None if name is None else _SHORT.get(str(name).lower(), EFFECT)


def served(quantized: Any, *types: Any) -> Any:
    """Return the precision of an engine's weights; other types than 32 bits may be those of a checkpoint of 8."""
    if _is_set(quantized):
        return "fp8" if str(quantized).lower() == "fp8" else EFFECT
    return "fp32" if any(_SHORT.get(str(name).lower()) == "fp32" for name in types) else None


def cached(*types: Any) -> Any:
    """Return the precision of the cache."""
    for name in (str(name).lower() for name in types if _is_set(name)):
        if name.startswith("fp8"):
            return "fp8"
        return _SHORT.get(name, EFFECT)
    return None


def optimizer(name: Any, *aware: Any) -> str:
    """Return the optimizer: of others than Adam, only the lower bound is known."""
    if str(name).lower() not in _ADAM:
        return "sgd"
    return "adam-precision-aware" if any(_is_set(value) for value in aware) else "adam"


def torch_optimizer(name: Any, module: Any = None) -> str:
    """Return the optimizer of a class; another module may keep less than torch's."""
    return optimizer(name) if str(module or "torch.optim") == "torch.optim" else "sgd"


def trains(framework: Any) -> Any:
    """Return the kind of a trainer; ``None`` for a framework that no setting states."""
    return {"training": framework} if framework in FRAMEWORKS else None


def computes(framework: Any) -> Any:
    """Return the kind of a model that only computes."""
    return {"forward": framework} if framework in FRAMEWORKS else None


def serves(engine: Any) -> Any:
    """Return the kind of an engine."""
    return {"engine": engine} if engine in ENGINES else None


def offloaded(offload: Any, fraction: Any) -> Any:
    """Return the part of Megatron's optimizer that stays on the host."""
    if not offload:
        return None
    return EFFECT if fraction is None else float(fraction)


def whole(offload: Any) -> float | None:
    """Return 1 for all states on the host."""
    return 1.0 if offload else None


def resharded(reshard: Any) -> Any:
    """Return `EFFECT` if FSDP keeps what it has gathered until the backward pass."""
    return None if reshard is None or reshard is True else EFFECT


def several(size: Any) -> Any:
    """Return `EFFECT` for a size above 1."""
    return EFFECT if size is not None and size > 1 else None


def replicated(shards: Any, slots: int) -> Any:
    """Return `EFFECT` if fewer slots than all share the states."""
    return EFFECT if shards is not None and 1 < shards < slots else None


def gradients(wide: Any, *narrow: Any) -> str | None:
    """Return 32 bits, unless something may make gradients smaller."""
    return "fp32" if wide is True and not any(_is_set(value) for value in narrow) else None


def checkpointed(enabled: Any) -> str | None:
    """Return whether every layer is computed again."""
    return None if enabled is None else "full" if enabled else "none"


def granularity(name: Any, method: Any = None, *enabled: Any) -> str | None:
    """Return what Megatron computes again: with the method ``block``, only some layers."""
    if False in enabled:
        return "none"
    return {"full": None if method == "block" else "full", "selective": "selective"}.get(str(name).lower())


def asleep(*offloads: Any) -> str | None:
    """Return whether everything goes to the host, or nothing does."""
    if None in offloads:
        return None
    return "host" if all(offloads) else None if any(offloads) else "none"


def adapters(rank: Any, *enabled: Any) -> Any:
    """Return the rank of adapters, unless they are switched off."""
    return rank if rank and all(enabled) else None


def added(*sizes: Any) -> int | None:
    """Return the sum of sizes, if all are known."""
    return None if None in sizes else sum(sizes)


def micro_batch(by_tokens: Any, tokens: int | None, batch: int | None, length: int | None) -> int | None:
    """Return the most tokens of a micro-batch: stated, or sequences of full length."""
    if by_tokens:
        return tokens
    return None if batch is None or length is None else batch * length


def most(*sizes: int | None) -> int | None:
    """Return the largest size, if all are known."""
    known = [one for one in sizes if one is not None]
    return max(known) if len(known) == len(sizes) else None

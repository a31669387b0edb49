"""The parts of a table: keys of a config, and the setting of ``memory`` that they decide."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rankplan.dialects.memory import convert

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
    ``fsdp`` or ``forward`` of the component's ``training``, ``forward`` or ``engine``. ``words`` are values that a text
    may need for the setting. ``also`` are keys, with values, that a trainer demands beside a setting other than none.
    """

    setting: str
    keys: tuple[Key, ...]
    convert: Callable[..., Any]
    only: str = ""
    words: tuple[str, ...] = ()
    also: tuple[Key, ...] = ()

    def applies(self, kind: Mapping[str, Any]) -> bool:
        """Return whether the rule is about a component of this kind."""
        words = {*kind, *map(str, kind.values())}
        return not self.only or not words.isdisjoint(self.only.split())


def same(value: Any) -> Any:
    """Return the value unchanged."""
    return value


def rule(
    setting: str, *keys: str, by: Callable[..., Any] = same, only: str = "", words: str = "", also: tuple[str, ...] = ()
) -> Rule:
    """Return a rule for keys; see `key`."""
    return Rule(setting, tuple(map(key, keys)), by, only, tuple(words.split()), tuple(map(key, also)))


def fixed(setting: str, value: Any, only: str = "") -> Rule:
    """Return the rule of a system that has one value for a setting, whatever its config says."""
    return Rule(setting, (), convert.always(value), only)


def recomputing(section: str, only: str = "") -> Rule:
    """Return the rule for Megatron's recomputation; ``section`` ends in a dot or is empty.

    Megatron-LM demands a method and a number of layers with ``full`` (``TransformerConfig.__post_init__``).
    """
    method = f"text {section}recompute_method"
    also = (f"{method} = uniform", f"size {section}recompute_num_layers = 1")
    granularity = f"text {section}recompute_granularity"
    return rule("recompute", granularity, method, by=convert.granularity, only=only, also=also)


def offloading(section: str, fraction: float | None = None, only: str = "") -> Rule:
    """Return the rule for Megatron's optimizer on the host; ``fraction`` is the default of the system."""
    switch = Key("switch", f"{section}optimizer_cpu_offload", default=False)
    part = Key("fraction", f"{section}optimizer_offload_fraction", fraction)
    return Rule("optimizer_on_host", (switch, part), convert.offloaded, only)


def end_stages(section: str) -> tuple[Rule, Rule]:
    """Return the rules for the layers of Megatron's first and last stage; ``section`` ends in a dot."""
    return (
        rule("first_layers", f"size {section}num_layers_in_first_pipeline_stage", only="megatron"),
        rule("last_layers", f"size {section}num_layers_in_last_pipeline_stage", only="megatron"),
    )


def unless(*paths: str, only: str = "") -> Rule:
    """Return a rule for keys that, if they are set, have an effect that no setting states."""
    return Rule("", tuple(Key("any", path) for path in paths), convert.unset, only)


def stage_keys(section: str) -> tuple[str, ...]:
    """Return Megatron's keys for `unless` that divide the layers unevenly among stages; ``section`` ends in a dot."""
    keys = "pipeline_model_parallel_layout account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split"
    return tuple(f"{section}{key}" for key in keys.split())


CHUNK, BATCH, REQUESTS = 16384, 16384, 4096
"""SGLang's own defaults: tokens of a chunk (`server_args.py`: at most these, by memory), ``max_prefill_tokens``, and
requests (``ModelRunner.init_memory_pool``: at most these)."""


def sglang_steps(section: str, length: str) -> tuple[Rule, Rule]:
    """Return the rules for the most tokens and requests of SGLang; ``section`` ends in a dot or an underscore."""
    return (
        rule(
            "tokens",
            f"size {section}chunked_prefill_size = {CHUNK}",
            f"size {section}max_prefill_tokens = {BATCH}",
            f"size {length}",
            by=convert.step,
            only="sglang",
        ),
        rule("sequences", f"size {section}max_running_requests = {REQUESTS}", only="sglang"),
    )


def layers(*paths: str, only: str = "") -> Rule:
    """Return a rule for mappings that may change the layers of the model."""
    return Rule("", tuple(Key("any", path) for path in paths), convert.reshaped, only)


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

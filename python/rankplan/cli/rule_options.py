"""The options that state rules of the network: each replaces the rule of its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click

from rankplan.plans.rules import Segments

_OPTIONS = (
    click.option(
        "--segment",
        multiple=True,
        metavar="[COMPONENT=]N",
        help="Keep every N nodes of the plan, or of a component, in one innermost domain, or in one domain of each "
        "level (actor=block:16,nvlink:8); repeatable.",
    ),
    click.option(
        "--keep",
        multiple=True,
        metavar="COMPONENT.KIND=LEVEL",
        help="Keep these groups within a domain of a level, e.g. actor.ep=nvlink, all of a component "
        "(actor.world=block), or in two domains with equal shares (actor.ep=nvlink:2); repeatable.",
    ),
    click.option(
        "--prefer",
        multiple=True,
        metavar="COMPONENT.KIND=LEVEL",
        help="Like --keep, but refuse nothing, e.g. actor.world=nvlink; repeatable.",
    ),
    click.option(
        "--balance",
        multiple=True,
        metavar="[COMPONENT=]LEVEL",
        help="Divide nodes as evenly as possible among the domains of a level in use, e.g. actor=nvlink; repeatable.",
    ),
    click.option(
        "--cap",
        multiple=True,
        metavar="LEVEL=N",
        help="Use at most N nodes of each domain of a level, e.g. nvlink=16; repeatable.",
    ),
)


def rule_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of rules; the command gets those that are stated by their names as ``rules``."""

    @wraps(command)
    def with_rules(
        segment: tuple[str, ...],
        keep: tuple[str, ...],
        prefer: tuple[str, ...],
        balance: tuple[str, ...],
        cap: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        stated = {
            "keep": kept_levels(keep),
            "segment": segment_sizes(segment),
            "prefer": _levels(prefer, "--prefer", "actor.world=nvlink"),
            "balance": balanced_levels(balance),
            "cap": caps(cap),
        }
        return command(rules={name: value for name, value in stated.items() if value}, **rest)

    options = with_rules
    for option in reversed(_OPTIONS):
        options = option(options)
    return options


_SIZE = "0*[1-9][0-9]{0,8}"
_BY_LEVEL = re.compile(f"([^:,]+):({_SIZE})")


def segment_sizes(texts: Sequence[str]) -> Segments | None:
    """Return the size of segments, or sizes by component, from texts such as ``policy=4`` or ``a=block:8,nvlink:4``."""
    sizes: dict[str, int | dict[str, int]] = {}
    for text in texts:
        component, equals, size = text.rpartition("=")
        if component and (by_level := _by_level(size)):
            sizes[component] = by_level
            continue
        if (equals and not component) or re.fullmatch(_SIZE, size) is None:
            help = "write 4, policy=4 or policy=block:8,nvlink:4"
            raise click.BadParameter(f"{text!r} is not [COMPONENT=]N; {help}", param_hint="--segment")
        sizes[component] = int(size)
    if "" in sizes and len(texts) > 1:
        help = "state one size for all nodes, or a size for each component"
        raise click.BadParameter(f"{' and '.join(texts)} conflict; {help}", param_hint="--segment")
    plain = sizes.get("")
    return plain if isinstance(plain, int) else sizes or None


def kept_levels(texts: Sequence[str]) -> dict[str, dict[str, str | dict[str, int]]] | None:
    """Return levels by component and kind from texts such as ``actor.ep=nvlink`` or ``actor.ep=block:1,nvlink:2``."""
    stated = _levels(texts, "--keep", "actor.ep=nvlink, or actor.ep=nvlink:2 for two domains")
    return {
        component: {kind: _by_level(level) or level for kind, level in kinds.items()}
        for component, kinds in stated.items()
    } or None


def balanced_levels(texts: Sequence[str]) -> str | dict[str, str] | None:
    """Return a level, or levels by component, from texts such as ``nvlink`` and ``actor=nvlink``."""
    balanced = {component: level for component, _, level in (text.rpartition("=") for text in texts)}
    if len(balanced) < len(texts) or ("" in balanced and len(texts) > 1):
        help = "state one level for all nodes, or a level for each component"
        raise click.BadParameter(f"{' and '.join(texts)} conflict; {help}", param_hint="--balance")
    return balanced.get("", balanced or None)


def caps(texts: Sequence[str]) -> dict[str, int] | None:
    """Return numbers of nodes by level from texts such as ``nvlink=16``."""
    found: dict[str, int] = {}
    for text in texts:
        level, _, most = text.rpartition("=")
        if not level or re.fullmatch(_SIZE, most) is None:
            message = f"{text!r} is not LEVEL=N with N of 1 or more; write nvlink=16"
            raise click.BadParameter(message, param_hint="--cap")
        found[level] = int(most)
    return found or None


def _by_level(text: str) -> dict[str, int] | None:
    """Return the numbers of a text such as ``block:8,nvlink:4``; ``None`` for any other."""
    parts = [_BY_LEVEL.fullmatch(part.strip()) for part in text.split(",")]
    return {part[1]: int(part[2]) for part in parts if part is not None} if all(parts) else None


def _levels(texts: Sequence[str], option: str, example: str) -> dict[str, dict[str, str]]:
    """Return levels by component and kind from texts such as ``actor.ep=nvlink``; other texts are wrong usage."""
    levels: dict[str, dict[str, str]] = {}
    for text in texts:
        group, _, level = text.partition("=")
        component, _, kind = group.rpartition(".")
        if not (component and kind and level):
            raise click.BadParameter(f"{text!r} is not COMPONENT.KIND=LEVEL; write {example}", param_hint=option)
        levels.setdefault(component, {})[kind] = level
    return levels

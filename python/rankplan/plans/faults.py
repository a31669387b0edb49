"""The faults of what is stated about the components of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan.errors import Diagnostic
from rankplan.words import counted

ONE_KIND = "write one of training: megatron, forward: true, engine: vllm, or resident: 17 GiB"
"""How a component states what it uses its memory for."""


def no_kind_of_memory(kinds: Sequence[str]) -> Diagnostic:
    """A component states nothing, or several things, that it uses its memory for."""
    stated = " and ".join(f"`{kind}`" for kind in kinds)
    found = f"states {stated}" if kinds else "does not say what it is for"
    return Diagnostic("invalid-value", f"`memory` {found}", ONE_KIND)


def idle_setting(key: str, kind: str, kinds: Sequence[str]) -> Diagnostic:
    """A setting says nothing about what a component uses its memory for."""
    help = f"remove it, or one of {', '.join(kinds)}"
    return Diagnostic("invalid-value", f"`{key}` says nothing about `{kind}`", help)


def setting_of_another(key: str, kind: str, framework: str, own: str) -> Diagnostic:
    """Only another framework has a setting."""
    message = f"`{key}` says nothing about `{kind}: {framework}`"
    return Diagnostic("invalid-value", message, f"remove it: only {own} has it")


def both_stated(first: str, second: str) -> Diagnostic:
    """Two settings state the same."""
    return Diagnostic("invalid-value", f"`{first}` and `{second}` are both stated", "remove one of the two")


def no_such_groups(rule: str, name: str, kind: str, word: str) -> Diagnostic:
    """A rule is about groups of a kind that a component does not have: their size is 1, stated or not."""
    message = f"`{rule}` says nothing about {name}: the {word} groups (`{kind}`) have one slot each"
    help = f"remove it, or state their size: `parallel: {{{kind}: 2}}`"
    return Diagnostic("invalid-value", message, help, warning=True)


def leaves_group(component: str, label: str, nodes: str) -> Diagnostic:
    """Return the fault of a component that the trainer's order of nodes takes out of its node group."""
    message = f"`{component}` is in node group `{label}`; in the trainer's order of nodes it would be on {nodes}"
    help = "plan the job again with --pinned, on the nodes of this cluster (--ray or --inventory)"
    return Diagnostic("order-not-kept", message, help)


# Segments

_MOST_CHOICES = 6


def segment_without_domains(size: int) -> Diagnostic:
    """Return the fault of a segment of nodes whose domains are not known."""
    message = f"segment is {size}, but the nodes have no known domains"
    help = "label the nodes of the inventory and state the levels, or remove `segment`"
    return Diagnostic("segment-incomplete", message, help)


def inner_segment_larger(who: str, inside: str, outside: str) -> Diagnostic:
    """Return the fault of a level whose segment is larger than that of the level around it."""
    message = f"{who}: {inside} is inside {outside} but its segment is larger"
    return Diagnostic("invalid-value", message, "swap the sizes")


def segment_not_divided(who: str, outer: tuple[int, str], inner: tuple[int, str]) -> Diagnostic:
    """Return the fault of a segment that does not divide that of the level around it; each is a size and a level."""
    (larger, outside), (smaller, inside) = outer, inner
    message = f"{who}: {larger} nodes in a {outside} cannot be divided into segments of {smaller}"
    return Diagnostic("invalid-value", message, f"use {_divisors(larger)} for {inside}")


def segment_incomplete(component: str | None, nodes: int, size: int) -> Diagnostic:
    """Return the fault of a number of nodes, of a component or of all, that is no multiple of its segment."""
    below = nodes // size * size
    choices = " or ".join(str(choice) for choice in (below, below + size) if choice)
    message = f"{counted(nodes, 'node')} cannot be divided into segments of {size}"
    if component is not None:
        message = f"{component}: {message}"
    return Diagnostic("segment-incomplete", message, f"use {choices} nodes, or another segment")


def _divisors(size: int) -> str:
    """Return the sizes of 2 or more into which a larger segment can be divided, the smallest first."""
    sizes = [divisor for divisor in range(2, size + 1) if size % divisor == 0]
    if len(sizes) > _MOST_CHOICES:
        sizes = [*sizes[: _MOST_CHOICES - 1], size]
    *others, last = map(str, sizes)
    return f"{', '.join(others)} or {last}" if others else last


def component_named_all() -> Diagnostic:
    """Return the fault of a rule about ``all`` in a plan with a component of that name."""
    return Diagnostic("invalid-value", "`all` means all nodes of the plan here", "name the components")


def crowded_domains(level: str, domain: str, count: int, more: int, most: int) -> Diagnostic:
    """Return the fault of a domain with ``count`` nodes in use, and ``more`` such domains; a cap allows ``most``."""
    others = f", and {counted(more, 'more domain')}" if more else ""
    message = f"{counted(count, 'node')} of {level} domain {domain}{others} are in use; `cap` allows {most}"
    return Diagnostic("domain-too-small", message, "`rankplan arrange` looks for nodes in more domains")

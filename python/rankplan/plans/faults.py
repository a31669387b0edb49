"""The faults of what is stated about the components of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan.errors import Diagnostic

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

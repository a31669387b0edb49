"""The faults of RLinf's configs: what its placement classes would refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rankplan._core import RankSet
from rankplan.errors import Diagnostic
from rankplan.words import counted, nearest


def accelerators(ranks: RankSet) -> str:
    """Return accelerators as messages name them."""
    return f"accelerator{'s' if len(ranks) > 1 else ''} {ranks}"


def _no_mode(message: str, help: str) -> Diagnostic:
    return Diagnostic("mode-unclear", message, help)


def saved_plan() -> Diagnostic:
    """A saved plan stands where a config is expected."""
    help = "read it with Plan.load, or pass the file to rankplan plan, show, diff or env"
    return Diagnostic("invalid-value", "this is a saved plan, not a config", help)


def no_section(config: Mapping[str, Any]) -> Diagnostic:
    """A config has no ``cluster`` section."""
    return Diagnostic("missing-key", "the config has no `cluster` section", _instead_of_section(config))


def _instead_of_section(config: Mapping[str, Any]) -> str:
    if "component_placement" in config:
        return "pass the whole config: this mapping belongs under its key `cluster`"
    near = nearest("cluster", [str(key) for key in config if key != "cluster"], 0.8)
    if near is not None:
        return f"rename `{near}` to `cluster`"
    if "defaults" in config:
        from rankplan.read.text.hydra import compose

        return compose(config)
    if "nodes" in config:
        return "this is an inventory: pass a config, and this file with --inventory"
    if "components" in config:
        return "these look like costs: pass them to `rankplan tune` with --costs"
    return (
        "add `cluster:` with num_nodes and component_placement, or name the system that the config is for with "
        "--dialect"
    )


def no_components() -> Diagnostic:
    """Return the fault of a ``cluster`` section that places nothing."""
    help = "add components: `component_placement: {actor: 0-7}`"
    return Diagnostic("no-components", "the config places no component", help)


def lacking_key(written: str, key: str, lack: str) -> Diagnostic:
    """A key is misspelt without which the config lacks something important."""
    return Diagnostic("unknown-key", f"unknown key `{written}`, and {lack}", f"rename it to `{key}`")


def empty_name(key: str) -> Diagnostic:
    """A key of ``component_placement`` has an empty name between its commas."""
    message = f"`{key}` contains an empty component name"
    return Diagnostic("empty-name", message, "write a name between the commas, e.g. actor")


def placed_twice(name: str) -> Diagnostic:
    """Two keys of ``component_placement`` name one component."""
    return Diagnostic("duplicate-component", f"component `{name}` is placed twice", "give each component one rule")


def without_accelerators(name: str) -> Diagnostic:
    """A role is sized by accelerators but is placed without any."""
    message = f"`{name}` is placed without accelerators, which its sizes count"
    return Diagnostic("no-resources", message, "place it on accelerators, in a node group that has some")


def different_sizes(name: str, kind: str, stated: int, path: str, there: int) -> Diagnostic:
    """An entry and the section of its component state different sizes."""
    message = f"`{name}` has {kind} {stated} here, but `{path}` is {there}"
    return Diagnostic("parallel-conflict", message, "write the same size in both, or remove `parallel`")


def engine_of_another_size(most: int, size: int, sizes: str) -> Diagnostic:
    """The processes of a rollout have more, or fewer, accelerators than an engine."""
    has = counted(most, "accelerator")
    message = f"a process of `rollout` has {has}, but its engine needs {size} ({sizes})"
    help = f"remove the process ranks, or give each process {counted(size, 'accelerator')}"
    return Diagnostic("parallel-idle" if most > size else "parallel-not-divisible", message, help)


def uneven_engines(name: str, count: int, size: int, stride: int) -> Diagnostic:
    """Engines that alternate do not fill the accelerators of a component."""
    message = (
        f"`{name}` has {count} accelerators, which is not a multiple of {size * stride}: engines of {size} alternate, "
        f"{stride} at a time, because the actor's tensor size is {stride} times the rollout's"
    )
    help = f"use a multiple of {size * stride} accelerators, or the same tensor size for both"
    return Diagnostic("parallel-not-divisible", message, help)


def uneven_data(name: str, count: int, dp: int) -> Diagnostic:
    """The stated number of engines does not divide the accelerators of a rollout."""
    message = f"`{name}` has {count} accelerators, which is not a multiple of dp_size {dp}"
    help = "set dp_size to a divisor of the number of accelerators, or remove it"
    return Diagnostic("parallel-not-divisible", message, help)


def idle_inference(name: str) -> Diagnostic:
    """Inference is placed although no log probabilities are computed again."""
    message = f"`{name}` is placed, but `algorithm.recompute_logprobs` is not true"
    return _no_mode(message, f"set it to true, or remove `{name}`: it would have nothing to compute")


def partly_shared(first: str, second: str, shared: RankSet, used: RankSet, others: RankSet) -> Diagnostic:
    """Actor and rollout share some of their accelerators, and not all."""
    message = f"`{first}` and `{second}` share {accelerators(shared)} of the cluster"
    message += f", but `{first}` uses {used} and `{second}` uses {others}"
    return _no_mode(message, "give both the same accelerators (collocated) or no common ones (disaggregated)")


def shared_apart(first: str, second: str, shared: RankSet) -> Diagnostic:
    """Two roles share accelerators that disaggregated mode keeps apart."""
    message = f"`{first}` and `{second}` share {accelerators(shared)} of the cluster"
    return _no_mode(f"{message}, which disaggregated mode does not allow", "give each accelerators of its own")


def inference_of_collocated(name: str) -> Diagnostic:
    """Inference is placed beside a collocated actor and rollout."""
    message = f"`{name}` is placed, but collocated actor and rollout need no other inference"
    return _no_mode(message, "remove it, or give actor and rollout accelerators of their own (disaggregated)")


def scheduled_critic() -> Diagnostic:
    """``auto_scheduler`` is set for a job with a critic."""
    message = "auto_scheduler is set, but it cannot schedule `critic`"
    return _no_mode(message, "remove `critic`, or set auto_scheduler to false")


def scheduled_rollouts() -> Diagnostic:
    """``auto_scheduler`` is set for a job with several rollouts."""
    return _no_mode("auto_scheduler is set, but it cannot schedule several rollouts", "set it to false")


def not_consecutive(name: str, used: RankSet, start: int, names: Sequence[str], total: int) -> Diagnostic:
    """A role does not start where the one before it ends."""
    message = f"`{name}` uses {used}, but auto_scheduler needs it on consecutive accelerators from {start}"
    return _not_in_order(message, names, total)


def not_all(name: str, end: int, names: Sequence[str], total: int) -> Diagnostic:
    """The roles leave accelerators of the cluster unused."""
    message = f"`{name}` ends at accelerator {end - 1}, but auto_scheduler needs all {total} of the cluster"
    return _not_in_order(message, names, total)


def _not_in_order(message: str, names: Sequence[str], total: int) -> Diagnostic:
    order = ", then ".join(f"`{name}`" for name in names)
    return Diagnostic("auto-order", message, f"place {order}, without gaps, on accelerators 0-{total - 1}")


def no_sender(rollout: int, actor: int, below: int, above: int) -> Diagnostic:
    """The tensor size of the rollout does not divide that of the actor, and is smaller."""
    message = (
        f"rollout tensor size {rollout} does not divide actor tensor size {actor}: no actor rank holds the weights "
        f"of a rollout slot"
    )
    return Diagnostic("no-weight-sender", message, f"use rollout tensor size {below} or {above}")


def uneven_batch(
    size: int, count: int, batch: int, minibatches: int, valid: Sequence[int], multiple: int
) -> Diagnostic:
    """A data size that ``auto_scheduler`` needs does not divide a minibatch."""
    allowed = ", ".join(map(str, valid)) or "none"
    message = (
        f"auto_scheduler needs data size {size} for `actor` on {count} accelerators, but "
        f"rollout_batch_size {batch} in {minibatches} minibatches allows {allowed}"
    )
    help = f"use a rollout_batch_size that is a multiple of {multiple}, or other accelerators"
    return Diagnostic("auto-dp", message, help)


def reward_elsewhere(reward: RankSet, actor: RankSet) -> Diagnostic:
    """The reward of several rollouts is not where the actor is."""
    message = f"`reward` uses {accelerators(reward)}, but `actor` uses {actor}"
    return _no_mode(message, "give both the same accelerators")


def rollout_beyond_actor(name: str, beyond: RankSet) -> Diagnostic:
    """One of several rollouts uses accelerators that the actor lacks."""
    message = f"`{name}` uses {accelerators(beyond)}, which `actor` does not use"
    return _no_mode(message, "place every rollout on accelerators of the actor")


def shared_by_others(first: str, second: str, both: RankSet) -> Diagnostic:
    """Two components beside several rollouts share accelerators."""
    message = f"`{first}` and `{second}` share {accelerators(both)} of the cluster"
    return _no_mode(message, "give each accelerators of its own")


def no_node_ranks() -> Diagnostic:
    """A strategy for nodes names none."""
    return Diagnostic("empty-placement", "node_ranks is empty", "name at least one node rank")

"""The faults of measured times, and of a search that finds no schedule."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rankplan.errors import Diagnostic
from rankplan.words import counted, did_you_mean, shown


def no_components() -> Diagnostic:
    """Return the fault of costs without components."""
    return Diagnostic("missing-times", "the costs have no components", "write `components:` with the seconds of each")


def several_names(name: str) -> Diagnostic:
    """Return the fault of a key that names several components, or has blanks around."""
    message = f"{shown(name)} is not the name of one component"
    return Diagnostic("invalid-value", message, "write a name without commas and outer blanks")


def untimed_partner(name: str, other: str, timed: Collection[str]) -> Diagnostic:
    """Return the fault of a component that runs with another one, which has no times."""
    help = did_you_mean(other, timed, "components with times are")
    return Diagnostic("missing-times", f"`{name}` runs with `{other}`, which has no times", help)


def too_many_components(count: int, most: int) -> Diagnostic:
    """Return the fault of more components with times than a search takes."""
    message = f"{count} components have times; at most {most}"
    return Diagnostic("invalid-value", message, "write `with: NAME` for components that run together with another")


def no_times(name: str, help: str) -> Diagnostic:
    """Return the fault of a component of a costs file without times."""
    return Diagnostic("missing-times", f"component `{name}` has no times", help)


def no_environments(key: str) -> Diagnostic:
    """Return the fault of times by environments in a file that does not state how many there are."""
    help = "add `environments:`, the number of all environments, at the top"
    return Diagnostic("missing-key", f"`{key}` needs the number of environments", help)


def uneven_measurement(name: str, size: int, multiple: int, sizes: str) -> Diagnostic:
    """Return the fault of a measured size that the parallel sizes do not divide."""
    message = f"`{name}` was measured on {size} accelerators, which is not a multiple of {multiple} ({sizes})"
    return Diagnostic("size-does-not-fit", message, f"measure a multiple of {multiple}")


def waits_in_circle(names: Sequence[str]) -> Diagnostic:
    """Return the fault of components that wait for each other; the first is also the last."""
    message = f"the components wait for each other: {' after '.join(f'`{name}`' for name in names)}"
    return Diagnostic("precedence-cycle", message, "remove one of these dependencies")


def no_bandwidth() -> Diagnostic:
    """Return the fault of a synchronization without the bandwidth of the levels."""
    help = "add `bandwidth: {node: 400e9, network: 50e9}`, in bytes per second"
    return Diagnostic("missing-key", "`sync` needs the bandwidth of the levels", help)


def sends_to_itself(name: str) -> Diagnostic:
    """Return the fault of a component that sends its weights to itself."""
    return Diagnostic("invalid-value", f"`{name}` sends weights to itself", "name two components")


def no_bytes() -> Diagnostic:
    """Return the fault of a synchronization of an unknown number of bytes."""
    return Diagnostic("missing-key", "`bytes` is missing", "write the bytes of all weights, e.g. 14e9")


def times_grow(name: str, fewer: tuple[int, float], more: tuple[int, float]) -> Diagnostic:
    """Return the warning of a component that takes longer on more accelerators; each pair is a size and its seconds."""
    message = f"`{name}` takes {more[1]:g} s on {more[0]} accelerators, but {fewer[1]:g} s on {fewer[0]}"
    help = "measure it again, or remove the number; sizes between the two count as slow as the smaller"
    return Diagnostic("times-grow", message, help, warning=True)


RUN_HELP = "write {cards: 64, step: 365}, or {actor: 32, rollout: 32, step: 189, wait: 28} with separate accelerators"


def no_runs() -> Diagnostic:
    """Return the fault of asynchronous costs without a measured run."""
    message = "`async` needs `runs`: the step of at least one run that was measured"
    return Diagnostic("no-runs", message, f"{RUN_HELP}, as items of `runs:`")


def no_waiting_run() -> Diagnostic:
    """Return the fault of lending without a run that tells how long the trainer waits."""
    message = "the rule `lend` needs a run on separate accelerators with `wait`, the seconds in which the trainer waits"
    return Diagnostic("no-runs", message, "measure a step without lending, and add it to `runs:`")


def no_async() -> Diagnostic:
    """Return the fault of measured runs without the terms of an asynchronous run."""
    message = "`runs` needs `async`: what the trainer waits for, and how far generation runs ahead"
    return Diagnostic("missing-key", message, "add `async: {rule: partial, staleness: 0.5, samples: 8192}`")


def no_rule() -> Diagnostic:
    """Return the fault of terms of an asynchronous run without their rule."""
    return Diagnostic("missing-key", "`rule` is missing", "add `rule: partial`, or the rule of your trainer")


def no_staleness(rule: str) -> Diagnostic:
    """Return the fault of a rule whose staleness is missing."""
    message = f"the rule `{rule}` needs `staleness`, the batches that generation may run ahead"
    return Diagnostic("missing-key", message, "add `staleness: 0.5`, or a list such as [0, 0.5, 1]")


def no_samples() -> Diagnostic:
    """Return the fault of partial rollouts of an unknown number of responses."""
    message = "the rule `partial` needs `samples`, the responses of a batch"
    return Diagnostic("missing-key", message, "add `samples:`, prompts times responses of each")


def half_of_lengths(stated: str, missing: str) -> Diagnostic:
    """Return the fault of one length of responses without the other."""
    return Diagnostic("missing-key", f"`{stated}` needs `{missing}`", "state both, or none")


def mean_exceeds(mean: float, longest: float) -> Diagnostic:
    """Return the fault of a mean length above the longest one."""
    message = f"`mean` is {mean:g}, but `max` is only {longest:g}"
    return Diagnostic("invalid-value", message, "write the mean length of a response, and the longest one")


def not_overlapped() -> Diagnostic:
    """Return the fault of costs with ``async`` whose mode says that iterations do not overlap."""
    return Diagnostic("invalid-value", "`mode` is sync, but `async` is stated", "write mode: async, or remove `async`")


def not_trainer_and_rollout(names: Sequence[str]) -> Diagnostic:
    """Return the fault of an asynchronous run of other than two components."""
    have = ", ".join(f"`{name}`" for name in names) or "none"
    message = f"an asynchronous run has two components, a trainer and a rollout; these costs have {have}"
    help = "add the seconds of others to those of these two, and write `with: NAME` for them"
    return Diagnostic("invalid-value", message, help)


def no_trainer(names: Sequence[str]) -> Diagnostic:
    """Return the fault of two components of which nothing tells which one trains."""
    message = f"nothing tells whether `{names[0]}` or `{names[1]}` is the trainer"
    return Diagnostic("missing-key", message, f"add `after: {{{names[1]}: [{names[0]}]}}`, the trainer first")


def no_step(missing: str) -> Diagnostic:
    """Return the fault of a run without its accelerators or its seconds."""
    return Diagnostic("missing-key", f"the run has no {missing}", RUN_HELP)


def one_part(stated: str, missing: str) -> Diagnostic:
    """Return the fault of a colocated run with the seconds of one part only."""
    message = f"the run has the seconds of `{stated}`, but not of `{missing}`"
    return Diagnostic("missing-key", message, "state the seconds of both, or of none")


def only_separate(key: str) -> Diagnostic:
    """Return the fault of a key of a run on separate accelerators in a colocated one."""
    message = f"`{key}` is of a run on separate accelerators, but `cards` says that this one is colocated"
    return Diagnostic("invalid-value", message, "remove `cards`, and write the accelerators of both components")


def not_accelerators(name: str, value: float) -> Diagnostic:
    """Return the fault of a run on separate accelerators whose size is no whole number."""
    message = f"`{name}` is {value:g}; without `cards`, it must be a number of accelerators"
    return Diagnostic("invalid-value", message, "add `cards:` if the run is colocated, and these are its seconds")


def parts_exceed_step(parts: float, step: float) -> Diagnostic:
    """Return the warning of a run whose parts take longer than its step."""
    message = f"the parts of the run take {parts:g} s, but its step only {step:g} s"
    help = "measure the run again, or state its step only: its parts overlap, or are of other steps"
    return Diagnostic("parts-exceed-step", message, help, warning=True)


def not_asynchronous() -> Diagnostic:
    """Return the fault of costs that state no asynchronous run."""
    message = "the costs state no asynchronous run"
    return Diagnostic("missing-key", message, "add `async:` and `runs:`, or use `rankplan.tune`")


def no_near_run(measured: Sequence[int], accelerators: int) -> Diagnostic:
    """Return the fault of runs on far fewer or more accelerators than there are."""
    sizes = ", ".join(str(size) for size in sorted(set(measured)))
    message = f"the runs on {sizes} accelerators tell nothing about {counted(accelerators, 'accelerator')}"
    help = "measure a run with between half and four times the accelerators of each component, or use --extrapolate"
    return Diagnostic("size-does-not-fit", message, help)


def no_logged_steps(file: str, forms: Sequence[str]) -> Diagnostic:
    """Return the fault of a log that has the times of no step."""
    message = "the log has no step with its times, as verl, slime, NeMo-RL and SkyRL print them"
    help = f"pass what the trainer prints to the console, with lines such as {'; '.join(forms)}"
    return Diagnostic("missing-times", message, help, file=file)


def no_logged_time(file: str, trainer: str, names: Sequence[str]) -> Diagnostic:
    """Return the fault of a log whose steps lack the time of a part."""
    message = f"the steps of this log of {trainer} have none of the times {', '.join(names)}"
    return Diagnostic("missing-times", message, "pass the whole log, with these timers", file=file)


def not_colocated(file: str, trainer: str, names: Sequence[str]) -> Diagnostic:
    """Return the fault of a log of a run on separate accelerators whose split is not stated."""
    message = f"this log of {trainer} is of a run on separate accelerators: it has {', '.join(names)}"
    return Diagnostic("missing-key", message, "pass the accelerators of trainer and rollout: --split 32:32", file=file)


def not_separate(file: str, trainer: str) -> Diagnostic:
    """Return the fault of a split that is stated for the log of a colocated run."""
    message = f"this log of {trainer} is of a colocated run, but --split says that it is not"
    return Diagnostic("invalid-value", message, "remove --split", file=file)


def colocated_times(names: Sequence[str], accelerators: int, separate: str) -> Diagnostic:
    """Return the warning of times that say little about components on accelerators of their own."""
    components = " and ".join(f"`{name}`" for name in names)
    message = (
        f"{components} were measured on {accelerators} accelerators only, as in a colocated run: "
        "such times say little about separate accelerators"
    )
    help = f"do not rely on the order of the placements; measure one step with {separate} accelerators"
    return Diagnostic("colocated-times", message, help, warning=True)


def no_seconds(name: str, accelerators: int, answer: Any) -> Diagnostic:
    """Return the fault of a cost function that returns something else than seconds."""
    message = f"the times of `{name}` on {accelerators} accelerators are {shown(answer)}; they must be seconds"
    help = "return a finite number of 0 or more, or None for a number of accelerators that cannot be used"
    return Diagnostic("invalid-value", message, help, path=f"components.{name}.seconds")


def nothing_measured(file: str) -> Diagnostic:
    """Return the fault of a config without a profile, if no costs are given."""
    help = "pass them with --costs, or add `profile_data:`"
    return Diagnostic("missing-times", "the config has no measured times", help, file=file)


def untimed_component(name: str) -> Diagnostic:
    """Return the fault of a component of the config without times."""
    help = "add its seconds to the costs, or `with: NAME` if it runs with another component"
    return Diagnostic("missing-times", f"component `{name}` of the config has no times", help)


def no_schedule(ways: str, names: str, accelerators: int) -> Diagnostic:
    """Return the fault of components of which no schedule fits on so many accelerators."""
    message = f"no {ways} schedule of {names} fits on {counted(accelerators, 'accelerator')}"
    return Diagnostic(
        "no-schedule", message, "allow more in `sharing`, measure smaller sizes, or use more accelerators"
    )


def indivisible(name: str, sizes: str, most: int, unit: int) -> Diagnostic:
    """Return the fault of a component whose parallel sizes divide no number of accelerators in this unit."""
    units = f" in units of {unit}" if unit > 1 else ""
    message = f"`{name}` with {sizes} fits on no number of accelerators up to {most}{units}"
    return Diagnostic("size-does-not-fit", message, "change its parallel sizes or `dp`, or use more accelerators")


def listed_indivisible(name: str, listed: str, accelerators: int) -> Diagnostic:
    """Return the fault of a component whose parallel sizes divide none of its listed sizes."""
    have = counted(accelerators, "accelerator")
    message = f"`{name}` fits on none of its `sizes` ({listed}) up to {have}"
    return Diagnostic("size-does-not-fit", message, "list a size that its parallel sizes divide")


def too_large(name: str, needed: float, capacity: float) -> Diagnostic:
    """Return the fault of a component that keeps more on an accelerator than it has."""
    message = f"`{name}` needs {needed:g} of the {capacity:g} memory of an accelerator"
    return Diagnostic("size-does-not-fit", message, "lower its memory, or measure it on more accelerators")


def too_far(name: str, measured: str, accelerators: int) -> Diagnostic:
    """Return the fault of measurements that are too far from any size to interpolate."""
    have = counted(accelerators, "accelerator")
    message = f"`{name}` was measured on {measured or 'none of these'} accelerators, too far from any size on {have}"
    help = "measure it on the accelerators that you have, or use --extrapolate"
    return Diagnostic("size-does-not-fit", message, help)


def too_many_units(accelerators: int, unit: int, most: int) -> Diagnostic:
    """Return the fault of more units of accelerators than a search takes."""
    message = f"{counted(accelerators, 'accelerator')} in units of {unit} are too many to search"
    help = f"set `unit` to {-(-accelerators // most)} or more, such as the accelerators of a node"
    return Diagnostic("invalid-value", message, help)


def not_two_components(names: Sequence[str]) -> Diagnostic:
    """Return the fault of lending among other than two components with times."""
    have = (
        f"{', '.join(f'`{name}`' for name in names)} have times" if len(names) > 1 else f"only `{names[0]}` has times"
    )
    message = f"lending is between a trainer and a rollout, but {have}"
    help = "add the times of others to these two, and write `with: NAME` for them"
    return Diagnostic("invalid-value", message, help)


def no_lender(names: Sequence[str]) -> Diagnostic:
    """Return the fault of costs that do not tell which component is the trainer."""
    message = f"nothing tells whether `{names[0]}` or `{names[1]}` lends its accelerators"
    return Diagnostic("missing-key", message, f"add `lend: {{from: {names[1]}, to: {names[0]}}}`, the trainer first")


def lends_to_itself(name: str) -> Diagnostic:
    """Return the fault of a component that lends accelerators to itself."""
    return Diagnostic("invalid-value", f"`{name}` lends accelerators to itself", "name two components")


def no_switch(trainer: str, rollout: str) -> Diagnostic:
    """Return the fault of lending whose switches take an unknown time."""
    message = f"the seconds that accelerators take to switch from `{trainer}` to `{rollout}` and back are missing"
    return Diagnostic("missing-key", message, "add `lend: {switch: 12.4}`, the seconds of both switches together")


def uneven_batch(samples: int, minibatches: int) -> Diagnostic:
    """Return the fault of a batch that cannot be divided into its minibatches."""
    message = f"a batch of {samples} samples cannot be divided into {minibatches} minibatches"
    return Diagnostic("size-does-not-fit", message, "change algorithm.n_minibatches, or data.rollout_batch_size")


def not_placed(name: str) -> Diagnostic:
    """Return the fault of a component of a profile that the config does not place."""
    message = f"`{name}` has no placement, so its largest size is unknown"
    return Diagnostic("unknown-component", message, f"place `{name}` on all accelerators")


def no_value(path: str, key: str, profile: str) -> Diagnostic:
    """Return the fault of a missing value on which the times of a profile depend."""
    message = f"`{path}` is missing: the times of `{profile}` depend on it"
    return Diagnostic("missing-key", message, f"add `{key}:`")


def no_profile_seconds(key: str, profile: str) -> Diagnostic:
    """Return the fault of a component without times in a profile."""
    help = f"add `{profile}.{key}`, the seconds of an iteration on all its accelerators"
    return Diagnostic("missing-times", f"component `{key.removesuffix('_cost')}` has no times", help)


def no_profile_points(key: str, value: Any, profile: str) -> Diagnostic:
    """Return the fault of times by environments that are no mapping."""
    message = f"`{profile}.{key}` is {shown(value)}; it must map environments of an instance to seconds"
    return Diagnostic("missing-times", message, "write e.g. {4: 0.61, 8: 1.23}")

"""RLinf's ``profile_data``: seconds of an iteration on all accelerators of a component, and RLinf's own scaling rules.

The rules are those of RLinf's auto placement. For reasoning tasks, the components run all in turn or all apart, and a
micro-batch is one of the ``rollout_batch_size`` groups. For embodied tasks it is one of the ``env_num`` environments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from rankplan.frozen import frozen
from rankplan.parallel import Parallel
from rankplan.plans.plan import Plan
from rankplan.read.text.reader import Reader
from rankplan.tuning.costs import ComponentCosts, Costs
from rankplan.tuning.faults import no_profile_points, no_profile_seconds, no_value, not_placed, uneven_batch
from rankplan.tuning.models import ProfileModel, plain, validated
from rankplan.tuning.times import Computed
from rankplan.words import as_int

PROFILE = "profile_data"
_ALMOST_FULL, _QUEUES_FROM = 0.9, 128
"""An engine with at least 128 running requests takes new ones at once only up to nine tenths of them."""


@frozen(slots=False)
class Batch:
    """The numbers that divide the work of a reasoning task."""

    groups: int
    group_size: int
    minibatches: int
    running: int


def training(seconds: float, world: int, dp: int, batch: Batch, accelerators: int) -> Callable[[int], float | None]:
    """Return the times of an actor or an inference component: sizes whose data size divides a minibatch.

    If none does, every multiple of a replica counts. Half the accelerators take less than twice the time, as RLinf
    assumes: the time is divided by one plus a tenth of the ratio of the sizes, which counts as 1 to 9.
    """
    each = world // dp
    samples = batch.groups * batch.group_size // batch.minibatches
    valid = {size * each for size in range(1, accelerators // each + 1) if samples % (size * batch.group_size) == 0}

    def times(size: int) -> float | None:
        if size == world:
            return seconds
        if size > world or size % each or (valid and size not in valid):
            return None
        ratio = world / size
        return seconds * ratio / (1 + min(0.9, max(ratio / 10, 0.1)))

    return times


def rollout(seconds: float, world: int, dp: int, batch: Batch) -> Callable[[int], float | None]:
    """Return the times of engines: as long as all requests run at once, more engines are no faster."""
    each = world // dp
    requests = math.ceil(batch.running * (_ALMOST_FULL if batch.running >= _QUEUES_FROM else 1))

    def times(size: int) -> float | None:
        if size == world:
            return seconds
        if size > world or size % each:
            return None
        enough = size // each * requests >= batch.groups * batch.group_size
        return seconds if enough else seconds * (world / size)

    return times


def environments(points: Mapping[int, float], count: int, each: int, *, even: bool) -> Callable[[int], float | None]:
    """Return the times of environments, or of engines that serve them, by environments of an instance.

    More environments than were measured on an instance do not count. RLinf fits a parabola through numbers that were
    not measured, which may say less than 0 seconds; this is the straight line between the nearest two.
    """

    def times(size: int) -> float | None:
        instances, rest = divmod(size, each)
        if rest or not 1 <= instances <= count or (even and count % instances):
            return None
        load = count // instances
        if load > max(points):
            return None
        below = max((one for one in points if one <= load), default=min(points))
        above = min(one for one in points if one >= load)
        if below >= load:
            return points[below]
        share = (load - below) / (above - below)
        return points[below] + share * (points[above] - points[below])

    return times


def costs_of(reading: Reader, planned: Plan, accelerators: int) -> Costs:
    """Return the costs in the ``profile_data`` of a config whose plan has the sizes of its components.

    Raises `PlacementError` with every fault.
    """
    return _Profile(reading.fork(), planned, accelerators).costs()


def batches_of(reading: Reader, planned: Plan) -> int | None:
    """Return the micro-batches of an iteration that a config of RLinf's states, ``None`` if it states none."""
    outer, key = ("data", "env_num") if "env" in planned else ("data", "rollout_batch_size")
    return as_int(reading.value(reading.section_at((outer,)), key, (outer,)))


class _Profile:
    def __init__(self, reading: Reader, planned: Plan, accelerators: int) -> None:
        self._reading, self._planned, self._accelerators = reading, planned, accelerators
        content = plain(reading, reading.section_at((PROFILE,)), (PROFILE,))
        self._content = {key: value for key, value in content.items() if value is not None}
        self._profile = validated(ProfileModel, self._content, (PROFILE,), reading.add_in_config)

    def costs(self) -> Costs:
        task = self._reading.value(self._reading.section_at(("runner",)), "task_type", ("runner",))
        found = self._embodied() if task == "embodied" or "env" in self._planned else self._reasoning()
        self._reading.finish()
        return found

    def _reasoning(self) -> Costs:
        groups = self._whole("data", "rollout_batch_size")
        size = self._whole("algorithm", "group_size")
        minibatches = self._whole("algorithm", "n_minibatches")
        running = self._whole("rollout", "max_running_requests")
        batch = Batch(groups, size, minibatches, running)
        if groups * size % minibatches:
            self._reading.add_in_config(("algorithm", "n_minibatches"), uneven_batch(groups * size, minibatches))
        algorithm = self._reading.section_at(("algorithm",))
        recompute = bool(self._reading.value(algorithm, "recompute_logprobs", ("algorithm",)))
        names = ["rollout", *(["inference"] if recompute else []), "actor"]
        components = {}
        for name in names:
            seconds = self._seconds(f"{name}_cost")
            if seconds is None or self._reading.faults:
                continue
            if (component := self._component(name if name in self._planned else "actor")) is not None:
                world, dp, parallel = component
                times = rollout(seconds, world, dp, batch)
                if name != "rollout":
                    times = training(seconds, world, dp, batch, self._accelerators)
                components[name] = ComponentCosts(Computed(times), parallel)
        after = {"inference": ["rollout"], "actor": ["inference"]} if recompute else {"actor": ["rollout"]}
        like = {"reward": "rollout"} if "reward" in self._planned else {}
        return Costs(
            components, groups, after=after, shapes=("disaggregated", "equal"), like=like, reader=self._reading
        )

    def _embodied(self) -> Costs:
        count = self._whole("data", "env_num")
        components = {}
        for name, key, even in (("env", "env_profile_data", True), ("rollout", "rollout_profile_data", False)):
            points = self._points(key)
            if points and (component := self._component(name)) is not None:
                world, dp, parallel = component
                times = environments(points, count, world // dp, even=even)
                components[name] = ComponentCosts(Computed(times), parallel)
        seconds = self._seconds("actor_cost")
        if seconds is not None and (component := self._component("actor")) is not None:
            world, dp, parallel = component
            times = training(seconds, world, dp, Batch(1, 1, 1, 1), self._accelerators)
            components["actor"] = ComponentCosts(Computed(times), parallel)
        return Costs(components, count, after={"rollout": ["env"], "actor": ["rollout"]}, reader=self._reading)

    def _component(self, name: str) -> tuple[int, int, Parallel] | None:
        """Return accelerators, data size and parallel sizes of a component; record a fault if it has no placement."""
        if name not in self._planned:
            self._reading.add((), not_placed(name))
            return None
        component = self._planned[name]
        world = len(component.rows.accelerators())
        parallel = component.parallel
        return world, max(world // parallel.dense, 1), parallel

    def _whole(self, outer: str, key: str) -> int:
        value = self._reading.value(self._reading.section_at((outer,)), key, (outer,))
        if value is None:
            self._reading.add_in_config((outer, key), no_value(f"{outer}.{key}", key, PROFILE))
            return 1
        return self._reading.number(value, (outer, key), 1) or 1

    def _seconds(self, key: str) -> float | None:
        if key in self._content:
            return getattr(self._profile, key, None)
        self._reading.add_in_config((PROFILE, key), no_profile_seconds(key, PROFILE))
        return None

    def _points(self, key: str) -> dict[int, float]:
        value = self._content.get(key)
        if isinstance(value, Mapping) and value:
            return getattr(self._profile, key, None) or {}
        self._reading.add_in_config((PROFILE, key), no_profile_points(key, value, PROFILE))
        return {}

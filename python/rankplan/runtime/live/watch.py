"""Watching a run from outside: which requests of the plan have come, what Ray made of them, and what went wrong."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rankplan_hook.names import METADATA
from rankplan_hook.pins import Slot, shown
from ray.exceptions import RayError

from rankplan.errors import ClusterError, Diagnostic, PlacementError, printable
from rankplan.runtime.live.binding import Binding
from rankplan.runtime.live.claims import Claims
from rankplan.runtime.live.compare import compare
from rankplan.runtime.live.faults import (
    imported_before,
    lost_node,
    no_job,
    not_requested_by_command,
    not_requested_by_program,
    unclaimed_group,
    wrong_place,
)
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.head import Head
from rankplan.runtime.ray.tables import GroupEntry, Tables
from rankplan.runtime.usage.look import look, short
from rankplan.runtime.usage.model import Compared, Difference, Live, LiveActor, LiveGroup
from rankplan.words import counted

_REFUSED = ("NO_RESOURCES", "INFEASIBLE")

Claimed: TypeAlias = dict[Slot, dict[str, Any]]


@dataclass(slots=True)
class Seen:
    """What a run has shown so far. Each fault is kept under what it is about, so that it is told once.

    ``claims`` are the last ones of the plan's requests, ``claimed`` the ids of all groups and actors that came by the
    hook, ``made`` those that Ray has had. ``live`` is what ran when its places were last compared, ``partial`` the
    same if not all ranks had come up in time, and ``seconds`` the time until all were.
    """

    faults: dict[object, Diagnostic] = field(default_factory=dict)
    claims: Claimed = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    detached: dict[str, str] = field(default_factory=dict)
    live: Live | None = None
    partial: Live | None = None
    seconds: float | None = None


class Watch:
    """The state of a run, read from the head's tables and its store. ``tell`` gets each fault and note at once.

    ``name`` is that of the plan. ``strict``: other accelerators than planned are a fault, too. ``up`` is called once
    all ranks are up, and when their places have changed.
    """

    def __init__(
        self,
        binding: Binding,
        head: Head,
        tell: Callable[[Diagnostic | str], None],
        timeout: float,
        *,
        name: str = "the plan",
        strict: bool = False,
        up: Callable[[], None] = lambda: None,
    ) -> None:
        self.seen = Seen()
        self._name = name
        self._binding = binding
        self._head = head
        self._tell = tell
        self._timeout = timeout
        self._strict = strict
        self._up = up
        self._started = self._told_life = time.monotonic()
        self._since: dict[object, float] = {}
        self._compared: object = None
        self._reported: tuple[Difference, ...] | None = None
        self._running = False
        self._jobs: set[str] = set()

    def look(self) -> None:
        """Read the tables, and tell what is new."""
        try:
            if time.monotonic() - self._told_life >= timeouts.BEAT:
                self._binding.own(self._head)
                self._told_life = time.monotonic()
            tables = self._head.tables()
            values = self._head.values(f"{self._binding.run}/")
        except (ClusterError, RayError) as error:
            self._note("head", f"{error}; the program goes on")
            return
        self._read(values)
        jobs = {job.job_id for job in tables.jobs if job.metadata.get(METADATA) == self._binding.run}
        self._jobs |= jobs
        self._running = any(job.job_id in jobs and not job.ended for job in tables.jobs)
        self.seen.made.update(group.group_id for group in tables.groups)
        self.seen.made.update(actor.actor_id for actor in tables.actors)
        groups = {group.group_id: group for group in tables.groups if group.job_id in jobs}
        self._check_pinned(groups)
        self._check_nodes(tables)
        self._check_waiting(tables, groups)
        self._compare(tables)

    def finish(self, code: int) -> bool:
        """Look for the last time, once the command has ended: what succeeded must have asked for the whole plan.

        Return whether its jobs have ended, too: one that was submitted may go on.
        """
        self.look()
        deadline = time.monotonic() + timeouts.JOBS
        while self._running and time.monotonic() < deadline:
            time.sleep(timeouts.TICK)
            self.look()
        with suppress(ClusterError, RayError):  # some may have come and gone between two looks
            self.seen.made.update(group.group_id for group in self._head.groups())
            self.seen.made.update(actor_id for job in self._jobs for actor_id in self._head.actor_ids(job))
        self._check_came(code)
        return not self._running

    def _check_came(self, code: int) -> None:
        if code or self.seen.faults:
            return
        if not self._jobs:
            self._fault("joined", no_job(self._head.address))
        elif missing := self._missing():
            with suppress(ClusterError, RayError):
                for group in self._head.groups():  # one may have come and gone between two looks
                    if group.job_id in self._jobs and self._is_unclaimed(group):
                        self._report_unclaimed(group)
            if self.seen.faults:
                return
            self._fault("missing", not_requested_by_command(missing))

    def check_all_came(self, job: str, earlier: Collection[str]) -> None:
        """Raise `PlacementError` if requests of the plan have not come.

        ``job`` is that of the program, and ``earlier`` are the groups that it had before. Groups that it has now, and
        that are not bound, came from a function that was imported before and that nothing could exchange.
        """
        self._read(self._head.values(f"{self._binding.run}/claim/"))
        if (missing := self._missing()) is None:
            return
        faults = [not_requested_by_program(missing)]
        for group in self._head.tables().groups:
            if group.job_id == job and group.group_id not in earlier and self._is_unclaimed(group):
                faults.append(imported_before(_named(group)))
        raise PlacementError(faults)

    @property
    def pinned(self) -> tuple[int, int]:
        """The number of requests of the plan that Ray has had as groups or actors, and of all."""
        slots = list(self._binding.pins.all_slots())
        claims = [self.seen.claims.get(slot, {}) for slot in slots]
        return sum(_taker(claim) in self.seen.made for claim in claims), len(slots)

    def _missing(self) -> str | None:
        """Return the requests of the plan that have not come, if any."""
        claims = self.seen.claims
        if all(slot in claims for slot in self._binding.pins.all_slots()):
            return None
        return self._binding.pins.left(claims.__contains__)

    def _read(self, values: Mapping[str, bytes]) -> None:
        """Read the claims and the refused requests. A claim of a later generation replaces an earlier one."""
        newest: dict[Slot, int] = {}
        for key, value in values.items():
            _, kind, *names = key.split("/")
            if kind not in ("claim", "fault"):
                continue
            try:
                content = json.loads(value)
            except ValueError:
                continue
            if kind == "fault":
                self._fault(key, _refusal(content))
                continue
            if "void" in content:
                continue
            self.seen.claimed.add(_taker(content))
            if note := content.get("note"):
                self._note(note, printable(str(note)))
            if names[0].startswith("spare"):
                continue
            slot, generation = Slot.read(names[0]), int(names[1])
            if generation >= newest.get(slot, 0):
                newest[slot] = generation
                self.seen.claims[slot] = content

    def _check_pinned(self, groups: Mapping[str, GroupEntry]) -> None:
        """Report the groups with accelerators that nobody has claimed."""
        for group in groups.values():
            if group.detached:
                self.seen.detached[group.group_id] = group.name
            if self._is_unclaimed(group) and self._lasts(("unclaimed", group.group_id), 1.0):
                self._report_unclaimed(group)

    def _is_unclaimed(self, group: GroupEntry) -> bool:
        return any(self._sizes(group)) and group.group_id not in self.seen.claimed

    def _report_unclaimed(self, group: GroupEntry) -> None:
        self._fault(("unclaimed", group.group_id), unclaimed_group(_named(group)))

    def _check_nodes(self, tables: Tables) -> None:
        """Report the nodes of the plan that have left."""
        alive = {node.node_id for node in tables.nodes if node.alive}
        for node in sorted({node for request in self._binding.pins.requests for node in request.nodes}):
            if self._binding.nodes.ids[node] in alive:
                continue
            texts = []
            for name, component in self._binding.plan.items():
                lost = sum(row.cluster_node_rank == node for row in component)
                if lost:
                    texts.append(f"{counted(lost, 'rank')} of {name}")
            self._fault(("lost", node), lost_node(node, self._binding.name(node), ", ".join(texts)))

    def _check_waiting(self, tables: Tables, groups: Mapping[str, GroupEntry]) -> None:
        """Tell which bundles wait for which node, once a group has waited for a while."""
        slots = {content.get("group"): slot for slot, content in self.seen.claims.items()}
        for group_id, group in groups.items():
            key = ("waits", group_id)
            waits = group.state == "PENDING" and group.scheduling in _REFUSED and group_id in slots
            if not waits:
                self._since.pop(key, None)
            elif self._lasts(key, timeouts.WAITING):
                self._note(key, self._why_waiting(tables, group, slots[group_id]))

    def _why_waiting(self, tables: Tables, group: GroupEntry, slot: Slot) -> str:
        """Return which nodes a group waits for, and which actors hold accelerators there."""
        needed: Counter[int] = Counter()
        for node, size in zip(self._binding.pins.nodes(slot), self._sizes(group), strict=True):
            needed[node] += int(size)
        texts = []
        for node, count in needed.items():
            node_id = self._binding.nodes.ids[node]
            free = sum(tables.free.get(node_id, {}).get(name, 0) for name in self._binding.pins.resources)
            if free >= count:
                continue
            text = f"for {count} accelerators of {self._binding.name(node)}, which has {free:g} free"
            holders = {actor.class_name for actor in tables.actors if actor.node_id == node_id and any(actor.holds)}
            if holders:
                text += f"; held there by {', '.join(sorted(map(shown, holders))[:4])}"
            texts.append(text)
        where = ", and ".join(texts) or f"for its nodes ({group.scheduling})"
        return f"{_named(group)} waits {where}"

    def _compare(self, tables: Tables) -> None:
        """Compare the places of all ranks with the plan once all groups have come, and when something has changed."""
        claims = self.seen.claims
        if not claims:
            return
        is_late = self.seen.seconds is None and self._lasts("claimed", self._timeout)
        missing = self._missing()
        if missing is not None:
            if is_late:
                self._note("timeout", f"after {self._timeout:g} s, the command has not asked for {missing}")
            return
        job = Counter(str(content.get("job")) for content in claims.values()).most_common(1)[0][0]
        actors = [(actor.actor_id, actor.node_id, actor.bundles) for actor in tables.actors if actor.job_id == job]
        groups = [(group.group_id, group.state) for group in tables.groups if group.job_id == job]
        if not actors or (actors, groups) == self._compared:
            return
        live = look(tables, self._head.address, self._binding.plan.inventory)
        live = compare(live, self._binding.plan, self._name, short(job), self._claims(live))
        compared = live.compared
        if compared is None:
            return
        if compared.up >= compared.ranks:
            is_final = self._is_final(compared)
            if is_final:
                self._compared = (actors, groups)
            self._accept(live, compared, report=is_final)
        elif is_late:
            self._note("timeout", f"after {self._timeout:g} s, {compared.up} of {compared.ranks} ranks are up")
            self.seen.partial = live

    def _is_final(self, compared: Compared) -> bool:
        """Whether a later look will not tell more: the head hears later what is free on a node than who is there."""
        return not compared.untold or self._lasts("untold", timeouts.FREE)

    def _accept(self, live: Live, compared: Compared, *, report: bool) -> None:
        """Take a look in which all ranks are up, and tell what is not where the plan has it.

        A look that tells less than the one before is left out: its actors are ending, and release what they held.
        """
        before = self.seen.live
        if before is not None and _told(compared) < _told(before.compared):
            return
        self.seen.live = live
        self.seen.seconds = self.seen.seconds or time.monotonic() - self._started
        for difference in live.differences:
            is_wrong_card = difference.kind == "accelerators" and self._strict
            if difference.kind == "node" or is_wrong_card:
                fault = wrong_place(difference.component, difference.ranks, difference.planned, difference.found)
                self._fault(("wrong", difference), fault)
        if report and self._reported != live.differences:
            self._reported = live.differences
            self._up()

    def _claims(self, live: Live) -> Claims:
        """Return what took each request and still exists, as the hook has written it down."""
        by_id = {actor.actor_id: actor for actor in live.actors}
        takers: dict[int, LiveGroup | list[LiveActor]] = {}
        lone_actors: dict[int, list[LiveActor]] = {}
        for slot, content in sorted(self.seen.claims.items()):
            if slot.entry < 0:
                group = live.group.get(str(content.get("group")))
                if group is not None:
                    takers[slot.number] = group
            else:
                actor = by_id.get(str(content.get("actor")))
                if actor is not None:
                    lone_actors.setdefault(slot.number, []).append(actor)
        for number, actors in lone_actors.items():
            if len(actors) == len(self._binding.plan.requests[number].accelerators):
                takers[number] = actors
        return takers

    def _sizes(self, group: GroupEntry) -> list[float]:
        names = self._binding.pins.resources
        return [sum(bundle.get(name, 0) for name in names) for bundle in group.bundles]

    def _lasts(self, key: object, seconds: float) -> bool:
        """Whether something has been seen for this long."""
        return time.monotonic() - self._since.setdefault(key, time.monotonic()) >= seconds

    def _fault(self, key: object, fault: Diagnostic) -> None:
        if key not in self.seen.faults:
            self.seen.faults[key] = fault
            self._tell(fault)

    def _note(self, key: object, text: str) -> None:
        if ("told", key) not in self._since:
            self._since["told", key] = 0.0
            self._tell(text)


def _refusal(content: Mapping[str, Any]) -> Diagnostic:
    """Return a refused request as the hook has written it down."""
    texts = {name: printable(str(content.get(name) or "")) for name in ("code", "message", "help", "file")}
    line = content.get("line")
    return Diagnostic(
        texts["code"],
        texts["message"],
        texts["help"] or None,
        file=texts["file"] or None,
        line=line if isinstance(line, int) else None,
    )


def _taker(claim: Mapping[str, Any]) -> str:
    """Return the id of the group or the actor that has taken a request, empty before Ray has made it."""
    return str(claim.get("group") or claim.get("actor") or "")


def _told(compared: Compared | None) -> int:
    """Return the number of ranks of which Ray tells all accelerators."""
    return 0 if compared is None else compared.ranks - compared.untold


def _named(group: GroupEntry) -> str:
    return f"placement group `{shown(group.name)}`" if group.name else f"placement group {group.group_id[:8]}"

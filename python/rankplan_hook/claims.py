"""Who has taken which request of the plan, over all processes of a run: entries of a store that are never removed."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rankplan_hook.pins import Asked, NotPlanned, Pins, Slot

AGAIN = 0.25
"""Seconds between two looks for a group that is about to be removed."""

ATTEMPTS = 12
"""Looks before a request is refused: Ray removes the groups of a process that has ended within two seconds."""

_SPARE = "spare"
_KINDS = ("group", "actor")


class Store(Protocol):
    """Where claims are kept, and what Ray knows: its key-value store and its tables."""

    def put(self, key: str, value: bytes, *, overwrite: bool) -> bool:
        """Write a value; return whether that was done."""
        ...

    def get(self, key: str) -> bytes | None: ...

    def keys(self, prefix: str) -> list[str]: ...

    def living(self, kind: str) -> Collection[str]:
        """Return the ids of the groups that are not removed, or of the actors that are not dead."""
        ...

    def nodes(self) -> Mapping[str, tuple[bool, str]]:
        """Return whether each node is alive, and its address, by Ray's id."""
        ...


@dataclass(frozen=True)
class Claim:
    """A request of the plan that this process has taken. ``nodes`` has the id of the node of each bundle, if fixed."""

    key: str
    slot: Slot | None
    nodes: tuple[str, ...]
    content: Mapping[str, Any]


class Claims:
    """The claims of a run, seen from one process.

    A claim is the key ``RUN/claim/SLOT/GENERATION``. It is free again once its group is removed; then the next
    generation is claimed. So two processes never free the same slot twice.
    """

    def __init__(self, pins: Pins, store: Store, run: str, job: str) -> None:
        self.pins = pins
        self._store = store
        self._prefix = f"{run}/claim/"
        self._job = job
        self._lock = threading.RLock()
        self._newest: dict[str, int] = {}
        self._seen: set[str] = set()
        self._own: dict[str, str | None] = {}
        self._contents: dict[str, Mapping[str, Any]] = {}
        self._removed: set[str] = set()
        self._held: dict[str, Slot] = {}
        self._slots: set[Slot] = set()
        self._classes: dict[int, str] = {}
        self._living: dict[str, Collection[str]] = {}

    def take(self, asked: Asked) -> Claim:
        """Claim the first request of the plan that a request of the program suits. Raises `NotPlanned`."""
        with self._lock:
            looks = 0
            self._living.clear()
            if not self._seen:
                self._look()
            while True:
                taken = functools.partial(self._taken, thorough=looks > 0)
                slot = self.pins.find(asked, taken, self._classes.get)
                if slot is not None:
                    if (claim := self._claim(slot, asked)) is not None:
                        return claim
                    self._look()  # another process has been faster
                elif self._may_be_freed(asked) and looks < ATTEMPTS:
                    if looks:
                        time.sleep(AGAIN)
                    self._look()
                    looks += 1
                else:
                    return self._spare(asked)

    def made(self, claim: Claim, kind: str, id: str) -> None:
        """Note the group or the actor of a claim: ``kind`` is ``"group"`` or ``"actor"``."""
        with self._lock:
            self._own[claim.key] = id
            if claim.slot is not None:
                self._held[id] = claim.slot
                self._slots.add(claim.slot)
            self._write(claim, **{kind: id})

    def void(self, claim: Claim) -> None:
        """Give a claim back: Ray has refused the request."""
        with self._lock:
            self._own[claim.key] = None
            self._write(claim, void=True)

    def removed(self, id: str) -> None:
        """Note that this process has removed a group, or ended an actor."""
        with self._lock:
            self._removed.add(id)
            if id in self._held:
                self._slots.discard(self._held.pop(id))

    def _look(self) -> None:
        """Learn which slots have claims. A stale answer does no harm: a claim that exists cannot be written again."""
        self._living.clear()
        for key in set(self._store.keys(self._prefix)) - self._seen:
            self._note(key)

    def _note(self, key: str) -> None:
        self._seen.add(key)
        slot, _, generation = key[len(self._prefix) :].rpartition("/")
        self._newest[slot] = max(int(generation), self._newest.get(slot, 0))

    def _taken(self, slot: Slot, *, thorough: bool) -> bool:
        """Whether a slot has a claim whose group exists, or is about to. ``thorough``: others may have removed own."""
        if not thorough and slot in self._slots:
            return True
        generation = self._newest.get(str(slot))
        return generation is not None and not self._over(f"{self._prefix}{slot}/{generation}", thorough=thorough)

    def _over(self, key: str, *, thorough: bool) -> bool:
        if key in self._own and not thorough:
            return (id := self._own[key]) is None or id in self._removed
        content = self._content(key)
        kind = next((kind for kind in _KINDS if kind in content), None)
        return "void" in content or (kind is not None and not self._lives(kind, content[kind]))

    def _content(self, key: str) -> Mapping[str, Any]:
        """Return a claim of any process; it is final once it names what it is for."""
        if key not in self._contents:
            content = json.loads(self._store.get(key) or b"{}")
            if not content.keys() & {*_KINDS, "void"}:
                return dict(content)
            self._contents[key] = content
        return self._contents[key]

    def _lives(self, kind: str, id: str) -> bool:
        if kind not in self._living:
            self._living[kind] = self._store.living(kind)
        return id in self._living[kind]

    def _may_be_freed(self, asked: Asked) -> bool:
        """Whether the request would suit, if a claim were free."""
        return self.pins.find(asked, lambda slot: False, lambda index: None) is not None

    def _claim(self, slot: Slot, asked: Asked) -> Claim | None:
        """Write the claim of a slot; ``None`` if another process was faster."""
        if (fault := self.pins.contradiction(slot, asked)) is not None:
            raise fault
        numbers = self.pins.nodes(slot)
        self._check_alive(numbers)
        key = f"{self._prefix}{slot}/{self._newest.get(str(slot), -1) + 1}"
        claim = Claim(key, slot, tuple(self.pins.ids[number] for number in numbers), self._described(slot, asked))
        if not self._put(claim):
            return None
        if asked.actor is not None:
            self._classes[slot.number] = asked.actor
        return claim

    def _described(self, slot: Slot, asked: Asked) -> dict[str, str]:
        """Return what a claim says from the beginning: its job, and a note on CPUs that are not as planned."""
        note = self.pins.other_cpus(slot, asked)
        return {"job": self._job} if note is None else {"job": self._job, "note": note}

    def _spare(self, asked: Asked) -> Claim:
        """Claim accelerators that the plan leaves free for a request that it lacks."""
        refusal = self.pins.refusal(asked, lambda slot: self._taken(slot, thorough=True), self._classes.get)
        number = 0
        while self.pins.lenient:
            self._look()
            others = [
                self._content(key).get("bundles", ())
                for key in sorted(self._seen)
                if key.startswith(f"{self._prefix}{_SPARE}") and not self._over(key, thorough=True)
            ]
            if (found := self.pins.spare(asked, others)) is None:
                break
            ids = tuple(self.pins.ids[node] for node in found)
            bundles = list(zip(found, asked.sizes))
            while f"{self._prefix}{_SPARE}{number}/0" in self._seen:
                number += 1
            claim = Claim(f"{self._prefix}{_SPARE}{number}/0", None, ids, {"job": self._job, "bundles": bundles})
            self._check_alive(found)
            if self._put(claim):
                return claim
        raise refusal

    def _put(self, claim: Claim) -> bool:
        if not self._store.put(claim.key, json.dumps(claim.content).encode(), overwrite=False):
            return False
        self._own[claim.key] = ""
        self._note(claim.key)
        return True

    def _write(self, claim: Claim, **more: Any) -> None:
        self._store.put(claim.key, json.dumps({**claim.content, **more}).encode(), overwrite=True)

    def _check_alive(self, numbers: Collection[int]) -> None:
        """Raise `NotPlanned` if one of these nodes has left."""
        known = self._store.nodes() if numbers else {}
        for number in sorted(set(numbers)):
            alive, address = known.get(self.pins.ids[number], (False, ""))
            if not alive:
                name = f"node {number} ({address})" if address else f"node {number}"
                help = f"start again; repair a saved plan first: `rankplan replan PLAN --without node-{number}`"
                raise NotPlanned("node-lost", f"{name} of the plan has left the cluster", help)

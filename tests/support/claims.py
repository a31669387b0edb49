"""A store of claims in this process, and what Ray would know, for tests without Ray."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rankplan import Request
from rankplan_hook.claims import Claim, Claims
from rankplan_hook.pins import Asked, Pins, Planned


class Memory:
    """The key-value store of a head, its groups and its nodes."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.values: dict[str, bytes] = {}
        self.groups: set[str] = set()
        self.alive = dict.fromkeys(ids, True)

    def put(self, key: str, value: bytes, *, overwrite: bool) -> bool:
        if key in self.values and not overwrite:
            return False
        self.values[key] = value
        return True

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    def keys(self, prefix: str) -> list[str]:
        return [key for key in self.values if key.startswith(prefix)]

    def living(self, kind: str) -> Collection[str]:
        return self.groups

    def nodes(self) -> Mapping[str, tuple[bool, str]]:
        return {node: (alive, f"10.0.0.{index}") for index, (node, alive) in enumerate(self.alive.items())}


class Process:
    """A process of the program, which asks for groups."""

    def __init__(self, pins: Pins, store: Memory) -> None:
        self.store = store
        self.claims = Claims(pins, store, "run", "01")

    def ask(self, asked: Asked) -> tuple[Claim, str]:
        """Ask for a group as the hook does; return the claim, and the group's id."""
        claim = self.claims.take(asked)
        group = f"group-{len(self.store.values)}-{claim.key}"
        self.store.groups.add(group)
        self.claims.made(claim, "group" if asked.actor is None else "actor", group)
        return claim, group


def pins_of(
    requests: Sequence[Request],
    free: Sequence[int] = (),
    *,
    lenient: bool = False,
    cpus: Sequence[float | None] = (),
) -> Pins:
    """The pins of the requests of a plan, on nodes with made-up ids and these CPUs."""
    known = []
    for one in requests:
        of_bundles = one.cpus if any(each is not None for each in one.cpus) else ()
        known.append(
            Planned(one.component, one.name, one.accelerators, one.nodes, one.strategy, one.optional, of_bundles)
        )
    count = max((node for one in requests for node in one.nodes), default=len(free) - 1) + 1
    ids = tuple(f"id{node}" for node in range(count))
    return Pins(tuple(known), ids, (*free, *[0] * count)[:count], ("GPU",), lenient, tuple(cpus))


def asked(request: Request, name: str = "", actor: str = "Actor") -> list[Asked]:
    """What a program asks for a request of its plan."""
    if request.strategy is None:
        return [Asked((size,), actor=actor) for size in request.accelerators]
    return [Asked(request.accelerators, name, request.strategy)]

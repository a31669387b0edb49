"""Tables of a head, made up or from recorded runs, without Ray."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rankplan.runtime.ray.tables import ActorEntry, GroupEntry, JobEntry, NodeEntry, Tables

MINE, OTHER = "02000000", "09000000"


class Cluster:
    """Nodes with accelerators, to which groups and actors are added; ``tables`` has what a head would tell."""

    def __init__(self, nodes: Iterable[tuple[str, int]], ids: Sequence[str] = ()) -> None:
        """Start with addresses and their accelerators. ``ids``: addresses in the order of their Ray node ids."""
        found = list(nodes)
        order = [*ids, *(address for address, _ in found if address not in ids)]
        self.ids = {address: f"{order.index(address):056x}" for address, _ in found}
        self._nodes = [
            NodeEntry(self.ids[address], address, f"host-{address}", True, {"GPU": count} if count else {}, {})
            for address, count in found
        ]
        self._free: dict[str, dict[str, float]] = {self.ids[address]: {"GPU": float(count)} for address, count in found}
        self._groups: list[GroupEntry] = []
        self._actors: list[ActorEntry] = []

    def group(
        self,
        nodes: Sequence[str | None],
        sizes: Sequence[int],
        *,
        name: str = "",
        job: str = MINE,
        strategy: str = "PACK",
        state: str = "CREATED",
        scheduling: str = "FINISHED",
    ) -> str:
        """Add a group with bundles on these addresses; return its id."""
        group = f"{len(self._groups):032x}{job[:4]}"
        on = tuple("" if address is None else self.ids[address] for address in nodes)
        bundles: tuple[Mapping[str, float], ...] = tuple({"CPU": 1.0, "GPU": float(size)} for size in sizes)
        asked = len(self._groups)
        self._groups.append(GroupEntry(group, name, job, state, strategy, False, bundles, on, scheduling, asked))
        if state == "CREATED":
            for index, (node, size) in enumerate(zip(on, sizes, strict=True)):
                self._free[node]["GPU"] -= size
                self._free[node][f"GPU_group_{index}_{group}"] = float(size)
        return group

    def actor(
        self,
        address: str | None,
        held: Mapping[int, float] | Sequence[int] = (),
        *,
        group: str | None = None,
        bundle: int | None = None,
        job: str = MINE,
        class_name: str = "Worker",
        name: str = "",
        wants: float = 0.0,
    ) -> None:
        """Add an actor that holds accelerators, or shares of them, alone or in a bundle. No address: it waits."""
        amounts = dict(held) if isinstance(held, Mapping) else dict.fromkeys(held, 1.0)
        node = "" if address is None else self.ids[address]
        number = len(self._actors)
        entry = ActorEntry(
            actor_id=f"{number:032x}",
            class_name=class_name,
            name=name,
            job_id=job,
            pid=1000 + number if node else 0,
            node_id=node,
            state="ALIVE" if node else "PENDING_CREATION",
            detached=False,
            requires={"GPU": wants or sum(amounts.values())},
            holds={"GPU": amounts} if amounts else {},
            group_id=group,
            bundles=() if bundle is None else (bundle,),
            started=number,
        )
        self._actors.append(entry)
        if node:
            resource = "GPU" if group is None else f"GPU_group_{bundle}_{group}"
            self._free[node][resource] = round(self._free[node].get(resource, 0.0) - sum(amounts.values()), 4)

    def task(self, address: str, amount: float, group: str | None = None, bundle: int = 0) -> None:
        """Let a task hold an amount: the head tells only that it is not free."""
        self._free[self.ids[address]]["GPU" if group is None else f"GPU_group_{bundle}_{group}"] -= amount

    def tables(self) -> Tables:
        """Return the tables."""
        jobs = tuple(JobEntry(job, False, "python train.py", "10.0.0.1", 7) for job in (MINE, OTHER))
        return Tables(tuple(self._nodes), tuple(self._groups), tuple(self._actors), jobs, self._free)


def recorded(line: dict[str, Any], run: dict[str, Any], actors: Sequence[float] = (1.0,)) -> Cluster:
    """Return the cluster of a recorded question during a recorded run.

    Each bundle has ``actors`` with these shares of its accelerators.
    """
    nodes = [(address, count) for address, count, _ in line["cluster"]["joined"]]
    by_id = line.get("order") == "id"
    ids = list(dict.fromkeys(node for group in line["groups"] for node in group["nodes"])) if by_id else []
    found = Cluster(nodes, ids)
    for address, held in line["cluster"]["held"]:
        found.actor(address, held, job=OTHER)
    for asked in run["requests"]:
        sizes = [int(bundle["GPU"]) for times, bundle in asked["bundles"] for _ in range(times)]
        group = None
        if asked["strategy"] is not None:
            group = found.group(asked["nodes"], sizes, name=asked["name"], strategy=asked["strategy"])
        for index, (address, held) in enumerate(zip(asked["nodes"], asked["gpus"], strict=True)):
            for share in actors:
                shares = dict.fromkeys(held, share)
                found.actor(address, shares, group=group, bundle=None if group is None else index)
    return found

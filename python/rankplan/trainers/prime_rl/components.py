"""The components of a job of prime-rl: servers that generate, and processes without accelerators."""

from __future__ import annotations

from typing import NamedTuple

from rankplan import Parallel
from rankplan.sdk import Placer, Taken, Where


class Servers(NamedTuple):
    """The servers of one component.

    A process has ``each`` accelerators: as many tensor groups as ``tensor`` divides. ``group`` tensor groups are one
    engine of vLLM, which divide its requests, and its experts if they are shared.
    """

    name: str
    each: int
    tensor: int
    group: int
    shares_experts: bool


class Placed(NamedTuple):
    """The accelerators of the trainer, and the node of the orchestrator; ``None``: the job starts none."""

    trainer: Taken
    orchestrator: int | None


def place_servers(placer: Placer, servers: Servers, taken: Taken, at: Where) -> None:
    """Place servers on these accelerators, if there are any."""
    experts = servers.tensor * servers.group if servers.shares_experts else 1
    sizes = Parallel(tp=servers.tensor, ep=experts, order=Parallel.ENGINE_ORDER)
    if sizes.tp == sizes.ep == 1:
        sizes = Parallel()
    engines = servers.group * servers.tensor // servers.each
    facts = {"experts": experts}
    placer.component(servers.name, taken, at, servers.each, sizes=sizes, engines=engines, facts=facts)

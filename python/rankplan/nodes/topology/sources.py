"""The sources of labels: the levels of each source, outermost first, and labels from the reports of a node."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rankplan.frozen import frozen

CLIQUE = "nvidia.com/gpu.clique"
"""The label of the GPU operator: ``<ClusterUUID>.<CliqueId>``. NVML's report has the same key."""

HOSTNAME = "kubernetes.io/hostname"
"""The label that Kubernetes gives each node: it stands for the node itself."""

NVLINK_DOMAIN = "nvlink_domain"
"""The label for NeMo-RL's resource ``nvlink_domain_<uuid>``."""

SWITCH, BLOCK = "slurm/switch-", "slurm/block-"
"""Slurm's switches and blocks, followed by a number: 0 is the nearest to the nodes."""


@frozen
class Source:
    """Keys of labels that one tool writes, outermost first: fixed ones, or a prefix followed by a number.

    Of numbered keys, the highest number is the outermost.
    """

    keys: tuple[str, ...] = ()
    numbered: str | None = None

    def among(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return the keys of this source among these, outermost first."""
        present = set(keys)
        found = [key for key in self.keys if key in present]
        if self.numbered is not None:
            numbers = [key.removeprefix(self.numbered) for key in present if key.startswith(self.numbered)]
            known = sorted((int(text) for text in numbers if re.fullmatch("0|[1-9][0-9]{0,3}", text)), reverse=True)
            found += [f"{self.numbered}{number}" for number in known]
        return tuple(found)


_OLD_TOPOGRAPH = "network.topology.nvidia.com/"

FAMILIES: tuple[tuple[Source, ...], ...] = (
    # where the nodes are
    (
        Source(("topology.kubernetes.io/region", "topology.kubernetes.io/zone")),
        Source(("ray.io/region", "ray.io/availability-zone")),
    ),
    # the switches between them
    (
        Source(numbered="fabric.topograph.run/tier-"),
        Source(tuple(_OLD_TOPOGRAPH + name for name in ("datacenter", "core", "spine", "leaf", "block"))),
        Source(numbered=SWITCH),
    ),
    # the accelerators that reach each other without the network
    (
        Source(("accelerator.topograph.run/domain", "accelerator.topograph.run/sub-domain")),
        Source((_OLD_TOPOGRAPH + "accelerator",)),
        Source((CLIQUE,)),
        Source((NVLINK_DOMAIN,)),
        Source(numbered=BLOCK),
    ),
)
"""The sources, outermost first. Sources of one family describe the same thing: one of them counts."""


def detect(nodes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the levels of nodes, outermost first, given the number of nodes that have each label.

    Of sources that describe the same thing, the one that labels the most nodes counts.
    """
    levels: list[str] = []
    for family in FAMILIES:
        found = [keys for source in family if (keys := source.among(nodes))]
        levels += max(found, key=lambda keys: max(nodes[key] for key in keys), default=())
    return tuple(levels)


def known_key(key: str) -> bool:
    """Return whether a label tells where a node is."""
    return any(source.among([key]) for family in FAMILIES for source in family)


def nemo_rl_labels(resources: Mapping[str, float]) -> dict[str, str]:
    """Return the labels of a node with NeMo-RL's resources ``nvlink_domain_<uuid>`` and ``topo_rank``."""
    prefix = f"{NVLINK_DOMAIN}_"
    domain = next((name.removeprefix(prefix) for name in sorted(resources) if name.startswith(prefix)), None)
    labels = {} if domain is None else {NVLINK_DOMAIN: domain}
    if "topo_rank" in resources:
        labels["topo_rank"] = f"{resources['topo_rank']:.0f}"
    return labels


def slurm_labels(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a node from ``SLURM_TOPOLOGY_ADDR`` and ``SLURM_TOPOLOGY_ADDR_PATTERN``.

    The address ``root.cell1.leaf4.node7`` with the pattern ``switch.switch.switch.node`` gives three switches.
    """
    kinds = environment.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    # the name of the node comes last, and may contain dots
    names = environment.get("SLURM_TOPOLOGY_ADDR", "").split(".", len(kinds) - 1)
    labels: dict[str, str] = {}
    if kinds[-1:] != ["node"] or len(names) != len(kinds):
        return labels
    prefixes = {"switch": SWITCH, "block": BLOCK}
    counts: Counter[str] = Counter()
    for kind, name in zip(reversed(kinds[:-1]), reversed(names[:-1]), strict=True):
        if kind in prefixes and name:
            labels[f"{prefixes[kind]}{counts[kind]}"] = name
            counts[kind] += 1
    return labels


FABRIC_COMPLETED = 3


class Fabric(Protocol):
    """What NVML reports of a GPU, see `rankplan.hardware.nvml.Fabric`."""

    @property
    def state(self) -> int: ...
    @property
    def cluster_uuid(self) -> bytes: ...
    @property
    def clique_id(self) -> int: ...


def fabric_labels(gpus: Sequence[Fabric]) -> dict[str, str]:
    """Return the label of a node from NVML's report of its GPUs; empty if they have no fabric.

    A cluster uuid of zeros is no fabric. Raises ``ValueError`` if the GPUs of the node disagree.
    """
    found: dict[str | None, int] = {}
    for index, gpu in enumerate(gpus):
        if gpu.state == FABRIC_COMPLETED:
            uuid = gpu.cluster_uuid.hex()
            text = "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]))
            found.setdefault(f"{text}.{gpu.clique_id}" if any(gpu.cluster_uuid) else None, index)
    if len(found) > 1:
        (first, one), (second, other) = list(found.items())[:2]
        raise ValueError(
            f"GPU {one} is in NVLink domain {first or 'none'}, GPU {other} in {second or 'none'}; the GPUs of a node "
            "must be in one domain"
        )
    domain = next(iter(found), None)
    return {} if domain is None else {CLIQUE: domain}

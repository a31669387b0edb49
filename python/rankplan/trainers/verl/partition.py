"""verl's split of shared nodes between an asynchronous training and its rollout: ``actor_rollout_ref.partition``.

``8_4-4`` gives the training 8 accelerators of a node and 4 of the next one, and the rollout 4. verl divides all parts
by their greatest common divisor, here 4: the training has the pool [4, 4, 4], the rollout [4]. The nodes are those of
``trainer`` if the parts add up to them; otherwise ``trainer`` and ``rollout`` state their parts of the same nodes.

Follows verl's ``build_hybrid_res_pool_layout`` (22f8847), which 1dda039 does not have.
"""

from __future__ import annotations

import re
from itertools import chain
from math import gcd
from typing import NamedTuple

from rankplan.sdk import Config
from rankplan.trainers.verl import faults, keys
from rankplan.trainers.verl.pools import Pool
from rankplan.trainers.verl.rollout import Rollout

_PART = "[1-9][0-9]{0,6}"
_FORM = re.compile(f"({_PART}(?:_{_PART})*)-({_PART}(?:_{_PART})*)")


class Partition(NamedTuple):
    """The pools of a partition, and the nodes that it divides, as a pool."""

    training: Pool
    rollout: Rollout
    divided: Pool


def read_partition(config: Config, training: Pool, engines: Rollout) -> Partition | None:
    """Return the partition of a config, ``None`` for an invalid one, which is recorded.

    ``training`` and ``engines`` are what their sections state. A rollout without nodes of its own is not divided.
    """
    rollout = engines.pool
    if rollout is None:
        return None
    where = config.where(keys.PARTITION)
    text = config[keys.PARTITION]
    if text is None:
        config.faults.add(config.where(keys.PARTITIONED), faults.missing_partition())
        return None
    form = _FORM.fullmatch(text)
    if form is None:
        config.faults.add(where, faults.malformed_partition(text))
        return None
    trained, generating = ([int(part) for part in side.split("_")] for side in form.groups())
    is_of_trainer = sum(trained) + sum(generating) == training.gpus
    is_of_both = (sum(trained), sum(generating)) == (training.gpus, rollout.gpus) and training.nodes == rollout.nodes
    is_ambiguous = training.nodes == rollout.nodes and training.gpus_per_node != rollout.gpus_per_node
    if not is_of_both and (not is_of_trainer or is_ambiguous):
        fault = faults.partition_of_other_nodes(text, (training.nodes, training.gpus_per_node), rollout.gpus)
        config.faults.add(where, fault)
        return None
    physical = training.gpus_per_node + (0 if is_of_trainer else rollout.gpus_per_node)
    largest = max(chain(trained, generating))
    if largest > physical:
        config.faults.add(where, faults.partition_wider_than_nodes(text, largest, physical))
        return None
    each = gcd(*trained, *generating)
    pool = rollout._replace(nodes=sum(generating) // each, gpus_per_node=each, where=where)
    per_server = None if engines.gpus_per_server is None else each
    return Partition(
        training._replace(nodes=sum(trained) // each, gpus_per_node=each, where=where),
        engines._replace(gpus_per_server=per_server, pool=pool),
        training._replace(gpus_per_node=physical),
    )

"""Reads the sum of the files of a job: every key with its place, and every fault."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rankplan._core import MAX_NODES, read_cluster
from rankplan.dialects.placing.grouping import ComponentGroup, ComponentGroups
from rankplan.environment import reserved_variables
from rankplan.errors import Diagnostic, KeyPath, Where
from rankplan.frozen import frozen
from rankplan.hardware.cards import size_in_bytes
from rankplan.hardware.policies import POLICIES, VISIBILITIES
from rankplan.jobs import faults
from rankplan.jobs.keys import COMPONENTS, GIVEN, KEYS, NAMING_RANKS, OF_CLUSTER, OF_MEMORY
from rankplan.jobs.recognising import JOB, ReadJob
from rankplan.jobs.stack import is_plain, job_section, stacked
from rankplan.nodes.facts import NO_FACTS, ORDERS, ClusterFacts
from rankplan.nodes.group_rules import group_faults
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.inventory_file import is_size
from rankplan.plans.diff import same_nodes
from rankplan.plans.plan_job import TO
from rankplan.plans.pool_rules import stated_pool_faults
from rankplan.plans.rules import NO_RULES, Rules
from rankplan.read.groups import piece_faults
from rankplan.read.simple import MOST_CPUS, MOST_HOST_MEMORY, number_of, whole_number
from rankplan.read.text.document import Section
from rankplan.read.text.invalid import Invalid
from rankplan.read.text.overrides import StatedText
from rankplan.read.text.reader import Reader
from rankplan.words import misspelt, nearest, path_text

_Number = TypeVar("_Number", int, float)

_MODEL_FILE = re.compile(r"\.{0,2}/|.*\.json\Z")


@frozen(slots=False)
class JobMemory:
    """What a job file states about memory: the model of the accelerators, of the trainer, and what else uses memory.

    ``costs`` is the path of a file with measured peaks.
    """

    accelerator: str | None = None
    model: str | None = None
    reserve: str | float | None = None
    costs: str | None = None


class StatedKeys(NamedTuple):
    """What keys of a cluster state of its nodes, and of the components."""

    facts: ClusterFacts
    rules: Rules


@frozen(slots=False)
class JobFile(ReadJob):
    """What the files of a job state, besides the trainer's config. Paths are relative to the working directory.

    ``read`` is what ``cluster`` states, as far as that depends on no number of nodes.
    ``name`` is what messages call it; ``files`` are all of them, the upper one first. ``job`` is the path of the
    trainer's config or script, or of a saved plan. ``nodes`` is a size or the path of an inventory, ``ray`` the address
    of a cluster. ``cluster`` are the keys that mean what they mean in a ``cluster`` section, as plain values.
    ``groups`` has the node group of each component that one is stated for.
    ``is_given``: the nodes are in the order of their inventory, also if rules are stated. ``new_ranks`` has the rank of
    each node by its rank in that inventory, once they are in another order. ``reader`` locates all values.
    """

    name: str
    reader: Reader
    job: str
    dialect: str | None = None
    overrides: tuple[str, ...] = ()
    nodes: str | None = None
    ray: str | None = None
    cluster: Mapping[str, Any] = field(default_factory=dict)
    read: StatedKeys = field(default_factory=lambda: StatedKeys(NO_FACTS, NO_RULES))
    groups: ComponentGroups = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    memory: JobMemory = field(default_factory=JobMemory)
    visibility: str | None = None
    binding: str | None = None
    cpus_per_process: float | None = None
    host_memory_per_process: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    command: str | None = None
    emit: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    is_given: bool = False
    new_ranks: Mapping[int, int] | None = None

    def __fspath__(self) -> str:
        return self.name

    def states(self, *path: str | int) -> bool:
        """Whether the files state a value at a path."""
        return self.reader.has(path)

    def where(self, *path: str | int) -> Where:
        """Return the place of a value."""
        return self.reader.where(path)

    def key_place(self, key: str) -> Where:
        """Return the place of a key."""
        return self.reader.where((key,), key=True)

    def facts(self, num_nodes: int) -> ClusterFacts:
        """Return what is stated of the nodes, of which there are so many."""
        if self.cluster.keys().isdisjoint(NAMING_RANKS):
            return self.read.facts
        if self.new_ranks is None:
            return ClusterFacts.of(self._cluster(num_nodes))
        facts = ClusterFacts.of(self._cluster(max(self.new_ranks, default=0) + 1))
        groups = tuple(group.renumbered(self.new_ranks) for group in facts.node_groups)
        return replace(facts, node_groups=groups)

    @cached_property
    def rules(self) -> Rules:
        """What is stated about the components, each rule at its place."""
        rules = self.read.rules.stated_at(self.reader.where)
        return rules if self.new_ranks is None else rules.renumbered(self.new_ranks)

    def reordered(self, order: Sequence[int]) -> JobFile:
        """Return what is stated of the same nodes in another order, given by their ranks."""
        new = {rank: index for index, rank in enumerate(order)}
        before = self.new_ranks
        return replace(self, new_ranks=new if before is None else {rank: new[there] for rank, there in before.items()})

    def on_cluster(self, allowed: Inventory, cluster: Inventory) -> JobFile:
        """Return what is stated of the nodes of an inventory, for those of them that a cluster has.

        Names by rank, such as ``node-3``, and node ranks are those of the inventory. They become those of the cluster.
        """
        places = {rank: there for rank, there in enumerate(same_nodes(allowed, cluster)) if there is not None}
        exclude = self.cluster.get("exclude")
        if not isinstance(exclude, list):
            return replace(self, new_ranks=places)
        names = []
        for name in exclude:
            by_rank = allowed.names.by_rank(name)
            if by_rank is None:
                names.append(name)
            elif by_rank[0] in places:
                rank, index = by_rank
                node = cluster.names.lasting(places[rank]) or f"node-{places[rank]}"
                names.append(node if index is None else f"{node}/{index}")
        read = self.read._replace(facts=replace(self.read.facts, exclude=tuple(names)))
        return replace(self, new_ranks=places, cluster={**self.cluster, "exclude": names}, read=read)

    def _cluster(self, num_nodes: int) -> dict[str, Any]:
        """Return the keys of a cluster as the core reads them. `_Reading` has found their faults."""
        values, _ = read_cluster({**self.cluster, "num_nodes": num_nodes})
        return values or {}


def job_file(config: Any) -> JobFile | None:
    """Return what the files of a job state; ``None`` for a config that is no job file.

    Raises `PlacementError` with every fault, ``OSError`` if the file itself cannot be read.
    """
    if isinstance(config, JobFile):
        return config
    if not isinstance(config, (str, os.PathLike, Mapping)):
        return None
    section = job_section(config)
    return None if section is None else _Reading(stacked(section)).read()


class _Reading:
    """Reads the keys of a job file one by one. A fault is recorded, and its value counts as missing."""

    def __init__(self, content: Section) -> None:
        self._content = content
        self._reader = Reader(content)
        self._stack: Any = content.document
        self._is_given = False
        self._groups: dict[str, ComponentGroup] = {}
        self._read = StatedKeys(NO_FACTS, NO_RULES)
        self._unread: set[str] = set()
        """Keys whose values have faults that were recorded before they were read."""

    def read(self) -> JobFile:
        """Return what the files state. Raises `PlacementError` with every fault."""
        self._check_keys()
        self._check_literal()
        nodes, ray = self._nodes()
        stated = JobFile(
            name=self._stack.file or "the job",
            reader=self._reader,
            job=self._job(),
            dialect=self._dialect(),
            overrides=self._overrides(),
            nodes=nodes,
            ray=ray,
            cluster=self._cluster(),
            read=self._read,
            groups=self._groups,
            beside=tuple(self._path(text, ("beside", index)) for index, text in self._texts("beside", "[other.json]")),
            memory=self._memory(),
            visibility=self._word("visibility", VISIBILITIES),
            binding=self._word("binding", POLICIES),
            cpus_per_process=self._amount("cpus_per_process", number_of(MOST_CPUS)),
            host_memory_per_process=self._amount("host_memory_per_process", whole_number(0, MOST_HOST_MEMORY)),
            environment=self._environment(),
            command=self._text("command", "write `command: bash run.sh`"),
            emit=self._emit(),
            files=self._stack.files,
            is_given=self._is_given,
        )
        self._reader.finish()
        return stated

    def _add(self, path: KeyPath, fault: Diagnostic) -> None:
        self._reader.add(path, fault)

    def _value(self, key: str) -> Any:
        """Return the value of a key; ``None`` if it is missing, or has a fault already."""
        return None if key in self._unread else self._content.get(key)

    def _check_keys(self) -> None:
        """Record unknown keys. One of a trainer is a conflict with ``job``, at both keys."""
        others = [str(key) for key in self._content if key not in KEYS]
        if not others:
            return
        from rankplan.dialects import is_trainers_key  # few job files have such keys

        trainers = []
        for key in others:
            place = self._reader.where((key,), key=True)
            typo = misspelt(key, KEYS)
            if typo is None and is_trainers_key(key):
                trainers.append(key)
                self._reader.faults.add(place, faults.trainers_key(key))
            else:
                self._reader.faults.add(place, faults.unknown_key(key, typo or nearest(key, KEYS, 0.75)))
        if trainers:
            place = self._reader.where((JOB,), key=True)
            self._reader.faults.add(place, faults.beside_trainers_keys(trainers))

    def _check_literal(self) -> None:
        """Record texts that no file has, and those with ``$``, which only overrides and commands may contain.

        Overrides belong to the trainer, commands to the shell that starts it.
        """
        for key, value in self._content.items():
            if key not in KEYS:
                continue
            for path, text in _texts_in(value, (key,)):
                if not is_plain(text):
                    fault = faults.not_plain(text)
                elif "$" in text and path[0] not in ("overrides", "command") and path[:2] not in _COMMANDS:
                    fault = faults.not_literal(text)
                else:
                    continue
                self._add(path, fault)
                self._unread.add(key)

    def _job(self) -> str:
        value = self._value(JOB)
        if isinstance(value, str) and value.strip():
            return self._stack.job or ""
        if JOB not in self._unread:
            self._add((JOB,), faults.wrong_job(value))
        return ""

    def _dialect(self) -> str | None:
        name = self._text("dialect", "write `dialect: verl`")
        if name is None:
            return None
        from rankplan.dialects import DIALECTS  # most job files state none

        if name not in DIALECTS:
            self._add(("dialect",), faults.unknown_dialect(name, DIALECTS))
        return name

    def _overrides(self) -> tuple[str, ...]:
        """Return the overrides, each of which knows where it is written."""
        found = []
        for index, text in self._texts("overrides", "[trainer.nnodes=4]"):
            found.append(StatedText.at(text, self._reader.where(("overrides", index))))
        return tuple(found)

    def _nodes(self) -> tuple[str | None, str | None]:
        """Return the size or the path, or the address of a Ray cluster."""
        value = self._value("nodes")
        if value is None:
            return None, None
        if isinstance(value, dict):
            others = [key for key in value if key != "ray"]
            for key in others:
                self._add(("nodes", key), faults.unknown_inner_key(key, "nodes", ["ray"]))
            address = value.get("ray")
            if isinstance(address, str) and address.strip():
                return None, address
            if not others:
                self._add(("nodes",), faults.wrong_nodes(value))
            return None, None
        if not isinstance(value, str) or not value.strip():
            self._add(("nodes",), faults.wrong_nodes(value))
            return None, None
        return (value if is_size(value) else self._path(value, ("nodes",))), None

    def _cluster(self) -> dict[str, Any]:
        """Return the keys of a cluster, after every check that needs no nodes."""
        stated: dict[str, Any] = {}
        for key in OF_CLUSTER:
            value = self._value(key)
            if value is not None:
                stated[key] = value
        topology = stated.get("topology")
        if isinstance(topology, dict) and "order" in topology:
            stated["topology"] = self._without_given_order(topology)
        if not stated:
            return {}
        groups = stated.get("node_groups")
        if isinstance(groups, list):
            stated["node_groups"] = [_without_components(group) for group in groups]
        values, found = read_cluster({**stated, "num_nodes": MAX_NODES})
        for path, fault in found:
            self._add(path, fault)
        if values is not None:
            facts, rules = self._read = StatedKeys(ClusterFacts.of(values), Rules.of(values))
            self._read_components([group.label for group in facts.node_groups])
            groups = dict(enumerate(facts.node_groups))
            for path, fault in chain(group_faults(groups, None), piece_faults(groups)):
                self._add(("node_groups", *path), fault)
            for path, fault in stated_pool_faults(dict(enumerate(rules.pools)), (), None, ()):
                self._add(("pools", *path), fault)
        return stated

    def _read_components(self, labels: Sequence[str]) -> None:
        """Read the components of each node group; ``labels`` are those of the groups. Each is in one group."""
        for index, label in enumerate(labels):
            group = self._content["node_groups"][index]
            if COMPONENTS not in group:
                continue
            names = group[COMPONENTS]
            path: KeyPath = ("node_groups", index, COMPONENTS)
            if not isinstance(names, list) or not names:
                self._add(path, faults.wrong_list(path_text(path), names, "[rollout]"))
                continue
            for at, name in enumerate(names):
                if not isinstance(name, str) or not name.strip():
                    help = "write the name of a component, as `rankplan show` lists it"
                    self._add((*path, at), faults.wrong_text(f"{path_text(path)}[{at}]", name, help))
                elif name in self._groups:
                    self._add((*path, at), faults.two_node_groups(name, self._groups[name].label, label))
                else:
                    self._groups[name] = ComponentGroup(label, self._reader.where((*path, at)))

    def _memory(self) -> JobMemory:
        value = self._mapping("memory", "{accelerator: H100-80GB, model: Qwen/Qwen3-8B}")
        for key in value:
            if key not in OF_MEMORY:
                self._add(("memory", key), faults.unknown_inner_key(key, "memory", OF_MEMORY))
        texts: dict[str, str] = {}
        for key in ("accelerator", "model", "costs"):
            text = value.get(key)
            if isinstance(text, str) and text.strip():
                texts[key] = text.strip()
            elif key in value:
                self._add(("memory", key), faults.wrong_text(key, text, f"write `{key}: {_EXAMPLES[key]}`"))
        if "costs" in texts:
            texts["costs"] = self._path(texts["costs"], ("memory", "costs"))
        if "model" in texts:
            texts["model"] = self._model(texts["model"])
        reserve = value.get("reserve")
        if reserve is not None:
            try:
                size_in_bytes(reserve)
            except ValueError:
                self._add(("memory", "reserve"), faults.wrong_reserve(reserve))
        return JobMemory(texts.get("accelerator"), texts.get("model"), reserve, texts.get("costs"))

    def _model(self, name: str) -> str:
        """Return a model: the name of one, or the path of its file, beside the job file."""
        path = self._path(name, ("memory", "model"))
        return path if _MODEL_FILE.match(name) or Path(path).exists() else name

    def _environment(self) -> dict[str, str]:
        found = {}
        for name, value in self._mapping("environment", '{NCCL_DEBUG: "INFO"}').items():
            if name in reserved_variables():
                self._add(("environment", name), faults.reserved_variable(name))
            elif isinstance(value, bool) or not isinstance(value, (str, int, float)):
                help = f'write its text in quotes: {name}: "1"'
                self._add(("environment", name), faults.wrong_text(name, value, help))
            else:
                found[name] = str(value)
        return found

    def _without_given_order(self, topology: Mapping[str, Any]) -> dict[str, Any]:
        """Return a topology without its order if that is of job files only, or wrong."""
        order = topology["order"]
        self._is_given = order == GIVEN
        if order in ORDERS:
            return dict(topology)
        if not self._is_given:
            fault = faults.wrong_word("topology.order", order, (GIVEN, *ORDERS))
            self._add(("topology", "order"), fault)
        return {key: value for key, value in topology.items() if key != "order"}

    def _emit(self) -> dict[str, Any]:
        """Return the options of ``rankplan emit`` by the names of its flags, each of a right type."""
        value = self._mapping("emit", "{to: kuberay, image: me/verl:1}")
        if not value:
            return {}
        from rankplan.jobs.emit import read_options  # most job files state none

        options = {}
        order = [None, *self._stack.files]
        depths = {key: order.index(self._reader.where(("emit", key)).file) for key in value}
        not_below = [key for key, depth in depths.items() if depth <= depths.get(TO, -1)]
        for key, (option, fault) in read_options(value, not_below).items():
            if fault is not None:
                self._add(("emit", key), fault)
            else:
                options[key] = option
        if "base" in options:
            options["base"] = self._path(options["base"], ("emit", "base"))
        return options

    def _text(self, key: str, help: str) -> str | None:
        value = self._value(key)
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        self._add((key,), faults.wrong_text(key, value, help))
        return None

    def _texts(self, key: str, example: str) -> Iterator[tuple[int, str]]:
        """Yield the texts of a list with their indexes."""
        value = self._value(key)
        if value is None:
            return
        if not isinstance(value, list):
            self._add((key,), faults.wrong_list(key, value, example))
            return
        for index, text in enumerate(value):
            if isinstance(text, str) and text.strip():
                yield index, text
            else:
                self._add((key, index), faults.wrong_text(f"{key}[{index}]", text, f"write {example}"))

    def _mapping(self, key: str, example: str) -> dict[str, Any]:
        value = self._value(key)
        if value is None or isinstance(value, dict):
            return value or {}
        self._add((key,), faults.wrong_mapping(key, value, example))
        return {}

    def _word(self, key: str, allowed: Sequence[str]) -> str | None:
        value = self._value(key)
        if value is None or value in allowed:
            return None if value is None else str(value)
        self._add((key,), faults.wrong_word(key, value, allowed))
        return None

    def _amount(self, key: str, read: Callable[[Any], _Number]) -> _Number | None:
        value = self._value(key)
        if value is None:
            return None
        try:
            return read(value)
        except Invalid as error:
            for _, fault in error.below((key,)):
                self._add((key,), fault)
            return None

    def _path(self, text: str, path: KeyPath) -> str:
        """Return a path, which is relative to the file that states it, relative to the working directory."""
        return str(self._stack.folder(path) / text)


_COMMANDS = (("emit", "command"), ("emit", "entrypoint"))
"""Values that a shell reads."""

_EXAMPLES = {"accelerator": "H100-80GB", "model": "Qwen/Qwen3-8B", "costs": "costs.yaml"}


def _without_components(group: Any) -> Any:
    """Return a node group as the core reads it."""
    if not isinstance(group, Mapping):
        return group
    return {key: value for key, value in group.items() if key != COMPONENTS}


def _texts_in(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield the texts of a value with their paths, keys included."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts_in(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts_in(inner, (*path, index))

"""The sources of an orchestrator: their environment servers, their algorithms, and the models that these ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rankplan.sdk import Config, Key, Where
from rankplan.trainers.prime_rl import keys
from rankplan.trainers.prime_rl.sections import is_on

POLICY = "policy"
"""The model that is trained, as algorithms name it."""


class FrozenModel(NamedTuple):
    """A model that an algorithm asks, and that prime-rl does not start, with the place of its address."""

    name: str
    url: str
    path: tuple[str | int, ...]


class _Algorithm(NamedTuple):
    """How the rollouts of a source are made and scored."""

    content: Mapping[str, Any]
    path: tuple[str | int, ...]

    @property
    def models(self) -> Iterator[FrozenModel]:
        """The models that it asks, other than the trained one."""
        sampling = _mapping(self.content.get("sampling"))
        for model, path in (
            (sampling.get("source"), (*self.path, "sampling", "source")),
            (self.content.get("teacher"), (*self.path, "teacher")),
        ):
            if isinstance(model, Mapping) and isinstance(model.get("base_url"), str):
                yield FrozenModel(str(model.get("name")), model["base_url"], (*path, "base_url"))

    @property
    def samples_from_policy(self) -> bool:
        """Whether the trained model makes its rollouts."""
        source = _mapping(self.content.get("sampling")).get("source", POLICY)
        return bool(source == POLICY)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(config: Config, key: Key[Any]) -> Sequence[Any]:
    items = config.raw(key)
    return items if isinstance(items, Sequence) and not isinstance(items, str) else ()


def _algorithms(config: Config) -> Iterator[_Algorithm]:
    """Yield the algorithm of each source of training: its own, or that of all (``inherit_env_algorithms``)."""
    of_all = _Algorithm(_mapping(config.raw(keys.ALGORITHM)), config.path(keys.ALGORITHM))
    path = config.path(keys.TRAIN_SOURCES)
    for index, source in enumerate(_items(config, keys.TRAIN_SOURCES)):
        own = _mapping(source).get("algo")
        yield _Algorithm(own, (*path, index, "algo")) if isinstance(own, Mapping) else of_all


class EnvironmentServer(NamedTuple):
    """A server that the job starts for a source; its name is empty if rankplan does not know it."""

    split: str
    name: str
    where: Where


def environment_servers(config: Config) -> list[EnvironmentServer]:
    """Return the environment servers that the job starts: one for each source that names no address of its own."""
    servers = []
    for split, key in (("train", keys.TRAIN_SOURCES), ("eval", keys.EVAL_SOURCES)):
        path = config.path(key)
        for index, source in enumerate(_items(config, key)):
            if not is_on(_mapping(_mapping(source).get("serve")).get("address")):
                servers.append(EnvironmentServer(split, _name(_mapping(source)), config.place_of((*path, index))))
    return servers


def _name(source: Mapping[str, Any]) -> str:
    """Return the name of a source (``EnvConfig.resolved_name``), empty if it is not a plain word."""
    environment = _mapping(source.get("env"))
    name = source.get("name") or environment.get("id") or _mapping(environment.get("taskset")).get("id")
    return name if isinstance(name, str) and "/" not in name else ""


def samples_from_policy(config: Config) -> bool:
    """Return whether the trained model makes the rollouts of any source (``any_policy_sourced``)."""
    return any(algorithm.samples_from_policy for algorithm in _algorithms(config))


def frozen_models(config: Config) -> list[FrozenModel]:
    """Return the models that the job asks and does not start, each once."""
    models = [model for algorithm in _algorithms(config) for model in algorithm.models]
    return list({(model.name, model.url): model for model in models}.values())


def port_of(url: str) -> int | None:
    """Return the port that a URL names, ``None`` without one."""
    try:
        return urlsplit(url).port
    except ValueError:
        return None


def is_here(url: str) -> bool:
    """Return whether a URL is of this machine."""
    try:
        return urlsplit(url).hostname in ("localhost", "127.0.0.1", "0.0.0.0", "::1")
    except ValueError:
        return False

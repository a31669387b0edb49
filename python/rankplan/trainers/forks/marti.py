"""MARTI as a dialect: like OpenRLHF with its older flags, and a program that trains agents (a2fe2c7).

Each agent of ``multi_agent_train_ppo_ray`` has models and engines of its own: its JSON says which, else
``default_agent``, else the flags. One agent is an ordinary job, which always has a reference model, and a reward model
only if it is named (``init_agent``). Several agents are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rankplan import Diagnostic
from rankplan.sdk import Config, Dialect, Job, Key, Program, anything, fact, switch, text

_AGENTS_PROGRAM = r"(.*\.)?multi_agent_train_\w+"

AGENTS = anything("agents", "the agents, each with models of its own", tells="tells")
DEFAULT_AGENT = anything("default_agent", "what all agents have, unless their own JSON says otherwise")
REWARD_MODEL = text("reward_pretrain", "whether there is a reward model")
ASYNCHRONOUS = switch(
    "async_train", "whether the engines have GPUs of their own despite `colocate_all_models`", like="train.async_enable"
)

HAS_REFERENCE = fact(
    "has_reference", "an agent always has one", default=lambda config: True if _trains_agents(config) else None
)
HAS_REWARD = fact(
    "has_reward",
    "an agent has one if it is named",
    default=lambda config: config.stated(REWARD_MODEL) if _trains_agents(config) else None,
)


def _trains_agents(config: Config) -> bool:
    return config.stated(AGENTS) or "multi_agent" in config.program


def job_of(config: Config) -> Job:
    """Return the job of a config, or of its only agent. Several agents are a fault."""
    if not _trains_agents(config):
        return DIALECT.parent_job(config)
    values = _values_of_agent(config)
    # Engines are on the actor's GPUs also in asynchronous training.
    own: dict[tuple[str | int, ...], Any] = {(name,): value for name, value in values.items()}
    own[(ASYNCHRONOUS.path,)] = None
    return DIALECT.parent_job(config.with_values(own).reporting(config.faults))


def _values_of_agent(config: Config) -> Mapping[str, Any]:
    """Return the flags that the JSON of the only agent states, and those that all agents have; else record a fault."""
    texts = config.raw(AGENTS)
    if texts is None:
        config.faults.add(config.key_place(AGENTS), _unknown_agents())
        return {}
    agents: list[Any] = []
    for written in texts if isinstance(texts, list) else [texts]:
        named = _parsed(written)
        agents += [None] if named is None else named.values()
    if len(agents) != 1:
        config.faults.add(config.key_place(AGENTS), _several_agents(len(agents)))
        return {}
    shared = _parsed(config.raw(DEFAULT_AGENT) or "{}")
    (agent,) = agents
    if not isinstance(agent, Mapping) or shared is None:
        config.faults.add(config.where(AGENTS), _malformed_agent())
        return {}
    values = {**shared, **agent}
    if not values.get("is_tuning", False):
        config.faults.add(config.where(AGENTS), _untrained_agent())
    return values


def _parsed(written: Any) -> Mapping[str, Any] | None:
    """Return a mapping of JSON, ``None`` for any other text."""
    if isinstance(written, Mapping):
        return written
    try:
        value = json.loads(str(written))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _several_agents(count: int) -> Diagnostic:
    message = f"MARTI starts models of its own for each of the {count} agents in `agents`, which rankplan does not read"
    return Diagnostic("unknown-key", message, _ONE_AGENT)


def _unknown_agents() -> Diagnostic:
    message = "MARTI starts models of its own for each agent in `agents`, which only a run of the script tells"
    return Diagnostic("unknown-key", message, _ONE_AGENT)


_ONE_AGENT = "check a job of one agent, or one of marti.cli.train_ppo_ray"


def _malformed_agent() -> Diagnostic:
    message = "`agents` and `default_agent` must be mappings of JSON"
    return Diagnostic("invalid-value", message, """write an agent such as {"0": {"is_tuning": true}}""")


def _untrained_agent() -> Diagnostic:
    message = "the only agent is not trained: MARTI starts only its engines"
    return Diagnostic("no-components", message, """add "is_tuning": true to its JSON""")


DIALECT = Dialect.like(
    "openrlhf",
    name="marti",
    system="MARTI",
    keys=Key.among(globals()),
    lacks=("actor", "ref", "critic", "reward", "algo", "vllm", "ds", "train", "data", "rollout"),
    job="rankplan.trainers.forks.marti:job_of",
    programs=(
        Program(r"marti\.cli\.train_(?!(sft|dpo|kto|rm|prm|kd|ppo)$)\w+"),
        Program(_AGENTS_PROGRAM),
    ),
    trainer="marti.cli.train_ppo_ray",
)

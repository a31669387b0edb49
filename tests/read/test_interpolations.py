"""Interpolations: values that name other values of the config, resolved wherever a value is read."""

from __future__ import annotations

from typing import Any

import pytest
from rankplan import Inventory, plan
from rankplan.read.text.reader import Reader
from support.outcomes import some

CONFIG: dict[str, Any] = {
    "n": 2,
    "name": "a",
    "none": None,
    "inner": {
        "n": 3,
        "deep": {"up": "${..n}", "top": "${...n}", "here": "${.m}", "m": "${n}"},
        "link": "${inner.deep}",
    },
    "whole": "${inner.deep.up}",
    "text": "list(range(0,${n}))+[${inner.n}]",
    "default": "${oc.select:nowhere,4}",
    "environment": "${oc.env:RANKPLAN_UNSET,8}",
    "through": "${inner.link.m}",
    "loop": "${loop}",
    "lost": "x${nowhere}",
    "nothing": "${none}",
    "unknown": "${int_div:4,2}",
}

VALUES = {
    ("whole",): 3,
    ("text",): "list(range(0,2))+[3]",
    ("default",): 4,
    ("environment",): 8,
    ("through",): 2,
    ("inner", "deep", "up"): 3,
    ("inner", "deep", "top"): 2,
    ("inner", "deep", "here"): 2,
    ("loop",): "${loop}",
    ("lost",): "x${nowhere}",
    ("nothing",): "${none}",
    ("unknown",): "${int_div:4,2}",
}


@pytest.mark.parametrize("path", VALUES, ids=".".join)
def test_a_value_is_read_with_its_interpolations(path: tuple[str, ...]) -> None:
    assert Reader.load(CONFIG).at(path) == VALUES[path]


def test_omegaconf_resolves_them_the_same() -> None:
    omegaconf = pytest.importorskip("omegaconf")
    resolved = omegaconf.OmegaConf.create(CONFIG)
    for path in some(path for path in VALUES if path[0] not in ("loop", "lost", "nothing", "unknown")):
        assert str(omegaconf.OmegaConf.select(resolved, ".".join(path))) == str(Reader.load(CONFIG).at(path))


def test_sizes_and_placements_may_be_interpolations() -> None:
    config = {
        "cluster": {
            "num_nodes": "${nodes}",
            "component_placement": {"actor": "0-${last}", "rollout": "${cluster.component_placement.actor}"},
        },
        "nodes": 1,
        "last": 7,
        "actor": {"model": {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": "${rollout.pp}"}},
        "rollout": {"tensor_parallel_size": "${actor.model.tensor_model_parallel_size}", "pp": 1},
    }
    planned = plan(config, Inventory.uniform(1, 8))
    assert [len(rows) for rows in planned.values()] == [8, 4]
    assert planned["actor"].parallel.tp == planned["rollout"].parallel.tp == 2
    roles = {"a": {"device_mapping": "list(range(0,${n}))", "strategy_args": "${vllm}"}, "n": 4}
    vllm = {"strategy_name": "vllm", "strategy_config": {"tensor_parallel_size": "${n}"}}
    assert [row.num_accelerators for row in plan(roles | {"vllm": vllm}, Inventory.uniform(1, 8))["a"]] == [4]

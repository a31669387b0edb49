"""``rankplan schema``: an editor accepts what rankplan accepts, and marks keys that rankplan rejects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rankplan import load_config
from rankplan.cli.explain import rules
from rankplan.dialects.keys.key import ANY_ROLE, Kind
from rankplan.dialects.schema import properties
from support.commands import run
from support.configs import FULL
from support.dialects import TABLES
from support.goldens import as_yaml, lines
from support.outcomes import some
from support.paths import EXAMPLES
from support.rejected.config import REFUSED

pytestmark = pytest.mark.usefixtures("own_folder")

SCHEMA = json.loads(run("schema").stdout)
VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)


def errors(text: str) -> list[str]:
    """Return what an editor would mark in a file."""
    Path("conf.yaml").write_text(text)
    return [error.message for error in VALIDATOR.iter_errors(json.loads(json.dumps(load_config("conf.yaml"))))]


def test_it_is_a_schema() -> None:
    VALIDATOR.check_schema(SCHEMA)


def test_every_config_that_rlinf_ships_is_accepted() -> None:
    for line in lines("rlinf_configs"):
        text = as_yaml({"cluster": line["cluster"], "trainer": {"any": "thing"}})
        assert errors(text) == [], line["config"]


@pytest.mark.parametrize("code", rules())
def test_the_right_examples_are_accepted(code: str) -> None:
    right = rules()[code].right
    assert right.file != "conf.yaml" or errors(right.text) == []


def test_every_way_of_writing_is_accepted() -> None:
    assert errors(FULL) == []
    assert errors("trainer: 1\n") == []
    assert errors("cluster: {num_nodes: '${nodes}', component_placement: null, node_groups: null}\n") == []
    variables = "{A: 1, B: '2'}"
    group = f"{{label: 4090, node_ranks: [0, 1], env_configs: [{{node_ranks: all, env_vars: {variables}}}]}}"
    assert errors(f"cluster: {{num_nodes: 2, component_placement: {{a: 0}}, node_groups: [{group}]}}\n") == []


@pytest.mark.parametrize(
    ("keys", "accepted"),
    [
        ("topology: {levels: [block, nvlink], order: topology, keep: {actor: {tp: node}}, segment: 4}", True),
        ("exclude: [node-3, node-5/2, GPU-5c89, nvlink=b]", True),
        ("exclude: node-3", True),
        ("pools: [{name: a, components: [actor], max_accelerators: 8}, {name: b, node_ranks: 1, protects: [a]}]", True),
        ("pools: [{name: a, min_accelerators: 0}]", False),
        ("pools: [{components: [actor]}]", False),
        ("pools: [{name: a, nodes: 1}]", False),
        ("topology: {order: rack}", False),
        ("topology: {level: [a]}", False),
        ("topology: {keep: {actor: node}}", False),
        ("topology: {segment: {actor: {block: 4, nvlink: 2}, all: 2}}", True),
        ("topology: {segment: 0}", False),
        ("topology: {keep: {actor: {world: {block: 1, nvlink: 2}}}, prefer: {actor: {world: nvlink}}}", True),
        ("topology: {balance: nvlink, cap: {nvlink: 16}}", True),
        ("topology: {balance: {actor: nvlink}}", True),
        ("topology: {keep: {actor: {world: {nvlink: 0}}}}", False),
        ("topology: {prefer: {actor: {wrld: nvlink}}}", False),
        ("topology: {cap: {nvlink: 0}}", False),
        ("exclude: [3]", False),
    ],
)
def test_the_network_and_exclusions(keys: str, accepted: bool) -> None:
    assert (errors(f"cluster: {{num_nodes: 2, {keys}}}\n") == []) is accepted


@pytest.mark.parametrize(
    ("keys", "accepted"),
    [
        ("topology: {keep: {actor: {tp: node}}, levels: [rack]}", True),
        ("nodes: {ray: auto}", True),
        ("overrides: [a=1]\nexclude: node-3\nbeside: [a.json]", True),
        ("memory: {accelerator: H100, reserve: 2 GiB}\nvisibility: own\nbinding: node\nenvironment: {A: 1}", True),
        ("emit: {to: kuberay, level: {rack: a}, port: 3}\ncommand: bash run.sh", True),
        ("trainer: {nnodes: 2}", False),
        ("topolgy: {}", False),
        ("topology: {keep: {actor: {tpp: node}}}", False),
        ("nodes: {rays: auto}", False),
        ("overrides: a=1", False),
        ("memory: {model_: x}", False),
        ("visibility: all", False),
        ("emit: {port: 0}", False),
    ],
)
def test_a_job_file(keys: str, accepted: bool) -> None:
    assert (errors(f"job: run.sh\n{keys}\n") == []) is accepted


def test_both_ways_of_writing_sizes_are_accepted() -> None:
    for sizes in ("d4t2p1", "' t 2 d4 '", "{tp: 4, dp: 2, order: tp-cp-ep-pp-dp}", "{}"):
        assert (
            errors(f"cluster: {{num_nodes: 1, component_placement: {{a: {{placement: 0, parallel: {sizes}}}}}}}\n")
            == []
        )
    for sizes in ("d0", "x4", "{tp: 0}", "{tq: 1}", "{tp: four}", "4"):
        assert errors(f"cluster: {{num_nodes: 1, component_placement: {{a: {{placement: 0, parallel: {sizes}}}}}}}\n")


KEYS = [row for row in REFUSED if row[1].split()[1] in ("unknown-key:", "missing-key:")]


@pytest.mark.parametrize("text", [row[0] for row in KEYS], ids=lambda text: text[:40])
def test_a_rejected_key_is_marked(text: str) -> None:
    # Next to num_nodes and `cluster`, a schema cannot detect misspellings: trainers have their own keys there.
    beside = text.startswith(
        (
            "trainer:",
            "nodes:",
            "components:",
            "defaults:",
            "clutser:",
            "component_placement:",
            "cluster:\n  num_nodes: 2\n  componet",
        )
    )
    beside = beside or "\n  node_group: [" in text or "\n  component_placment: " in text
    beside = beside or any(
        f"\n  {typo}: x" in text for typo in ("exclud", "toplogy", "bindng", "memory", "memory_bindng")
    )
    # A field of a hardware type may have any name.
    beside = beside or "robot_pi" in text
    assert bool(errors(text)) != beside


@pytest.mark.parametrize("value", ["two", "true", "0", "1.5", "[2]"])
def test_a_value_of_the_wrong_type_is_marked(value: str) -> None:
    assert errors(f"cluster: {{num_nodes: {value}}}\n")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_is_accepted(path: Path) -> None:
    assert errors(path.read_text()) == []


def test_configs_of_other_systems_are_accepted() -> None:
    for line in lines("roll_configs"):
        assert errors(as_yaml(line["roles"])) == []
    for line in lines("nemo_rl_clusters"):
        if line["kind"] == "shipped":
            assert errors(json.dumps(line["keys"])) == []


@pytest.mark.parametrize("dialect", TABLES)
def test_every_key_of_a_dialect_is_described(dialect: str) -> None:
    config = SCHEMA["else"]
    described = config["properties"] | {"cluster": properties()["cluster"], ANY_ROLE: config["additionalProperties"]}
    for entry in some(entry for entry in TABLES[dialect].placing if entry.kind is not Kind.ANY):
        here: Any = {"properties": described}
        for part in entry.path:
            # What is a section here may be a value in another dialect.
            (section,) = [one for one in here.get("anyOf", [here]) if "properties" in one]
            here = section["properties"][part]
        assert here, entry.path


@pytest.mark.parametrize(
    "text",
    [
        "trainer: {nnodes: two}",
        "actor_rollout_ref: {rollout: {tensor_model_parallel_size: '4'}}",
        "cluster: {gpus_per_node: eight}",
        "rollout: {backend: 4}",
        "train: {colocate_all: 'yes'}",
        "trainer: {placement: {policy_num_nodes: [1]}}",
        "actor_num_nodes: 1.5",
        "actor_train: {device_mapping: 4}",
    ],
)
def test_a_value_of_another_type_is_marked(text: str) -> None:
    assert errors(text)


def test_the_entry_of_schemastore_names_the_schema() -> None:
    entry = json.loads((EXAMPLES.parent / "packaging" / "schemastore" / "catalog.json").read_text())
    assert entry["url"] == SCHEMA["$id"]

"""``rankplan check`` on parts of a config that must agree: weight senders, sizes stated twice, and its JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from rankplan import PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.rlinf import ModelParallelComponentPlacement
from rankplan.rlinf.dialect import DIALECT as rlinf
from support.commands import run

pytestmark = pytest.mark.usefixtures("own_folder")


def check(text: str, *options: str) -> Result:
    Path("conf.yaml").write_text(text)
    return run("check", "conf.yaml", *options)


# ----------------------------------------------------------------------------------------------------- weight senders

RLINF = """\
cluster:
  num_nodes: 2
  component_placement:
    actor: {actor}
    rollout: {rollout}
actor: {{model: {{tensor_model_parallel_size: {tp}}}}}
rollout: {{tensor_parallel_size: {rtp}}}
"""
OWN = """\
cluster:
  num_nodes: 2
  component_placement:
    actor: {{placement: 0-7, parallel: {{tp: {tp}}}}}
    rollout: {{placement: 8-15, parallel: {{tp: {rtp}}}}}
"""
COMPACT = """\
cluster:
  num_nodes: 2
  component_placement:
    actor: {{placement: 0-7, parallel: t{tp}}}
    rollout_planner: {{placement: 8-15, parallel: t{rtp}}}
"""
ROLL = """\
num_gpus_per_node: 8
actor_train:
  device_mapping: list(range(0,8))
  strategy_args: {{strategy_name: megatron_train, strategy_config: {{tensor_model_parallel_size: {tp}}}}}
actor_infer:
  device_mapping: list(range(8,16))
  num_gpus_per_worker: {rtp}
  strategy_args:
    strategy_name: sglang
    strategy_config: {{tp_size: {rtp}}}
"""
SLIME = """\
actor_num_nodes: 1
actor_num_gpus_per_node: 8
tensor_model_parallel_size: {tp}
rollout_num_gpus: 8
rollout_num_gpus_per_engine: {rtp}
"""
DISAGGREGATED = RLINF.replace("{actor}", "0-7").replace("{rollout}", "8-15")
COLLOCATED = RLINF.replace("{actor}", "0-15").replace("{rollout}", "0-15")

VERL = """\
trainer: {{nnodes: 2, n_gpus_per_node: 8}}
actor_rollout_ref:
  actor: {{strategy: megatron, megatron: {{tensor_model_parallel_size: {tp}}}}}
  rollout: {{tensor_model_parallel_size: {rtp}}}
"""


@pytest.mark.parametrize(
    ("text", "sends_parts"),
    [
        *((text, True) for text in (DISAGGREGATED, COLLOCATED)),
        *((text, False) for text in (OWN, COMPACT, ROLL, SLIME, VERL)),
    ],
    ids=range(7),
)
def test_weights_without_a_sender_are_reported_for_trainers_that_send_parts(text: str, sends_parts: bool) -> None:
    """RLinf sends each tensor part from one slot; the others gather whole tensors, and serve any size."""
    done = check(text.format(tp=2, rtp=4))
    assert done.exit_code == sends_parts, done.output
    assert ("error[no-weight-sender]: rollout tensor size 4 does not divide " in done.output) == sends_parts
    assert (" --> conf.yaml:7:33  rollout.tensor_parallel_size\n" in done.output) == sends_parts
    assert "warning[no-weight-sender]" not in done.output
    for tp, rtp in ((1, 4), (4, 4), (4, 2), (8, 2)):
        done = check(text.format(tp=tp, rtp=rtp))
        assert done.exit_code == 0 and "no-weight-sender" not in done.output, (tp, rtp)


# ------------------------------------------------------------------------------------------------- sizes stated twice

TWICE = """\
cluster:
  num_nodes: 1
  component_placement:
    {name}: {{placement: 0-7, parallel: {entry}}}
{sections}
"""


@pytest.mark.parametrize(
    ("name", "entry", "sections", "found"),
    [
        (
            "actor",
            "{tp: 4}",
            "actor: {model: {tensor_model_parallel_size: 8}}",
            ["`actor` has tp 4 here, but `actor.model.tensor_model_parallel_size` is 8"],
        ),
        (
            "actor",
            "{tp: 4}",
            "actor: {model: {tensor_model_parallel_size: 4, pipeline_model_parallel_size: 2}}",
            ["`actor` has pp 1 here, but `actor.model.pipeline_model_parallel_size` is 2"],
        ),
        (
            "judge",
            "d2t4",
            "judge: {tensor_parallel_size: 2, pipeline_parallel_size: 2}",
            [
                "`judge` has tp 4 here, but `judge.tensor_parallel_size` is 2",
                "`judge` has pp 1 here, but `judge.pipeline_parallel_size` is 2",
            ],
        ),
        (
            "actor,critic",
            "{tp: 2}",
            "actor: {model: {tensor_model_parallel_size: 2}}\ncritic: {model: {tensor_model_parallel_size: 4}}",
            ["`critic` has tp 2 here, but `critic.model.tensor_model_parallel_size` is 4"],
        ),
        (
            "actor,rollout",
            "{tp: 2}",
            "actor: {model: {tensor_model_parallel_size: 2}}\nrollout: {tensor_parallel_size: 1}",
            ["`rollout` has tp 2 here, but `rollout.tensor_parallel_size` is 1"],
        ),
        ("actor", "{tp: 4, pp: 2}", "actor: {model: {tensor_model_parallel_size: 4}}", []),
        ("actor", "{tp: 4, dp: 2}", "actor: {model: {tensor_model_parallel_size: 4}}", []),
        ("actor", "{tp: 1}", "actor: {model: {tensor_model_parallel_size: 4}}", []),
        (
            "actor,rollout",
            "{tp: 2}",
            "actor: {model: {tensor_model_parallel_size: 2}}\nrollout: {tensor_parallel_size: 2}",
            [],
        ),
    ],
)
def test_sizes_of_an_entry_and_of_a_section_must_agree(name: str, entry: str, sections: str, found: list[str]) -> None:
    done = check(TWICE.format(name=name, entry=entry, sections=sections), "--format", "json")
    (report,) = json.loads(done.stdout)
    assert [(fault["code"], fault["message"]) for fault in report["faults"]] == [
        ("parallel-conflict", message) for message in found
    ]
    column = len("    : {placement: 0-7, ") + len(name) + 1 + (len("parallel: ") if entry[0] == "d" else 0)
    assert all((fault["line"], fault["column"]) == (4, column) for fault in report["faults"])
    assert done.exit_code == bool(found)


def test_a_conflict_is_found_by_the_placement_classes_and_beside_other_faults() -> None:
    text = TWICE.format(
        name="actor,rollout",
        entry="{tp: 2}",
        sections="actor: {model: {tensor_model_parallel_size: 4}}\nrollout: {tensor_parallel_size: 3}",
    )
    Path("conf.yaml").write_text(text)
    for read in (ModelParallelComponentPlacement, rlinf.plan):
        with pytest.raises(PlacementError) as refused:
            read("conf.yaml", Inventory.uniform(1, 8))
        codes = [fault.code for fault in refused.value.diagnostics]
        assert codes.count("parallel-conflict") == 2 and "no-weight-sender" in codes


# ----------------------------------------------------------------------------------------------- nothing, and as JSON


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("cluster: {num_nodes: 2}", "add components: `component_placement: {actor: 0-7}`"),
        ("cluster: {num_nodes: 2, component_placement: {}}", "add components"),
        ("cluster: {num_nodes: 2, resource_pool_spec: {global_pool: [8, 8]}}", "this looks like a config of verl"),
        ("cluster: {num_nodes: 1}\nrollout_num_gpus: 8", "this looks like a config of slime; pass --dialect slime"),
    ],
)
def test_a_config_without_components_is_not_fine(text: str, help: str) -> None:
    done = check(text)
    assert done.exit_code == 1 and "fine" not in done.output
    assert "error[no-components]: the config places no component\n --> conf.yaml:1:" in done.output
    assert help in done.output


def test_reports_as_json() -> None:
    Path("faulty.yaml").write_text("cluster:\n  num_nodes: 1\n  component_placement: {actor: 7-3, rollout: 9}\n")
    done = check(DISAGGREGATED.format(tp=4, rtp=2), "faulty.yaml", "missing.yaml", "--format", "json", "--nodes", "2x8")
    assert done.exit_code == 1
    fine, faulty, missing = json.loads(done.stdout)
    assert fine == {
        "file": "conf.yaml",
        "fine": True,
        "nodes": 2,
        "nodes_in_use": 2,
        "components": {"actor": 8, "rollout": 4},
        "mode": "DISAGGREGATED",
        "groups": ["actor: 2 tp groups within nodes", "rollout: 4 tp groups within nodes"],
        "faults": [],
        "warnings": [],
        "unreported": 0,
        "unchecked": None,
        "error": None,
    }
    assert [(fault["code"], fault["line"], fault["column"]) for fault in faulty["faults"]] == [
        ("reversed-range", 3, 32),
        ("resource-out-of-range", 3, 46),
    ]
    assert faulty["fine"] is False and set(faulty["faults"][0]) == {
        *("code", "message", "help", "path", "file", "line", "column")
    }
    assert (missing["file"], missing["error"]) == ("missing.yaml", "No such file or directory")
    alone = check("cluster: {num_nodes: 1, component_placement: {a: 0}}", "--nodes", "2x8", "--format", "json")
    codes = [warning["code"] for warning in json.loads(alone.stdout)[0]["warnings"]]
    assert codes == ["idle-nodes", "idle-accelerators"]

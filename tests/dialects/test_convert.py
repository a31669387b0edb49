"""The same plan in another dialect: equal, or listed as omitted if the dialect cannot express it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rankplan import ComponentPlacement, Inventory, Parallel, PlacementError, Plan, diff
from rankplan.cli import main
from rankplan.dialects import DIALECTS, roll, slime
from rankplan.dialects.convert import convert
from rankplan.dialects.rlinf import dialect as rlinf
from support.paths import EXAMPLES

EIGHT = Inventory.uniform(num_nodes=3, num_accelerators=4)
LARGER = Inventory.uniform(num_nodes=5, num_accelerators=4)


def planned(components: dict[str, Any], **section: Any) -> Plan:
    config = {"cluster": {"num_nodes": 3, "component_placement": components, **section}}
    return ComponentPlacement(config, EIGHT).plan()


def test_rlinf_to_roll() -> None:
    plan = planned({"actor,reference": "0-7", "rollout": "8-11:0-1", "reward": "2-3:0-3", "judge": "0,2:0"})
    conversion = convert(plan, "roll")
    assert conversion.omitted == ()
    assert conversion.config == {
        "num_nodes": 3,
        "num_gpus_per_node": 4,
        "actor": {"device_mapping": "list(range(0,8))"},
        "reference": {"device_mapping": "list(range(0,8))"},
        "rollout": {"device_mapping": "list(range(8,12))", "num_gpus_per_worker": 2},
        "reward": {"device_mapping": "[2, 2, 3, 3]"},
        "judge": {"device_mapping": "[0, 2]", "num_gpus_per_worker": 2},
    }
    assert convert(roll.plan(conversion.config, EIGHT), "rlinf").config == {
        "cluster": {
            "num_nodes": 3,
            "component_placement": {
                "actor,reference": "0-7:0-7",
                "rollout": "8-11:0-1",
                "reward": "2-3:0-3",
                "judge": "0,2:0",
            },
        }
    }


def test_omitted_components_are_listed() -> None:
    group = {
        "label": "arms",
        "node_ranks": "0-2",
        "env_configs": [{"node_ranks": 0, "env_vars": [{"A": 1}]}],
        "hardware": {"type": "Arm", "configs": [{"node_rank": 0}]},
    }
    plan = planned(
        {
            "a": "0-3",
            "b": "0-1:0,2:1",
            "c": {"node_group": "node", "placement": "0-1:0-3"},
            "arm": {"node_group": "arms", "placement": 0},
        },
        node_groups=[group],
    )
    conversion = convert(plan, "roll")
    assert list(conversion.config) == ["num_nodes", "num_gpus_per_node", "a"]
    assert conversion.omitted == (
        "arm: node group `arms`, with its variables and interpreters",
        "b: its processes have different numbers of accelerators",
        "c: roll would place it elsewhere",
        "arm: Arm of a node group cannot be converted",
    )
    spread = roll.plan({"a": {"device_mapping": "[3, 4]", "num_gpus_per_worker": 2}, "b": {"world_size": 4}}, EIGHT)
    assert convert(spread, "rlinf").config == {}
    assert convert(spread, "rlinf").omitted == (
        "a: process 0 would need 2 accelerators on nodes 0 and 1; a process runs on one node",
        "b: its processes do not use their resources in ascending order",
    )


def test_conflicting_names() -> None:
    conversion = convert(planned({"a": "0", "a.b": "1", "num_gpus_per_node": "2"}), "roll")
    assert list(conversion.config) == ["num_nodes", "num_gpus_per_node", "a"]
    assert len(conversion.omitted) == 2


def test_a_name_that_would_select_another_dialect() -> None:
    """The file would be read as one of the other's."""
    roles = {name: {"device_mapping": [11]} for name in ("a", "cluster.b", "rollout-num-gpus")}
    components = [replace(roll.plan({"x": role}, EIGHT)["x"], name=name) for name, role in roles.items()]
    conversion = convert(Plan(EIGHT, components), "roll")
    assert list(conversion.config) == ["num_nodes", "num_gpus_per_node", "a"]
    assert conversion.omitted == (
        "cluster.b: its name is a key of another dialect",
        "rollout-num-gpus: its name is a key of another dialect",
    )


def same(plan: Plan, other: Plan) -> bool:
    return list(plan) == list(other) and all(
        [(row.cluster_node_rank, row.devices) for row in rows]
        == [(row.cluster_node_rank, row.devices) for row in other[name]]
        for name, rows in plan.items()
    )


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=4))
def test_there_and_back_gives_an_equal_plan(roles: list[tuple[int, int, int]]) -> None:
    config: dict[str, Any] = {}
    for index, (first, workers, each) in enumerate(roles):
        if first + workers * each <= 12:
            mapping = f"list(range({first},{first + workers * each}))"
            config[f"role_{index}"] = {"device_mapping": mapping, "num_gpus_per_worker": each}
    if not config:
        return
    config["shared"] = {"device_mapping": "[0, 1, 1, 2, 2, 5, 6, 6]"}
    plan = roll.plan(config, EIGHT)
    there = convert(plan, "rlinf")
    said = [name for name in plan if not any(text.startswith(f"{name}: ") for text in there.omitted)]
    assert all("on nodes" in text for text in there.omitted)
    if said:
        back = convert(rlinf.plan(there.config, EIGHT), "roll")
        assert back.omitted == ()
        assert same(roll.plan(back.config, LARGER), plan.only(*said))


def test_slime_there_and_back() -> None:
    flags = {
        "actor_num_nodes": 2,
        "actor_num_gpus_per_node": 4,
        "rollout_num_gpus": 4,
        "rollout_num_gpus_per_engine": 2,
    }
    plan = slime.plan(flags, EIGHT)
    for dialect in ("rlinf", "roll", "slime"):
        there = convert(plan, dialect)
        assert there.omitted == (("rollout: its parallel sizes, tp 2",) if dialect == "roll" else ())
        read = {"rlinf": rlinf, "roll": roll, "slime": slime}[dialect].plan(there.config, EIGHT)
        assert same(plan, read)
        assert same(plan, {"rlinf": rlinf, "roll": roll, "slime": slime}[dialect].plan(there.config, LARGER))
        back = convert(read, "slime")
        assert (back.config, back.omitted) == ({**flags, "num_gpus_per_node": 4}, ())


def test_an_engine_of_data_parallel_ranks_keeps_its_sizes() -> None:
    engine = {"tensor_model_parallel_size": 1, "data_parallel_size": 2}
    config = {"trainer": {"nnodes": 1, "n_gpus_per_node": 4}, "actor_rollout_ref": {"rollout": engine}}
    plan = DIALECTS["verl"].plan(config, EIGHT)
    there = convert(plan, "verl")
    assert there.config["actor_rollout_ref"]["rollout"] == engine and there.omitted == ()
    assert not diff(plan, DIALECTS["verl"].plan(there.config, EIGHT))
    assert "rollout: its parallel sizes, tp 1" in convert(plan, "slime").omitted


def test_a_component_that_a_dialect_adds_is_named() -> None:
    assert convert(planned({"actor": "all"}), "verl").added == ("rollout",)
    assert convert(planned({"actor": "all", "rollout": "all"}), "verl").added == ()


FLAGS = st.fixed_dictionaries(
    {"actor_num_nodes": st.integers(0, 2), "actor_num_gpus_per_node": st.integers(1, 4)},
    optional={
        "colocate": st.just(True),
        "use_critic": st.just(True),
        "critic_num_gpus_per_node": st.integers(1, 3),
        "rollout_num_gpus": st.integers(0, 8),
        "rollout_num_gpus_per_engine": st.sampled_from([1, 2, 4, 8]),
    },
)


@given(FLAGS)
def test_flags_there_and_back_give_an_equal_plan(flags: dict[str, Any]) -> None:
    try:
        plan = slime.plan({"rollout_num_gpus": 0, **flags}, EIGHT)
    except PlacementError:
        return
    for name in ("rlinf", "roll", "slime"):  # verl needs an actor, and engines that fill its pool
        dialect = DIALECTS[name]
        there = convert(plan, name)
        engines = plan["rollout"].engines if "rollout" in plan else 1
        lost = (f"rollout: its engines of {engines} processes each",) if engines > 1 and name != "slime" else ()
        sizes = plan["rollout"].parallel if "rollout" in plan else Parallel()
        unsized = (f"rollout: its parallel sizes, {sizes}",) if sizes.stated and name == "roll" else ()
        assert there.omitted == lost + unsized
        read = dialect.plan(there.config, EIGHT)
        assert same(read, plan)
        assert lost or all(read[role].engines == plan[role].engines for role in plan)
        back = convert(read, "slime")
        assert back.omitted == ()
        assert same(slime.plan(back.config, LARGER), plan)


def test_parallel_sizes_are_kept_where_a_dialect_has_them() -> None:
    sizes = {"tensor_model_parallel_size": 2, "expert_model_parallel_size": 4, "expert_tensor_parallel_size": 1}
    flags = {"actor_num_nodes": 2, "actor_num_gpus_per_node": 4, "debug_train_only": True, **sizes}
    plan = slime.plan(flags, EIGHT)
    assert convert(plan, "slime").config == {**flags, "num_gpus_per_node": 4}
    entry = convert(plan, "rlinf").config["cluster"]["component_placement"]["actor"]
    assert entry == {"placement": "0-7:0-7", "parallel": {"tp": 2, "ep": 4}}
    assert convert(plan, "roll").omitted == ("actor: its parallel sizes, tp 2 x ep 4",)
    ordered = planned({"actor": {"placement": "0-7", "parallel": {"tp": 2, "order": "dp-tp-cp-ep-pp"}}})
    assert convert(ordered, "slime").omitted == ("actor: its parallel sizes, tp 2",)


def test_every_expressible_component_is_kept() -> None:
    plan = planned({"actor": "0-3", "rollout": "4-7", "critic": "9-10"})
    conversion = convert(plan, "slime")
    assert conversion.omitted == ("critic: slime would place it elsewhere",)
    assert list(slime.plan(conversion.config, EIGHT)) == ["actor", "rollout"]
    cpus = roll.plan(
        {"num_nodes": 2, "a": {"world_size": 4}, "b,c": {"world_size": 2}, " d": {"world_size": 1}}, LARGER
    )
    again = convert(cpus, "roll")
    assert again.omitted == ()
    assert same(roll.plan(again.config, LARGER), cpus)
    assert [text.split(": ")[1] for text in convert(cpus, "rlinf").omitted] == [
        "its processes do not use their resources in ascending order",
        "its name contains a comma, or blanks at an end",
        "its name contains a comma, or blanks at an end",
    ]
    with pytest.raises(ValueError, match="unknown dialect 'trl'; it writes rlinf, verl, slime, roll"):
        convert(plan, "trl")
    with pytest.raises(ValueError, match="rankplan reads, but cannot write 'areal'; it writes rlinf, verl"):
        convert(plan, "areal")


def test_the_command_writes_yaml_that_is_read_again(tmp_path: Path) -> None:
    example = str(EXAMPLES / "roll.yaml")
    path = tmp_path / "rlinf.yaml"
    result = CliRunner().invoke(main, ["convert", example, "--to", "rlinf", "--nodes", "3x8", "-o", str(path)])
    assert result.exit_code == 1
    assert [line.split(":")[:2] for line in result.stderr.splitlines()] == [
        ["omitted in rlinf", " reward_model"],
        ["omitted in rlinf", " rewards.code_sandbox"],
    ]
    assert yaml.safe_load(path.read_text())["cluster"]["component_placement"] == {
        "actor_train": "0-15:0-15",
        "actor_infer": {"placement": "0-11:0-5", "parallel": {"tp": 2, "order": "tp-cp-ep-pp-dp"}},
    }
    assert CliRunner().invoke(main, ["check", str(path), "--nodes", "3x8"]).exit_code == 0
    back = CliRunner().invoke(main, ["convert", str(path), "--to", "roll", "--nodes", "3x8"])
    assert (back.exit_code, back.stderr) == (1, "omitted in roll: actor_infer: its parallel sizes, tp 2\n")
    assert "device_mapping: list(range(0,16))" in back.stdout

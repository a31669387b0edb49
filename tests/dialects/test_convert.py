"""The same plan in another dialect: equal, or listed as omitted if the dialect cannot express it."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rankplan import ComponentPlacement, Inventory, Parallel, PlacementError, PlacementMode, Plan, diff, load_config
from rankplan.dialects import DIALECTS, writers
from rankplan.dialects.convert import Converted, convert
from rankplan.plans.rules import NO_RULES
from rankplan.rlinf.dialect import DIALECT as rlinf
from rankplan.trainers.roll.dialect import DIALECT as roll
from rankplan.trainers.slime.dialect import DIALECT as slime
from support.cases import Case, valid_cases
from support.cases import planned as case_planned
from support.commands import run
from support.goldens import lines
from support.jobs import jobs
from support.outcomes import at_least, outcome
from support.paths import EXAMPLES

EIGHT = Inventory.uniform(num_nodes=3, num_accelerators=4)
LARGER = Inventory.uniform(num_nodes=5, num_accelerators=4)


def unshared(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a conversion names besides shares, which RLinf does not have."""
    return tuple(text for text in texts if ": its share, " not in text)


def planned_again(conversion: Converted, to: str, inventory: Inventory) -> Plan:
    """Return the plan of the text of a conversion: YAML, or a launch script."""
    name = "job.sh" if isinstance(conversion.config, str) else "job.yaml"
    return DIALECTS[to].plan(load_config(name, text=conversion.text), inventory)


def planned(components: dict[str, Any], **section: Any) -> Plan:
    config = {"cluster": {"num_nodes": 3, "component_placement": components, **section}}
    return ComponentPlacement(config, EIGHT).plan()


def test_rlinf_to_roll() -> None:
    plan = planned({"actor,reference": "0-7", "rollout": "8-11:0-1", "reward": "2-3:0-3", "judge": "0,2:0"})
    conversion = convert(plan, "roll")
    assert conversion.omitted == ()
    shares = {"actor": 0.25, "reference": 0.25, "rollout": 1, "reward": 0.25, "judge": 0.25}
    assert conversion.added == tuple(f"{name}: its share, {share}" for name, share in shares.items())
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
                "actor,reference": "0-7",
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


def test_rules_are_not_omitted_for_how_they_name_their_components() -> None:
    for key in ("actor,rollout", "actor, rollout"):
        placement = {"actor,rollout": {"placement": "0-15", "parallel": {"tp": 2}}}
        config = {"num_nodes": 2, "topology": {"keep": {key: {"tp": "node"}}}, "component_placement": placement}
        conversion = convert(rankplan.plan({"cluster": config}, "2x8"), "rlinf")
        assert conversion.omitted == ()
        assert conversion.config["cluster"]["topology"]["keep"] == {key: {"tp": "node"}}


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


@at_least(returned=0.3)
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
    said = [name for name in plan if not any(text.startswith(f"{name}: ") for text in unshared(there.omitted))]
    assert all("on nodes" in text for text in unshared(there.omitted))
    if said:
        outcome("returned")
        assert [text.split(":")[0] for text in there.omitted if ": its share, " in text] == said
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
        assert unshared(there.omitted) == ()
        read = {"rlinf": rlinf, "roll": roll, "slime": slime}[dialect].plan(there.config, EIGHT)
        assert same(plan, read)
        assert same(plan, {"rlinf": rlinf, "roll": roll, "slime": slime}[dialect].plan(there.config, LARGER))
        back = convert(read, "slime")
        assert (back.config, unshared(back.omitted)) == ({**flags, "num_gpus_per_node": 4}, ())


def test_an_engine_of_data_parallel_ranks_keeps_its_sizes() -> None:
    engine = {"tensor_model_parallel_size": 1, "data_parallel_size": 2}
    config = {"trainer": {"nnodes": 1, "n_gpus_per_node": 4}, "actor_rollout_ref": {"rollout": engine}}
    plan = DIALECTS["verl"].plan(config, EIGHT)
    there = convert(plan, "verl")
    assert there.config["actor_rollout_ref"]["rollout"] == engine and there.omitted == ()
    assert not diff(plan, DIALECTS["verl"].plan(there.config, EIGHT))
    assert "rollout: its parallel sizes, tp 1" in convert(plan, "slime").omitted


def test_a_component_that_a_dialect_adds_is_named() -> None:
    assert unshared(convert(planned({"actor": "all"}), "verl").added) == ("rollout: the component",)
    assert unshared(convert(planned({"actor": "all", "rollout": "all"}), "verl").added) == ()


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


@at_least(planned=0.2)
@given(FLAGS)
def test_flags_there_and_back_give_an_equal_plan(flags: dict[str, Any]) -> None:
    try:
        plan = slime.plan({"rollout_num_gpus": 0, **flags}, EIGHT)
    except PlacementError:
        return
    outcome("planned")
    for name in ("rlinf", "roll", "slime"):  # verl needs an actor, and engines that fill its pool
        dialect = DIALECTS[name]
        there = convert(plan, name)
        engines = plan["rollout"].engines if "rollout" in plan else 1
        lost = (f"rollout: its engines of {engines} processes each",) if engines > 1 and name != "slime" else ()
        sizes = plan["rollout"].parallel if "rollout" in plan else Parallel()
        # a worker of ROLL is a whole engine
        unsized = (f"rollout: its parallel sizes, {sizes}",) if name == "roll" and engines > 1 else ()
        assert sorted(unshared(there.omitted)) == sorted(lost + unsized)
        read = dialect.plan(there.config, EIGHT)
        assert same(read, plan)
        assert lost or all(read[role].engines == plan[role].engines for role in plan)
        back = convert(read, "slime")
        assert unshared(back.omitted) == ()
        assert same(slime.plan(back.config, LARGER), plan)


def test_parallel_sizes_are_kept_where_a_dialect_has_them() -> None:
    sizes = {"tensor_model_parallel_size": 2, "expert_model_parallel_size": 4, "expert_tensor_parallel_size": 1}
    flags = {"actor_num_nodes": 2, "actor_num_gpus_per_node": 4, "debug_train_only": True, **sizes}
    plan = slime.plan(flags, EIGHT)
    assert convert(plan, "slime").config == {**flags, "num_gpus_per_node": 4}
    entry = convert(plan, "rlinf").config["cluster"]["component_placement"]["actor"]
    assert entry == {"placement": "0-7", "parallel": {"tp": 2, "ep": 4}}
    role = convert(plan, "roll").config["actor"]
    assert role["strategy_args"] == {"strategy_name": "megatron_train", "strategy_config": sizes}
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
    with pytest.raises(ValueError, match="unknown dialect 'nosuch'; it writes rlinf, verl, slime, roll"):
        convert(plan, "nosuch")
    with pytest.raises(ValueError, match="rankplan reads, but cannot write 'areal'; it writes rlinf, verl"):
        convert(plan, "areal")


def test_the_command_writes_yaml_that_is_read_again(tmp_path: Path) -> None:
    example = str(EXAMPLES / "roll.yaml")
    path = tmp_path / "rlinf.yaml"
    result = run("convert", example, "--to", "rlinf", "--nodes", "3x8", "-o", str(path))
    assert result.exit_code == 1
    assert [line.split(":")[:2] for line in result.stderr.splitlines() if "share" not in line] == [
        ["omitted in rlinf", " reward_model"],
        ["omitted in rlinf", " rewards.code_sandbox"],
    ]
    assert yaml.safe_load(path.read_text())["cluster"]["component_placement"] == {
        "actor_train": "0-15",
        "actor_infer": {"placement": "0-11:0-5", "parallel": {"tp": 2, "order": "tp-cp-ep-pp-dp"}},
    }
    assert run("check", str(path), "--nodes", "3x8").exit_code == 0
    back = run("convert", str(path), "--to", "roll", "--nodes", "3x8")
    assert back.exit_code == 0
    assert back.stderr.splitlines() == [
        f"added in roll: {name}: its share, 0.5" for name in ("actor_train", "actor_infer")
    ]
    assert "device_mapping: list(range(0,16))" in back.stdout and "tensor_parallel_size: 2" in back.stdout


# ------------------------------------------------------------------------------------------- nothing without a word

NOUNS = {
    "visibility": "its visibility",
    "parallel": "its parallel sizes",
    "share": "its share",
    "engines": "its engines",
    "binding": "its binding",
    "memory_binding": "its memory binding",
    "egl": "its rendering with EGL",
    "nics": "its use of network cards",
    "cpus_per_process": "its CPUs of each process",
    "host_memory_per_process": "its host memory of each process",
}


@at_least(compared=0.1)
@given(jobs(), st.sampled_from(writers()))
def test_what_changes_is_named(plan: Plan, to: str) -> None:
    conversion = convert(plan, to)
    if not conversion.config:
        assert conversion.omitted or not plan
        return
    bare = plan.inventory.without_groups()
    again = planned_again(conversion, to, bare)
    said = conversion.omitted + conversion.added
    facts, other = plan.inventory.facts, again.inventory.facts
    assert facts is not None
    for name, component in plan.items():
        mine = [text for text in said if text.startswith(f"{name}: ")]
        if name not in again or f"{name}: the component" in conversion.added:  # omitted, and one that the dialect has
            assert any(text.startswith(f"{name}: ") for text in conversion.omitted)
            continue
        outcome("compared")
        assert same(plan.only(name), again.only(name))
        changed = {key for key in NOUNS if getattr(component, key) != getattr(again[name], key) and key != "parallel"}
        if any(component.groups(kind) != again[name].groups(kind) for kind in ("tp", "cp", "ep", "pp", "fsdp")):
            changed.add("parallel")
        assert {key for key, noun in NOUNS.items() if any(noun in text for text in mine)} == changed
        labels = [row.node_group_label for row in component]
        known = set() if other is None else {group.label for group in other.node_groups}
        lost = {group.label for group in facts.node_groups} - known
        assert all(any(f"`{label}`" in text for text in mine) for label in lost.intersection(labels))
        kept = [component.cpus(rank) == again[name].cpus(rank) for rank in range(len(component))]
        assert all(kept) or any("binding" in text or "its cores" in text for text in mine)
    added = {text.split(":")[0] for text in conversion.added if text.endswith(": the component")}
    assert set(again) - set(plan) == added - set(plan)
    for key in ("keep", "segment"):
        stays = getattr(plan.rules, key) == getattr(again.rules, key)
        stated = getattr(plan.rules, key) != getattr(NO_RULES, key)
        assert stays or not stated or f"`cluster.topology.{key}`" in conversion.omitted
    assert plan.mode in (None, again.mode) or f"the mode {plan.mode.name}" in conversion.omitted


@given(valid_cases())
def test_rlinf_keeps_what_its_configs_state(case: Case) -> None:
    plan = case_planned(case)
    conversion = convert(plan, "rlinf")
    assert conversion.omitted == conversion.added == ()
    assert rlinf.plan(yaml.safe_load(conversion.text), Inventory.from_dict(case[1])) == plan


@st.composite
def whole_nodes(draw: st.DrawFn) -> Plan:
    """Draw a plan that every dialect can express: components of a process per accelerator, on whole nodes of 4."""
    actor, rollout = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    sizes = {"tp": draw(st.sampled_from([1, 2]))}
    if draw(st.booleans()):  # the names of prime-rl, whose servers have the first nodes
        names, first, start = ("trainer", "inference"), 0, rollout
    else:
        names, first, start = ("actor", "rollout"), draw(st.sampled_from([0, actor])), 0
    engines = {"placement": f"{4 * first}-{4 * (first + rollout) - 1}", "parallel": sizes}
    section = {"num_nodes": max(start + actor, first + rollout)}
    section["component_placement"] = {names[0]: f"{4 * start}-{4 * (start + actor) - 1}", names[1]: engines}
    return ComponentPlacement({"cluster": section}, Inventory.uniform(section["num_nodes"], 4)).plan()


@pytest.mark.long
@at_least(**dict.fromkeys(writers(), 0.01))
@given(jobs() | whole_nodes())
def test_a_config_that_was_written_is_written_again(plan: Plan) -> None:
    for to in writers():
        bare = plan.inventory.without_groups()
        if not (conversion := convert(plan, to)).config:
            continue
        outcome(to)
        again = planned_again(conversion, to, bare)
        twice = convert(again, to)
        assert (twice.omitted, twice.added) == ((), ())
        assert twice.config == conversion.config
        assert planned_again(twice, to, bare) == again


def test_rlinf_keeps_the_modes_of_recorded_jobs() -> None:
    kept: Counter[tuple[Any, bool]] = Counter()
    for line in lines("rlinf_parallel")[::4]:
        try:
            plan = rlinf.plan(line["config"], Inventory.uniform(4, 8))
        except PlacementError:
            continue
        if not plan:
            continue
        conversion = convert(plan, "rlinf")
        lost = () if plan.mode is None else (f"the mode {plan.mode.name}",)
        assert conversion.omitted in ((), lost) and conversion.added == ()
        again = rlinf.plan(yaml.safe_load(conversion.text), plan.inventory.without_groups())
        assert same(again, plan) and (again == plan) == (conversion.omitted == ())
        kept[plan.mode, again == plan] += 1
    # automatic scheduling, and special workers of several agents, are not written
    assert kept[PlacementMode.COLLOCATED, True] > 50 and kept[PlacementMode.DISAGGREGATED, True] > 25
    assert sum(count for (mode, whole), count in kept.items() if mode is not PlacementMode.AUTO and not whole) < 5


SIZES = st.one_of(
    st.builds(
        lambda tp, pp: {
            "strategy_name": "vllm",
            "strategy_config": {"tensor_parallel_size": tp, "pipeline_parallel_size": pp},
        },
        st.sampled_from([1, 2]),
        st.sampled_from([1, 2]),
    ),
    st.builds(
        lambda tp, ep, etp: {
            "strategy_name": "megatron_train",
            "strategy_config": {
                "tensor_model_parallel_size": tp,
                "expert_model_parallel_size": ep,
                "expert_tensor_parallel_size": etp,
            },
        },
        *[st.sampled_from([1, 2])] * 3,
    ),
)


@given(st.lists(SIZES, min_size=1, max_size=3))
def test_roll_keeps_parallel_sizes(strategies: list[dict[str, Any]]) -> None:
    config: dict[str, Any] = {
        f"role_{index}": {"device_mapping": "list(range(0,8))", "strategy_args": one}
        for index, one in enumerate(strategies)
    }
    plan = roll.plan(config, EIGHT)
    there = convert(plan, "roll")
    assert there.omitted == there.added == ()
    assert roll.plan(yaml.safe_load(there.text), EIGHT) == plan
    middle = convert(plan, "rlinf")
    assert unshared(middle.omitted) == ()
    back = convert(rlinf.plan(middle.config, EIGHT), "roll")
    assert back.omitted == () and back.config == there.config


def test_settings_groups_and_rules_survive_rlinf() -> None:
    groups: list[dict[str, Any]] = [
        {"label": "a", "node_ranks": "0-1", "env_configs": [{"node_ranks": "0", "env_vars": [{"A": "1"}, {"B": "2"}]}]},
        {"label": "r", "node_ranks": "2", "hardware": {"type": "Arm", "configs": [{"node_rank": 2, "name": "left"}]}},
    ]
    placements: dict[str, Any] = {
        "actor": {"node_group": "a", "placement": "0-7", "parallel": {"tp": 2}, "binding": "exclusive", "egl": True},
        "rollout": {"placement": "8-11:0-1", "visibility": "own-first", "nics": "set", "memory_binding": "bind"},
        "env": {"node_group": "r", "placement": "0"},
    }
    topology = {"keep": {"actor": {"tp": "node"}}, "segment": {"rollout": 1}}
    plan = planned(placements, node_groups=groups, topology=topology)
    written = {"num_nodes": 3, "node_groups": groups, "topology": topology, "component_placement": placements}
    assert convert(plan, "rlinf").config == {"cluster": written}
    assert convert(plan, "roll").omitted == (
        "`cluster.topology.keep`",
        "`cluster.topology.segment`",
        "actor: node group `a`, with its variables and interpreters",
        "env: node group `r`",
        "env: Arm of a node group cannot be converted",
        "actor: its binding, exclusive",
        "actor: its rendering with EGL",
        "rollout: its visibility, own-first",
        "rollout: its memory binding, bind",
        "rollout: its use of network cards, set",
    )


PRIME_RL = [line for line in lines("prime_rl") if "error" not in line["result"]]


def test_plans_of_prime_rl_there_and_back(tmp_path: Path) -> None:
    kinds = Counter[str]()
    for line in PRIME_RL[::3]:
        (tmp_path / "rl.json").write_text(json.dumps(line["config"]))
        (tmp_path / "run.sh").write_text(f"rl @ rl.json {shlex.join(line['words'])}\n")
        try:
            plan = rankplan.plan(tmp_path / "run.sh")
        except PlacementError:  # a deliberate difference
            continue
        conversion = convert(plan, "prime_rl")
        assert conversion.omitted == conversion.added == ()
        again = planned_again(conversion, "prime_rl", plan.inventory)
        assert same(again, plan) and list(again) == list(plan)
        kinds["decode" if "decode" in plan else f"{plan.inventory.num_nodes > 1}"] += 1
    assert min(kinds[kind] for kind in ("decode", "True", "False")) > 5


TRL = [
    "trl grpo --num_processes 3\n",
    "CUDA_VISIBLE_DEVICES=5,4 trl grpo --num_processes 2 --use_vllm true --vllm_mode colocate"
    " --vllm_tensor_parallel_size 2\n",
    "CUDA_VISIBLE_DEVICES=0,1,2,3 trl vllm-serve --model m --tensor_parallel_size 2 --data_parallel_size 2 &\n"
    "CUDA_VISIBLE_DEVICES=4,5,6,7 accelerate launch --num_processes 4 -m trl.scripts.grpo --use_vllm true"
    " --vllm_mode server\n",
    "N=($(scontrol show hostnames $SLURM_JOB_NODELIST))\n"
    "srun --nodes=1 --ntasks=1 --nodelist=${N[0]} trl vllm-serve --model m --tensor_parallel_size 8 &\n"
    'CUDA_VISIBLE_DEVICES=2,3 srun --nodes=2 --ntasks=2 --nodelist=${N[1]},${N[2]} bash -c "accelerate launch'
    " --num_machines 2 --num_processes 4 --machine_rank \\$SLURM_PROCID --main_process_ip ${N[1]}"
    ' -m trl.scripts.grpo --use_vllm true --vllm_mode server --vllm_server_host ${N[0]}"\n',
]


@pytest.mark.parametrize("script", TRL)
def test_scripts_of_trl_there_and_back(tmp_path: Path, script: str) -> None:
    (tmp_path / "run.sh").write_text(script)
    plan = rankplan.plan(tmp_path / "run.sh")
    conversion = convert(plan, "trl")
    assert conversion.omitted == conversion.added == ()
    assert planned_again(conversion, "trl", plan.inventory) == plan
    (tmp_path / "again.sh").write_text(conversion.text)
    assert same(rankplan.plan(tmp_path / "again.sh"), plan)
    assert run("check", str(tmp_path / "again.sh")).exit_code == 0
    assert convert(planned_again(conversion, "trl", plan.inventory), "trl").config == conversion.config


@pytest.mark.parametrize(
    ("to", "components", "omitted"),
    [
        (
            "trl",
            {"rollout": "0-3", "env": "4"},
            {"rollout": "TRL has no server alone", "env": "TRL only has actor and"},
        ),
        ("trl", {"actor": "0-3:0-1"}, {"actor": "its processes do not have one accelerator each"}),
        (
            "trl",
            {"actor": "0-3,6-9"},
            {"actor": "its nodes have other accelerators each, and TRL has one mask for all"},
        ),
        ("trl", {"actor": "0-3", "rollout": "4-11"}, {"rollout": "a server of TRL is on one node"}),
        ("trl", {"actor": "0", "rollout": "1-2:0,3:1"}, {"rollout": "its processes have different numbers of"}),
        (
            "trl",
            {"actor": "0-2", "rollout": "2-3"},
            {"rollout": "device 2 of node 0 has rank 2 of the trainer and the"},
        ),
        (
            "prime_rl",
            {"inference": "0-3", "x": "4"},
            {"inference": "prime-rl has no job without its trainer", "x": "prime"},
        ),
        ("prime_rl", {"trainer": "0-3", "env": "4"}, {"env": "it has accelerators, and prime-rl gives it none"}),
        ("prime_rl", {"trainer": "0-1:0"}, {"trainer": "its processes do not have one accelerator each"}),
        (
            "prime_rl",
            {"trainer": "3", "inference": "0:0,1-2:1"},
            {"inference": "its processes have different numbers"},
        ),
        ("prime_rl", {"trainer": "0-1", "inference": "2-3"}, {"trainer": "prime_rl would place it elsewhere"}),
    ],
)
def test_what_a_guest_of_ours_cannot_say_is_named(to: str, components: dict[str, str], omitted: dict[str, str]) -> None:
    found = convert(planned(components), to).omitted
    starts = [f"{name}: {reason}" for name, reason in omitted.items()]
    assert [start for start in starts if not any(text.startswith(start) for text in found)] == []


def test_servers_with_more_processes_than_devices_have_one_replica() -> None:
    components = {"inference": {"placement": "0-3:0-7", "parallel": {"ep": 8}}, "trainer": "4-7"}
    written = convert(planned(components), "prime_rl")
    assert "inference" in {text.partition(":")[0] for text in written.omitted}
    assert DIALECTS["prime_rl"].written(planned(components), form="")[0]["deployment"]["num_infer_nodes"] == 1


@pytest.mark.parametrize(("to", "components"), [("prime_rl", {"trainer": "4-7"}), ("prime_rl", {"trainer": "2-3"})])
def test_nothing_is_added_to_a_config_that_is_not_written(to: str, components: dict[str, str]) -> None:
    conversion = convert(planned(components), to)
    assert (conversion.config, conversion.added) == ({}, ())
    assert conversion.omitted == ("trainer: prime_rl would place it elsewhere",)


@pytest.mark.parametrize("to", writers())
def test_a_plan_without_components_is_an_empty_config(to: str) -> None:
    conversion = convert(Plan(EIGHT, []), to)
    assert (conversion.text, conversion.omitted, conversion.added) == ("", (), ())


def test_steps_of_trl_share_the_nodes_of_their_job() -> None:
    text = convert(planned({"actor": "0-7", "rollout": "8-9:0,10-11:1"}), "trl").text
    assert text.count("srun ") == text.count("srun --overlap --nodes=") == 2


@pytest.mark.parametrize(
    ("kind", "components", "left_out"),
    [
        ("NPU", {"actor": "0-3", "rollout": "4-5:0"}, ["rollout"]),
        ("NPU", {"actor": "0-1", "rollout": "4-5:0"}, ["actor", "rollout"]),
        ("NPU", {"actor": "0-7"}, []),
        ("AMD_GPU", {"actor": "0-1", "rollout": "2-3:0"}, []),
        ("METAX_GPU", {"actor": "0-1", "rollout": "2-3:0"}, []),
    ],
)
def test_trl_has_no_mask_for_devices_of_other_vendors(
    kind: str, components: dict[str, str], left_out: list[str]
) -> None:
    nodes = [{"ranks": "0-1", "accelerators": 4, "accelerator_type": kind}]
    config = {"cluster": {"num_nodes": 2, "component_placement": components}}
    plan = rankplan.plan(config, Inventory.from_dict({"nodes": nodes}))
    conversion = convert(plan, "trl")
    assert [text.partition(":")[0] for text in conversion.omitted] == left_out
    if left_out:
        reason = f"{left_out[0]}: CUDA_VISIBLE_DEVICES does not show devices of type {kind}"
        assert conversion.omitted[0] == reason

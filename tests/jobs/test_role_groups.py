"""A role on a kind of node, for every trainer: ``components`` of ``node_groups`` in a job file."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from rankplan import Inventory, Plan
from rankplan._core import RankSet, Taken
from rankplan.nodes.group_ranks import accelerators_of, counted_within
from rankplan.plans.exchange import in_order_by_exchange
from rankplan.plans.node_order import in_pools_order
from support.commands import run
from support.paths import ROOT

NEMO_RL = """\
grpo: {num_prompts_per_step: 32}
policy:
  model_name: Qwen/Qwen2.5-1.5B
  dtensor_cfg: {enabled: true, tensor_parallel_size: 1}
  generation:
    backend: vllm
    colocated: {enabled: false, resources: {num_nodes: 1, gpus_per_node: 8}}
    vllm_cfg: {tensor_parallel_size: 4, pipeline_parallel_size: 1}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""
OPENRLHF = """\
python3 -m openrlhf.cli.train_ppo_ray \\
   --ref_num_nodes 1 --ref_num_gpus_per_node 1 \\
   --reward_num_nodes 1 --reward_num_gpus_per_node 1 \\
   --critic_num_nodes 1 --critic_num_gpus_per_node 1 \\
   --actor_num_nodes 1 --actor_num_gpus_per_node 1 \\
   --vllm_num_engines 2 --vllm_tensor_parallel_size 1
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_nodes(sizes: Sequence[int], **facts: Sequence[Any]) -> None:
    """Write an inventory; ``facts`` are those of each node, besides its name and address."""
    entries = []
    for rank, size in enumerate(sizes):
        own = {key: values[rank] for key, values in facts.items()}
        entries.append({"ranks": rank, "accelerators": size, "hostname": f"h{rank}", "ip": f"10.0.0.{rank + 1}"} | own)
    Path("nodes.yaml").write_text(yaml.safe_dump({"nodes": entries}))


def write_job(config: str, groups: dict[str, tuple[str, list[str]]], **stated: Any) -> Path:
    """Write a job file; ``groups`` has the node ranks and the components of each group."""
    entries = [{"label": label, "node_ranks": ranks, "components": names} for label, (ranks, names) in groups.items()]
    path = Path("run.job.yaml")
    path.write_text(json.dumps({"job": config, "nodes": "nodes.yaml", "node_groups": entries, **stated}))
    return path


def places(plan: Plan) -> dict[str, tuple[str, set[str]]]:
    """Return the node group and the hostnames of each component."""
    found = {}
    for name, one in plan.items():
        hosts = {str(plan.inventory.node(rank).hostname) for rank in one.used_nodes()}
        found[name] = (",".join(one.node_groups), hosts)
    return found


def check_kept(plan: Plan) -> None:
    """The file of a plan has its groups, and its rules give its rows."""
    plan.save("kept.json")
    again = Plan.load("kept.json")
    assert again == plan and places(again) == places(plan)
    for one in plan.values():
        assert [row.devices for row in one.on(plan.inventory)] == [row.devices for row in one.rows]


def faults(job: Path | dict[str, Any] = Path("run.job.yaml")) -> list[tuple[str, str, str]]:
    report = rankplan.check(job)
    return [(one.code, one.path or "", one.message) for one in report.faults]


def test_training_on_h100_and_generation_on_h20() -> None:
    """NeMo-RL#824: NeMo-RL itself gives training the first nodes that Ray has."""
    Path("nemo.yaml").write_text(NEMO_RL)
    models = ["H20-96GB", "H100-80GB"] * 3
    write_nodes([8] * 6, accelerator_model=models)
    job = write_job("nemo.yaml", {"h100": ("1,3,5", ["policy"]), "h20": ("0,2,4", ["generation"])})
    assert places(rankplan.plan("nemo.yaml", "nodes.yaml"))["policy"] == ("cluster", {"h0"})
    for pinned in (False, True):
        plan = rankplan.plan(job, pinned=pinned)
        assert places(plan) == {"policy": ("h100", {"h1"}), "generation": ("h20", {"h0"})}
        assert not faults(job)
        check_kept(plan)
    asked = {request.component: request.nodes for request in plan.requests}
    assert asked == {"policy": (1,) * 8, "generation": (0,) * 8}
    assert rankplan.diff(plan, rankplan.plan("nemo.yaml", "nodes.yaml")) != rankplan.diff(plan, plan)


def test_actor_and_critic_on_one_machine_and_the_others_on_another() -> None:
    """OpenRLHF#818: two H100 and four RTX 6000; without groups, everything takes the larger node first."""
    Path("run.sh").write_text(OPENRLHF)
    write_nodes([2, 4], accelerator_model=["H100-80GB", "RTX6000"])
    job = write_job("run.sh", {"h100": ("0", ["actor", "critic"]), "rtx": ("1", ["ref", "reward", "vllm"])})
    assert places(rankplan.plan("run.sh", "nodes.yaml"))["actor"] == ("cluster", {"h1"})
    plan = rankplan.plan(job, pinned=True)
    assert places(plan) == {
        "actor": ("h100", {"h0"}),
        "critic": ("h100", {"h0"}),
        "ref": ("rtx", {"h1"}),
        "reward": ("rtx", {"h1"}),
        "vllm": ("rtx", {"h1"}),
    }
    assert len(plan["actor"].rows.accelerators() | plan["critic"].rows.accelerators()) == 2
    check_kept(plan)
    for name, one in plan.items():
        (row,) = {tuple(request.nodes) for request in plan.requests if request.component == name}
        assert set(row) == set(one.used_nodes())


GROUPS: dict[str, tuple[list[int], dict[str, tuple[str, list[str]]]]] = {
    "areal.yaml": ([4] * 4, {"a": ("2-3", ["actor", "ref"]), "b": ("1", ["rollout"])}),
    "nemo_rl.yaml": ([4] * 4, {"a": ("1-3", ["policy"]), "b": ("0", ["generation"])}),
    "openrlhf.sh": ([8] * 3, {"a": ("2", ["actor", "ref", "vllm"])}),
    "roll.yaml": ([8] * 3, {"a": ("0-1", ["actor_train", "actor_infer"]), "b": ("1-2", ["reward_model"])}),
    "skyrl.sh": ([8] * 3, {"a": ("0", ["generator"]), "b": ("2", ["policy", "ref"])}),
    "slime.yaml": ([4] * 4, {"a": ("1-2", ["actor"]), "b": ("3", ["rollout"])}),
    "verl.yaml": ([4] * 4, {"a": ("1-3", ["actor", "rollout"]), "b": ("0", ["reward"])}),
}


@pytest.mark.parametrize("trainer", GROUPS)
def test_every_trainer_keeps_its_roles_in_their_groups(trainer: str) -> None:
    sizes, groups = GROUPS[trainer]
    Path(trainer).write_bytes((ROOT / "examples" / trainer).read_bytes())
    write_nodes(sizes)
    job = write_job(trainer, groups)
    assert not faults(job)
    for pinned in (False, True):
        plan = rankplan.plan(job, pinned=pinned)
        for label, (ranks, names) in groups.items():
            hosts = {f"h{rank}" for rank in RankSet(ranks)}
            for name in names:
                group, used = places(plan)[name]
                assert group == label and used <= hosts, name
        check_kept(plan)
        assert in_pools_order(plan) is None


@pytest.mark.parametrize("trainer", sorted(set(GROUPS) - {"roll.yaml", "slime.yaml"}))
def test_nodes_that_a_role_needs_are_not_those_of_others(trainer: str) -> None:
    """A component without a group leaves the nodes of the groups alone, and one in a group has no others."""
    sizes, groups = GROUPS[trainer]
    Path(trainer).write_bytes((ROOT / "examples" / trainer).read_bytes())
    write_nodes(sizes)
    label, (ranks, names) = next(iter(groups.items()))
    plan = rankplan.plan(write_job(trainer, {label: (ranks, names)}))
    hosts = {f"h{rank}" for rank in RankSet(ranks)}
    for name, (group, used) in places(plan).items():
        shared = any(plan[name].rows.accelerators() & plan[other].rows.accelerators() for other in names)
        assert (used <= hosts) == shared and (group == label) == (name in names)
    write_nodes([1] * len(sizes))
    found = faults(write_job(trainer, {label: (ranks, names)}))
    assert {code for code, _, _ in found} == {"resource-out-of-range"}
    assert any(f"node group `{label}`" in message for _, _, message in found), found


def test_more_nodes_than_a_group_has_are_named_with_the_group() -> None:
    Path("nemo.yaml").write_text(NEMO_RL.replace("num_nodes: 2", "num_nodes: 3"))
    write_nodes([8] * 4)
    write_job("nemo.yaml", {"h100": ("1", ["policy"]), "h20": ("0", ["generation"])})
    ((code, path, message),) = faults()
    assert (code, path) == ("resource-out-of-range", "cluster.num_nodes")
    assert message == (
        "training needs 2 nodes with 8 free accelerators each, but node group `h100` (node 1) has 1 node with 8"
    )


WRONG: list[tuple[str, dict[str, tuple[str, list[str]]], tuple[str, str, str]]] = [
    (
        "verl.yaml",
        {"a": ("0-1", ["actor"]), "b": ("2", ["rollout"])},
        (
            "job-conflict",
            "node_groups[1].components[0]",
            "`rollout` is in node group `b`, but it shares accelerators with `actor` in `a`",
        ),
    ),
    (
        "roll.yaml",
        {"a": ("0-1", ["reward_model"])},
        (
            "job-conflict",
            "node_groups[0].components[0]",
            "`reward_model` is in node group `a` (nodes 0-1), but the trainer's config puts it on node 2",
        ),
    ),
    (
        "roll.yaml",
        {"a": ("0-1", ["rewards.code_sandbox"])},
        (
            "job-conflict",
            "node_groups[0].components[0]",
            "`rewards.code_sandbox` is in node group `a`, but it has no accelerators: the trainer asks Ray for no "
            "group of bundles for it that `rankplan pin` could bind",
        ),
    ),
    (
        "slime.yaml",
        {"a": ("0", ["rollout"])},
        (
            "order-not-kept",
            "node_groups[0].components[0]",
            "slime sorts the nodes of its only placement group by addresses as numbers: 10.0.0.1, on which `rollout` "
            "would be, comes before 10.0.0.3 of `actor`, but `actor` has the first accelerators",
        ),
    ),
    (
        "verl.yaml",
        {"a": ("0", ["rewart"])},
        ("unknown-component", "node_groups[0].components[0]", "unknown component `rewart`"),
    ),
    (
        "verl.yaml",
        {"a": ("0-3", ["rewart"])},
        ("unknown-component", "node_groups[0].components[0]", "unknown component `rewart`"),
    ),
    (
        "verl.yaml",
        {"a": ("0", ["reward"]), "b": ("1", ["reward"])},
        (
            "invalid-value",
            "node_groups[1].components[0]",
            "`reward` is in node group `a` already, not only in `b`",
        ),
    ),
    (
        "verl.yaml",
        {"a": ("0", [])},
        ("invalid-value", "node_groups[0].components", "`node_groups[0].components` is []; it must be a list of texts"),
    ),
    (
        "rlinf.yaml",
        {"a": ("0", ["actor"])},
        (
            "job-conflict",
            "node_groups[0].components[0]",
            "`actor` is in node group `a` here, but the config of RLinf selects `cluster`",
        ),
    ),
]


@pytest.mark.parametrize(("trainer", "groups", "expected"), WRONG, ids=[f"{one[0]}-{one[2][0]}" for one in WRONG])
def test_a_rule_of_the_trainer_that_contradicts_is_named(
    trainer: str, groups: dict[str, tuple[str, list[str]]], expected: tuple[str, str, str]
) -> None:
    text = "cluster: {num_nodes: 1, component_placement: {actor: 0-3}}\n"
    Path(trainer).write_bytes(text.encode() if trainer == "rlinf.yaml" else (ROOT / "examples" / trainer).read_bytes())
    write_nodes([8 if trainer == "roll.yaml" else 4] * 4)
    assert faults(write_job(trainer, groups)) == [expected]


def test_a_config_that_selects_the_group_agrees() -> None:
    Path("rlinf.yaml").write_text(
        "cluster: {num_nodes: 2, component_placement: {actor: {node_group: a, placement: 0-3}},\n"
        "  node_groups: [{label: a, node_ranks: 1}]}\n"
    )
    write_nodes([4, 4])
    assert not faults(write_job("rlinf.yaml", {"a": ("1", ["actor"])}))


def test_a_group_that_counts_robots_has_no_accelerators() -> None:
    Path("verl.yaml").write_bytes((ROOT / "examples" / "verl.yaml").read_bytes())
    write_nodes([4] * 4)
    group = {"label": "a", "node_ranks": 0, "components": ["reward"], "ignore_hardware": True}
    Path("run.job.yaml").write_text(json.dumps({"job": "verl.yaml", "nodes": "nodes.yaml", "node_groups": [group]}))
    assert [message for _, _, message in faults()] == ["node group `a` counts nodes, but `reward` needs accelerators"]


def test_a_trainer_without_ray_has_no_groups_to_bind() -> None:
    text = (ROOT / "examples" / "areal.yaml").read_text()
    Path("areal.yaml").write_text(f"{text}scheduler: {{type: local}}\n")
    write_nodes([4] * 4)
    (found,) = faults(write_job("areal.yaml", {"a": ("0-1", ["actor"])}))
    assert found[0] == "job-conflict" and "does not ask Ray for its accelerators" in found[2]


def nemo_plan(**stated: Any) -> Plan:
    Path("nemo.yaml").write_text(NEMO_RL)
    write_nodes([8] * 6, labels=[{"rack": rack} for rack in "xxyyxy"])
    content = yaml.safe_load(Path("nodes.yaml").read_text())
    Path("nodes.yaml").write_text(yaml.safe_dump({"levels": ["rack"], **content}))
    groups = {"even": ("0,2,4", ["policy"]), "odd": ("1,3,5", ["generation"])}
    return rankplan.plan(write_job("nemo.yaml", groups, **stated), pinned=True)


def test_repairs_stay_within_the_group() -> None:
    """Node after node dies; each role goes to spares of its own kind, and a machine that comes back is in its group."""
    plan = nemo_plan()
    inventory = Inventory.load("nodes.yaml")
    for dead, policy, generation in (("h0", "h4", "h1"), ("h1", "h4", "h3"), ("h4", "h2", "h3")):
        plan = rankplan.replan(plan, inventory, without=dead).plan
        assert places(plan) == {"policy": ("even", {policy}), "generation": ("odd", {generation})}
        check_kept(plan)
    with pytest.raises(rankplan.PlacementError, match="as components stay in their node groups") as refused:
        rankplan.replan(plan, inventory, without="h2")
    assert refused.value.code == "no-spare"
    plan = rankplan.replan(plan, inventory, without="h2", restore="h0").plan
    assert places(plan)["policy"] == ("even", {"h0"})
    check_kept(plan)
    groups = {
        group.label: {plan.inventory.node(rank).hostname for rank in group.node_ranks}
        for group in plan.inventory.node_groups
    }
    assert groups == {"even": {"h0", "h2", "h4"}, "odd": {"h1", "h3", "h5"}}


def test_growth_takes_nodes_of_the_group() -> None:
    plan = nemo_plan()
    plan = rankplan.replan(plan, Inventory.load("nodes.yaml"), grow={"generation": 2}).plan
    assert places(plan)["generation"] == ("odd", {"h1", "h3"})
    check_kept(plan)


def test_rules_choose_among_the_nodes_of_the_group() -> None:
    plan = nemo_plan(topology={"keep": {"policy + generation": {"world": "rack"}}}, exclude=["h1"])
    assert places(plan) == {"policy": ("even", {"h2"}), "generation": ("odd", {"h3"})}
    check_kept(plan)
    arranged = rankplan.arrange(
        nemo_plan(), Inventory.load("nodes.yaml"), keep={"policy + generation": {"world": "rack"}}
    )
    first = [arranged.inventory.node(rank).hostname for rank in (0, 1)]
    assert first in (["h0", "h1"], ["h4", "h1"])


def test_random_rules_and_failures_never_leave_the_group() -> None:
    draw = random.Random(36)
    moved = 0
    for _ in range(12):
        plan = nemo_plan()
        inventory = Inventory.load("nodes.yaml")
        for _ in range(3):
            dead = draw.choice([f"h{rank}" for rank in range(6)])
            before = places(plan)
            try:
                plan = rankplan.replan(plan, inventory, without=dead).plan
            except rankplan.PlacementError as error:
                assert error.code == "no-spare"
                break
            check_kept(plan)
            now = places(plan)
            moved += now != before
            assert now["policy"][1] <= {"h0", "h2", "h4"} and now["generation"][1] <= {"h1", "h3", "h5"}
    assert moved > 5


def test_nodes_of_different_groups_do_not_change_places() -> None:
    """verl sorts the nodes of each pool; a plan on other addresses exchanges nodes of one group only."""
    Path("verl.yaml").write_bytes((ROOT / "examples" / "verl.yaml").read_bytes())
    write_nodes([4] * 4)
    plan = rankplan.plan(write_job("verl.yaml", {"a": ("0-1", ["actor", "rollout"])}), pinned=True)
    before = plan.inventory
    renamed = before.updated([before.node(rank).changed(ip=f"10.0.0.{9 - rank}") for rank in range(4)])
    other = plan.on(renamed)
    exchange = in_order_by_exchange(other, before)
    assert exchange is not None and places(exchange.plan)["actor"] == ("a", {"h0", "h1"})


def test_commands_take_and_keep_it() -> None:
    nemo_plan(command="python3 train.py")
    assert run("plan", "run.job.yaml", "--pinned", "--save", "plan.json").exit_code == 0
    shown = run("plan", "plan.json")
    assert shown.exit_code == 0 and "even" in shown.output and "odd" in shown.output
    assert "no difference" in run("diff", "plan.json", "plan.json").output
    emitted = run("emit", "plan.json", "--to", "slurm", "-o", "job.sbatch")
    assert emitted.exit_code == 0, emitted.output
    read = rankplan.plan("job.sbatch")
    assert {name: group for name, (group, _) in places(read).items()} == {"policy": "even", "generation": "odd"}
    assert run("replan", "plan.json", "--without", "h0", "--save", "next.json").exit_code == 0
    assert places(Plan.load("next.json"))["policy"] == ("even", {"h4"})
    held = run("check", "run.job.yaml", "--verbose").output
    assert "node_groups[0]" in held and "even" in held


def test_what_is_taken_is_counted_within_a_set() -> None:
    own = RankSet("2-3,8-11")
    assert counted_within(Taken([(9, 10), (2, 3)]), own).ranges == [(3, 4), (0, 1)]
    assert counted_within(Taken([(3, 3), (8, 8)]), own).accelerators == RankSet("1-2")
    inventory = Inventory.from_dict(
        {"nodes": [{"ranks": rank, "accelerators": size} for rank, size in enumerate((2, 0, 3))]}
    )
    assert accelerators_of(inventory, RankSet("1-2")) == RankSet("2-4")
    assert not accelerators_of(inventory, RankSet("1"))


def test_a_job_with_groups_is_not_tuned() -> None:
    nemo_plan()
    with pytest.raises(rankplan.PlacementError, match="`rankplan tune` places components on any nodes") as refused:
        rankplan.tune({"components": {"policy": {"seconds": {8: 1.0}}}}, config="run.job.yaml")
    assert [fault.path for fault in refused.value.diagnostics] == [
        "node_groups[0].components[0]",
        "node_groups[1].components[0]",
    ]


OPEN_INSTRUCT = """\
python open_instruct/grpo_fast.py \\
   --num_learners_per_node 8 --vllm_num_engines 2 --vllm_tensor_parallel_size 2
"""
MS_SWIFT = """\
use_ray: true
rlhf_type: grpo
colocate_groups: [[train, rollout]]
train: {gpus: 8}
rollout: {gpus: 8}
"""


def test_engines_stay_on_the_nodes_of_their_group() -> None:
    """A bundle of open-instruct is never on two nodes, whatever other nodes have room."""
    write_nodes([8, 3, 3])
    Path("run.sh").write_text(OPEN_INSTRUCT)
    report = rankplan.check(write_job("run.sh", {"small": ("1-2", ["vllm"])}))
    assert report.plan is not None, report.faults
    engines = report.plan["vllm"].rows
    assert [{node for node, _ in row.devices} for row in engines] == [{1}, {2}]


def test_roles_that_share_a_pool_share_its_group() -> None:
    write_nodes([8, 8])
    Path("swift.yaml").write_text(MS_SWIFT)
    report = rankplan.check(write_job("swift.yaml", {"second": ("1", ["train", "rollout"])}))
    assert report.plan is not None, report.faults
    assert {name: hosts for name, (_, hosts) in places(report.plan).items()} == {"train": {"h1"}, "rollout": {"h1"}}


def test_a_trainer_without_ray_has_no_groups() -> None:
    write_nodes([8, 8])
    Path("prime.toml").write_text((ROOT / "examples" / "prime_rl.toml").read_text())
    write_job("prime.toml", {"second": ("1", ["trainer"])})
    ((code, _, message),) = faults()
    assert code == "job-conflict" and "does not ask Ray" in message

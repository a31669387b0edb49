"""Programs on disk that start a reference model by another rule than the newest one, and programs that are missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from rankplan import check

MADE = "ref_model = PPORayActorGroup(args.ref_num_nodes)"
OPENRLHF = """python3 -m openrlhf.cli.train_ppo_ray --actor_num_nodes 1 --actor_num_gpus_per_node 2 --ref_num_nodes 1 \\
  --ref_num_gpus_per_node 2 --critic_num_nodes 1 --critic_num_gpus_per_node 1 --vllm_num_engines 1 --init_kl_coef 0 \\
  --reward_num_nodes 1 --reward_num_gpus_per_node 1
"""


@pytest.mark.parametrize(
    ("program", "has_reference"),
    [
        (f"def train(args):\n    {MADE}\n", True),
        (
            f"def train(args):\n    if args.init_kl_coef == 0:\n        ref_model = None\n    else:\n        {MADE}\n",
            False,
        ),
        (f"def train(args):\n    if args.init_kl_coef > 0:\n        {MADE}\n", False),
        ("def train(args):\n    pass\n", False),
        (None, False),
    ],
)
def test_openrlhf_up_to_0_5_always_starts_a_reference(program: str | None, has_reference: bool, tmp_path: Path) -> None:
    (tmp_path / "openrlhf/cli").mkdir(parents=True)
    if program is not None:
        (tmp_path / "openrlhf/cli/train_ppo_ray.py").write_text(program)
    (tmp_path / "run.sh").write_text(OPENRLHF)
    report = check(tmp_path / "run.sh")
    assert report.plan is not None, report.render()
    assert ("ref" in report.plan) is has_reference


ROLL = """num_gpus_per_node: 8
init_kl_coef: 0.0
train_env_manager: {max_env_num_per_worker: 16}
actor_train: {device_mapping: "list(range(0,4))"}
actor_infer: {device_mapping: "list(range(0,4))"}
reference: {device_mapping: "list(range(4,8))"}
"""


@pytest.mark.parametrize(
    ("pipeline", "has_reference"),
    [
        ("class AgenticPipeline:\n    def __init__(self):\n        self.reference = Cluster()\n", True),
        ("        if self.pipeline_config.enable_reference:\n            self.reference = Cluster()\n", False),
        ("class AgenticPipeline:\n    pass\n", False),
        (None, False),
    ],
)
def test_an_older_agentic_pipeline_of_roll_always_starts_a_reference(
    pipeline: str | None, has_reference: bool, tmp_path: Path
) -> None:
    (tmp_path / "roll/pipeline/agentic").mkdir(parents=True)
    (tmp_path / "examples").mkdir()
    if pipeline is not None:
        (tmp_path / "roll/pipeline/agentic/agentic_pipeline.py").write_text(pipeline)
    for text, expected in ((ROLL, has_reference), (ROLL.replace("train_env_manager", "others"), False)):
        (tmp_path / "examples/c.yaml").write_text(text)
        report = check(tmp_path / "examples/c.yaml")
        assert report.plan is not None, report.render()
        assert ("reference" in report.plan) is expected


VERL = "python3 -m {module} critic.enable=False trainer.n_gpus_per_node=8 trainer.nnodes=1 "
VERL += "actor_rollout_ref.rollout.tensor_model_parallel_size=1\n"


@pytest.mark.parametrize(
    ("module", "is_foreign"),
    [
        ("verl.trainer.main_ppo", False),
        ("verl.trainer.main_ppo_sync", False),
        ("recipe.dapo.main_dapo", False),
        ("recipe.mine.main_mine", True),
        ("mine.train_mine", True),
        ("verl.trainer.main_mine", True),
    ],
)
def test_a_program_of_verl_whose_file_is_missing(module: str, is_foreign: bool, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(VERL.format(module=module))
    report = check(tmp_path / "run.sh")
    assert report.plan is not None, report.render()
    expected = [f"`{module}` is not verl's own, and its file is not here: the roles that verl starts are planned"]
    assert [warning.message for warning in report.warnings] == (expected if is_foreign else [])

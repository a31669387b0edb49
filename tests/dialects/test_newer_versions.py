"""Checkouts of trainers that are newer than what was tried: their own files tell, as each trainer writes them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from rankplan import Diagnostic, check
from rankplan.dialects import DIALECTS
from rankplan.read.text import nearby
from support.paths import ROOT

VERL = "python3 -m verl.trainer.main_ppo trainer.nnodes=1 trainer.n_gpus_per_node=8\n"
OPENRLHF = """python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1 --actor.num_gpus_per_node 8 --vllm.num_engines 2
"""
SKYRL = """python3 -m skyrl.train.entrypoints.main_base trainer.placement.colocate_all=false \\
  generator.inference_engine.num_engines=4 generator.inference_engine.tensor_parallel_size=1
"""
AREAL = """cluster: {n_nodes: 1, n_gpus_per_node: 8}
rollout: {backend: "sglang:d4"}
actor: {backend: "fsdp:d4"}
"""
ROLL = """actor_train: {device_mapping: "list(range(0,8))"}
actor_infer: {device_mapping: "list(range(0,8))"}
"""
NEMO_RL = """cluster: {num_nodes: 1, gpus_per_node: 8}
policy: {generation: {backend: vllm, colocated: {enabled: true}}}
"""
RLINF = """cluster: {num_nodes: 1, component_placement: {actor: 0-7}}
"""
TRL = """from trl import GRPOConfig, GRPOTrainer
"""

CHECKOUTS = {
    "verl": (VERL, {"verl/trainer/main_ppo.py": "", "verl/version/version": "{}\n"}, "0.10.0.dev", "0.11.0.dev"),
    "openrlhf": (
        OPENRLHF,
        {
            "openrlhf/cli/train_ppo_ray.py": "",
            "version.txt": "{}\n",
            "setup.py": 'def _fetch_package_name():\n    return "openrlhf-nightly" if _is_nightly() else "openrlhf"\n',
        },
        "0.11.9",
        "0.12.0.post1",
    ),
    "skyrl": (
        SKYRL,
        {
            "skyrl/train/entrypoints/main_base.py": "",
            "skyrl/__init__.py": 'from skyrl._compat import disable\n\n__version__ = "{}"\n',
        },
        "0.3.4",
        "0.4.0",
    ),
    "slime": (
        "python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate\n",
        {"train.py": "", "setup.py": 'setup(\n    author="slime Team",\n    name="slime",\n    version="{}",\n)\n'},
        "0.3.9",
        "0.4.0",
    ),
    "roll": (
        "python examples/start_rlvr_pipeline.py --config_path conf --config_name rlvr\n",
        {
            "examples/start_rlvr_pipeline.py": "",
            "examples/conf/rlvr.yaml": ROLL,
            "setup.py": 'setup(\n    name="roll",\n    version="{}",\n)\n',
        },
        "0.3.1",
        "0.4.0",
    ),
    "areal": (
        "python3 examples/math/gsm8k_rl.py --config conf.yaml\n",
        {
            "examples/math/gsm8k_rl.py": "",
            "examples/math/pyproject.toml": '[project]\nname = "mine"\nversion = "9.0"\n',
            "conf.yaml": AREAL,
            "pyproject.toml": '[project]\nname = "areal"\nlicense = {{text = "Apache-2.0"}}\nversion = "{}"\n',
        },
        "1.7.0",
        "2.0.0rc1",
    ),
    "nemo_rl": (
        "uv run examples/run_grpo.py --config conf.yaml\n",
        {
            "examples/run_grpo.py": "",
            "conf.yaml": NEMO_RL,
            "nemo_rl/package_info.py": "MAJOR = 0\nMINOR = {}\nPATCH = 0\n",
        },
        "6",
        "7",
    ),
    "rlinf": (
        "python examples/agent/train.py --config-path conf --config-name ppo\n",
        {
            "examples/agent/train.py": "",
            "examples/agent/conf/ppo.yaml": RLINF,
            "pyproject.toml": '[project]\nname = "rlinf"\nversion = "{}"\n',
        },
        "0.4.2",
        "1.0",
    ),
    "prime_rl": (
        "python src/prime_rl/entrypoints/rl.py @ rl.toml\n",
        {
            "src/prime_rl/entrypoints/rl.py": "",
            "rl.toml": "[trainer]\n[orchestrator]\n[inference]\n[deployment]\nnum_train_gpus = 1\nnum_infer_gpus = 1\n",
            "pyproject.toml": '[project]\nname = "prime-rl"\nversion = "{}"\n',
        },
        "0.8.3",
        "0.9.0",
    ),
    "ms_swift": (
        "torchrun --nproc_per_node 4 swift/cli/rlhf.py --rlhf_type grpo --use_vllm true --vllm_mode colocate\n",
        {"swift/cli/rlhf.py": "", "swift/version.py": "# keep\n__version__ = '{}'\n"},
        "4.9.0.dev0",
        "5.0.0.dev0",
    ),
    "trl": (
        "accelerate launch --num_processes 8 trl/scripts/grpo.py --use_vllm --vllm_mode colocate\n",
        {"trl/scripts/grpo.py": TRL, "VERSION": "{}", "pyproject.toml": '[project]\nname = "trl"\n'},
        "1.12.0",
        "2.0.0",
    ),
}
"""A script of each trainer, its checkout, and versions that are as new as what was tried and newer."""


def notes_of(folder: Path, script: str, files: dict[str, str], version: str) -> list[Diagnostic]:
    """Return what `check` says of versions in a checkout."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.format(version) if "{}" in text else text)
    (folder / "run.sh").write_text(script)
    report = check(folder / "run.sh")
    assert report.plan is not None, report.render()
    return [warning for warning in report.diagnostics if warning.code == "newer-version"]


@pytest.mark.parametrize("name", CHECKOUTS)
def test_a_newer_checkout_is_noted_once_where_it_states_its_version(name: str, tmp_path: Path) -> None:
    script, files, usual, newer = CHECKOUTS[name]
    tried = DIALECTS[name].tried
    assert tried is not None
    assert notes_of(tmp_path, script, files, usual) == []
    (note,) = notes_of(tmp_path, script, files, newer)
    assert note.warning and note.file == str(tmp_path / tried.file)
    version = "0.7" if name == "nemo_rl" else newer
    message = f"{DIALECTS[name].system} {version} is newer than {tried.version}, the newest version"
    assert note.message == f"{message} that rankplan was tried with"
    line = (tmp_path / tried.file).read_text().splitlines()[(note.line or 0) - 1]
    assert line[(note.column or 0) - 1 :].startswith("MAJOR" if name == "nemo_rl" else newer)


@pytest.mark.parametrize("other", ["mine", "{}-mine"])
@pytest.mark.parametrize("name", [name for name in CHECKOUTS if DIALECTS[name].tried.named])
def test_the_version_of_another_project_says_nothing(name: str, other: str, tmp_path: Path) -> None:
    script, files, _, newer = CHECKOUTS[name]
    project = DIALECTS[name].tried.project or DIALECTS[name].tried.file
    own = "openrlhf-nightly" if name == "openrlhf" else name.replace("_", "-")
    others = dict(files, **{project: files[project].replace(f'"{own}"', f'"{other.format(own)}"')})
    assert notes_of(tmp_path, script, others, newer) == []


@pytest.mark.parametrize("text", ["", "unknown\n", "\xff\xfe 9.0", "x" * (1 << 19) + "\n9.0\n"])
def test_a_file_without_a_version_says_nothing(text: str, tmp_path: Path) -> None:
    assert notes_of(tmp_path, VERL, {"verl/trainer/main_ppo.py": ""}, "") == []
    (tmp_path / "verl/version").mkdir()
    (tmp_path / "verl/version/version").write_text(text, encoding="latin-1")
    assert notes_of(tmp_path, VERL, {}, "") == []


@pytest.mark.parametrize(
    "text",
    [
        " " * 200_000 + "x",
        "\n" * 200_000 + "x",
        "9.0" + " " * 200_000 + "x",
        "9" * 200_000,
        "9." + "9" * 200_000,
        "9.0." + "9" * 200_000,
        "version" + " " * 200_000,
        "MAJOR = " + "9" * 10_000 + "\nMINOR = 1\n",
        "MAJOR = 9" + "\n" * 200_000 + "x",
    ],
    ids=["spaces", "lines", "spaces after", "digits", "minor", "patch", "name", "major", "parts"],
)
def test_a_long_file_of_a_version_is_read_at_once(text: str, tmp_path: Path) -> None:
    folder = tmp_path / "verl/version"
    folder.mkdir(parents=True)
    (folder / "version").write_text(text)
    start = time.perf_counter()
    assert notes_of(tmp_path, VERL, {"verl/trainer/main_ppo.py": ""}, "") == []
    assert time.perf_counter() - start < 5


def test_a_fork_has_versions_of_its_own(tmp_path: Path) -> None:
    assert all(dialect.tried is None for dialect in DIALECTS.values() if dialect.parent is not None)


def test_nothing_is_searched_for_a_program_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "verl/version").mkdir(parents=True)
    (tmp_path / "verl/version/version").write_text("9.0\n")
    searched: list[str] = []
    monkeypatch.setattr(nearby.Path, "is_file", lambda path: searched.append(path.name) or False)
    assert notes_of(tmp_path, VERL, {}, "") == []
    assert "main_ppo.py" in searched and "version" not in searched


@pytest.mark.parametrize("name", [name for name in DIALECTS if DIALECTS[name].tried is not None])
def test_the_page_of_a_trainer_tells_the_version_that_was_tried(name: str) -> None:
    page = (ROOT / "docs" / "systems" / f"{name.replace('_', '-')}.md").read_text()
    assert f"version {DIALECTS[name].tried.version}" in " ".join(page.split())

"""Hydra's defaults: files beside a config are merged as Hydra merges them, and faults point into them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import PlacementError, plan
from rankplan.read.text.load import load_config

FILES = {
    "conf.yaml": """
defaults:
  - base
  - env: small
  - env@test.env: large
  - model/dense@actor.model
  - optional extra: none
  - nowhere/file@lost
  - override env@test.env: small
  - override hydra/job_logging: stdout
cluster: {num_nodes: 1, component_placement: {actor: 0-1}}
actor: {model: {layers: 8}}
""",
    "base.yaml": "cluster: {num_nodes: 2, name: base}\nlevel: 1\n",
    "env/small.yaml": "defaults: [common, _self_]\nenvs: 2\nsteps: ???\n",
    "env/large.yaml": "envs: 64\n",
    "env/common.yaml": "envs: 1\nsteps: 5\n",
    "model/dense.yaml": "# @package ignored\ndefaults: [../shared/sizes@sizes, /shared/root]\nlayers: 4\n",
    "shared/sizes.yaml": "tensor_model_parallel_size: 2\n",
    "shared/root.yaml": "# @package _global_\nroot: true\n",
}


def written(folder: Path, files: dict[str, str]) -> Path:
    """Write these files, and return the first."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / next(iter(files))


def test_a_config_has_the_values_of_its_defaults(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, FILES)).to_dict() == {
        "cluster": {"num_nodes": 1, "name": "base", "component_placement": {"actor": "0-1"}},
        "level": 1,
        "env": {"envs": 2, "steps": 5},
        "test": {"env": {"envs": 2, "steps": 5}},
        "actor": {"model": {"sizes": {"tensor_model_parallel_size": 2}, "layers": 8}},
        "root": True,
        "defaults": ["nowhere/file"],
    }


@pytest.mark.filterwarnings("ignore:.*is missing `_self_`:UserWarning")
def test_hydra_composes_the_same(tmp_path: Path) -> None:
    hydra = pytest.importorskip("hydra")
    files = FILES | {"nowhere/file.yaml": "found: true\n"}
    with hydra.initialize_config_dir(str(written(tmp_path, files).parent), version_base=None):
        assert hydra.compose("conf") == load_config(tmp_path / "conf.yaml").to_dict()


@pytest.mark.filterwarnings("ignore:.*is missing `_self_`:UserWarning")
def test_the_search_path_is_read_without_importing_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hydra = pytest.importorskip("hydra")
    path = written(
        tmp_path,
        {
            "own/conf.yaml": "hydra: {searchpath: [file://shared, pkg://some_trainer.config, pkg://absent.config]}\n"
            "defaults: [both, trainer, group/one, _self_]\nmine: 1\n",
            "own/both.yaml": "both: own\n",
            "shared/both.yaml": "both: shared\n",
            "shared/group/one.yaml": "size: 1\n",
            "packages/some_trainer/__init__.py": "",
            "packages/some_trainer/config/__init__.py": "",
            "packages/some_trainer/config/trainer.yaml": "trainer: {nnodes: 3}\n",
            "packages/some_trainer/config/group/one.yaml": "size: 2\n",
        },
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    read = load_config(path).to_dict()
    assert "some_trainer" not in sys.modules
    assert {key: value for key, value in read.items() if key != "hydra"} == {
        "both": "own",
        "trainer": {"nnodes": 3},
        "group": {"size": 1},
        "mine": 1,
    }
    with pytest.warns(UserWarning, match="absent"), hydra.initialize_config_dir(str(path.parent), version_base=None):
        assert hydra.compose("conf") == {key: value for key, value in read.items() if key != "hydra"}


def test_faults_point_into_the_file_that_has_the_value(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "conf.yaml": "defaults: [base, group@actor.model: sizes]\nrollout: {tensor_parallel_size: 1}\n",
            "base.yaml": "cluster:\n  num_nodes: 1\n  component_placement: {actor: 0-1, actor;x: 0, rollout: 0-1}\n",
            "group/sizes.yaml": "\n\ntensor_model_parallel_size: 0\n",
        },
    )
    with pytest.raises(PlacementError) as caught:
        plan(path, "1x2")
    places = [(Path(found.file or "").name, found.line, found.path) for found in caught.value.diagnostics]
    assert ("sizes.yaml", 3, "actor.model.tensor_model_parallel_size") in places


def test_a_component_that_two_files_place_is_placed_twice(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "conf.yaml": "defaults: [base]\ncluster: {component_placement: {'actor,rollout': all}}\n",
            "base.yaml": "cluster: {num_nodes: 1, component_placement: {actor: all}}\n",
        },
    )
    with pytest.raises(PlacementError, match="component `actor` is placed twice"):
        plan(path, "1x8")


def test_files_that_extend_each_other_end(tmp_path: Path) -> None:
    path = written(tmp_path, {"a.yaml": "defaults: [b]\nx: 1\n", "b.yaml": "defaults: [a]\ny: 2\n"})
    config = load_config(path)
    assert (config["x"], config["y"]) == (1, 2)


VALUES = st.recursive(st.integers(0, 3), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=2))
MAPPINGS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def merged(base: Any, own: Any) -> Any:
    """What OmegaConf makes of two configs."""
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    return base | {key: merged(base.get(key), value) for key, value in own.items()}


@given(first=MAPPINGS, second=MAPPINGS, own=MAPPINGS, position=st.sampled_from([0, 1, 2, None]))
def test_later_entries_win(
    tmp_path_factory: pytest.TempPathFactory, first: Any, second: Any, own: Any, position: int | None
) -> None:
    folder, names = tmp_path_factory.mktemp("hydra"), ["first", "second"]
    names.insert(2 if position is None else position, "_self_")
    values = {"first": first, "second": second, "_self_": own}
    expected: Any = {}
    for name in names:
        expected = merged(expected, values[name])
    stated = [name for name in names if name != "_self_" or position is not None]
    (folder / "conf.yaml").write_text(f"{ {'defaults': stated} | own }")
    for name in ("first", "second"):
        (folder / f"{name}.yaml").write_text(str(values[name]))
    assert load_config(folder / "conf.yaml").to_dict() == expected


def test_a_word_of_the_command_chooses_a_file_of_a_group(tmp_path: Path) -> None:
    """As in Hydra, ``agent/backend=other`` takes the place of the file that ``defaults`` names."""
    folder = tmp_path / "config" / "agent" / "backend"
    folder.mkdir(parents=True)
    (folder.parents[1] / "base.yaml").write_text("defaults: [{agent/backend: verl}, _self_]\nname: x\n")
    verl = "trainer: {nnodes: 3, n_gpus_per_node: 8}\nactor_rollout_ref: {rollout: {name: vllm}}\n"
    (folder / "verl.yaml").write_text(f"# @package _global_\n{verl}")
    (folder / "larger.yaml").write_text(f"# @package _global_\n{verl.replace('3', '5')}")
    (folder / "hosted.yaml").write_text("url: none\n")
    command = "python3 -m agents.train --config-path config --config-name base"
    for words, nodes in (("", 3), (" agent/backend=larger", 5)):
        (tmp_path / "run.sh").write_text(f"{command}{words}\n")
        assert plan(tmp_path / "run.sh").inventory.num_nodes == nodes
    (tmp_path / "run.sh").write_text(f"{command} agent/backend=hosted\n")
    with pytest.raises(PlacementError) as caught:
        plan(tmp_path / "run.sh")
    assert caught.value.code == "no-components"


MAIN = """\
defaults:
  - trainer: small
  - actor@actor_rollout_ref.actor: dp
  - model: base
  - exp/size: null
  - kind: ${trainer}_kind
  - _self_
"""
GROUPS = {
    "trainer/small": "nnodes: 1\nn_gpus_per_node: 8\n",
    "trainer/big": "nnodes: 4\nn_gpus_per_node: 8\n",
    "actor/dp": "strategy: fsdp\n",
    "actor/mg": "strategy: megatron\n",
    "model/base": "defaults: [{optim: adam}, _self_]\nname: base\n",
    "model/optim/adam": "rate: 1\n",
    "model/optim/sgd": "rate: 2\n",
    "exp/size/huge": "# @package _global_\ntrainer: {nnodes: 16}\n",
    "kind/small_kind": "size: few\n",
    "kind/big_kind": "size: many\n",
}


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        ("", "trainer.nnodes", 1),
        ("trainer=big", "trainer.nnodes", 4),
        ("trainer=big trainer.val_only=False", "trainer.nnodes", 4),
        ("trainer=big trainer.nnodes=2", "trainer.nnodes", 2),
        ("actor@actor_rollout_ref.actor=mg", "actor_rollout_ref.actor.strategy", "megatron"),
        ("model/optim=sgd", "model.optim.rate", 2),
        ("exp/size=huge", "trainer.nnodes", 16),
        ("+exp/size=huge", "trainer.nnodes", 16),
        ("trainer=big", "kind.size", "many"),
        ("", "kind.size", "few"),
    ],
)
def test_words_choose_files_of_groups(tmp_path: Path, words: str, path: str, value: Any) -> None:
    """As Hydra composes them: a name of a group, of one in a package, of one without a file, and of a new one."""
    for name, text in {"main": MAIN, **GROUPS}.items():
        file = tmp_path / "conf" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "run.sh").write_text(f"python3 main.py --config-path conf --config-name main {words}\n")
    found: Any = load_config(tmp_path / "run.sh")
    for key in path.split("."):
        found = found[key]
    assert found == value


def test_defaults_that_name_files_twice_end(tmp_path: Path) -> None:
    (tmp_path / "twice.yaml").write_text("defaults: [twice, twice]\ntrainer: {nnodes: 1}\n")
    assert load_config(tmp_path / "twice.yaml")["trainer"] == {"nnodes": 1}


def test_a_name_that_no_file_can_have_is_missing(tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_text(f"defaults: [{'a' * 300}]\ntrainer: {{nnodes: 1}}\n")
    assert load_config(tmp_path / "long.yaml")["trainer"] == {"nnodes": 1}


def test_defaults_that_name_each_other_are_told_from_missing_files(tmp_path: Path) -> None:
    path = written(tmp_path, {"conf.yaml": "defaults: [a]\n", "a.yaml": "defaults: [b]\n", "b.yaml": "defaults: [a]\n"})
    (warning,) = load_config(path).document.warnings
    assert "`a` of `defaults` is not read: of a config, 1,000 files are" in warning.message.replace("`b`", "`a`")

"""The nodes of a job where none are given: the fewest on which it fits, or those that its batch script asks for."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError, plan
from rankplan.cli.commands import main
from rankplan.front.job import read_job
from support.outcomes import at_least, outcome


def openrlhf(actor: int, critic: int, engines: int, tensor: int = 1) -> dict[str, Any]:
    """Return flags whose models and engines are apart: the actor, its reference, critic and reward model."""
    flags = {"algo": {"advantage": {"estimator": "gae"}, "kl": {"init_coef": 0.01}}}
    flags |= {name: {"num_nodes": 1, "num_gpus_per_node": actor} for name in ("actor", "ref")}
    flags |= {name: {"num_nodes": 1, "num_gpus_per_node": critic} for name in ("critic", "reward")}
    return flags | {"vllm": {"num_engines": engines, "tensor_parallel_size": tensor}}


def verl(*pools: tuple[int, int]) -> dict[str, Any]:
    """Return an asynchronous job: the nodes and GPUs of its training, and those of its rollout."""
    (nodes, gpus), *rollout = pools
    config: dict[str, Any] = {
        "trainer": {"nnodes": nodes, "n_gpus_per_node": gpus},
        "actor_rollout_ref": {"rollout": {"tensor_model_parallel_size": 1}, "actor": {}},
        "critic": {"enable": False},
    }
    for nodes, gpus in rollout:
        config["rollout"] = {"nnodes": nodes, "n_gpus_per_node": gpus}
    return config


def skyrl(policy: int, engines: int) -> dict[str, Any]:
    placement = {"policy_num_nodes": 1, "policy_num_gpus_per_node": policy, "colocate_all": False}
    trainer = {"strategy": "fsdp2", "placement": placement, "algorithm": {"use_kl_loss": False}}
    return {"trainer": trainer, "generator": {"inference_engine": {"num_engines": engines, "tensor_parallel_size": 1}}}


@pytest.mark.parametrize(
    ("config", "size"),
    [
        (openrlhf(2, 1, 2), "1x8"),
        (openrlhf(2, 2, 2), "2x8"),
        (openrlhf(8, 8, 8), "5x8"),
        (openrlhf(4, 4, 4, 2), "3x8"),
        (openrlhf(8, 4, 1, 8), "4x8"),
        (openrlhf(6, 2, 0), "2x8"),
        (openrlhf(5, 3, 0), "2x8"),
        (verl((1, 2), (1, 6)), "1x8"),
        (verl((1, 4), (1, 4)), "1x8"),
        (verl((1, 2), (1, 2)), "1x4"),
        (verl((1, 8), (1, 4)), "2x8"),
        (verl((1, 4), (1, 6)), "2x6"),
        (verl((2, 4), (2, 4)), "2x8"),
        (verl((2, 8), (2, 8)), "4x8"),
        (verl((1, 16), (1, 16)), "2x16"),
        (verl((2, 4)), "2x4"),
        (verl((1, 6)), "1x6"),
        (skyrl(4, 4), "1x8"),
        (skyrl(4, 6), "2x8"),
        (skyrl(8, 8), "2x8"),
    ],
)
def test_a_job_has_the_fewest_nodes_on_which_it_fits(config: dict[str, Any], size: str) -> None:
    assert read_job(config).inventory == Inventory.parse(size)


POOL = st.tuples(st.integers(1, 3), st.integers(1, 8))


@settings(max_examples=25)
@at_least(fewer=0.2)
@given(POOL, POOL)
def test_no_smaller_cluster_would_do(training: tuple[int, int], rollout: tuple[int, int]) -> None:
    """Compared with every smaller number of nodes, and with nodes of one accelerator less."""
    config = verl(training, rollout)
    assumed = read_job(config).inventory
    nodes, accelerators = assumed.num_nodes, assumed.node(0).num_accelerators

    def spread(inventory: Inventory) -> list[int] | None:
        try:
            return [len(component.used_nodes()) for component in plan(config, inventory).values()]
        except PlacementError:
            return None

    apart = spread(Inventory.uniform(training[0] + rollout[0], 8))
    assert apart is not None
    smaller = [spread(Inventory.uniform(count, 8)) for count in range(1, nodes)]
    if accelerators > max(training[1], rollout[1]):
        smaller.append(spread(Inventory.uniform(nodes, accelerators - 1)))
    for counts in smaller:
        assert counts is None or any(count > least for count, least in zip(counts, apart, strict=True))
    found = spread(assumed)
    assert found is not None and all(count <= least for count, least in zip(found, apart, strict=True))
    if nodes < training[0] + rollout[0]:
        outcome("fewer")


SCRIPT = """#!/bin/bash
{lines}
python3 -m verl.trainer.main_ppo trainer.nnodes={nodes} trainer.n_gpus_per_node={gpus} critic.enable=False \\
  actor_rollout_ref.rollout.tensor_model_parallel_size=1 actor_rollout_ref.model.path=m
"""
NO_FIT = ", on which the job does not fit"


@pytest.mark.parametrize(
    ("lines", "job", "size", "told"),
    [
        ("-N 2|--gpus-per-node=8", (2, 8), "2x8", "ask for 2 nodes and 8 GPUs of each node"),
        ("--nodes=4|--gres=gpu:h100:8", (2, 8), "4x8", "ask for 4 nodes and 8 GPUs of each node"),
        ("--nodes 1|--gpus-per-node=h100:8", (1, 4), "1x8", "ask for 1 node and 8 GPUs of each node"),
        ("--nodes=2|--gpus=16", (2, 4), "2x8", "ask for 2 nodes and 8 GPUs of each node"),
        ("--nodes=3", (2, 4), "3x4", "ask for 3 nodes"),
        ("--gres=gpu:8", (1, 4), "1x8", "ask for 8 GPUs of each node"),
        ("--gres=craynetwork:4,gpu:a100:8(S:0-1)", (1, 4), "1x4", ""),
        ("--gres=craynetwork:4,gpu:a100:8", (1, 4), "1x8", "ask for 8 GPUs of each node"),
        ("-N 1|--gpus-per-node=8", (2, 8), "2x8", f"ask for 1 node and 8 GPUs of each node{NO_FIT}"),
        ("-N 2|--gpus-per-node=4", (2, 8), "2x8", f"ask for 2 nodes and 4 GPUs of each node{NO_FIT}"),
        ("-N 2-4", (2, 8), "2x8", ""),
        ("-N 2|hetjob|-N 1", (2, 8), "2x8", ""),
        ("--job-name=x", (2, 8), "2x8", ""),
        ("-N 0|--gpus-per-node=0", (2, 8), "2x8", ""),
    ],
)
def test_a_batch_script_states_its_nodes(
    lines: str, job: tuple[int, int], size: str, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "\n".join(f"#SBATCH {line}" for line in lines.split("|"))
    (tmp_path / "train.sbatch").write_text(SCRIPT.format(lines=text, nodes=job[0], gpus=job[1]))
    read = read_job(tmp_path / "train.sbatch")
    assert read.inventory == Inventory.parse(size)
    with caplog.at_level(logging.WARNING, "rankplan.notes"):
        read.announce()
    (note,) = caplog.messages
    assert note.partition("#SBATCH lines ")[2] == told


def test_a_given_size_is_not_the_one_of_a_batch_script(tmp_path: Path) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text(SCRIPT.format(lines="#SBATCH -N 2", nodes=2, gpus=8))
    done = CliRunner().invoke(main, ["check", str(script), "--nodes", "2000x8"])
    assert done.output.splitlines()[0] == f"{script}: fine, 2 components, 32 processes on 2 of 2,000 nodes"
    assert "assuming" not in done.output

"""AReaL's way in: the texts of its backends, apart and together, and its own answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError, check
from rankplan.trainers.areal.allocation import Allocation, parse_allocation, parse_mode
from rankplan.trainers.areal.dialect import DIALECT as areal
from support.goldens import check_verdict, lines

LINES = lines("areal_alloc")


def row(allocation: Allocation) -> tuple[Any, ...]:
    sizes = allocation.parallel
    return (allocation.backend, allocation.name, sizes.tp, sizes.pp, sizes.cp, sizes.ep, sizes.etp, allocation.world)


def recorded(part: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(part[key] for key in ("backend", "name", "t", "p", "c", "e", "et", "world"))


def reason(refused: PlacementError) -> str:
    """Return the difference of a text that AReaL accepts."""
    if refused.code == "duplicate-component":
        return "areal-two-of-a-kind"
    return "areal-dimension-twice" if "given twice" in refused.message else "areal-parenthesis"


@pytest.mark.parametrize("line", LINES, ids=[line["id"] for line in LINES])
def test_areal_answers_the_same(line: dict[str, Any]) -> None:
    text, single, mode = line["input"], line["result"]["single"], line["result"]["mode"]
    try:
        found = parse_allocation(text)
    except PlacementError as error:
        check_verdict(f"{line['id']} single", [] if "error" in single else [reason(error)])
    else:
        check_verdict(f"{line['id']} single", ["areal-size-of-1"] if "error" in single else [])
        if "error" in single:
            assert "e1" in text
        else:
            assert row(found) == recorded(single)
    try:
        engines = parse_mode(text)
    except PlacementError as error:
        check_verdict(f"{line['id']} mode", [] if "error" in mode else [reason(error)])
        if "error" not in mode and error.code == "duplicate-component":
            assert "error" in mode.get("type", {}), "AReaL must fail for it later"
        return
    if "error" in mode:
        named_engines = "names" in mode["error"]["message"]
        check_verdict(f"{line['id']} mode", ["areal-names" if named_engines else "areal-size-of-1"])
        return
    check_verdict(f"{line['id']} mode", [])
    assert [row(one) for _, one, _ in engines] == [recorded(part) for part in mode["parts"]]
    assert [target is None for _, _, target in engines] == [part["counted"] > 0 for part in mode["parts"]]


def plan(**engines: Any) -> Any:
    cluster = {"n_nodes": 2, "n_gpus_per_node": 8}
    return areal.plan({"cluster": cluster, **engines}, Inventory.uniform(2, 8))


def test_engines_take_consecutive_gpus_in_the_order_written() -> None:
    planned = plan(
        rollout={"backend": "sglang:d4t2"},
        actor={"backend": "megatron:d2p2t2"},
        ref={"backend": "fsdp:d8", "scheduling_strategy": {"type": "colocation", "target": "actor"}},
    )
    assert [len(one) for one in planned.values()] == [4, 8, 8]
    assert planned["rollout"][3].devices == [(0, 6), (0, 7)]
    assert planned["ref"][0].devices == planned["actor"][0].devices == [(1, 0)]
    assert [one.share for one in planned.values()] == [1.0, 0.5, 0.5]
    assert (str(planned["actor"].parallel), str(planned["rollout"].parallel)) == (
        "tp 2 x pp 2 x dp 2",
        "tp 2 x dp 4",
    )


def test_an_allocation_mode_names_all_engines() -> None:
    planned = plan(allocation_mode="sglang:d4t2+megatron:(attn:d4t2|ffn:d2e4)")
    assert list(planned) == ["rollout", "actor"]
    assert (planned["actor"].parallel.ep, planned["actor"].parallel.etp) == (4, 1)


# The text of the actor's backend, and the fault with its columns.
REFUSED = [
    ("fsdp:d4x2", "invalid-value 20-22: unknown size `x`"),
    ("fspd:d4", "invalid-value 13-17: unknown backend `fspd`"),
    ("fsdp:d4p2", "invalid-value 18-22: fsdp has no dimension `p`"),
    ("megatron:d4p2e16", "invalid-value 26-29: expert size 16 x pipeline size 2 does not divide the 8 GPUs"),
    ("megatron:(attn:d4|ffn:d2e4)", "invalid-value 22-40: attn has 4 GPUs in 1 stages, but ffn has 8 in 1"),
    ("fsdp:d32", "resource-out-of-range 12-22: actor needs 32 accelerators, more than what is left: 16"),
    ("megatron[a]:(attn:d4|ffn:e4)", "invalid-value 22-23: an engine with attn and ffn sizes cannot have a name"),
    ("d4t2", "invalid-value 13-17: expected a backend and its sizes"),
]


@pytest.mark.parametrize(("text", "expected"), REFUSED, ids=[text for text, _ in REFUSED])
def test_faults_point_into_the_text(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "areal.yaml"
    path.write_text(f'cluster: {{n_nodes: 2, n_gpus_per_node: 8}}\nactor:\n  backend: "{text}"\n')
    with pytest.raises(PlacementError) as caught:
        areal.plan(path, Inventory.uniform(2, 8))
    fault = caught.value.diagnostics[0]
    assert (fault.line, fault.path, bool(fault.help)) == (3, "actor.backend", True)
    assert fault.column is not None and fault.span is not None
    end = fault.column + fault.span[1] - fault.span[0]
    assert f"{fault.code} {fault.column}-{end}: {fault.message}" == expected


def test_other_faults_have_arealss_keys() -> None:
    with pytest.raises(PlacementError, match="no engine has a `backend`, and there is no `allocation_mode`"):
        plan()
    with pytest.raises(PlacementError, match="unknown engine 'trainer'"):
        plan(ref={"backend": "fsdp:d8", "scheduling_strategy": {"type": "colocation", "target": "trainer"}})
    with pytest.raises(PlacementError, match="`ref` has 4 processes, but shares the GPUs of the 8"):
        colocated = {"backend": "fsdp:d4", "scheduling_strategy": {"type": "colocation", "target": "actor"}}
        plan(actor={"backend": "fsdp:d8"}, ref=colocated)


BLANK = st.sampled_from(["", " "])
SIZE = st.sampled_from([1, 2, 4])


@st.composite
def engines_of_a_mode(draw: st.DrawFn) -> tuple[str, list[tuple[str, int, int]]]:
    """A text of AReaL's grammar with the name, GPUs and expert size of each engine, all of 16 GPUs."""
    text, expected = "", []
    for index in range(draw(st.integers(1, 4))):
        blank, name = draw(BLANK), f"e{index}"
        kind = draw(st.sampled_from(["sglang", "fsdp", "megatron", "hybrid"]))
        dp, tp = 16 // (size := draw(SIZE)), size
        if kind == "hybrid" and "actor" not in [name for name, _, _ in expected]:
            opened, closed = draw(st.sampled_from([("(", ")"), ("", "")]))
            part = f"megatron:{blank}{opened}attn:d{dp}t{tp}{blank}|{blank}ffn{blank}:e{tp}{closed}"
            expected.append(("actor", 16, tp))
        else:
            part = f"{kind.replace('hybrid', 'archon')}{blank}[{name}]:{blank}d{dp}{blank}t{tp}"
            expected.append((name, 16, 1))
        text += draw(st.sampled_from(["+", "|", " + ", " | "])) + part if text else part
    return text, expected


@given(engines_of_a_mode())
def test_every_text_of_the_grammar_is_read(mode: tuple[str, list[tuple[str, int, int]]]) -> None:
    text, expected = mode
    found = [(name, one.world, one.parallel.ep) for name, one, _ in parse_mode(text)]
    assert found == expected


def test_an_engine_without_a_name_avoids_the_names_of_others() -> None:
    found = [name for name, _, _ in parse_mode("vllm:t4+fsdp[rollout]:d4")]
    assert found == ["gen", "rollout"]
    assert [name for name, _, _ in parse_mode("sglang[actor]:d4+fsdp:d4")] == ["actor", "train"]


# Sections beside those of the engines, and the engines that AReaL's trainers start.
STARTS = [
    ({"actor": {"kl_ctl": 0.0}}, ["rollout", "actor"]),
    ({"actor": {"kl_ctl": 0.1}}, ["rollout", "actor", "ref"]),
    ({"actor": {}}, ["rollout", "actor", "ref"]),  # the default is 0.1
    ({"actor": {"kl_ctl": "${beta}"}, "beta": 0}, ["rollout", "actor"]),
    ({"actor": {"kl_ctl": 0.0}, "rollout": None}, ["actor", "ref"]),  # preferences are learned against the reference
]


@pytest.mark.parametrize(("sections", "expected"), STARTS, ids=[str(sections) for sections, _ in STARTS])
def test_the_reference_starts_only_where_areal_starts_it(sections: dict[str, Any], expected: list[str]) -> None:
    backends = {"rollout": "sglang:d8", "actor": "fsdp:d8", "ref": "fsdp:d8"}
    strategy = {"scheduling_strategy": {"type": "colocation", "target": "actor"}}
    config = {name: {"backend": text} for name, text in backends.items()}
    config["ref"] |= strategy
    for name, section in sections.items():
        config[name] = {**config.get(name, {}), **section} if isinstance(section, dict) else section
    assert list(plan(**config)) == expected


def test_engines_without_gpus_run_on_cpus() -> None:
    engine: dict[str, Any] = {"scheduling_spec": "${actor.scheduling_spec}"}
    config = {
        "cluster": {"n_nodes": 1, "n_gpus_per_node": 0},
        "rollout": {"backend": "vllm:d2", **engine},
        "actor": {"backend": "fsdp:d1", "kl_ctl": 0, "scheduling_spec": [{"gpu": 0, "cpu": 4}]},
    }
    planned = areal.plan(config, areal.assumed_inventory(config))
    assert [(row.cluster_node_rank, row.devices) for rows in planned.values() for row in rows] == [(0, [])] * 3
    with_gpus = plan(**config | {"actor": {"backend": "fsdp:d1", "scheduling_spec": [{"gpu": 1}]}})
    assert [row.num_accelerators for rows in with_gpus.values() for row in rows] == [1, 1, 1]


# The engines of a config, and its fault.
ENGINES = [
    ({"rollout": {"backend": "fsdp:d8"}}, "the backend of `rollout` is fsdp; it must be sglang or vllm"),
    ({"actor": {"backend": "vllm:d8"}}, "the backend of `actor` is vllm; it must be fsdp or megatron or archon"),
    ({"actor": {"backend": "fsdp:d8"}, "rollout": {}}, "`rollout` has no `backend`"),
    ({"actor": {"backend": "fsdp:d8", "kl_ctl": "high"}, "rollout": {}, "ref": {}}, "`kl_ctl` is 'high'"),
    (
        {
            "actor": {"backend": "fsdp:d8", "scheduling_strategy": {"type": "colocation", "target": "rollout"}},
            "rollout": {"backend": "sglang:d8"},
        },
        "`actor` shares the GPUs of `rollout`, which starts after it",
    ),
    (
        {"scheduler": {"type": "slurm"}, "actor": {"backend": "fsdp:d12"}},
        "`actor` has 12 GPUs, but Slurm allocates whole nodes of 8",
    ),
]


@pytest.mark.parametrize(("engines", "expected"), ENGINES, ids=[expected for _, expected in ENGINES])
def test_what_areal_refuses_at_its_start(engines: dict[str, Any], expected: str) -> None:
    with pytest.raises(PlacementError) as caught:
        plan(**engines)
    assert expected in str(caught.value)


@pytest.mark.parametrize(("kind", "backend"), [(None, "vllm:d2t2"), ("rollout", "sglang:d2t2"), ("train", "fsdp:d2")])
def test_a_newer_teacher_has_a_section_of_its_kind(kind: str | None, backend: str) -> None:
    """AReaL: ``TeacherConfig`` (cbff54d)."""
    kinds = {"rollout": {"backend": "sglang:d1"}, "train": {"backend": "fsdp:d1"}}
    kinds[kind or "rollout"] = {"backend": backend}
    teacher = kinds | ({} if kind is None else {"engine_type": kind})
    planned = plan(rollout={"backend": "sglang:d2"}, actor={"backend": "fsdp:d2"}, teacher=teacher)
    assert (len(planned["teacher"]), len(planned["teacher"][0].devices)) == (2, 1 if kind == "train" else 2)


def test_a_rollout_on_the_actors_gpus_has_processes_of_its_own() -> None:
    """AReaL: ``RolloutController`` with ``weight_update_mode: awex`` (cbff54d)."""
    strategy = {"type": "colocation", "target": "actor"}
    planned = plan(rollout={"backend": "sglang:d2t4", "scheduling_strategy": strategy}, actor={"backend": "fsdp:d8"})
    devices = [device for row in planned["actor"] for device in row.devices]
    assert [list(row.devices) for row in planned["rollout"]] == [devices[:4], devices[4:]]


def test_a_config_of_the_first_areal_has_one_fault(tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text("allocation_mode: d4p2m1\ncluster: {n_nods: 2}\nactor: {type: {}}\nref: {type: {}}\n")
    refused = check(path)
    assert [fault.message for fault in refused.faults] == [
        "this is a config of AReaL before 0.3.1 (`realhf`), which rankplan does not read"
    ]


@pytest.mark.parametrize(
    ("name", "version", "components"),
    [
        ("online_rollout.yaml", "v2", ["rollout"]),
        ("online_rollout.yaml", "v1", ["rollout", "actor"]),
        ("config.yaml", "v2", ["rollout", "actor"]),
    ],
)
def test_a_program_of_inference_starts_the_rollout_alone(
    name: str, version: str, components: list[str], tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(
        "cluster: {n_nodes: 1, n_gpus_per_node: 2}\n"
        f"rollout: {{_version: {version}, backend: 'sglang:d1'}}\nactor: {{backend: 'fsdp:d1'}}\n"
    )
    assert list(rankplan.plan(path)) == components

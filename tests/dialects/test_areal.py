"""AReaL's way in: the texts of its backends, apart and together, and its own answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rankplan import Inventory, PlacementError
from rankplan.dialects import areal
from rankplan.dialects.areal import Allocation
from support.goldens import lines, named

LINES = lines("areal_alloc")


def row(allocation: Allocation) -> tuple[Any, ...]:
    sizes = allocation.parallel
    return (allocation.backend, allocation.name, sizes.tp, sizes.pp, sizes.cp, sizes.ep, sizes.etp, allocation.world)


def recorded(part: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(part[key] for key in ("backend", "name", "t", "p", "c", "e", "et", "world"))


def refused_here(text: str, answer: dict[str, Any]) -> None:
    """Name the difference of a text that AReaL accepts."""
    with pytest.raises(PlacementError) as caught:
        areal.parse_mode(text)
    found = caught.value
    if found.code == "duplicate-component":
        assert "error" in answer.get("type", {}), "AReaL must fail for it later"
        named("areal-two-of-a-kind")
    else:
        named("areal-dimension-twice" if "given twice" in found.message else "areal-parenthesis")


@pytest.mark.parametrize("line", LINES, ids=[line["id"] for line in LINES])
def test_areal_answers_the_same(line: dict[str, Any]) -> None:
    text, single, mode = line["input"], line["result"]["single"], line["result"]["mode"]
    try:
        found = areal.parse_allocation(text)
    except PlacementError as error:
        if "error" not in single:
            named("areal-dimension-twice" if "given twice" in error.message else "areal-parenthesis")
    else:
        if "error" in single:
            assert "e1" in text
            named("areal-size-of-1")
        else:
            assert row(found) == recorded(single)
    try:
        engines = areal.parse_mode(text)
    except PlacementError:
        if "error" not in mode:
            refused_here(text, mode)
        return
    if "error" in mode:
        named("areal-names" if "names" in mode["error"]["message"] else "areal-size-of-1")
        return
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
    ("megatron:d4p2e16", "invalid-value 22-29: expert size 16 x pipeline size 2 does not divide the 8 GPUs"),
    ("megatron:(attn:d4|ffn:d2e4)", "invalid-value 22-40: attn has 4 GPUs in 1 stages, but ffn has 8 in 1"),
    ("fsdp:d32", "resource-out-of-range 12-22: actor needs 32 accelerators, more than what is left: 16"),
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
    with pytest.raises(PlacementError, match="ref shares the 8 GPUs of actor, but has 4"):
        colocated = {"backend": "fsdp:d4", "scheduling_strategy": {"type": "colocation", "target": "actor"}}
        plan(actor={"backend": "fsdp:d8"}, ref=colocated)

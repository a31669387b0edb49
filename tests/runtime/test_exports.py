"""The driver's exports and lists of folders, in ranks on a real cluster of two nodes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rankplan import Cluster, ComponentPlacement, NodePlacementStrategy
from rankplan.runtime.nodes.exports import as_selection, find_exports, selected
from support.workers import Reader

EXPORTED = {
    "HF_HOME": "/data/hf",
    "PRICE": "5$ ${HOME}",
    "RANK": "77",
    "OLDPWD": "/nowhere",
    "SSH_TTY": "/dev/pts/9",
    "MODE": "of the driver",
    "OMP_NUM_THREADS": "3",
    "CPATH": "relative:/driver/include",
    "LD_LIBRARY_PATH": "/driver/lib",
}
GROUP = {
    "label": "fast",
    "node_ranks": 1,
    "env_configs": [
        {
            "node_ranks": 1,
            "env_vars": [{"MODE": "of the group"}, {"CPATH": "/group/include"}, {"LD_LIBRARY_PATH": "/group/lib"}],
        }
    ],
}
SECTION = {
    "num_nodes": 2,
    "component_placement": {"plain": 0, "fast": {"node_group": "fast", "placement": 0}},
    "node_groups": [GROUP],
}
NAMES = ("HF_HOME", "PRICE", "RANK", "OLDPWD", "SSH_TTY", "MODE", "OMP_NUM_THREADS", "CPATH", "LD_LIBRARY_PATH")


@pytest.fixture
def exported(two_nodes: Cluster, tmp_path: Path) -> Iterator[Path]:
    """Export variables after Ray was started, and a folder with modules."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**EXPORTED, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}.items():
            patch.setenv(name, value)
        yield tmp_path


def test_exports_reach_every_rank_before_the_variables_of_its_group(exported: Path) -> None:
    here = str(Path("relative").absolute())
    with Cluster(SECTION) as cluster:
        placement = ComponentPlacement({"cluster": SECTION}, cluster)
        seen = {}
        for name in placement.components:
            with Reader.create_group().launch(cluster, placement.get_strategy(name), name=name) as group:
                (values,) = group.environment(*NAMES).wait()
                seen[name] = dict(zip(NAMES, values, strict=True))
                assert group.at_start("LD_LIBRARY_PATH").wait() == [True]
                assert group.import_path().wait()[0][0] == str(exported)
    for found in seen.values():
        assert (found["HF_HOME"], found["PRICE"], found["OMP_NUM_THREADS"]) == ("/data/hf", "5$ ${HOME}", "3")
        assert found["RANK"] == "0", "the plan decides"
        assert found["OLDPWD"] != "/nowhere" and found["SSH_TTY"] != "/dev/pts/9", "they belong to the shell"
    assert seen["plain"]["MODE"] == "of the driver" and seen["fast"]["MODE"] == "of the group"
    assert seen["plain"]["CPATH"] == f"{here}:/driver/include"
    assert seen["fast"]["CPATH"] == f"/group/include:{here}:/driver/include"
    assert (seen["plain"]["LD_LIBRARY_PATH"] or "").split(":")[0] == "/driver/lib"
    assert (seen["fast"]["LD_LIBRARY_PATH"] or "").split(":")[:2] == ["/group/lib", "/driver/lib"]


@pytest.mark.usefixtures("exported")
def test_forward_env_selects_exports(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rankplan")
    with Cluster(num_nodes=2, forward_env=["HF_*", "OLDPWD", "SSH_*"]) as cluster:
        group = Reader.create_group().launch(cluster, NodePlacementStrategy([1]))
        assert group.environment("HF_HOME", "OLDPWD", "SSH_TTY", "MODE").wait() == [
            ("/data/hf", "/nowhere", None, None)
        ]
    assert "every rank gets 2 variables of this program (forward_env): HF_HOME, OLDPWD" in caplog.messages
    assert "/data/hf" not in caplog.text, "values may be secret"


def test_without_a_difference_nothing_is_forwarded(two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert two_nodes.nodes.exports == {}
    monkeypatch.setenv("HF_HOME", "/data/hf")
    assert find_exports(False) == {}
    assert find_exports(["PATH"]) == {"PATH": os.environ["PATH"]}, "a name is exported even if it does not differ"


@pytest.mark.parametrize(
    ("selection", "error", "message"),
    [
        ("HF_HOME", TypeError, r"forward_env is 'HF_HOME'; pass True, False, or a list of names such as \['HF_HOME'\]"),
        (7, TypeError, "forward_env is 7; pass True, False, or a list"),
        ([7], TypeError, "forward_env contains 7; it must be a list of variable names or patterns"),
        (["A", "RANK"], ValueError, "forward_env contains RANK, which is set by the plan; remove it"),
        (["RLINF_NODE_RANK"], ValueError, "forward_env contains RLINF_NODE_RANK, which orders the nodes; remove it"),
    ],
)
def test_an_invalid_selection_is_refused(selection: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Cluster(forward_env=selection)
    assert as_selection(("A",)) == ["A"]


def test_what_is_selected() -> None:
    driver = {
        "A": "1",
        "B": "2",
        "PWD": "/x",
        "RAY_X": "1",
        "BASH_FUNC_f%%": "() {",
        "C": "\udcff",
        "SLURM_PROCID": "0",
    }
    assert selected(True, driver, {"A": "1"}) == {"B": "2"}
    assert selected(["A", "RAY_X"], driver, {"A": "1"}) == {"A": "1", "RAY_X": "1"}
    assert selected(["*"], driver, {"A": "0"}) == {"A": "1", "B": "2"}
    assert selected(["PWD*"], driver, {}) == {}, "a pattern does not select what belongs to a shell"

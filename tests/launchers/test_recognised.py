"""Which files have been written for a launcher: those with the mark in its place, and no file that only quotes one."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import indent

import pytest
import rankplan
from rankplan import EmitOptions, PlacementError
from rankplan.marks import has_mark, is_emitted
from support.launchers import OPTIONS, WITHOUT_RAY
from support.paths import ROOT

PLAN = rankplan.plan({"cluster": {"num_nodes": 2, "component_placement": {"actor": "all"}}}, "2x8")
SCRIPTS = ("slurm", "torchrun", "mpirun")
TARGETS = ("kuberay", "jobset", "lws", *SCRIPTS)
HOSTS = rankplan.Inventory.from_dict(
    {"nodes": [{"ranks": rank, "accelerators": 8, "hostname": f"n{rank}"} for rank in range(2)]}
)


def emitted(target: str) -> str:
    given = {"image": "train:1"} if target not in SCRIPTS else {}
    return rankplan.emit(PLAN.fitted(HOSTS), target, EmitOptions(**OPTIONS.get(target, WITHOUT_RAY), **given))


@pytest.mark.parametrize("target", TARGETS)
def test_a_file_is_recognised_with_what_people_put_above_it(target: str) -> None:
    text = emitted(target)
    assert has_mark(text.encode())
    assert has_mark(text.replace("\n", "\r\n").encode())
    if target in SCRIPTS:
        first, rest = text.split("\n", 1)
        assert has_mark(f"{first}\n# by hand\n\nmodule load cuda\n{rest}".encode())
    else:
        assert has_mark(f"# by hand\n---\n{text}".encode())
        assert has_mark(text.replace("annotations:", "annotations:\n    team: rl").encode())


@pytest.mark.parametrize("target", TARGETS)
def test_line_endings_of_windows_are_named_where_they_matter(target: str, tmp_path: Path) -> None:
    (file := tmp_path / "train").write_bytes(emitted(target).replace("\n", "\r\n").encode())
    if target not in SCRIPTS:
        assert rankplan.plan(file).components == ["actor"]
        return
    with pytest.raises(PlacementError) as refused:
        rankplan.plan(file)
    (fault,) = refused.value.diagnostics
    assert (fault.code, fault.line) == ("emit-changed", 1) and fault.message.startswith("the lines end in CRLF")


@pytest.mark.parametrize("target", SCRIPTS)
def test_a_base_with_line_endings_of_windows_is_refused(target: str, tmp_path: Path) -> None:
    (base := tmp_path / "base.sh").write_bytes(b"#!/bin/bash\nmodule load cuda\r\n")
    with pytest.raises(PlacementError, match=r"base\.sh:2: the lines end in CRLF") as refused:
        rankplan.emit(PLAN.fitted(HOSTS), target, EmitOptions(**WITHOUT_RAY, base=base))
    assert refused.value.code == "emit-conflict"


@pytest.mark.parametrize("target", TARGETS)
def test_who_loads_a_file_as_a_saved_plan_learns_what_reads_it(target: str, tmp_path: Path) -> None:
    (file := tmp_path / "train").write_text(emitted(target))
    with pytest.raises(PlacementError, match="this is the file of a launcher") as refused:
        rankplan.Plan.load(file)
    assert "`rankplan.plan`" in str(refused.value) and rankplan.plan(file).components == ["actor"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", ["block", "item", "quoted", "here-document", "after the body", "comment"])
def test_a_file_that_quotes_one_is_not_recognised(target: str, shape: str) -> None:
    text = emitted(target)
    quoted = {
        "block": f"page:\n  example: |\n{indent(text, '    ')}",
        "item": f"metadata:\n  name: x\npages:\n- |\n{indent(text, '  ')}",
        "quoted": f"page: {json.dumps(text)}\n",
        "here-document": f"#!/bin/bash\ncat >file <<'END'\n{text}END\n",
        "after the body": f"#!/bin/bash\nset -euo pipefail\ncat >file <<'END'\n{text}END\n",
        "comment": indent(text, "# "),
    }[shape]
    assert not has_mark(quoted.encode())


def test_no_file_of_the_repository_is_recognised() -> None:
    folders = [folder for folder in ROOT.glob("[!.]*") if folder.name != "target"]  # builds, and packages of others
    paths = [path for folder in folders for suffix in ("yaml", "sh") for path in folder.rglob(f"*.{suffix}")]
    assert Path(ROOT, "python/rankplan/cli/rules.yaml") in paths
    assert [path for path in paths if is_emitted(path)] == []

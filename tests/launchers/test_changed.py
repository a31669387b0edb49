"""Whatever somebody changes in an emitted file and decides a placement is found, with its line."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from rankplan import EmitOptions
from rankplan.launchers.yaml_text import documents_text
from support.launchers import CASES, options, planned

Path_ = tuple[str | int, ...]
TARGETS = ("kuberay", "jobset", "lws")
WRITTEN = [
    (case, target)
    for case in ("v03", "v08", "v17")
    for target in TARGETS
    if "refused" not in CASES[case]["targets"][target]
]
USERS = {"image", "entrypoint", "suspend", "volumes", "volumeMounts", "namespace"}
"""Fields that decide no placement."""


def fields(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield the path of every mapping, list and scalar below a value."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from fields(part, (*path, key))


def at(value: Any, path: Path_) -> Any:
    for part in path:
        value = value[part]
    return value


def decides(document: dict[str, Any], path: Path_) -> bool:
    """Whether a field decides a placement."""
    if not USERS.isdisjoint(path) or "kueue.x-k8s.io/queue-name" in path or path == ("metadata", "labels"):
        return False
    if "env" in path and len(path) > path.index("env") + 1:
        return at(document, path[: path.index("env") + 2])["name"] != "RANKPLAN_PLAN"
    value = at(document, path)
    return not (isinstance(value, str) and "=python " in value)


def changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"{value}x" if isinstance(value, str) else None


def mutations(document: dict[str, Any]) -> Iterator[tuple[Path_, dict[str, Any]]]:
    """Yield the object with one field changed, or removed."""
    for path in fields(document):
        if not decides(document, path):
            continue
        for remove in (False, True):
            other = copy.deepcopy(document)
            parent = at(other, path[:-1])
            if not remove and (new := changed(parent[path[-1]])) is not None:
                parent[path[-1]] = new
            elif remove and parent[path[-1]] not in ({}, []):
                del parent[path[-1]]
            if other != document:
                yield path, other


@pytest.mark.parametrize(("case", "target"), WRITTEN)
def test_every_change_of_a_placement_is_found(case: str, target: str, tmp_path: Path) -> None:
    text = rankplan.emit(planned(case), target, EmitOptions(image="train:1", **options(case, target)))
    plan, started = yaml.safe_load_all(text)
    file = tmp_path / "train.yaml"
    count = 0
    for path, other in mutations(started):
        file.write_text(documents_text([plan, other]))
        with pytest.raises(rankplan.PlacementError) as found:
            rankplan.plan(file)
            pytest.fail(f"not found: {path}")
        codes = {one.code for one in found.value.diagnostics}
        assert "emit-changed" in codes, (path, codes)
        assert all(one.file == str(file) for one in found.value.diagnostics)
        count += 1
    assert count > 50


def _accepts(function: Callable[[], object]) -> bool:
    """Whether a call returns; it may raise nothing but a refusal."""
    try:
        function()
    except rankplan.PlacementError:
        return False
    return True


@pytest.mark.parametrize("target", TARGETS)
def test_no_damage_is_a_traceback(target: str, tmp_path: Path) -> None:
    """Whatever a field is replaced by, the file is read or rejected, also as a base and as an inventory."""
    text = rankplan.emit(planned("v04"), target, EmitOptions(image="train:1", **options("v04", target)))
    documents = list(yaml.safe_load_all(text))
    file = tmp_path / "train.yaml"
    base = EmitOptions(base=file, **options("v04", target))
    uses: dict[str, Callable[[], object]] = {
        "plan": lambda: rankplan.plan(file),
        "inventory": lambda: rankplan.Inventory.load(file),
        "base": lambda: rankplan.emit(planned("v04"), target, base),
    }
    outcomes: Counter[tuple[str, bool]] = Counter()
    odd = itertools.cycle([None, 1, True, "x", [], {}, [1], {"name": 1}, [{"name": 2}], [{"name": "*"}], 10**30, "$$("])
    for index, document in enumerate(documents):
        for path in fields(document):
            other = copy.deepcopy(document)
            at(other, path[:-1])[path[-1]] = next(odd)
            file.write_text(documents_text([*documents[:index], other, *documents[index + 1 :]]))
            for use, function in uses.items():
                outcomes[use, _accepts(function)] += 1
    # so that the test does not pass because every file is refused, or none
    for outcome, count in outcomes.items():
        assert count >= (5 if outcome == ("inventory", False) else 20), outcome
    assert len(outcomes) == 2 * len(uses)

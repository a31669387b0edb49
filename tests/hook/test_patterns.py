"""Names of placement groups: short patterns that match what trainers write out, and many patterns at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, Plan, plan
from rankplan_hook.patterns import Names, readable, split
from support.configs import from_overrides

SIZES = st.tuples(st.integers(1, 40), st.integers(1, 24))


def verl(nodes: int, each: int) -> Any:
    words = [f"trainer.nnodes={nodes}", f"trainer.n_gpus_per_node={each}", "algorithm.adv_estimator=grpo"]
    return from_overrides([*words, "actor_rollout_ref.rollout.tensor_model_parallel_size=1"])


def verls_name(sizes: list[int], number: int) -> str:
    """The name that ``RayResourcePool.get_placement_groups`` gives the group of a node."""
    return f"global_poolverl_group_{'_'.join(map(str, sizes))}:{number}"


@given(SIZES, st.data())
def test_a_pattern_matches_the_name_that_verl_writes_and_no_neighbour(
    size: tuple[int, int], data: st.DataObject
) -> None:
    nodes, each = size
    requests = plan(verl(nodes, each), Inventory.uniform(nodes, each)).requests
    assert len(requests) == nodes
    number = data.draw(st.integers(0, nodes - 1))
    pattern = requests[number].name or ""
    sizes = [each] * nodes
    assert re.fullmatch(pattern, verls_name(sizes, number))
    others = [[*sizes, each], sizes[1:], [each + 1, *sizes[1:]], [*sizes[:-1], each + 1], [each * 10, *sizes[1:]]]
    assert not any(re.fullmatch(pattern, verls_name(other, number)) for other in others)
    numbers = {*range(nodes + 2), number * 10, number * 10 + 1} - {number}
    assert not any(re.fullmatch(pattern, verls_name(sizes, other)) for other in numbers)
    assert [at for at, one in enumerate(requests) if re.fullmatch(one.name or "", verls_name(sizes, number))] == [
        number
    ]


def test_a_name_is_short_however_many_nodes_it_names() -> None:
    requests = plan(verl(65_537, 1), Inventory.uniform(65_537, 1)).requests
    assert requests[-1].name == "global_poolverl_group_1(?:_1){65536}:65536"
    assert max(len(one.name or "") for one in requests) < 60


def test_names_that_differ_in_their_number_are_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = plan(verl(500, 2), Inventory.uniform(500, 2))
    found.save(path := tmp_path / "plan.json")
    compiled: list[str] = []
    original = re.compile

    def counting(pattern: Any, *flags: Any) -> Any:
        compiled.append(str(pattern))
        return original(pattern, *flags)

    monkeypatch.setattr(re, "compile", counting)
    again = Plan.load(path)
    names = Names()
    for number, one in enumerate(again.requests):
        names.add(one.name, range(number, number + 1))
    taken = {names.first(verls_name([2] * 500, number), lambda at: False) for number in range(500)}
    monkeypatch.undo()
    assert again == found and taken == {*range(500)}
    assert len([pattern for pattern in compiled if "verl_group" in pattern]) < 5


PIECES = [
    "a",
    "b",
    r"\-",
    "_",
    ":",
    "7",
    "17",
    "0",
    "01",
    "(a|b)",
    "(?:_7){2}",
    "(?:ab){3}",
    r"\d",
    "[0-7]+",
    ".*",
    "b*?",
]
ODD = [
    "a|b",
    r"\x4",
    r"\u00e",
    "(?=1)",
    r"\b",
    "$",
    "^",
    "[|]",
    "[]a]+",
    "(?x)a # ",
    "(a)",
    r"\\",
    "a{",
    "a{1,",
    "7*+",
    "(?i)A",
]
PATTERNS = st.lists(st.sampled_from([*PIECES, *PIECES, *ODD]), min_size=1, max_size=4).map("".join)
NAMES = st.lists(st.sampled_from(["a", "b", "A", "-", "_", ":", "7", "17", "1", "0", "_7_7", "ababab"]), max_size=5)


def is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, FutureWarning, DeprecationWarning):
        return False
    return True


@given(PATTERNS.filter(is_pattern), NAMES.map("".join))
def test_a_template_and_a_number_match_what_the_pattern_does(pattern: str, name: str) -> None:
    template, number = split(pattern)
    assert pattern == template + ("" if number is None else str(number))
    if number is not None:
        apart = name.endswith(str(number)) and re.fullmatch(template, name.removesuffix(str(number)))
        assert bool(apart) == bool(re.fullmatch(pattern, name))


@pytest.mark.parametrize(
    "pattern",
    [
        "a|b7",
        "(a)|b7",
        "a$7",
        "^7",
        r"a\b7",
        r"a\B7",
        r"a\Z7",
        "a(?=7)7",
        "a(?<=a)7",
        r"\x41",
        r"(a)\1",
        "a07",
        "[(]|b7",
    ],
)
def test_a_number_that_is_no_text_after_a_pattern_is_a_part_of_it(pattern: str) -> None:
    assert split(pattern) == (pattern, None)


@pytest.mark.parametrize(
    "template", ["a", "", "(a|b)", "[|]", r"a\|", r"a\$", "[$^]", "(.*_)?c-node", "8(?:_8){9999}:", "a{2}"]
)
def test_a_number_after_a_pattern_is_apart(template: str) -> None:
    assert split(f"{template}17") == (template, 17)


@given(
    st.lists(st.none() | PATTERNS.filter(is_pattern), max_size=6),
    st.lists(
        st.tuples(st.sampled_from(["a", "b:", "(a|b)_", "a|b", "(?:_7){2}:"]), st.integers(0, 30), st.integers(1, 9))
    ),
    NAMES.map("".join),
    st.data(),
)
def test_the_first_free_one_of_many_is_found(
    single: list[str | None], rows: list[tuple[str, int, int]], name: str, data: st.DataObject
) -> None:
    patterns = [*single, *(f"{template}{first + step}" for template, first, count in rows for step in range(count))]
    data.draw(st.randoms(use_true_random=False)).shuffle(patterns) if data.draw(st.booleans()) else None
    names = Names()
    for number, pattern in enumerate(patterns):
        names.add(pattern, range(number, number + 1))
    taken = data.draw(st.sets(st.integers(0, max(len(patterns) - 1, 0))))
    suiting = [at for at, one in enumerate(patterns) if at not in taken and (one is None or re.fullmatch(one, name))]
    assert names.first(name, taken.__contains__) == min(suiting, default=None)


@given(st.lists(st.tuples(st.sampled_from("ab_-:.8"), st.integers(1, 30)), min_size=1, max_size=4))
def test_a_readable_name_is_the_name_itself_if_it_is_short(parts: list[tuple[str, int]]) -> None:
    name = "".join(text * times for text, times in parts)
    pattern = "".join(f"(?:{re.escape(text)}){{{times}}}" for text, times in parts)
    assert readable(re.escape(name)) == name
    assert readable(pattern) == (name if len(name) <= 60 else pattern.replace("?:", "").replace("\\", ""))


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        (r"global_poolverl_group_8(?:_8){9999}:17", "global_poolverl_group_8(_8){9999}:17"),
        (r"global_poolverl_group_8(?:_8){9}:17", "global_poolverl_group_8_8_8_8_8_8_8_8_8_8:17"),
        (r"CLUSTER\-node0", "CLUSTER-node0"),
        (r"pool_\d+:0", r"pool_\d+:0"),
        (r"(.*_)?(policy|train)_cluster-node3", r"(.*_)?(policy|train)_cluster-node3"),
    ],
)
def test_people_read_names(pattern: str, shown: str) -> None:
    assert readable(pattern) == shown

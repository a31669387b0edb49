"""The placement language: what each text means, what is refused, and the words of every refusal."""

from __future__ import annotations

import pickle
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rankplan import PlacementError, RankSet, parse_placement
from rankplan.testing import invalid_placements, placements
from support import oracle
from support.outcomes import at_least, outcome
from support.rejected.language import GRAMMAR, REFUSED

# ---------------------------------------------------------------------------------------------------- valid texts

# (text, resources in the group, canonical text)
VALID = [
    # the table of the design
    ("0-1:0-3,3-5,7-10:7-14", 11, "0-1:0-3,3-5:4-6,7-10:7-14"),
    ("0-1,4-5:2-3", 8, "0-1:0-1,4-5:2-3"),
    ("0-1,4-5:0-3", 8, "0-1,4-5:0-3"),
    ("0,2:0", 8, "0,2:0"),
    ("0-1,4-5,8-9:2-3", 10, "0-1:0-1,4-5,8-9:2-3"),
    # one range, one rank, everything
    ("0", 1, "0:0"),
    ("0-7", 8, "0-7:0-7"),
    ("3-3", 8, "3:0"),
    ("all", 8, "0-7:0-7"),
    ("ALL", 1, "0:0"),
    ("aLl:0-3", 8, "0-7:0-3"),
    (" All : 0-15 ", 8, "0-7:0-15"),
    # blanks around every token
    ("\t0 -\n1 : 0 - 3 ,\r\n 3 ", 4, "0-1:0-3,3:4"),
    ("0-3:0-1,\n4-7:2-3,\n8-15\n", 16, "0-3:0-1,4-7:2-3,8-15:4-11"),
    # empty parts
    ("0-3,", 8, "0-3:0-3"),
    (",,0-3,,4-7, ,", 8, "0-3:0-3,4-7:4-7"),
    ("0,,2:0", 8, "0,2:0"),
    # process ranks that count on
    ("0,1,2", 3, "0:0,1:1,2:2"),
    ("0-3:0,4,5-6", 8, "0-3:0,4:1,5-6:2-3"),
    ("0:0-9,1:10", 2, "0:0-9,1:10"),
    # lists of ranges that share process ranks
    ("0,1,2,3:0-1", 4, "0-3:0-1"),
    ("0,1,2,3:1-6", 4, "0:0,1-3:1-6"),
    ("0-2,4,6:3", 8, "0-2:0-2,4,6:3"),
    ("0:0,1,3:1,4,6:2", 8, "0:0,1,3:1,4,6:2"),
    ("0,2:0,4", 8, "0,2:0,4:1"),
    ("0,1:1", 2, "0:0,1:1"),
]


@pytest.mark.parametrize(("text", "resources", "canonical"), VALID)
def test_valid_text_has_its_canonical_text(text: str, resources: int, canonical: str) -> None:
    rank_map = parse_placement(text, resources)
    assert str(rank_map) == canonical == oracle.canonical(oracle.read(text, resources)[0])


@pytest.mark.parametrize(("text", "resources", "canonical"), VALID)
def test_parse_inverts_display(text: str, resources: int, canonical: str) -> None:
    rank_map = parse_placement(text, resources)
    assert parse_placement(canonical, resources) == rank_map
    assert pickle.loads(pickle.dumps(rank_map)) == rank_map
    assert hash(parse_placement(canonical)) == hash(rank_map)


def test_segments_are_pairs_of_rank_sets() -> None:
    rank_map = parse_placement("0-1,4-5:0-3,6")
    assert rank_map.segments == [(RankSet("0-1,4-5"), RankSet("0-3")), (RankSet("6"), RankSet("4"))]
    assert rank_map.world_size == 5


def test_without_bounds_every_rank_is_allowed_but_all_is_not() -> None:
    largest = oracle.LARGEST_RANK
    assert str(parse_placement(f"0,{largest}")) == f"0:0,{largest}:1"
    with pytest.raises(PlacementError) as refused:
        parse_placement("all")
    assert refused.value.code == "no-resources"
    assert refused.value.message == "`all` needs the number of resources, which is unknown here"
    assert refused.value.help == "pass the number of resources, or write ranks such as 0-7"


# -------------------------------------------------------------------------------------------------- refused texts


def faults(text: str, resources: int | None) -> list[tuple[str, str]]:
    with pytest.raises(PlacementError) as refused:
        parse_placement(text, resources)
    found = refused.value.diagnostics
    assert [fault.span for fault in found] == sorted(fault.span for fault in found), "not in the order of the text"
    return [(fault.code, text[slice(*fault.span)]) for fault in found]


def codes(text: str, resources: int | None) -> list[str]:
    return [code for code, _ in faults(text, resources)]


@pytest.mark.parametrize(("text", "resources", "expected"), REFUSED)
def test_refused_text_has_its_codes_and_places(text: str, resources: int, expected: list[tuple[str, str]]) -> None:
    assert faults(text, resources) == expected


@pytest.mark.parametrize(("text", "resources", "expected"), REFUSED)
def test_the_oracle_refuses_with_the_same_codes(text: str, resources: int, expected: list[tuple[str, str]]) -> None:
    try:
        found = oracle.read(text, resources)[1]
    except oracle.Refused as refused:
        found = refused.codes
    assert sorted(found) == sorted(code for code, _ in expected)


# ---------------------------------------------------------------------------------------------- against the oracle

rank_texts = st.integers(0, 12).map(str) | st.sampled_from(["4294967294", "4294967295", "007", "+1", "\u0663", ""])
range_texts = st.one_of(
    st.tuples(st.integers(0, 12), st.integers(0, 3)).map(lambda ends: f"{ends[0]}-{ends[0] + ends[1]}"),
    st.tuples(rank_texts, st.sampled_from(["-", " - ", "--", ":"]), rank_texts).map("".join),
    rank_texts,
    st.sampled_from(["all", "ALL", "", " "]),
)
part_texts = range_texts | st.tuples(range_texts, st.sampled_from([":", " : ", "::"]), range_texts).map("".join)
placement_texts = st.one_of(
    st.lists(part_texts, max_size=6).map(",".join),
    placements(12),
    invalid_placements().map(lambda case: case.text),
)


@given(placement_texts, st.none() | st.integers(0, 14))
def test_any_text_near_the_grammar_reads_as_the_oracle_reads_it(text: str, resources: int | None) -> None:
    check_against_oracle(text, resources)


@given(st.text() | st.text(alphabet="0123 \t\n,:-aAlL\u0663_+"), st.integers(0, 8))
@example("\ud800", 4)
@example("\0", 4)
@example("\u00a0", 4)
@example("\u202e0-3", 4)
def test_any_text_at_all_reads_as_the_oracle_reads_it(text: str, resources: int) -> None:
    check_against_oracle(text, resources)


def check_against_oracle(text: str, resources: int | None) -> None:
    try:
        segments, expected = oracle.read(text, resources)
    except oracle.Refused as refused:
        segments, expected = [], refused.codes
    if expected:
        assert sorted(codes(text, resources)) == sorted(expected)
    else:
        assert str(parse_placement(text, resources)) == oracle.canonical(segments)


@at_least(refused=0.3)
@given(placement_texts, st.integers(0, 14))
def test_a_refusal_shows_every_fault_and_survives_pickling(text: str, resources: int) -> None:
    try:
        parse_placement(text, resources)
    except PlacementError as refused:
        outcome("refused")
        shown = refused.render()
        for fault in refused.diagnostics:
            assert fault.message in shown and fault.code in shown
            assert fault.text == text
        again = pickle.loads(pickle.dumps(refused))
        assert type(again) is type(refused)
        assert again.diagnostics == refused.diagnostics
        assert isinstance(refused, ValueError) and not isinstance(refused, AssertionError)
        codes = {fault.code for fault in refused.diagnostics}
        assert isinstance(refused, IndexError) == ("resource-out-of-range" in codes)


# -------------------------------------------------------------------------------------------------- large texts


def one_megabyte_of(piece: str) -> str:
    return piece * (1_000_000 // len(piece))


MANY = 1_000_000

# (name, text, resources, the code of every fault; None when the text is fine)
LARGE = [
    ("one long word", one_megabyte_of("x"), 8, "syntax"),
    ("one long number", one_megabyte_of("1"), 8, "syntax"),
    ("dashes", one_megabyte_of("-"), 8, "syntax"),
    ("colons", one_megabyte_of(":"), 8, "syntax"),
    ("letters of another script", one_megabyte_of("\u0663"), 8, "syntax"),
    ("blanks", one_megabyte_of(" "), 8, "empty-placement"),
    ("a million commas", "," * MANY, 8, "empty-placement"),
    ("a million commas round a rank", "," * MANY + "0" + "," * MANY, 8, None),
    ("a million one-rank segments", ",".join(map(str, range(MANY))), MANY, None),
    ("a million written segments", ",".join(f"{i}:{i}" for i in range(MANY)), MANY, None),
    ("a million ranges that share one process", ",".join(map(str, range(MANY))) + ":0", MANY, None),
    ("a million ranges and a gap", ",".join(map(str, range(MANY))) + f":{MANY}", MANY, "process-gap"),
    ("a million ranges backwards", ",".join(map(str, reversed(range(MANY)))), MANY, "resource-order"),
    ("a million times the same rank", ",".join(["0"] * MANY), MANY, "duplicate-resource"),
    ("a million ranks too far", ",".join(map(str, range(8, 8 + MANY))), 8, "resource-out-of-range"),
]


@pytest.mark.parametrize(("text", "resources", "code"), [row[1:] for row in LARGE], ids=[row[0] for row in LARGE])
def test_large_texts_are_read_in_a_moment(text: str, resources: int, code: str | None) -> None:
    started = time.perf_counter()
    if code is None:
        assert parse_placement(text, resources).world_size in (1, MANY)
    else:
        assert set(codes(text, resources)) == {code}
    assert time.perf_counter() - started < 10


# ------------------------------------------------------------------------------------------------------ the words

NEXT = "expected `,`, `:` or end of text, found"
ONCE = "name each resource once; to share resources, write resources:processes, e.g. 0-1:0-3"
ASCENDING = "sort the segments by resource rank"
INVISIBLE = "remove this invisible character, or replace it with a plain space"

# (text over 8 resources, code and message of its first fault, help)
WORDS = [
    ("x", "syntax: expected resource ranks, found `x`", GRAMMAR),
    ("0:", "syntax: expected process ranks, found end of text", GRAMMAR),
    ("0-", "syntax: expected the last rank of the range, found end of text", GRAMMAR),
    ("0:0:0", "syntax: a segment has at most one `:`", "separate segments with `,`, e.g. 0-1:0-3,2-3:4-7"),
    (
        "-1",
        "syntax: expected resource ranks, found `-`",
        "ranks have no sign and start at 0; write a range as first-last",
    ),
    ("+1", "syntax: expected resource ranks, found `+`", "ranks have no sign: remove the `+`"),
    ("0-1-2", f"syntax: {NEXT} `-`", "write a range as first-last, and `all` by itself"),
    ("0..3", f"syntax: {NEXT} `.`", "write a range as first-last with `-`, e.g. 0-3"),
    ("1.0", f"syntax: {NEXT} `.`", "write a rank as a whole decimal number"),
    ("0;1", f"syntax: {NEXT} `;`", "separate ranges with `,`"),
    ("0 1", f"syntax: {NEXT} `1`", "separate ranks with `,`, or write a range with `-`"),
    ("0_1", f"syntax: {NEXT} `_`", "write ranks without `_`"),
    ("0\u20133", f"syntax: {NEXT} `\u2013`", "write a range with the ASCII hyphen `-`"),
    ("0\u00a0-3", f"syntax: {NEXT} `\\u{{a0}}`", INVISIBLE),
    ("\u0663", "syntax: expected resource ranks, found `\u0663`", "write ranks with the ASCII digits 0-9"),
    (
        "\ud800",
        "syntax: the text contains a lone surrogate, which is not a character",
        "write ranks with the ASCII digits 0-9",
    ),
    ("007", "syntax: `007` has a leading zero", "write 7"),
    ("4294967295", "syntax: `4294967295` is too large for a rank", "the largest rank is 4294967294"),
    ("7-3", "reversed-range: range 7-3 ends before it starts", "write 3-7"),
    ("", "empty-placement: the placement is empty", "write resource ranks such as 0-7, or all"),
    (
        "9",
        "resource-out-of-range: resource rank 9 is out of range: there are 8 resources, ranks 0-7",
        "use ranks up to 7",
    ),
    (
        "6-9",
        "resource-out-of-range: resource ranks 6-9 are out of range: there are 8 resources, ranks 0-7",
        "write 6-7, or add resources",
    ),
    ("0,0", "duplicate-resource: resource rank 0 is named twice", ONCE),
    ("0-3,2-5", "duplicate-resource: resource ranks 2-3 are named twice", ONCE),
    (
        "0-3:0-1,2-3",
        "duplicate-resource: resource ranks 2-3 are named twice",
        "process ranks are one range: if 2-3 are process ranks too, write 0-3:0-3",
    ),
    (
        # bare ranges that share the process ranks of a later one
        "4-5:0-1,2-3,6:2",
        "resource-order: resource ranks 2-3 follow 5; resource ranks must ascend",
        "process ranks are one range: if 2-3 are process ranks too, write 4-5:0-3",
    ),
    # a range with process ranks of its own, and one that does not continue them
    ("4-5:0-1,2:2", "resource-order: resource rank 2 follows 5; resource ranks must ascend", ASCENDING),
    ("7:0,6", "resource-order: resource rank 6 follows 7; resource ranks must ascend", ASCENDING),
    ("4-7,0-3", "resource-order: resource ranks 0-3 follow 7; resource ranks must ascend", ASCENDING),
    ("4:0,3:1", "resource-order: resource rank 3 follows 4; resource ranks must ascend", ASCENDING),
    ("0-3:4-7", "process-start: process ranks start at 4; they must start at 0", "write 0-3 here"),
    ("0:0,1:2", "process-gap: process rank 2 leaves a gap: the next process rank is 1", "write 1 here"),
    ("0:0,1-2:2-3", "process-gap: process ranks 2-3 leave a gap: the next process rank is 1", "write 1-2 here"),
    ("0:0,1:0", "process-gap: process rank 0 is named twice: the next process rank is 1", "write 1 here"),
    (
        "0-1:0-1,2-3:1-2",
        "process-gap: process ranks 1-2 overlap earlier ones: the next process rank is 2",
        "write 2-3 here",
    ),
    (
        "0-1,4-5:3-4",
        "process-gap: process ranks 3-4 match no reading of the ranges before the colon",
        "write 2-3 for the last range alone, or start at 0 to share them among all these ranges",
    ),
    (
        "0-3:all",
        "all-processes: `all` is not allowed for process ranks",
        "omit `:all` for one process per resource, or write a range such as 0-3",
    ),
    (
        "0-1:0-200",
        "not-multiple: 201 processes cannot be shared evenly by 2 resources",
        "use 200 or 202 processes here, e.g. 0-1:0-199",
    ),
    (
        "0-2:0-1",
        "not-multiple: 3 resources cannot be divided evenly among 2 processes",
        "use 1 or 3 processes here, e.g. 0-2:0",
    ),
    (
        "0:0-16777216",
        "too-many-processes: the component has 16,777,217 processes; the limit is 16,777,216",
        "split the component, or place fewer processes",
    ),
]


@pytest.mark.parametrize(("text", "found", "help"), WORDS)
def test_refusal_says_what_was_found_and_what_to_write(text: str, found: str, help: str) -> None:
    with pytest.raises(PlacementError) as refused:
        parse_placement(text, 8)
    assert f"{refused.value.code}: {refused.value.message}" == found
    assert refused.value.help == help


def test_an_example_needs_the_right_first_process() -> None:
    """A number of processes that can be shared is named without one if the first process rank is wrong, too."""
    with pytest.raises(PlacementError) as refused:
        parse_placement("0-1:5-7", 8)
    not_multiple, start = refused.value.diagnostics
    assert (not_multiple.code, not_multiple.help) == ("not-multiple", "use 2 or 4 processes here")
    assert (start.code, start.help) == ("process-start", "write 0-2 here")


PICTURE = """\
error[duplicate-resource]: resource ranks 2-3 are named twice
  |
1 | 0-3,2-5:4
  | --- ^^^ again here
  | |
  | first here
  |
  = help: name each resource once; to share resources, write resources:processes, e.g. 0-1:0-3"""


def test_picture_of_a_refusal_points_at_the_fault_and_at_what_it_clashes_with() -> None:
    with pytest.raises(PlacementError) as refused:
        parse_placement("0-3,2-5:4", 8)
    assert refused.value.render() == PICTURE

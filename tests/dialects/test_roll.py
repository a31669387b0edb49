"""ROLL's way in: its device mappings, its rules for workers, its own answers, and its example configs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError, Plan, RankSet, diff
from rankplan.trainers.roll.device_mapping import parse_device_mapping
from rankplan.trainers.roll.dialect import DIALECT as roll
from rankplan.trainers.roll.keys import KEYS as ROLL
from rankplan.trainers.slime.dialect import DIALECT as slime
from support.configs import refused
from support.goldens import lines, named
from support.outcomes import at_least, outcome

EXAMPLE = """
num_gpus_per_node: 8
actor_train:
  device_mapping: list(range(0,16))
actor_infer:
  num_gpus_per_worker: 2
  device_mapping: list(range(0,12))
rewards:
  code_sandbox:
    world_size: 8
"""

DEVICES = {
    "list(range(0,4))": [0, 1, 2, 3],
    "range(4)": [0, 1, 2, 3],
    " list ( range ( 1 , 8 , 3 ) ) ": [1, 4, 7],
    "range(3, -1, -1)": [3, 2, 1, 0],
    "[0,1,2,3]": [0, 1, 2, 3],
    "(3, 1)": [3, 1],
    "5,": [5],
    "[*range(2), 7]": [0, 1, 7],
    "list(range(0,2))+list(range(14,16))": [0, 1, 14, 15],
    "list(range(2)) * 2": [0, 1, 0, 1],
    "2 * [0, 1]": [0, 1, 0, 1],
    "[i for i in range(3)]": [0, 1, 2],
    "[i for i in range(3) if 0.5 in range(16777216) or 1.0 in range(16777216)]": [0, 1, 2],
    "[8 * i + 1 for i in [0, 2]]": [1, 17],
    "[i - 1 for i in range(1, 3)]": [0, 1],
    "list(list([0]))": [0],
    "[]": [],
    "list(range(16))[::2]": [0, 2, 4, 6, 8, 10, 12, 14],
    "list(range(16))[-4:]": [12, 13, 14, 15],
    "([0, 1] + [8, 9])[1:3]": [1, 8],
    "[[0, 1], [2, 3]][1]": [2, 3],
    "[i for i in range(16) if i % 8 < 2]": [0, 1, 8, 9],
    "[i for i in range(8) if i not in (1, 2) and not i == 5]": [0, 3, 4, 6, 7],
    "[8 * node + gpu for node in range(2) for gpu in range(3)]": [0, 1, 2, 8, 9, 10],
    "[8 * node + gpu for node in range(3) if node != 1 for gpu in range(node + 1)]": [0, 16, 17, 18],
    "sorted([3, 1, 2], reverse=True)": [3, 2, 1],
    "sorted([1, 0])": [0, 1],
    "list(reversed(range(4)))": [3, 2, 1, 0],
    "list(range(int(16 * 0.25)))": [0, 1, 2, 3],
    "list(range(int(8 / 2)))": [0, 1, 2, 3],
    "list(range(len([7, 8, 9])))": [0, 1, 2],
    "sum([[0, 1], [4, 5]], [])": [0, 1, 4, 5],
    "[sum(range(4)), min(3, 2), max([5, 7])]": [6, 2, 7],
    "[i if i < 2 else i + 6 for i in range(4)]": [0, 1, 8, 9],
    "[a + b for a, b in zip([0, 8], (1, 2))]": [1, 10],
    "[8 * i + g for i, g in enumerate([3, 5])]": [3, 13],
    "list(i for i in range(4) if i)": [1, 2, 3],
    "sorted(range(3), reverse=True) + sorted(range(2, -1, -1))": [2, 1, 0, 0, 1, 2],
    "[[5, 6, 9][-1], range(4)[-2], (3, 4)[0]]": [9, 2, 3],
    "[abs(-2), 2 ** 3, 17 // 2, 7 % 4]": [2, 8, 8, 3],
}

# (text, code, the part that is pointed at, message)
REFUSED = [
    ("", "syntax", "", "the text is empty"),
    (" ", "syntax", " ", "the text is empty"),
    ("[0,", "syntax", "[", "this is not a list of numbers: '[' was never closed"),
    ("\n [0,\n  é]", "syntax", "é", "`é` is not a whole number"),
    ("0-7", "syntax", "0-7", "`0 - 7` is not a list of numbers"),
    ("all", "syntax", "all", "`all` is not a list of numbers"),
    ("[True]", "syntax", "True", "`True` is not a whole number"),
    ("[1.5]", "syntax", "1.5", "`1.5` is not a whole number"),
    ("['0']", "syntax", "'0'", "`'0'` is not a whole number"),
    ("[[0], [1]]", "syntax", "[0]", "`[0]` is not a whole number"),
    ("[i for i in range(8) if j]", "syntax", "j", "`j` is not a whole number"),
    ("reversed([1, 0])", "syntax", "reversed([1, 0])", "`reversed([1, 0])` is not a list of numbers"),
    ("(i for i in range(2))", "syntax", None, "`(i for i in range(2))` is not a list of numbers"),
    ("len([1])", "syntax", "len([1])", "`len([1])` is not a list of numbers"),
    ("[4 / 2]", "syntax", "4 / 2", "`4 / 2` is not a whole number"),
    ("[1 // 0]", "syntax", "1 // 0", "this divides by 0"),
    ("[[1, 2][2]]", "syntax", "[1, 2][2]", "index 2 is out of range: this has 2 items"),
    ("[max([])]", "syntax", "max([])", "this compares no numbers"),
    ("[1, 2][::0]", "syntax", "0", "a range cannot have a step of 0"),
    ("(1,) + [2]", "syntax", "(1,) + [2]", "`(1,) + [2]` is not evaluated"),
    ("sorted([1], key=abs)", "syntax", "sorted([1], key=abs)", "`sorted([1], key=abs)` is not evaluated"),
    ("sum([[0]], [], start=[])", "syntax", "sum([[0]], [], start=[])", None),
    ("[i for i in range(2) for j in reversed([[1]]) if [reversed([i])]]", "syntax", "reversed([i])", None),
    ("[len(i) for i in [abs]]", "syntax", "abs", "`abs` is not a whole number"),
    ("list(range())", "syntax", "range()", "`range()` is not evaluated"),
    ("list([0], [1])", "syntax", "list([0], [1])", "`list([0], [1])` is not evaluated"),
    ("(lambda: [0])()", "syntax", "(lambda: [0])()", "`(lambda: [0])()` is not evaluated"),
    ("[].copy()", "syntax", "[].copy()", "`[].copy()` is not evaluated"),
    ("[i for i in range(2000) for j in range(2000)]", "syntax", None, "this takes more than 262,144 steps"),
    ("[" + "i + " * 2000 + "i for i in range(2000)]", "syntax", None, None),
    ("[i for i in range(2000000)]", "syntax", "i", "this takes more than 262,144 steps"),
    ("sum([[0]] * 3000000, [])", "syntax", None, "this takes more than 262,144 steps"),
    ("[2 ** 2 ** 2 ** 2 ** 2]", "syntax", "2 ** 2 ** 2 ** 2 ** 2", "this number is too large"),
    ("[1e308 * 10]", "syntax", "1e308", "this number is too large"),
    ("__import__('os').getpid()", "syntax", "__import__('os').getpid()", None),
    ("range(4) + [1]", "syntax", "range(4)", "a range cannot be added"),
    ("range(0, 8, 0)", "syntax", "0", "a range cannot have a step of 0"),
    ("[10 ** 99]", "syntax", "10 ** 99", "this number is too large"),
    ("[0, -3]", "resource-out-of-range", "-3", "accelerator -3 is out of range"),
    ("list(range(-2, 2))", "resource-out-of-range", "list(range(-2, 2))", "accelerator -2 is out of range"),
    ("range(99999999)", "too-many-processes", "range(99999999)", None),
    ("[0] * 99999999", "too-many-processes", "[0] * 99999999", None),
    ("[" * 5000, "syntax", None, None),
    ("1+" * 5000 + "1", "syntax", None, "the expression is too long or too deeply nested"),
    ("[1for i in range(3)] + [x]", "syntax", "x", "`x` is not a whole number"),
    ("range(" + "9" * 40 + ")", "syntax", "9" * 40, "this number is too large"),
    ("[0x" + "f" * 4000 + "]", "syntax", "0x" + "f" * 4000, "this number is too large"),
    ("[*range(16777216), 1]", "too-many-processes", "1", None),
    ("[0,\x0c # \u2028\n 1.5]", "syntax", "1.5", "`1.5` is not a whole number"),
    ("[-(-1), 3 - 4]", "resource-out-of-range", "3 - 4", "accelerator -1 is out of range"),
    ("[0, -0, 5000000000]", "resource-out-of-range", "5000000000", "accelerator 5000000000 is out of range"),
    ("[*[], *[-1, 0]]", "resource-out-of-range", "[*[], *[-1, 0]]", None),
    ("set([" + "0," * 99 + "])", "syntax", None, f"`set([{'0, ' * 17}0...` is not evaluated"),
]


def test_a_name_that_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "roll.yaml").write_text('rewards:\n  "\\e[31mred\\n": {world_size: 2}\n')
    with pytest.raises(PlacementError) as error:
        roll.plan(tmp_path / "roll.yaml", Inventory.uniform(1, 8))
    (fault,) = error.value.diagnostics
    assert (fault.code, fault.line) == ("invalid-value", 2)
    assert fault.message == r"'rewards.\x1b[31mred\n' is not a valid role name"
    with pytest.raises(PlacementError, match=r"the role name 'rewards\.' has an empty part") as error:
        roll.plan({"rewards": {"": {"world_size": 2}}}, Inventory.uniform(1, 8))
    assert error.value.code == "empty-name"


@pytest.mark.parametrize("text", DEVICES)
def test_a_device_mapping_is_read_as_python_reads_it(text: str) -> None:
    assert parse_device_mapping(text) == DEVICES[text]


@pytest.mark.parametrize(("text", "code", "place", "message"), REFUSED, ids=[row[0][:30] for row in REFUSED])
def test_anything_else_is_refused_with_its_place(text: str, code: str, place: str | None, message: str | None) -> None:
    with pytest.raises(PlacementError) as caught:
        parse_device_mapping(text)
    error = caught.value
    assert error.code == code
    assert error.help
    assert message is None or error.message == message
    assert error.span is not None
    assert place is None or text[slice(*error.span)] == place


@pytest.mark.parametrize(
    ("mapping", "code"),
    [([0, True], "syntax"), (["0"], "syntax"), (5, "syntax"), (b"0", "syntax"), ([-1], "resource-out-of-range")],
)
def test_lists_hold_whole_numbers(mapping: Any, code: str) -> None:
    assert parse_device_mapping((4, 2)) == [4, 2]
    with pytest.raises(PlacementError) as caught:
        parse_device_mapping(mapping)
    assert caught.value.code == code


ATOMS = st.sampled_from(["0", "1", "2", "7", "i", "j", "-3", "1.5", "True"])
OPERATORS = st.sampled_from(["+", "-", "*", "//", "%", "/"])
COMPARISONS = st.sampled_from(["<", "==", ">=", "!="])


def numbers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return texts of numbers made of others."""
    return st.one_of(
        st.builds("({} {} {})".format, inner, OPERATORS, inner),
        st.builds("({} if {} else {})".format, inner, CONDITIONS, inner),
        st.builds("min({}, {})".format, inner, inner),
        st.builds("max([{}, {}])".format, inner, inner),
        st.builds("int({})".format, inner),
        inner.map("abs({})".format),
        inner.map("({}) ** 2".format),
    )


CONDITIONS = st.one_of(
    st.builds("{} {} {}".format, ATOMS, COMPARISONS, ATOMS),
    st.builds("{} % 2 == 0 and not {} in [1, 7]".format, ATOMS, ATOMS),
    ATOMS,
)
NUMBERS = st.recursive(ATOMS, numbers, max_leaves=4)
BOUNDS = st.sampled_from(["", "1", "2", "-1", "-3"])
LOOPS = st.sampled_from(["for i in", "for j in"])


def sequences(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return texts of lists, and of what is almost one, made of others."""
    return st.one_of(
        inner.map("list({})".format),
        inner.map("tuple({})".format),
        inner.map("sorted({})".format),
        inner.map("sorted({}, reverse=True)".format),
        inner.map("list(reversed({}))".format),
        inner.map("reversed({})".format),
        inner.map("[len({})]".format),
        inner.map("[sum({})]".format),
        st.builds("sum([{}, {}], [])".format, inner, inner),
        st.builds("{} + {}".format, inner, inner),
        st.builds("{} * {}".format, inner, NUMBERS),
        st.builds("{} * ({})".format, NUMBERS, inner),
        st.builds("{}[{}:{}:{}]".format, inner, BOUNDS, BOUNDS, BOUNDS),
        st.builds("[{}[{}], {}]".format, inner, NUMBERS, NUMBERS),
        st.builds("[{} {} {}]".format, NUMBERS, LOOPS, inner),
        st.builds("[{} {} {} if {}]".format, NUMBERS, LOOPS, inner, CONDITIONS),
        st.builds("[{} for i in {} {} {}]".format, NUMBERS, inner, LOOPS, inner),
        st.builds("[i + j for i, j in zip({}, {})]".format, inner, inner),
        st.builds("[{} for i, j in enumerate({})]".format, NUMBERS, inner),
        st.builds("list({} for i in {})".format, NUMBERS, inner),
        st.builds("[{}, *{}]".format, NUMBERS, inner),
    )


TEXTS = st.recursive(
    st.lists(NUMBERS, min_size=1, max_size=3).map(", ".join).map("[{}]".format)
    | st.lists(NUMBERS, min_size=1, max_size=3).map(",".join).map("range({})".format)
    | st.sampled_from(["range(4)", "[3, 0, 8]", "list(range(2, 9, 3))", "[]"]),
    sequences,
    max_leaves=4,
)


@at_least(read=0.05)
@given(TEXTS | st.text(alphabet="0123456789,()[]+*- rangelistfo", max_size=40))
def test_no_text_is_read_differently_from_python(text: str) -> None:
    try:
        found = parse_device_mapping(text)
    except PlacementError:
        return
    outcome("read")
    assert found == list(eval(text.strip()))


def meant(text: str) -> list[int] | None:
    """Return what ROLL makes of a text, ``None`` if it fails, makes no list, or names accelerators that none has."""
    try:
        value = eval(text)
    except Exception:
        return None
    if not isinstance(value, (list, tuple, range)) or len(value) > 1000:
        return None
    if any(type(device) is not int or not 0 <= device <= 1000 for device in value):
        return None
    return list(value)


@at_least(read=0.15)
@given(TEXTS)
def test_what_python_makes_a_list_of_accelerators_is_read(text: str) -> None:
    """Of the expressions that are evaluated at all: there is no case that is forgotten."""
    devices = meant(text)
    if devices is None:
        return
    outcome("read")
    assert parse_device_mapping(text) == devices


def test_the_complete_example_of_the_reference_document(tmp_path: Path) -> None:
    path = tmp_path / "roll.yaml"
    path.write_text(EXAMPLE)
    plan = roll.plan(path, Inventory.uniform(num_nodes=2, num_accelerators=8))
    assert {name: len(rows) for name, rows in plan.items()} == {
        "actor_train": 16,
        "actor_infer": 6,
        "rewards.code_sandbox": 8,
    }
    assert [row.cluster_node_rank for row in plan["rewards.code_sandbox"]] == [0, 1] * 4
    assert plan["actor_infer"][4].devices == [(1, 0), (1, 1)]
    assert plan.sharing().kind == "hybrid"
    assert roll.assumed_inventory(path) == plan.inventory
    assert {name: role.share for name, role in plan.items()} == {
        "actor_train": 0.5,
        "actor_infer": 0.5,
        "rewards.code_sandbox": None,
    }


@pytest.mark.parametrize(
    ("strategy", "each"),
    [
        (None, 2),
        ({"strategy_name": "sglang"}, 2),
        ({"strategy_name": "hf_infer", "strategy_config": None}, 2),
        ({"strategy_name": "vllm"}, 1),
        ({"strategy_name": "vllm", "strategy_config": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}}, 4),
        ({"strategy_name": "deepspeed_infer"}, 1),
        ({"strategy_name": "diffusion_deepspeed_train"}, 1),
        ({}, 1),  # ROLL's own default is deepspeed_train
    ],
    ids=str,
)
def test_the_strategy_says_how_many_accelerators_a_worker_has(strategy: dict[str, Any] | None, each: int) -> None:
    role = {"device_mapping": "list(range(0,8))", "num_gpus_per_worker": 2, "strategy_args": strategy}
    plan = roll.plan({"a": role}, Inventory.uniform(num_nodes=1, num_accelerators=8))
    assert [row.num_accelerators for row in plan["a"]] == [each] * (8 // each)


def test_a_worker_that_spans_nodes(tmp_path: Path) -> None:
    config = {"actor": {"device_mapping": "[7, 8, 6, 9]", "num_gpus_per_worker": 4}}
    plan = roll.plan(config, Inventory.uniform(num_nodes=2, num_accelerators=8))
    row = plan["actor"][0]
    assert (row.cluster_node_rank, row.devices) == (0, [(0, 7), (1, 0), (0, 6), (1, 1)])
    assert (row.local_hardware_ranks, row.visible_accelerators, row.num_accelerators) == ([7, 6], ["7", "6"], 4)
    assert {node: str(indices) for node, indices in plan.idle().items()} == {0: "0-5", 1: "2-7"}
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    columns = plan["actor"].rows.to_numpy()
    assert columns["devices"].tolist() == [7, 0, 6, 1]
    assert columns["device_node_rank"].tolist() == [0, 1, 0, 1]


def test_all_faults_of_a_file_are_reported_with_their_places(tmp_path: Path) -> None:
    text = """\
num_gpus_per_node: 4
num_nodes: 3
a: {device_mapping: "list(range(0,8)"}
b:
  device_mapping: list(range(0,7))
  num_gpus_per_worker: 2
c: {device_mapping: "list(range(0,8))", num_gpus_per_worker: 0}
d: {device_mapping: "[15, 16]"}
rewards:
  e: {world_size: 0}
  f: {device_mapping: "[0, 0]", num_gpus_per_worker: 2}
  g: {device_mapping: []}
h: {device_mapping: "list(range(0,${gpus}))"}
i:
  device_mapping: "[0, 1]"
  strategy_args: {strategy_name: vllm, strategy_config: {tensor_parallel_size: two}}
"""
    assert refused(roll, text, tmp_path, Inventory.uniform(num_nodes=2, num_accelerators=8)) == [
        "1:20 invalid-value: num_gpus_per_node is 4, but node 0 has 8 accelerators",
        "3:26 syntax: this is not a list of numbers: '(' was never closed",
        "6:24 not-multiple: 7 accelerators cannot be divided into workers of 2 (num_gpus_per_worker 2)",
        "7:62 invalid-value: `num_gpus_per_worker` is 0; it must be a whole number of 1 or more",
        "8:21 resource-out-of-range: resource rank 16 is out of range: "
        "node group `cluster` has 16 accelerators, ranks 0-15",
        "10:19 invalid-value: `world_size` is 0; it must be a whole number of 1 or more",
        "11:23 duplicate-resource: process 0 uses resource 0 of node 0 twice",
        "12:7 empty-placement: the role has no accelerators",
        "13:21 syntax: 'list(range(0,${gpus}))' contains an unresolved interpolation",
        "16:80 invalid-value: `tensor_parallel_size` is 'two'; it must be a whole number of 1 or more",
    ]


@pytest.mark.parametrize(
    ("sizes", "place"),
    [
        ("tensor_parallel_size: 3, pipeline_parallel_size: 2", "1:109"),
        ("tensor_parallel_size: 2, pipeline_parallel_size: 3", "1:136"),
    ],
)
def test_a_worker_that_does_not_fit_is_shown_at_the_size_that_breaks(sizes: str, place: str, tmp_path: Path) -> None:
    text = f"a: {{device_mapping: [0,1,2,3], strategy_args: {{strategy_name: vllm, strategy_config: {{{sizes}}}}}}}\n"
    given = sizes.replace(": ", " ").replace(",", " x")
    assert refused(roll, text, tmp_path, Inventory.uniform(num_nodes=1, num_accelerators=8)) == [
        f"{place} not-multiple: 4 accelerators cannot be divided into workers of 6 ({given})"
    ]


def test_the_number_of_nodes_follows_from_the_accelerators() -> None:
    """ROLL overwrites ``num_nodes``; also a role that it does not start counts."""
    config: dict[str, Any] = {"num_nodes": 3, "num_gpus_per_node": 8, "box": {"world_size": 4}}
    assert roll.assumed_inventory(config).num_nodes == 3
    large = Inventory.uniform(num_nodes=4, num_accelerators=8)
    for highest, nodes in ((0, 1), (7, 1), (8, 2), (31, 4)):
        config["reference"] = {"device_mapping": [highest]}
        assert roll.assumed_inventory(config).num_nodes == nodes
        planned = roll.plan(config, large)
        assert planned.inventory.num_nodes == nodes
        assert [row.cluster_node_rank for row in planned["box"]] == [rank % nodes for rank in range(4)]
    with pytest.raises(PlacementError, match="resource rank 31 is out of range"):
        roll.plan(config, Inventory.uniform(num_nodes=3, num_accelerators=8))
    with pytest.raises(PlacementError, match="num_nodes is 3, but the cluster has 2 nodes"):
        roll.plan({"num_nodes": 3, "box": {"world_size": 4}}, Inventory.uniform(num_nodes=2, num_accelerators=8))


TRAINING = ("actor_train", "actor_infer")
OPD = ("student_train", "student_infer", "teacher")
# The roles of a config, its other keys, and the roles that ROLL does not start.
STARTS: list[tuple[tuple[str, ...], dict[str, Any], set[str]]] = [
    ((*TRAINING, "reference", "critic"), {}, set()),  # init_kl_coef is 0.2 and adv_estimator gae
    ((*TRAINING, "reference", "critic"), {"init_kl_coef": 0}, {"reference"}),
    ((*TRAINING, "reference"), {"init_kl_coef": 0.0, "enable_reference": True}, set()),
    ((*TRAINING, "reference"), {"init_kl_coef": "${beta}", "beta": 0.0, "use_kl_loss": True}, set()),
    ((*TRAINING, "reference", "critic"), {"adv_estimator": "grpo"}, {"critic"}),
    (("actor_train", "reference"), {"init_kl_coef": 0}, set()),  # DPO
    (("student", "teacher"), {"init_kl_coef": 0}, set()),  # distillation
    (OPD, {"init_kl_coef": 0}, set()),
    ((*OPD, "reference", "critic"), {}, {"reference", "critic"}),
    ((*TRAINING, "teacher"), {"init_kl_coef": 0, "use_opd": True}, set()),
    ((*TRAINING, "teacher", "reference"), {}, {"reference"}),
]


@pytest.mark.parametrize(("names", "keys", "unused"), STARTS)
@pytest.mark.parametrize("lora", [False, True])
def test_roll_starts_the_roles_that_its_pipeline_uses(
    names: tuple[str, ...], keys: dict[str, Any], unused: set[str], *, lora: bool
) -> None:
    config: dict[str, Any] = {name: {"device_mapping": [index]} for index, name in enumerate(names)} | keys
    if lora and "actor_train" in config and "actor_infer" in config:
        config["actor_train"]["model_args"] = {"lora_target": "all-linear"}
        unused = unused | {"reference", "teacher"}
    planned = roll.plan(config, Inventory.uniform(num_nodes=1, num_accelerators=8))
    assert set(planned) == set(names) - unused


def test_a_teacher_leaves_no_place_for_a_reference_model(tmp_path: Path) -> None:
    text = "actor_infer: {device_mapping: [0]}\nreference: {device_mapping: [1]}\nuse_opd: true\n"
    assert refused(roll, text, tmp_path, Inventory.uniform(num_nodes=1, num_accelerators=8)) == [
        "2:1 invalid-value: with use_opd, the teacher is the reference model"
    ]
    text = "actor_infer: {device_mapping: [0]}\ninit_kl_coef: low\n"
    assert refused(roll, text, tmp_path, Inventory.uniform(num_nodes=1, num_accelerators=8)) == [
        "2:15 invalid-value: `init_kl_coef` is 'low'; it must be a number"
    ]


@pytest.mark.parametrize("written", [0, 4])
def test_gpus_per_node_that_the_nodes_do_not_have_are_told_how_many_they_have(written: int) -> None:
    config = {"num_gpus_per_node": written, "a": {"device_mapping": "[0]"}}
    with pytest.raises(PlacementError, match=f"num_gpus_per_node is {written}, but node 0 has 8") as refused:
        roll.plan(config, Inventory.uniform(num_nodes=1, num_accelerators=8))
    assert refused.value.help == "write 8, remove the key if nodes differ, or use another cluster"


def test_gpus_per_node_that_no_machine_has_are_a_fault(tmp_path: Path) -> None:
    text = "num_gpus_per_node: 1099511627776\na: {device_mapping: [0]}\n"
    assert refused(roll, text, tmp_path, Inventory.uniform(num_nodes=1, num_accelerators=8)) == [
        "1:20 invalid-value: num_gpus_per_node is 1099511627776, but node 0 has 8 accelerators"
    ]


def test_a_size_that_no_cluster_has_is_a_fault_at_its_place_beside_the_others(tmp_path: Path) -> None:
    text = (
        "a: {device_mapping: [0], strategy_args: {strategy_name: vllm, "
        "strategy_config: {tensor_parallel_size: 1099511627776}}}\nb: {world_size: 0}\n"
    )
    assert refused(roll, text, tmp_path, Inventory.uniform(num_nodes=1, num_accelerators=8)) == [
        "1:103 invalid-value: `tensor_parallel_size` is 1099511627776; it must be 1,048,576 or less",
        "2:17 invalid-value: `world_size` is 0; it must be a whole number of 1 or more",
    ]


def test_a_role_whose_name_is_a_number_is_read_like_any_other() -> None:
    role = {"device_mapping": [0, 1, 2], "num_gpus_per_worker": 2}
    with pytest.raises(PlacementError, match=r"cannot be divided into workers of 2 \(num_gpus_per_worker 2\)"):
        roll.plan({1: role}, Inventory.uniform(num_nodes=1, num_accelerators=8))


def test_an_empty_device_mapping_is_shown_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "roll.yaml").write_text('a: {device_mapping: ""}\n')
    with pytest.raises(PlacementError, match="the text is empty") as refused:
        roll.plan(tmp_path / "roll.yaml", Inventory.uniform(num_nodes=1, num_accelerators=8))
    assert refused.value.render().splitlines()[3:5] == ['1 | a: {device_mapping: ""}', "  |     ^^^^^^^^^^^^^^"]


def test_faults_are_found_together_where_nobody_says_what_there_is() -> None:
    config = {"a": {"device_mapping": "[0"}, "b": {"device_mapping": "[0, 0]", "num_gpus_per_worker": 2}}
    with pytest.raises(PlacementError) as caught:
        roll.assumed_inventory(config)
    assert [fault.code for fault in caught.value.diagnostics] == ["syntax", "duplicate-resource"]


@pytest.mark.parametrize(
    ("dialect", "text", "message"),
    [
        (
            roll,
            'num_gpus_per_node: 1\na: {device_mapping: "[4294967294]"}\n',
            "4294967295 is not a number of nodes",
        ),
        (
            slime,
            "actor_num_nodes: 4294967295\nnum_gpus_per_node: 8\ncolocate: true\n",
            "`actor_num_nodes` is 4294967295; it must be 1,048,576 or less",
        ),
    ],
)
def test_a_file_for_more_nodes_than_there_can_be_is_named(
    dialect: Any, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "large.yaml").write_text(text)
    with pytest.raises(PlacementError, match=message) as caught:
        dialect.assumed_inventory(tmp_path / "large.yaml")
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "large.yaml"), 1)


def test_a_key_that_is_misspelt_is_no_role_less(tmp_path: Path) -> None:
    text = """\
num_gpu_per_node: 8
a: {device_maping: "[0]"}
b: {device_mapping: "[1, 2]", num_gpu_per_worker: 2, model_args: {device_map: auto}}
c:
  device_mapping: "[3, 4]"
  strategy_args: {strategy_name: vllm, strategy_config: {tensor_parallel_sizes: 2, data_parallel_size: 1}}
rewards: {d: {worldsize: 2, world_size: 1}}
"""
    assert refused(roll, text, tmp_path, Inventory.uniform(num_nodes=1, num_accelerators=8)) == [
        "1:1 unknown-key: unknown key `num_gpu_per_node`",
        "2:5 unknown-key: unknown key `device_maping`",
        "3:31 unknown-key: unknown key `num_gpu_per_worker`",
        "6:58 unknown-key: unknown key `tensor_parallel_sizes`",
    ]
    assert ROLL.recognises({"a": {"device_maping": [0]}})


def test_an_interpolation_is_no_value_where_it_decides(tmp_path: Path) -> None:
    text = """\
a: {device_mapping: [0], strategy_args: "${vllm}"}
b: {device_mapping: [0], strategy_args: {strategy_name: "${name}"}}
c: {world_size: "${n}"}
d: {device_mapping: [0], strategy_args: {strategy_name: vllm, strategy_config: "${vllm}"}}
e: {device_mapping: [0], strategy_args: {strategy_name: deepspeed_train, strategy_config: "${deepspeed_zero3}"}}
"""
    with pytest.raises(PlacementError) as caught:
        (tmp_path / "roll.yaml").write_text(text)
        roll.plan(tmp_path / "roll.yaml", Inventory.uniform(1, 8))
    found = [(fault.line, fault.message, fault.help) for fault in caught.value.diagnostics]
    help = "write the value, or pass the config after Hydra has resolved it"
    assert found == [
        (1, "`strategy_args` is '${vllm}'; it must be a mapping", help),
        (2, "`strategy_name` is '${name}'; it must be text", help),
        (3, "`world_size` is '${n}'; it must be a whole number of 1 or more", help),
        (4, "`strategy_config` is '${vllm}'; it must be a mapping", help),
    ]


def test_roles_need_accelerators_that_are_there(tmp_path: Path) -> None:
    cpus = Inventory.uniform(num_nodes=2, num_accelerators=0)
    text = "a: {device_mapping: [0, 1]}\nb: {world_size: 2}\n"
    assert refused(roll, text, tmp_path, cpus) == ["1:5 no-resources: the cluster has no accelerators"]
    assert "missing-key" in refused(roll, "a: {b: 1}\n", tmp_path, cpus)[0]


def described(row: dict[str, Any]) -> dict[str, Any]:
    """The ROLL config of a golden line."""
    role = {key: row[key] for key in ("device_mapping", "num_gpus_per_worker", "world_size") if key in row}
    if "strategy" in row:
        role["strategy_args"] = {
            "strategy_name": row["strategy"]["name"],
            "strategy_config": row["strategy"]["config"],
        }
    return {"actor": role}


# Where ROLL answers with workers and we refuse, or the other way round: the code we refuse with, and the lines.
DIFFERENCES: dict[str, tuple[str | None, Callable[[dict[str, Any]], bool]]] = {
    named("roll-eval"): (
        "syntax",
        lambda line: re.search(r"True|\{|''|\.", line["device_mapping"]) is not None,
    ),
    named("roll-lists"): (None, lambda line: isinstance(line["device_mapping"], list)),
    named("roll-gpu-twice"): (
        "duplicate-resource",
        lambda line: "same-device-twice-in-worker" in line["quirks"],
    ),
    named("roll-empty-mapping"): (
        "empty-placement",
        lambda line: line["result"]["workers"] == [],
    ),
    named("roll-world-size-0"): (
        "invalid-value",
        lambda line: line["device_mapping"] is None and line["world_size"] == 0,
    ),
    named("roll-sglang-sizes"): (
        "parallel-idle",
        lambda line: line["strategy"]["name"] == "sglang" and line["strategy"]["config"]["tensor_parallel_size"] == 3,
    ),
    named("roll-sister-sizes"): (
        "unknown-key",
        lambda line: line["strategy"]["name"].startswith("megatron") and "parallel_size" in str(line["strategy"]),
    ),
}


def test_rolls_own_answers() -> None:
    needed = set()
    for line in lines("roll"):
        expected = line["result"].get("workers")
        found, code = None, None
        try:
            rows = roll.plan(described(line), Inventory.uniform(line["num_nodes"], line["num_gpus_per_node"]))["actor"]
        except PlacementError as error:
            code = error.code
        else:
            found = [
                [list(device) for device in row.devices] if row.num_accelerators else [[row.cluster_node_rank, None]]
                for row in rows
            ]
        if found != expected:
            reasons = [name for name, (reason, is_about) in DIFFERENCES.items() if reason == code and is_about(line)]
            assert reasons, line
            needed.add(reasons[0])
    assert needed == set(DIFFERENCES), "one that excuses nothing is gone: take it out"


def test_the_shipped_configs_plan_on_a_fitting_cluster() -> None:
    for line in lines("roll_configs"):
        config: dict[str, Any] = {"num_gpus_per_node": line["num_gpus_per_node"], "exp_name": "x"}
        for name, role in line["roles"].items():
            *sections, last = name.split(".")
            inner = config
            for section in sections:
                inner = inner.setdefault(section, {})
            inner[last] = role
        assert ROLL.recognises(config)
        plan = roll.plan(config, roll.assumed_inventory(config))
        assert set(plan) == set(line["roles"])


def test_a_trainers_own_values_may_be_unresolved_but_not_ours() -> None:
    omegaconf = pytest.importorskip("omegaconf")
    inventory = Inventory.uniform(num_nodes=1, num_accelerators=8)
    text = "a: {device_mapping: 'list(range(0,4))', lr: '${nowhere}'}\nother: '${nowhere}'\nn: 2\n"
    config = omegaconf.OmegaConf.create(text + "b: {device_mapping: 'list(range(0,${n}))'}\n")
    assert {name: len(rows) for name, rows in roll.plan(config, inventory).items()} == {"a": 4, "b": 2}
    config = omegaconf.OmegaConf.create(text + "b: {device_mapping: '${nowhere}'}\n")
    with pytest.raises(
        PlacementError, match=r"b.device_mapping: `device_mapping` cannot be read: Interpolation key 'nowhere'"
    ):
        roll.plan(config, inventory)
    config = omegaconf.OmegaConf.create(text + "b: {device_mapping: '???'}\n")
    with pytest.raises(PlacementError, match=r"`device_mapping` cannot be read: Missing mandatory value"):
        roll.plan(config, inventory)


def test_roles_inside_of_others_and_twice(tmp_path: Path) -> None:
    inventory = Inventory.uniform(num_nodes=1, num_accelerators=8)
    config = {
        "teacher": {"device_mapping": [0], "strategy_config": {"world_size": 7}, "small": {"device_mapping": [1]}},
        "rewards": {"device_mapping": None, "math": {"world_size": 5}},
    }
    assert {name: len(rows) for name, rows in roll.plan(config, inventory).items()} == {
        "teacher": 1,
        "teacher.small": 1,
        "rewards.math": 5,
    }
    text = "rewards.math: {world_size: 3}\nrewards: {math: {world_size: 5}}\n"
    assert refused(roll, text, tmp_path, inventory) == ["2:11 duplicate-component: two roles are named `rewards.math`"]


def test_roles_are_no_list(tmp_path: Path) -> None:
    text = "a: {device_mapping: [0]}\nrewards:\n  - {device_mapping: [1]}\n  - {domain: math, world_size: 2}\n"
    assert refused(roll, text, tmp_path, Inventory.uniform(num_nodes=1, num_accelerators=8)) == [
        "3:5 invalid-value: `rewards` is a list; roles must be keys of a mapping"
    ]


@pytest.mark.parametrize(
    ("role", "found"),
    [
        (
            "{world_size: 1000000000000}",
            "1:17 too-many-processes: 1,000,000,000,000 workers; a component has at most 16,777,216",
        ),
        ('{device_mapping: "[5000000000]"}', "1:23 resource-out-of-range: accelerator 5000000000 is out of range"),
        ("{device_mapping: [5000000000]}", "1:5 resource-out-of-range: accelerator 5000000000 is out of range"),
        (
            "{device_mapping: [0], strategy_args: {strategy_name: [vllm]}}",
            "1:42 invalid-value: `strategy_name` is ['vllm']; it must be text",
        ),
        ("{world_size: '4'}", "1:17 invalid-value: `world_size` is '4'; it must be a whole number of 1 or more"),
        (
            "{device_mapping: [0], strategy_args: vllm}",
            "1:41 invalid-value: `strategy_args` is 'vllm'; it must be a mapping",
        ),
    ],
)
def test_what_is_too_much_or_of_another_kind(role: str, found: str, tmp_path: Path) -> None:
    assert refused(roll, f"a: {role}\n", tmp_path, Inventory.uniform(num_nodes=1, num_accelerators=8))[0] == found


def test_a_config_for_cpus() -> None:
    config = {"num_gpus_per_node": 0, "box": {"world_size": 3}}
    assert ROLL.recognises({"box": {"world_size": 3}})
    inventory = roll.assumed_inventory(config)
    plan = roll.plan(config, inventory)
    assert [row.cluster_node_rank for row in plan["box"]] == [0, 0, 0]
    assert {name: role.share for name, role in plan.items()} == {"box": None}


def test_a_device_on_another_node_that_moves_is_a_difference() -> None:
    inventory = Inventory.uniform(num_nodes=2, num_accelerators=8)
    first, second = (
        roll.plan({"a": {"device_mapping": mapping, "num_gpus_per_worker": 2}}, inventory)
        for mapping in ([7, 8], [7, 9])
    )
    assert [move.rank for move in diff(first, second).moved] == [0]


def test_a_pinned_plan_takes_the_nodes_that_roll_can_have() -> None:
    """Its groups take whole nodes, and its workers the first accelerators of them."""
    config = {"num_gpus_per_node": 4, "a": {"device_mapping": "list(range(0,6))"}, "b": {"world_size": 3}}
    nodes = [
        {"ranks": rank, "hostname": f"n{rank}", "accelerators": count} for rank, count in enumerate((4, 2, 4, 0, 4))
    ]
    inventory = Inventory.from_dict({"nodes": nodes})
    held = inventory.without(["n0/3"])
    planned = roll.plan(config, held, pinned=True)
    assert [planned.inventory.node(rank).hostname for rank in range(2)] == ["n2", "n4"]
    assert [row.devices for row in planned["a"]] == [[(0, index)] for index in range(4)] + [[(1, 0)], [(1, 1)]]
    assert [row.cluster_node_rank for row in planned["b"]] == [0, 1, 0]
    assert [one.nodes for one in planned.requests] == [(0,), (1,)]
    with pytest.raises(
        PlacementError, match="takes all 4 accelerators of 2 nodes, but only 1 node of the cluster has"
    ) as few:
        roll.plan(config, held.without(["n4/0"]), pinned=True)
    assert few.value.help == "use accelerators up to 3, or a larger cluster, or wait for other jobs"
    beyond = config | {"a": {"device_mapping": "list(range(0,20))"}}
    with pytest.raises(PlacementError, match="of 5 nodes, but only 1 node of the cluster has"):
        roll.plan(beyond, held.without(["n1", "n4/0"]), pinned=True)
    some = {"num_gpus_per_node": 4, "b": {"world_size": 3}}
    without_n1 = [{"ranks": rank, "hostname": f"n{rank}", "accelerators": (4, 0, 4)[rank]} for rank in range(3)]
    with pytest.raises(PlacementError, match="of 2 nodes, but only 1 node of the cluster has"):
        roll.plan(some, Inventory.from_dict({"nodes": without_n1}).without(["n2/0"]), pinned=True)
    ranked = [
        one | {"ranks": rank, "accelerators": 4, "labels": {"NODE_RANK": str(rank)}} for rank, one in enumerate(nodes)
    ]
    named_nodes = Inventory.from_dict({"nodes": ranked})
    with pytest.raises(PlacementError, match="only 1 node of the cluster has"):
        roll.plan(config, named_nodes.without(["n0/3"]), pinned=True)


def with_cpus(*cpus: float | None, **more: Any) -> Inventory:
    nodes = [{"ranks": rank, "hostname": f"n{rank}", "accelerators": 4, "cpus": each} for rank, each in enumerate(cpus)]
    return Inventory.from_dict({"nodes": [node | more.get(node["hostname"], {}) for node in nodes]})


@pytest.mark.parametrize("pinned", [False, True])
def test_of_more_nodes_roll_takes_those_with_the_fewest_cpus(pinned: bool) -> None:
    config = {"num_gpus_per_node": 4, "a": {"device_mapping": "list(range(0,8))"}}

    def taken(inventory: Inventory) -> list[str | None]:
        planned = roll.plan(config, inventory, pinned=pinned)
        assert planned["a"].used_nodes() == RankSet("0-1")
        return [planned.inventory.node(rank).hostname for rank in range(2)]

    assert taken(with_cpus(200, 16, 100)) == ["n1", "n2"]
    assert taken(with_cpus(200, 100, 100, 16)) == ["n3", "n1"]
    assert taken(with_cpus(64, 64, 64)) == ["n0", "n1"]
    assert taken(with_cpus(200, None, 100)) == ["n0", "n1"]
    ranked = {f"n{rank}": {"labels": {"NODE_RANK": str(rank)}} for rank in range(3)}
    assert taken(with_cpus(200, 16, 100, **ranked)) == ["n0", "n1"]
    # all are used, and keep their order until the plan is pinned
    assert taken(with_cpus(200, 16)) == ["n0", "n1"]
    if pinned:
        assert taken(with_cpus(200, 16, 100).without(["n1"])) == ["n0", "n2"]
        for inventory in (with_cpus(200, 16, 100), with_cpus(100, 16)):
            bound = rankplan.plan(config, inventory, dialect="roll", pinned=True)
            names = [bound.inventory.node(rank).hostname for rank in range(2)]
            assert names == (["n1", "n2"] if inventory.num_nodes == 3 else ["n1", "n0"])
            assert [cpus for one in bound.requests for cpus in one.cpus] == [8, 50]


def test_two_cpus_of_a_node_are_too_few_for_downloads() -> None:
    config = {"num_gpus_per_node": 4, "actor_train": {"device_mapping": "list(range(0,4))"}}
    roll.plan(config, with_cpus(3))
    roll.plan({"num_gpus_per_node": 4, "simulator": {"device_mapping": "list(range(0,4))"}}, with_cpus(2))
    with pytest.raises(PlacementError) as waits:
        roll.plan(config, with_cpus(2))
    (fault,) = waits.value.diagnostics
    assert (fault.code, fault.path) == ("never-reserved", "num_gpus_per_node")
    assert fault.message.startswith("node 0: ROLL has 1 of 2 CPUs of a node, of which its workers hold a part")


@at_least(helped=0.1)
@given(
    st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=4),
    st.sampled_from([1, 2, 4, 6, 8]),
    st.integers(0, 11),
    st.booleans(),
)
def test_a_help_that_names_gpus_per_node_has_tried_them(
    sizes: list[int], written: int, last: int, pinned: bool
) -> None:
    entries = [{"ranks": rank, "accelerators": each, "hostname": f"h{rank}"} for rank, each in enumerate(sizes)]
    nodes = Inventory.from_dict({"nodes": entries})
    config = {"num_gpus_per_node": written, "a": {"device_mapping": str(list(range(last + 1)))}}
    try:
        roll.plan(config, nodes, pinned=pinned)
    except PlacementError as error:
        wrong = [fault for fault in error.diagnostics if fault.path == "num_gpus_per_node"]
        if not wrong:
            return
        help = wrong[0].help or ""
    else:
        return
    outcome("helped")
    size = re.match("write ([0-9]+)", help)
    fitting = {}
    for each in (1, 2, 4, 6, 8):
        try:
            roll.plan({**config, "num_gpus_per_node": each}, nodes, pinned=pinned)
        except PlacementError as error:
            fitting[each] = all(fault.path != "num_gpus_per_node" for fault in error.diagnostics)
        else:
            fitting[each] = True
    assert fitting[int(size[1])] if size else not any(fitting.values())

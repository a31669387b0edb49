"""Records of nodes: what an entry may state, every fault of one, and what a record keeps."""

from __future__ import annotations

import pickle
from dataclasses import replace
from decimal import Decimal
from string import ascii_letters, digits
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rankplan import Inventory, NodeSpec, PlacementError, RankSet
from rankplan.words import shown, unknown

ALL_KEYS = (
    "ranks, accelerators, accelerator_type, accelerator_model, accelerator_ids, ip, hostname, labels, hardware, "
    "healthy, unhealthy, taken, cpus, reservable_memory, resources, numa, memory, sockets, cores, caches, nics, devices"
)
FIRST_KEYS = f"use one of: {ALL_KEYS.partition(', unhealthy')[0]} and 12 more"
NUMBER, TEXT = "write a number such as 1", "write text; quote it if it looks like something else"
A_LIST, MAPPING = "write a list: one `- ...` per line, or [a, b]", "write keys and values"
SWITCH, EMPTY = "write true or false", "write its text, or remove the key"
CPUS = "write ranges such as 0-55,112-167, up to 65535"
GROUP = "write CPUs such as 0,112, or `0,112 x56` for 56 groups that each start one higher"
HOST = "write the name of one node, as DNS has it, or its address"
PCI = 'write domain, bus, device and function: "0000:1b:00.0"'
RESOLVE = "write the value, or pass the config after Hydra has resolved it"
RANKS = "write a list of ints, or a range such as 0-7"
IDS = "write ids such as 0 or GPU-5c89, without commas"
OWN = "remove `hardware` to place on them, or choose another name"

# The keys of an entry besides `ranks: 0`, and path, message and help of each fault.
REJECTED: list[tuple[dict[Any, Any], list[tuple[str, str, str]]]] = [
    ({"accelerators": 8.5}, [("accelerators", "`accelerators` is 8.5; it must be a whole number", NUMBER)]),
    (
        {"accelerators": float("inf")},
        [("accelerators", "`accelerators` is inf; it must be a number below 1e308", NUMBER)],
    ),
    ({"accelerators": 1e300}, [("accelerators", "`accelerators` is 1e+300; it must be a whole number", NUMBER)]),
    (
        {"accelerators": 10**30},
        [("accelerators", f"`accelerators` is {10**30}; it must be 65536 or less", "use 65536 or less")],
    ),
    ({"accelerators": -1}, [("accelerators", "`accelerators` is -1; it must be 0 or more", "use 0 or more")]),
    (
        {"accelerators": "9" * 20},
        [("accelerators", f"`accelerators` is '{'9' * 20}'; it must be 65536 or less", "use 65536 or less")],
    ),
    ({"accelerators": None}, [("accelerators", "`accelerators` is null; it must be a whole number", NUMBER)]),
    ({"accelerators": True}, [("accelerators", "true is not a whole number", NUMBER)]),
    ({"accelerators": "8 "}, [("accelerators", "'8 ' is not a whole number", NUMBER)]),
    ({"accelerators": "${n}"}, [("accelerators", "'${n}' is not a whole number", RESOLVE)]),
    ({"healthy": "maybe"}, [("healthy", "`healthy` is 'maybe'; it must be true or false", SWITCH)]),
    ({"healthy": 2}, [("healthy", "`healthy` is 2; it must be true or false", SWITCH)]),
    ({"healthy": None}, [("healthy", "`healthy` is null; it must be true or false", SWITCH)]),
    ({"taken": ""}, [("taken", "`taken` is empty", EMPTY)]),
    ({"cpus": "many"}, [("cpus", "`cpus` is 'many'; it must be a number", "write a number such as 0.5")]),
    ({"cpus": -1}, [("cpus", "`cpus` is -1; it must be 0.0 or more", "use 0.0 or more")]),
    ({"reservable_memory": 1.5}, [("reservable_memory", "`reservable_memory` is 1.5; it must be a whole number",
                                   NUMBER)]),
    ({"resources": {"a": "b", "": 1}}, [("resources.a", "`a` is 'b'; it must be a number",
                                         "write a number such as 0.5"), ("resources.", "`` is empty", EMPTY)]),
    ({"hostname": 5}, [("hostname", "`hostname` is 5; it must be text", TEXT)]),
    ({"hostname": "\ud800"}, [("hostname", r"`hostname` is '\ud800'; it must be text", TEXT)]),
    ({"hostname": "a;b"}, [("hostname", "`hostname` is 'a;b'; it must have ASCII letters, digits and . - _ only, "
                            "and not start with -", HOST)]),
    ({"ip": "-x"}, [("ip", "`ip` is '-x'; it must have ASCII letters, digits and . - _ : % [ ] only, and not start "
                     "with -", HOST)]),
    ({"labels": None}, [("labels", "`labels` is null; it must be a mapping", MAPPING)]),
    ({"labels": {"x": 5, None: "y"}}, [("labels.x", "`x` is 5; it must be text", TEXT)] * 1
     + [("labels.None", "`None` is null; it must be text", TEXT)]),
    ({"labels": {5: "x"}}, [("labels[5]", "`labels[5]` is 5; it must be text", TEXT)]),
    ({"hardware": {"franka": 1}}, [("hardware.franka", "unknown hardware type `franka`", "did you mean `Franka`?")]),
    ({"hardware": {"Franka": 0}}, [("hardware.Franka", "`Franka` is 0; it must be 1 or more", "use 1 or more")]),
    (
        {"hardware": {"NV_GPU": 1}},
        [("hardware.NV_GPU", "hardware type `NV_GPU` cannot be configured: rankplan detects accelerators itself", OWN)],
    ),
    (
        {"hardware": {"node": 1}},
        [("hardware.node", "hardware type `node` cannot be configured: rankplan detects accelerators itself", OWN)],
    ),
    ({"hardware": {" ": 1}}, [("hardware. ", "' ' is not a hardware type", "write a name, e.g. Franka")]),
    ({"unhealthy": [0, "x", "1-2"]}, [
        ("unhealthy", "'x' is not a rank", f"{RANKS}; a list of ranges is one text: 0,x,1-2")]),
    ({"unhealthy": [0, 1.5]}, [("unhealthy", "1.5 is not a rank", RANKS)]),
    ({"unhealthy": "5-3"}, [("unhealthy", "range 5-3 ends before it starts", "write 3-5")]),
    ({"unhealthy": [2**40]}, [
        ("unhealthy", f"[{2**40}] is not a set of ranks", "ranks count from 0, up to 4294967294")]),
    ({"unhealthy": None}, [
        ("unhealthy", "null is not a set of ranks", "write a range such as 0-7, an int, or a list of ints")]),
    ({"unhealthy": 0}, [("", "accelerator 0 is unhealthy, but the node has 0", "count accelerators from 0")]),
    ({"accelerator_ids": "x"}, [("accelerator_ids", "`accelerator_ids` is 'x'; it must be a list", A_LIST)]),
    ({"accelerator_ids": ["a", "", 1.5]}, [
        ("accelerator_ids[1]", "'' is not an accelerator id", IDS),
        ("accelerator_ids[2]", "`accelerator_ids[2]` is 1.5; it must be text", TEXT)]),
    ({"accelerator_ids": ["a\t"]}, [("accelerator_ids[0]", r"'a\t' is not an accelerator id", IDS)]),
    ({"accelerator_ids": ["a", "b", "a"]}, [
        ("", "accelerator id a is listed twice for one node", "list each accelerator once")]),
    ({"accelerator_ids": ["a"], "accelerators": 3}, [
        ("", "3 accelerators, but 1 accelerator id", "list one id per accelerator, or remove `accelerators`")]),
    ({"accelerator_type": "nv_gpu"}, [
        ("accelerator_type", "unknown accelerator_type `nv_gpu`", "did you mean `NV_GPU`?")]),
    ({"accelerators": 1, "accelerator_type": "NO_ACCEL"}, [
        ("", "1 accelerator of type NO_ACCEL", "write their type, e.g. NV_GPU, or remove the accelerators")]),
    ({"numa": {0: "0-3", 1: "2-4"}}, [("", "CPU 2 is in two entries of `numa`", "list each CPU once")]),
    ({"numa": {0: "007", 1: True}}, [
        ("numa[0]", "'007' is not a list of CPUs", CPUS), ("numa[1]", "true is not a list of CPUs", CPUS)]),
    ({"numa": {-1: "0", "x": "1"}}, [
        ("numa[-1]", "`numa[-1]` is -1; it must be 0 or more", "use 0 or more"),
        ("numa.x", "'x' is not a whole number", NUMBER)]),
    ({"memory": {0: 2**40 + 1}}, [
        ("memory[0]", f"`memory[0]` is {2**40 + 1}; it must be {2**40} or less", f"use {2**40} or less")]),
    ({"cores": ["0", "x", None]}, [
        ("cores[1]", "'x' is not a group of CPUs", GROUP), ("cores[2]", "null is not a group of CPUs", GROUP)]),
    ({"cores": ["0", "0"], "caches": ["0 x2", 1]}, [
        ("", "CPU 0 is in two entries of `cores`", "list each CPU once"),
        ("", "CPU 1 is in two entries of `caches`", "list each CPU once")]),
    ({"nics": [5]}, [
        ("nics[0]", "`nics[0]` is 5; it must be a mapping",
         "write keys and values: name, active, bonded, rate, pci, numa")]),
    ({"nics": [{}]}, [("nics[0]", "`name` is missing", "add `name:` with its value")]),
    ({"nics": [{"nam": "m"}]}, [("nics[0].nam", "unknown key `nam`", "did you mean `name`?")]),
    ({"nics": [{"name": "m", "rate": float("nan"), "pci": "zz"}]}, [
        ("nics[0].rate", "`rate` is nan; it must be 1000000.0 or less", "use 1000000.0 or less"),
        ("nics[0].pci", "'zz' is not a PCI address", PCI)]),
    ({"accelerators": [5, {"uid": 1}]}, [
        ("accelerators[0]", "an accelerator is 5; it must be a mapping", "write {id: GPU-5c89}, for example"),
        ("accelerators[1].uid", "unknown key `uid`", "did you mean `uuid`?")]),
    ({"accelerators": [{"healthy": 0, "memory": -1, "distance": "x"}]}, [
        ("accelerators[0].healthy", "`healthy` is 0; it must be true or false", SWITCH),
        ("accelerators[0].memory", "`memory` is -1; it must be 0 or more", "use 0 or more"),
        ("accelerators[0].distance", "`distance` is 'x', which is unknown", "use one of PIX, PXB, PHB, NODE, SYS")]),
    ({"accelerators": [{"id": None}]}, [("accelerators[0].id", "`id` is null; it must be text", TEXT)]),
    ({"devices": [{}]}, [
        ("", "0 accelerators, but facts of 1", "list all accelerators under `accelerators`")]),
    ({"hostnam": "x"}, [("hostnam", "unknown key `hostnam`", "did you mean `hostname`?")]),
    ({"x": 1}, [("x", "unknown key `x`", FIRST_KEYS)]),
    ({"0-3": None}, [
        ("0-3", "unknown key `0-3`", "quote the placement: inside YAML braces a comma ends the text")]),
    ({5: 1}, [("[5]", "`nodes[0][5]` is 5, which is invalid", "keys should be strings")]),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "faults"), REJECTED, ids=[str(entry)[:60] for entry, _ in REJECTED])
def test_every_fault_of_an_entry_is_reported(entry: dict[Any, Any], faults: list[tuple[str, str, str]]) -> None:
    with pytest.raises(PlacementError) as caught:
        Inventory.from_dict({"nodes": [{"ranks": 0, **entry}]})
    found = [(fault.path, fault.message, fault.help) for fault in caught.value.diagnostics]
    separator = {"": "", "[5]": ""}
    assert found == [(f"nodes[0]{separator.get(path, '.')}{path}", message, help) for path, message, help in faults]


@pytest.mark.parametrize(
    ("content", "faults"),
    [
        ({"nodes": []}, [("nodes", "`nodes` is empty", "list at least one")]),
        ({"nodes": None}, [("nodes", "`nodes` is null; it must be a list", A_LIST)]),
        ({"nodes": [{}]}, [("nodes[0]", "`ranks` is missing", "add `ranks:` with its value")]),
        ({"nodes": [{"rank": 0}]}, [("nodes[0].rank", "unknown key `rank`", "did you mean `ranks`?")]),
        ({"nodes": [5]}, [("nodes[0]", "`nodes[0]` is 5; it must be a mapping", f"{MAPPING}: {ALL_KEYS}")]),
        (
            {"levels": [3, "node", "a", "a"], "nodes": [{"ranks": 1, "x": 3}, {"ranks": "q"}]},
            [
                ("levels", "level `a` is listed twice", "list each level once, outermost first"),
                ("levels[0]", "3 is not a level", "write the key of a node label"),
                ("levels[1]", "the level `node` is always the innermost one", "remove it, or rename the label"),
                ("nodes[0].x", "unknown key `x`", FIRST_KEYS),
                ("nodes[1].ranks", "expected ranks, found `q`", "write ranks and ranges, e.g. 0-3,7"),
            ],
        ),
        (
            {"nodes": [{"ranks": 1}], "levels": ["a"]},
            [("nodes", "node rank 0 is missing, but 1 is listed", "number the nodes from 0, without gaps")],
        ),
        (
            {"nodes": [{"ranks": 0, "labels": {"rack": "a"}}], "levels": ["rak", "x"]},
            [
                ("levels[0]", "no node has the label `rak`", "did you mean `rack`?"),
                ("levels[1]", "no node has the label `x`", "the labels are: rack"),
            ],
        ),
    ],
)
def test_every_fault_of_an_inventory_is_in_its_order(content: Any, faults: list[tuple[str, str, str]]) -> None:
    with pytest.raises(PlacementError) as caught:
        Inventory.from_dict(content)
    assert [(fault.path, fault.message, fault.help) for fault in caught.value.diagnostics] == faults


def test_values_of_other_types_are_read_as_the_same_facts() -> None:
    plain = NodeSpec(ranks=0, accelerators=2, unhealthy=[1], healthy=False, nics=[{"name": "m", "rate": 200.0}])
    for entry in (
        {"ranks": np.int64(0), "accelerators": 2.0, "unhealthy": "1", "healthy": "no"},
        {"ranks": "0", "accelerators": Decimal(2), "unhealthy": RankSet([1]), "healthy": 0.0},
        {"ranks": (0,), "accelerators": "002", "unhealthy": np.array([1]), "healthy": "OFF"},
    ):
        assert NodeSpec(**entry, nics=({"name": "m", "rate": "200"} for _ in range(1))) == plain
    assert Inventory.from_dict({"nodes": ({"ranks": rank} for rank in range(2))}).num_nodes == 2


def test_what_is_null_or_empty_is_not_stated() -> None:
    spec = NodeSpec(ranks=0, hostname="", ip=None, accelerator_model=None, taken=None, accelerator_ids=None)
    assert spec == NodeSpec(ranks=0)
    assert not any(map(spec.states, ("hostname", "ip", "accelerator_model", "accelerator_ids", "num_accelerators")))
    assert spec.described() == {"ranks": "0"}


FULL = NodeSpec(
    ranks="2-3",
    accelerators=[{"id": "GPU-a", "memory": 81_559, "problem": "ECC"}, {"id": 7, "healthy": False, "nic": "m"}],
    accelerator_type="AMD_GPU",
    accelerator_model="MI300X",
    ip="10.0.0.1",
    hostname="h",
    labels={"b": "2", "a": "1"},
    hardware={"Franka": 1},
    taken="job",
    numa={1: "4-7", 0: "0-3", 10: ""},
    memory={0: 1},
    sockets=["0,1"],
    cores=["0,4 x4"],
    caches=["0-3", "4-7"],
    nics=[{"name": "m", "active": False, "rate": 1, "pci": "0000:1B:00.0", "numa": 1}],
)


def test_a_record_has_its_facts() -> None:
    assert (FULL.rank, FULL.name, FULL.num_accelerators, FULL.accelerator_ids) == (2, "h", 2, ("GPU-a", "7"))
    assert FULL.unhealthy == RankSet("1") and FULL.problems() == [(0, "ECC")]
    assert list(FULL.labels) == ["b", "a"] and FULL.numa == {1: RankSet("4-7"), 0: RankSet("0-3"), 10: RankSet()}
    assert [len(core) for core in FULL.cores] == [2] * 4
    (nic,) = FULL.nics
    assert (nic.active, nic.bonded, nic.rate, nic.pci, nic.numa) == (False, False, 1.0, "0000:1b:00.0", 1)
    assert [(one.memory, one.nic, one.uuid) for one in FULL.devices] == [(81_559, None, None), (None, "m", None)]
    assert NodeSpec(**FULL.described()) == FULL


def test_a_record_survives_pickling_and_is_a_value() -> None:
    for spec in (FULL, NodeSpec(ranks=0), NodeSpec(ranks=RankSet(), healthy=False), FULL.changed(hostname=None)):
        again = pickle.loads(pickle.dumps(spec))
        assert again == spec and hash(again) == hash(spec) and repr(again) == repr(spec)
        assert all(again.states(key) == spec.states(key) for key in ALL_KEYS.split(", "))
    other_order = FULL.changed(labels={"a": "1", "b": "2"})
    assert other_order == FULL and hash(other_order) == hash(FULL) and other_order != FULL.changed(labels={"a": "1"})
    assert NodeSpec(ranks=0, accelerators=1) == NodeSpec(ranks=0, accelerator_ids=["0"])
    assert FULL.at(RankSet("2-3")) is FULL and FULL.at(RankSet("5")).rank == 5


def test_a_changed_record_is_checked() -> None:
    changed = FULL.changed(healthy=False, unhealthy="0-1", hostname=None)
    assert (changed.healthy, changed.unhealthy, changed.name) == (False, RankSet("0-1"), "10.0.0.1")
    assert changed.states("healthy") and not FULL.states("healthy") and FULL.healthy
    assert FULL.changed(accelerator_ids=["x", "y"]).accelerator_ids == ("x", "y")
    for fields, message in (
        ({"unhealthy": 2}, "accelerator 2 is unhealthy, but the node has 2"),
        ({"accelerator_ids": ["x"]}, "1 accelerators, but facts of 2"),
        ({"ip": 5}, "`ip` is 5; it must be text"),
        ({"host": "x"}, "unknown key `host`"),
    ):
        with pytest.raises(PlacementError) as caught:
            FULL.changed(**fields)
        assert caught.value.diagnostics[0].message == message


def test_records_that_say_the_same_are_one_entry_of_the_file() -> None:
    nodes = [NodeSpec(ranks=rank, accelerators=8, labels={"rack": "a"}) for rank in range(3)]
    apart, together = Inventory(nodes), Inventory([nodes[0].at(RankSet("0-2"))])
    assert apart == together and hash(apart) == hash(together)
    assert apart.to_dict() == together.to_dict() == {"nodes": [nodes[0].at(RankSet("0-2")).described()]}
    # ids that are stated must be those of the cluster, so they are kept
    assert apart != Inventory([nodes[0], nodes[1], nodes[2].changed(accelerator_ids=range(8))])


def test_lists_that_contain_themselves_or_repeat_are_shown() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    bomb: Any = ["x"] * 10
    for _ in range(30):
        bomb = [bomb] * 10
    for value in (loop, deep, bomb):
        with pytest.raises(PlacementError, match="`ip` is "):
            NodeSpec(ranks=0, ip=value)


@given(st.text(min_size=1, max_size=12))
def test_names_of_nodes_are_neither_code_nor_options(name: str) -> None:
    """Launchers write them into scripts, here-documents and options."""
    for field, marks in (("hostname", ".-_"), ("ip", ".-_:%[]")):
        harmless = all(letter in ascii_letters + digits + marks for letter in name) and name[0] != "-"
        try:
            NodeSpec(ranks=0, **{field: name})
        except PlacementError as error:
            assert not harmless
            assert error.diagnostics[0].code == "invalid-value"
        else:
            assert harmless


@pytest.mark.parametrize(
    "name", ["`touch${IFS}X`", "a\n#SBATCH --uid=0", "\x1b[31mb", "$(id)", "a b", "a,b", "-x", "é", "a'b"]
)
def test_code_is_no_name_of_a_node(name: str) -> None:
    for field in ("hostname", "ip"):
        with pytest.raises(PlacementError, match=f"`{field}` is "):
            Inventory.from_dict({"nodes": [{"ranks": 0, "accelerators": 8, field: name}]})


LETTERS = st.characters(exclude_categories=["Cs", "Cn", "Co"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(LETTERS, max_size=90)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(LETTERS, max_size=8), inner, max_size=12),
    max_leaves=30,
)


@given(VALUES.filter(lambda value: not isinstance(value, str)))
def test_the_core_shows_values_as_python_does(value: Any) -> None:
    with pytest.raises(PlacementError) as caught:
        NodeSpec(ranks=0, labels={"x": value})
    assert caught.value.message == f"`x` is {shown(value)}; it must be text"


@given(st.text(LETTERS, min_size=1).filter(lambda text: not text.isdigit()))
def test_the_core_shows_text_as_python_does(text: str) -> None:
    with pytest.raises(PlacementError) as caught:
        NodeSpec(ranks=0, accelerators=text)
    assert caught.value.message == f"{shown(text)} is not a whole number"


@given(st.data())
def test_the_core_suggests_the_keys_that_python_does(data: st.DataObject) -> None:
    known = ALL_KEYS.split(", ")
    letters = list(data.draw(st.sampled_from(known)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(letters)))
        letters[at : at + data.draw(st.integers(0, 2))] = data.draw(st.text("acelrsth_X9", max_size=2))
    key = "".join(letters)
    assume(key and key not in known)
    with pytest.raises(PlacementError) as caught:
        NodeSpec(**{"ranks": 0, key: 1})
    assert caught.value.diagnostics == (replace(unknown("key", key, known), path=key),)

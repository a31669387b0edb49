"""RLinf's recorded answers, line by line: rankplan agrees, or a named difference explains why not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rankplan import ComponentPlacement, Inventory, PackedPlacementStrategy, PlacementError, load_config
from rankplan.rlinf import with_section
from support import answers, oracle
from support.goldens import as_yaml, lines, named

Line = dict[str, Any]
Rows = list[oracle.Row]
Answer = dict[str, Rows] | list[str]  # the rows of every component, or the codes of the faults


# --------------------------------------------------------------------------------------------- the parts of a line


def entries(line: Line) -> list[tuple[str, list[str]]]:
    """Return placement and group labels of every component; a packed line has one component without a placement."""
    if "args" in line:
        return [("", labels(line["args"]["node_group"] or "cluster"))]
    found = []
    for entry in placements(line).values():
        entry = entry if isinstance(entry, dict) else {"placement": entry}
        found.append((str(entry.get("placement")), labels(entry.get("node_group", "cluster"))))
    return found


def labels(group: Any) -> list[str]:
    return [str(label).strip() for label in (group if isinstance(group, list) else str(group).split(","))]


def placements(line: Line) -> dict[str, Any]:
    return line.get("component_placement", {})


def as_written(line: Line) -> dict[str, Any]:
    """Return the placements with the plain scalar of a YAML line as text or, if it is one in YAML 1.2, as an int."""
    scalar = re.search(r"(actor|agent):(?:\n +node_group: node\n +placement:)? ([^ ?~']+)\n$", line.get("yaml", ""))
    if scalar is None or scalar[2] in ("true", "1e1", "1.0"):
        return placements(line)
    name, text = scalar.groups()
    octal_or_hex = re.fullmatch(r"0o[0-7]+|0x[0-9a-f]+", text)
    value = int(text, 0) if octal_or_hex else int(text) if re.fullmatch(r"[-+]?[0-9]+", text) else text
    return {name: {"node_group": "node", "placement": value} if name == "agent" else value}


def group(line: Line, label: str) -> dict[str, Any]:
    """Return the group with this label; reserved groups contain all nodes."""
    everywhere = {"node_ranks": list(range(line["cluster"]["num_nodes"])), "hardware_type": None}
    named = {each["label"]: each for each in line["cluster"]["node_groups"]}
    return named.get(label, everywhere | {"ignore_hardware": label == "node"})


def counts_nodes(line: Line, label: str) -> bool:
    if group(line, label)["ignore_hardware"] or group(line, label)["hardware_type"]:
        return group(line, label)["ignore_hardware"]
    nodes = line["cluster"]["nodes"]
    return not any(nodes[rank]["accelerators"] for rank in group(line, label)["node_ranks"] if rank < len(nodes))


def groups_overlap(line: Line) -> bool:
    ranks = [[rank for label in named for rank in group(line, label)["node_ranks"]] for _, named in entries(line)]
    return any(len(set(of_entry)) < len(of_entry) for of_entry in ranks)


def groups_of_two_numberings(line: Line) -> bool:
    return any(len({counts_nodes(line, label) for label in named}) == 2 for _, named in entries(line))


def group_ignores_its_hardware(line: Line) -> bool:
    named = [group(line, label) for _, named in entries(line) for label in named]
    return any(each["hardware_type"] and each["ignore_hardware"] for each in named)


def group_is_a_list(line: Line) -> bool:
    return any(isinstance(e, dict) and isinstance(e.get("node_group"), list) for e in placements(line).values())


# ----------------------------------------------------------------------------------------------- the differences


class Difference(NamedTuple):
    """A deliberate difference: its name, its lines and, if rankplan rejects them, the codes."""

    name: str
    is_about: Callable[[Line], bool]
    codes: tuple[str, ...] = ()


def text_has(pattern: str) -> Callable[[Line], bool]:
    return lambda line: any(re.search(pattern, text) for text, _ in entries(line))


def has_quirk(quirk: str) -> Callable[[Line], bool]:
    return lambda line: quirk in line["quirks"]


def message_has(part: str) -> Callable[[Line], bool]:
    return lambda line: part in line["result"].get("error", {}).get("message", "")


def arguments_have(condition: Callable[[dict[str, Any]], bool]) -> Callable[[Line], bool]:
    return lambda line: "args" in line and condition(line["args"])


ANY_START = Difference(
    named("process-ranks-start-anywhere"),
    has_quirk("process-ranks-not-from-0"),
    ("process-start",),
)
LISTS = Difference(named("resource-lists"), text_has(r"[0-9]\s*,.*:"))
GROUP_LIST = Difference(named("lists-of-groups-and-nodes"), group_is_a_list)
ORDER = Difference(named("groups-out-of-node-order"), message_has("must be sorted by node_id"))
OVERLAP = Difference(named("overlapping-groups"), groups_overlap, ("overlapping-groups", "duplicate-hardware"))
NUMBERINGS = Difference(
    named("two-numberings"),
    groups_of_two_numberings,
    ("resource-out-of-range",),
)
DIGITS = Difference(
    named("lenient-numbers"),
    text_has(r"_|\+|[^\x00-\x7f]|(?<![0-9])0[0-9]"),
    ("syntax",),
)
SEXAGESIMAL = Difference(
    named("sexagesimal"),
    lambda line: as_written(line) != placements(line),
    ("syntax", "process-start"),
)
NO_NAME = Difference(named("empty-name"), lambda line: "empty-name" in line["tags"], ("empty-name",))
PAST_NODE = Difference(
    named("packed-past-node"),
    has_quirk("device-not-on-node"),
    ("spans-nodes",),
)
NEVER_ENDS = Difference(named("packed-never-terminates"), message_has("no result within"), ("invalid-value",))
IGNORING = Difference(
    named("ignored-hardware"),
    group_ignores_its_hardware,
    ("resource-out-of-range",),
)
UNKNOWN_KEY = Difference(
    named("unknown-keys"),
    lambda line: "extra-keys" in line["tags"],
    ("unknown-key",),
)
COMES_AGAIN = Difference(
    named("local-ranks-restart"),
    has_quirk("node-and-local-rank-repeat"),
)
BAD_ARGUMENTS = Difference(
    named("packed-bad-arguments"),
    arguments_have(lambda args: args["stride"] < 0 or isinstance(args["start"], bool)),
    ("invalid-value",),
)
GROUP_TEXT = Difference(
    named("packed-group-text"),
    arguments_have(lambda args: args["node_group"] == "a,b"),
    ("spans-nodes",),
)

# The first one that applies to a line explains it.
DIFFERENCES = [
    *(COMES_AGAIN, IGNORING, UNKNOWN_KEY, NEVER_ENDS, BAD_ARGUMENTS, GROUP_TEXT),
    *(ANY_START, LISTS, GROUP_LIST, ORDER, OVERLAP, NUMBERINGS, DIGITS, SEXAGESIMAL, NO_NAME, PAST_NODE),
]

# These two concern one field; lines without any other difference agree.
NOT_ITS_OWN = named("not-its-own-device")
A_TEXT = named("rank-is-text")


def corrected(rows: Rows, line: Line) -> Rows:
    """Return the golden rows with the correct local accelerator rank: an int, the first one of the process."""
    fixed = []
    for row in rows:
        rank = int(row["local_accelerator_rank"])
        if row["local_hardware_ranks"] and group(line, row["node_group_label"])["hardware_type"] != "Robot":
            rank = row["local_hardware_ranks"][0]
        fixed.append(row | {"local_accelerator_rank": rank})
    return fixed


# RLinf's message when it rejects a line, and rankplan's codes; rankplan checks further and may report another fault.
REASONS = {
    "must be divisible by": {"not-multiple"},
    "must be within the available": {"resource-out-of-range", "reversed-range", "syntax", "overlapping-groups"},
    "exceed available resources": {"resource-out-of-range", "no-resources", "too-many-processes"},
    "is out of range": {"resource-out-of-range", "invalid-value"},
    "Duplicate resource ranks": {"duplicate-resource"},
    "Duplicate process ranks": {"process-gap", "duplicate-resource", "resource-order"},
    "Resource ranks must be in ascending": {"resource-order"},
    "Process ranks must be in ascending": {"process-gap"},
    "Invalid rank": {"syntax", "invalid-value"},
    "Start rank 3 must be": {"reversed-range"},
    "greater than or equal to the start": {"reversed-range"},
    "No valid": {"syntax", "no-resources"},
    "list index out of range": {"no-resources"},
    "Missing mandatory value": {"syntax"},
    "Allocated hardware ranks for each process: {}": {"empty-placement"},
    "placement must be specified": {"missing-key", "unknown-key"},
    "across multiple nodes": {"spans-nodes", "resource-out-of-range"},
    "must be on the same node": {"spans-nodes"},
    "Trouble finding placement": {"spans-nodes", "mixed-hardware"},
    "same hardware type": {"mixed-hardware"},
    "not of the same type": {"mixed-hardware"},
    "cannot be 'all'": {"all-processes"},
    'When rank_config is "all"': {"all-processes"},
    "ode group": {"unknown-node-group", "invalid-value", "node-out-of-range"},
    "overlapping nodes": {"overlapping-groups"},
    "requires hardware resources": {"no-resources"},
    "has multiple placements": {"duplicate-component", "empty-name"},
    "object cannot be interpreted": {"invalid-value"},
    "not supported between instances": {"invalid-value"},
    "integer modulo by zero": {"invalid-value"},
    "must be non-negative": {"invalid-value"},
}


def difference(line: Line, ours: Answer) -> Difference | None:
    """Return the difference between RLinf's answer and ours, ``None`` if they agree; fail if none explains it."""
    result = line["result"]
    if "error" not in result and isinstance(ours, dict):
        components = result.get("components", {"": result})
        golden = {name: corrected(each["placements"], line) for name, each in components.items()}
        fields = next((rows[0] for rows in golden.values() if rows), {})
        if golden == {name: [{field: row[field] for field in fields} for row in rows] for name, rows in ours.items()}:
            return None
    if "error" in result and isinstance(ours, list):
        message = result["error"]["message"]
        if any(part in message and codes & set(ours) for part, codes in REASONS.items()):
            return None
    for each in DIFFERENCES:
        if each.is_about(line) and (isinstance(ours, dict) or set(each.codes) & set(ours)):
            return each
    raise AssertionError(f"{line['id']} {entries(line)}: {str(result)[:300]} became {str(ours)[:300]}")


# ---------------------------------------------------------------------------------------------- the two planners


def cluster_of(line: Line) -> dict[str, Any]:
    """Return the cluster section as a user would write it, with only the groups that its components name."""
    named = {label for _, labels_of_entry in entries(line) for label in labels_of_entry}
    nodes = line["cluster"]["nodes"]
    groups = []
    for each in line["cluster"]["node_groups"]:
        if each["label"] not in named:
            continue
        section = {"label": each["label"], "node_ranks": each["node_ranks"]}
        if each["ignore_hardware"]:
            section["ignore_hardware"] = True
        if each["hardware_type"] == "Robot":
            counts = {rank: nodes[rank]["robots"] for rank in each["node_ranks"]}
            configs = [{"node_rank": rank, "name": f"robot {i}"} for rank in counts for i in range(counts[rank])]
            section["hardware"] = {"type": "Robot", "configs": configs}
        groups.append(section)
    return {"num_nodes": len(nodes), "component_placement": as_written(line), "node_groups": groups}


def inventory_of(line: Line) -> dict[str, Any]:
    nodes = line["cluster"]["nodes"]
    return {"nodes": [{"ranks": node["rank"], "accelerators": node["accelerators"]} for node in nodes]}


def oracle_answer(line: Line) -> Answer:
    """Return the oracle's answer; the oracle knows only the config rules that a placement needs."""
    cluster, inventory, isolate = cluster_of(line), inventory_of(line), line["isolate_accelerator"]
    if "args" not in line:
        return answers.outcome(oracle.plan, cluster, inventory, isolate)
    start, end, per_process, stride, _ = line["args"].values()
    where = oracle.topology(inventory, cluster, entries(line)[0][1])
    return answers.outcome(lambda: {"": oracle.packed(start, end, per_process, stride, where, isolate)})


def our_answer(line: Line, tmp_path: Path) -> Answer:
    """Return rankplan's answer; a line that came from YAML is read from YAML again."""
    cluster, inventory, isolate = cluster_of(line), inventory_of(line), line["isolate_accelerator"]
    if "yaml" in line:
        (tmp_path / "line.yaml").write_text(line["yaml"])
        cluster |= load_config(tmp_path / "line.yaml")["cluster"]
    if "args" not in line:
        return answers.outcome(answers.plan, cluster, inventory, isolate)
    start, end, per_process, stride, named = line["args"].values()

    def packed() -> dict[str, Rows]:
        strategy = PackedPlacementStrategy(start, end, per_process, stride, named)
        known = with_section(Inventory.from_dict(inventory), cluster)
        return {"": answers.as_dicts(strategy.get_placement(known, isolate_accelerator=isolate))}

    return answers.outcome(answers.refusing, packed)


def of_one_field(line: Line) -> set[str]:
    """Return the differences that ``corrected`` removes from the line."""
    components = line["result"].get("components", {"": line["result"]})
    rows = [row for each in components.values() for row in each.get("placements", ())]
    pairs = [
        (row["local_accelerator_rank"], right["local_accelerator_rank"])
        for row, right in zip(rows, corrected(rows, line), strict=True)
    ]
    names = {A_TEXT for rank, _ in pairs if isinstance(rank, str)}
    return names | {NOT_ITS_OWN for rank, right in pairs if int(rank) != right}


@pytest.fixture(scope="module")
def needed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Compare every line and return the differences found; a different answer of rankplan must equal the oracle's."""
    needed = set()
    complaints = []
    for line in [*lines("rlinf"), *lines("packed")]:
        ours = our_answer(line, tmp_path_factory.getbasetemp())
        try:
            reason = difference(line, ours)
            needed |= {reason.name} if reason else of_one_field(line)
            if reason and (isinstance(ours, dict) or reason is SEXAGESIMAL):
                assert ours == oracle_answer(line), f"{line['id']} is another answer than the oracle's"
        except AssertionError as complaint:
            complaints.append(str(complaint))
    assert not complaints, f"{len(complaints)} lines: " + "\n".join(complaints[:20])
    return needed


@pytest.mark.parametrize("name", [*(row.name for row in DIFFERENCES), NOT_ITS_OWN, A_TEXT])
def test_every_line_agrees_or_has_a_named_difference_and_every_difference_occurs(name: str, needed: set[str]) -> None:
    """If a difference explains no line, remove it."""
    assert name in needed


# --------------------------------------------------------------------------------------- the configs RLinf ships


FAULTY = "examples/embodiment/config/realworld_dual_franka_dagger_openpi.yaml"


@pytest.mark.parametrize("line", lines("rlinf_configs"), ids=lambda line: Path(line["config"]).stem)
def test_every_shipped_config_plans_on_a_fitting_inventory(line: Line, tmp_path: Path) -> None:
    """One config is invalid: its robot is on node 0, but its group is nodes 1-2."""
    path = tmp_path / "conf.yaml"
    path.write_text(as_yaml({"cluster": line["cluster"]}))
    inventory = Inventory.uniform(num_nodes=int(line["cluster"]["num_nodes"]), num_accelerators=8)
    if line["config"] == FAULTY:
        with pytest.raises(PlacementError) as refused:
            ComponentPlacement(load_config(path), inventory)
        assert refused.value.code == "node-out-of-range"
        assert "node_rank: 0" in refused.value.render()
    else:
        placement = ComponentPlacement(load_config(path), inventory)
        names = [name.strip() for names in line["cluster"]["component_placement"] for name in names.split(",")]
        assert placement.components == names
        assert all(len(rows) for rows in (placement.plan()[name] for name in names))

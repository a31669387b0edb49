"""The recorded answers of RLinf's placement classes: rankplan agrees, or a named difference explains why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import rankplan.rlinf
from rankplan import ComponentPlacement, Inventory, PackedPlacementStrategy, PlacementError, PlacementStrategy, Plan
from rankplan.rlinf.dialect import DIALECT as rlinf
from rankplan.rlinf.job import roles_of
from support import answers
from support.goldens import lines, named
from support.paths import EXAMPLES

Line = dict[str, Any]
ROLES = ("actor", "rollout", "inference", "actor_inference", "critic", "critic_inference", "reward")

# -------------------------------------------------------------------------------------------- what a line is about


def config_of(line: Line) -> dict[str, Any]:
    """The config as a user would write it."""
    config = dict(line["config"])
    if "cluster" not in config:
        return config
    nodes, groups = line["cluster"]["nodes"], []
    for each in line["cluster"]["node_groups"]:
        section = {"label": each["label"], "node_ranks": each["node_ranks"]}
        if each["ignore_hardware"]:
            section["ignore_hardware"] = True
        if each["hardware_type"] == "Robot":
            ranks = [rank for rank in each["node_ranks"] for _ in range(nodes[rank]["robots"])]
            configs = [{"node_rank": rank, "name": f"robot {index}"} for index, rank in enumerate(ranks)]
            section["hardware"] = {"type": "Robot", "configs": configs}
        groups.append(section)
    return config | {"cluster": config["cluster"] | {"node_groups": groups}}


def inventory_of(line: Line) -> Inventory:
    nodes = line["cluster"]["nodes"]
    return Inventory.from_dict({"nodes": [{"ranks": n["rank"], "accelerators": n["accelerators"]} for n in nodes]})


def placements(line: Line) -> dict[str, Any]:
    """The entry of each component."""
    entries = line["config"].get("cluster", {}).get("component_placement", {})
    return {name.strip(): entry for names, entry in entries.items() for name in names.split(",")}


def answer_error(line: Line) -> str | None:
    """What RLinf says when it rejects the config, or when it cannot place one of the components."""
    result = line["result"]
    placed = result.get("components", {}).values()
    errors = [part["error"]["message"] for part in (result, *placed) if "error" in part]
    return errors[0] if errors else None


def of_mode(line: Line, mode: str) -> bool:
    return line["result"].get("placement_mode") == mode


def size(line: Line, *keys: str) -> Any:
    """A size of the config, 1 if it is missing."""
    value: Any = line["config"]
    for key in keys:
        value = (value or {}).get(key)
    return 1 if value is None else value


def is_undivided(line: Line) -> bool:
    """Whether the sizes of a placed role do not divide its accelerators, reckoned from the recorded sizes."""
    sizes = line["result"].get("sizes", {})
    found = {role: sizes.get(f"{role}_world_size", 0) for role in ("actor", "critic", "rollout", "inference")}
    found["critic_inference"] = sizes.get("critic_inference_world_size", 0)
    engine = size(line, "rollout", "tensor_parallel_size") * size(line, "rollout", "pipeline_parallel_size")
    models = {role: replica(line, role) for role in ("actor", "critic")} | {"rollout": engine}
    for role in ("inference", "critic_inference"):
        models[role] = sizes.get(f"{role}_tp_size", 1) * sizes.get(f"{role}_pp_size", 1)
    if of_mode(line, "AUTO") and line["result"]["cluster_num_gpus"] % models["actor"]:
        return True
    # RLinf interleaves engines without the pipeline, so that a window may be too small.
    stride = max(size(line, "actor", "model", "tensor_model_parallel_size") // engine, 1)
    stride = stride if of_mode(line, "COLLOCATED") and "actor" in placements(line) else 1
    pipelined = size(line, "rollout", "pipeline_parallel_size") > 1 and found["rollout"] % (engine * stride)
    return bool(pipelined) or any(count % models[role] for role, count in found.items())


def replica(line: Line, role: str) -> int:
    keys = ("tensor_model_parallel_size", "context_parallel_size", "pipeline_model_parallel_size")
    product = 1
    for key in keys:
        product *= size(line, role, "model", key)
    return product


def has_gaps(line: Line) -> bool:
    ranks = [part["hardware_ranks"] or [0] for part in line["result"].get("components", {}).values()]
    return "must be continuous" in (answer_error(line) or "") or any(r[-1] - r[0] >= len(r) for r in ranks)


def states_process_ranks(line: Line) -> bool:
    found = line["result"].get("components", {})
    return any(
        name in ROLES and part["world_size"] not in (None, len(part["hardware_ranks"] or ()))
        for name, part in found.items()
    )


def engines_of_another_size(line: Line) -> bool:
    rollout = line["config"].get("rollout", {})
    return any(
        section.get(key, rollout.get(key, 1)) != rollout.get(key, 1)
        for name in placements(line)
        if name not in ROLES and isinstance(section := line["config"].get(name), dict)
        for key in ("tensor_parallel_size", "pipeline_parallel_size")
    )


# ----------------------------------------------------------------------------------------------- the differences


class Difference(NamedTuple):
    """A deliberate difference: its row, the lines that it is about, and what differs in these."""

    name: str
    is_about: Callable[[Line], bool]
    aspects: frozenset[str]


def has_quirk(*quirks: str) -> Callable[[Line], bool]:
    return lambda line: bool(set(quirks) & set(line["quirks"]))


def message_has(part: str) -> Callable[[Line], bool]:
    return lambda line: part in (answer_error(line) or "")


PLACES = {"rows", "strategy", "group"}
SIZES = {"parallel-not-divisible", "parallel-idle"}


def difference(name: str, is_about: Callable[[Line], bool], *aspects: str) -> Difference:
    return Difference(named(name), is_about, frozenset(aspects))


DIFFERENCES = [
    difference("reward-required", message_has("Reward GPUs must be specified"), "accepted", "codes"),
    difference(
        "model-parallel-groups", has_quirk("node-group-dropped"), *PLACES, "mode", "flags", "sync", "mode-unclear"
    ),
    difference("model-parallel-gaps", has_gaps, *PLACES, "accepted", "codes", "engine"),
    difference("model-parallel-process-ranks", states_process_ranks, *PLACES),
    difference(
        "collocated-pipeline",
        lambda line: of_mode(line, "COLLOCATED") and size(line, "rollout", "pipeline_parallel_size") > 1,
        *PLACES,
        "engine",
        *SIZES,
    ),
    difference(
        "auto-with-critic",
        lambda line: "critic" in placements(line) and line["config"]["cluster"].get("auto_scheduler") is True,
        "mode-unclear",
    ),
    difference("undivided-sizes", is_undivided, *SIZES),
    difference("lenient-sizes", lambda line: "types" in line["tags"], "invalid-value"),
    difference("inference-under-another-name", has_quirk("strategy-under-another-name"), "strategy"),
    difference("engines-of-the-rollout", engines_of_another_size, "engine"),
    difference("packed-past-node", has_quirk("device-not-on-node"), "spans-nodes"),
]

# What RLinf says when it rejects a config, and what rankplan says then; it may also have found other faults.
REASONS = {
    "AUTO mode is a more advanced": {"auto-order", "spans-nodes"},
    "AUTO mode requires components": {"auto-order"},
    "Actor GPUs must be specified": {"missing-key"},
    "Rollout GPUs must be specified": {"missing-key"},
    "does not match either": {"mode-unclear", "no-resources"},
    "must not be specified": {"mode-unclear"},
    "on the same GPUs": {"mode-unclear"},
    "are not subsets of actor": {"mode-unclear"},
    "Resource Conflict": {"mode-unclear"},
    "must be less than or equal to": {"parallel-not-divisible", "mode-unclear"},
    "must be divisible by": {"parallel-not-divisible", "parallel-idle", "no-weight-sender", "not-multiple"},
    "is not in struct": {"missing-key", "mode-unclear"},
    "not found in cfg": {"missing-key"},
    "Cluster config must be provided": {"missing-key"},
    "component_placement must be provided": {"missing-key"},
    "multiple placements": {"duplicate-component"},
    "must not be empty": {"empty-placement"},
    "must be within the available": {"resource-out-of-range"},
    "modulo by zero": {"invalid-value", "parallel-not-divisible"},
    "not supported between instances": {"invalid-value"},
    "cannot be interpreted as an integer": {"invalid-value"},
    "no result within": {"invalid-value"},
    "Invalid rank format": {"syntax"},
    "list index out of range": {"no-resources"},
    "must be on the same node": {"spans-nodes"},
    "Trouble finding placement": {"spans-nodes", "parallel-not-divisible"},
    "Node group not found": {"unknown-node-group"},
}


def refused_alike(message: str, codes: set[str]) -> bool:
    """Whether a refusal of RLinf's is one of ours; an assertion without a message is about its pre-process policy."""
    return bool(codes & (REASONS[part] if message else SIZES) if (part := reason(message)) or not message else False)


def reason(message: str) -> str:
    return next((part for part in REASONS if part in message), "")


def planned(line: Line) -> Any:
    """Our object, or the codes of the refusal."""
    kind = getattr(rankplan.rlinf, line["class"])
    try:
        return kind(config_of(line), inventory_of(line))
    except PlacementError as error:
        return {fault.code for fault in error.diagnostics}


def aspects(line: Line, ours: Any) -> set[str]:
    """What differs between RLinf's answer and ours."""
    message = answer_error(line)
    if isinstance(ours, set):
        if message is None:
            return ours
        return set() if refused_alike(message, ours) else {"codes"}
    return {"accepted"} if message is not None else set(unequal(line, ours))


def unequal(line: Line, ours: Any) -> list[str]:
    """The aspects in which the objects differ."""
    result, found = line["result"], []
    sync = getattr(ours, "rollout_sync_mode", None)
    if result["placement_mode"] != ours.placement_mode.name:
        found.append("mode")
    if result["rollout_sync_mode"] != (sync and sync.name):
        found.append("sync")
    if result["cluster_num_gpus"] not in (None, ours._cluster_num_gpus):
        found.append("accelerators")
    found += ["sizes" for name, value in result["sizes"].items() if getattr(ours, name, None) != value]
    found += ["unavailable" for name in result["unavailable"] if hasattr(ours, name)]
    found += ["flags" for name, value in result["flags"].items() if getattr(ours, name) != value]
    for name, part in result["components"].items():
        if part["hardware_ranks"] not in (None, ours.get_hardware_ranks(name)):
            found.append("hardware ranks")
        if part["world_size"] not in (None, ours.get_world_size(name)):
            found.append("world size")
        found += unequal_strategy(line, part, ours.get_strategy(name))
        if "engine" in part:
            found += unequal_engine(
                line, part["engine"], lambda name=name: ours.get_strategy(name, PackedPlacementStrategy)
            )
    return found


def unequal_strategy(line: Line, part: dict[str, Any], ours: PlacementStrategy) -> list[str]:
    golden, found = part["strategy"], []
    kind = type(ours).__name__.removesuffix("PlacementStrategy")
    if golden["type"] != kind or (isinstance(ours, PackedPlacementStrategy) and arguments(golden) != arguments(ours)):
        found.append("strategy")
    if ours.node_group_label != ",".join(golden["node_groups"] or ["cluster"]):
        found.append("group")
    rows = answers.as_dicts(ours.get_placement(inventory_of(line)))
    same = [row | {"local_accelerator_rank": int(row["local_accelerator_rank"])} for row in part["placements"]]
    if same != [{field: row[field] for field in same[0]} for row in rows]:
        found.append("rows")
    return found


def arguments(strategy: Any) -> tuple[int, ...]:
    """The arguments of a packed strategy: RLinf's record of one, or ours, by the names that its scripts read."""
    if isinstance(strategy, dict):
        return tuple(strategy[key] for key in ("start", "end", "num_hardware_per_process", "stride"))
    names = ("_start_hw_rank", "_end_hw_rank", "_num_hardware_per_process", "_stride")
    return tuple(getattr(strategy, name) for name in names)


def unequal_engine(line: Line, golden: dict[str, Any], ask: Callable[[], PlacementStrategy]) -> list[str]:
    try:
        ours = ask()
    except PlacementError as error:
        same = "error" in golden and refused_alike(golden["error"]["message"], {error.code})
        return [] if same else ["engine"]
    if "error" in golden or unequal_strategy(line, golden, ours):
        return ["engine"]
    return []


@pytest.fixture(scope="module")
def needed() -> set[str]:
    """Compare every line; return the names of the differences that explain one."""
    used, complaints = set(), []
    for line in lines("rlinf_parallel"):
        ours = planned(line)
        found = aspects(line, ours)
        rows = [row for row in DIFFERENCES if found & row.aspects and row.is_about(line)]
        used |= {row.name for row in rows}
        # A rejection may have further faults besides the one that a row explains.
        unexplained = found.difference(*(row.aspects for row in rows))
        if unexplained and not (rows and isinstance(ours, set)):
            complaints.append(f"{line['id']}: {sorted(unexplained)}: {answer_error(line)}")
    assert not complaints, f"{len(complaints)} lines: " + "\n".join(complaints[:30])
    return used


@pytest.mark.parametrize("name", [row.name for row in DIFFERENCES])
def test_every_line_agrees_or_differs_by_a_row_and_every_row_is_needed(name: str, needed: set[str]) -> None:
    assert name in needed


@pytest.mark.parametrize(
    "line", [line for line in lines("rlinf_parallel") if "configs" in line], ids=lambda line: line["id"]
)
def test_a_shipped_config_gets_the_class_that_its_script_uses(line: Line) -> None:
    """A recorded hybrid config is only its cluster section, which has no class of its own."""
    try:
        found = roles_of(rlinf.read(config_of(line)).values.section, inventory_of(line))
    except PlacementError as error:
        assert answer_error(line) is not None
        assert {fault.code for fault in error.diagnostics} == planned(line)
        return
    hybrid = line["class"] == "HybridComponentPlacement"
    assert type(found).__name__ == ("Roles" if hybrid else line["class"].replace("ComponentPlacement", "Roles"))
    mode = found.mode and found.mode.name
    assert mode == (None if hybrid else line["result"].get("placement_mode", mode))


def saved(plan: Plan, path: Path) -> bytes:
    plan.save(path)
    return path.read_bytes()


def configs() -> Iterator[tuple[dict[str, Any] | Path, Inventory]]:
    """Every config of RLinf's in the examples and the goldens, with its nodes."""
    for path in (EXAMPLES / name for name in ("conf.yaml", "quickstart.yaml", "mixed/conf.yaml")):
        nodes = path.with_name("nodes.yaml")
        yield path, Inventory.load(nodes) if nodes.exists() else rlinf.assumed_inventory(path)
    for line in lines("rlinf_parallel"):
        yield config_of(line), inventory_of(line)
    for line in lines("rlinf_configs"):
        yield {"cluster": line["cluster"]}, Inventory.uniform(int(line["cluster"]["num_nodes"]), 8)


def states_components(config: dict[str, Any] | Path) -> bool:
    """Return whether a config states ``component_placement``; every file does."""
    return isinstance(config, Path) or "component_placement" in config["cluster"]


def assert_both_refuse(config: dict[str, Any] | Path, inventory: Inventory) -> None:
    """Check that the class and the command refuse a config without components alike."""
    faults = []
    for place in (ComponentPlacement, rankplan.plan):
        with pytest.raises(PlacementError) as refused:
            place(config, inventory)
        faults.append(refused.value.diagnostics)
    assert faults[0] == faults[1]


def test_component_placement_needs_the_key_as_the_command_does() -> None:
    nodes = Inventory.uniform(2, 8)
    for value in ({}, {"component_placement": None}):
        assert_both_refuse({"cluster": {"num_nodes": 2, **value}}, nodes)
    empty = ComponentPlacement({"cluster": {"num_nodes": 2, "component_placement": {}}}, nodes)
    assert empty.components == []  # a subclass writes its strategies
    with pytest.raises(PlacementError) as refused:
        ComponentPlacement({"cluster": {"num_nodes": 2, "component_placements": {"a": 0}}}, nodes)
    assert refused.value.code == "unknown-key"  # the fault that explains it, alone


@pytest.mark.long
def test_component_placement_and_the_command_give_the_same_plan(tmp_path: Path) -> None:
    compared = 0
    for config, inventory in configs():
        try:
            expected = saved(rlinf.plan(rlinf.read(config), inventory), tmp_path / "plan.json")
        except PlacementError as error:
            with pytest.raises(PlacementError) as refused:
                ComponentPlacement(config, inventory)
            assert refused.value.diagnostics == error.diagnostics
            continue
        if not states_components(config):
            assert_both_refuse(config, inventory)
            continue
        placement = ComponentPlacement(config, inventory)
        assert saved(placement.plan(), tmp_path / "same.json") == expected
        assert placement.components == placement.plan().components
        compared += 1
    assert compared > 300

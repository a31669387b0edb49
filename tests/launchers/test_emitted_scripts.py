"""Scripts show the recorded facts of every plan, and read back to the same plan."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import rankplan
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from rankplan import EmitOptions
from rankplan.launchers import mpirun, slurm, torchrun
from rankplan.launchers.checks import wrong_options
from rankplan.launchers.draft import Draft, Emitted
from rankplan.launchers.script_file import ScriptFile
from rankplan.launchers.scripts import split
from rankplan.launchers.table import LAUNCHERS
from rankplan.testing import placements
from support.launchers import CASES, planned
from support.scripts import FACTS, STARTED, plan_lines_of

KINDS: dict[str, ScriptFile] = {"slurm": slurm.FILE, "torchrun": torchrun.FILE, "mpirun": mpirun.FILE}
COMMAND = "python {}.py --text 'two words' --cost '$5' --quote \"it's\" --lines \"it's\ntwo\""


def emitted(plan: rankplan.Plan, target: str, **options: Any) -> str:
    return rankplan.emit(plan, target, EmitOptions(**{"command": COMMAND, **options}))


def case_options(case: str, target: str) -> dict[str, Any]:
    return {"segment_level": CASES[case]["options"].get("segment_level")} if target == "slurm" else {}


def rows(plan: rankplan.Plan) -> dict[str, list[tuple[Any, ...]]]:
    """Return what law 1 compares: places, node groups, visibility and coordinates."""
    return {
        name: [
            (
                row.rank,
                row.cluster_node_rank,
                tuple(row.local_hardware_ranks),
                row.visible_accelerators,
                row.node_group_label,
                row.visibility,
                component.coordinates(row.rank),
            )
            for row in component
        ]
        for name, component in plan.items()
    }


def check_laws(plan: rankplan.Plan, target: str, text: str) -> None:
    """The plan reads back, and is written with the same bytes."""
    found = read(target, text)
    assert wrong_options(found.plan, LAUNCHERS[target], found.options) is None
    assert rows(found.plan) == rows(plan)
    if target != "slurm" or found.options.pin:
        assert found.plan == plan
    head, _ = split(text, KINDS[target].is_own)
    assert KINDS[target].compose(Draft(found.plan, found.options), head) == text


def read(target: str, text: str) -> Emitted:
    """Return what a script says; no other target takes it."""
    assert [name for name, one in KINDS.items() if one.recognises(text)] == [target]
    return KINDS[target].read("train.sh", text)


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_a_script_shows_the_recorded_facts(case: str, target: str, tmp_path: Path) -> None:
    expected, plan = CASES[case]["targets"][target], planned(case)
    if "refused" in expected:
        with pytest.raises(rankplan.PlacementError) as refused:
            emitted(plan, target, **case_options(case, target))
        assert {found.code for found in refused.value.diagnostics} == {expected["refused"]}
        return
    text = emitted(plan, target, **case_options(case, target))
    assert FACTS[target](text, plan) == expected
    assert subprocess.run(["bash", "-n"], input=text.encode(), capture_output=True).stderr == b""
    check_laws(plan, target, text)


# ------------------------------------------------------------------------------------------------- random plans

NAMES = st.sampled_from(["actor", "rollout", "my_env", "two words", "it's", "$x`", "ünïcode", "nodes", "a/b", "json"])
COMMANDS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6), min_size=1, max_size=3
)


@st.composite
def plans(draw: st.DrawFn) -> rankplan.Plan:
    """Draw a plan on unequal nodes: with unused and excluded nodes, and ranks that return to earlier nodes."""
    counts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    kinds = draw(st.sampled_from([("NV_GPU",), ("NV_GPU",), ("AMD_GPU", "NV_GPU"), ("NPU",)]))
    named = draw(st.sampled_from(["ip", "hostname", "both", "none"]))
    ending = draw(st.text(".-_aZ0", max_size=3))
    nodes = []
    for rank, count in enumerate(counts):
        node: dict[str, Any] = {"ranks": rank, "accelerators": count}
        if count:
            node["accelerator_type"] = kinds[rank % len(kinds)]
        node |= {"ip": f"10.0.0.{len(counts) - rank}"} if named in ("ip", "both") else {}
        node |= {"hostname": f"n{len(counts) - rank}{ending}"} if named in ("hostname", "both") else {}
        nodes.append(node)
    inventory = rankplan.Inventory.from_dict({"nodes": nodes})
    order = draw(st.permutations(range(len(counts))))
    groups = [{"label": f"g{rank}", "node_ranks": rank} for rank in order]
    components: dict[str, Any] = {}
    for name in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)):
        if draw(st.booleans()):
            mine = [rank for rank in order if counts[rank] or not any(counts)]
            labels = ",".join(f"g{rank}" for rank in mine[: draw(st.integers(1, len(mine)))])
            components[name] = {"node_group": labels, "placement": "all"}
        elif draw(st.integers(0, 4)) == 0:
            components[name] = {"node_group": "node", "placement": draw(placements(len(counts)))}
        else:
            components[name] = draw(placements(inventory))
    excluded = draw(st.sampled_from([[], [], [f"node-{len(counts) - 1}"]]))
    section = {"num_nodes": len(counts), "node_groups": groups, "exclude": excluded, "component_placement": components}
    try:
        plan = rankplan.plan({"cluster": section}, inventory)
    except rankplan.PlacementError:
        reject()
    if not draw(st.booleans()):
        return plan
    # ranks in any order, as ROLL's device_mapping states them
    content = plan.to_dict()
    name = draw(st.sampled_from(list(plan)))
    resources = draw(st.permutations(list(plan[name].rule.resources)))
    content["components"][name]["rule"] = {"chunks": ",".join(map(str, resources)), "per_process": 1}
    return rankplan.Plan.from_dict(content)


@settings(max_examples=40)  # each starts bash several times
@given(plans(), st.sampled_from(list(KINDS)), COMMANDS, st.booleans())
def test_a_plan_that_is_not_refused_reads_back(plan: rankplan.Plan, target: str, words: list[str], pin: bool) -> None:
    """Laws 1, 3 and 4, and every rank is started where the plan says."""
    command = {name: shlex.join([*words, name]) for name in plan}
    try:
        text = emitted(plan, target, command=command, pin=pin)
    except rankplan.PlacementError as refused:
        codes = {found.code for found in refused.diagnostics}
        assert codes <= {"emit-order", "emit-no-address", "emit-resource-key"}
        assert "emit-order" not in codes or target != "mpirun"
        return
    assert subprocess.run(["bash", "-n"], input=text.encode(), capture_output=True).stderr == b""
    check_laws(plan, target, text)
    started = STARTED[target](text)
    for name, component in plan.items():
        assert started[name] == [(row.cluster_node_rank, [*words, name]) for row in component], name


@given(plans(), st.sampled_from(list(KINDS)), st.data())
def test_one_changed_number_is_found(plan: rankplan.Plan, target: str, data: st.DataObject) -> None:
    """Law 2: every number that rankplan wrote, changed, is a fault. The first port is the user's."""
    try:
        text = emitted(plan, target, command="python train.py")
    except rankplan.PlacementError:
        reject()
    places = [
        found
        for found in re.finditer(r"(?<![\w.:])(?<!--master-port=)\d+(?![\w.])", text)
        if "#!" not in text[found.start() - 2 :][:2]
    ]
    found = data.draw(st.sampled_from(places))
    line = text.count("\n", 0, found.start()) + 1
    changed = text[: found.start()] + str(int(found[0]) + 1) + text[found.end() :]
    with pytest.raises(rankplan.PlacementError) as refused:
        KINDS[target].read("train.sh", changed)
    faults = refused.value.diagnostics
    assert all(one.file == "train.sh" for one in faults)
    if line not in plan_lines_of(text):
        assert {one.code for one in faults} == {"emit-changed"}
        assert line in {one.line for one in faults}


# ------------------------------------------------------------------------------------------------- the user's parts

HEAD = """#!/bin/bash -l
# of the team
#SBATCH --partition=gpu
#SBATCH -t 4:00:00

module load cuda
export DATA=/data
"""


@pytest.fixture
def two_kinds() -> rankplan.Plan:
    return planned("v02")


@pytest.mark.parametrize("target", KINDS)
def test_the_users_head_goes_below_the_first_line(two_kinds: rankplan.Plan, target: str, tmp_path: Path) -> None:
    base = tmp_path / "head.sh"
    base.write_text(HEAD)
    text = emitted(two_kinds, target, base=base)
    lines = text.splitlines()
    assert lines[:5] == HEAD.splitlines()[:5]
    assert lines[lines.index("set -euo pipefail") - 2 :][:2] == HEAD.splitlines()[-2:]
    options = [line for line in lines[: lines.index("module load cuda")] if line.startswith("#SBATCH")]
    assert target != "slurm" or options[-5:] == [
        "#SBATCH hetjob",
        "#SBATCH --partition=gpu",  # Slurm forgets it, but not the time
        "#SBATCH --nodes=1",
        "#SBATCH --gpus-per-node=4",
        "#SBATCH --exclusive",
    ]
    check_laws(two_kinds, target, text)
    script = tmp_path / "train.sh"
    script.write_text(text)
    assert rankplan.emit(script, target) == text
    again = rankplan.emit(script, target, EmitOptions(port=7000))
    assert "7000" in again and again.splitlines()[:5] == HEAD.splitlines()[:5]
    assert again.count("module load cuda") == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("#SBATCH --nodes=3", "`--nodes=3`: the plan has `--nodes=2`"),
        ("#SBATCH -N 3", "`--nodes=3`: the plan has `--nodes=2`"),
        ("#SBATCH --ntasks-per-node 8  # eight", "`--ntasks-per-node=8`: the plan decides that"),
        ("#SBATCH -G8", "`--gpus=8`: the plan decides that"),
        ("#SBATCH hetjob", "`hetjob`: the plan has `hetjob`"),
        ("#SBATCH -p gpu --array 1-8", "`--array=1-8`: the plan decides that"),
        ("#SBATCH --job-name='mine'", "`--job-name=mine`: the plan has `--job-name=train`"),
    ],
)
def test_an_option_that_the_plan_decides_is_a_conflict(
    two_kinds: rankplan.Plan, tmp_path: Path, line: str, message: str
) -> None:
    base = tmp_path / "head.sh"
    base.write_text(f"#!/bin/bash\n#SBATCH --time=1\n{line}\n")
    with pytest.raises(rankplan.PlacementError) as refused:
        emitted(two_kinds, "slurm", base=base)
    (fault,) = refused.value.diagnostics
    assert (fault.code, fault.message, fault.file, fault.line, fault.column) == (
        "emit-conflict",
        message,
        str(base),
        3,
        line.rindex(" -" if " -" in line else " h") + 2,
    )


def test_a_base_is_text(two_kinds: rankplan.Plan, tmp_path: Path) -> None:
    base = tmp_path / "head.sh"
    base.write_bytes(b"\xff\x00")
    for target in KINDS:
        with pytest.raises(rankplan.PlacementError, match="the file is not UTF-8: invalid byte at position 0"):
            emitted(two_kinds, target, base=base)


def test_only_the_option_that_slurm_forgets_is_repeated(two_kinds: rankplan.Plan, tmp_path: Path) -> None:
    base = tmp_path / "head.sh"
    base.write_text("#SBATCH --time=4:00:00 -p gpu --account=team  # ours\n")
    text = emitted(two_kinds, "slurm", base=base)
    check_laws(two_kinds, "slurm", text)
    lines = text.splitlines()
    assert lines[lines.index("#SBATCH hetjob") + 1] == "#SBATCH -p gpu" and text.count("--time") == 1


def test_another_shell_is_a_conflict_and_hosts_are_the_users_if_the_plan_names_none(
    two_kinds: rankplan.Plan, tmp_path: Path
) -> None:
    base = tmp_path / "head.sh"
    base.write_text("#!/bin/zsh\n")
    for target in KINDS:
        with pytest.raises(rankplan.PlacementError, match="the script starts /bin/zsh; rankplan writes bash"):
            emitted(two_kinds, target, base=base)
    base.write_text("#SBATCH --exclude=n7\n#SBATCH -w n1,n2\n")
    check_laws(two_kinds, "slurm", emitted(two_kinds, "slurm", base=base))
    with pytest.raises(rankplan.PlacementError, match="`--nodelist=n1,n2`: the plan has `--nodelist=n0,n1`"):
        emitted(two_kinds, "slurm", base=base, pin=True)


def changed(target: str, text: str) -> list[tuple[Any, ...]]:
    with pytest.raises(rankplan.PlacementError) as refused:
        read(target, text)
    return [(one.code, one.line, one.column, one.message) for one in refused.value.diagnostics]


def place(text: str, part: str) -> tuple[int, int]:
    at = text.index(part)
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


@pytest.mark.parametrize(
    ("target", "before", "after", "message"),
    [
        ("slurm", "--gpus-per-node=4", "--gpus-per-node=8", "'--gpus-per-node=8' is not what the plan says: '--gpus"),
        ("slurm", "0x8 1x8", "0x8 0x8", "'0x8' is not what the plan says: '1x8'"),
        ("slurm", "--ntasks=4", "--ntasks=5", "'--ntasks=5' is not what the plan says: '--ntasks=4'"),
        ("slurm", "--gpu-bind=none --cpu-bind=none", "", "'--kill-on-bad-exit=1' is not what the plan says: '--gpu"),
        ("torchrun", "--nproc-per-node=4", "--nproc-per-node=8", "'--nproc-per-node=8' is not what the plan says"),
        ("mpirun", "10.0.0.13:4 -np 4", "10.0.0.12:4 -np 4", "'10.0.0.12:4' is not what the plan says: '10.0.0.13:4'"),
    ],
)
def test_a_changed_word_is_reported_with_its_place(
    two_kinds: rankplan.Plan, target: str, before: str, after: str, message: str
) -> None:
    text = emitted(two_kinds, target)
    wrong = text.replace(before, after, 1)
    line = place(text, before)[0]
    (fault,) = changed(target, wrong)
    assert fault[0] == "emit-changed" and fault[1] == line and fault[3].startswith(message)
    word = message.partition("'")[2].partition("'")[0]
    assert wrong.splitlines()[line - 1][fault[2] - 1 :].startswith(word)


def test_a_missing_and_an_added_line_and_a_changed_plan_are_reported(two_kinds: rankplan.Plan) -> None:
    text = emitted(two_kinds, "slurm")
    lines = text.splitlines(keepends=True)
    tasks = next(at for at, line in enumerate(lines) if line.startswith("tasks 2x4"))
    (missing,) = changed("slurm", "".join(lines[:tasks] + lines[tasks + 1 :]))
    assert missing[:2] == ("emit-changed", tasks + 1) and "the plan has the line 'tasks 2x4" in missing[3]
    (added,) = changed("slurm", "".join([*lines[:tasks], "host=(a b c)\n", *lines[tasks:]]))
    assert added == ("emit-changed", tasks + 1, 1, "'host=(a b c)' is not part of the plan")
    found = changed("slurm", text.replace('"16-19:0-3"', '"16-17:0-1"'))
    assert found[0][:3] == ("emit-changed", 2, 13)  # the digest
    assert "'2x4' is not what the plan says: '2x2'" in [message for _, _, _, message in found]


def test_the_command_and_the_head_are_the_users(two_kinds: rankplan.Plan, tmp_path: Path) -> None:
    for target in KINDS:
        text = emitted(two_kinds, target, command="python {}.py")
        edited = text.replace("-- python actor.py", '-- python actor.py --data "$DATA"')
        edited = edited if target != "mpirun" else text.replace("-- python actor.py", "-- python other.py")
        edited = edited.replace("set -euo pipefail", "export DATA=/data\nset -euo pipefail")
        assert rows(read(target, edited).plan) == rows(two_kinds)
        script = tmp_path / "train.sh"
        script.write_text(edited)
        assert rankplan.emit(script, target) == edited


def test_an_entrypoint_is_written_word_by_word(two_kinds: rankplan.Plan) -> None:
    text = emitted(two_kinds, "slurm", command=None, entrypoint="python train.py 'two words' $HOME")
    assert " python train.py 'two words' '$HOME'\n" in text
    check_laws(two_kinds, "slurm", text)
    with pytest.raises(ValueError, match="the entrypoint cannot be split into words: No closing quotation"):
        emitted(two_kinds, "slurm", command=None, entrypoint="python 'train.py")
    with pytest.raises(ValueError, match="mpirun starts a command per component"):
        emitted(two_kinds, "mpirun", command=None, entrypoint="python train.py")


# ------------------------------------------------------------------------------------------------- Slurm's options


def test_slurm_takes_the_names_of_resources(two_kinds: rankplan.Plan) -> None:
    npus = planned("v08")
    for key, line in (("npu", "--gres=npu:8"), ("gpu", "--gpus-per-node=8"), ("gpu:910b", "--gpus-per-node=910b:8")):
        text = emitted(npus, "slurm", resource_keys={"NPU": key})
        assert f"#SBATCH {line}\n" in text
        check_laws(npus, "slurm", text)
    text = emitted(two_kinds, "slurm", resource_keys={"NV_GPU": "h100"})
    assert "#SBATCH --gpus-per-node=h100:4\n" in text
    check_laws(two_kinds, "slurm", text)


@pytest.mark.parametrize(
    ("release", "pin", "refused"),
    [
        (None, False, None),
        ("24.05", False, None),
        ("23.11", False, "--segment needs Slurm 24.05; --slurm-release is 23.11"),
        ("24.05", True, "--segment with --nodelist needs Slurm 25.11; --slurm-release is 24.05"),
        (None, True, "--segment with --nodelist needs Slurm 25.11"),
        ("25.11.1", True, None),
    ],
)
def test_segments_need_a_release_of_slurm(release: str | None, pin: bool, refused: str | None) -> None:
    plan = planned("v14")
    if refused is None:
        check_laws(plan, "slurm", emitted(plan, "slurm", slurm_release=release, pin=pin))
        return
    with pytest.raises(rankplan.PlacementError) as caught:
        emitted(plan, "slurm", slurm_release=release, pin=pin)
    assert [(one.code, one.message) for one in caught.value.diagnostics] == [("emit-slurm-version", refused)]


def test_slurm_asks_for_no_more_than_a_script_may_have(tmp_path: Path) -> None:
    wide = rankplan.plan({"cluster": {"num_nodes": 1, "component_placement": {"a": "0-7"}}}, "1x8")
    base = tmp_path / "head.sh"
    base.write_text("# comment\n" * (1 << 19))
    with pytest.raises(rankplan.PlacementError, match="Slurm allows 4,194,304") as refused:
        emitted(wide, "slurm", base=base)
    assert refused.value.code == "emit-too-large"
    with pytest.raises(rankplan.PlacementError) as refused:
        emitted(wide, "slurm", name="two words", pin=True)
    assert [one.code for one in refused.value.diagnostics] == ["emit-name", "emit-no-address"]


def test_slurm_takes_128_kinds_of_nodes() -> None:
    nodes = [{"ranks": rank, "accelerators": 1 + rank % 2} for rank in range(129)]
    inventory = rankplan.Inventory.from_dict({"nodes": nodes})
    plan = rankplan.plan({"cluster": {"num_nodes": 129, "component_placement": {"actor": "all"}}}, inventory)
    with pytest.raises(rankplan.PlacementError, match="the job has 129 kinds of nodes one after another; Slurm allows"):
        emitted(plan, "slurm")


@pytest.mark.parametrize("target", ["slurm", "mpirun"])
def test_scripts_of_10000_nodes_read_back(target: str) -> None:
    nodes = [{"ranks": rank, "accelerators": 8, "ip": f"10.{rank >> 8}.{rank & 255}.1"} for rank in range(10_000)]
    inventory = rankplan.Inventory.from_dict({"nodes": nodes})
    components = {"actor": "0-63999", "rollout": "64000-79999:0-1999"}
    plan = rankplan.plan({"cluster": {"num_nodes": 10_000, "component_placement": components}}, inventory)
    text = emitted(plan, target)
    assert rows_of_one(read(target, text).plan) == rows_of_one(plan)


def rows_of_one(plan: rankplan.Plan) -> list[Any]:
    return [plan["actor"][63_999].cluster_node_rank, plan["rollout"][1999].cluster_node_rank, len(plan["rollout"])]


def test_a_release_is_two_numbers(two_kinds: rankplan.Plan) -> None:
    with pytest.raises(ValueError, match=r"slurm release '24' is not a release such as 24\.05"):
        emitted(two_kinds, "slurm", slurm_release="24")

"""The command line: its output, its exit codes, and that a run leaves nothing behind."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from rankplan import ComponentPlacement, Inventory, Plan
from support.paths import EXAMPLES, ROOT

FINE = """\
cluster:
  num_nodes: 2
  component_placement:
    actor: 0-7
    rollout: 8-11:0-1
"""
FAULTY = """\
cluster:
  num_nodes: 2
  component_placement:
    actor: 0-16
    rollout: 0-3:0-2
"""


ALIASES = b"".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n".encode() for before, name in pairwise("abcdefghi")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fine.yaml").write_text(FINE)
    (tmp_path / "faulty.yaml").write_text(FAULTY)
    return tmp_path


def rankplan(folder: Path, *arguments: str, prelude: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line in its own process; a traceback fails the test."""
    program = ["-m", "rankplan"] if not prelude else ["-c", f"{prelude}; from rankplan.cli import main; main()"]
    done = subprocess.run([sys.executable, *program, *arguments], cwd=folder, text=True, capture_output=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_a_valid_file_prints_one_line(folder: Path) -> None:
    done = rankplan(folder, "check", "fine.yaml")
    assert (done.returncode, done.stdout) == (0, "fine.yaml: fine, 2 components, 10 processes on 2 nodes\n")
    assert done.stderr.startswith("fine.yaml: assuming 2 nodes with 8 accelerators each; set other nodes with --nodes")


def test_idle_accelerators_are_no_warning_where_sizes_decide(folder: Path) -> None:
    done = rankplan(folder, "check", str(EXAMPLES / "verl.yaml"), "--nodes", "4x8")
    assert done.returncode == 0
    assert "on 2 of 4 nodes" in done.stdout and "idle" not in done.stdout


def test_idle_accelerators_are_a_warning(folder: Path) -> None:
    done = rankplan(folder, "check", "fine.yaml", "--nodes", "2x8")
    assert done.returncode == 0
    warning = "warning[idle-accelerators]: no component uses 4 of 16 accelerators: node 1: 4-7"
    assert done.stdout.splitlines()[1:] == [warning]
    assert done.stderr == ""


def test_every_fault_of_every_file_is_shown(folder: Path) -> None:
    (folder / "other.yaml").write_text(FINE.replace("0-7", "7-0"))
    done = rankplan(folder, "check", "faulty.yaml", "fine.yaml", "other.yaml", "--nodes", "2x8")
    assert done.returncode == 1
    for place in ("faulty.yaml:4:12", "faulty.yaml:5:14", "other.yaml:4:12"):
        assert f"--> {place}" in done.stdout
    assert done.stdout.count("= help:") == 3
    assert "2 faults in faulty.yaml" in done.stdout and "1 fault in other.yaml" in done.stdout
    assert "fine.yaml: fine" in done.stdout


def test_check_uses_an_inventory_file(folder: Path) -> None:
    (folder / "inventory.yaml").write_text("nodes:\n  - {ranks: 0, accelerators: 8}\n  - {ranks: 1, accelerators: 3}\n")
    done = rankplan(folder, "check", "fine.yaml", "--inventory", "inventory.yaml")
    assert done.returncode == 1 and "has 11 accelerators, ranks 0-10" in done.stdout
    (folder / "inventory.yaml").write_text("nodes:\n  - {ranks: 0, accelerator: 8}\n")
    done = rankplan(folder, "check", "fine.yaml", "--inventory", "inventory.yaml")
    assert (
        done.returncode == 1 and "inventory.yaml:2:16" in done.stdout and "did you mean `accelerators`?" in done.stdout
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "error: bad.yaml: No such file or directory\n"),
        (b"\xff\xfe\x00", "the file is not UTF-8"),
        (b"a: [1\n", "invalid YAML"),
        (b"a: \x07\n", "invalid YAML"),
        (b"[" * 100_000 + b"]" * 100_000, "the file is nested too deeply"),
        (b"a: &a [1,1,1,1,1,1,1,1,1]\n" + ALIASES, "with aliases expanded"),
        (b"a: &a {b: *a}\n", "an alias is inside its own anchor"),
        (
            b"a: &a {k: 1}\n" + ALIASES.replace(b"[", b"{<<: [").replace(b"]", b"]}"),
            "this is part of a config, not the config of a job",
        ),
        (b"a: !!int abc\n", "the tag `tag:yaml.org,2002:int` is unknown, or does not match the value"),
        (
            b"a: !!python/object:os.system {}\n",
            "the tag `tag:yaml.org,2002:python/object:os.system` is unknown, or does not match the value",
        ),
        (b"", "the file is empty: it is not the config of a job"),
        (b"- 1\n", "the file contains [1]; it must be the config of a job"),
        (b"0x1F\n", "the file contains 0x1F; it must be the config of a job"),
        (b"cluster: 3\n", "`cluster` is 3; it must be a mapping"),
        (b"a: 1\n", "this is part of a config, not the config of a job"),
        (b"cluster: {num_nodes: 1}\ncluster: {num_nodes: 1}\n", "duplicate key `cluster`"),
    ],
)
def test_an_unreadable_file_gives_a_message(content: bytes | None, message: str, folder: Path) -> None:
    if content is not None:
        (folder / "bad.yaml").write_bytes(content)
    done = rankplan(folder, "check", "bad.yaml")
    assert done.returncode == 1
    assert message in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["chekc", "fine.yaml"],
        ["check", "--node", "2x8", "fine.yaml", "--nope"],
        ["check", "--nodes", "2y8", "fine.yaml"],
        ["check", "--nodes", "0x8", "fine.yaml"],
        ["check", "--nodes", "1x65537", "fine.yaml"],
        ["check", "--nodes", "2x8", "--inventory", "inventory.yaml", "fine.yaml"],
        ["plan", "fine.yaml", "--format", "xml"],
        ["run", "fine.yaml", "--nodes", "2", "--simulate"],
        ["run", "fine.yaml", "--nodes", "2x8", "--simulate", "--ray", "auto"],
        ["run", "fine.yaml", "--nodes", "2x8", "--simulate", "--timeout", "nan"],
        ["run", "fine.yaml", "--nodes", "2x8", "--simulate", "--method", "ru"],
        ["run", "fine.yaml", "--nodes", "2x8", "--simulate", "--worker", "json"],
        ["run", "fine.yaml", "--nodes", "2x8", "--simulate", "--worker", "json:JSONEncoder"],
    ],
)
def test_wrong_usage_exits_2(arguments: list[str], folder: Path) -> None:
    done = rankplan(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error: " in done.stderr


def test_the_same_rows_in_every_format(folder: Path) -> None:
    expected = ComponentPlacement(folder / "fine.yaml", Inventory.uniform(2, 8)).plan()
    table = rankplan(folder, "plan", "fine.yaml", "--nodes", "2x8").stdout.splitlines()
    rows = json.loads(rankplan(folder, "plan", "fine.yaml", "--nodes", "2x8", "--format", "json").stdout)
    cells = list(
        csv.DictReader(io.StringIO(rankplan(folder, "plan", "fine.yaml", "--nodes", "2x8", "--format", "csv").stdout))
    )
    planned = [(name, row) for name, placements in expected.items() for row in placements]
    assert len(rows) == len(cells) == len(planned) == 10
    for (name, row), line, found, cell in zip(planned, table[1:], rows, cells, strict=False):
        assert line.split()[:4] == [name, str(row.rank), str(row.cluster_node_rank), str(row.local_rank)]
        assert found["component"] == cell["component"] == name
        assert found["visible_accelerators"] == cell["visible_accelerators"].split() == row.visible_accelerators
        assert found["local_hardware_ranks"] == row.local_hardware_ranks


def test_a_large_plan_is_folded(folder: Path) -> None:
    components = "{actor: 0-1019, rollout: 'all:0-127', agent: {node_group: node, placement: all}}"
    (folder / "large.yaml").write_text(f"cluster: {{num_nodes: 128, component_placement: {components}}}\n")
    done = rankplan(folder, "plan", "large.yaml", "--nodes", "128x8")
    rows = [line.split() for line in done.stdout.splitlines()[1:5]]
    assert rows == [
        [
            "actor",
            "0-1015",
            "0-126",
            "8",
            "accelerators",
            "0-7",
            "NV_GPU",
            "0-7,",
            "each",
            "rank",
            "its",
            "own",
            "cluster",
        ],
        [
            "actor",
            "1016-1019",
            "127",
            "4",
            "accelerators",
            "0-3",
            "NV_GPU",
            "0-3,",
            "each",
            "rank",
            "its",
            "own",
            "cluster",
        ],
        ["rollout", "0-127", "0-127", "1", "accelerators", "0-7,", "8", "per", "rank", "NV_GPU", "0-7", "cluster"],
        ["agent", "0-127", "0-127", "1", "node", "NV_GPU", "0-7", "node"],
    ]


def test_save_writes_what_load_reads_or_nothing(folder: Path) -> None:
    assert rankplan(folder, "plan", "fine.yaml", "--nodes", "2x8", "--save", "plan.json").returncode == 0
    assert Plan.load(folder / "plan.json") == ComponentPlacement(folder / "fine.yaml", Inventory.uniform(2, 8)).plan()
    done = rankplan(folder, "plan", "fine.yaml", "--nodes", "2x8", "--save", "nowhere/plan.json")
    assert done.returncode == 1 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == ["faulty.yaml", "fine.yaml", "plan.json"]


def test_save_follows_links_and_leaves_devices_alone(folder: Path) -> None:
    (folder / "target.json").write_text("old")
    (folder / "link.json").symlink_to("target.json")
    assert rankplan(folder, "plan", "fine.yaml", "--save", "link.json").returncode == 0
    assert (folder / "link.json").is_symlink() and Plan.load(folder / "target.json")
    done = rankplan(folder, "plan", "fine.yaml", "--format", "csv", "--save", "/dev/stdout")
    assert done.returncode == 0 and '"rankplan": 3' in done.stdout
    assert not Path("/dev/stdout").is_file() or Path("/dev/stdout").is_symlink()


def test_unused_nodes_are_a_warning(folder: Path) -> None:
    done = rankplan(folder, "check", "fine.yaml", "--nodes", "3x8")
    assert done.returncode == 0 and "warning[idle-nodes]: the config uses 2 nodes of 3" in done.stdout
    assert "= help: set num_nodes to 3, place components" in done.stdout


def test_unused_nodes_of_a_trainer_without_num_nodes_may_be_spares(folder: Path) -> None:
    (folder / "roll.yaml").write_text((EXAMPLES / "roll.yaml").read_text())
    done = rankplan(folder, "check", "roll.yaml", "--nodes", "9x8")
    assert "warning[idle-nodes]: the config uses 3 nodes of 9" in done.stdout
    assert "= help: let the config use the other nodes, or keep them as spares for `rankplan replan`" in done.stdout


def test_a_misspelt_section_is_a_fault(folder: Path) -> None:
    (folder / "typo.yaml").write_text(FINE.replace("component_placement", "componet_placement"))
    done = rankplan(folder, "check", "typo.yaml")
    assert done.returncode == 1
    assert "typo.yaml:3:3" in done.stdout and "rename it to `component_placement`" in done.stdout


def test_control_characters_of_a_config_do_not_reach_the_terminal(folder: Path) -> None:
    (folder / "odd.yaml").write_text('cluster: {num_nodes: 1, component_placement: {"a\\e[31mred\\nx": 99}}\n')
    done = rankplan(folder, "check", "odd.yaml")
    assert done.returncode == 1 and "\x1b" not in done.stdout and "is not a label" in done.stdout


@pytest.mark.parametrize("command", ["plan", "show"])
def test_a_name_outside_the_terminals_encoding_is_escaped(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    (folder / "name.yaml").write_text("cluster: {num_nodes: 1, component_placement: {актор: 0}}\n", encoding="utf-8")
    done = rankplan(folder, command, "name.yaml")
    assert done.returncode == 0 and r"\u0430\u043a\u0442\u043e\u0440" in done.stdout


def test_a_closed_pipe_ends_the_command(folder: Path) -> None:
    (folder / "large.yaml").write_text("cluster: {num_nodes: 1000, component_placement: {actor: all}}\n")
    command = f"{sys.executable} -m rankplan plan large.yaml --format csv | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=folder, text=True, capture_output=True)
    assert done.stdout.startswith("component,rank,") and "Traceback" not in done.stderr and "Broken" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["check", "fine.yaml", "fine.yaml", "--nodes", "2x8"], ["schema"], ["explain", "not-multiple"], ["--help"]],
)
def test_a_closed_or_full_output_gives_no_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    command = f"{sys.executable} -m rankplan {' '.join(arguments)}"
    closed = subprocess.run(["bash", "-c", f"{command} | true"], cwd=folder, text=True, capture_output=True)
    assert closed.stderr == ""
    full = subprocess.run(["bash", "-c", f"{command} > /dev/full"], cwd=folder, text=True, capture_output=True)
    assert full.returncode == 1 and full.stderr == "error: [Errno 28] No space left on device\n"
    for redirection in (">&-", "2>&-"):
        done = subprocess.run(["bash", "-c", f"{command} {redirection}"], cwd=folder, text=True, capture_output=True)
        assert done.returncode == 0 and "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("command", [["check"], ["convert", "--to", "roll"]])
def test_a_saved_plan_is_as_good_as_its_config(folder: Path, command: list[str]) -> None:
    rankplan(folder, "plan", "fine.yaml", "--nodes", "2x8", "--save", "plan.json")
    saved, planned = (rankplan(folder, *command, *file) for file in (["plan.json"], ["fine.yaml", "--nodes", "2x8"]))
    assert (saved.returncode, saved.stderr) == (0, planned.stderr)
    assert saved.stdout == planned.stdout.replace("fine.yaml", "plan.json")


def test_a_saved_plan_is_read_from_a_pipe(folder: Path) -> None:
    rankplan(folder, "plan", "fine.yaml", "--nodes", "2x8", "--save", "plan.json")
    command = f"cat plan.json | {sys.executable} -m rankplan show /dev/stdin"
    done = subprocess.run(["bash", "-c", command], cwd=folder, text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (0, rankplan(folder, "show", "plan.json").stdout)


def test_a_folded_table_counts_equal_and_unequal_ranks(folder: Path) -> None:
    # On each node, one process has four accelerators, and four processes have one each.
    parts = [f"{8 * n}-{8 * n + 3}:{5 * n},{8 * n + 4}-{8 * n + 7}:{5 * n + 1}-{5 * n + 4}" for n in range(20)]
    placement = f"'{','.join(parts)}', share: '0:0-2'"
    (folder / "uneven.yaml").write_text(f"cluster: {{num_nodes: 20, component_placement: {{actor: {placement}}}}}\n")
    (folder / "ids.yaml").write_text("nodes: [{ranks: 0-19, accelerator_ids: [8, 9, 10, 11, 12, 13, 14, 15]}]\n")
    done = rankplan(folder, "plan", "uneven.yaml", "--inventory", "ids.yaml")
    assert [" ".join(line.split()) for line in done.stdout.splitlines()[1:3]] == [
        "actor 0-99 0-19 5 accelerators 0-7, 1-4 per rank NV_GPU 8-15, each rank its own cluster",
        "share 0-2 0 3 accelerator 0, 3 ranks per accelerator NV_GPU 8 cluster",
    ]


def test_a_folded_table_keeps_groups_apart_and_serial_numbers_whole(folder: Path) -> None:
    (folder / "mixed.yaml").write_text(
        "cluster:\n  num_nodes: 1\n  component_placement:\n    w:\n"
        "      node_group: [gpu, arm]\n      placement: 0:0-39,1:40-79\n"
        "  node_groups:\n    - {label: gpu, node_ranks: 0}\n"
        "    - {label: arm, node_ranks: 0, hardware: {type: Arm, configs: [{node_rank: 0}]}}\n"
    )
    (folder / "ids.yaml").write_text('nodes: [{ranks: 0, accelerator_ids: ["99999999999"]}]\n')
    done = rankplan(folder, "plan", "mixed.yaml", "--inventory", "ids.yaml")
    assert [" ".join(line.split()) for line in done.stdout.splitlines()[1:3]] == [
        "w 0-39 0 40 accelerator 0, 40 ranks per accelerator NV_GPU 99999999999 gpu",
        "w 40-79 0 40 Arm 0, 40 ranks per Arm NV_GPU 99999999999 arm",
    ]


def test_run_without_ray_tells_what_to_install(folder: Path) -> None:
    done = rankplan(
        folder, "run", "fine.yaml", "--nodes", "2x8", "--simulate", prelude="import sys; sys.modules['ray'] = None"
    )
    assert done.returncode == 1
    required, *_ = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["ray"]
    assert done.stderr == f"error: this needs Ray, which is not installed; run pip install '{required}'\n"


def test_run_rejects_a_faulty_config_before_anything_starts(folder: Path) -> None:
    prelude = "import sys; sys.modules['ray'] = None"
    done = rankplan(folder, "run", "faulty.yaml", "--nodes", "2x8", "--simulate", prelude=prelude)
    assert done.returncode == 1 and "2 faults in faulty.yaml" in done.stderr


@pytest.mark.long
def test_run_launches_runs_and_verifies_every_rank(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "from pathlib import Path\n"
        "from rankplan import Worker\n"
        "class Mine(Worker):\n"
        "    def go(self):\n"
        f"        Path({str(folder)!r}, f'{{self.component}}-{{self.rank}}').touch()\n"
    )
    done = rankplan(
        folder, "run", "fine.yaml", "--nodes", "2x8", "--simulate", "--worker", "mine:Mine", "--method", "go"
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    header = next(index for index, row in enumerate(rows) if row[:1] == ["component"])
    table = rows[header + 1 :]
    assert [row[:3] for row in table] == [
        *(["actor", str(rank), "0"] for rank in range(8)),
        *(["rollout", str(rank), "1"] for rank in range(2)),
    ]
    assert [row[4] for row in table] == [*map(str, range(8)), "0,1", "2,3"]
    assert {row[5] for row in table} == {"environment"}
    assert len({row[3] for row in table}) == 10
    assert sum(path.name.startswith(("actor-", "rollout-")) for path in folder.iterdir()) == 10
    for row in table:
        assert not Path("/proc", row[3]).exists(), "a rank is left running"


@pytest.mark.long
def test_a_failing_rank_ends_the_run_and_is_named(folder: Path) -> None:
    (folder / "bad.py").write_text(
        "from rankplan import Worker\n"
        "class Bad(Worker):\n"
        "    def run(self):\n"
        "        if self.component == 'rollout' and self.rank == 1:\n"
        "            raise ValueError('no such checkpoint')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "rankplan", "run", "fine.yaml", "--nodes", "2x8", "--simulate", "--worker", "bad:Bad"],
        cwd=folder,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 1
    assert "rollout rank 1 (node 1)" in done.stderr and "no such checkpoint" in done.stderr


def test_a_folded_table_shows_ranks_that_return_to_a_node_or_span_nodes(folder: Path) -> None:
    (folder / "roll.yaml").write_text(
        "num_nodes: 3\nnum_gpus_per_node: 4\n"
        "actor: {device_mapping: 'list(range(12))', num_gpus_per_worker: 3, strategy_args: {strategy_name: sglang}}\n"
        "reward: {world_size: 70}\n"
    )
    (folder / "ids.yaml").write_text(
        "nodes: [{ranks: 0-1, accelerators: 4}, {ranks: 2, accelerator_ids: [4, 5, 6, 7]}]\n"
    )
    done = rankplan(folder, "plan", "roll.yaml", "--inventory", "ids.yaml")
    assert [" ".join(line.split()) for line in done.stdout.splitlines()[1:]] == [
        "actor 0-1 0 2 accelerators 0-3, 1-3 per rank, 2 more on other nodes NV_GPU 0-3, each rank its own cluster",
        "actor 2 1 1 accelerators 2-3, 2 per rank, 1 more on other nodes NV_GPU 2-3 cluster",
        "actor 3 2 1 accelerators 1-3, 3 per rank NV_GPU 5-7 cluster",
        "reward 0-69, not all 0 24 node NV_GPU 0-3 node",
        "reward 1-67, not all 1 23 node NV_GPU 0-3 node",
        "reward 2-68, not all 2 23 node NV_GPU 4-7 node",
    ]

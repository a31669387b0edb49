"""``rankplan lsp`` with a client over its pipes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from rankplan import check
from rankplan.cli import main
from support.editors import Editor, applied
from support.paths import EXAMPLES
from support.rejected.config import REFUSED

GOOD = """\
cluster:
  num_nodes: 2
  node_groups:
    - label: a800
      node_ranks: 0-1
  component_placement:
    actor: {node_group: a800, placement: 0-7}
    rollout: 8-15
"""
UNAMBIGUOUS = re.compile(r"did you mean `[^`]+`\?|rename it to `[^`]+`|rename `[^`]+` to `[^`]+`|write [0-9][0-9,:-]*")


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    with Editor("--nodes", "2x8") as found:
        yield found


@pytest.fixture(scope="module")
def anywhere() -> Iterator[Editor]:
    """An editor whose server assumes the nodes."""
    with Editor() as found:
        yield found


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "conf.yaml"


def marked(text: str, one: dict) -> str:
    start, end = one["range"]["start"], one["range"]["end"]
    assert start["line"] == end["line"]
    return text.split("\n")[start["line"]][start["character"] : end["character"]]


def test_the_buffer_counts_not_the_file(editor: Editor, conf: Path) -> None:
    assert editor.open(conf, GOOD) == []  # the file does not exist
    [fault] = editor.change(conf, {"text": GOOD.replace("8-15", "8-15:0-2")})
    assert fault["code"] == "not-multiple" and fault["severity"] == 1 and fault["source"] == "rankplan"
    conf.write_text("cluster: 1\n")
    assert editor.change(conf, {"text": GOOD}) == []


def test_the_editor_is_asked_for_whole_texts(editor: Editor) -> None:
    assert editor.capabilities["textDocumentSync"]["change"] == 1


def test_a_range_is_in_the_units_of_the_editor(conf: Path) -> None:
    text = GOOD.replace("rollout: 8-15", '"\U0001f916": 8-15:0-2')
    for encoding, column in (("utf-16", 10), ("utf-8", 12)):
        with Editor("--nodes", "2x8", encoding=encoding) as editor:
            assert editor.capabilities["positionEncoding"] == encoding
            [fault] = editor.open(conf, text)
            assert fault["range"]["start"] == {"line": 7, "character": column}, encoding


@pytest.mark.parametrize("number", range(0, len(REFUSED), 9))
def test_diagnostics_are_those_of_check(editor: Editor, conf: Path, number: int) -> None:
    text = REFUSED[number][0]
    conf.write_text(text)
    report = check(conf, "2x8")
    found = editor.open(conf, text)
    expected = report.diagnostics if report.is_job else ()
    if not any(line.startswith("cluster") for line in text.splitlines()) and report.plan is None:
        return  # may be no job: see test_a_file_that_is_no_job_has_no_diagnostics
    assert [one["code"] for one in found] == [one.code for one in expected]
    for sent, one in zip(found, expected, strict=True):
        assert sent["message"].startswith(one.message)
        if one.line is not None and one.column is not None and text.isascii():
            assert sent["range"]["start"]["line"] == one.line - 1


def test_a_warning_is_a_warning(editor: Editor, conf: Path) -> None:
    found = editor.open(conf, GOOD.replace("rollout: 8-15", "rollout: 8-14"))
    assert [(one["code"], one["severity"]) for one in found] == [("idle-accelerators", 2)]


def fixable() -> list[tuple[str, str]]:
    """The rejected texts whose help states one replacement."""
    return [(text, help) for text, _, help in REFUSED if help is not None and UNAMBIGUOUS.fullmatch(help)]


def test_there_are_unambiguous_helps() -> None:
    assert len(fixable()) > 15


@pytest.mark.parametrize(("text", "help"), fixable(), ids=lambda text: text[-40:])
def test_a_quick_fix_removes_its_fault(editor: Editor, conf: Path, text: str, help: str) -> None:
    found = [one for one in editor.open(conf, text) if one["message"].endswith(f"help: {help}")]
    for fault in found:
        for action in editor.fixes(conf, fault):
            assert action["kind"] == "quickfix"
            [edit] = action["edit"]["changes"][conf.as_uri()]
            [cured] = action["diagnostics"]
            after = editor.change(conf, {"text": applied(text, edit)})
            assert (cured["code"], cured["message"]) not in [(one["code"], one["message"]) for one in after]
            assert not any(one["code"] == "invalid-yaml" for one in after)
            editor.change(conf, {"text": text})


def test_most_unambiguous_helps_are_quick_fixes(editor: Editor, conf: Path) -> None:
    count = 0
    for text, _ in fixable():
        count += any(editor.fixes(conf, one) for one in editor.open(conf, text))
        editor.close(conf)
    assert count >= 0.8 * len(fixable())


FIXES = [
    ("component_placement", "component_placemnt", "component_placement"),
    ("node_group: a800", "node_group: a80", "a800"),
    ("num_nodes: 2", "num_node: 2", "num_nodes"),
]


@pytest.mark.parametrize(("right", "wrong", "new"), FIXES)
def test_a_quick_fix_restores_the_config(editor: Editor, conf: Path, right: str, wrong: str, new: str) -> None:
    text = GOOD.replace(right, wrong)
    edits = [
        edit
        for fault in editor.open(conf, text)
        for action in editor.fixes(conf, fault)
        for edit in action["edit"]["changes"][conf.as_uri()]
    ]
    assert edits and all(edit["newText"] == new for edit in edits)
    assert editor.change(conf, {"text": applied(text, edits[0])}) == []


def test_an_ambiguous_help_is_no_quick_fix(editor: Editor, conf: Path) -> None:
    [fault] = editor.open(conf, GOOD.replace("8-15", "8-15:0-2"))
    assert " or " in fault["message"] and editor.fixes(conf, fault) == []


def test_invalid_yaml_while_typing(editor: Editor, conf: Path) -> None:
    editor.open(conf, GOOD)
    for end in range(len(GOOD) - 60, len(GOOD), 4):
        assert len(editor.change(conf, {"text": GOOD[:end]})) <= 3, GOOD[:end]
        lines = GOOD[:end].split("\n")
        editor.completion(conf, len(lines) - 1, len(lines[-1]))
        editor.hover(conf, len(lines) - 1, len(lines[-1]))
    [fault] = editor.change(conf, {"text": GOOD + '    env: "0\n'})
    assert fault["code"] == "invalid-yaml" and fault["range"]["start"]["line"] == 8
    assert editor.change(conf, {"text": GOOD}) == []


NO_JOBS = [
    "",
    "# nothing yet\n",
    "x",
    "- hosts: all\n  tasks: []\n",
    "services:\n  web:\n    image: x\n",
    "Resources:\n  A: !Ref b\n  B: !Sub c\n  C: !If [a, b]\n",
    "a: {{ .Values.a }}\nb: {{ .Values.b }}\n",
    "nodes:\n- {ranks: 0-1, accelerators: 8}\n",
    "# rankplan: sha256:0\n" + GOOD.replace("8-15", "8-15:0-2"),
]


@pytest.mark.parametrize("text", NO_JOBS)
def test_a_file_that_is_no_job_has_no_diagnostics(editor: Editor, conf: Path, text: str) -> None:
    assert editor.open(conf, text) == []


def test_hover_tells_the_plan_of_a_component(editor: Editor, conf: Path) -> None:
    editor.open(conf, GOOD)
    text = editor.hover(conf, 7, 6)
    assert "**rollout**: 8 processes on node 1, 8 accelerators" in text and "node 1: 0-7" in text
    assert "**actor**" in editor.hover(conf, 6, 32)  # within its entry
    assert editor.hover(conf, 1, 4) == "`num_nodes`: Number of nodes of the job."
    editor.change(conf, {"text": GOOD.replace("8-15", "8-15:0-2")})
    assert "rankplan explain not-multiple" in editor.hover(conf, 7, 14)


@pytest.mark.parametrize(
    ("file", "key", "component"),
    [
        ("verl.yaml", "rollout:", "rollout"),
        ("slime.yaml", "rollout_num_gpus_per_engine", "rollout"),
        ("nemo_rl.yaml", "policy:", "policy"),
        ("areal.yaml", "actor:", "actor"),
        ("roll.yaml", "actor_infer:", "actor_infer"),
        ("quickstart.yaml", "agent", "agent"),
    ],
)
def test_hover_knows_the_components_of_every_dialect(anywhere: Editor, file: str, key: str, component: str) -> None:
    path = EXAMPLES / file
    text = path.read_text()
    anywhere.open(path, text)
    [line, *_] = [number for number, one in enumerate(text.split("\n")) if key.strip() in one]
    column = text.split("\n")[line].index(key.strip())
    report = check(path)
    assert report.plan is not None
    assert f"**{component}**: {len(report.plan[component])} process" in anywhere.hover(path, line, column + 2)


def completed(editor: Editor, path: Path, text: str) -> dict[str, dict]:
    """Complete at ``|``."""
    before = text[: text.index("|")].split("\n")
    editor.open(path, text.replace("|", ""))
    found = editor.completion(path, len(before) - 1, len(before[-1]))
    editor.close(path)
    return found


COMPLETED = [
    ("trainer:\n  nnodes: 1\n|", {"actor_rollout_ref", "critic"}),
    ("trainer:\n  nnodes: 1\n  |\n", {"n_gpus_per_node"}),
    ("|", {"cluster", "actor_rollout_ref", "policy"}),
    (GOOD + "  |", {"topology", "exclude", "node_groups"}),
    (GOOD + "  top|", {"topology", "exclude"}),
    (GOOD + "    env:\n      |", {"placement", "node_group", "parallel"}),
    (GOOD + "    env: {|", {"placement", "node_group", "parallel"}),
    (GOOD + "    env: {placement: 0, |", {"node_group", "visibility"}),
    (GOOD + "    env: {placement: 0, node_group: |", {"a800", "cluster", "node"}),
    (GOOD + "    env: {placement: 0, node_group: a|}\n", {"a800", "cluster", "node"}),
    (GOOD + "    env:\n      node_group: |", {"a800", "cluster", "node"}),
    (GOOD + "    env:\n      visibility: |", {"own", "node", "own-first"}),
    (GOOD + "    env:\n      egl: |", {"true", "false"}),
    (GOOD + "  topology:\n    keep:\n      |", {"actor", "rollout"}),
    (GOOD + "  topology:\n    keep:\n      actor: {|", {"tp", "ep", "world"}),
    (GOOD + "  topology:\n    prefer:\n      actor:\n        |", {"tp", "ep", "world"}),
    ("cluster:\n  node_groups:\n    - |", {"label", "node_ranks", "hardware"}),
    ("cluster:\n  node_groups:\n    - label: a\n      |", {"label", "node_ranks", "hardware"}),
    ("cluster:\n  node_groups:\n  - label: a\n    env_configs:\n    - |", {"env_vars", "node_ranks"}),
    ("trainer:\n  nnodes: 1\n  |", {"nnodes", "n_gpus_per_node"}),
    ("trainer:\n  nnodes: 1\nactor_rollout_ref:\n  rollout:\n    |", {"tensor_model_parallel_size"}),
    ("trainer:\n  nnodes: 1\ncritic:\n  enable: |", {"true", "false"}),
    ("policy:\n  megatron_cfg:\n    |", {"tensor_model_parallel_size", "enabled"}),
    ("num_gpus_per_node: 8\nmine:\n  |", {"device_mapping", "world_size", "strategy_args"}),
    ("rollout:\n  backend: vllm:d1\nactor:\n  backend: fsdp:d1\n  scheduling_strategy:\n    target: |", {"rollout"}),
    ("# rankplan explain |\n", {"not-multiple", "unknown-key"}),
    ("job: run.sh\n|", {"topology", "nodes", "exclude", "memory", "emit"}),
    ("job: run.sh\ntopology:\n  |", {"keep", "segment", "levels"}),
    ("job: run.sh\ntopology:\n  keep:\n    actor:\n      |", {"tp", "world"}),
    ("job: run.sh\nmemory: {|", {"accelerator", "reserve"}),
    ("job: run.sh\nemit:\n  |", {"to", "image", "queue", "slurm-release"}),
    ("job: run.sh\nemit: {to: |", {"kuberay", "slurm"}),
    ("job: run.sh\nvisibility: |", {"own", "node", "own-first"}),
    ("job: run.sh\ndialect: |", {"verl", "slime"}),
]


@pytest.mark.parametrize(
    ("text", "expected"), COMPLETED, ids=lambda value: value[-40:] if isinstance(value, str) else ""
)
def test_completion(editor: Editor, conf: Path, text: str, expected: set[str]) -> None:
    assert expected <= set(completed(editor, conf, text))


def test_a_job_file_is_checked_and_completed_with_its_trainer(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "verl.yaml").write_bytes((EXAMPLES / "verl.yaml").read_bytes())
    path = tmp_path / "run.job.yaml"
    text = "job: verl.yaml\ntopology:\n  keep:\n    |\n"
    assert {"actor", "rollout"} <= set(completed(editor, path, text))
    text = "job: verl.yaml\ntopology:\n  keep:\n    acto: {tp: node}\n"
    (found,) = editor.open(path, text)
    assert (found["code"], found["range"]["start"]) == ("unknown-component", {"line": 3, "character": 4})
    editor.close(path)
    editor.open(path, text.replace("acto:", "actor:"))
    assert "**actor**" in editor.hover(path, 3, 6) and "must stay within" in editor.hover(path, 1, 3)
    editor.close(path)
    text = "job: verl.yaml\nnode_groups:\n  - {label: h100, node_ranks: 0, components: [|]}\n"
    assert {"actor", "rollout", "reward"} <= set(completed(editor, path, text))
    text = "job: verl.yaml\nnode_groups:\n  - label: h100\n    components:\n      - |\n"
    assert {"actor", "rollout", "reward"} <= set(completed(editor, path, text))
    assert {"label", "components"} <= set(completed(editor, path, "job: verl.yaml\nnode_groups:\n  - |"))


def test_completion_replaces_what_is_typed(editor: Editor, conf: Path) -> None:
    text = GOOD + "  top|"
    edit = completed(editor, conf, text)["topology"]["textEdit"]
    assert applied(text.replace("|", ""), edit) == GOOD + "  topology: "


def test_completion_is_of_the_dialect_of_the_config(editor: Editor, conf: Path) -> None:
    assert "device_mapping" not in completed(editor, conf, "trainer:\n  nnodes: 1\n  |")
    assert "actor_num_nodes" not in completed(editor, conf, "trainer:\n  nnodes: 1\n|")
    assert completed(editor, conf, GOOD.replace("8-15", "|")) == {}


def test_a_base_config_is_found_beside_the_buffer(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(GOOD.replace("8-15", "8-15:0-2"))
    conf = tmp_path / "conf.yaml"
    [fault] = editor.open(conf, "defaults: base.yaml\ntrainer: {}\n")
    assert fault["range"]["start"]["line"] == 0 and "base.yaml:8" in fault["message"]
    [related, *_] = fault["relatedInformation"]
    assert related["location"]["uri"].endswith("/base.yaml") and related["location"]["range"]["start"]["line"] == 7


def test_nodes_of_the_editors_settings(conf: Path, tmp_path: Path) -> None:
    inventory = tmp_path / "nodes.yaml"
    inventory.write_text("nodes:\n- {ranks: 0-1, accelerators: 4}\n")
    with Editor("--nodes", "2x8", options={"inventory": str(inventory)}) as editor:
        assert {one["code"] for one in editor.open(conf, GOOD)} == {"resource-out-of-range"}


BROKEN = """
import rankplan.editor.server as server
def broken(text, *rest, original=server.checked):
    if "crash" in text:
        raise RuntimeError("broken check")
    return original(text, *rest)
server.checked = broken
from rankplan.cli import main
main(["lsp", "--nodes", "2x8"])
"""


def test_a_crash_does_not_end_the_server(conf: Path) -> None:
    with Editor(command=[sys.executable, "-c", BROKEN]) as editor:
        editor.open(conf, GOOD)
        editor.change_at_once(conf, {"text": "# crash\n" + GOOD})
        assert editor.hover(conf, 7, 6) == ""
        assert editor.completion(conf, 2, 0) == {}
        assert len(editor.change(conf, {"text": GOOD.replace("8-15", "8-15:0-2")})) == 1
        assert editor.change(conf, {"text": GOOD}) == []
        assert "rollout" in editor.hover(conf, 7, 6)
        assert editor.shut_down() == 0
        assert editor.process.stderr is not None and b"broken check" in editor.process.stderr.read()


def test_a_missing_inventory_is_a_diagnostic_and_shutdown_ends_the_process(conf: Path) -> None:
    with Editor(options={"inventory": "missing.yaml"}) as editor:
        [fault] = editor.open(conf, GOOD)
        assert fault["code"] == "unreadable" and "missing.yaml" in fault["message"]
        assert editor.shut_down() == 0


def test_the_server_ends_with_its_editor() -> None:
    with Editor() as editor:
        assert editor.process.stdin is not None
        editor.process.stdin.close()
        editor.process.stdin = None
        assert editor.process.wait(20) == 0


def test_without_pygls_the_command_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygls", None)
    result = CliRunner().invoke(main, ["lsp"])
    assert result.exit_code == 1 and "pip install 'rankplan[lsp]'" in result.stderr

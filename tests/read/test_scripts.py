"""Launch scripts and overrides: what is read and where it was, what only a run reveals, what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from rankplan import Inventory, PlacementError, load_config
from rankplan.errors import Diagnostic
from rankplan.read.text.places import Text
from rankplan.read.text.shell.arithmetic import calculated
from rankplan.read.text.shell.parse import parse
from rankplan.read.text.shell.run import follow
from rankplan.read.text.shell.sources import Sources
from rankplan.read.text.shell.words import ShellSyntaxError
from rankplan.trainers.slime.dialect import DIALECT as slime
from rankplan.trainers.verl.dialect import DIALECT as verl
from support.configs import from_overrides
from support.outcomes import at_least, outcome
from support.paths import EXAMPLES

RUN = "python3 -m train \\\n  a.x=${X} a.y=1\n"

# The part of a script before RUN, and the value of a.x; None if only a run can tell.
SCRIPTS: list[tuple[str, Any]] = [
    # assignments and expansions
    ("X=2\n", 2),
    ("X='two words'\n", "two"),
    ('A=1; X="${A}2"\n', 12),
    ("X=${NNODES:-3}\n", 3),
    ("X=${NNODES:-${GPUS:-4}}\n", 4),
    ("X=${NNODES-5}\n", 5),
    ("X=\nX=${X-5}9\n", 9),
    ("X=${2:-4}\n", 4),
    (": ${X:=6}\n", 6),
    ("X=\nX=${X:-7}\n", 7),
    ("X=${Y:+8}9\n", 9),
    ("Y=1\nX=${Y:+8}9\n", 89),
    ("Y=abc.yaml\nX=${Y%.yaml}\n", "abc"),
    ("Y=a/b/c\nX=${Y##*/}\n", "c"),
    ("Y=a-b-c\nX=${Y//-/_}\n", None),
    ("Y=abc\nX=${#Y}\n", None),
    ('A=(1 a.z=2)\nB="${A[@]}"\nX=${B%% *}\n', 1),
    ("export X=10\n", 10),
    ("declare -i X=11\n", None),
    ("X=1\nX+=2\n", 12),
    ("X=1 # a comment with ' and $(\n", 1),
    ("X=a\\\nb\n", "ab"),
    ("X=$'a\\tb'\n", None),
    ("unset X\n", None),
    # arithmetic
    ("X=$((2 * 8))\n", 16),
    ("A=2\nX=$((A ** 3 % 5 + (A > 1 ? 10 : 20)))\n", None),
    ("A=2\nX=$(( ${A} << 2 ))\n", None),
    ("X=$((NNODES * 8))\n", None),
    ("X=$(( $(nproc) * `nproc` ))\n", None),
    ("if (( $(nproc) > 1 )); then X=1; else X=1; fi\n", 1),
    # what only a run reveals
    ("X=$(nproc)\n", None),
    ("X=`nproc`\n", None),
    ("X=${NNODES}\n", None),
    ("X=$1\n", None),
    ("X=$?\n", None),
    ("read X\n", None),
    ("X=$(python3 - <<'EOF'\nprint(')')\nEOF\n)\n", None),
    # branches
    ('X=1\nif [ -n "" ]; then X=2; elif [[ a == a* && 2 -gt 1 ]]; then X=3; else X=4; fi\n', 3),
    ("X=1\nif ((2 > 1)); then X=5; fi\n", 5),
    ("X=1\nif [ -f /etc/x ]; then X=2; fi\n", None),
    ("X=1\nif [ -f /etc/x ]; then exit 1; fi\n", 1),
    ("if [ -f /etc/x ]; then X=2; else X=2; fi\n", 2),
    ('D=npu\ncase "$D" in gpu) X=1 ;; n*|t*) X=2 ;; *) X=3 ;; esac\n', 2),
    ('case "${D:-gpu}" in\n  (gpu) X=1\n   ;;\n  *) X=3\nesac\n', 1),
    ("X=1\ncase $(uname) in Linux) X=2 ;; esac\n", None),
    ('A=4\n[ "$A" -gt 1 ] && X=yes || X=no\n', "yes"),
    ("! [ 1 = 1 ] && X=1 || X=2\n", 2),
    ("X=1\ntrue && { X=2; }\nfalse && X=3\n", 2),
    ("X=1\ntest 1 -lt 2 -a ! a = b && X=9\n", None),
    # loops and functions
    ("X=1\nfor i in 1 2; do X=$i; done\n", None),
    ("X=1\nwhile read -r line; do echo $line; done < file\n", 1),
    ("X=1\nuntil false; do X=2; done\n", None),
    ("f() { X=$1; local Y=2; }\nf 5\n", 5),
    ("function f {\n  return 0\n  X=1\n}\nX=3\nf\n", 3),
    ("X=1\nf() { X=2; }\n", 1),
    # here-documents, redirections, background
    ("cat > file <<EOF\nX=1\na.x=7\nEOF\nX=2\n", 2),
    ("cat <<-'EOF' | tee log\n\tX=1\n\tEOF\nX=3\n", 3),
    ("(cd /tmp && ls) > log 2>&1 &\nX=4\n", 4),
    ("diff <(ls) <(ls -a); X=5\n", 5),
    ("X=1\n(X=2; exit 1)\n", 1),
    ("eval X=6\nX=7\n", 7),
    ("set -- 1 2\nshift\nX=$1\n", 2),
    # variables of a function, a command, or a part of a pipeline
    ("X=1\nf() { local X=2; }\nf\n", 1),
    ("X=1\nf() { local X; X=2; g; }\ng() { X=3; }\nf\n", 1),
    ("X=1\nf() { declare -g X=2; }\nf\n", None),
    ("N=1\nf() { X=$N; }\nN=2 f\n", 2),
    ("N=1\nN=2 set -- $N\nX=$1\n", 1),
    ("N=7\nexport N=1 X=$N\n", 7),
    ("X=1\nexport 'X=2'\n", 2),
    ("X=1\necho | X=2\nX=3 & wait\n", 1),
    ("X=1\nf() { return 1; }\nf && X=2\n(exit 1) && X=2\n", 1),
    ("X=1\nf() { X=2; }\nfor i in 1 2; do f; done\n", None),
    # arithmetic that changes a variable
    ("X=1\n((X++))\n", None),
    ("X=1\nlet X+=3\n", None),
    ("X=1\nA=$((X += 3))\n", None),
    ("for ((X=0; X<3; X++)); do :; done\n", None),
    ("X=1\nprintf -v X 4\n", None),
    ("X=$((9223372036854775807 % 10 * 10 + -9007199254740993 % 10))\n", 67),
    # arrays and arguments
    ('A=(1 2)\nA[1]=3\nA[2]=4\nX="${A[*]}"\nX=${X// /_}\n', None),
    ("A=(1 2)\nA+=3\nX=$A\n", None),
    ('A=(1 2 3)\nB=("${A[@]:1}")\nX=$B\n', 2),
    ("A=(1 2 3)\nX=${A[-1]}\n", 3),
    ("A=(1 2 3)\nX=${A[1]}\n", 2),
    ("A=(1 2 3)\nX=${A[7]}\n", None),
    ("A=(1 $(date))\nX=${A[-1]}\n", None),
    ('A=(1 2 3)\nN=2\nB=("${A[@]:1:$((N - 1))}")\nX=${#B}${B[-1]}\n', None),
    ('A=(1 2 3)\nN=2\nB=("${A[@]:1:$((N - 1))}")\nX=${B[-1]}\n', 2),
    ('A=(1 2 3)\nB=("${A[@]: -2:1}")\nX=$B\n', 2),
    ('A=(1 2)\nX=$(IFS=,; echo "${A[*]}")\nX=${X%,*}\n', 1),
    ("A=(1 2)\nA=3\nX=$A${A[1]}\n", 32),
    ("if grep -qE '^\\s*none' nowhere.yaml; then X=1; else X=2; fi\n", None),
    ('A=(1a 2a)\nB=("${A[@]%a}b")\nX=$B\n', None),
    ('A=(1 2)\nX="${!A[*]}"\n', None),
    ('IFS=,\nA=(1 2)\nX="${A[*]}"\nX=${X/,/_}\n', None),
    ('declare -A A=([a]=1)\nX="${A[*]}"\n', None),
    ("set -- 1 2 3\nshift 2\nX=$1\n", 3),
    ("set -eo pipefail 4\nX=$1\n", 4),
    # quotes, patterns and braces
    ('X=${N:-"a"}\nX="${M:-"$X"}"\n', "a"),
    ("X=$'\\x41\\102'\n", None),
    ('X=1\nif [[ abc == "*" || abc == \\* ]]; then X=2; fi\n', 1),
    ('case abc in "*") X=1 ;; *) X=2 ;; esac\n', 2),
    ('set -- ${N:-"1 2"} 3\nX=$2\n', 3),
    ('X="${A[*]:-7}"\n', None),
    ("N='a*c'\nX=${N%\"*c\"}\n", "a"),
    ("case a in a) X=1 ;& b) X=2 ;; esac\n", None),
    ("set -- {1,2}\nX=$1\n", None),
    # what no launch script uses
    ("X=$((0x10 + 010))\n", None),
    ("A=2\nX=$((--A))\n", None),
    ("A='1 + 1'\nX=$((A))\n", None),
    ("X=1\n[ a = b -o a = a ] && X=2\n", None),
    ("X=1\n[[ ( a == a ) ]] && X=2\n", None),
    ('A=(1 2)\nset -- 0"${A[@]}"\nX=$1\n', None),
    ("A=()\n[ -f /etc/x ] && A+=(1)\nX=$A\n", None),
    ('f() { while [ -n "$1" ]; do shift; done; X=$#; }\nf 1 2\n', 0),
    ('X=1\nwhile [[ $# -gt 0 ]]; do case "$1" in --x) X="$2"; shift 2;; *) shift;; esac; done\n', 1),
    ('X=1\nset -- --x 5 y\nwhile [[ $# -gt 0 ]]; do case "$1" in --x) X="$2"; shift 2;; *) shift;; esac; done\n', 5),
    ('set -- a --x=7\nfor arg in "$@"; do case $arg in --x=*) X="${arg#*=}";; esac; done\n', 7),
    ("set -- 3 4\nfor arg; do X=$arg; done\n", 4),
    ("X=1\nfor arg; do X=$arg; done\n", 1),
    ("f() { while (( $# )); do X=$1; shift; done; }\nf 1 2 3\n", 3),
    ('set -- 1 2 3\nwhile [ $# -gt 0 ]; do X=$1; if [ "$1" = 2 ]; then break; fi; shift; done\n', 2),
    ("set -- 1 2 3\nuntil [ $# -eq 0 ]; do X=$1; shift; done\n", 3),
    ('X=1\nwhile getopts "x:" opt; do case $opt in x) X=$OPTARG;; esac; done\n', 1),
    ("set -- 1 2\nX=$#\n", 2),
    ("X=1\nset -- $(cat /etc/x)\nwhile [ $# -gt 0 ]; do X=$1; shift; done\n", None),
    ("X=1\nset -- a\nwhile [ $# -gt 0 ]; do X=2; done\n", None),
    ("X=1\nset -- a b\nwhile [ $# -gt 0 ]; do if [ -f /etc/x ]; then X=2; shift 2; else shift; fi; done\n", None),
    ("X=1\nwhile [ -f /etc/x ]; do X=2; break; done\n", None),
]


@pytest.mark.parametrize(("before", "value"), SCRIPTS, ids=[before for before, _ in SCRIPTS])
def test_a_script_decides_what_it_can(before: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(before + RUN)
    config = load_config(path)
    assert config["a"].get("x") == value and config["a"]["y"] == 1
    unknown = [one for one in config.document.warnings if one.path == "a.x"]
    assert bool(unknown) == (value is None)
    assert all(one.code == "not-run" and one.warning and one.line and one.help for one in config.document.warnings)


@pytest.mark.parametrize("before", [before for before, value in SCRIPTS if value is not None])
def test_bash_agrees(before: str, tmp_path: Path) -> None:
    """Every value that is read is the one that bash passes; unknown values depend on more than the script."""
    (tmp_path / "file").write_text("")
    path = tmp_path / "run.sh"
    path.write_text(before + RUN)
    bash = "python3() { for word; do printf '%s\\n' \"$word\"; done; }\n" + path.read_text()
    done = subprocess.run(["bash", "-c", bash], capture_output=True, text=True, cwd=tmp_path, check=False)
    values = [line.partition("=")[2] for line in done.stdout.splitlines() if line.startswith("a.x=")]
    assert [str(load_config(path)["a"]["x"]).split()[:1]] == [value.split()[:1] for value in values]


ARRAYS = """\
TP=4
ARGS=(
    trainer.nnodes=2          # a comment
    "trainer.n_gpus_per_node=8"
)
ARGS+=(actor_rollout_ref.rollout.tensor_model_parallel_size=${TP})
if [ -n "$EXTRA" ]; then
    ARGS+=(+trainer.more=1)
fi
LAUNCH=(python3)
"${LAUNCH[@]}" -m verl.trainer.main_ppo \\
    "${ARGS[@]}" \\
    ++algorithm.adv_estimator='grpo' ~critic hydra.run.dir=/tmp model@pkg=x "$@" 2>&1 | tee log
"""


def test_arrays_keep_the_places_of_their_words(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(ARRAYS)
    config = load_config(path)
    assert config.to_dict() == {
        "trainer": {"nnodes": 2, "n_gpus_per_node": 8},
        "actor_rollout_ref": {"rollout": {"tensor_model_parallel_size": 4}},
        "algorithm": {"adv_estimator": "grpo"},
        "hydra": {"runtime": {"choices": {"model@pkg": "x"}}},
    }
    places = {}
    for keys in (("trainer", "nnodes"), ("trainer", "n_gpus_per_node"), ("actor_rollout_ref", "rollout")):
        found = config.document.locate(keys, Diagnostic("invalid-value", "", ""))
        places[keys[-1]] = (found.line, found.column)
    assert places == {"nnodes": (3, 20), "n_gpus_per_node": (4, 30), "rollout": (6, 8)}
    assert [(one.path, one.line) for one in config.document.warnings] == [("trainer.more", 8)]
    assert "depends on the environment variable EXTRA" not in config.document.warnings[0].message
    assert 'it depends on `if [ -n "$EXTRA" ]` (line 7)' in config.document.warnings[0].message


def test_a_fault_points_at_the_assignment(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(ARRAYS.replace("TP=4", "TP=6"))
    with pytest.raises(PlacementError) as caught:
        verl.plan(path, Inventory.uniform(2, 8))
    assert {(one.line, one.column) for one in caught.value.diagnostics} == {(1, 4)}


def test_what_is_not_run_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text('eval "$SETUP"\nsource env.sh\nfor i in 1; do\n  :\ndone\npython3 train.py a.b=$(nproc)\n')
    warnings = load_config(path).document.warnings
    assert [(one.line, one.message) for one in warnings] == [
        (1, "`eval` is not run: what it changes is not read"),
        (2, "`source` is not run: what it changes is not read"),
        (6, "`a.b` is known only when the script runs: it depends on `$(nproc)` (line 6)"),
    ]
    assert warnings[-1].help == "give its value: rankplan check run.sh -- a.b=VALUE"
    changed = load_config(path, ["a.b=3"])
    assert changed["a"]["b"] == 3 and len(changed.document.warnings) == 2


def test_flags_become_keys(tmp_path: Path) -> None:
    path = tmp_path / "slime.sh"
    path.write_text(
        "#!/bin/bash\nMODEL_ARGS=(--num-layers 36)\n"
        "ray start --head --num-gpus 8\n"
        "ray job submit --address=http://127.0.0.1:8265 --runtime-env-json='{}' -- python3 train.py \\\n"
        "   --actor-num-nodes 1 --actor-num-gpus-per-node=8 --colocate \\\n"
        "   ${MODEL_ARGS[@]} --eval-prompt-data aime /data/aime.jsonl --lr -1e-6 --rollout-num-gpus $GPUS\n"
    )
    config = load_config(path)
    assert config.to_dict() == {
        "actor_num_nodes": 1,
        "actor_num_gpus_per_node": 8,
        "colocate": True,
        "num_layers": 36,
        "eval_prompt_data": ["aime", "/data/aime.jsonl"],
        "lr": -1e-6,
    }
    assert [one.path for one in config.document.warnings] == ["rollout_num_gpus"]
    assert len(slime.plan(config, Inventory.uniform(1, 8))["rollout"]) == 8


def test_later_words_of_a_script_win(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("python3 train.py a.b=1 a.c=2 ~a.b +a.c=3 ++a.d=4 a.e=5 ~a.e=5 'a.f=[x, \"y z\"]' a.g=''\n")
    assert load_config(path).to_dict() == {"a": {"c": 3, "d": 4, "f": ["x", "y z"], "g": None}}


def test_a_script_names_its_config_file(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("trainer: {nnodes: x, n_gpus_per_node: 8}\n")
    path = tmp_path / "run.sh"
    path.write_text("python3 train.py --config base.yaml trainer.n_gpus_per_node=4 a.b=1\n")
    config = load_config(path)
    assert config.to_dict() == {"trainer": {"nnodes": "x", "n_gpus_per_node": 4}, "a": {"b": 1}}
    fault = config.document.locate(("trainer", "nnodes"), Diagnostic("invalid-value", "", ""))
    assert (Path(fault.file or "").name, fault.line, fault.column) == ("base.yaml", 1, 19)
    path.write_text("python3 train.py --config other.yaml a.b=1\n")
    assert "other.yaml are not read: no such file here" in load_config(path).document.warnings[0].message


def test_the_command_with_the_most_keys_counts(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("python3 convert.py a.b=2\npython3 train.py a.b=1 a.c=1\n")
    config = load_config(path)
    assert config.to_dict() == {"a": {"b": 1, "c": 1}}
    message = "the command on line 2 is read, not this one, which has another `a.b`"
    assert [(one.path, one.message) for one in config.document.warnings] == [("a.b", message)]


# The words of a command with a placeholder of a document, and the values that it passes.
PLACEHOLDERS: list[tuple[str, dict[str, Any]]] = [
    ("--a.x 1 --a.port <node1_port>", {"x": 1, "port": "<node1_port>"}),
    ("--a.hosts <node1-ip> <node2-ip> \\\n    --a.x 1", {"x": 1, "hosts": ["<node1-ip>", "<node2-ip>"]}),
    ("--a.url http://<host>:8000 --a.x 1", {"x": 1, "url": "http://<host>:8000"}),
    ("--a.x 1 <in>out --a.y 2", {"x": 1, "y": 2}),
    ("--a.x 1 > log <in", {"x": 1}),
]


@pytest.mark.parametrize(("words", "values"), PLACEHOLDERS, ids=[words for words, _ in PLACEHOLDERS])
def test_placeholders_of_documents_are_text(words: str, values: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"python3 train.py {words}\n")
    assert load_config(path).to_dict() == {"a": values}


# A script, and where and how it is refused.
REFUSED = [
    ("python3 a.b='1\n", "1:13 syntax: this quote is not closed"),
    ("if true; then\n", "1:1 syntax: `if` without `fi`"),
    ("X=(1 2\n", "1:1 syntax: this array is not closed"),
    ("X=${1\n", "1:3 syntax: this `${` is not closed"),
    ("X=$(ls\n", "1:3 syntax: this `$(` is not closed"),
    ("for i in 1; do echo\n", "1:1 syntax: `for` without `done`"),
    ("echo a; fi\n", "1:9 syntax: `fi` does not match the commands before it"),
    ("[[ a == b\n", "1:1 syntax: `[[` without `]]`"),
    (
        "echo hello\n",
        "1:1 no-components: this script starts no training job that rankplan reads: it only sets variables",
    ),
    ("python3 a.b.c=1 a.b=2 a.b.c=3\n", "1:29 invalid-value: `a.b` is 2; it has no keys"),
    ("python3 -m t a.b=[1\n", "1:18 syntax: `a.b` is not a value: "),
]


@pytest.mark.parametrize(("text", "expected"), REFUSED, ids=[text for text, _ in REFUSED])
def test_scripts_are_refused_with_a_place(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(text)
    with pytest.raises(PlacementError) as caught:
        load_config(path)
    found = caught.value.diagnostics[0]
    assert f"{found.line}:{found.column} {found.code}: {found.message}".startswith(expected)
    assert found.help and found.file == str(path)


def test_no_script_takes_long(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("X=ab\n" + "X=$X$X\n" * 100 + "A=(1 2)\n" + 'A+=("${A[@]}")\n' * 20 + RUN)
    config = load_config(path)
    assert config["a"] == {"y": 1} and "a very long text" in config.document.warnings[0].message
    doubled = "".join(f"V{one}=$((V{one - 1} + V{one - 1} + V{one - 1}))\n" for one in range(1, 20))
    path.write_text("V0=1\n" + doubled + "X=$((V19))\n" + RUN)
    assert load_config(path)["a"]["x"] == 3**19
    path.write_text("X=" + "a" * 200_000 + "\nX=${X%b*}\n" + RUN)
    assert "x" not in load_config(path)["a"]
    path.write_text("f() { f; f; }\nf\n" + RUN)
    assert load_config(path)["a"]
    path.write_text("".join(f"f{one}() {{ f{one + 1}; f{one + 1}; }}\n" for one in range(17)) + "f0\n" + RUN)
    with pytest.raises(PlacementError, match="the script has more than 50,000 steps"):
        load_config(path)
    path.write_text("X=$((" + "(" * 5000 + "1" + ")" * 5000 + "))\n" + "{ " * 3000 + "\n" + RUN)
    with pytest.raises(PlacementError, match=r"the script is nested too deeply|without"):
        load_config(path)
    with pytest.raises(PlacementError, match="the key has 51 parts"):
        load_config(EXAMPLES / "verl.yaml", ["+" + ".".join("a" * 51) + "=1"])


def lines_run(text: str) -> int:
    """The number of lines of Python that parsing a script runs."""
    count = 0

    def traced(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        parse(text)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("part", ["$(('((' ) )", "$((1))", "((1)) ; ", "`x`", "$(x)", "${x}", "'('"])
def test_parsing_is_linear_in_the_length_of_a_word(part: str) -> None:
    short, long = lines_run(part * 50), lines_run(part * 200)
    assert 0 < long < 4.5 * short


@given(st.text(alphabet="aX=1 \n'\"$(){}[];&|<>#\\`-.ifthendo", max_size=60))
def test_no_script_breaks_the_reader(text: str) -> None:
    sources = Sources()
    sources.add(text, Text("run.sh", text))
    try:
        followed = follow(sources)
    except ShellSyntaxError as error:
        assert error.message and error.help and 0 <= error.start <= len(text)
    else:
        assert isinstance(followed.commands, list)


@given(
    st.recursive(
        st.integers(0, 9).map(str), lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(" ".join)
    )
)
def test_arithmetic_agrees_with_python(text: str) -> None:
    names = {"__builtins__": {}}
    assert calculated(text, lambda _: None) == eval(text, names)  # digits and operators only


PLAIN = {"trainer": {"nnodes": 1, "hosts": ["a", "b"]}}
CONFIG = "trainer:\n  nnodes: 1\n  hosts: [a, b]\n"

# Overrides of CONFIG, and the result or the fault.
OVERRIDES: list[tuple[list[str], Any]] = [
    (["trainer.nnodes=2"], {"trainer": {"nnodes": 2, "hosts": ["a", "b"]}}),
    (["trainer.hosts=[c, 'd e']"], {"trainer": {"nnodes": 1, "hosts": ["c", "d e"]}}),
    (["trainer.hosts[1]=c"], {"trainer": {"nnodes": 1, "hosts": ["a", "c"]}}),
    (["trainer.hosts.0=c"], {"trainer": {"nnodes": 1, "hosts": ["c", "b"]}}),
    (
        ["+new.key={x: 1,y:[2,3]}"],
        {"trainer": {"nnodes": 1, "hosts": ["a", "b"]}, "new": {"key": {"x": 1, "y": [2, 3]}}},
    ),
    (["trainer={nnodes:3}"], {"trainer": {"nnodes": 3, "hosts": ["a", "b"]}}),
    (["++trainer.nnodes=null", "~trainer.hosts"], {"trainer": {"nnodes": None}}),
    (["~trainer.nnodes=1"], {"trainer": {"hosts": ["a", "b"]}}),
    (["trainer.name=a=b"], {"trainer": {"nnodes": 1, "hosts": ["a", "b"], "name": "a=b"}}),
    (["trainer.name="], {"trainer": {"nnodes": 1, "hosts": ["a", "b"], "name": None}}),
    (["trainer.name='7'", "x=True"], {"trainer": {"nnodes": 1, "hosts": ["a", "b"], "name": "7"}, "x": True}),
    (["trainer.nnode=2"], "1:1 unknown-key: unknown key `nnode`"),
    (["x=1", "trainers.nnodes=2"], "1:5 unknown-key: unknown key `trainers`"),
    (["+trainer.nnodes=2"], "1:2 duplicate-key: `trainer.nnodes` already exists"),
    (["~trainer.nodes"], "1:2 unknown-key: unknown key `trainer.nodes`"),
    (["~trainer.nnodes=2"], "1:17 invalid-value: `trainer.nnodes` is 1, not 2"),
    (["trainer.nnodes.x=2"], "1:18 invalid-value: `trainer.nnodes` is 1; it has no keys"),
    (["trainer.hosts[2]=c"], "1:18 invalid-value: `trainer.hosts` is a list of 2; it has no item 2"),
    (["nnodes"], "1:1 syntax: 'nnodes' is not an override"),
    (["+new.x=[{a:1,b:'c:d'},[e:f]]"], {**PLAIN, "new": {"x": [{"a": 1, "b": "c:d"}, ["e:f"]]}}),
    (["+new.\u00b2=1"], {**PLAIN, "new": {"\u00b2": 1}}),
    (["+new." + "1" * 5000 + "=1"], {**PLAIN, "new": {"1" * 5000: 1}}),
    (["x=1", "trainer..nnodes=2"], "1:5 syntax: 'trainer..nnodes' has an empty part"),
    (["trainer.=2"], "1:1 syntax: 'trainer.' has an empty part"),
    (["+x=[\udcff]"], "1:1 syntax: "),
    (["a=1", "=2"], "1:5 syntax: '=2' is not an override"),
    (["a=[1"], "1:3 syntax: `a` is not a value: "),
]


@pytest.mark.parametrize(("words", "expected"), OVERRIDES, ids=[" ".join(words) for words, _ in OVERRIDES])
def test_overrides_change_a_config(words: list[str], expected: Any, tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(CONFIG)
    try:
        config = load_config(path, words)
    except PlacementError as error:
        found = error.diagnostics[0]
        assert found.file == "command line" and found.help
        assert isinstance(expected, str)
        assert f"{found.line}:{found.column} {found.code}: {found.message}".startswith(expected)
    else:
        assert config.to_dict() == expected


KEYS = st.sampled_from(["a", "a.b", "a.b.c", "d", "d.e", "f_1"])
VALUES = st.sampled_from(
    ["1", "-2", "1.5", "true", "null", "text", "[1, two, 'x y']", "{k: 1, l: [2]}", "'7'", "a=b", ""]
)


@at_least(compared=0.2)
@given(st.lists(st.tuples(KEYS, VALUES).map("=".join), max_size=5))
def test_overrides_agree_with_omegaconf(words: list[str]) -> None:
    try:
        expected = OmegaConf.to_container(OmegaConf.from_dotlist(words))
    except Exception:  # a key below a value
        expected = None
    try:
        found = from_overrides(words).to_dict()
    except PlacementError:
        return
    keys = [word.partition("=")[0] for word in words]
    chosen = [word for word in words if word.endswith("=text") and any(key.startswith(f"{word[:-5]}.") for key in keys)]
    if expected is not None and not chosen:  # for Hydra, such a word chooses a file
        outcome("compared")
        assert found == expected


HYDRA = OverridesParser.create()
PIECES = [
    "a",
    "b-1",
    " ",
    "it",
    "/",
    "$",
    "*",
    "|",
    "%",
    "?",
    "${a.b}",
    *(f"\\{letter}" for letter in "\\()[]{}:=, "),
    "\\n",
]
PLAIN_TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)
QUOTED_TEXTS = st.sampled_from([r"'it\'s'", r"'a\\'", r"'\a'", '"[b"', r'"\"', "'{*}'", "''"])
ELEMENTS = st.recursive(
    PLAIN_TEXTS | QUOTED_TEXTS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(PLAIN_TEXTS, inner).map(":".join), max_size=3).map(lambda items: f"{{{', '.join(items)}}}"),
    ),
    max_leaves=5,
)


@at_least(compared=0.3)
@given(ELEMENTS)
@example(r"a\,b")
@example("x\\ ")
@example(r"[a\,b:c, {k\:1: \{v\}, l: [\\]}]")
@example("C:\\dir")
@example(r"{model.blocks.\{*\}:{},lm_head:[*,'layers.{*}']}")
def test_escapes_agree_with_hydra(text: str) -> None:
    try:
        expected = HYDRA.parse_override(f"key={text}").value()
    except Exception:  # blanks only
        return
    outcome("compared")
    try:
        found = from_overrides([f"key={text}"]).to_dict()
    except PlacementError as error:
        assert "duplicate key" in error.message  # Hydra takes the last one
    else:
        assert found == {"key": None if expected == "" and "'" not in text and '"' not in text else expected}


def test_the_value_of_a_flag_is_a_text(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("python3 train.py --key '{token}' --names \"it's\" 'a\\' --kwargs='{\"on\": [1]}' --number 4\n")
    assert load_config(path).to_dict() == {
        "key": "{token}",
        "names": ["it's", "a\\"],
        "kwargs": '{"on": [1]}',
        "number": 4,
    }

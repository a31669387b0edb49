"""Dependencies point one way between rooms and files, in Python and in Rust, and only the runtime knows Ray.

Every import counts, also in a function or under TYPE_CHECKING.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path

import pytest
import rankplan
from rankplan import sdk
from rankplan.dialects import recognisers
from support.memory_configs import BASES
from support.outcomes import some
from support.paths import ROOT, TESTS
from support.rooms import ROOMS

PACKAGE = ROOT / "python" / "rankplan"
HOOK = ROOT / "python" / "rankplan_hook"
# The package's own names, and the ways in, stand above all rooms.
HOMES = rankplan._HOMES | sdk._HOMES
SDK = {f"rankplan.sdk.{path.stem}": path for path in (PACKAGE / "sdk").glob("[!_]*.py")}
ABOVE = {"rankplan", "rankplan.__main__", "rankplan.rlinf", "rankplan.sdk", *SDK}
# The table of what is built in, and the public names of the package, which are RLinf's, too.
NAMING = {PACKAGE / "guests" / "built_in.py", PACKAGE / "__init__.py"}
# The folders of rankplan-core: each may use itself, those before it, and the files beside the folders.
RUST_ROOMS = ["groups", "arrange", "tune"]
# These rooms read the plan, never the config that it was made from.
BELOW_THE_PLAN = ["render", "runtime", "testing"]
# The rooms of the plan are plain data. These methods are sugar for functions of readers, which they import when called;
# a file that is no plan is read as YAML, to say what it is.
SUGAR = {
    ("rankplan.nodes.inventory", "rankplan.read.inventories.files"),
    ("rankplan.plans.other_files", "rankplan.read.text.document"),
    ("rankplan.plans.plan", "rankplan.memory.need"),
    ("rankplan.plans.plan", "rankplan.memory.deciding"),
    ("rankplan.plans.plan", "rankplan.memory.peaks"),
}
READERS = ("rankplan.read", "rankplan.memory")
PRIVATE_TO_RAY = re.compile(r"\bray(\.\w+)*\._(?!_)|from ray[\w.]* import _")

Graph = dict[str, set[str]]


def python_graph() -> Graph:
    """Return the modules that each module of the package imports."""
    paths = {path: ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in PACKAGE.rglob("*.py")}
    paths = {path: name.removesuffix(".__init__") for path, name in paths.items()}
    known = {*paths.values(), "rankplan._core"}
    graph = {name: set(imports(ast.parse(path.read_text()), known)) for path, name in paths.items()}
    return {name: {used for used in uses if (name, used) not in SUGAR} for name, uses in graph.items()}


def imports(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """Yield the imported modules; ``from a import b`` is module ``a.b`` if it is known, else ``a``.

    A name of `rankplan`, of `rankplan.sdk` or of a module of it is imported from its home.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and not node.level, "use absolute imports"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if known and node.module in ("rankplan", "rankplan.sdk") and alias.name in HOMES:
                    yield HOMES[alias.name]
                elif known and node.module in SDK:
                    yield home(node.module, alias.name)
                else:
                    yield name if name in known else node.module


def home(module: str, name: str) -> str:
    """Return the module from which a module of `rankplan.sdk` has a name."""
    found = [node for node in ast.parse(SDK[module].read_text()).body if isinstance(node, ast.ImportFrom)]
    return next(str(node.module) for node in found if name in {alias.name for alias in node.names})


def rust_graph(crate: Path) -> Graph:
    """Return the modules of a crate that each of its modules uses; a use of a re-export counts as one of its origin."""
    paths = {path: "::".join(path.relative_to(crate).with_suffix("").parts) for path in crate.rglob("*.rs")}
    paths = {path: name.removesuffix("::mod") for path, name in paths.items()}
    exported = {}
    for path in re.findall(r"\bpub(?:\(crate\))? use ([^;]+);", code_of(crate / "lib.rs")):
        exported.update({origin.split("::")[-1]: origin for origin in expanded(path)})
    graph: Graph = {}
    for path, name in paths.items():
        if name != "lib":
            found = (used.split("::") for used in crate_paths(code_of(path), name))
            full = [[*exported.get(first, first).split("::"), *rest] for first, *rest in found]
            prefixes = ({"::".join(parts[:length]) for length in range(1, len(parts) + 1)} for parts in full)
            graph[name] = {max(known, key=len) for each in prefixes if (known := each & set(paths.values()))} - {name}
    return graph


def code_of(path: Path) -> str:
    """Return a Rust file without its comments."""
    return re.sub(r"//.*|/\*.*?\*/", "", path.read_text(), flags=re.MULTILINE)


def crate_paths(code: str, name: str) -> Iterator[str]:
    """Yield the paths within the crate that a module names, in ``use`` declarations and anywhere else."""
    parent = "".join(f"{part}::" for part in name.split("::")[:-1])
    for start, tree in re.findall(r"\b(crate::|(?:super::)+)((?:\w+::)*(?:\{[^;]*\}(?=;)|\w+))", code):
        yield from (path if start == "crate::" else parent + path for path in expanded(tree))


def expanded(tree: str) -> list[str]:
    """Return the paths of a ``use`` tree: ``a::{b, c::d}`` is ``a::b`` and ``a::c::d``."""
    tree = "".join(re.sub(r"\s+as\s+\w+", "", tree).split())
    head, brace, inner = tree.partition("{")
    if not brace:
        return [tree]
    parts, depth = [""], 0
    for character in inner.removesuffix("}"):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [head + path for part in parts if part for path in expanded(part)]


def cycles(graph: Graph) -> list[tuple[str, ...]]:
    """Return the groups of modules that all reach each other."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        open_ends = [start]
        while open_ends:
            new = graph.get(open_ends.pop(), set()) - found
            found |= new
            open_ends += new
        return found

    reach = {name: reached(name) for name in graph}
    return sorted({tuple(sorted(b for b in graph if b in reach[a] and a in reach[b])) for a in graph if a in reach[a]})


PYTHON = python_graph()


def room_of(name: str) -> str:
    """Return the room of a module of the package."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    inner = name.split(".")[1:] if path.is_dir() else name.split(".")[1:-1]
    return ".".join(inner) or "rankplan"


ROOM_GRAPH: Graph = {room: set() for room in ROOMS}
for _name in PYTHON.keys() - ABOVE:
    ROOM_GRAPH[room_of(_name)] |= {room_of(used) for used in PYTHON[_name] if used.startswith("rankplan.")}


@pytest.mark.parametrize("name", sorted(PYTHON.keys() - ABOVE))
def test_a_room_uses_only_itself_and_the_rooms_before_it(name: str) -> None:
    room = room_of(name)
    above = set(ROOMS[ROOMS.index(room) + 1 :])
    ray = {used for used in PYTHON[name] if used.partition(".")[0] == "ray"}
    own = {used for used in PYTHON[name] if used.partition(".")[0] == "rankplan"}
    assert not ray or room.startswith("runtime"), f"{name} imports {ray}"
    wrong = {used for used in own if used in ABOVE or room_of(used) in above}
    if room.split(".")[0] in BELOW_THE_PLAN:
        wrong |= own & {"rankplan.read.shared"}
    assert not wrong, f"{name} imports {wrong}"


def test_a_trainer_imports_what_a_guest_may() -> None:
    """It imports `rankplan.sdk` with its modules, public names, and its own room."""
    wrong = set()
    for path in some((PACKAGE / "trainers").rglob("*.py")):
        own = "rankplan.trainers." + path.relative_to(PACKAGE / "trainers").parts[0]
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "rankplan":
                wrong |= {(str(path), alias.name) for alias in node.names if alias.name not in rankplan.__all__}
        for module in imports(tree, set()):
            is_public = module in ("rankplan", "rankplan.sdk", *SDK)
            if module.startswith("rankplan") and not is_public and not f"{module}.".startswith(f"{own}."):
                wrong.add((str(path), module))
    assert wrong == set()


def test_the_room_of_a_trainer_names_none_of_its_forks() -> None:
    """What a fork has otherwise is stated by the fork, and readers of text know neither."""
    texts = {path: path.read_text().lower() for path in [*(PACKAGE / "read").rglob("*.py")]}
    forks = [dialect for dialect in recognisers() if dialect.parent is not None]
    for dialect in some(forks):
        assert dialect.parent is not None
        room = PACKAGE / "trainers" / dialect.parent.name
        own = texts | {path: path.read_text().lower() for path in room.rglob("*.py")}
        name = re.compile(rf"\b({re.escape(dialect.name)}|{re.escape(dialect.system.lower())})\b")
        assert [path for path, text in own.items() if name.search(text)] == []


def test_no_other_room_names_a_trainer() -> None:
    """Trainers are named in the table of what is built in, also in texts given to `import_module`."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        if room not in ("trainers", "rlinf") and path not in NAMING:
            for node in ast.walk(ast.parse(path.read_text())):
                text = node.module if isinstance(node, ast.ImportFrom) else getattr(node, "value", None)
                if isinstance(text, str) and re.match(r"rankplan\.(trainers|rlinf)\b", text):
                    found.add(str(path.relative_to(PACKAGE)))
    assert found == set()


def test_the_rooms_of_the_plan_use_no_reader() -> None:
    """They import no pydantic, no YAML and no reader."""
    found = set()
    for name, uses in PYTHON.items():
        if name.startswith(("rankplan.nodes", "rankplan.plans")):
            found |= {(name, used) for used in uses if used.startswith(("pydantic", "yaml", *READERS))}
    assert found == set()


WITHOUT_READERS = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pydantic", "yaml", "ray") or name.startswith("rankplan.read"):
            raise ImportError(name)

sys.meta_path.insert(0, Refusing())
"""


def without_readers(program: str, *arguments: str) -> None:
    """Run a program in which importing pydantic, YAML, Ray or a reader raises."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_READERS + program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_inventory_and_rules_are_made_without_readers() -> None:
    without_readers("""
import pickle
from rankplan import Inventory
from rankplan.nodes.facts import ClusterFacts
from rankplan.nodes.groups import NodeEnvironment, NodeGroup
from rankplan.plans.rules import Pool, Rules
from rankplan._core import RankMap, RankSet

nodes = Inventory.from_dict({"nodes": [{"ranks": "0-3", "accelerators": 8, "labels": {"rack": "a"}}]})
group = NodeGroup("train", RankSet("0-1"), (NodeEnvironment(RankSet("0"), {"A": "1"}),))
known = nodes.with_facts(ClusterFacts((group,), exclude=("node-3",), levels=("rack",)))
assert pickle.loads(pickle.dumps(known)) == known and known != nodes
assert known.environment(0, "train") == ({"A": "1"}, None) and 3 in known.marks
rows = known.pool(("train",)).apply(RankMap.parse("0-15"), "own")
assert [row.cluster_node_rank for row in rows] == [0] * 8 + [1] * 8
rules = Rules(keep={"actor": {"tp": "rack"}}, pools=(Pool("spare", node_ranks=RankSet("3")),))
assert pickle.loads(pickle.dumps(rules)) == rules and rules.where("keep", "actor").path == "cluster.topology.keep.actor"
own = [sys.modules[name] for name in sys.modules if name.startswith("rankplan")]
assert len(own) <= 27, sorted(module.__name__ for module in own)
assert sum(len(open(one.__file__).readlines()) for one in own if one.__file__.endswith(".py")) <= 5000
""")


def test_a_plan_is_made_saved_and_loaded_without_readers(tmp_path: Path) -> None:
    without_readers(
        """
import pickle
from rankplan import Component, Inventory, Plan, PlacementError
from rankplan._core import RankMap, RankSet
from rankplan.nodes.facts import ClusterFacts
from rankplan.nodes.groups import GroupHardware, NodeEnvironment, NodeGroup, Piece
from rankplan.plans.fitting import fitted
from rankplan.plans.memory_settings import MemorySettings
from rankplan.plans.model import Model
from rankplan.plans.rules import Pool, Rules

nodes = Inventory.from_dict({"nodes": [{"ranks": "0-3", "accelerators": 8, "labels": {"rack": "a"}}]})
actor = Component.place("actor", nodes, ("cluster",), RankMap.parse("0-15"), share=0.5)
plan = Plan(nodes, [actor])
plan.save(sys.argv[1])
loaded = Plan.load(sys.argv[1])
assert loaded == plan and loaded is not plan
assert pickle.loads(pickle.dumps(plan)) == plan
assert loaded.on(Inventory.uniform(4, 8)).inventory.num_nodes == 4
assert fitted([actor], Inventory.uniform(4, 8))[0] == actor
small = Rules(pools=(Pool("all", ("actor",), min_accelerators=17),))
assert [one.code for one in Plan(nodes, [actor], rules=small).rule_faults()]

environment = NodeEnvironment(RankSet("0"), {"A": "1"}, "/opt/python", "replace")
arms = GroupHardware("Franka", (Piece(3, {"robot_ip": "1.2.3.4"}),))
groups = NodeGroup("train", RankSet("0-1"), (environment,)), NodeGroup("arms", RankSet("3"), (), arms)
facts = ClusterFacts(groups, ("node-2",), ("rack",), "topology", 80 << 30, 2 << 40)
known = nodes.with_facts(facts)
settings = MemorySettings(training="megatron", model=Model.of("Qwen/Qwen3-8B"), length=4096)
trained = Component.place("actor", known, ("train",), RankMap.parse("0-15")).with_settings(memory=settings)
engine = Component.place("engine", known, ("train",), RankMap.parse("0-15"), share=0.5)
engine = engine.with_settings(memory=MemorySettings(engine="vllm", params=7e9, share=0.5))
rules = Rules(
    keep={"actor": {"tp": "rack", "dp": {"rack": 2}}},
    segment={"actor": {"rack": 2}},
    prefer={"engine": {"world": "rack"}},
    balance={"actor": "rack"},
    cap={"rack": 4},
    pools=(Pool("all", ("actor",), 1, 64), Pool("reserve", node_ranks=RankSet("3"), protects=("all",))),
)
full = Plan(known, [trained, engine], rules=rules)
full.save(sys.argv[1])
again = Plan.load(sys.argv[1])
assert again == full == Plan.from_dict(full.to_dict()) and again.rules == rules
assert again["actor"].memory == settings and again.inventory.facts == facts
assert again.rules.where("keep", "actor", "tp").file == sys.argv[1]
assert written_memory(full) == {"engine": "vllm", "params": 7e9, "share": 0.5}
content = full.to_dict()
content["cluster"]["topology"]["keep"]["actor"]["tp"] = 3
content["components"]["actor"]["memory"]["length"] = 0
try:
    Plan.from_dict(content)
except PlacementError as error:
    paths = [one.path for one in error.diagnostics]
assert paths == ["cluster.topology.keep.actor.tp", "components.actor.memory.length"], paths
own = [sys.modules[name] for name in sys.modules if name.startswith("rankplan")]
assert len(own) <= MODULES, sorted(module.__name__ for module in own)
lines = sum(len(open(one.__file__).readlines()) for one in own if one.__file__.endswith(".py"))
assert lines <= LINES, lines
""".replace("written_memory(full)", 'full.to_dict()["components"]["engine"]["memory"]')
        .replace("MODULES", "49")
        .replace("LINES", "6740"),
        str(tmp_path / "plan.json"),
    )


@pytest.mark.parametrize("base", sorted(BASES))
def test_a_trainer_is_checked_without_pydantic(base: str) -> None:
    """Pydantic is half of the time that a check of a small config would take."""
    program = """
import json, sys
sys.modules["pydantic"] = None
import rankplan
report = rankplan.check(json.loads(sys.argv[1]), "1x8", memory=True)
assert report.plan is not None and any(one.memory for one in report.plan.values()), report
"""
    done = subprocess.run([sys.executable, "-c", program, json.dumps(BASES[base])], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


FUNCTIONS = [
    "check",
    "plan",
    "arrange",
    "replan",
    "diff",
    "convert",
    "emit",
    "live",
    "pin",
    "launch",
    "tune",
    "sweep",
    "requests",
    "transition",
    "apply",
]


def test_nothing_in_the_package_has_the_name_of_a_public_function() -> None:
    """``rankplan.check`` would be the module as soon as somebody has imported it."""
    modules = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
    public = set(dir(rankplan))
    assert set(FUNCTIONS) <= public and {"front", "launchers", "words"} <= modules
    assert modules & public == set()


CHECKED = {
    "verl": (
        18_700,
        {"pydantic", "fractions", "hashlib", "ctypes", "rankplan.memory.changes", "rankplan.rlinf.section"},
    ),
    "rlinf": (17_870, {"pydantic", "memory", "network", "node_groups", "parallel", "pools", "hardware"}),
    "groups": (20_740, {"pydantic", "pools", "hardware"}),
}
"""By config of `benches/start.py`: the most lines of rankplan that its check imports, and modules that it must not."""

UNUSED = {
    "plans.plan_file",
    "plans.fitting",
    "plans.node_kinds",
    "render.tables",
    "render.annotations",
    "render.memory",
}
"""What no check of a file needs that has no faults."""


@pytest.mark.parametrize("name", CHECKED)
def test_a_check_imports_only_what_its_config_needs(name: str, tmp_path: Path) -> None:
    most_lines, unused = CHECKED[name]
    configs = run_path(str(ROOT / "benches" / "start.py"))["CONFIGS"]
    (tmp_path / "conf.yaml").write_text(configs[f"{name}.yaml"])
    program = """
import json, sys
from rankplan.cli import main
sys.argv = ["rankplan", "check", "conf.yaml", "--nodes", "2x8"]
try:
    main()
except SystemExit as ended:
    assert not ended.code
files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
print(json.dumps({name: file or "" for name, file in files.items()}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    modules = json.loads(done.stdout.splitlines()[-1])
    forbidden = {f"rankplan.{one}" for one in UNUSED} | {f"rankplan.read.{one}" for one in unused} | unused
    assert forbidden & modules.keys() == set()
    own = [file for one, file in modules.items() if one.startswith("rankplan") and file.endswith(".py")]
    assert sum(len(Path(file).read_text().splitlines()) for file in own) <= most_lines


def test_no_import_cycle_between_python_files() -> None:
    assert cycles(PYTHON) == []


@pytest.mark.parametrize("crate", sorted((ROOT / "crates").glob("*/src")), ids=lambda path: path.parent.name)
def test_no_import_cycle_between_rust_files(crate: Path) -> None:
    assert cycles(rust_graph(crate)) == []


def test_a_rust_room_uses_only_itself_and_the_rooms_before_it() -> None:
    def floor(name: str) -> int:
        room = name.split("::")[0]
        return RUST_ROOMS.index(room) if room in RUST_ROOMS else -1

    graph = rust_graph(ROOT / "crates" / "rankplan-core" / "src")
    assert {floor(name) for name in graph} == {-1, *range(len(RUST_ROOMS))}
    assert [(name, used) for name, uses in graph.items() for used in uses if floor(used) > floor(name)] == []


def test_no_file_of_tests_imports_another() -> None:
    """What several of them use is in ``tests/support``."""
    found = []
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [*(getattr(node, "module", None) or "").split("."), *(alias.name for alias in node.names)]
                found += [f"{path.name} imports {name}" for name in names if re.search(r"\btest_", name)]
    assert found == []


def test_two_files_and_the_hook_use_the_private_parts_of_ray() -> None:
    paths = [*PACKAGE.rglob("*.py"), *HOOK.rglob("*.py")]
    found = {path for path in paths if PRIVATE_TO_RAY.search(path.read_text())}
    own = PACKAGE / "runtime" / "ray"
    assert found <= {own / "internals.py", own / "head.py", HOOK / "wrap.py"}


@pytest.mark.parametrize("module", ["ray", "rich", "click", "numpy", "omegaconf", "hypothesis"])
def test_importing_rankplan_does_not_import(module: str) -> None:
    program = f"import sys, rankplan; from rankplan import *; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_rank_starts_without_the_modules_that_make_plans() -> None:
    program = "import sys, rankplan.runtime.rank.host; from rankplan import Worker; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_the_hook_uses_only_the_standard_library_and_runs_on_the_oldest_python_of_ray() -> None:
    for path in some(HOOK.rglob("*.py")):
        tree = ast.parse(path.read_text(), feature_version=(3, 9))
        used = {name.partition(".")[0] for name in imports(tree, set())} - sys.stdlib_module_names
        assert used <= {"rankplan_hook", "sitecustomize", *(["ray"] if path.name == "wrap.py" else [])}, path


def test_importing_rankplan_imports_nothing_else_and_installs_no_signal_handler() -> None:
    program = (
        "import signal, sys\n"
        "handlers = lambda: [signal.getsignal(number) for number in signal.valid_signals()]\n"
        "modules, installed = set(sys.modules), handlers()\n"
        "import rankplan\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - modules} - sys.stdlib_module_names\n"
        "same = handlers() == installed\n"
        "sys.exit(f'{new} {same}' if (new, same) != ({'rankplan'}, True) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_imports_no_command_and_no_library_but_click() -> None:
    program = (
        "import sys; from rankplan.cli import main; sys.argv = ['rankplan', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "found = {'pydantic', 'yaml', 'rich', 'ray', 'rankplan.cli.common', 'rankplan._core'} & set(sys.modules)\n"
        "sys.exit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

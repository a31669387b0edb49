"""The hook in the Pythons of a command: loaded without rankplan, at no cost, and beside another ``sitecustomize``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rankplan_hook.names import site

RAY = {
    "ray/__init__.py": "import ray.util, ray.actor\n",
    "ray/util/__init__.py": "from ray.util.placement_group import placement_group\n",
    "ray/util/placement_group.py": (
        "def placement_group(bundles, name=''): return 'made'\ndef remove_placement_group(placement_group): pass\n"
    ),
    "ray/actor.py": "class ActorClass:\n    def _remote(self, args=None, kwargs=None, **options): pass\n",
}


@pytest.fixture
def python(tmp_path: Path) -> object:
    """Run Python in an environment like that of a command, on a path without rankplan."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sitecustomize.py").write_text("print('other ran')\n")
    for name, text in RAY.items():
        path = tmp_path / "fake" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(program: str, *options: str, path: str = "", **variables: str) -> str:
        entries = os.pathsep.join(filter(None, [site(), path]))
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": entries, "RANKPLAN_PINS": "0", **variables}
        command = [sys.executable, *options, "-c", program]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
        return done.stdout

    return run


def test_a_python_that_does_not_import_ray_imports_almost_nothing(python: object) -> None:
    listed = "import sys; print(*sys.modules)"
    plain = set(python(listed, "-I").split())  # type: ignore[operator]
    hooked = set(python(listed).split())  # type: ignore[operator]
    assert hooked - plain <= {"sitecustomize"}


def test_the_sitecustomize_that_the_hook_hides_runs(python: object) -> None:
    program = "import sys; print(sys.modules['sitecustomize'].__file__, any('rankplan_hook' in p for p in sys.path))"
    told = python(program, path="other").split()  # type: ignore[operator]
    assert told[:2] == ["other", "ran"]
    assert Path(told[2]).parent.name == "other" and told[3] == "False"


def test_what_ray_exports_is_wrapped_when_it_is_imported(python: object) -> None:
    program = (
        "from ray.util.placement_group import placement_group as mine\nimport ray\n"
        "print(mine is ray.util.placement_group is sys.modules['ray.util.placement_group'].placement_group,\n"
        "      mine.__wrapped__.__name__, ray.actor.ActorClass._remote.__wrapped__.__name__)"
    )
    told = "True placement_group _remote\n"
    assert python(f"import sys\n{program}", path="fake") == told  # type: ignore[operator]
    both = os.pathsep.join(["other", "fake"])
    assert python(f"import sys\n{program}", path=both) == f"other ran\n{told}"  # type: ignore[operator]


def test_what_ray_exports_is_wrapped_in_a_worker_and_unwrapped_again(python: object) -> None:
    program = (
        "import ray, sys\nfrom ray.util import placement_group as mine\n"
        "import rankplan_hook.install as hook\nhook.run_1234()\nfirst = mine, ray.util.placement_group\n"
        "from rankplan_hook import wrap\nmodule = sys.modules['ray.util.placement_group']\n"
        "print(mine is module.placement_group, hasattr(mine, '__wrapped__'))\n"
        "wrap.unwrap(module)\nprint(mine is module.placement_group, hasattr(mine, '__wrapped__'))\n"
        "import os\nprint(os.environ['RANKPLAN_PINS'], os.environ['PYTHONPATH'].split(os.pathsep)[0].endswith('site'))"
    )
    package = str(Path(site()).parents[1])
    told = python(program, "-S", path=os.pathsep.join(["fake", package]))  # type: ignore[operator]
    assert told == "True True\nTrue False\n1234 True\n"


def test_without_a_run_nothing_is_installed(python: object) -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": site()}
    program = "import sys; sys.exit('rankplan_hook' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], env=environment).returncode == 0

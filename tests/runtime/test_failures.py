"""Failures on a real Ray cluster: one error that names the rank, the node and the cause, and no process left over."""

from __future__ import annotations

import importlib
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import ray
from rankplan import (
    Cluster,
    FlexiblePlacementStrategy,
    LaunchError,
    PackedPlacementStrategy,
    Worker,
    WorkerError,
    WorkerGroup,
)
from rankplan.runtime.group import ranks
from support.broken_module import Broken
from support.paths import TESTS
from support.workers import FailsToStart, Faulty, Reader, Refuses, Stuck, has_ended, stuck

pytestmark = pytest.mark.long

FOUR = PackedPlacementStrategy(2, 5)
TWO = FlexiblePlacementStrategy([[0], [4]])


@pytest.fixture(scope="module")
def faulty(two_nodes: Cluster) -> Iterator[WorkerGroup]:
    with Faulty.create_group().launch(two_nodes, FOUR, name="faulty") as group:
        yield group


@pytest.fixture
def mortal(two_nodes: Cluster) -> Iterator[WorkerGroup]:
    with Faulty.create_group().launch(two_nodes, FOUR, name="mortal") as group:
        yield group


@pytest.fixture(scope="module")
def enough(two_nodes: Cluster) -> int:
    """Enough seconds for healthy ranks to start on this machine under its current load."""
    started = time.monotonic()
    Reader.create_group().launch(two_nodes, FOUR).shutdown()
    return math.ceil(1 + 2 * (time.monotonic() - started))


def who(error: LaunchError | WorkerError) -> tuple[str | None, int | None, int | None]:
    return error.component, error.rank, error.node


def test_a_failing_rank_is_named_with_its_traceback(faulty: WorkerGroup) -> None:
    with pytest.raises(WorkerError) as caught:
        faulty.fail(3).wait()
    error = caught.value
    assert who(error) == ("faulty", 3, 1)
    assert str(error) == "faulty rank 3 (node 1): fail() raised KeyError: 'rank 3 had enough'"
    assert error.remote_traceback is not None
    assert 'raise KeyError(f"rank {self.rank} had enough")' in error.remote_traceback
    assert "host.py" not in error.remote_traceback
    assert error.__notes__ == [error.remote_traceback]
    assert isinstance(error.__cause__, KeyError)


def test_the_first_of_several_failing_ranks_is_named_and_the_others_listed(faulty: WorkerGroup) -> None:
    call = faulty.fail(1, 2, 3)
    while not call.done():
        time.sleep(0.01)
    with pytest.raises(WorkerError, match=r"had enough' \(ranks 2-3 failed too\)") as caught:
        call.wait()
    assert caught.value.rank == 1


def test_a_failing_rank_is_reported_while_others_still_work(mortal: WorkerGroup) -> None:
    with pytest.raises(WorkerError, match="mortal rank 2"):
        mortal.fail_while_others_wait(2).wait()


def test_the_group_is_usable_after_a_failure(faulty: WorkerGroup) -> None:
    with pytest.raises(WorkerError):
        faulty.fail(0).wait()
    assert faulty.fail().wait() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("method", "reason"), [("unloadable", "Unloadable: one"), ("unpicklable", "Unpicklable: holds a lock")]
)
def test_exceptions_that_cannot_be_pickled_are_reported_as_text(faulty: WorkerGroup, method: str, reason: str) -> None:
    with pytest.raises(WorkerError, match=reason) as caught:
        getattr(faulty.execute_on(1), method)().wait()
    assert who(caught.value) == ("faulty", 1, 0)
    assert caught.value.__cause__ is None


def test_the_text_of_an_exception_harms_neither_its_rank_nor_the_terminal(faulty: WorkerGroup) -> None:
    """Ray ends a process that raises an error whose text is not valid UTF-8."""
    with pytest.raises(WorkerError) as caught:
        faulty.execute_on(1).cannot_be_written().wait()
    assert str(caught.value).endswith(r"() raised ValueError: no such file: \udcff\x1b[31m")
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(WorkerError) as caught:
        faulty.execute_on(1).says_much().wait()
    assert len(str(caught.value)) < 1100
    assert len(caught.value.__notes__[0]) < 51_000 and "characters left out" in caught.value.__notes__[0]
    with pytest.raises(WorkerError, match=r"\(\) raised ValueError: invalid literal for int\(\) .* 'no number'"):
        faulty.execute_on(1).fails_in_a_task().wait()
    assert faulty.fail().wait() == [0, 1, 2, 3]


def test_a_value_that_cannot_be_pickled_is_an_error_of_its_rank(faulty: WorkerGroup) -> None:
    with pytest.raises(WorkerError, match=r"faulty rank 2 \(node 1\): returns_a_lock\(\) failed: .*lock"):
        faulty.execute_on(2).returns_a_lock().wait()
    assert faulty.fail().wait() == [0, 1, 2, 3]


def test_a_value_that_cannot_be_unpickled_is_an_error_of_its_rank(faulty: WorkerGroup) -> None:
    message = r"faulty rank 1 \(node 0\): .*\(\) gave an answer that cannot be unpickled by the driver: ValueError"
    with pytest.raises(WorkerError, match=message) as caught:
        faulty.execute_on(1).returns_what_cannot_be_read().wait()
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_rank_that_dies_is_named(mortal: WorkerGroup, two_nodes: Cluster) -> None:
    with pytest.raises(
        WorkerError, match=r"die\(\) gave no answer, its process is gone: it exited without reporting an error"
    ) as caught:
        mortal.die(2).wait()
    assert who(caught.value) == ("mortal", 2, 1)
    with pytest.raises(WorkerError, match=r"mortal rank 2 \(node 1\): fail\(\) gave no answer"):
        mortal.fail().wait()
    with pytest.raises(WorkerError, match="mortal rank 2"):
        mortal.verify()
    assert mortal.execute_on(0, 1, 3).fail().wait() == [0, 1, 3]
    mortal.shutdown()
    with Reader.create_group().launch(two_nodes, FOUR, name="mortal") as again:
        assert len(again.verify()) == 4


def test_a_rank_that_is_killed_during_a_call_is_named(mortal: WorkerGroup) -> None:
    pids = mortal.pid().wait()
    call = mortal.fail_while_others_wait(-1)
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(WorkerError) as caught:
        call.wait(30)
    assert who(caught.value) == ("mortal", 1, 0)


def test_a_rank_that_was_killed_between_calls_is_named(mortal: WorkerGroup) -> None:
    pid = mortal.verify()[3].pid
    os.kill(pid, signal.SIGKILL)
    assert has_ended(pid)
    with pytest.raises(WorkerError, match=r"fail\(\) gave no answer, its process is gone") as caught:
        mortal.fail().wait(30)
    assert who(caught.value) == ("mortal", 3, 1)


def test_a_rank_that_exits_is_named_and_its_process_ends(mortal: WorkerGroup) -> None:
    """A thread that still runs would otherwise keep the process alive."""
    pid = mortal.verify()[0].pid
    with pytest.raises(WorkerError, match=r"leave\(\) gave no answer, its process is gone: it exited \(code 4\)"):
        mortal.leave(0).wait(30)
    assert has_ended(pid)


@pytest.mark.usefixtures("nothing_stays")
def test_shutdown_ends_busy_ranks(two_nodes: Cluster) -> None:
    group = Faulty.create_group().launch(two_nodes, FOUR)
    group.fail_while_others_wait(-1)
    group.shutdown()


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize(
    ("how", "timeout", "message"),
    [
        ("raise", 60, r"did not come up, so the group is not launched: it raised ValueError: no weights for rank 2"),
        ("die", 60, r"did not come up, so the group is not launched: it gave no answer, its process is gone"),
        ("hang", None, r"1 of 4 ranks did not come up within \d+ s, so the group is not launched \(rank 2 on node 1: "),
    ],
)
def test_a_launch_is_all_or_nothing(
    two_nodes: Cluster, enough: int, how: str, timeout: float | None, message: str
) -> None:
    with pytest.raises(LaunchError, match=message) as caught:
        FailsToStart.create_group(how, 2).launch(two_nodes, FOUR, name="actor", timeout=timeout or enough)
    assert who(caught.value) == ("actor", 2, 1)
    assert (how == "raise") == isinstance(caught.value.__cause__, ValueError)
    assert (how == "raise") == any("no weights" in note for note in getattr(caught.value, "__notes__", ()))


@pytest.mark.usefixtures("nothing_stays")
def test_one_of_several_ranks_that_fail_is_named_with_its_own_fault(two_nodes: Cluster) -> None:
    with pytest.raises(LaunchError, match=r"^actor rank (\d) \(node \d\) did.*: it raised ValueError: rank \1 refuses"):
        Refuses.create_group().launch(two_nodes, FOUR, name="actor")


@pytest.mark.usefixtures("nothing_stays")
def test_rank_zero_that_dies_is_not_blamed_on_those_that_wait_for_it(two_nodes: Cluster) -> None:
    with pytest.raises(LaunchError) as caught:
        FailsToStart.create_group("die", 0).launch(two_nodes, FOUR, name="actor")
    assert who(caught.value) == ("actor", 0, 0)


@pytest.mark.usefixtures("nothing_stays")
def test_a_module_that_cannot_be_imported_in_one_rank(two_nodes: Cluster) -> None:
    with pytest.raises(LaunchError, match=r"it raised ImportError: libmodel\.so\.2: cannot open") as caught:
        Broken.create_group().launch(two_nodes, FOUR, name="actor")
    assert who(caught.value) == ("actor", 1, 0)


MODULE = """
import os, signal, sys, time
from rankplan import Worker

if os.environ.get("RANK") == "1":
    {does}

class Late(Worker): ...
"""


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize(
    ("does", "timeout", "message"),
    [
        ("exec('x = = 1')", 60, r"rank 1 \(node 1\) did not come up.*: it raised SyntaxError: invalid syntax"),
        ("sys.exit('no driver here')", 60, r"rank 1 \(node 1\) did not.*: it raised SystemExit: no driver here"),
        (
            "os._exit(3)",
            60,
            r"rank 1 \(node 1\) did not.*its process is gone: it exited without reporting an error \(killed",
        ),
        ("os.kill(os.getpid(), 15); time.sleep(60)", 60, r"rank 1 \(node 1\) did not.*gone: it was ended by SIGTERM"),
        ("time.sleep(600)", None, r"1 of 2 ranks did not come up within \d+ s.*\(rank 1 on node 1: "),
    ],
)
def test_a_module_that_fails_on_import(
    two_nodes: Cluster,
    enough: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    does: str,
    timeout: float | None,
    message: str,
) -> None:
    name = f"late_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(does=does))
    monkeypatch.syspath_prepend(tmp_path)
    worker: type[Worker] = importlib.import_module(name).Late
    with pytest.raises(LaunchError, match=message) as caught:
        worker.create_group().launch(two_nodes, TWO, name="actor", timeout=timeout or enough)
    assert who(caught.value) == ("actor", 1, 1)


@pytest.mark.usefixtures("nothing_stays")
def test_a_rank_that_is_killed_while_it_starts(two_nodes: Cluster, tmp_path: Path) -> None:
    killer = threading.Thread(target=lambda: os.kill(stuck(tmp_path, 1), signal.SIGKILL))
    killer.start()
    with pytest.raises(
        LaunchError, match=r"it gave no answer, its process is gone: it exited without reporting an error"
    ) as caught:
        Stuck.create_group(tmp_path).launch(two_nodes, TWO, name="actor", timeout=60)
    killer.join()
    assert who(caught.value) == ("actor", 1, 1)


DRIVER = """
import sys, time
from pathlib import Path
from rankplan import Cluster, NodePlacementStrategy, Worker
from support.workers import Stuck, note

waits, folder = sys.argv[1], Path(sys.argv[2])
class Slow(Worker):
    def step(self):
        note(folder, self.rank)
        time.sleep(600)

with Cluster() as cluster:
    kind = Stuck.create_group(folder) if waits == "launch" else Slow.create_group()
    kind.launch(cluster, NodePlacementStrategy([0, 1])).step().wait()
"""

ENDS = {
    signal.SIGINT: (-signal.SIGINT, "KeyboardInterrupt"),
    signal.SIGTERM: (143, "ended by SIGTERM; its ranks and reservations end with it\n"),
    signal.SIGKILL: (-signal.SIGKILL, ""),
}
"""The exit code of a driver, and the end of its stderr."""


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize("waits", ["launch", "call"])
@pytest.mark.parametrize("number", ENDS)
def test_a_driver_that_is_ended_while_it_waits(
    two_nodes: Cluster, tmp_path: Path, number: signal.Signals, waits: str
) -> None:
    """Ray sees the signal itself if it waits for more than a second."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, waits, tmp_path],
        cwd=TESTS,
        env={**os.environ, "RAY_ADDRESS": two_nodes.address},
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in the background, SIGINT is ignored, and what they start inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for rank in (0, 1):
        stuck(tmp_path, rank)
    time.sleep(2)
    driver.send_signal(number)
    _, told = driver.communicate(timeout=60)
    code, last = ENDS[number]
    assert driver.returncode == code, told
    assert last in told, told


REPEATED = """
import os, signal, sys
from ray._private.worker import global_worker
from rankplan import Cluster

def more(*mode, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):
    kill(pid, number)

class Last:
    __del__ = more

last = Last()
ending = sys.argv[1]
cluster = Cluster.simulate("1x1") if ending == "simulation" else Cluster()
set_mode = global_worker.set_mode
global_worker.set_mode = lambda mode: (more(), set_mode(mode))
if ending == "with":
    with cluster:
        more()
more()
"""


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize("ending", ["with", "exit", "simulation"])
def test_more_signals_while_a_driver_ends(two_nodes: Cluster, ending: str) -> None:
    """SIGTERM comes again when Ray has shut down, and when Python has restored the handlers of the system."""
    environment = {**os.environ, "RAY_ADDRESS": two_nodes.address}
    driver = subprocess.run([sys.executable, "-c", REPEATED, ending], env=environment, capture_output=True, text=True)
    told = "ended by SIGTERM; its ranks and reservations end with it\n"
    assert (driver.returncode, driver.stderr) == (143, told)


@pytest.mark.usefixtures("nothing_stays")
def test_threads_launch_at_the_same_time(two_nodes: Cluster) -> None:
    def launch(number: int) -> list[int]:
        with Reader.create_group().launch(two_nodes, TWO, name=f"reader{number}") as group:
            return [report.rank for report in group.verify()]

    with ThreadPoolExecutor() as threads:
        assert list(threads.map(launch, range(3))) == [[0, 1]] * 3


@pytest.mark.usefixtures("nothing_stays")
def test_arguments_that_cannot_be_pickled_start_nothing(two_nodes: Cluster) -> None:
    with pytest.raises(LaunchError, match=r"FailsToStart or its arguments cannot be sent to the ranks: .*lock"):
        FailsToStart.create_group(threading.Lock(), 1).launch(two_nodes, TWO)


def with_interpreter(cluster: Cluster, path: str | Path, nodes: str) -> Cluster:
    """Return another Cluster object, with a node group of both nodes that uses this interpreter on some."""
    environment = {"node_ranks": nodes, "python_interpreter_path": str(path)}
    groups = [{"label": "venv", "node_ranks": "0-1", "env_configs": [environment]}]
    return Cluster(cluster_cfg={"num_nodes": 2, "node_groups": groups})


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize(
    ("text", "site", "message"),
    [
        (None, "", r"it is not an executable file there"),
        ("no program", "", r"it does not start: Exec format error"),
        ("#!/bin/sh\nexit 3", "", r"it cannot import ray and rankplan: it exited with status 3"),
        (
            '#!/bin/sh\nexec {python} -IS "$@"',
            "",
            r"it cannot import ray and .*: ModuleNotFoundError: No module named 'ray'",
        ),
        (
            '#!/bin/sh\nPYTHONPATH={folder}:$PYTHONPATH exec {python} "$@"',
            "import ray; ray.__version__ = '2.40.0'",
            rf"it has Ray 2\.40\.0, but Ray was started there with Ray {re.escape(ray.__version__)}; use the same",
        ),
        (
            '#!/bin/sh\nPYTHONPATH={folder}:$PYTHONPATH exec {python} "$@"',
            "import sys, rankplan.runtime.rank.host; sys.version_info = (3, 10)",
            r"it has Python 3\.10, but Ray was started there with Python 3\.1\d; use the same",
        ),
    ],
)
def test_an_interpreter_that_cannot_run_a_rank_starts_nothing(
    two_nodes: Cluster, tmp_path: Path, text: str | None, site: str, message: str
) -> None:
    path = tmp_path / "python"
    if text is not None:
        executable(path, text.format(python=sys.executable, folder=tmp_path))
    (tmp_path / "sitecustomize.py").write_text(site)
    message = rf"actor rank 1 \(node 1\): the interpreter {path} of node group 'venv' cannot run a rank: {message}"
    with with_interpreter(two_nodes, path, "1") as same, pytest.raises(LaunchError, match=message) as caught:
        Reader.create_group().launch(same, FlexiblePlacementStrategy([[0], [4]], "venv"), name="actor")
    assert who(caught.value) == ("actor", 1, 1)


def test_an_interpreter_that_is_missing_on_several_nodes(two_nodes: Cluster) -> None:
    message = r"actor rank 0 \(node 0\): .*: it is not an executable file there \(also on node 1\)$"
    with (
        with_interpreter(two_nodes, "/opt/nowhere/bin/python", "0-1") as same,
        pytest.raises(LaunchError, match=message),
    ):
        Reader.create_group().launch(same, FlexiblePlacementStrategy([[0], [4]], "venv"), name="actor")


def test_an_interpreter_with_an_odd_path_that_prints_a_banner(two_nodes: Cluster, tmp_path: Path) -> None:
    path = executable(tmp_path / "my $env's; python", f'#!/bin/sh\necho welcome\nexec {sys.executable} "$@"')
    with with_interpreter(two_nodes, path, "0") as same:
        assert len(Reader.create_group().launch(same, FlexiblePlacementStrategy([[3]], "venv")).verify()) == 1


@pytest.mark.usefixtures("nothing_stays")
def test_ranks_without_a_process_are_distinguished_from_ranks_in_their_constructor(
    two_nodes: Cluster, enough: int, tmp_path: Path
) -> None:
    path = executable(tmp_path / "python", f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\nexec sleep 600')
    message = (
        rf"^actor: 2 of 3 ranks did not come up within {enough} s, so the group is not launched "
        r"\(rank 2 on node 1: no process yet; rank 1 on node 0: still importing or constructing\); check what"
    )
    with with_interpreter(two_nodes, path, "1") as same, pytest.raises(LaunchError, match=message) as caught:
        rows = FlexiblePlacementStrategy([[0], [1], [4]], "venv")
        FailsToStart.create_group("hang", 1).launch(same, rows, name="actor", timeout=enough)
    assert who(caught.value) == ("actor", 1, 0)


@pytest.mark.usefixtures("nothing_stays")
def test_ranks_that_wait_for_rank_zero_are_not_blamed(two_nodes: Cluster, enough: int, tmp_path: Path) -> None:
    path = executable(tmp_path / "python", f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\nexec sleep 600')
    message = (
        rf"^actor: 1 of 2 ranks did not come up within {enough} s.* \(rank 0 on node 0: no process yet\); check what"
    )
    with with_interpreter(two_nodes, path, "0") as same, pytest.raises(LaunchError, match=message):
        Reader.create_group().launch(same, FlexiblePlacementStrategy([[0], [4]], "venv"), name="actor", timeout=enough)


def test_an_interpreter_that_hangs_is_ended(tmp_path: Path) -> None:
    path = executable(tmp_path / "python", f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/pid\nwait")
    assert ranks._fault_of._function(str(path), {}, 1.0) == "it did not import ray within 1 s"
    assert has_ended(int((tmp_path / "pid").read_text()))

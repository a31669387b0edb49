"""The files of a script are in a folder of its user alone, and go with the job, however it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import rankplan
from rankplan import EmitOptions
from support.launchers import planned

STUB = """#!/bin/sh
folder=$(ls -d "$SHARED"/rankplan-*)
stat -c '%a %U' "$folder"
exec sleep "$SECONDS_OF_A_RANK"
"""


def started(target: str, folder: Path, seconds: str) -> subprocess.Popen[str]:
    """Start the script of a launcher; a program in the launcher's place tells the mode of the folder, and sleeps."""
    stub = folder / "bin" / target
    stub.parent.mkdir()
    stub.write_text(STUB)
    stub.chmod(0o755)
    shared = folder / "shared"
    shared.mkdir()
    script = folder / "train.sh"
    script.write_text(rankplan.emit(planned("v01"), target, EmitOptions(command="python {}.py")))
    path = f"{stub.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "SHARED": str(shared), "TMPDIR": str(shared), "RANKPLAN_SHARED": str(shared)}
    return subprocess.Popen(
        ["bash", str(script)],
        env={**environment, "SECONDS_OF_A_RANK": seconds, "RANKPLAN_NODE_RANK": "0", "MASTER_ADDR_0": "127.0.0.1"},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("target", ["torchrun", "mpirun"])
@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGHUP])
def test_the_folder_is_private_and_goes_with_the_script(
    target: str, number: signal.Signals | None, tmp_path: Path
) -> None:
    with started(target, tmp_path, "0" if number is None else "60") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("700 ")
        if number is not None:
            process.send_signal(number)
        assert process.wait(60) == (0 if number is None else 128 + number)
    assert list((tmp_path / "shared").iterdir()) == []


INTERRUPTED = """#!/bin/sh
kill -TERM $PPID $$
exec {rm} "$@"
"""
"""What removes the folder, and gets a second signal before that, as the script does."""


@pytest.mark.parametrize("target", ["torchrun", "mpirun"])
def test_a_second_signal_does_not_keep_the_folder(target: str, tmp_path: Path) -> None:
    with started(target, tmp_path, "60") as process:
        assert process.stdout is not None and process.stdout.readline().startswith("700 ")
        (remove := tmp_path / "bin" / "rm").write_text(INTERRUPTED.format(rm=shutil.which("rm")))
        remove.chmod(0o755)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert list((tmp_path / "shared").iterdir()) == []


# ----------------------------------------------------------------------------------------------------------- Slurm


SRUN = """#!/bin/sh
case "$*" in *"bash -c"*) ;; *) echo STEP; exec sleep 60;; esac
end() {
  read -r each </proc/$PPID/task/$PPID/children
  for one in $each; do [ $one = $$ ] || kill -TERM $one; done
  kill -TERM $PPID
  exit
}
trap end USR1
for one in 1 2 3 4; do echo ready; done
while :; do sleep 0.05; done
"""
"""Steps. The one that holds the folder signals the script and its children again when it gets SIGUSR1, at the end."""


def test_a_batch_script_that_is_signalled_again_removes_the_folder(tmp_path: Path) -> None:
    """Slurm signals every process of a job that is cancelled; those of a heterogeneous job get several signals."""
    programs = {"srun": SRUN, "sbcast": "#!/bin/sh\n", "scontrol": "#!/bin/sh\nprintf 'n0\\nn1\\nn2\\nn3\\n'\n"}
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "shared").mkdir()
    script = tmp_path / "train.sbatch"
    script.write_text(rankplan.emit(planned("v01"), "slurm", EmitOptions(command="python {}.py")))
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "TMPDIR": str(tmp_path / "shared"), "SLURM_JOB_NODELIST": "n[0-3]"}
    with subprocess.Popen(["bash", str(script)], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "STEP\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert list((tmp_path / "shared").iterdir()) == []


@pytest.fixture(scope="module")
def keep() -> str:
    """What holds the folder of a batch script on a node."""
    text = rankplan.emit(planned("v01"), "slurm", EmitOptions(command="python {}.py"))
    found = re.search(r"^keep='(.*?)'$", text, re.M | re.S)
    assert found is not None
    return found[1]


def holder(keep: str, folder: Path) -> subprocess.Popen[str]:
    shell = ["bash", "-c", keep, str(folder)]
    return subprocess.Popen(shell, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("exists", [False, True])
def test_a_node_holds_the_folder_until_a_signal(
    keep: str, number: signal.Signals, exists: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "rank plan"
    if exists:
        folder.mkdir(mode=0o700)
    with holder(keep, folder) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "plan.json").write_text("{}")
        process.send_signal(number)
        assert process.wait(60) == 0
    assert not folder.exists()


def test_a_node_removes_the_folder_if_the_signal_ends_its_child_first(keep: str, tmp_path: Path) -> None:
    """Slurm signals every process of a task, in any order."""
    with holder(keep, tmp_path / "folder") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)
        assert process.wait(60) == 0
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("kind", ["file", "link", "dangling link", "another user's"])
def test_a_node_takes_no_folder_that_is_not_its_own(keep: str, kind: str, tmp_path: Path) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    other.mkdir(mode=0o777)
    if kind == "file":
        folder.write_text("")
    elif kind == "link":
        folder.symlink_to(other)
    elif kind == "dangling link":
        folder.symlink_to(tmp_path / "missing")
    else:
        if os.geteuid() != 0:
            pytest.skip("only root can make a folder of another user")
        folder.mkdir(mode=0o777)
        os.chown(folder, 65534, 65534)
    with holder(keep, folder) as process:
        output, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and output == "" and "File exists" in errors
    assert os.path.lexists(folder) and other.is_dir()

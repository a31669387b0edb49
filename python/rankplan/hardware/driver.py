"""The devices that CUDA shows to a process, in order. A child process asks, so that no context stays in this one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rankplan.frozen import frozen

_ASKING = Path(__file__).with_name("ask_driver.py")
_UUID = re.compile("[0-9a-f]{32}")


@frozen
class Shown:
    """The uuids of the devices that the driver shows, each 32 hexadecimal digits; or why it does not answer."""

    uuids: tuple[str, ...] = ()
    problem: str | None = None


class Question:
    """A child process that asks the driver, with this environment; it runs until `answer` is called."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-I", "-S", str(_ASKING)]
        self._child: subprocess.Popen[str] | None = None
        self._problem = ""
        try:
            self._child = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError as error:
            self._problem = f"no process can be started: {error.strerror}"

    def answer(self, timeout: float) -> Shown:
        """Wait for the answer, at most ``timeout`` seconds."""
        if self._child is None:
            return Shown(problem=self._problem)
        try:
            text, _ = self._child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.communicate()
            return Shown(problem=f"it did not answer within {timeout:g} s")
        return _read(text, self._child.returncode)


def plain(uuid: str) -> str:
    """Return the hexadecimal digits of ``GPU-5c89...`` or ``MIG-5c89...`` in lower case."""
    return re.sub(r"^(GPU|MIG)-|-", "", uuid).lower()


def written(uuid: str, known: Mapping[str, str]) -> str:
    """Return the name of a device as a message shows it: as the inventory names it, or like NVML."""
    if uuid in known:
        return known[uuid]
    parts = (uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:])
    return f"GPU-{'-'.join(parts)}"


def _read(text: str, status: int) -> Shown:
    # a library may print lines of its own
    answers = [line.partition(" ") for line in text.splitlines() if line.startswith(("devices", "problem "))]
    answer, _, found = answers[0] if len(answers) == 1 else ("", "", "")
    if answer == "problem":
        return Shown(problem=found)
    if answer != "devices":
        return Shown(problem=f"the process that asked it ended with status {status}")
    return Shown(tuple(uuid for uuid in found.split() if _UUID.fullmatch(uuid)))

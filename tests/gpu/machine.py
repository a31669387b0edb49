"""What `nvidia-smi` says of a machine: the reference that rankplan's own answers are compared with."""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HOLD = Path(__file__).with_name("hold.py")


@dataclass(frozen=True)
class Card:
    """A card as `nvidia-smi` shows it; ``memory`` is in MiB."""

    index: int
    uuid: str
    pci: str
    model: str
    memory: int
    mig: bool


def smi(*arguments: str) -> str:
    """Return what `nvidia-smi` prints; empty if it is missing or fails."""
    try:
        done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def query(subject: str, *fields: str) -> list[dict[str, str]]:
    """Return the rows of ``--query-SUBJECT``."""
    text = smi(f"--query-{subject}={','.join(fields)}", "--format=csv,noheader,nounits")
    return [dict(zip(fields, map(str.strip, row), strict=True)) for row in csv.reader(text.splitlines()) if row]


def cards() -> list[Card]:
    """Return the cards of this machine; empty without `nvidia-smi` or a driver."""
    rows = query("gpu", "index", "uuid", "pci.bus_id", "name", "memory.total", "mig.mode.current")
    return [
        Card(
            int(row["index"]),
            row["uuid"],
            _address(row["pci.bus_id"]),
            row["name"],
            int(row["memory.total"]),
            row["mig.mode.current"] == "Enabled",
        )
        for row in rows
        if row["memory.total"].isdigit()
    ]


def driver_version() -> str:
    """Return the version of the driver, empty if it is unknown."""
    return next((row["driver_version"] for row in query("gpu", "driver_version")), "")


def affinity(index: int) -> tuple[str, str] | None:
    """Return the CPUs and the NUMA node of a card by ``nvidia-smi topo -m``; ``None`` if it does not tell."""
    header: list[str] = []
    for line in smi("topo", "-m").splitlines():
        cells = [cell.strip() for cell in line.replace("\x1b[4m", "").replace("\x1b[0m", "").split("\t")]
        if "CPU Affinity" in cells:
            header = cells
        elif header and cells[0] == f"GPU{index}":
            row = dict(zip(header, cells, strict=False))
            return row["CPU Affinity"], row.get("NUMA Affinity", "N/A")
    return None


def _address(bus_id: str) -> str:
    """Return ``00000000:1B:00.0`` as Linux writes it: ``0000:1b:00.0``."""
    domain, rest = bus_id.lower().split(":", 1)
    return f"{domain[-4:]}:{rest}"


@contextmanager
def holding(python: str, mebibytes: int, **environment: str) -> Iterator[int]:
    """Yield the pid of a process that holds memory of a card. Raises ``OSError`` if it gets none."""
    child = subprocess.Popen(
        [python, str(HOLD), str(mebibytes)],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if child.stdout is None or child.stdout.readline().strip() != "held":
            raise OSError(f"a process that holds memory does not start: {child.communicate()[1].strip()}")
        yield child.pid
    finally:
        child.communicate()

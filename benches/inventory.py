"""Time reading an inventory of 10,000 named nodes in two levels, from YAML, JSON and CSV, in new processes.

``python benches/inventory.py`` prints the processor time of `Inventory.load` and of `rankplan check` with the file, and
that of `rankplan check` with as many equal nodes.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

LOAD = "import sys; from rankplan import Inventory; Inventory.load(sys.argv[1]).domains"
NOTHING = "from rankplan import Inventory; Inventory.parse('1x8').domains"


def nodes(count: int) -> list[dict[str, Any]]:
    """Return the entries of nodes with names, addresses and labels."""
    return [
        {
            "ranks": node,
            "hostname": f"gpu-{node:05}",
            "ip": f"10.{node >> 16}.{node >> 8 & 255}.{node & 255}",
            "accelerators": 8,
            "accelerator_model": "NVIDIA H100 80GB HBM3",
            "labels": {"block": f"b{node // 512}", "nvlink": f"leaf{node // 32}"},
        }
        for node in range(count)
    ]


def written(entries: list[dict[str, Any]]) -> dict[str, str]:
    """Return the same inventory as a file of each format."""
    content = {"levels": ["block", "nvlink"], "nodes": entries}
    table = io.StringIO()
    rows = [{**entry, **entry["labels"]} for entry in entries]
    fields = [key for key in rows[0] if key not in ("ranks", "labels")]
    writer = csv.DictWriter(table, fields, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return {
        "yaml": yaml.dump(content, Dumper=dumper, sort_keys=False),
        "json": json.dumps(content),
        "csv": table.getvalue(),
    }


def used(*command: str) -> float:
    """Return the processor time of a Python process in seconds, the least of three."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000, help="number of nodes")
    count = parser.parse_args().nodes
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.yaml")
        section = {"num_nodes": count, "component_placement": {"actor": f"0-{8 * count - 1}"}}
        config.write_text(json.dumps({"cluster": section}))
        empty, bare = used("-c", NOTHING), used("-m", "rankplan", "check", str(config), "--nodes", f"{count}x8")
        print(f"{'':<6}{'load':>10}{'check':>10}{'of equal nodes':>17}")
        for suffix, text in written(nodes(count)).items():
            file = Path(folder, f"inventory.{suffix}")
            file.write_text(text)
            load = used("-c", LOAD, str(file)) - empty
            check = used("-m", "rankplan", "check", str(config), "--inventory", str(file))
            print(f"{suffix:<6}{load:>8.2f} s{check:>8.2f} s{bare:>15.2f} s", flush=True)


if __name__ == "__main__":
    main()

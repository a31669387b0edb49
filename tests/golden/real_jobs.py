"""Renews ``real_jobs.jsonl.gz``: ``python tests/golden/real_jobs.py FOLDER [--answers ANSWERS.jsonl.gz]``.

FOLDER has a checkout of each repository of ``commits.json``, under its name there. A missing one is fetched at its
commit. The expected answers come from ANSWERS (lines with ``folder``, ``path``, ``kind``, ``given`` and ``expected``),
or else from the present lines. Only the keys that rankplan reads, and their values, enter the file. A file whose answer
is not the expected one is named and left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankplan import PlacementError, load_config
from rankplan.dialects import name_of, no_job
from rankplan.errors import KeyPath
from rankplan.front.job import read_job
from rankplan.memory.needs import Needs
from rankplan.read.text.places import Place, Places, relocated
from rankplan.read.text.programs import program_of

HERE = Path(__file__).resolve().parent
LINES = HERE / "real_jobs.jsonl.gz"
_ALGORITHMS = ("async_rl", "ppo", "distillation", "grpo", "dpo", "rm", "sft")
"""NeMo-RL: the section that a config has tells its algorithm."""
_NO_PLACE = re.compile(
    r"activation|adam|bandwidth|bash|batch|bias|clip|cmd|cuda|data|decay|dropout|dtype|env_configs|env_vars|file|fp8|fused|fusion|image|is_lora|"
    r"kwargs|logprob|loss|lora_|moe_|norm|optimizer|packing|path|peft|port|position|precision|processor|recompute|scheduler$|seed|seq|split|stop_|"
    r"task_type|temperature|tokenizer|top_|video|warmup|_key$|num_workers"
)
"""Keys without a meaning for the placement, in sections that rankplan reads as a whole."""


def answer(config: Mapping[str, Any], nodes: str | None) -> dict[str, Any]:
    """Return what rankplan says to a config: its components and nodes, or the code of the first fault."""
    try:
        if (fault := no_job(config)) is not None:
            return {"refused": fault.code}
        job = read_job(config, nodes)
        planned = job.planned()
        plan = planned.plan
        list(job.warnings(planned, Needs(plan.inventory, plan)))
    except PlacementError as error:
        return {"refused": error.diagnostics[0].code}
    found = {name: [len(rows), len(rows[0].devices)] for name, rows in plan.items()}
    used = {node for rows in plan.values() for row in rows for node, _ in row.devices}
    return {"components": {name: sizes for name, sizes in found.items() if sizes[1]}, "nodes": len(used)}


def config_of(line: Mapping[str, Any]) -> Any:
    """Return the config of a line, with its program."""
    source = Places("config")
    source.program = program_of(line["program"], Place("config", 1, 0, 1, "")) if "program" in line else None
    return relocated(line["config"], source)


def _reduced(config: Mapping[str, Any], nodes: str | None) -> Any:
    """Return the part of a config that decides the placement, and the values that it refers to."""
    asked: frozenset[KeyPath] = frozenset()
    with suppress(PlacementError):
        job = read_job(config, nodes)
        asked = job.config.deciding_paths
        job.plan()
        asked = asked | job.config.deciding_paths
    paths = {tuple(map(str, path)) for path in asked}
    part = _part(config, (), paths | {("cluster",)} if name_of(config) == "rlinf" else paths) or {}
    algorithm = next((name for name in _ALGORITHMS if name in config), None) if name_of(config) == "nemo_rl" else None
    return part if algorithm is None else {algorithm: {}} | part


def _part(value: Any, path: KeyPath, asked: set[tuple[str, ...]]) -> Any:
    inner = any(one[: len(path)] == path != one for one in asked) and path != ("cluster",)
    if path in asked and not (isinstance(value, Mapping) and inner):
        return _plain(value)
    if not isinstance(value, Mapping):
        return None
    parts = {str(key): _part(item, (*path, str(key)), asked) for key, item in value.items()}
    present = {key: part for key, part in parts.items() if part is not None}
    return present if present or path in asked else None  # that a section is there may decide, too


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if not _NO_PLACE.search(str(key))}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _agrees(expected: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether an answer is the expected one. Teachers may have other names; what has no accelerators may be missing."""
    if "components" not in expected or "components" not in found:
        return ("components" in expected) == ("components" in found)
    return expected["nodes"] in (None, found["nodes"]) and _sizes(expected["components"]) == _sizes(found["components"])


def _sizes(components: Mapping[str, list[int]]) -> list[tuple[str, int, int]]:
    named = {name: "teacher" if name.split(".")[0] in ("teacher", "teachers") else name for name in components}
    return sorted((named[name], *sizes) for name, sizes in components.items() if sizes[1])


def _expected(answers: Path | None) -> Iterator[tuple[str, str, str | None, dict[str, Any]]]:
    """Yield the folder and the path of each file, its nodes, and its answer."""
    with gzip.open(answers or LINES, "rt", encoding="utf-8") as file:
        lines = [json.loads(text) for text in file]
    if answers is None:
        for line in lines:
            yield from ((*name.split("/", 1), line.get("on"), line) for name in line["files"])
        return
    for line in lines:
        wanted = line["expected"]
        if line["kind"] != "job" or wanted["verdict"] == "refuse":
            one: dict[str, Any] = {"refused": ""}
        else:
            sizes = {name: [of["processes"], of["accelerators"]] for name, of in wanted.get("components", {}).items()}
            one = {"components": sizes, "nodes": wanted.get("nodes")}
        if wanted["verdict"] != "either" and not line["given"].get("overrides"):
            yield line["folder"], line["path"], line["given"].get("nodes"), one


def _line(folder: str, path: str, nodes: str | None, expected: dict[str, Any]) -> dict[str, Any] | None:
    """Return the line of a file, ``None`` if rankplan's answer to its reduced config is not the expected one."""
    line: dict[str, Any] = {"config": {}}
    try:
        config = load_config(path)
    except PlacementError as error:  # no job at all: only its program counts
        return {"refused": error.diagnostics[0].code} if "refused" in expected else None
    program = getattr(config.document, "program", None)
    line["system"] = name_of(config)
    line |= {"program": program.name} if program is not None else {}
    line |= {"on": nodes} if nodes else {}
    line["config"] = _reduced(config, nodes) or {}
    with suppress(PlacementError):
        found = answer(config_of(line), nodes)
        return line | found if _agrees(expected, found) else None
    return None


def main() -> int:
    """Renew the lines; return 1 if the answer to a file is not the expected one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--answers", type=Path)
    chosen = parser.parse_args()
    for name, (repository, commit) in json.loads((HERE / "commits.json").read_text()).items():
        if not (place := chosen.folder / name).is_dir():
            subprocess.run(["git", "init", "--quiet", place], check=True)
            url = f"https://github.com/{repository}"
            subprocess.run(["git", "-C", place, "fetch", "--quiet", "--depth", "1", url, commit], check=True)
            subprocess.run(["git", "-C", place, "checkout", "--quiet", "FETCH_HEAD"], check=True)
    named = json.loads((HERE / "commits.json").read_text())
    lines: dict[str, dict[str, Any]] = {}
    wrong = 0
    home, answers = chosen.folder.resolve(), list(_expected(chosen.answers and chosen.answers.resolve()))
    for folder, path, nodes, expected in answers:
        if folder not in named:
            continue
        os.chdir(home / folder)
        line = _line(folder, path, nodes, expected)
        if line is None:
            wrong += 1
            print(f"{folder}/{path}: not the expected answer", file=sys.stderr)
        elif "config" in line:
            lines.setdefault(json.dumps(line), line | {"files": []})["files"].append(f"{folder}/{path}")
    with gzip.GzipFile(LINES, "wb", mtime=0) as written:
        written.writelines(json.dumps(line).encode() + b"\n" for line in lines.values())
    print(f"{len(lines)} lines of {sum(len(line['files']) for line in lines.values())} files; {wrong} left out")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

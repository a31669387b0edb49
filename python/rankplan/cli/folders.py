"""The files of a folder that `check` reads, and those of them that are no jobs."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

from rankplan.dialects import DIALECTS, OWN, recognisers
from rankplan.files import beginning
from rankplan.jobs.recognising import JOB
from rankplan.render.report import Report

_SUFFIXES = (".yaml", ".yml", ".sh", ".bash", ".slurm", ".sbatch", ".toml")
"""The files of a folder that may be configs."""
_UNPARSED = ("invalid-yaml", "duplicate-key", "syntax")
"""The faults of a file that cannot be parsed."""
_NODES = "nnodes"
_LARGEST = 1 << 20
_PLAIN = re.compile(r"[a-z]{2,}")
"""Keys that say nothing by themselves: any file may have `models` or `placement`."""


def files_in(path: str, excluded: Collection[str] = ()) -> Iterator[str]:
    """Yield the files of a folder that may be configs, sorted; a path that is no folder itself. Raises ``OSError``.

    ``excluded`` are patterns of paths, or of the names of files and folders, that are left out.
    """
    if not Path(path).is_dir():
        yield path
        return
    for entry in sorted(Path(path).iterdir()):
        wanted = entry.suffix in _SUFFIXES or (entry.is_dir() and not entry.is_symlink())  # a link may lead in a circle
        if wanted and not entry.name.startswith(".") and not _is_excluded(entry, excluded):
            yield from files_in(str(entry), excluded)


def _is_excluded(path: Path, patterns: Collection[str]) -> bool:
    names = (path.name, path.as_posix())
    return any(fnmatch.fnmatchcase(name, pattern.rstrip("/")) for name in names for pattern in patterns)


def is_of_no_job(report: Report) -> bool:
    """Return whether a file of a folder is no job: it says so, or it cannot be parsed and has no key of a job.

    Templates of Helm and Jinja, and YAML with tags of another program, are such files.
    """
    if not report.is_job:
        return True
    if not report.faults or report.faults[0].code not in _UNPARSED:
        return False
    text = beginning(report.file, _LARGEST).decode("utf-8", "replace")
    return _telling_keys().search(text) is None


@cache
def _telling_keys() -> re.Pattern[str]:
    """Return the pattern of the keys, and of the last names of keys, by which a job is recognised."""
    names: set[str] = set()
    for dialect in (*recognisers(), DIALECTS[OWN]):
        last = [str(path[-1]) for path in (*dialect.keys.telling, *dialect.keys.alone)]
        names.update(name for name in last if name == _NODES or _PLAIN.fullmatch(name) is None)
    words = "|".join(sorted(map(re.escape, names)))
    return re.compile(rf"(?<!\w)(?:{words}|{words.replace('_', '-')}|device_mapping)\s*[:= ]|^{JOB}:", re.MULTILINE)

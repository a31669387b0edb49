"""Whether a config may be a job file. Every command asks this of every file, so it reads no YAML."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rankplan.files import LARGEST, PipedFile, beginning
from rankplan.read.text.load import SCRIPTS
from rankplan.words import nearest

JOB = "job"
"""The key by which a mapping is a job file."""

_KEY = re.compile(rb"""(?:^(?:\xef\xbb\xbf)?|[{,])[{ \t]*["']?job["']?[ \t]*:""", re.MULTILINE)
SAVED = re.compile(rb"\s*\{\s*\"rankplan\"\s*:")
"""How a saved plan starts, which may be large."""


class ReadJob:
    """The base of `rankplan.jobs.reader.JobFile`: a job file that is read already."""

    __slots__ = ()


def is_job_file(config: Any) -> bool:
    """Whether a config may be a job file. That of a trainer may look like one; whoever reads it knows.

    A pipe counts once it was read: see `rankplan.files.PipedFile`. Raises ``OSError``.
    """
    if isinstance(config, (ReadJob, Mapping)):
        return isinstance(config, ReadJob) or JOB in config
    if not isinstance(config, (str, os.PathLike)):
        return False
    file = os.fspath(config)
    if file.endswith(SCRIPTS) or not (isinstance(file, PipedFile) or _is_small_file(Path(file))):
        return False
    content = beginning(file, LARGEST)
    return _KEY.search(content) is not None and not SAVED.match(content)


def lacks_job(config: Mapping[Any, Any], keys: Collection[str]) -> str | None:
    """Return the key of a config that should be ``job``, as all others are ``keys`` of a job file.

    ``""``: the config has no such key, but only a job file has its other ones. ``None``: it is no job file.
    """
    others = [str(key) for key in config if key not in keys]
    if not others:
        return "" if config and not isinstance(config.get("nodes"), list) else None
    return others[0] if len(others) == 1 and nearest(others[0], (JOB,), 0.75) is not None else None


def _is_small_file(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= LARGEST

"""Atomic writing of files."""

from __future__ import annotations

import stat
import uuid
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write ``content`` to ``path`` atomically: if writing fails, the previous file is unchanged.

    Follows a link and keeps the permissions of an existing file. Writes directly to a path that is not a regular file
    (a pipe, ``/dev/stdout``). Raises ``OSError``.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    target = path.resolve()
    temporary = target.with_name(f".rankplan-{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            file.write(data)
        temporary.replace(target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            # Name the path of the caller, not the temporary file.
            raise type(error)(error.errno, error.strerror, str(path)) from None
        raise

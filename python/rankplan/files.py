"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import stat
import uuid
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write ``content`` to ``path`` at once: on any failure what was there before is still there, and nothing else is.

    A link is followed, and who may read the file stays as it was; what is no regular file (a pipe, ``/dev/stdout``) is
    written to as it is. Raises ``OSError``.
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
            # The name of the temporary file would say nothing to the caller.
            raise type(error)(error.errno, error.strerror, str(path)) from None
        raise

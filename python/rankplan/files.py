"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import os
import stat
import tempfile
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
    name = None
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".rankplan-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else _new_mode())
        Path(name).replace(target)
    except BaseException as error:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            # The name of the temporary file would say nothing to the caller.
            raise type(error)(error.errno, error.strerror, str(path)) from None
        raise


def _new_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask

"""Reading of files up to a size, and atomic writing."""

from __future__ import annotations

import errno
import os
import re
import stat
import uuid
from contextlib import suppress
from pathlib import Path

from rankplan.errors import Diagnostic, PlacementError

LARGEST = 64 << 20
"""The most bytes of a file that people write."""

_CHUNK = 1 << 20
_STREAM = re.compile(r"/dev/(?:stdin|fd/[0-9]+)|/proc/(?:self|[0-9]+)/fd/[0-9]+")
"""Paths of open files, which say nothing about a folder."""


class PipedFile(str):
    """The path of a pipe, and its content, which can be read only once."""

    __slots__ = ("content",)

    def __new__(cls, path: str, content: bytes) -> PipedFile:
        piped = super().__new__(cls, path)
        piped.content = content
        return piped

    content: bytes


def is_pipe(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a pipe that was not read yet. Raises ``OSError`` only where a folder cannot be searched."""
    return not isinstance(path, PipedFile) and Path(path).is_fifo()


def read_pipe(path: str | os.PathLike[str]) -> PipedFile:
    """Read a pipe, for all who take its path next. Raises ``OSError``."""
    return PipedFile(os.fspath(path), read_whole(path))


def folder_of(file: str) -> Path:
    """Return the folder to which paths in a file are relative: the working directory for the standard input."""
    return Path() if _STREAM.fullmatch(file) else Path(file).parent


def read_whole(path: str | os.PathLike[str], limit: int = LARGEST) -> bytes:
    """Return the content of a regular file or a pipe of at most ``limit`` bytes. Raises ``OSError``."""
    if isinstance(path, PipedFile):
        return path.content
    with Path(path).open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise OSError(errno.EINVAL, "not a regular file or a pipe", os.fspath(path))
        content = bytearray()
        while chunk := file.read(_CHUNK):
            content += chunk
            if len(content) > limit:
                raise OSError(errno.EFBIG, f"larger than {limit >> 20} MiB, the limit for this file", os.fspath(path))
    return bytes(content)


def beginning(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the first bytes of a regular file, or of a pipe that was read; none of another. Raises ``OSError``."""
    if isinstance(path, PipedFile):
        return path.content[:most]
    if not Path(path).is_file():
        return b""
    with Path(path).open("rb") as file:
        return file.read(most)


def read_text(path: str | os.PathLike[str], limit: int = LARGEST) -> str:
    """Return the text of a file of at most ``limit`` bytes. Raises `PlacementError` if it is not UTF-8, ``OSError``."""
    content = read_whole(path, limit)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise PlacementError([_not_utf8(os.fspath(path), line, error.start)]) from None


def _not_utf8(file: str, line: int, position: int) -> Diagnostic:
    message = f"the file is not UTF-8: invalid byte at position {position}"
    return Diagnostic("invalid-yaml", message, "save the file as UTF-8", file=file, line=line)


def unreadable(file: str, reason: str) -> Diagnostic:
    """Return the fault of a file that cannot be read, as a fault of a report."""
    return Diagnostic("unreadable", reason, file=file)


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

"""The newest version of a system that its dialect was tried with, and where a checkout of the system states its own."""

from __future__ import annotations

from rankplan.frozen import frozen


@frozen
class Tried:
    """The newest version of a system that its dialect was tried with: `check` warns of a checkout with a newer one.

    ``file`` is the file in which a checkout states its version, as a path from its root. Other projects may have such a
    file, too: then ``named`` is a regular expression that tells that the project is this system, found in the file
    ``project``, or in ``file`` itself.
    """

    version: str
    file: str
    named: str = ""
    project: str = ""

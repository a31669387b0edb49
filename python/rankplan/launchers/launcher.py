"""What a launcher is: one value, with the functions that write its file and read it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Flag, auto
from typing import TypeAlias

from rankplan.frozen import frozen
from rankplan.launchers.draft import Draft, Emitted
from rankplan.launchers.options import Form, check_own

Reader: TypeAlias = Callable[[str, str], Emitted]
"""Returns what the file of a launcher says, by its path and its text."""


class Starts(Flag):
    """What the file of a launcher starts."""

    NOTHING = 0
    """Only objects that a job needs."""
    DRIVER = auto()
    """One driver on Ray, which launches the plan: ``--entrypoint``. A trainer that starts itself is one."""
    COMMANDS = auto()
    """A command for each component, without Ray: ``--command``."""
    NODE_COMMANDS = auto()
    """The commands of a job that start their processes themselves, each once on every node; see `NodeCommand`."""


@frozen(kw_only=True)
class Launcher:
    """A launcher: how a plan becomes its file, and how its file becomes a plan.

    ``name`` is the word that users write: ``--to NAME``. ``write`` returns the text of the file, or records every fact
    that the launcher cannot hold with `Draft.refuse`; equal drafts give equal texts.

    ``recognises`` tells whether a text is such a file; the text has the mark of a plan already. ``read`` takes the path
    and the text, and returns what they say. It raises `PlacementError` (``emit-changed``) with everything in the file
    that contradicts its plan. Without the two, the file has no plan. `ScriptFile` and `ObjectFile` have all three
    functions.

    ``options`` are the names of options of `EmitOptions` that not every launcher takes. ``own`` are options that no
    other launcher has: `EmitOptions.own` has their values, and ``rankplan emit --to NAME`` their flags. ``kinds``: it
    writes a job or a cluster.

    Raises ``ValueError`` for options of its own that every launcher has, ``TypeError`` for those that are no `Form`.
    """

    name: str
    write: Callable[[Draft], str]
    recognises: Callable[[str], bool] | None = None
    read: Reader | None = None
    starts: Starts = Starts.COMMANDS
    options: tuple[str, ...] = ()
    own: Mapping[str, Form] = field(default_factory=dict)
    kinds: bool = False

    def __post_init__(self) -> None:
        check_own(self.options, self.own)

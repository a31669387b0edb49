"""A command that starts processes of a job itself, once on each of their nodes: `accelerate launch`, a server of vLLM.

A plan keeps such commands without their numbers, so that it gives the right ones on other nodes, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from rankplan.frozen import frozen

NODES = "{nodes}"
"""The number of nodes that the command starts on."""
PROCESSES = "{processes}"
"""Its processes on all nodes together; equally many on each."""
NODE_PROCESSES = "{node_processes}"
"""Its processes on this node."""
NODE_RANK = "{node_rank}"
"""The position of this node among its nodes."""
ADDRESS = "{address}"
"""The address of its first node."""
PORT = "{port}"
"""The port of its rendezvous."""
_ADDRESS_OF = "address of "
_ADDRESS_FOR_ALL = "address for all of "
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


@frozen
class NodeCommand:
    """A command that starts the processes of ``components`` itself, once on each of their nodes.

    It sees the accelerators of these components on its node, in the order of the components and of their ranks.
    Components that are ``inside`` are in its processes, or it starts them, too. ``words`` are those of the command; a
    number or an address that the plan decides is a field, such as ``{nodes}``, and a brace of the command is doubled.
    ``variables`` are added to its environment; their values have fields, too. It starts in ``folder``, without one in
    that of the job. A command that ``serves`` does not end by itself: it ends with the others.
    """

    components: tuple[str, ...]
    words: tuple[str, ...]
    inside: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    serves: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> NodeCommand:
        """Return the command in a plan whose file the core has read."""
        lists = {name: tuple(values.get(name, ())) for name in ("components", "words", "inside")}
        return cls(**{**values, **lists})

    @staticmethod
    def address_of(component: str, *, by_all: bool = False) -> str:
        """Return the field for the address of the first node of a component.

        The first node of the command may get that of the local host, unless it is used ``by_all`` nodes of the command.
        """
        return f"{{{_ADDRESS_FOR_ALL if by_all else _ADDRESS_OF}{component}}}"

    @staticmethod
    def literal(word: str) -> str:
        """Return a word of a command without fields as one of ``words``."""
        return word.replace("{", "{{").replace("}", "}}")

    def filled(self, value_of: Callable[[str], str]) -> list[list[str]]:
        """Return the words in parts: a text and the value of a field by turns. ``value_of`` returns that of a field."""
        return [_parts(word, value_of) for word in self.words]

    def filled_variables(self, value_of: Callable[[str], str]) -> dict[str, list[str]]:
        """Return the values of the variables in parts, as `filled` returns the words."""
        return {name: _parts(value, value_of) for name, value in self.variables.items()}

    def has(self, name: str) -> bool:
        """Return whether the command has a field."""
        return any(name in text for text in (*self.words, *self.variables.values()))

    @property
    def starts(self) -> tuple[str, ...]:
        """All components that the command starts."""
        return (*self.components, *self.inside)

    def plain(self) -> dict[str, Any]:
        """Return what is stated, by its key."""
        stated = {
            "components": list(self.components),
            "inside": list(self.inside),
            "words": list(self.words),
            "variables": dict(self.variables),
            "folder": self.folder,
            "serves": self.serves,
        }
        return {key: value for key, value in stated.items() if value not in (None, [], {}, False)}

    def __reduce__(self) -> tuple[Any, ...]:
        values = self.components, self.words, self.inside, dict(self.variables), self.folder, self.serves
        return NodeCommand, values


class AddressField(NamedTuple):
    """A field for the address of a component, and whether all nodes of the command use it."""

    component: str
    by_all: bool


def address_in(name: str) -> AddressField | None:
    """Return which address a field is, ``None`` for another field."""
    for prefix in (_ADDRESS_OF, _ADDRESS_FOR_ALL):
        if name.startswith(prefix):
            return AddressField(name.removeprefix(prefix), prefix == _ADDRESS_FOR_ALL)
    return None


def _parts(word: str, value_of: Callable[[str], str]) -> list[str]:
    """Return a word in parts: a text and the value of a field by turns."""
    parts, end = [""], 0
    for match in _FIELD.finditer(word):
        parts[-1] += word[end : match.start()]
        end = match.end()
        if match[1] is None:
            parts[-1] += match[0][0]
        else:
            parts += [value_of(match[1]), ""]
    parts[-1] += word[end:]
    return parts

"""A command that starts processes of a job itself, once on each of their nodes: `accelerate launch`, a server of vLLM.

A plan keeps such commands without their numbers, so that it gives the right ones on other nodes, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

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
CONSTANTS = frozenset(field[1:-1] for field in (NODES, PROCESSES, NODE_PROCESSES, NODE_RANK, ADDRESS, PORT))
"""The names of these fields; all others state something themselves."""
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


User: TypeAlias = Literal["first node", "all nodes", "others"]
"""Who uses an address in a command: its first node, which may get that of the local host; all of its nodes; or other
commands, too, to which it passes the address on."""
_ADDRESSES: dict[User, str] = {
    "first node": "address of ",
    "all nodes": "address for all of ",
    "others": "address for others of ",
}
"""The start of a field for an address, by who uses it."""


class AddressField(NamedTuple):
    """The address of the first node of a component."""

    component: str
    used_by: User


class PortField(NamedTuple):
    """A port for each process of a node: ``first`` for its first one, the next for its second one."""

    first: int


class EndpointsField(NamedTuple):
    """The address and port of each process of a component, whose ports are those of a `PortField`.

    A word with this field is repeated for each process, in the order of their ranks.
    """

    component: str
    first_port: int


class RankValueField(NamedTuple):
    """A value for each process rank."""

    values: tuple[str, ...]


class SizeField(NamedTuple):
    """The processes of a component for which the files of a job are: a word with this field alone is left out."""

    component: str
    processes: int


class GroupField(NamedTuple):
    """The rank of a process in its group of ``size`` consecutive ranks; ``head``: the address of the first of them."""

    size: int
    head: bool


Field: TypeAlias = "AddressField | PortField | EndpointsField | RankValueField | SizeField | GroupField"
_PORT_FROM = re.compile("port from ([0-9]{1,9})")
_ENDPOINTS = re.compile("endpoints of (.*) from ([0-9]{1,9})")
_GROUP = re.compile("(rank|head) in groups of ([1-9][0-9]{0,8})")
_SIZE = re.compile("for ([0-9]{1,9}) processes of (.*)")
_VALUES = "of ranks "


@frozen
class NodeCommand:
    """A command that starts the processes of ``components`` itself, once on each of their nodes.

    It sees the accelerators of these components on its node, in the order of the components and of their ranks: the
    first one of each process, then the second ones, unless it ``serves``. One that is ``per_process`` starts once for
    each process, and sees only the accelerators of this one. Components that are ``inside`` are in its processes, or it
    starts them, too. ``words`` are those of the command; a number or an address that the plan decides is a field, such
    as ``{nodes}``, and a brace of the command is doubled. ``variables`` are added to its environment; their values have
    fields, too. It starts in ``folder``, without one in that of the job. A command that ``serves`` does not end by
    itself: it ends with the others.
    """

    components: tuple[str, ...]
    words: tuple[str, ...]
    inside: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    serves: bool = False
    per_process: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> NodeCommand:
        """Return the command in a plan whose file the core has read."""
        lists = {name: tuple(values.get(name, ())) for name in ("components", "words", "inside")}
        return cls(**{**values, **lists})

    @staticmethod
    def address_of(component: str, *, used_by: User = "first node") -> str:
        """Return the field for the address of the first node of a component."""
        return f"{{{_ADDRESSES[used_by]}{component}}}"

    @staticmethod
    def port_from(first: int) -> str:
        """Return the field for the port of a process: ``first`` and its position among the processes of its node."""
        return f"{{port from {first}}}"

    @staticmethod
    def endpoints_of(component: str, first_port: int) -> str:
        """Return the field for ``HOST:PORT`` of each process of a component, with the ports of `port_from`.

        A word with it is repeated for each process.
        """
        return f"{{endpoints of {component} from {first_port}}}"

    @staticmethod
    def value_of_rank(values: Sequence[str]) -> str:
        """Return the field for the value of a process: that of its rank."""
        return f"{{{_VALUES}{'|'.join(quote(value, safe='/') for value in values)}}}"

    @staticmethod
    def for_processes(component: str, processes: int) -> str:
        """Return the word by which a command is for so many processes of a component only; it does not get the word.

        The files that it reads state that number.
        """
        return f"{{for {processes} processes of {component}}}"

    @staticmethod
    def rank_in_group(size: int) -> str:
        """Return the field for the rank of a process in its group of so many consecutive ranks."""
        return f"{{rank in groups of {size}}}"

    @staticmethod
    def head_of_group(size: int) -> str:
        """Return the field for the address of the node of the first process in such a group."""
        return f"{{head in groups of {size}}}"

    @staticmethod
    def literal(word: str) -> str:
        """Return a word of a command without fields as one of ``words``."""
        return word.replace("{", "{{").replace("}", "}}")

    def filled(self, values_of: Callable[[str], Sequence[str]]) -> list[list[str]]:
        """Return the words in parts: a text and the value of a field by turns.

        ``values_of`` returns the values of a field: one, or one for each word that takes the place of this one.
        """
        return [parts for word in self.words for parts in _parts(word, values_of)]

    def filled_variables(self, values_of: Callable[[str], Sequence[str]]) -> dict[str, list[str]]:
        """Return the values of the variables in parts, as `filled` returns the words."""
        return {name: _parts(value, values_of)[0] for name, value in self.variables.items()}

    def has(self, name: str) -> bool:
        """Return whether the command has a field."""
        return any(name in text for text in (*self.words, *self.variables.values()))

    @property
    def fields(self) -> Iterator[Field]:
        """Yield the fields of the words and variables, but for those that have a constant."""
        for text in (*self.words, *self.variables.values()):
            for name in fields_in(text):
                found = field_of(name)
                if found is not None:
                    yield found

    @property
    def used(self) -> set[str]:
        """The components whose places the command uses: those that it starts itself, and others that it names."""
        named = (
            found.component for found in self.fields if isinstance(found, (AddressField, EndpointsField, SizeField))
        )
        return {*self.components, *named}

    @property
    def sizes(self) -> dict[str, int]:
        """The processes of components for which the command is; of others, it is for any number."""
        return dict(self.stated_sizes())

    def stated_sizes(self) -> Iterator[tuple[str, int]]:
        """Yield each component with its processes for which a field of the command is."""
        for found in self.fields:
            if isinstance(found, SizeField):
                yield found.component, found.processes
            elif isinstance(found, RankValueField):
                yield self.components[0], len(found.values)

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
            "per_process": self.per_process,
        }
        return {key: value for key, value in stated.items() if value not in (None, [], {}, False)}

    def __reduce__(self) -> tuple[Any, ...]:
        values = self.components, self.words, self.inside, dict(self.variables), self.folder
        return NodeCommand, (*values, self.serves, self.per_process)


def fields_in(text: str) -> list[str]:
    """Return the names of the fields in a word, or in the value of a variable."""
    return [match[1] for match in _FIELD.finditer(text) if match[1] is not None]


def field_of(name: str) -> Field | None:
    """Return what a field is, ``None`` for one of those that have a constant."""
    for user, start in _ADDRESSES.items():
        if name.startswith(start):
            return AddressField(name.removeprefix(start), user)
    if name.startswith(_VALUES):
        return RankValueField(tuple(map(unquote, name.removeprefix(_VALUES).split("|"))))
    if match := _PORT_FROM.fullmatch(name):
        return PortField(int(match[1]))
    if match := _ENDPOINTS.fullmatch(name):
        return EndpointsField(match[1], int(match[2]))
    if match := _SIZE.fullmatch(name):
        return SizeField(match[2], int(match[1]))
    if match := _GROUP.fullmatch(name):
        return GroupField(int(match[2]), match[1] == "head")
    return None


def _parts(word: str, values_of: Callable[[str], Sequence[str]]) -> list[list[str]]:
    """Return the words in place of one in parts: a text and the value of a field by turns."""
    texts: list[str] = [""]
    fields: list[Sequence[str]] = []
    end = 0
    for match in _FIELD.finditer(word):
        texts[-1] += word[end : match.start()]
        end = match.end()
        if match[1] is None:
            texts[-1] += match[0][0]
        else:
            fields.append(values_of(match[1]))
            texts.append("")
    texts[-1] += word[end:]
    several = [values for values in fields if len(values) != 1]
    words = []
    for index in range(len(several[0]) if several else 1):
        parts = [texts[0]]
        for values, text in zip(fields, texts[1:], strict=True):
            parts += (values[0] if len(values) == 1 else values[index], text)
        words.append(parts)
    return words

"""YAML files with line and column: read by YAML 1.2's core rules, with the place of every value.

Most Python loaders follow YAML 1.1, which reads an unquoted ``1:0`` as 60 and ``yes`` as true. Here scalars are null,
booleans, ints, floats or text as in YAML 1.2's core schema, so placements arrive as written. Merge keys (``<<``) work,
because configs use them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import yaml

from rankplan import errors
from rankplan.errors import Diagnostic, Label, PlacementError
from rankplan.read.text.events import DEEPEST, LARGEST, Events, NodesNeeded
from rankplan.read.text.scalars import BOOL, NULL, TAG, Composer, Written, number

if TYPE_CHECKING:
    from typing_extensions import Self

AT_KEY = {"unknown-key", "duplicate-env-var", "reserved-env-var", "empty-name", "duplicate-component"}
"""Faults of a key; others are at its value."""
_LINE_BREAK = "\r\n|[\r\n\x85\u2028\u2029]"

# A part of the YAML library's message, and the help for it; the first match counts.
_CURES = {
    "found a tab": "use spaces to indent; YAML forbids tabs",
    "cannot start any token": "quote the text",
    "mapping values are not": 'quote text that contains `: `, e.g. "0-1 : 0-3"; align the keys of a mapping; add the '
    "`:` that the line above lacks",
    "did not find expected key": "align the keys of a mapping; a value ends at its closing quote",
    "expected '-' indicator": "start each item of a list with `- `, in the same column",
    "did not find expected ','": "close the bracket, or separate the values by commas",
    "unexpected end of stream": "close the quote",
    "undefined alias": "define the anchor (`&name`) above, or quote the text",
    "alphabetic or numeric": "quote the text: `*` and `&` start the name of an anchor",
    "another document": "keep one document per file, without `---` between documents",
    "escape character": "use single quotes, where a backslash is literal",
}


class Source(errors.Source, Protocol):
    """Where the values of a config are written: a file, or a text without one."""

    @property
    def file(self) -> str | None:
        """The path of its file, if it has one."""

    warnings: list[Diagnostic]
    """Values that a script leaves open, if the config comes from one."""


class Section(dict[str, Any]):
    """A mapping of a file; ``document`` and ``path`` locate it, so that its faults have a place."""

    __slots__ = ("document", "path")

    def __init__(self, document: Source, path: tuple[str | int, ...]) -> None:
        super().__init__()
        self.document = document
        self.path = path

    def to_dict(self) -> dict[str, Any]:
        """Return it as nested plain dicts and lists, as ``OmegaConf.create`` takes."""
        return {key: _plain(value) for key, value in self.items()}

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Section):
        return value.to_dict()
    return value.plain(value) if isinstance(value, Written) else value


def _node(text: str) -> yaml.Node | None:
    """Return the node of the only document of a file; of several objects of Kubernetes, a RayJob or else the first."""
    try:
        node: yaml.Node | None = Composer(text).get_single_node()
        return node
    except yaml.composer.ComposerError as error:
        kinds = {_kind(node): node for node in reversed(list(yaml.compose_all(text, Loader=Composer)))}
        if None in kinds or "another document" not in str(error.problem):
            raise
        return kinds.get("RayJob", next(reversed(kinds.values())))


def _kind(node: yaml.Node) -> str | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value.value for key, value in pairs if key.value == "kind" and isinstance(value.value, str)), None)


_Pairs: TypeAlias = dict[str, tuple[yaml.ScalarNode, yaml.Node]]
_UNREAD: Any = object()


class Document:
    """A file as lines and YAML nodes. Its nodes are composed when they are needed: for places, and for anchors."""

    def __init__(self, file: str, text: str, compose: Callable[[str], yaml.Node | None] = _node) -> None:
        self.file = file
        self.faults: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self._text = text
        self._content = _UNREAD
        self._made: dict[int, tuple[Any, int]] = {}
        self._pairs: dict[int, _Pairs] = {}
        try:
            if compose is _node:
                with suppress(NodesNeeded):
                    self._content = Events(text, partial(Section, self)).content()
            if self._content is _UNREAD:
                self._check_depth(text)
                self.root = compose(text)
        except yaml.MarkedYAMLError as error:
            raise PlacementError([self._not_yaml(error)]) from None
        except yaml.reader.ReaderError as error:
            before = re.split(_LINE_BREAK, text[: text.find(chr(error.character))])
            mark = yaml.Mark(file, 0, len(before) - 1, len(before[-1]), None, 0)
            message = f"invalid YAML: control character U+{error.character:04X} is not allowed"
            raise PlacementError([self.refuse(message, mark, help="remove the character")]) from None

    @cached_property
    def root(self) -> yaml.Node | None:
        """The node of the whole content, if there is any."""
        return _node(self._text)

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return re.split(_LINE_BREAK, self._text)

    @classmethod
    def each(cls, file: str, text: str) -> list[Self]:
        """Return every document of a file that is not empty. Raises as the constructor does."""
        roots: list[yaml.Node] = []
        whole = cls(file, text, lambda text: roots.extend(yaml.compose_all(text, Loader=Composer)))
        found = []
        for root in roots:
            if not (isinstance(root, yaml.ScalarNode) and not root.value):
                one = copy(whole)
                one.root, one.faults, one.warnings, one._made, one._pairs = root, [], [], {}, {}
                found.append(one)
        return found

    def _not_yaml(self, error: yaml.MarkedYAMLError) -> Diagnostic:
        """Return the fault of text that the composer rejects."""
        message = " ".join(part for part in (error.context, error.problem) if part)
        mark, problem = error.problem_mark or error.context_mark, error.problem or ""
        rest = "".join(self.lines[mark.line :])[mark.column :] if mark is not None else ""
        if rest.startswith("\t"):
            problem = "found a tab"
        elif error.context_mark is not None and not rest.strip():
            mark = error.context_mark  # the file ends too early: point at the bracket that is left open
        if "nesting depth" in problem:  # libyaml has a limit of its own since PyYAML 6.0.4
            return self._too_deep(mark)
        help = next((cure for part, cure in _CURES.items() if part in problem), None)
        return self.refuse(f"invalid YAML: {message}", mark, help=help)

    def _check_depth(self, text: str) -> None:
        """Reject nesting that would exhaust the stack of the recursive composer."""
        depth = 0
        for event in yaml.parse(text, Loader=Composer):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise PlacementError([self._too_deep(event.start_mark)])

    def _too_deep(self, mark: Any) -> Diagnostic:
        """Return the fault of nesting that is too deep at a mark."""
        return self.refuse("the file is nested too deeply", mark, help=f"use at most {DEEPEST} levels")

    def refuse(self, message: str, mark: Any = None, code: str = "invalid-yaml", help: str | None = None) -> Diagnostic:
        """Return a fault at a mark of the YAML library."""
        fault = Diagnostic(code, message, help, file=self.file)
        if mark is None:
            return fault
        line, column = min(mark.line, len(self.lines) - 1), mark.column
        place = (Label(column, column + 1),)
        return replace(fault, line=line + 1, column=column + 1, source=self.lines[line], labels=place, text="")

    def value(self) -> Any:
        """Return the content as Python values, mappings as `Section`. Raises `PlacementError` with every fault."""
        if self._content is not _UNREAD:
            return self._content
        value = self._value(self.root, (), ())[0] if self.root is not None else None
        if self.faults:
            raise PlacementError(self.faults)
        return value

    def _value(self, node: yaml.Node, path: tuple[str | int, ...], above: tuple[yaml.Node, ...]) -> tuple[Any, int]:
        """Return the value of a node, and its number of nodes with aliases expanded.

        The value of an anchor is made once and shared: a few lines of aliases could expand to more than memory holds.
        """
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node), 1
        if node in above:
            self.faults.append(self.refuse("an alias is inside its own anchor", node.start_mark))
            return None, 1
        if id(node) in self._made:
            return self._made[id(node)]
        if node.tag not in (TAG + "map", TAG + "seq"):
            self._refuse_tag(node)
        value: Any
        if isinstance(node, yaml.MappingNode):
            value, items = Section(self, path), [(key.value, item) for key, item in self._items(node, above).values()]
        else:
            value, items = [None] * len(node.value), list(enumerate(node.value))
        total = 1
        for key, item in items:
            value[key], size = self._value(item, (*path, key), (*above, node))
            total += size
        if total > LARGEST:
            message, help = f"the file has {total:,} values with aliases expanded", f"use at most {LARGEST:,}"
            raise PlacementError([self.refuse(message, node.start_mark, help=help)])
        self._made[id(node)] = value, total
        return value, total

    def _items(self, node: yaml.MappingNode, above: tuple[yaml.Node, ...]) -> _Pairs:
        """Return keys and values by name; keys of the mapping itself override merged ones."""
        if id(node) in self._pairs:
            return self._pairs[id(node)]
        merged: _Pairs = {}
        own: _Pairs = {}
        for key, value in node.value:
            if key.tag == TAG + "merge":
                parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for part in reversed(parts):
                    if isinstance(part, yaml.MappingNode) and part not in (*above, node):
                        merged |= self._items(part, (*above, node))
                    else:
                        message = "`<<` must be a mapping or a list of mappings"
                        self.faults.append(self.refuse(message, value.start_mark))
            elif not isinstance(key, yaml.ScalarNode):
                self.faults.append(self.refuse("a key must be text", key.start_mark, help="quote the key"))
            elif key.value in own:
                first = own[key.value][0].start_mark.line + 1
                message = f"duplicate key `{key.value}`, first used on line {first}"
                self.faults.append(self.refuse(message, key.start_mark, "duplicate-key", "remove one of the two"))
            else:
                own[key.value] = key, value
        self._pairs[id(node)] = merged | own
        return self._pairs[id(node)]

    def _scalar(self, node: yaml.Node) -> Any:
        text = node.value
        kind = node.tag.removeprefix(TAG)
        if kind == "str":
            return text
        if kind == "null" and NULL.match(text):
            return None
        if kind == "bool" and BOOL.match(text):
            return text.lower() == "true"
        if (found := number(kind, text)) is not None:
            return found
        self._refuse_tag(node)
        return text

    def _refuse_tag(self, node: yaml.Node) -> None:
        message = f"the tag `{node.tag}` is unknown, or does not match the value"
        self.faults.append(self.refuse(message, node.start_mark, help="remove the tag, or quote the value"))

    def locate(self, path: Sequence[str | int], fault: Diagnostic) -> Diagnostic:
        """Return the fault with the place of ``path``, or of the longest part of ``path`` that exists."""
        node, key = self.root, None
        for part in path:
            if isinstance(node, yaml.MappingNode) and str(part) in (items := self._items(node, ())):
                key, node = items[str(part)]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                key, node = None, node.value[part]
            else:
                return self._point(fault, key or node)
        at_key = fault.code in AT_KEY or not (isinstance(node, yaml.ScalarNode) and node.value)
        return self._point(fault, key if key is not None and at_key else node)

    def _point(self, fault: Diagnostic, node: yaml.Node | None) -> Diagnostic:
        fault = replace(fault, file=self.file)
        if node is None:
            return fault
        start, end = node.start_mark, node.end_mark
        line = self.lines[min(start.line, len(self.lines) - 1)]
        written = line[start.column : end.column] if end.line == start.line else ""
        fault = replace(fault, line=start.line + 1, column=start.column + 1)
        style = node.style if isinstance(node, yaml.ScalarNode) else "a list or mapping"
        if fault.text is None or (
            not style and end.line == start.line and written != fault.text
        ):  # 0x10 was read as 16
            label = Label(0, max(len(written), 1) if isinstance(node, yaml.ScalarNode) else 1)
            return replace(fault, text=None, source=line, offset=start.column, labels=(label,))
        quote = 1 if style in ("'", '"') else 0
        if written[quote : len(written) - quote] != fault.text:
            return fault  # folded or escaped: its offsets are not those of the line
        offset = start.column + quote
        column = offset + (fault.span[0] if fault.span else 0) + 1
        return replace(fault, column=column, source=line, offset=offset)


def read_value(text: str) -> Any:
    """Read a text as a value of YAML 1.2: a scalar, or a list or mapping in brackets; anything else is the text.

    Raises `PlacementError` if it is not valid YAML.
    """
    document = Document("the argument", text)
    if isinstance(document.root, yaml.CollectionNode) and not document.root.flow_style:
        return text
    return _plain(document.value())

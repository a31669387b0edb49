"""What the commands of a job must not state in the file of a plan: fields that nothing can fill in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankplan.errors import KeyPath
from rankplan.plans.node_command import (
    CONSTANTS,
    EndpointsField,
    Field,
    GroupField,
    NodeCommand,
    RankValueField,
    SizeField,
    field_of,
    fields_in,
)
from rankplan.words import counted, shown


def command_faults(commands: Sequence[NodeCommand]) -> Iterator[tuple[KeyPath, str]]:
    """Yield what is wrong with each command, with its path below ``commands``."""
    for index, command in enumerate(commands):
        for path, message in _of_command(command):
            yield (index, *path), message


def _of_command(command: NodeCommand) -> Iterator[tuple[KeyPath, str]]:
    for key, values in (("components", command.components), ("words", command.words)):
        if not values:
            yield (key,), f"`{key}` of a command is empty"
    if command.per_process and len(command.components) > 1:
        yield ("components",), "a command that is `per_process` starts one component"
    for position, word in enumerate(command.words):
        for message in _of_text(command, word, is_word=True):
            yield ("words", position), message
    for name, value in command.variables.items():
        for message in _of_text(command, value, is_word=False):
            yield ("variables", name), message
    numbers: dict[str, int] = {}
    for component, number in command.stated_sizes() if command.components else ():
        if numbers.setdefault(component, number) != number:
            several = f"{counted(numbers[component], 'process', 'processes')} of {component}, and for {number:,}"
            yield ("words",), f"a command cannot be for {several}"


def _of_text(command: NodeCommand, text: str, *, is_word: bool) -> Iterator[str]:
    """Yield what is wrong with the fields of a word, or of the value of a variable."""
    repeated = 0
    for name in fields_in(text):
        field = None if name in CONSTANTS else field_of(name)
        reason = "" if name in CONSTANTS else _reason(command, field, is_word=is_word, is_alone=text == f"{{{name}}}")
        repeated += isinstance(field, EndpointsField)
        if repeated > 1:
            reason = "must be the only one of its kind in a word"
        if reason:
            yield f"the field {shown(f'{{{name}}}')} of a command {reason}"


def _reason(command: NodeCommand, field: Field | None, *, is_word: bool, is_alone: bool) -> str:
    """Return what is wrong with a field, empty if it is right."""
    match field:
        case None:
            return "is unknown"
        case SizeField() if not (is_word and is_alone):
            return "must be a word of its own"
        case EndpointsField() if not is_word:
            return "must be in a word, which is repeated for each process"
        case RankValueField() | GroupField() if not command.per_process:
            return "needs a command that is `per_process`"
    return ""

"""Scripts as files of launchers: written below the user's head, recognised, and read back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from rankplan.errors import Diagnostic, PlacementError, refusal
from rankplan.files import read_text
from rankplan.frozen import frozen
from rankplan.launchers import faults
from rankplan.launchers.draft import Draft, Emitted
from rankplan.launchers.options import Options
from rankplan.launchers.scripts import CLOSES, DIGEST, OPENS, STRICT, Head, Lines, split
from rankplan.plans.plan import Plan
from rankplan.read.text.places import Place

_MOST_LINES = 4000
"""Above that many lines that may differ, only the first difference is looked for."""


def _no_conflicts(head: Head, written: Sequence[str], file: str) -> Iterable[Diagnostic]:
    return ()


def _unchanged(plan: Plan, lines: Sequence[str]) -> Plan:
    return plan


@frozen(kw_only=True)
class ScriptFile:
    """The file of a launcher that is a script for bash.

    ``compose`` returns the script of a draft with the user's head; `script` puts its parts together. ``sign`` matches
    in the body, and in that of no other launcher. ``is_own`` tells, by the lines above it, whether a line of the head
    is rankplan's. ``options_read`` returns the options of a script with a plan and these lines: a change of any line is
    found by writing the script again with them.

    ``conflicts`` are the faults of what the user's head states and the lines of rankplan decide. ``restored`` returns
    the plan with what only the script says of it.
    """

    compose: Callable[[Draft, Head], str]
    sign: re.Pattern[str]
    is_own: Callable[[str, Sequence[str]], bool]
    options_read: Callable[[Plan, Sequence[str]], Mapping[str, Any]]
    conflicts: Callable[[Head, Sequence[str], str], Iterable[Diagnostic]] = _no_conflicts
    restored: Callable[[Plan, Sequence[str]], Plan] = _unchanged

    def write(self, draft: Draft) -> str:
        """Return the script of a draft, below the head of the user's base. Raises ``OSError`` for a base."""
        base = draft.options.base
        if base is None:
            return self.compose(draft, Head())
        text = read_text(base)
        if (fault := _windows_lines(base, text)) is not None:
            raise PlacementError([replace(fault, code=faults.CONFLICT)])
        head, _ = split(text, self.is_own)
        fault = head.fault(base) if text.startswith("#!") else head.unmarked(base)
        if fault is not None:
            draft.faults.append(fault)
        written = self.compose(draft, head)
        _, own = split(written, self.is_own)
        draft.faults += self.conflicts(head, [line for _, line in own], base)
        return written

    def recognises(self, text: str) -> bool:
        """Whether a text is such a script that rankplan wrote, also one whose line endings were converted."""
        text = text.replace("\r\n", "\n")
        lines = text.split("\n")
        if STRICT not in lines or not any(line.startswith(DIGEST) for line in lines):
            return False
        body = text.partition(f"\n{STRICT}\n")[2]
        return self.sign.search(body) is not None

    def read(self, path: str, text: str) -> Emitted:
        """Return the plan in a script, and the options that give the script again.

        Raises `PlacementError`: ``emit-changed`` with every line that is not what the plan says, or for the line
        endings of Windows; ``invalid-plan``.
        """
        if (fault := _windows_lines(path, text)) is not None:
            raise PlacementError([fault])
        head, own = split(text, self.is_own)
        lines = [line for _, line in own]
        plan = self.restored(_plan(path, own), lines)
        options = replace(Options(), **self.options_read(plan, lines))
        draft = Draft(plan, options)
        expected = self.compose(draft, head)
        changes = [replace(fault, file=path) for fault in draft.faults]
        if not changes and expected != text:
            _, wanted = split(expected, self.is_own)
            changes = list(_changes(path, own, [line for _, line in wanted]))
        if not changes:
            changes = [replace(fault, code=faults.CHANGED) for fault in self.conflicts(head, lines, path)]
        if changes:
            raise refusal(changes)
        return Emitted(plan, replace(options, base=path))


def _windows_lines(path: str, text: str) -> Diagnostic | None:
    """Return the fault of a script that an editor or a transfer has given the line endings of Windows."""
    before, ending, _ = text.partition("\r\n")
    return faults.windows_lines(path, before.count("\n") + 1) if ending else None


def _plan(path: str, own: Lines) -> Plan:
    """Return the plan in the here-document of a script."""
    texts = [line for _, line in own]
    first = next((index for index, line in enumerate(texts) if line.endswith(OPENS)), None)
    if first is None:
        raise PlacementError([faults.no_plan_lines(path, OPENS)])
    document = texts[first + 1 :]
    if CLOSES not in document:
        raise PlacementError([faults.unended_plan(path, CLOSES)])
    start, _ = own[first]
    try:
        return Plan.from_dict(json.loads("\n".join(document[: document.index(CLOSES)])))
    except PlacementError as error:
        raise PlacementError([replace(fault, file=path, line=start) for fault in error.diagnostics]) from None
    except json.JSONDecodeError as error:
        fault = faults.script_plan_not_json(path, start + error.lineno, error.colno)
        raise PlacementError([fault]) from None
    except (ValueError, RecursionError):
        raise PlacementError([faults.script_plan_unread(path, start)]) from None


def _changes(path: str, lines: Lines, wanted: Sequence[str]) -> Iterator[Diagnostic]:
    """Yield each line that differs from what the plan says, with its place and both values.

    What is equal at the start and at the end is skipped first: most changed files differ in few lines.
    """
    texts = [text for _, text in lines]
    pairs = enumerate(zip_longest(texts, wanted))
    start = next((index for index, (text, planned) in pairs if text != planned), len(texts))
    equal = 0
    while equal < min(len(texts), len(wanted)) - start and texts[-1 - equal] == wanted[-1 - equal]:
        equal += 1
    stated = texts[start : len(texts) - equal]
    planned = wanted[start : len(wanted) - equal]
    if max(len(stated), len(planned)) > _MOST_LINES:
        stated, planned = stated[:1], planned[:1]
    matcher = SequenceMatcher(None, stated, planned, autojunk=False)
    for kind, first, last, planned_first, planned_last in matcher.get_opcodes():
        if kind == "equal":
            continue
        after = lines[start + first][0] if start + first < len(lines) else lines[-1][0] + 1
        for index, line in zip_longest(range(first, last), planned[planned_first:planned_last]):
            if index is None:
                yield faults.lost_line(path, after, line, STRICT)
            else:
                yield _change(path, *lines[start + index], line)


def _change(path: str, number: int, line: str, wanted: str | None) -> Diagnostic:
    """Return the fault of a line that should be another one, or should not exist."""
    if wanted is None:
        start = len(line) - len(line.lstrip())
        return Place(path, number, start, len(line), line).of(faults.added_line(line, STRICT))
    words = list(re.finditer(r"\S+", line))
    others = list(re.finditer(r"\S+", wanted))
    index = 0
    while index < min(len(words), len(others)) and words[index][0] == others[index][0]:
        index += 1
    if index == len(words) == len(others):
        index = 0  # only blanks differ
    word = words[index] if index < len(words) else None
    other = others[index] if index < len(others) else None
    start, end = (len(line), len(line)) if word is None else word.span()
    fault = faults.changed_line(word and word[0], other and other[0], STRICT)
    return Place(path, number, start, end, line).of(fault)

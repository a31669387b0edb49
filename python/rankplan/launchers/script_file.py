"""Scripts as targets: written over the user's head, recognised, and read back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from rankplan.errors import Diagnostic, PlacementError, refusal
from rankplan.files import read_text
from rankplan.frozen import frozen
from rankplan.launchers import mpirun, slurm, slurm_options, torchrun
from rankplan.launchers.options import AGAIN, Draft, Emitted, Options
from rankplan.launchers.script import CLOSES, DIGEST, OPENS, STRICT, Head, Lines, split
from rankplan.plans.plan import Plan
from rankplan.read.text.places import Place
from rankplan.words import shown

_CODE = "emit-changed"
_MOST_LINES = 4000
"""Above that many lines that may differ, only the first difference is looked for."""


@frozen
class Kind:
    """One of the targets whose file is a script.

    ``sign``: a line of its body, and of no other's. ``is_own`` tells, by the lines above it, whether a line of the head
    is rankplan's. ``options_read`` returns the options of a script with a plan and these lines.
    """

    name: str
    write: Callable[[Draft, Head], str]
    sign: re.Pattern[str]
    is_own: Callable[[str, Sequence[str]], bool]
    options_read: Callable[[Plan, Sequence[str]], Mapping[str, Any]]


SLURM = Kind("slurm", slurm.write, re.compile("^(?:sbcast|srun) ", re.M), slurm_options.is_own, slurm.options_read)
TORCHRUN = Kind("torchrun", torchrun.write, re.compile("^ +torchrun ", re.M), torchrun.is_own, torchrun.options_read)
MPIRUN = Kind("mpirun", mpirun.write, re.compile("^OMPI_MCA_", re.M), mpirun.is_own, mpirun.options_read)
_KINDS = (SLURM, TORCHRUN, MPIRUN)


def writer(kind: Kind) -> Callable[[Draft], str]:
    """Return the writer of a target, which puts the script below the user's head."""

    def write(draft: Draft) -> str:
        head, base = Head(), draft.options.base
        if base is not None:
            text = read_text(base)
            head, _ = split(text, kind.is_own)
            draft.faults += filter(None, [head.fault(base) if text.startswith("#!") else head.unmarked(base)])
        found = kind.write(draft, head)
        if base is not None and kind is SLURM:
            _, own = split(found, kind.is_own)
            draft.faults += slurm_options.conflicts(head, [line for _, line in own], base)
        return found

    return write


def wrote(kind: Kind) -> Callable[[str], bool]:
    """Return the function that tells whether a text is a script of this kind that rankplan wrote."""

    def is_of_kind(text: str) -> bool:
        lines = text.split("\n")
        if STRICT not in lines or not any(line.startswith(DIGEST) for line in lines):
            return False
        body = text.partition(f"\n{STRICT}\n")[2]
        return next((one for one in _KINDS if one.sign.search(body)), None) is kind

    return is_of_kind


def reader(kind: Kind) -> Callable[[str, str], Emitted]:
    """Return the reader of a target, which takes a path and a text."""
    return lambda path, text: read(kind, path, text)


def read(kind: Kind, path: str, text: str) -> Emitted:
    """Return the plan in a script, and the options that give the script again.

    Raises `PlacementError`: ``emit-changed`` with every line that is not what the plan says, ``invalid-plan``.
    """
    head, own = split(text, kind.is_own)
    lines = [line for _, line in own]
    plan = _plan(path, own)
    if kind is SLURM:
        plan = slurm.named_again(plan, lines)
    options = replace(Options(), **kind.options_read(plan, lines))
    draft = Draft(plan, options)
    expected = kind.write(draft, head)
    faults = [replace(fault, file=path) for fault in draft.faults]
    if not faults and expected != text:
        _, wanted = split(expected, kind.is_own)
        faults = list(_changes(path, own, [line for _, line in wanted]))
    if kind is SLURM and not faults:
        faults = [replace(one, code=_CODE) for one in slurm_options.conflicts(head, lines, path)]
    if faults:
        raise refusal(faults)
    return Emitted(plan, kind.name, replace(options, base=path))


def _plan(path: str, own: Lines) -> Plan:
    """Return the plan in the here-document of a script."""
    first = next((at for at, (_, line) in enumerate(own) if line.endswith(OPENS)), None)
    last = next((at for at, (_, line) in enumerate(own) if line == CLOSES and first is not None and at > first), None)
    if first is None or last is None:
        help = AGAIN
        message = f"no line ends in {OPENS}" if first is None else f"no line is {CLOSES}: the plan does not end"
        raise PlacementError([Diagnostic(_CODE, message, help, file=path)])
    start = own[first][0]
    try:
        return Plan.from_dict(json.loads("\n".join(line for _, line in own[first + 1 : last])))
    except PlacementError as error:
        raise PlacementError([replace(one, file=path, line=start) for one in error.diagnostics]) from None
    except json.JSONDecodeError as error:
        message, line = "the plan in this script is not JSON", start + error.lineno
        fault = Diagnostic("invalid-plan", message, AGAIN, file=path, line=line, column=error.colno)
        raise PlacementError([fault]) from None
    except (ValueError, RecursionError):
        raise PlacementError([Diagnostic("invalid-plan", "the plan is not JSON", file=path, line=start)]) from None


def _changes(path: str, found: Lines, wanted: Sequence[str]) -> Iterator[Diagnostic]:
    """Yield each line that differs from what the plan says, with its place and both values."""
    lines = [line for _, line in found]
    start = next((at for at, pair in enumerate(zip_longest(lines, wanted)) if pair[0] != pair[1]), len(lines))
    end = 0
    while end < min(len(lines), len(wanted)) - start and lines[-1 - end] == wanted[-1 - end]:
        end += 1
    here, there = lines[start : len(lines) - end], wanted[start : len(wanted) - end]
    if max(len(here), len(there)) > _MOST_LINES:
        here, there = here[:1], there[:1]
    for kind, first, last, one, other in SequenceMatcher(None, here, there, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        after = found[start + first][0] if start + first < len(found) else found[-1][0] + 1
        for mine, theirs in zip_longest(range(first, last), there[one:other]):
            number, line = (after, None) if mine is None else found[start + mine]
            yield _change(path, number, line, theirs)


def _change(path: str, number: int, line: str | None, wanted: str | None) -> Diagnostic:
    """Return the fault of a line that should be another one, or should not be, or is missing."""
    help = f"{AGAIN}; your own lines go above `{STRICT}`, and your own words after ` -- `"
    if line is None:
        message = f"the plan has the line {shown(str(wanted).strip())} here"
        return Diagnostic(_CODE, message, help, file=path, line=number, column=1)
    if wanted is None:
        start, end = len(line) - len(line.lstrip()), len(line)
        message = f"{shown(line.strip())} is not part of the plan"
        return Place(path, number, start, end, line).of(Diagnostic(_CODE, message, help))
    words, others = (list(re.finditer(r"\S+", text)) for text in (line, wanted))
    at = next(
        (at for at, pair in enumerate(zip_longest(words, others)) if not all(pair) or pair[0][0] != pair[1][0]), 0
    )
    word = words[at] if at < len(words) else None
    mine, theirs = (some[at][0] if at < len(some) else None for some in (words, others))
    said = shown(theirs) if theirs else "nothing"
    message = f"{shown(mine) if mine else 'nothing'} is not what the plan says: {said}"
    start, end = word.span() if word is not None else (len(line), len(line))
    return Place(path, number, start, end, line).of(Diagnostic(_CODE, message, help))

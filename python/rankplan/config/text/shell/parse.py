"""The commands of a shell script: lists, branches, loops, functions and here-documents."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rankplan.config.text.shell.arithmetic import assigned_names
from rankplan.config.text.shell.tree import (
    Assignment,
    Block,
    Calculation,
    Case,
    Chain,
    Function,
    Group,
    If,
    Literal,
    Loop,
    Not,
    Simple,
    Statement,
    Word,
)
from rankplan.config.text.shell.words import ShellSyntaxError, Words

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]\n]*\])?(\+?)=", re.ASCII)
_FUNCTION = re.compile(
    r"(?:function[ \t]+([^\s()]+)[ \t]*(?:\([ \t]*\))?|([A-Za-z_][\w.:-]*)[ \t]*\([ \t]*\))\s*(?=[{(])"
)
_REDIRECTION = re.compile(r"[0-9]*(?:<<<|<<-?|<&|<>|>>|>&|>\||<(?!\()|>(?!\())|&>>?")
_RESERVED = re.compile(r"[A-Za-z]+(?=[\s;&|()<>]|$)|\{(?=\s)|\}|!(?=\s)|\[\[(?=\s)")
_DECLARING = frozenset({"export", "local", "declare", "readonly", "typeset"})
_CLOSING = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})


def parse(text: str) -> Block:
    """Return the commands of a script. Raises `ShellSyntaxError`."""
    parser = _Parser(text)
    block = parser.block(())
    if parser.position < len(text):
        rest = re.match(r"\S+", text[parser.position :])
        found = rest[0] if rest else text[parser.position]
        raise ShellSyntaxError(f"`{found}` does not match the commands before it", parser.position, "remove it")
    return block


class _Parser(Words):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._documents: list[tuple[str, bool]] = []

    def _skip_blanks(self, *, lines: bool = False) -> None:
        """Move past blanks, comments and continuations, and past ends of lines if ``lines``."""
        while self.position < len(self.text):
            if self._at("\\\n"):
                self.position += 2
            elif self.text[self.position] in " \t\r" or (
                lines and self._at(";") and not self._at(";;") and not self._at(";&")
            ):
                self.position += 1
            elif self._at("#"):
                end = self.text.find("\n", self.position)
                self.position = len(self.text) if end < 0 else end
            elif lines and self._at("\n"):
                self._end_line()
            else:
                return

    def _end_line(self) -> None:
        """Move past the end of a line, and past the here-documents that follow it."""
        self.position += 1
        for delimiter, indented in self._documents:
            while self.position < len(self.text):
                end = self.text.find("\n", self.position)
                end = len(self.text) if end < 0 else end
                line = self.text[self.position : end].rstrip("\r")
                self.position = min(end + 1, len(self.text))
                if (line.lstrip("\t") if indented else line) == delimiter:
                    break
        self._documents = []

    def _reserved(self) -> str | None:
        found = _RESERVED.match(self.text, self.position)
        return found[0] if found else None

    def _take(self, word: str, opening: str, start: int) -> None:
        """Move past a reserved word, which must come next."""
        self._skip_blanks(lines=True)
        if self._reserved() != word and not (word in "()" and self._at(word)):
            raise ShellSyntaxError(f"`{opening}` without `{word}`", start, f"add `{word}`")
        self.position += len(word)

    def _skip_commands(self, start: int) -> None:
        pending, self._documents = self._documents, []
        self.block((")",))
        self._documents = pending
        if not self._at(")"):
            raise ShellSyntaxError("this `$(` is not closed", start, "add the closing parenthesis")
        self.position += 1

    def block(self, ends: Iterable[str]) -> Block:
        """Return the commands up to one of these words or characters, which is not consumed."""
        ends = frozenset(ends)
        statements: list[Statement] = []
        while True:
            self._skip_blanks(lines=True)
            if self.position >= len(self.text) or self.text[self.position] in ")" or self._at(";;") or self._at(";&"):
                return tuple(statements)
            word = self._reserved()
            if word in ends or word in _CLOSING:
                return tuple(statements)
            before = self.position
            statements.append(self._chain())
            self._skip_blanks()
            if self._at("&") and not self._at("&&"):
                statements[-1] = Group((statements[-1],), apart=True)
                self.position += 1
            if self.position == before:
                raise ShellSyntaxError(f"unexpected `{self.text[before]}`", before, "remove or quote it")

    def _chain(self) -> Statement:
        start = self.position
        first, rest = self._command(), list[tuple[str, Statement]]()
        while True:
            self._skip_blanks()
            operator = next((one for one in ("&&", "||", "|&", "|") if self._at(one)), None)
            if operator is None:
                return Chain(first, tuple(rest), start) if rest else first
            self.position += len(operator)
            self._skip_blanks(lines=True)
            rest.append((operator, self._command()))

    def _command(self) -> Statement:
        self._skip_blanks()
        start, word = self.position, self._reserved()
        found: Statement
        if word == "!":
            self.position += 1
            return Not(self._command())
        if word == "time":
            self.position += 4
            return self._command()
        if self._at("((") and (end := self._end_of_arithmetic(start + 2)) is not None:
            inner = type(self)(self.text[:end])
            inner.position = start + 2
            found = Calculation(Word(tuple(inner._quoted_parts("\0")), start + 2, end))
            self.position = end + 2
        elif word == "[[":
            return self._test()
        elif word == "if":
            found = self._if()
        elif word == "case":
            found = self._case()
        elif word in ("for", "select", "while", "until"):
            found = self._loop(word)
        elif self._at("(") or word == "{":
            closing = ")" if self._at("(") else "}"
            self.position += 1
            found = Group(self.block((closing,)), apart=closing == ")")
            self._take(closing, self.text[start], start)
        elif function := _FUNCTION.match(self.text, start):
            self.position = function.end()
            body = self._command()
            return Function(function[1] or function[2], (body,))
        else:
            return self._simple()
        self._skip_redirections()
        return found

    def _skip_redirections(self) -> bool:
        """Move past redirections, and note here-documents; return whether there was one."""
        any_found = False
        while True:
            self._skip_blanks()
            found = _REDIRECTION.match(self.text, self.position)
            if found is None:
                return any_found
            any_found, self.position = True, found.end()
            self._skip_blanks()
            target = self.word()
            if found[0].lstrip("0123456789") in ("<<", "<<-"):
                self._documents.append((target.literal or "", found[0].endswith("-")))

    def _simple(self) -> Simple:
        start = self.position
        assignments: list[Assignment] = []
        words: list[Word] = []
        declaring = False
        while True:
            if self._skip_redirections():
                continue
            if self.position >= len(self.text) or self.text[self.position] in "\n;|&)":
                return Simple(tuple(assignments), tuple(words), start)
            if self._at("(") and not words:
                raise ShellSyntaxError("unexpected `(`", self.position, "quote it")
            if (not words or declaring) and (assigned := _ASSIGNMENT.match(self.text, self.position)):
                assignments.append(self._assignment(assigned))
                continue
            if self._at("<(") or self._at(">("):
                begin = self.position
                self.position += 2
                self._skip_commands(begin)
                continue
            if self._at("("):
                raise ShellSyntaxError("unexpected `(`", self.position, "quote it")
            words.append(self.word())
            declaring = declaring or (len(words) == 1 and words[0].literal in _DECLARING)

    def _assignment(self, found: re.Match[str]) -> Assignment:
        self.position = found.end()
        value: Word | tuple[Word, ...]
        if not self._at("("):
            value = self.word()
        else:
            self.position += 1
            items: list[Word] = []
            while True:
                self._skip_blanks(lines=True)
                if self.position >= len(self.text):
                    raise ShellSyntaxError("this array is not closed", found.start(), "add the closing parenthesis")
                if self._at(")"):
                    break
                item = self.word()
                if item.end == item.start:
                    raise ShellSyntaxError(f"unexpected `{self.text[item.start]}`", item.start, "quote it")
                items.append(item)
            self.position += 1
            value = tuple(items)
        return Assignment(found[1], value, bool(found[3]), found.start(), found[2] and found[2][1:-1])

    def _test(self) -> Simple:
        start = self.position
        words: list[Word] = []
        while True:
            self._skip_blanks(lines=True)
            operator = next((one for one in ("&&", "||", "(", ")", "<", ">") if self._at(one)), None)
            if operator is not None:
                here = self.position
                self.position += len(operator)
                words.append(Word((Literal(operator, here),), here, self.position))
                continue
            before = self.position
            regex = bool(words) and words[-1].literal == "=~"
            words.append(self.word(" \t\n".__contains__ if regex else " \t\n;|&()<>".__contains__))
            if words[-1].literal == "]]":
                self._skip_redirections()
                return Simple((), tuple(words), start)
            if self.position >= len(self.text) or self.position == before:
                raise ShellSyntaxError("`[[` without `]]`", start, "add `]]`")

    def _if(self) -> If:
        start = self.position
        branches: list[tuple[Block, Block]] = []
        otherwise: Block = ()
        self.position += 2
        while True:
            condition = self.block(("then",))
            self._take("then", "if", start)
            branches.append((condition, self.block(("elif", "else", "fi"))))
            if self._reserved() == "elif":
                self.position += 4
                continue
            if self._reserved() == "else":
                self.position += 4
                otherwise = self.block(("fi",))
            self._take("fi", "if", start)
            return If(tuple(branches), otherwise, start)

    def _case(self) -> Case:
        start = self.position
        self.position += 4
        self._skip_blanks()
        word = self.word()
        self._take("in", "case", start)
        branches: list[tuple[tuple[Word, ...], Block]] = []
        continued: list[bool] = []
        while True:
            self._skip_blanks(lines=True)
            if self._reserved() == "esac" or self.position >= len(self.text):
                self._take("esac", "case", start)
                for index in reversed(range(len(branches) - 1)):
                    if continued[index]:  # the commands of the next branch follow
                        branches[index] = branches[index][0], branches[index][1] + branches[index + 1][1]
                return Case(word, tuple(branches), start)
            if self._at("("):
                self.position += 1
            patterns: list[Word] = []
            while not self._at(")"):
                self._skip_blanks(lines=True)
                patterns.append(self.word())
                self._skip_blanks(lines=True)
                if self._at("|"):
                    self.position += 1
                elif not self._at(")"):
                    raise ShellSyntaxError("a pattern of `case` ends with `)`", patterns[-1].start, "add `)`")
            self.position += 1
            branches.append((tuple(patterns), self.block(("esac",))))
            end = next((one for one in (";;&", ";;", ";&") if self._at(one)), "")
            self.position += len(end)
            continued.append(end == ";&")

    def _loop(self, kind: str) -> Loop:
        start = self.position
        self.position += len(kind)
        self._skip_blanks()
        variable: str | None = None
        condition: Block = ()
        if kind in ("for", "select"):
            if self._at("(("):
                end = self._end_of_arithmetic(self.position + 2)
                end = len(self.text) if end is None else end
                variable = next(iter(assigned_names(self.text[self.position : end])), None)
                self.position = end + 2
            else:
                variable = self.word().literal
                self._skip_blanks(lines=True)
                if self._reserved() == "in":
                    self.position += 2
                    self._simple()
        else:
            condition = self.block(("do",))
        self._take("do", kind, start)
        body = condition + self.block(("done",))
        self._take("done", kind, start)
        return Loop(kind, variable, body, start)

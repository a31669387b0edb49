"""The faults of TOML files, each without its place."""

from __future__ import annotations

import re

from rankplan.errors import Diagnostic

_TWICE = re.compile(r"Cannot declare \((.*)\) twice")
_CURES = {
    "Expected '='": "write `key = value`; comments start with `#`",
    "Invalid value": 'write a value: texts are in quotes, true and false are in lower case, lists are `["a", "b"]`',
    "Unterminated string": "close the quote",
    "Illegal character": "remove the character, or escape it in a text",
    "Unclosed inline table": "close the braces on the same line, or write a table: `[name]`",
    "Unclosed array": "close the bracket, and separate items by commas",
    "newline or end of document": "write one `key = value` per line; quote texts with blanks",
    "Expected ']'": "close the bracket of the header: `[name]`, or `[[name]]` for an item of a list",
    "too many digits": "write a shorter number",
    "Invalid initial character for a key part": "quote the key, or remove the character",
}
"""A part of the parser's message, and the help for it; the first match counts."""


def invalid_toml(message: str) -> Diagnostic:
    """Return the fault of a text that is no TOML, for the message of Python's parser."""
    twice = _TWICE.search(message)
    if twice is not None:
        name = ".".join(re.findall(r"'([^']*)'", twice[1]))
        return Diagnostic("duplicate-key", f"the table [{name}] is written twice", "put its keys into one of the two")
    if "Cannot overwrite" in message or "Cannot mutate" in message or "Duplicate inline table key" in message:
        return Diagnostic("duplicate-key", "the key has a value already", "remove one of the two")
    help = next((cure for part, cure in _CURES.items() if part in message), "correct the text")
    return Diagnostic("syntax", f"invalid TOML: {message[:1].lower()}{message[1:]}", help)


def nested_toml() -> Diagnostic:
    """Return the fault of a text whose brackets are nested too deeply to read."""
    return Diagnostic("syntax", "invalid TOML: the brackets are nested too deeply", "use fewer levels")

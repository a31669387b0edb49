"""Generate docs/rules.md, the tables of docs/language.md, differences.md, coming-from.md, systems, and tests/help."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner
from rankplan.cli.commands import COMMANDS, main
from rankplan.cli.explain import HEAD, Example, Rule, rules
from rankplan.dialects import DIALECTS, OWN, Dialect, recognisers
from rankplan.dialects.keys.key import ANY_ROLE, Entry, Key, Kind, below
from rankplan.dialects.keys.roles import Role, Setting
from rankplan.dialects.keys.table import KeyTable

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("rules.md", "language.md", "differences.md", "coming-from.md")
RULES, LANGUAGE, DIFFERENCES, SYSTEMS = (ROOT / "docs" / name for name in PAGES)
ASYNC = ROOT / "docs" / "async.md"
HELP, GOLDEN = ROOT / "tests" / "help", ROOT / "tests" / "golden" / "differences.json"

INTRODUCTION = """\
# The rules

Every error has a code. The list of codes is closed (`rankplan.error_codes()`), and a code never changes its meaning.
The warnings of `rankplan check` have codes too. `rankplan explain CODE` prints the section of a code in a terminal.
"""


def generated() -> dict[Path, str]:
    """Return the text of each file that is generated."""
    pages = memory_tables() | {
        RULES: rules_page(),
        LANGUAGE: language_page(),
        DIFFERENCES: differences_page(),
        SYSTEMS: systems_page(),
    }
    return pages | asynchronous_page() | help_pages()


def rules_page() -> str:
    """Return the page of all rules, chapter by chapter."""
    text = INTRODUCTION
    for part, members in groupby(rules().values(), key=lambda rule: rule.part):
        chapter = list(members)
        text += f"\n## {part}\n\n| code | reported when |\n|---|---|\n"
        text += "".join(f"| [`{rule.code}`](#{rule.code}) | {rule.when} |\n" for rule in chapter)
        text += "".join(map(explained, chapter))
    return text


def explained(rule: Rule) -> str:
    """Return the section of a rule."""
    found = "\n\n".join(diagnostic.render() for diagnostic in rule.diagnostics())
    why = textwrap.fill(f"Reported when {rule.when}. {rule.why}", 130, break_on_hyphens=False)
    faults = f"\n```text\n{found}\n```\n" if found else ""
    shown = f"{block(rule.wrong)}{faults}\n{rule.heading('Right', rule.right)}\n\n{block(rule.right)}"
    return f"\n### {rule.code}\n\n{why}\n\n{rule.heading('Wrong', rule.wrong)}\n\n{shown}"


def block(example: Example) -> str:
    """Return an example as a Markdown block."""
    is_yaml = not example.is_session and example.file.endswith(".yaml")
    return f"```{'yaml' if is_yaml else 'text'}\n{example.text.rstrip()}\n```\n"


def language_page() -> str:
    """Return the language page with an up-to-date table of rules."""
    first = next(iter(rules().values())).part
    table = [row(rule) for rule in rules().values() if rule.part == first]
    return with_table(LANGUAGE, "the rules", ["| code | given when | wrong | right |", "|---|---|---|---|", *table])


def differences_page() -> str:
    """Return the page of differences with an up-to-date table."""
    table = []
    for number, row in enumerate(json.loads(GOLDEN.read_text()), 1):
        peer = "" if row["peer"] == "RLinf" else f"{row['peer']}: "
        table.append(f"| {peer}{'; '.join(row['does'].values())} | {row['rankplan']} | {number} |")
    head = ["| RLinf, unless another system is named | rankplan | |", "|---|---|--:|"]
    return with_table(DIFFERENCES, "tests/golden/differences.json", head + table)


def systems_page() -> str:
    """Return the page of the other systems with an up-to-date table of their keys."""
    table = []
    for dialect in recognisers():
        keys = own_keys(dialect)
        for entries in (keys.placing, keys.remembering):
            for (kind, decides, names), sections in key_groups(entries).items():
                shown = ", ".join(f"`{name}`" for name in sections if name).replace(ANY_ROLE, "ROLE")
                table.append(f"| {dialect.name} | {shown} | {', '.join(names)} | {kind} | {decides} |")
    head = ["| dialect | sections | keys | type | decides |", "|---|---|---|---|---|"]
    return with_table(SYSTEMS, "dialects/keys", head + table)


def own_keys(dialect: Dialect) -> KeyTable:
    """Return the keys of a dialect; of a fork, those that it does not have from its parent."""
    table = dialect.keys
    if table.fork is None or table.parent is None:
        return table
    memory = () if table.memory == table.parent.memory else table.memory
    return replace(table, keys=table.fork.own, memory=memory, fork=None, parent=None)


def key_groups(entries: Iterable[Entry]) -> dict[tuple[str, str, tuple[str, ...]], list[str]]:
    """Return the sections that have the same keys of one type: by type, what they decide, and their names.

    Keys of a section are together if they decide the same; those of memory, whatever they decide.
    """
    named: dict[tuple[str, str, str], dict[str, str]] = {}
    for entry in entries:
        *section, name = map(str, entry.path)
        kind = "name" if entry.kind is Kind.TEXT and not entry.places else entry.kind.value
        decides = entry.decides if entry.places else "memory"
        named.setdefault((kind, decides, ".".join(section)), {})[name] = entry.decides
    groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (kind, decides, section), names in named.items():
        if decides == "memory":
            decides = ", ".join(dict.fromkeys(word for text in names.values() for word in text.split(", ")))
        groups.setdefault((kind, decides, tuple(names)), []).append(section)
    return groups


def memory_tables() -> dict[Path, str]:
    """Return the page of each system with an up-to-date table of the keys that tell its memory."""
    pages = {}
    for dialect in (*recognisers(), DIALECTS[OWN]):
        rows = []
        roles = own_keys(dialect).roles
        if not roles and dialect.parent is not None:
            continue
        for role in roles:
            names = ", ".join("every role" if name == "*" else name for name in role.components)
            rows += [f"| {names} | {line} |" for line in map(partial(memory_row, role), settings_of(role)) if line]
        page = ROOT / "docs" / "systems" / f"{dialect.name.replace('_', '-')}.md"
        head = ["| of | setting | keys |", "|---|---|---|"]
        pages[page] = with_table(page, "dialects/memory", head + rows)
    return pages


def settings_of(role: Role) -> list[Setting]:
    """Return the settings of a role, those without a name last."""
    return sorted(role.all_settings, key=lambda setting: not setting.name)


def memory_row(role: Role, setting: Setting) -> str:
    """Return the name of a setting and its keys, empty if it has none."""
    keys = "; ".join(memory_key(role, key) for key in setting.config_keys)
    only = f" ({', '.join(setting.only)})" if setting.only else ""
    return f"{setting.name or 'unknown if set'}{only} | {keys}" if keys else ""


def memory_key(role: Role, key: Key[Any]) -> str:
    """Return the paths of a key, with its default in parentheses."""
    section = next(iter(role.components.values())).replace(ANY_ROLE, "ROLE")
    paths = " or ".join(dict.fromkeys(f"`{below(section, dotted)}`" for dotted in key.paths))
    default = str(key.default).lower() if isinstance(key.default, bool) else key.default
    return paths if default is None else f"{paths} ({default})"


def asynchronous_page() -> dict[Path, str]:
    """Return the page of asynchronous runs with the errors on published ones, and their picture."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support import async_errors

    page = with_table(ASYNC, "tests/golden/measured_runs.jsonl", async_errors.table_lines())
    return {ASYNC: page, ASYNC.with_suffix(".svg"): async_errors.picture()}


def with_table(page: Path, source: str, lines: list[str]) -> str:
    """Return the text of a page with the table from this source replaced."""
    begin, end = f"<!-- from {source} -->\n", "<!-- end -->\n"
    before, _, after = page.read_text().partition(begin)
    return before + begin + "".join(f"{line}\n" for line in lines) + end + after.split(end, 1)[1]


def row(rule: Rule) -> str:
    """Return a row of the table; an example of several lines appears only on the page of the rules."""
    texts = [example.text.removeprefix(HEAD).strip() for example in (rule.wrong, rule.right)]
    cells = [f"`{text}`" if "\n" not in text else "" for text in texts]
    return f"| [`{rule.code}`](rules.md#{rule.code}) | {rule.when} | {cells[0]} | {cells[1]} |"


def help_pages() -> dict[Path, str]:
    """Return the help text of every command."""
    pages = {}
    for words in [[], *([name] for name in COMMANDS)]:
        asked = CliRunner().invoke(main, [*words, "--help"], prog_name="rankplan", terminal_width=100)
        pages[HELP / f"{'-'.join(['rankplan', *words])}.txt"] = asked.output
    return pages


def with_outputs() -> dict[Path, str]:
    """Return the text of each page with the real outputs of its commands and programs."""
    sys.path.insert(0, str(ROOT / "tests"))
    import conftest  # noqa: F401  # keeps Ray in a private folder
    from support import documents

    pages = {page: page.read_text() for page in documents.DOCUMENTS}
    for block, command, output in documents.commands():
        old, new = (f"$ {command}\n{text.strip()}\n" for text in (output, documents.command_output(block, command)))
        pages[block.document] = pages[block.document].replace(old, new, 1)
    for block, output in documents.programs():
        if output is not None:
            old, new = (f"```output\n{text.strip()}\n" for text in (output, documents.program_output(block)))
            pages[block.document] = pages[block.document].replace(old, new, 1)
    return pages


@click.command()
@click.option(
    "--outputs", is_flag=True, help="Instead, run the commands and programs on the pages and refresh their outputs."
)
def write(*, outputs: bool) -> None:
    """Write the generated files that have changed."""
    for path, text in (with_outputs() if outputs else generated()).items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            click.echo(path.relative_to(ROOT))


if __name__ == "__main__":
    write()

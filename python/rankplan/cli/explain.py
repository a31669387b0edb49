"""``rankplan explain``: every rule with its reason, an example that breaks it, and the fix."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import yaml
from click.shell_completion import CompletionItem

from rankplan import ComponentPlacement
from rankplan.arranging.arrange import arrange
from rankplan.arranging.replan import replan
from rankplan.cli.commands import main
from rankplan.cli.emit import emit, emit_options
from rankplan.cli.output import colored, faults_end_it, print_table, silent
from rankplan.cli.rule_options import kept_levels, segment_sizes
from rankplan.errors import Diagnostic, PlacementError
from rankplan.front.api import check, tune, tune_async
from rankplan.front.job import is_saved
from rankplan.frozen import frozen
from rankplan.launchers.emit import emit as emitted
from rankplan.launchers.options import forms
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.node_rank import node_ranks
from rankplan.plans.exchange import sorted_for_trainer
from rankplan.plans.plan import Plan
from rankplan.read.text.load import load_config
from rankplan.tuning.search import read_costs
from rankplan.words import did_you_mean

HEAD = "# conf.yaml\ncluster:\n  num_nodes: 2\n  component_placement:\n"
"""Put before an example that consists of lines of ``component_placement``."""

_WITH_MEMORY = "check --memory"

_FILE = re.compile(r"^(?=# [\w.]+\.yaml\n)(?!\A)", re.MULTILINE)
"""Where another file of an example starts."""


@frozen
class Example:
    """A file, the cluster, and what is requested of it; or a session in a terminal, which is only shown.

    The cluster is a size, or the list of entries of an inventory. What is requested is a component, a weight map
    ``from:to``, a file: ``emit --to lws``, or a command with an option: ``arrange --segment 4`` of a plan, ``check
    --memory`` of a config. Further files start with a line ``# base.yaml``.
    """

    text: str
    nodes: str
    ask: str | None

    @property
    def is_session(self) -> bool:
        """Whether it is a session: the rule is about what a program does on a cluster."""
        return self.text.startswith("$")

    @property
    def file(self) -> str:
        """The name of the file."""
        return "plan.json" if self.text.startswith("{") else self.text.split(maxsplit=2)[1]

    def found(self) -> list[Diagnostic]:
        """Return the diagnostics of the file: its faults, or else its warnings. A session shows its own."""
        if self.is_session:
            return []
        with TemporaryDirectory() as folder:
            first, *more = _FILE.split(self.text)
            Path(folder, self.file).write_text(first, encoding="utf-8")
            for text in more:
                Path(folder, text.split(maxsplit=2)[1]).write_text(text, encoding="utf-8")
            try:
                diagnostics = self._read(Path(folder, self.file))
            except PlacementError as error:
                diagnostics = error.diagnostics
        return [replace(diagnostic, file=Path(diagnostic.file or self.file).name) for diagnostic in diagnostics]

    @property
    def _inventory(self) -> Inventory:
        if self.nodes.startswith("["):
            return Inventory.from_dict({"nodes": yaml.safe_load(self.nodes)})
        return Inventory.parse(self.nodes)

    def _read(self, path: Path) -> Iterable[Diagnostic]:
        """Use the file as the rule is about. Return its warnings; raise `PlacementError` for its faults."""
        if self.file == "plan.json":
            self._use_plan(Plan.load(path))
            return ()
        if self.file == "nodes.yaml":
            Inventory.load(path)
            return ()
        if self.file == "costs.yaml":
            costs = read_costs(path)
            tuning = tune if costs.asynchronous is None else tune_async
            return tuning(costs, self._inventory).warnings
        report = check(path, None if is_saved(path) else self._inventory, memory=self.ask == _WITH_MEMORY)
        if report.plan is not None and self.ask is not None and self.ask != _WITH_MEMORY:
            self._use_config(path, report.plan, self.ask)
        return report.diagnostics

    def _use_plan(self, plan: Plan) -> None:
        """Do with a saved plan what is requested of it; by default, launch it."""
        match (self.ask or "").split():
            case [_, "--without", name]:
                replan(plan, plan.inventory, without=[name])
            case [_, "--segment", size]:
                arrange(plan, plan.inventory, segment=segment_sizes([size]))
            case [_, "--keep", level]:
                arrange(plan, plan.inventory, keep=kept_levels([level]))
            case [_, "--node", rank]:
                node_ranks(rank, "--node")
            case _:
                plan.check_shares()
                sorted_for_trainer(plan.fitted(self._inventory), plan.inventory)

    def _use_config(self, path: Path, plan: Plan, request: str) -> None:
        """Do what is requested of a config and its plan: a file of a launcher, a weight map or a component."""
        if request.startswith("emit "):
            _emit(plan, shlex.split(request)[1:], path.parent)
        elif ":" in request:
            plan.weight_map(*request.split(":"))
        else:
            ComponentPlacement(path, self._inventory).get_strategy(request)


def _emit(plan: Plan, words: list[str], folder: Path) -> None:
    """Write a plan with the options of ``rankplan emit``."""
    given = emit.make_context("emit", ["conf.yaml", *words], click.Context(main, **main.context_settings)).params
    stated = {name: given[name] for name, _ in forms()}
    if stated["base"] is not None:
        stated["base"] = folder / stated["base"]
    with silent():
        emitted(plan, given["to"], emit_options(plan, stated))


@frozen
class Rule:
    """A code, when and why it is reported, an example that breaks the rule, and its fix; ``part`` is the chapter."""

    part: str
    code: str
    when: str
    why: str
    wrong: Example
    right: Example

    def diagnostics(self) -> list[Diagnostic]:
        """Return the diagnostics of the wrong example that have this code."""
        return [diagnostic for diagnostic in self.wrong.found() if diagnostic.code == self.code]

    def heading(self, name: str, example: Example) -> str:
        """Return the heading of one of its examples."""
        if example.is_session:
            return f"{name}:"
        on = f"`--nodes {example.nodes}`"
        if example.nodes.startswith("["):
            on = f"the inventory `nodes: {example.nodes}`"
        if example.ask is not None and example.ask.startswith("emit "):
            return f"{name}, with {on} and `rankplan {example.ask}`:"
        if example.ask is not None and (example.file == "plan.json" or example.ask.startswith(_WITH_MEMORY)):
            return f"{name}, with `rankplan {example.ask}`:"
        if example.ask is not None:
            sender, _, receiver = example.ask.partition(":")
            call = f'weight_map("{sender}", "{receiver}")' if receiver else f'get_strategy("{sender}")'
            return f"{name}, with `{call}`:"
        if example.file == "plan.json":
            return f"{name}, launched on {example.nodes}:"
        if example.file not in ("conf.yaml", "run.sh"):
            return f"{name}:"
        return f"{name}, with {on}:"


@cache
def rules() -> dict[str, Rule]:
    """Return every rule by its code, in the order of ``error_codes()``, then the warnings."""
    parts = load_config(Path(__file__).with_name("rules.yaml"))
    return {code: _rule(part, code, entry) for part, entries in parts.items() for code, entry in entries.items()}


def _rule(part: str, code: str, entry: dict[str, Any]) -> Rule:
    examples = []
    for name in ("wrong", "right"):
        text = entry[name]
        if not text.startswith(("#", "{", "$")):
            text = HEAD + textwrap.indent(text, "    ")
        examples.append(Example(text, entry.get("nodes", "2x8"), entry.get("ask", {}).get(name)))
    return Rule(part, code, entry["when"], entry["why"].strip(), *examples)


class _Code(click.ParamType):  # type: ignore[type-arg]
    """The code of a rule."""

    name = "code"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Rule:
        """Return the rule."""
        if value not in rules():
            help = did_you_mean(str(value), rules(), "some of the codes are")
            self.fail(f"unknown code `{value}`; {help} (`rankplan explain` lists all)", param, ctx)
        return rules()[value]

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the codes that start with ``incomplete``."""
        return [CompletionItem(code, help=rule.when) for code, rule in rules().items() if code.startswith(incomplete)]


@click.command()
@click.argument("rule", metavar="[CODE]", type=_Code(), required=False)
def explain(rule: Rule | None) -> None:
    """Explain a rule by its code, with an example and the fix.

    Without a code, list all rules.
    """
    with faults_end_it():
        if rule is not None:
            click.echo(_text(rule))
            return
        from rich.table import Table  # one rule is plain lines

        table = Table.grid(padding=(0, 2))
        for each in rules().values():
            table.add_row(each.code, each.when)
        print_table(table)


def _text(rule: Rule) -> str:
    color = colored(sys.stdout)
    shown = "\n\n".join(diagnostic.render(color=color) for diagnostic in rule.diagnostics())
    parts = [f"{click.style(rule.code, bold=True)}: {rule.when}"]
    parts.append(textwrap.fill(rule.why, 100, break_on_hyphens=False))
    for name, example, more in (("Wrong", rule.wrong, [shown]), ("Right", rule.right, [])):
        parts.append(click.style(rule.heading(name, example), bold=True))
        parts += [textwrap.indent(example.text.rstrip(), "    "), *filter(None, more)]
    return "\n\n".join(parts)

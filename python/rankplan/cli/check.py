"""``rankplan check``: every fault of every file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import click

from rankplan.cli.common import (
    EXPECTED,
    InventoryChoice,
    colored,
    dialect_option,
    faults_end_it,
    inventory_options,
    loaded,
    reject_crossings,
    show_error,
    stdout,
)
from rankplan.cli.watch import watch
from rankplan.config.text.faults import KeyPath
from rankplan.config.text.reader import Reader
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.mode import PlacementMode
from rankplan.plans.plan import Plan
from rankplan.plans.weights import senderless
from rankplan.render.annotations import github, sarif
from rankplan.render.groups import group_lines
from rankplan.render.tables import by_nodes
from rankplan.words import counted

_FORMATS = ("text", "json", "sarif", "github")
_TELLTALES = {
    "resource_pool_spec": "verl",
    "actor_rollout_ref": "verl",
    "segment_size": "nemo_rl",
    "gpus_per_node": "nemo_rl",
    "allocation_mode": "areal",
    "n_gpus_per_node": "areal",
    "actor_num_gpus_per_node": "slime",
    "rollout_num_gpus": "slime",
    "num_gpus_per_node": "roll",
    "actor_train": "roll",
}
"""Keys of other dialects, at the top of a config or in its ``cluster`` section."""
_TENSOR_SIZES = ("tp", "tensor_parallel_size", "tp_size")
"""How configs call the tensor size of a receiver."""


@dataclass
class _Report:
    """What a check found in a file. ``plan`` is ``None`` if the file has faults, ``error`` is why it cannot be read."""

    file: str
    plan: Plan | None = None
    faults: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    error: str | None = None

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values."""
        components = None if self.plan is None else {name: len(rows) for name, rows in self.plan.items()}
        return {
            "file": self.file,
            "fine": self.plan is not None,
            "nodes": None if self.plan is None else self.plan.inventory.num_nodes,
            "components": components,
            "mode": None if self.plan is None or self.plan.mode is None else self.plan.mode.name,
            "groups": [] if self.plan is None else group_lines(self.plan),
            "faults": [fault.plain() for fault in self.faults],
            "warnings": [warning.plain() for warning in self.warnings],
            "error": self.error,
        }

    def found(self) -> list[Diagnostic]:
        """Return everything that was found, also why the file cannot be read."""
        unread = [] if self.error is None else [Diagnostic("unreadable", self.error, file=self.file)]
        return [*unread, *self.faults, *self.warnings]


@click.command()
@click.argument("files", metavar="FILE...", type=click.Path(), nargs=-1, required=True)
@inventory_options
@dialect_option
@click.option("--format", "form", type=click.Choice(_FORMATS), default="text", show_default=True, help="Output format.")
@click.option("--watch", "watched", is_flag=True, help="Check again whenever a file changes, until Ctrl-C.")
def check(files: tuple[str, ...], choice: InventoryChoice, dialect_name: str | None, form: str, watched: bool) -> None:
    """Report every fault in config files, with location and fix.

    Without an inventory, every node has as many accelerators as the config states, or 8. The exit code is 1 if a file
    has a fault. json is a list with one report per file, sarif is for code scanning, github annotates the lines of a
    pull request.
    """
    if watched:
        with faults_end_it():
            watch(files, lambda: _check_all(files, choice, dialect_name, form))
    sys.exit(1 if _check_all(files, choice, dialect_name, form) else 0)


def _check_all(files: tuple[str, ...], choice: InventoryChoice, dialect_name: str | None, form: str) -> bool:
    """Check files and print what was found; return whether any has a fault."""
    reports = []
    for file in files:
        report = _Report(file)
        with faults_end_it():
            try:
                _check(report, choice, dialect_name)
            except BrokenPipeError:
                raise
            except EXPECTED as error:
                report.plan = None
                if isinstance(error, PlacementError):
                    report.faults = list(error.diagnostics)
                else:
                    report.error = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                if form == "text":
                    show_error(error)
            if form == "text" and report.plan is not None:
                _print(report, report.plan)
        reports.append(report)
    found = [one for report in reports for one in report.found()]
    if form == "json":
        click.echo(json.dumps([report.plain() for report in reports], indent=2))
    elif form == "sarif":
        click.echo(json.dumps(sarif(found), indent=2))
    elif form == "github":
        for one in found:
            click.echo(github(one))
    return any(report.plan is None for report in reports)


def _check(report: _Report, choice: InventoryChoice, dialect_name: str | None) -> None:
    config, dialect, inventory, assumed = loaded(report.file, choice, dialect_name)
    report.warnings = list(config.warnings)
    plan = report.plan = dialect.plan(config, inventory)
    reject_crossings(plan, config, labelled=not assumed and choice.nodes is None)
    senders = list(sender_faults(plan, config))
    if faults := [found for found in senders if not found.warning]:
        raise PlacementError(faults)
    report.warnings += [*empty_warnings(plan, config), *senders, *group_warnings(plan, config)]
    if not assumed:
        report.warnings += idle_warnings(plan, inventory, report.file)


def _print(report: _Report, plan: Plan) -> None:
    counts = (
        counted(len(plan), "component"),
        counted(sum(len(rows) for rows in plan.values()), "process", "processes"),
        counted(plan.inventory.num_nodes, "node"),
    )
    mode = "" if plan.mode is None else f", mode {plan.mode.name}"
    click.echo(f"{report.file}: fine, {counts[0]}, {counts[1]} on {counts[2]}{mode}")
    for line in group_lines(plan):
        click.echo(line)
    for warning in report.warnings:
        click.echo(warning.render(colored(stdout)))


def empty_warnings(plan: Plan, reader: Reader) -> Iterator[Diagnostic]:
    """Yield a warning if nothing is placed; it names the system that the config looks written for."""
    if plan:
        return
    config: Any = reader.content if reader.config is None else reader.config
    cluster = config.get("cluster")
    keys = {**config, **(cluster if isinstance(cluster, Mapping) else {})}
    name = next((name for key, name in _TELLTALES.items() if key in keys), None)
    help = "add components: `component_placement: {actor: 0-7}`"
    if "defaults" in config:
        help = "pass the config that Hydra has composed: `defaults` are not read"
    if name is not None:
        help = f"this looks like a config of {name}; pass --dialect {name}"
    found = Diagnostic("no-components", "the config places no component", help, warning=True)
    yield reader.located(("cluster",) if "cluster" in config else (), found)


def sender_faults(plan: Plan, reader: Reader) -> Iterator[Diagnostic]:
    """Yield faults about weights without a sender, at the tensor size of the receiver.

    They are warnings unless the config has a mode of RLinf, which sends weights slot by slot: other trainers may gather
    whole tensors first.
    """
    for name, found in senderless(plan):
        if plan.mode in (None, PlacementMode.HYBRID):
            help = f"{found.help}; a trainer that gathers whole tensors can ignore this warning"
            found = replace(found, help=help, warning=True)
        yield reader.located(_tensor_size(reader, reader.size_paths.get(name, ())), found)


def _tensor_size(reader: Reader, path: KeyPath) -> KeyPath:
    """Return the path of the tensor size in the sizes at a path of the config, or that path."""
    here: Any = reader.content if reader.config is None else reader.config
    for part in path:
        here = here.get(part) if isinstance(here, Mapping) else None
    keys = [key for key in _TENSOR_SIZES if isinstance(here, Mapping) and key in here]
    return (*path, *keys[:1])


def group_warnings(plan: Plan, reader: Reader) -> Iterator[Diagnostic]:
    """Yield warnings about parallel groups, at the sizes of their components."""
    for name, component in plan.items():
        for warning in component.parallel_warnings():
            yield reader.located(reader.size_paths.get(name, ()), warning)


def idle_warnings(plan: Plan, inventory: Inventory, file: str) -> Iterator[Diagnostic]:
    """Yield warnings about unused nodes and accelerators."""
    if inventory.num_nodes > plan.inventory.num_nodes:
        message = f"num_nodes is {plan.inventory.num_nodes}, but the inventory has {inventory.num_nodes} nodes"
        help = f"set num_nodes to {inventory.num_nodes} to use all nodes"
        yield Diagnostic("idle-nodes", message, help, file=file, warning=True)
    if idle := plan.idle():
        usable = plan.inventory.core.accelerators() - plan.inventory.excluded_accelerators
        unused, total = sum(map(len, idle.values())), len(usable)
        message = f"no component uses {unused} of {total} accelerators: {by_nodes(idle)}"
        help = "place a component on them, or ignore this warning"
        yield Diagnostic("idle-accelerators", message, help, file=file, warning=True)

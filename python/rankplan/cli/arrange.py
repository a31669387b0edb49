"""``rankplan arrange``: node ranks for the nodes, by the network."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click

from rankplan.arranging.arrange import arrange as arranged
from rankplan.arranging.arrange import arranged_plan
from rankplan.arranging.rules import beside as beside_others
from rankplan.arranging.task import Arrangement
from rankplan.cli.common import (
    Choice,
    beside_option,
    config_options,
    others_beside,
    output_option,
    read,
    restore_option,
    save_option,
)
from rankplan.cli.output import faults_end_it, print_table
from rankplan.front.job import Config, opened, saved_plan
from rankplan.plans.plan import Plan
from rankplan.plans.rules import Segments
from rankplan.read.facts import with_stated
from rankplan.render.changes import arrangement_line, crossings_table, node_lines


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@config_options
@click.option(
    "--segment",
    multiple=True,
    metavar="[COMPONENT=]N",
    help="Keep every N nodes of the plan, or of a component, in one innermost domain, or in one domain of each level "
    "(actor=block:16,nvlink:8); repeatable.",
)
@click.option(
    "--keep",
    multiple=True,
    metavar="COMPONENT.KIND=LEVEL",
    help="Keep these groups within a domain of a level, e.g. actor.ep=nvlink, all of a component (actor.world=block), "
    "or in two domains with equal shares (actor.ep=nvlink:2); repeatable.",
)
@click.option(
    "--prefer",
    multiple=True,
    metavar="COMPONENT.KIND=LEVEL",
    help="Like --keep, but refuse nothing, e.g. actor.world=nvlink; repeatable.",
)
@click.option(
    "--balance",
    multiple=True,
    metavar="[COMPONENT=]LEVEL",
    help="Divide nodes as evenly as possible among the domains of a level in use, e.g. actor=nvlink; repeatable.",
)
@click.option(
    "--cap",
    multiple=True,
    metavar="LEVEL=N",
    help="Use at most N nodes of each domain of a level, e.g. nvlink=16; repeatable.",
)
@restore_option
@beside_option
@output_option("Write the nodes to this inventory file.")
@save_option
def arrange(
    file: str,
    choice: Choice,
    segment: tuple[str, ...],
    keep: tuple[str, ...],
    prefer: tuple[str, ...],
    balance: tuple[str, ...],
    cap: tuple[str, ...],
    restore: tuple[str, ...],
    beside: tuple[str, ...],
    output: str | None,
    save: str | None,
) -> None:
    """Order nodes so that few parallel groups cross a domain.

    Ranks the nodes so that as few groups as possible cross a domain of the network; outer levels come first.

    FILE is a config or a saved plan; the inventory may have more nodes than it needs. The other nodes come last, as
    spares, and stay in whole domains if possible. The levels of the network are labels of the nodes. --segment, --keep,
    --prefer, --balance and --cap replace those of cluster.topology.

    Prints the groups that cross domains before and after. Without -o and --save, prints the nodes in their
    new order.
    """
    stated: dict[str, Any] = {
        "keep": kept_levels(keep),
        "segment": segment_sizes(segment),
        "prefer": _levels(prefer, "--prefer", "actor.world=nvlink") or None,
        "balance": balanced_levels(balance),
        "cap": caps(cap),
    }
    with faults_end_it():
        config = opened(file)
        found = _arranged(config, choice, {key: value for key, value in stated.items() if value}, restore, beside)
        arrangement = found.arrangement
        if (crossings := crossings_table(arrangement)) is not None:
            print_table(crossings)
        else:
            click.echo("no group crosses a domain, before or after")
        click.echo(arrangement_line(arrangement))
        if output is not None:
            arrangement.save(output)
        if save is not None:
            found.plan().save(save)
        if output is None and save is None:
            click.echo("\n".join(node_lines(arrangement)))


class _Arranged(NamedTuple):
    """An arrangement, and what makes the plan on it."""

    arrangement: Arrangement
    plan: Callable[[], Plan]


def _arranged(
    config: Config, choice: Choice, stated: Mapping[str, Any], restore: Sequence[str], beside: Sequence[str]
) -> _Arranged:
    """Return the arrangement of the nodes of a config, a job file or a saved plan, with these rules of options."""
    others = others_beside(config, beside)
    saved = saved_plan(config)
    if saved is not None:
        inventory = replace(choice, without=()).among(saved.inventory)
        inventory.without(choice.without)  # checks the names
        inventory = inventory.excluding(choice.without)
        arrangement = arranged(saved, inventory, **stated, restore=restore, beside=others)
        plan = saved.placed(saved.inventory, saved.values(), with_stated(saved.rules, stated))
        return _Arranged(arrangement, lambda: arranged_plan(plan, arrangement, restore))
    job = replace(read(config, choice), options=stated)
    job.announce()
    if job.is_arranged and not restore:
        job = replace(job, inventory=beside_others(job.inventory, others))
        found = job.arranged()
        if found.arrangement is not None:
            return _Arranged(found.arrangement, lambda: job.planned().plan)
    arrangement = arranged(job.unchecked_plan(), job.inventory, **stated, restore=restore, beside=others)
    again = replace(job, inventory=arrangement.inventory)
    return _Arranged(arrangement, lambda: again.planned().plan)


_SIZE = "0*[1-9][0-9]{0,8}"
_BY_LEVEL = re.compile(f"([^:,]+):({_SIZE})")


def segment_sizes(texts: Sequence[str]) -> Segments | None:
    """Return the size of segments, or sizes by component, from texts such as ``policy=4`` or ``a=block:8,nvlink:4``."""
    sizes: dict[str, int | dict[str, int]] = {}
    for text in texts:
        component, equals, size = text.rpartition("=")
        if component and (by_level := _by_level(size)):
            sizes[component] = by_level
            continue
        if (equals and not component) or re.fullmatch(_SIZE, size) is None:
            help = "write 4, policy=4 or policy=block:8,nvlink:4"
            raise click.BadParameter(f"{text!r} is not [COMPONENT=]N; {help}", param_hint="--segment")
        sizes[component] = int(size)
    if "" in sizes and len(texts) > 1:
        help = "state one size for all nodes, or a size for each component"
        raise click.BadParameter(f"{' and '.join(texts)} conflict; {help}", param_hint="--segment")
    plain = sizes.get("")
    return plain if isinstance(plain, int) else sizes or None


def kept_levels(texts: Sequence[str]) -> dict[str, dict[str, str | dict[str, int]]] | None:
    """Return levels by component and kind from texts such as ``actor.ep=nvlink`` or ``actor.ep=block:1,nvlink:2``."""
    stated = _levels(texts, "--keep", "actor.ep=nvlink, or actor.ep=nvlink:2 for two domains")
    return {
        component: {kind: _by_level(level) or level for kind, level in kinds.items()}
        for component, kinds in stated.items()
    } or None


def balanced_levels(texts: Sequence[str]) -> str | dict[str, str] | None:
    """Return a level, or levels by component, from texts such as ``nvlink`` and ``actor=nvlink``."""
    balanced = {component: level for component, _, level in (text.rpartition("=") for text in texts)}
    if len(balanced) < len(texts) or ("" in balanced and len(texts) > 1):
        help = "state one level for all nodes, or a level for each component"
        raise click.BadParameter(f"{' and '.join(texts)} conflict; {help}", param_hint="--balance")
    return balanced.get("", balanced or None)


def caps(texts: Sequence[str]) -> dict[str, int] | None:
    """Return numbers of nodes by level from texts such as ``nvlink=16``."""
    found: dict[str, int] = {}
    for text in texts:
        level, _, most = text.rpartition("=")
        if not level or re.fullmatch(_SIZE, most) is None:
            message = f"{text!r} is not LEVEL=N with N of 1 or more; write nvlink=16"
            raise click.BadParameter(message, param_hint="--cap")
        found[level] = int(most)
    return found or None


def _by_level(text: str) -> dict[str, int] | None:
    """Return the numbers of a text such as ``block:8,nvlink:4``; ``None`` for any other."""
    parts = [_BY_LEVEL.fullmatch(part.strip()) for part in text.split(",")]
    return {part[1]: int(part[2]) for part in parts if part is not None} if all(parts) else None


def _levels(texts: Sequence[str], option: str, example: str) -> dict[str, dict[str, str]]:
    """Return levels by component and kind from texts such as ``actor.ep=nvlink``; other texts are wrong usage."""
    levels: dict[str, dict[str, str]] = {}
    for text in texts:
        group, _, level = text.partition("=")
        component, _, kind = group.rpartition(".")
        if not (component and kind and level):
            raise click.BadParameter(f"{text!r} is not COMPONENT.KIND=LEVEL; write {example}", param_hint=option)
        levels.setdefault(component, {})[kind] = level
    return levels

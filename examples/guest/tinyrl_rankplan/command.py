"""`rankplan tinyrl-nodes`: the nodes of each component."""

from __future__ import annotations

import click
import rankplan


@click.command()
@click.argument("file")
@click.option("--nodes", metavar="NxM")
def nodes(file: str, nodes: str | None) -> None:
    """Print the nodes of each component of a config."""
    plan = rankplan.plan(file, nodes)
    for name, component in plan.items():
        used = sorted({row.cluster_node_rank for row in component})
        click.echo(f"{name}: {', '.join(map(str, used))}")

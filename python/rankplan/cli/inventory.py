"""``rankplan inventory``: the nodes, with the levels and the domains of the network."""

from __future__ import annotations

from pathlib import Path

import click

from rankplan.cli.common import Choice, faults_end_it, note, without_option
from rankplan.errors import PlacementError
from rankplan.nodes.entries import label_keys, unlabelled
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.topology.files import Labels, read_kueue, read_slurm
from rankplan.render.inventory import hardware_lines, tree_lines
from rankplan.words import counted, natural

_ASSUMED = 8


@click.command()
@click.option("--inventory", "file", metavar="FILE", type=click.Path(), help="Read the nodes of this inventory file.")
@click.option("--ray", metavar="ADDRESS", help="Probe the nodes of this Ray cluster (auto finds it).")
@click.option("--slurm", metavar="FILE", type=click.Path(), help="Add labels from Slurm's topology.conf or .yaml.")
@click.option(
    "--topology", metavar="NAME", help="Read this topology of Slurm's topology.yaml (default: that of the cluster)."
)
@click.option("--kueue", metavar="FILE", type=click.Path(), help="Use the levels of this Topology object of Kueue.")
@click.option(
    "--accelerators",
    metavar="N",
    type=click.IntRange(0),
    help=f"Accelerators of each node, if only Slurm's file lists the nodes (default: {_ASSUMED}).",
)
@without_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Save the inventory to this file."
)
def inventory(
    file: str | None,
    ray: str | None,
    slurm: str | None,
    topology: str | None,
    kueue: str | None,
    accelerators: int | None,
    without: tuple[str, ...],
    output: Path | None,
) -> None:
    """Show the nodes as a tree, with their network and hardware.

    Levels are keys of node labels, outermost first: those of the inventory file or of Kueue, or else those that
    Topograph, the GPU operator, NVML, NeMo-RL, Slurm and Kubernetes are known to write.
    """
    if file is not None and ray is not None:
        raise click.UsageError("use only one of --inventory and --ray")
    if file is None and ray is None and slurm is None:
        raise click.UsageError("name the nodes with --inventory, --ray or --slurm")
    if accelerators is not None and (file is not None or ray is not None):
        raise click.UsageError("use --accelerators only if --slurm alone lists the nodes")
    if topology is not None and slurm is None:
        raise click.UsageError("--topology chooses a topology of --slurm")
    with faults_end_it():
        labels = {} if slurm is None else read_slurm(slurm, topology)
        found = _nodes(file, ray, labels, accelerators)
        if slurm is not None:
            found, unknown = found.with_labels(labels)
            if unknown:
                told = f"{counted(len(unknown), 'node')} ({unknown})"
                note(f"{slurm} does not list {told}; each is a domain of its own", "yellow")
        if kueue is not None:
            levels = read_kueue(kueue)
            keys = label_keys(record for _, record in found.stretches())
            if faults := [fault for _, fault in unlabelled(levels, keys)]:
                raise PlacementError(faults)
            found = found.with_levels(levels)
        if without:
            found = found.without(without)
        click.echo("\n".join([*tree_lines(found), *hardware_lines(found)]))
        if output is not None:
            found.save(output)


def _nodes(file: str | None, ray: str | None, labels: Labels, accelerators: int | None) -> Inventory:
    """Return the nodes of a file, of a Ray cluster, or those that Slurm's file lists, in natural order."""
    if file is not None or ray is not None:
        return Choice(file, ray=ray).inventory
    if accelerators is None:
        note(f"assuming {counted(_ASSUMED, 'accelerator')} on each node; set another number with --accelerators")
    each = _ASSUMED if accelerators is None else accelerators
    hosts = enumerate(sorted(labels, key=natural))
    return Inventory.from_dict(
        {"nodes": [{"ranks": rank, "hostname": name, "accelerators": each} for rank, name in hosts]}
    )

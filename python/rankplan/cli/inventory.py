"""``rankplan inventory``: the nodes, with the levels and the domains of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from rankplan.cli.common import Choice, nodes_option, output_option, without_option
from rankplan.cli.output import faults_end_it, note
from rankplan.errors import PlacementError
from rankplan.files import read_text
from rankplan.front.job import inventory_from
from rankplan.nodes.inventory import Inventory
from rankplan.read.inventories.kubernetes_nodes import read_kubernetes_nodes
from rankplan.read.inventories.shown_nodes import ShownNode
from rankplan.read.inventories.slurm_nodes import read_slurm_nodes, shows_nodes
from rankplan.read.inventories.topology_files import Labels, read_kueue, read_slurm
from rankplan.render.inventory import hardware_lines, tree_lines
from rankplan.words import counted, natural

_ASSUMED = 8
_MOST_LISTED = 8


@click.command()
@nodes_option("Read these nodes: an inventory file, or N nodes with M accelerators each, e.g. 2x8.")
@click.option("--ray", metavar="ADDRESS", help="Probe the nodes of this Ray cluster (auto finds it).")
@click.option(
    "--slurm",
    metavar="FILE",
    multiple=True,
    type=click.Path(),
    help="Read Slurm's nodes (`scontrol show node`, also with --json), or add labels from its topology.conf, "
    "topology.yaml or `scontrol show topology`; repeatable.",
)
@click.option(
    "--topology", metavar="NAME", help="Read this topology of Slurm's topology.yaml (default: that of the cluster)."
)
@click.option(
    "--kubernetes",
    metavar="FILE",
    type=click.Path(),
    help="Read the nodes of `kubectl get nodes -o json`, or `kubectl get nodes,pods -A -o json`.",
)
@click.option("--kueue", metavar="FILE", type=click.Path(), help="Use the levels of this Topology object of Kueue.")
@click.option("--levels", metavar="KEYS", help="Use these keys of node labels as levels, outermost first: block,rack.")
@click.option(
    "--accelerators",
    metavar="N",
    type=click.IntRange(0),
    help=f"Accelerators of each node, if only Slurm's topology lists the nodes (default: {_ASSUMED}).",
)
@click.option("--ignore-jobs", is_flag=True, help="Count what jobs have on the nodes now as free.")
@without_option
@output_option("Save the inventory to this file.")
def inventory(
    nodes: str | None,
    ray: str | None,
    slurm: tuple[str, ...],
    topology: str | None,
    kubernetes: str | None,
    kueue: str | None,
    levels: str | None,
    accelerators: int | None,
    without: tuple[str, ...],
    output: str | None,
    *,
    ignore_jobs: bool,
) -> None:
    """Show the nodes as a tree, with their network and hardware.

    Levels are keys of node labels, outermost first: those of --levels, of the inventory file or of Kueue, or else the
    labels that Topograph, the GPU operator, NVML, NeMo-RL, Slurm and Kubernetes write.
    """
    if kueue is not None and levels is not None:
        raise click.UsageError("use only one of --kueue and --levels")
    if topology is not None and not slurm:
        raise click.UsageError("--topology chooses a topology of --slurm")
    with faults_end_it():
        chosen = None if levels is None else tuple(key.strip() for key in levels.split(","))
        chosen = chosen if kueue is None else read_kueue(kueue)
        texts = {one: read_text(one) for one in slurm}  # a pipe can be read only once
        records = [one for one, text in texts.items() if shows_nodes(text)]
        networks = {one: read_slurm(one, topology, text=text) for one, text in texts.items() if one not in records}
        sources = {"--nodes": nodes, "--ray": ray, "--kubernetes": kubernetes} | dict.fromkeys(records, "")
        stated = [name for name, given in sources.items() if given is not None]
        _check_sources(stated, lists_nodes=bool(stated or networks), accelerators=accelerators)
        if ignore_jobs and kubernetes is None and not records:
            raise click.UsageError("use --ignore-jobs with the nodes that Slurm or Kubernetes shows")
        if kubernetes is not None:
            found = _ranked(read_kubernetes_nodes(kubernetes, chosen or (), ignore_jobs=ignore_jobs))
        elif records:
            shown = read_slurm_nodes(records[0], text=texts[records[0]], ignore_jobs=ignore_jobs)
            found, networks = _of_slurm(shown, networks)
        else:
            found = _nodes(nodes, ray, networks, accelerators)
        found = _with_levels(_with_networks(found, networks), chosen)
        if without:
            found = found.without(without)
        click.echo("\n".join([*tree_lines(found), *hardware_lines(found)]))
        if output is not None:
            found.save(output)


def _check_sources(stated: Sequence[str], *, lists_nodes: bool, accelerators: int | None) -> None:
    """Raise ``click.UsageError`` unless exactly one source lists the nodes."""
    if len(stated) > 1:
        raise click.UsageError(f"use only one of {' and '.join(stated)}: each lists the nodes")
    if not lists_nodes:
        raise click.UsageError("name the nodes with --nodes, --ray, --slurm or --kubernetes")
    if accelerators is not None and stated:
        raise click.UsageError("use --accelerators only if Slurm's topology alone lists the nodes")


def _with_networks(nodes: Inventory, networks: Mapping[str, Labels]) -> Inventory:
    """Return nodes with the labels of each network; say which nodes a network lacks."""
    for name, labels in networks.items():
        nodes, unknown = nodes.with_labels(labels)
        if unknown:
            unlisted = f"{counted(len(unknown), 'node')} ({unknown})"
            note(f"{name} does not list {unlisted}; each is a domain of its own", "yellow")
    return nodes


def _with_levels(nodes: Inventory, levels: tuple[str, ...] | None) -> Inventory:
    """Return nodes with these levels, if any are chosen. Raises `PlacementError` for nodes without their labels."""
    if levels is None:
        return nodes
    if faults := [fault for _, fault in nodes.core.unlabelled(levels)]:
        raise PlacementError(faults)
    return nodes.with_levels(levels)


def _of_slurm(nodes: Sequence[ShownNode], networks: Mapping[str, Labels]) -> tuple[Inventory, dict[str, Labels]]:
    """Return the inventory of nodes that Slurm shows, and the labels by their hostnames instead of Slurm's names."""
    hosts = {node.name: str(node.entry["hostname"]) for node in nodes}
    return _ranked(nodes), {
        network: {hosts.get(name, name): known for name, known in labels.items()}
        for network, labels in networks.items()
    }


def _ranked(nodes: Sequence[ShownNode]) -> Inventory:
    """Return the inventory of nodes in their order; say which are not healthy, and why, and what jobs have of them."""
    problems = [f"{node.name} ({node.problem})" for node in nodes if node.problem is not None]
    if problems:
        note(f"{counted(len(problems), 'node')} not healthy: {_some(problems)}", "yellow")
    taken = [node.name for node in nodes if "taken" in node.entry]
    if taken:
        note(f"{counted(len(taken), 'node')} in use by jobs: {_some(taken)}", "yellow")
    partly = [f"{node.name} ({node.in_use})" for node in nodes if node.in_use and "taken" not in node.entry]
    if partly:
        note(f"{counted(len(partly), 'node')} partly in use by jobs: {_some(partly)}", "yellow")
    return Inventory.from_dict({"nodes": [{"ranks": rank, **node.entry} for rank, node in enumerate(nodes)]})


def _some(texts: Sequence[str]) -> str:
    more = ["..."] if len(texts) > _MOST_LISTED else []
    return ", ".join([*texts[:_MOST_LISTED], *more])


def _nodes(nodes: str | None, ray: str | None, networks: Mapping[str, Labels], accelerators: int | None) -> Inventory:
    """Return the nodes of a file or a size, of a Ray cluster, or those that Slurm's file lists, in natural order."""
    if nodes is not None:
        return inventory_from(nodes)
    if ray is not None:
        return Choice(ray=ray).inventory
    if accelerators is None:
        note(f"assuming {counted(_ASSUMED, 'accelerator')} on each node; set another number with --accelerators")
    each = _ASSUMED if accelerators is None else accelerators
    hosts = enumerate(sorted({name for labels in networks.values() for name in labels}, key=natural))
    return Inventory.from_dict(
        {"nodes": [{"ranks": rank, "hostname": name, "accelerators": each} for rank, name in hosts]}
    )

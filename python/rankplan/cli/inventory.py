"""``rankplan inventory``: the nodes, with the levels and the domains of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
        keys = _level_keys(levels, kueue)
        files = _read_slurm_files(slurm, topology)
        _check_sources(
            {"--nodes": nodes, "--ray": ray, "--kubernetes": kubernetes}, files, accelerators, ignore_jobs=ignore_jobs
        )
        networks = files.networks
        if kubernetes is not None:
            result = _ranked(read_kubernetes_nodes(kubernetes, keys or (), ignore_jobs=ignore_jobs))
        elif files.shown:
            [(file, text)] = files.shown.items()
            shown = read_slurm_nodes(file, text=text, ignore_jobs=ignore_jobs)
            networks = _by_hostnames(networks, shown)
            result = _ranked(shown)
        elif nodes is not None:
            result = inventory_from(nodes)
        elif ray is not None:
            result = Choice(ray=ray).inventory
        else:
            result = _nodes_of_networks(networks, accelerators)
        result = _with_levels(_with_networks(result, networks), keys)
        if without:
            result = result.without(without)
        click.echo("\n".join([*tree_lines(result), *hardware_lines(result)]))
        if output is not None:
            result.save(output)


def _level_keys(levels: str | None, kueue: str | None) -> tuple[str, ...] | None:
    """Return the keys of the levels that the options state; ``None`` if they state none."""
    if kueue is not None:
        return read_kueue(kueue)
    return None if levels is None else tuple(key.strip() for key in levels.split(","))


class _SlurmFiles(NamedTuple):
    """The files of ``--slurm``: the texts of those that show nodes, and the labels that the others give to nodes."""

    shown: Mapping[str, str]
    networks: Mapping[str, Labels]


def _read_slurm_files(files: Sequence[str], topology: str | None) -> _SlurmFiles:
    texts = {file: read_text(file) for file in files}  # a pipe can be read only once
    shown = {file: text for file, text in texts.items() if shows_nodes(text)}
    networks = {file: read_slurm(file, topology, text=text) for file, text in texts.items() if file not in shown}
    return _SlurmFiles(shown, networks)


def _check_sources(
    options: Mapping[str, str | None], files: _SlurmFiles, accelerators: int | None, *, ignore_jobs: bool
) -> None:
    """Raise ``click.UsageError`` unless exactly one source lists the nodes, and it takes the other options.

    A network lists the nodes only if nothing else does.
    """
    sources = [*(name for name, value in options.items() if value is not None), *files.shown]
    if len(sources) > 1:
        raise click.UsageError(f"use only one of {' and '.join(sources)}: each lists the nodes")
    if not sources and not files.networks:
        raise click.UsageError("name the nodes with --nodes, --ray, --slurm or --kubernetes")
    if accelerators is not None and sources:
        raise click.UsageError("use --accelerators only if Slurm's topology alone lists the nodes")
    if ignore_jobs and options["--kubernetes"] is None and not files.shown:
        raise click.UsageError("use --ignore-jobs with the nodes that Slurm or Kubernetes shows")


def _with_networks(nodes: Inventory, networks: Mapping[str, Labels]) -> Inventory:
    """Return nodes with the labels of each network; say which nodes a network lacks."""
    for name, labels in networks.items():
        nodes, unknown = nodes.with_labels(labels)
        if unknown:
            unlisted = f"{counted(len(unknown), 'node')} ({unknown})"
            note(f"{name} does not list {unlisted}; each is a domain of its own", "yellow")
    return nodes


def _with_levels(nodes: Inventory, levels: tuple[str, ...] | None) -> Inventory:
    """Return nodes with these levels, if any are stated. Raises `PlacementError` for nodes without their labels."""
    if levels is None:
        return nodes
    faults = [fault for _, fault in nodes.core.unlabelled(levels)]
    if faults:
        raise PlacementError(faults)
    return nodes.with_levels(levels)


def _by_hostnames(networks: Mapping[str, Labels], nodes: Sequence[ShownNode]) -> dict[str, Labels]:
    """Return the labels of each network by the hostnames of nodes, instead of the names that Slurm has for them."""
    hosts = {node.name: str(node.entry["hostname"]) for node in nodes}
    renamed: dict[str, Labels] = {}
    for network, labels in networks.items():
        renamed[network] = {hosts.get(name, name): values for name, values in labels.items()}
    return renamed


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
    some = list(texts[:_MOST_LISTED])
    if len(texts) > _MOST_LISTED:
        some.append("...")
    return ", ".join(some)


def _nodes_of_networks(networks: Mapping[str, Labels], accelerators: int | None) -> Inventory:
    """Return the nodes that Slurm's networks name, in natural order."""
    if accelerators is None:
        note(f"assuming {counted(_ASSUMED, 'accelerator')} on each node; set another number with --accelerators")
        accelerators = _ASSUMED
    names = {name for labels in networks.values() for name in labels}
    entries = [
        {"ranks": rank, "hostname": name, "accelerators": accelerators}
        for rank, name in enumerate(sorted(names, key=natural))
    ]
    return Inventory.from_dict({"nodes": entries})

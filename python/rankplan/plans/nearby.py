"""The devices of a process in the inventory: their uuids, and the network cards near them."""

from __future__ import annotations

from rankplan._core import Placement
from rankplan.hardware.pci import card_variables
from rankplan.nodes.node import AcceleratorFacts
from rankplan.plans.component import Component


def own_devices(component: Component, row: Placement) -> list[AcceleratorFacts]:
    """Return the facts of the accelerators of a process on its own node; empty if nothing is known of any."""
    devices = component.inventory.node(row.cluster_node_rank).devices
    if not devices or not row.num_accelerators:
        return []
    return [devices[index] for node, index in row.devices if node == row.cluster_node_rank]


def first_accelerator(component: Component, row: Placement) -> tuple[int | None, str | None]:
    """Return the number of a process's first accelerator on its node, and its PCI address, as far as known."""
    name = component.inventory.node(row.cluster_node_rank).accelerator_ids[row.local_accelerator_rank]
    own = own_devices(component, row)
    return int(name) if name.isascii() and name.isdigit() else None, own[0].pci if own else None


def visible_uuids(component: Component, row: Placement) -> tuple[str, ...]:
    """Return the uuids of the accelerators that a process sees, in order; empty if one of them is unknown."""
    spec = component.inventory.node(row.cluster_node_rank)
    known = {name: facts.uuid for name, facts in zip(spec.accelerator_ids, spec.devices, strict=False)}
    uuids = [known.get(name) for name in row.visible_accelerators]
    found = tuple(uuid for uuid in uuids if uuid is not None)
    return found if len(found) == len(uuids) else ()


def near_cards(component: Component, row: Placement) -> tuple[str, ...]:
    """Return the network cards nearest to the accelerators of a process, each once."""
    names = [device.nic for device in own_devices(component, row)]
    return tuple(dict.fromkeys(name for name in names if name is not None))


def network_variables(component: Component, row: Placement) -> dict[str, str]:
    """Return the variables that make a process use the cards near it, if each accelerator has a card of its own.

    Empty with ``nics: check``.
    """
    names = [device.nic for device in component.inventory.node(row.cluster_node_rank).devices]
    if component.nics != "set" or None in names or len(set(names)) < len(names):
        return {}
    cards = near_cards(component, row)
    return card_variables(cards) if cards else {}

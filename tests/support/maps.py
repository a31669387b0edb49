"""The places of processes: in the rows of a plan, in pictures and in pages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rankplan import ComponentPlacement, Inventory, Plan, RankSet

Place = tuple[str, int, int, str, int]
"""Component, rank, node, kind of resource and its local index (0 for a process by node)."""


def plan_of(placements: dict[str, Any], inventory: Inventory, **cluster: Any) -> Plan:
    section = {"num_nodes": inventory.num_nodes, "component_placement": placements, **cluster}
    return ComponentPlacement({"cluster": section}, inventory).plan()


def places_of_rows(plan: Plan) -> Counter[Place]:
    places: Counter[Place] = Counter()
    for component, rows in plan.items():
        for row in rows:
            for node, index in row.devices or [(row.cluster_node_rank, 0)]:
                places[component, row.rank, node, row.resource_type, index] += 1
    return places


def places_of_bands(bands: Iterable[dict[str, str]]) -> Counter[Place]:
    return Counter(
        (band["data-component"], rank, int(band["data-node"]), band["data-resource"], index)
        for band in bands
        for rank in RankSet(band["data-ranks"])
        for index in RankSet(band["data-cells"])
    )


def bands_of_svg(text: str) -> list[dict[str, str]]:
    bands = [element for element in ElementTree.fromstring(text).iter() if element.get("class") == "band"]
    return [{**band.attrib, "tip": band[0].text or ""} for band in bands]


class Page(HTMLParser):
    """The elements of a page: name, attributes, and direct text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attributes}, []))

    def handle_data(self, data: str) -> None:
        if self.elements:
            self.elements[-1][2].append(data)

    def of_class(self, name: str) -> list[dict[str, str]]:
        return [attributes for _, attributes, _ in self.elements if name in attributes.get("class", "").split()]


def rankplan(folder: Path, *arguments: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": str(columns)}
    command = [sys.executable, "-m", "rankplan", *arguments]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, env=environment)

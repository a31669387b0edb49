"""The map of parallel groups: every band has the groups of its slots."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from rankplan import Inventory, Plan, RankSet
from rankplan.render.map.model import map_of
from rankplan.render.map.page import page
from rankplan.render.map.svg import svg
from rankplan.render.map.terminal import lines
from support.maps import Page, bands_of_svg, places_of_bands, places_of_rows, plan_of, rankplan


def grouped() -> Plan:
    actor = {"placement": "0-7", "parallel": {"tp": 2, "pp": 2}}
    rollout = {"placement": "8-15:0-1", "parallel": {"tp": 2, "pp": 2, "order": "tp-cp-ep-pp-dp"}}
    return plan_of({"actor": actor, "rollout": rollout, "reward": "8-9"}, Inventory.uniform(2, 8))


@pytest.mark.parametrize("kind", ["tp", "pp", "dp"])
def test_bands_have_the_groups_of_their_slots(kind: str) -> None:
    plan = grouped()
    rows = places_of_rows(plan)
    wanted = {}
    for name in ("actor", "rollout"):
        slots = [device for row in plan[name] for device in row.devices]
        for index, group in enumerate(plan[name].groups(kind)):
            wanted |= {(name, *slots[slot]): index for slot in group}
    for bands in (bands_of_svg(svg(plan, "", kind)), Page(page(plan, "", kind)).of_class("band")):
        assert places_of_bands(bands) == rows
        found = {
            (band["data-component"], int(band["data-node"]), cell): RankSet(band["data-groups"])
            for band in bands
            if "data-groups" in band
            for cell in RankSet(band["data-cells"])
        }
        assert found == {place: RankSet([index]) for place, index in wanted.items()}


def test_processes_in_several_groups_on_one_accelerator_list_them() -> None:
    plan = plan_of({"actor": {"placement": "0-1:0-3", "parallel": {"tp": 2}}}, Inventory.uniform(1, 2))
    assert [band["data-groups"] for band in bands_of_svg(svg(plan, "", "dp"))] == ["0-1", "0-1"]


def test_a_group_has_one_color_and_grey_means_none() -> None:
    colors: dict[str, set[str | None]] = {}
    for element in ElementTree.fromstring(svg(grouped(), "", "tp")).iter():
        if element.get("class") == "band":
            groups = element.get("data-groups") or "none"
            colors.setdefault(groups, set()).add(element[1].get("fill"))
    assert colors.pop("none") == {"#dddddd"}
    assert set(colors) == {"0", "1", "2", "3"}
    assert len({color for found in colors.values() for color in found}) == 4


def test_the_terminal_shows_the_numbers_of_groups() -> None:
    shown = [line.plain for line in lines(map_of(grouped(), "pp"), 80)]
    assert (
        shown[0]
        == "2 nodes, 16 accelerators, 12 processes; numbers are pp groups, or ranks (grey) of components without"
    )
    assert shown[1] == "actor 8 in 4 pp groups   rollout 2 in 4 pp groups   reward 2"
    assert shown[5].split() == [
        "actor",
        *(word for group in (0, 1, 2, 3, 0, 1, 2, 3) for word in ("[", str(group), "]")),
    ]


def test_a_tooltip_has_the_coordinates() -> None:
    tips = {band["data-component"]: band["tip"].split("\n") for band in bands_of_svg(svg(grouped()))}
    assert tips["actor"][4] == "tp 1, dp 1, pp 1" and tips["rollout"][4] == "tp 0-1, dp 1, pp 0-1"
    shared = plan_of({"actor": {"placement": "0:0-7", "parallel": {"tp": 2}}}, Inventory.uniform(1, 1))
    (band,) = bands_of_svg(svg(shared))
    assert "tp 0, dp 0 | tp 1, dp 0 | tp 0, dp 1 | tp 1, dp 1 | ..." in band["tip"]


def test_show_by_a_kind_of_groups(tmp_path: Path) -> None:
    grouped().save(tmp_path / "plan.json")
    done = rankplan(tmp_path, "show", "plan.json", "--by", "pp")
    assert done.stdout.startswith("\n".join(line.plain for line in lines(map_of(grouped(), "pp"), 80)))
    assert rankplan(tmp_path, "show", "plan.json", "--by", "pp", "-o", "map.svg").returncode == 0
    assert (tmp_path / "map.svg").read_text() == svg(grouped(), "plan.json", "pp")
    for kind, known in (("cp", "use tp or dp or pp"), ("edp", "use tp or dp or pp")):
        done = rankplan(tmp_path, "show", "plan.json", "--by", kind)
        assert done.returncode == 2
        assert f"no component has {kind} groups of two or more slots; {known}" in done.stderr
    plan_of({"actor": "0"}, Inventory.uniform(1, 1)).save(tmp_path / "plan.json")
    assert "no component states parallel sizes" in rankplan(tmp_path, "show", "plan.json", "--by", "dp").stderr

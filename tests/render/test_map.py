"""The map: every format shows each process at the place of its row, and a real browser renders the page."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from hypothesis import given
from rankplan import Inventory, Plan, load_config
from rankplan.dialects import dialect_of
from rankplan.environment import planned_environment
from rankplan.render.lines import sharing_lines
from rankplan.render.map import notebook  # noqa: F401  # plans display themselves
from rankplan.render.map.model import map_of
from rankplan.render.map.page import page
from rankplan.render.map.svg import svg
from rankplan.render.map.terminal import lines
from support.cases import Case, planned, valid_cases
from support.maps import Page, bands_of_svg, places_of_bands, places_of_rows, plan_of, rankplan
from support.paths import DOCS, EXAMPLES

SHOWN = [("quickstart.yaml", "2x8"), ("roll.yaml", "3x8"), ("slime-colocated.yaml", "2x4"), ("mixed/conf.yaml", "")]
HOSTILE = "<script>alert('x')</script>&\"]]>"


def example(name: str, size: str) -> Plan:
    path = EXAMPLES / name
    inventory = Inventory.parse(size) if size else Inventory.load(path.with_name("nodes.yaml"))
    config = load_config(path)
    return dialect_of(config).plan(config, inventory)


def terminal(plan: Plan, width: int = 80) -> list[str]:
    return [line.plain for line in lines(map_of(plan), width)]


# ------------------------------------------------------------------------------------------------ cells are the rows


@given(valid_cases())
def test_every_process_is_drawn_at_the_place_of_its_row(case: Case) -> None:
    plan = planned(case)
    rows = places_of_rows(plan)
    assert places_of_bands(bands_of_svg(svg(plan, "a"))) == rows
    assert places_of_bands(Page(page(plan, "a")).of_class("band")) == rows


@given(valid_cases())
def test_nodes_of_a_kind_are_equal_and_run_the_same_processes(case: Case) -> None:
    plan = planned(case)
    runs: dict[int, list[Any]] = {node: [] for node in range(plan.inventory.num_nodes)}
    for component, rows in plan.items():
        for row in rows:
            seen = component, row.node_group_label, row.resource_type, row.local_hardware_ranks
            runs[row.cluster_node_rank].append(seen)
    seen_nodes = [node for kind in plan.node_kinds for node in kind.nodes]
    assert sorted(seen_nodes) == list(runs)
    patterns = []
    for kind in plan.node_kinds:
        specs = [plan.inventory.node(node) for node in kind.nodes]
        found = [
            (spec.num_accelerators, spec.accelerator_type, spec.accelerator_model, runs[spec.rank]) for spec in specs
        ]
        assert all(pattern == found[0] for pattern in found)
        patterns.append((*found[0], kind.hardware))
        on_all = [row.rank for rows in plan.values() for row in rows if row.cluster_node_rank in kind.nodes]
        held = [rank for ranks in kind.ranks.values() for rank in ranks]
        held += [
            rank
            for stay, first in zip(kind.stays, kind.first_ranks, strict=True)
            for rank in range(first, first + stay.pattern.processes)
        ]
        assert sorted(held) == sorted(on_all)
    assert all(pattern not in patterns[:index] for index, pattern in enumerate(patterns)), "equal nodes are apart"


@given(valid_cases())
def test_oversubscribed_counts_the_processes_of_each_accelerator(case: Case) -> None:
    plan = planned(case)
    users: dict[tuple[int, int], Counter[str]] = {}
    for component, _, node, resource, index in places_of_rows(plan).elements():
        if resource == "accelerator":
            users.setdefault((node, index), Counter())[component] += 1
    found = {
        (node, index): crowd.processes
        for crowd in plan.oversubscribed()
        for node, held in crowd.accelerators.items()
        for index in held
    }
    assert found == {place: dict(counts) for place, counts in users.items() if counts.total() > 1}


@pytest.mark.parametrize(("name", "size"), SHOWN)
def test_examples_are_drawn_whole(name: str, size: str) -> None:
    plan = example(name, size)
    rows = places_of_rows(plan)
    drawn, opened = bands_of_svg(svg(plan, name)), Page(page(plan, name))
    assert places_of_bands(drawn) == places_of_bands(opened.of_class("band")) == rows
    idle = sum(map(len, plan.idle().values()))
    assert len(opened.of_class("idle")) == svg(plan, name).count('class="idle"') == idle
    assert [band["tip"] for band in drawn] == [band["title"] for band in opened.of_class("band")]
    assert all(len(line) <= 80 for line in terminal(plan) if "the same" not in line)


def test_the_picture_in_the_documentation_is_up_to_date() -> None:
    assert (DOCS / "map.svg").read_text() == svg(example("quickstart.yaml", "2x8"), "quickstart.yaml")


def test_a_tooltip_has_the_place_the_devices_and_the_environment() -> None:
    plan = example("mixed/conf.yaml", "")
    (band,) = [
        band for band in bands_of_svg(svg(plan)) if band["data-component"] == "actor" and band["data-ranks"] == "4"
    ]
    environment = [f"{name}={value}" for name, value in planned_environment(plan["actor"][4]).items()]
    assert band["tip"].split("\n") == [
        "actor, rank 4 of 6",
        "node 1",
        "accelerator 0: NV_GPU A800, id 4",
        "node group a800",
        "GLOO_SOCKET_IFNAME=eth0",
        *environment,
        "python /opt/venv/openpi/bin/python3",
    ]
    assert "CUDA_VISIBLE_DEVICES=4" in environment


# --------------------------------------------------------------------------------------------------------- large ones


def large(num_nodes: int) -> Plan:
    node = {"node_group": "node", "placement": "all"}
    last = 8 * num_nodes - 1
    train, rollout = f"0-{last // 2}", f"{last // 2 + 1}-{last - 80}:0-{(last - 80 - last // 2) // 2 - 1}"
    return plan_of({"actor,critic": train, "rollout": rollout, "env": node}, Inventory.uniform(num_nodes, 8))


def test_ten_thousand_nodes_fit_on_one_screen() -> None:
    plan = large(10_000)
    shown = terminal(plan)
    assert len(shown) <= 24
    assert "nodes 1-4999: the same, with actor 8-39999, critic 8-39999, env 1-4999" in shown
    assert "nodes 5001-9989: the same, with rollout 4-19959, env 5001-9989" in shown
    assert "nodes 9991-9999: the same, with env 9991-9999" in shown
    assert len(svg(plan)) < 60_000 and len(page(plan, "large")) < 60_000


def test_sharing_on_very_many_nodes_is_counted() -> None:
    text = ",".join(str(8 * node + node % 7) for node in range(2_000) if node % 3)
    plan = plan_of({"actor": text, "rollout": text}, Inventory.uniform(2_000, 8))
    assert sharing_lines(plan) == [
        "collocated",
        "  actor and rollout share 1,333 on 1,333 nodes, 2 processes per accelerator",
        "idle: 14,667 on 2,000 nodes",
    ]


def test_an_empty_plan_shows_its_nodes() -> None:
    assert terminal(plan_of({}, Inventory.uniform(1, 1)))[:3] == [
        "1 node, 1 accelerator, 0 processes",
        "",
        "node 0  1 x NV_GPU",
    ]


def test_folded_and_shown_nodes_are_all_nodes() -> None:
    plan = large(32)
    shown = {node for _, _, node, _, _ in places_of_bands(bands_of_svg(svg(plan)))}
    assert shown == {0, 16, 22}
    rows = Counter({place: count for place, count in places_of_rows(plan).items() if place[2] in shown})
    assert places_of_bands(bands_of_svg(svg(plan))) == rows


def folded_plan(placements: dict[str, Any]) -> Plan:
    """Return a plan on 40 nodes with names, addresses and domains, of which some are excluded or of another job."""
    entries: list[dict[str, Any]] = []
    for node in range(40):
        labels = {"block": f"b{node // 20}", "leaf": f"l{node // 10}"}
        entries.append(
            {"ranks": node, "accelerators": 8, "hostname": f"h{node}", "ip": f"10.0.0.{node}", "labels": labels}
        )
    entries[36]["taken"] = "eval"
    inventory = Inventory.from_dict({"levels": ["block", "leaf"], "nodes": entries})
    return plan_of(placements, inventory.without(["h7", "h9", "h30/2"]))


def test_spare_and_excluded_nodes_are_never_the_same() -> None:
    plan = folded_plan({"actor": "0-55,64-71,80-191"})
    shown = terminal(plan)
    headings = dict(line.split("  ") for line in shown if re.match(r"node \d+  ", line))
    assert headings == {
        "node 0": "8 x NV_GPU",
        "node 7": "8 x NV_GPU, in b0/l0, excluded",
        "node 24": "8 x NV_GPU, in b1, spare",
        "node 30": "8 x NV_GPU, h30, 10.0.0.30, in b1/l3, excluded: 2",
        "node 36": "8 x NV_GPU, h36, 10.0.0.36, in b1/l3, of eval",
    }
    assert [line for line in shown if "the same" in line] == [
        "nodes 1-6,8,10-23: the same, with actor 8-175",
        "node 9: the same",
        "nodes 25-29,31-35,37-39: the same",
    ]
    assert "leaf l0  ########xx  10 nodes: actor 8, excluded 2" in "\n".join(shown)
    rows = [line.split() for line in shown if line.startswith(("  idle", "  excluded"))]
    assert rows == [
        ["excluded", *"xxxxxxxx"],
        ["idle", *"--------"],
        ["idle", *"-------"],
        ["excluded", "x"],
        ["excluded", *"xxxxxxxx"],
    ]
    assert svg(plan).count(">excluded<") == 8 + 1 + 8 + 2  # and two facts beside nodes


def test_folded_nodes_show_groups_where_boxes_do() -> None:
    plan = folded_plan({"actor": {"placement": "80-191", "parallel": {"tp": 4, "pp": 2}}, "rollout": "192-223"})
    same = [line.plain for line in lines(map_of(plan, "pp"), 80) if "the same" in line.plain]
    assert "nodes 11-23: the same, with actor 0-55" in same and "nodes 25-27: the same, with rollout 8-31" in same
    wide = plan_of({"actor": {"placement": "0-79", "parallel": {"tp": 2}}}, Inventory.uniform(1, 80))
    assert any("and 64-79: actor 32-39" in line.plain for line in lines(map_of(wide, "tp"), 80))


def test_the_exclusion_of_a_config_is_on_the_chart_too() -> None:
    labels = [{"ranks": node, "accelerators": 8, "hostname": f"h{node}", "labels": {"leaf": "a"}} for node in range(4)]
    config = {"cluster": {"num_nodes": 3, "exclude": ["h1"], "component_placement": {"actor": "0-7"}}}
    everything = Inventory.from_dict({"levels": ["leaf"], "nodes": labels})
    plan = dialect_of(config).plan(config, everything)
    assert "leaf a  #..x  4 nodes: actor 1, spare 2, excluded 1" in "\n".join(
        line.plain for line in lines(map_of(plan, around=everything), 80)
    )


def test_the_number_of_shown_nodes_is_limited() -> None:
    # Each of these nodes has another number of accelerators.
    sizes = [{"ranks": rank, "accelerators": rank + 1} for rank in range(100)]
    plan = plan_of(
        {"actor": "all", "env": {"node_group": "node", "placement": "all"}}, Inventory.from_dict({"nodes": sizes})
    )
    assert terminal(plan)[-1].endswith("and 36 more nodes with other processes")
    assert len(plan._repr_html_()) < 500_000


def test_a_node_with_very_many_accelerators_summarises_the_rest() -> None:
    plan = plan_of({"actor": "0-99", "rollout": "90-99"}, Inventory.uniform(1, 65_536))
    (rest,) = [line.strip() for line in terminal(plan) if line.strip().startswith("and ")]
    assert rest == "and 64-65535: actor 64-99, rollout 0-9, 65436 idle"
    assert len(svg(plan)) < 100_000


def test_a_process_of_many_accelerators_is_drawn_line_by_line() -> None:
    plan = plan_of({"actor": "0-39:0", "rollout": "30-31:0"}, Inventory.uniform(1, 40))
    rows = places_of_rows(plan)
    assert places_of_bands(bands_of_svg(svg(plan))) == places_of_bands(Page(page(plan, "")).of_class("band")) == rows
    assert sum("actor    " in line for line in terminal(plan)) == 5


def test_the_number_of_shown_components_is_limited() -> None:
    plan = plan_of({f"c{index}": "all" for index in range(500)}, Inventory.uniform(2, 8))
    assert terminal(plan)[-1].endswith("and 436 more components")
    assert len(plan._repr_html_()) < 1_000_000
    crowded = plan_of({f"c{index}": "all" for index in range(64)}, Inventory.uniform(1, 64))
    assert len(svg(crowded)) > 1_000_000 and len(crowded._repr_html_()) < 300_000


def test_long_ranks_are_complete_on_a_narrow_terminal() -> None:
    plan = plan_of({"actor": "0-15:0-1599"}, Inventory.uniform(2, 8))
    assert "[ 100-199 ]" in "".join(terminal(plan)) and "[1500-1599]" in "".join(terminal(plan))
    assert max(map(len, terminal(plan))) <= 80


def test_empty_plans_are_drawn() -> None:
    for plan in (Plan(Inventory.uniform(2, 0), []), Plan(Inventory.uniform(2, 1), [])):
        assert bands_of_svg(svg(plan)) == [] and "node 1" in page(plan, "") and len(terminal(plan)) > 3


# ------------------------------------------------------------------------------------------------------- hostile names


def hostile() -> Plan:
    node = {"ranks": 0, "accelerators": 2, "accelerator_model": "\x1b[31m\x00" + HOSTILE}
    groups = [{"label": HOSTILE, "node_ranks": 0, "hardware": {"type": HOSTILE, "configs": [{"node_rank": 0}]}}]
    placements = {HOSTILE: "all", "actor": {"node_group": HOSTILE, "placement": "0"}}
    return plan_of(placements, Inventory.from_dict({"nodes": [node]}), node_groups=groups)


def test_names_are_escaped() -> None:
    plan = hostile()
    for bands in (bands_of_svg(svg(plan, HOSTILE)), Page(page(plan, HOSTILE)).of_class("band")):
        assert places_of_bands(bands) == places_of_rows(plan)
    tags = Counter(tag for tag, _, _ in Page(page(plan, HOSTILE)).elements)
    harmless = plan_of({"actor": "all"}, Inventory.uniform(1, 2))
    assert tags["script"] == Counter(tag for tag, _, _ in Page(page(harmless, "")).elements)["script"] == 1
    assert not {element.tag for element in ElementTree.fromstring(svg(plan, HOSTILE)).iter()} & {"script", "alert"}
    assert not re.search(r"[\x00\x1b]", svg(plan) + page(plan, HOSTILE) + "".join(terminal(plan)))
    assert "<script>" not in plan[HOSTILE]._repr_html_()


def test_the_files_are_self_contained() -> None:
    plan = example("quickstart.yaml", "2x8")
    for text in (svg(plan, "a"), page(plan, "a")):
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"\bsrc=|\bhref=|@import|url\((?!#)", text)


def test_a_picture_needs_no_style_sheet() -> None:
    """Some renderers ignore style sheets, or apply rules for the dark mode; they all read attributes."""
    drawn = ElementTree.fromstring(svg(example("quickstart.yaml", "2x8"), "a"))
    shapes = [element for element in drawn.iter() if element.tag.rpartition("}")[2] in ("rect", "text")]
    assert len(shapes) > 50 and all(element.get("fill") for element in shapes)
    rules = re.sub(r"@media[^{]*\{([^{}]*\{[^{}]*\})*[^{}]*\}", "", drawn.findtext("{*}style") or "x")
    assert re.findall(r"[\w-]+(?=:)", rules) == ["color-scheme"], (
        "outside media queries, only what no other renderer reads"
    )


# ------------------------------------------------------------------------------------------------------------ notebook


def test_a_notebook_shows_plans_and_rows() -> None:
    plan = example("quickstart.yaml", "2x8")
    assert places_of_bands(bands_of_svg(plan._repr_html_())) == places_of_rows(plan)
    table = plan["rollout"]._repr_html_()
    assert table.count("<tr>") == 5 and "accelerators 6-7" in table and "more" not in table
    rows = large(1000)["actor"]._repr_html_()
    assert rows.count("<tr>") == 65 and rows.endswith("<p>and 3,936 more</p>")
    assert large(1000)["actor"][2:4]._repr_html_().count("<tr>") == 3


# -------------------------------------------------------------------------------------------------------- command line


def test_show_takes_configs_and_saved_plans_and_writes_files(tmp_path: Path) -> None:
    plan = example("quickstart.yaml", "2x8")
    shutil.copy(EXAMPLES / "quickstart.yaml", tmp_path / "conf.yaml")
    plan.save(tmp_path / "plan.json")
    first = rankplan(tmp_path, "show", "conf.yaml", "--nodes", "2x8")
    saved = rankplan(tmp_path, "show", "plan.json")
    assert (first.returncode, first.stdout, first.stderr) == (0, saved.stdout, "") and "\x1b" not in first.stdout
    assert first.stdout.startswith("\n".join(terminal(plan)))
    assert "rollout and reward share node 1: 6-7, 3 processes per accelerator (1 rollout, 2 reward)" in first.stdout
    done = rankplan(tmp_path, "show", "plan.json", "-o", "map.HTML")
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "map.HTML").read_text() == page(plan, "plan.json")


def test_a_terminal_with_zero_columns_gets_a_default_width(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "quickstart.yaml", tmp_path / "conf.yaml")
    shown = rankplan(tmp_path, "show", "conf.yaml", "--nodes", "2x8", columns=0)
    assert shown.stdout == rankplan(tmp_path, "show", "conf.yaml", "--nodes", "2x8").stdout
    assert rankplan(tmp_path, "show", "nope", columns=0).stderr == "error: nope: No such file or directory\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["conf.yaml", "-o", "map.png"], "map.png must end in .svg or .html"),
        (["plan.json", "--nodes", "2x8"], "plan.json is a saved plan with its own nodes; remove --nodes"),
        (["plan.json", "--dialect", "roll"], "plan.json is a saved plan with its own nodes; remove --nodes"),
    ],
)
def test_wrong_usage_of_show(arguments: list[str], message: str, tmp_path: Path) -> None:
    plan_of({"actor": "0"}, Inventory.uniform(1, 1)).save(tmp_path / "plan.json")
    done = rankplan(tmp_path, "show", *arguments)
    assert (done.returncode, done.stdout) == (2, "") and message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_one_component_can_share_an_accelerator_with_itself(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("cluster: {num_nodes: 1, component_placement: {actor: '0:0-1'}}\n")
    done = rankplan(tmp_path, "plan", "conf.yaml", "--nodes", "1x2")
    last = ["  processes of actor share node 0: 0, 2 processes per accelerator", "idle: node 0: 1"]
    assert done.stdout.splitlines()[-2:] == last


# ------------------------------------------------------------------------------------------------------------- browser

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


def opened(folder: Path, file: str, fragment: str = "") -> Page:
    """Return the document after its scripts have run."""
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
    address = f"file://{folder}/{file}{fragment}"
    done = subprocess.run([*command, "--dump-dom", address], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return Page(done.stdout)


@in_browser
def test_a_browser_shows_cells_tooltips_and_the_filter(tmp_path: Path) -> None:
    plan = plan_of({"actor": "0-3", HOSTILE: "0-3:0-1", "env": "2-3:0-3"}, Inventory.uniform(1, 4))
    (tmp_path / "map.html").write_text(page(plan, HOSTILE))
    document = opened(tmp_path, "map.html", f"#filter=env,{quote(HOSTILE, safe='')}")
    bands = document.of_class("band")
    assert places_of_bands(bands) == places_of_rows(plan)
    for band, drawn in zip(bands, bands_of_svg(svg(plan)), strict=True):
        assert band["data-tip"] == band["aria-label"] == drawn["tip"] and "title" not in band
        assert ("off" in band["class"].split()) == (band["data-component"] == "actor")
    pressed = [attributes["aria-pressed"] for tag, attributes, _ in document.elements if tag == "button"]
    assert pressed == ["false", "true", "true"]


@in_browser
def test_a_damaged_address_filters_by_its_readable_part(tmp_path: Path) -> None:
    (tmp_path / "map.html").write_text(page(plan_of({"actor": "0-1", "env": "0-1"}, Inventory.uniform(1, 2)), "a"))
    off = [band["data-component"] for band in opened(tmp_path, "map.html", "#filter=100%,env").of_class("off")]
    assert off == ["actor", "actor"]


@in_browser
def test_a_browser_reaches_the_cells_by_keyboard(tmp_path: Path) -> None:
    plan = plan_of({"actor": "0-3", "rollout": "0-3:0-1"}, Inventory.uniform(1, 4))
    keys = """<script>
      const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
      buttons[1].focus(); buttons[1].click(); bands[0].focus();
      ["ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown"].forEach(press);
      document.body.id = location.hash;
    </script>"""
    (tmp_path / "map.html").write_text(page(plan, "a") + keys)
    document = opened(tmp_path, "map.html")
    (tip,) = [(attributes, "".join(text)) for _, attributes, text in document.elements if attributes.get("id") == "tip"]
    assert "hidden" not in tip[0] and tip[1].startswith(
        "rollout, rank 1 of 2\nnode 0\naccelerators 2-3: NV_GPU, ids 2,3\n"
    )
    assert [attributes.get("id") for tag, attributes, _ in document.elements if tag == "body"] == ["#filter=rollout"]


@in_browser
def test_a_very_long_name_does_not_widen_the_page(tmp_path: Path) -> None:
    plan = plan_of({"a" * 400: "0-3", "b" * 400: "0-3"}, Inventory.uniform(1, 4))
    script = "<script>document.body.id = document.documentElement.scrollWidth > innerWidth ? 'wide' : 'fits';</script>"
    (tmp_path / "map.html").write_text(page(plan, "c" * 400) + script)
    document = opened(tmp_path, "map.html")
    assert [attributes.get("id") for tag, attributes, _ in document.elements if tag == "body"] == ["fits"]


@in_browser
def test_a_browser_shows_the_picture(tmp_path: Path) -> None:
    plan = hostile()
    (tmp_path / "map.svg").write_text(svg(plan, HOSTILE))
    document = opened(tmp_path, "map.svg")
    assert places_of_bands(document.of_class("band")) == places_of_rows(plan)
    assert not [tag for tag, _, _ in document.elements if tag == "parsererror"]

"""Costs, the ranking, and the command: inputs, messages and outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Costs, Inventory, PlacementError, Plan, tune
from rankplan._core import SAME_SECONDS
from rankplan.tuning.layout import Cluster, Network
from rankplan.tuning.models import CostsModel
from rankplan.tuning.schedule import Schedule
from rankplan.tuning.search import sweep
from rankplan.tuning.times import ByEnvironments, Measured, ranked
from support.commands import run
from support.paths import DOCS
from support.rejected.tune import CODES, REFUSED

SIXTEEN = Inventory.uniform(16, 8)
COSTS = """\
batches: 512
after: {inference: [rollout], actor: [inference]}
components:
  rollout:   {seconds: {40: 448, 80: 224, 128: 224}}
  inference: {seconds: {8: 80, 128: 10}, parallel: {tp: 2}}
  actor:
    seconds: {16: 528, 64: 168, 128: 101}
    parallel: {tp: 2}
    dp: [1, 2, 4, 8, 16, 32, 64]
"""
CONFIG = """\
runner: {task_type: reasoning}
cluster:
  num_nodes: 16
  component_placement: {rollout: 0-63, inference: 64-95, actor: 96-127}
rollout: {tensor_parallel_size: 1}
actor: {model: {tensor_model_parallel_size: 2}}
inference: {model: {tensor_model_parallel_size: 2}}
algorithm: {recompute_logprobs: true}
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(own_folder: Path) -> None:
    Path("costs.yaml").write_text(COSTS)
    Path("conf.yaml").write_text(CONFIG)


def tuned(line: str) -> Result:
    return run("tune", *line.split())


@given(st.text() | st.sampled_from(["a.b", "x[0]", "components.actor", "after[rollout]"]))
def test_any_unknown_key_of_costs_is_a_fault(key: str) -> None:
    """Its path is not read back from its text: a key may have dots and brackets."""
    content = yaml.safe_load(COSTS)
    assert Costs.from_dict(content).components
    unknown = {key: 1} if key not in CostsModel.model_fields else {f"{key}.{key}": 1}
    with pytest.raises(PlacementError) as caught:
        Costs.from_dict(content | unknown)
    assert [one.code for one in caught.value.diagnostics] == ["unknown-key"]


# ---------------------------------------------------------------------------------------------------------------- times


def test_times_are_exact_at_the_points_and_follow_a_plus_b_over_n_between_them() -> None:
    times = Measured({64: 168.0, 128: 101.0})
    assert (times.seconds(64), times.seconds(128)) == (168, 101)
    assert times.seconds(96) == pytest.approx(34 + 8576 / 96)  # 34 + 8576 / n goes through both
    assert times.seconds(256) == pytest.approx(34 + 8576 / 256)
    assert times.seconds(32) == 2 * 168  # slower than the fit's 302 s
    assert Measured({128: 10.0}).seconds(64) == 20
    assert Measured({4: 10.0, 8: 3.0}).seconds(16) == 1.5  # the fit says less than 0


def test_times_never_rise_between_points() -> None:
    times = Measured({8: 60.0, 16: 80.0, 32: 30.0})
    assert (times.seconds(12), times.seconds(16)) == (60, 80)
    assert Measured({8: 60.0, 16: 80.0}).seconds(20) == 80


@given(st.dictionaries(st.integers(1, 200), st.floats(0.1, 1000), min_size=1, max_size=6), st.integers(1, 400))
def test_times_fall_between_falling_points(points: dict[int, float], size: int) -> None:
    falling = dict(zip(sorted(points), sorted(points.values(), reverse=True), strict=True))
    times = Measured(falling)
    assert times.seconds(size) >= times.seconds(size + 1) >= 0


def test_the_limits_of_the_measurements() -> None:
    times = Measured({40: 4.0, 80: 2.0})
    assert [times.within(size) for size in (19, 20, 160, 161)] == [False, True, True, False]


def test_times_by_environments_of_an_instance() -> None:
    times = ByEnvironments({4: 0.6, 8: 1.0, 16: 2.2}, environments=32, each=2)
    assert times.seconds(8) == 1.0 and times.seconds(16) == 0.6  # 4 instances of 8, 8 of 4
    assert times.seconds(6) is None and times.seconds(7) is None  # 3 instances do not share 32 evenly
    assert ByEnvironments({8: 1.0, 16: 2.2}, 36).seconds(3) == pytest.approx(1.6)
    assert not times.within(64) and times.measured(8)


# ---------------------------------------------------------------------------------------------------------------- costs


@pytest.mark.parametrize(("text", "code", "message", "place"), REFUSED)
def test_faults_of_a_costs_file_have_a_code_and_a_place(text: str, code: str, message: str, place: str) -> None:
    Path("costs.yaml").write_text(text)
    with pytest.raises(PlacementError) as caught:
        Costs.load("costs.yaml")
    found = next((one for one in caught.value.diagnostics if one.code == code), None)
    assert found is not None, caught.value
    assert message in found.message and found.help is not None and found.file == "costs.yaml"
    assert f"{found.line}:{found.column}".startswith(place)


def test_all_faults_are_reported_together_in_the_order_of_the_file() -> None:
    Path("costs.yaml").write_text("batches: none\ncomponents:\n  a: {}\n  b: {seconds: {8: x}}\n")
    with pytest.raises(PlacementError) as caught:
        Costs.load("costs.yaml")
    assert [(one.code, one.line) for one in caught.value.diagnostics] == [
        ("invalid-value", 1),
        ("missing-times", 3),
        ("invalid-value", 4),
    ]


WHOLE = """\
batches: 8
mode: async
after: {b: [a], c: [b]}
sharing: [collocated, hybrid]
memory: 80
unit: 2
environments: 64
sync: {from: a, to: b, bytes: 14e9}
bandwidth: {node: 4e+11}
components:
  a: {seconds: {8: 3, 16: 2}, parallel: {tp: 2}, dp: [1, 2], sizes: [8, 16], memory: {8: 60, 16: 40}, switch: 0.5}
  b: {seconds_by_environments: {4: 0.5, 8: 1}, sizes: measured, memory: 10}
  d: {with: b}
  c: {seconds: {8: 1}}
"""


@pytest.mark.parametrize("text", [COSTS, WHOLE])
def test_costs_survive_a_file(text: str) -> None:
    Path("costs.yaml").write_text(text)
    costs = Costs.load("costs.yaml")
    costs.save("again.yaml")
    assert Costs.load("again.yaml") == Costs.from_dict(costs.to_dict()) == costs


def test_times_of_a_function_are_not_saved() -> None:
    costs = Costs.from_dict({"components": {"a": {"seconds": lambda n: 1.0}}})
    with pytest.raises(ValueError, match="the times of `a` are a function, which a file cannot contain"):
        costs.save("again.yaml")


NOWHERE = [
    ({"seconds": {16: 3}, "parallel": {"tp": 16}}, "`a` with tp 16 fits on no number of accelerators up to 8"),
    ({"seconds": {8: 3}, "parallel": {"tp": 2}, "dp": [3, 5]}, "none"),
    ({"seconds": {8: 3}, "sizes": [16]}, "`a` fits on none of its `sizes` (16) up to 8 accelerators"),
    ({"seconds": {8: 3}, "memory": 90}, "`a` needs 90 of the 80 memory of an accelerator"),
    ({"seconds": {8: 3}, "parallel": {"dp": 16}}, "`a` with dp 16 fits on no number of accelerators up to 8"),
    ({"seconds": {64: 3}}, "`a` was measured on 64 accelerators, too far from any size on 8 accelerators"),
]


@pytest.mark.parametrize(("component", "message"), NOWHERE)
def test_a_component_that_fits_nowhere(component: dict[str, Any], message: str) -> None:
    costs = {"components": {"a": component, "b": {"seconds": {8: 1}}}, "memory": 80}
    if message == "none":
        assert [size.accelerators for size in tune(costs, Inventory.uniform(1, 8)).sizes["a"]] == [6]
        return
    with pytest.raises(PlacementError) as caught:
        tune(costs, Inventory.uniform(1, 8))
    assert (caught.value.code, caught.value.message) == ("size-does-not-fit", message)


def test_stated_data_and_shard_sizes_limit_the_accelerators() -> None:
    costs = {"a": {"seconds": {6: 3}, "parallel": {"fsdp": 3}}, "b": {"seconds": {8: 1}, "parallel": {"dp": 4}}}
    found = tune({"components": costs}, Inventory.uniform(1, 12))
    assert [size.accelerators for size in found.sizes["a"]] == [3, 6, 9, 12]
    assert [size.accelerators for size in found.sizes["b"]] == [4]
    assert {one.sharing for one in found.ranking} == {"collocated", "disaggregated"} and not found.rejected


def test_precedence_is_stated_twice_or_through_a_component_that_runs_with_another() -> None:
    costs = {"batches": 4, "components": {name: {"seconds": {8: 4}} for name in "ab"}}
    once = tune(costs | {"after": {"a": ["b"]}}, Inventory.uniform(2, 8))
    assert tune(costs | {"after": {"a": ["b", "b"]}}, Inventory.uniform(2, 8)).ranking[1].seconds == 5
    costs["components"] |= {"c": {"with": "b"}}
    through = tune(costs | {"after": {"a": "c", "c": "b"}}, Inventory.uniform(2, 8))
    assert [one.seconds for one in through.ranking] == [one.seconds for one in once.ranking] == [4, 5]


def test_reasons_of_functions_that_return_0() -> None:
    costs = {"sharing": "disaggregated", "components": {name: {"seconds": lambda n: 0.0} for name in "ab"}}
    assert "waits 0% of the time" in tune(costs, Inventory.uniform(1, 8)).best.why


def test_no_schedule_fits() -> None:
    costs = {
        "sharing": "disaggregated",
        "components": {name: {"seconds": {8: 1}, "sizes": "measured"} for name in "ab"},
    }
    with pytest.raises(PlacementError) as caught:
        tune(costs, Inventory.uniform(1, 8))
    assert caught.value.code == "no-schedule"
    assert caught.value.message == "no disaggregated schedule of a, b fits on 8 accelerators"


def test_times_that_grow_are_a_warning_at_their_place() -> None:
    Path("costs.yaml").write_text("components:\n  a: {seconds: {4: 5, 8: 6}}\n")
    done = tuned("--costs costs.yaml --nodes 1x8")
    assert done.exit_code == 0
    assert "warning[times-grow]: `a` takes 6 s on 8 accelerators, but 5 s on 4" in done.stderr
    assert "costs.yaml:2:26" in done.stderr


ONE_RUN = "components:\n  rollout: {seconds: {64: 150.72}}\n  actor: {seconds: {%d: 133.41}}\n"


def test_times_of_one_colocated_run_are_a_warning_that_names_the_split_to_measure() -> None:
    Path("costs.yaml").write_text("mode: async\n" + ONE_RUN % 64)
    done = tuned("--costs costs.yaml --nodes 8x8")
    assert "warning[colocated-times]: `rollout` and `actor` were measured on 64 accelerators only" in done.stderr
    assert "measure one step with `rollout` on 32 and `actor` on 32 accelerators" in done.stderr
    assert done.stdout.splitlines()[1].split()[:3] == ["1", "284", "s"]  # the ranking is what it was


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("sharing", ["", "sharing: collocated\n"])
def test_times_are_no_guess_of_a_colocated_run(size: int, sharing: str) -> None:
    """They are of two sizes, or no placement has separate accelerators."""
    tuning = tune(yaml.safe_load(sharing + ONE_RUN % size), Inventory.uniform(8, 8))
    assert bool(tuning.warnings) == (size == 64 and not sharing)


@pytest.mark.parametrize("answer", [-1, float("nan"), "fast", True])
def test_a_cost_function_returns_seconds(answer: Any) -> None:
    with pytest.raises(PlacementError, match="the times of `a` on 1 accelerators"):
        tune({"components": {"a": {"seconds": lambda n: answer}}}, Inventory.uniform(1, 8))


def test_the_codes_of_this_file() -> None:
    """`test_the_list_of_codes_is_closed` counts these."""
    assert set(rankplan.error_codes()) >= CODES


# -------------------------------------------------------------------------------------------------------------- ranking


def test_the_ranking_of_the_guide() -> None:
    """The config decides which placements are valid: RLinf's reasoning jobs share all accelerators or none."""
    done = tuned("conf.yaml --costs costs.yaml --nodes 16x8")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[:4] == [
        "rank  period  actor   inference  rollout  idle  sharing",
        "   1   289 s  96-127  80-95      0-79        0  disaggregated",
        "   2   335 s  0-127   0-127      0-127       0  collocated",
        "the first beats the second until rollout on 80 accelerators takes more than 334 s (measured: 224 s)",
    ]
    assert "rejected: hybrid, 280 s: mode-unclear: " in done.stdout
    assert "component_placement: {rollout: 0-79, inference: 80-95, actor: 96-127}" in done.stdout
    assert "mode: DISAGGREGATED" in done.stdout and "rollout    0-79   0-9" in done.stdout


def test_without_a_config_a_hybrid_placement_wins() -> None:
    found = tune("costs.yaml", SIXTEEN)
    assert [one.sharing for one in found.ranking] == ["hybrid", "disaggregated", "collocated"]
    assert str(found.best.schedule) == "pipe(rollout, then(inference, actor))"
    for one in found.ranking:
        assert one.plan.sharing().kind == one.sharing and sum(map(len, one.plan.idle().values())) == one.idle
        for name, ranks in one.accelerators.items():
            assert one.plan[name].rows.accelerators() == ranks
        assert one.plan["actor"].parallel.tp == 2


def test_the_first_is_best_until_the_limit() -> None:
    costs = yaml.safe_load(COSTS) | {"sharing": ["disaggregated", "collocated"]}
    limit = tune(costs, SIXTEEN).sensitivity
    assert limit is not None and (limit.component, limit.accelerators, limit.seconds) == ("rollout", 80, 224)
    for factor, sharing in ((0.999, "disaggregated"), (1.001, "collocated")):
        costs["components"]["rollout"]["seconds"] = {40: 448, 80: limit.limit * factor, 128: 224}
        costs["components"]["rollout"]["sizes"] = [80, 128]
        assert tune(costs, SIXTEEN).best.sharing == sharing


def test_nothing_decides_between_placements_that_are_equally_fast() -> None:
    """With one micro-batch, components apart take as long as in turn, whatever their times; rounding decided before."""
    costs = {
        "components": {
            name: {"seconds": {4: seconds}, "sizes": "measured"} for name, seconds in (("a", 16.381), ("b", 0.7))
        },
        "after": {"b": ["a"]},
        "sharing": ["disaggregated", "collocated"],
    }
    found = tune(costs, Inventory.uniform(1, 8))
    assert [one.sharing for one in found.ranking] == ["collocated", "disaggregated"]  # fewer accelerators first
    assert found.sensitivity is None


def test_seconds_that_differ_by_rounding_are_equal() -> None:
    assert SAME_SECONDS == 1e-9 and "1e-9" in (DOCS / "tune.md").read_text()
    found = [(1.0, 4), (1.0 + 1e-12, 2), (1.0 + 1e-6, 1), (0.5, 9)]
    assert ranked(found, lambda one: one[0], lambda one: one[1]) == [found[3], found[1], found[0], found[2]]


def test_cost_functions() -> None:
    components = {"a": {"seconds": lambda n: 80 / n}, "b": {"seconds": lambda n: 8 if n > 1 else None}}
    found = tune({"batches": 64, "components": components}, Inventory.uniform(1, 8))
    assert found.best.schedule.sizes == {"a": 6, "b": 2}
    assert found.best.seconds == pytest.approx(80 / 6)  # they do not wait for each other


def test_asynchronous_iterations_take_as_long_as_the_slowest_part() -> None:
    one = {"seconds": {4: 8}, "sizes": "measured"}
    costs = {"batches": 4, "components": {"a": one, "b": one}, "after": {"b": ["a"]}}
    assert tune(costs, Inventory.uniform(1, 8)).best.seconds == pytest.approx(2 + 2 + 3 * 2)
    assert tune(costs | {"mode": "async"}, Inventory.uniform(1, 8)).best.seconds == pytest.approx(8)


def test_components_that_do_not_fit_into_memory_together_are_switched() -> None:
    one = {"seconds": {8: 10}, "memory": 50, "switch": 3, "sizes": "measured"}
    costs = {"components": {"a": one, "b": one}, "after": {"b": ["a"]}, "sharing": "collocated"}
    assert tune(costs, Inventory.uniform(1, 8)).best.seconds == 20
    found = tune(costs | {"memory": 80}, Inventory.uniform(1, 8)).best
    assert (found.seconds, found.why) == (26, "in turn: a 10 s + b 10 s, each loaded for its turn")


def test_weights_cross_the_slowest_level() -> None:
    one = {"seconds": {4: 10}, "sizes": "measured"}
    costs = {
        "components": {"actor": one, "rollout": one},
        "sync": {"from": "actor", "to": "rollout", "bytes": 8e9},
        "bandwidth": {"device": 8e9, "node": 4e9, "network": 2e9},
    }
    for nodes, far in ((Inventory.uniform(1, 8), 2), (Inventory.uniform(2, 4), 4)):
        seconds = {found.sharing: found.seconds for found in tune(costs, nodes).ranking}
        assert seconds == {"disaggregated": 10 + far, "collocated": 20 + 1}


def test_sizes_far_from_every_measurement_need_extrapolate() -> None:
    Path("costs.yaml").write_text("batches: 8\ncomponents:\n  a: {seconds: {8: 9}}\n  b: {seconds: {8: 1}}\n")
    assert "*" not in tuned("--costs costs.yaml --nodes 1x9").stdout
    done = tuned("--costs costs.yaml --nodes 1x9 --extrapolate")
    assert "8*" in done.stdout and "*: times extrapolated far from every measured size" in done.stdout


def test_a_unit_and_only_measured_sizes() -> None:
    costs = {"batches": 16, "unit": 4, "components": {"a": {"seconds": {4: 9, 8: 5}}, "b": {"seconds": {4: 4}}}}
    found = tune(costs, Inventory.uniform(4, 4))
    assert {size for one in found.ranking for size in one.schedule.sizes.values()} <= {4, 8, 12, 16}
    costs["sizes"] = "measured"
    assert [size.accelerators for size in tune(costs, Inventory.uniform(4, 4)).sizes["a"]] == [4, 8]


def test_components_that_run_with_another() -> None:
    costs = yaml.safe_load(COSTS)
    costs["components"]["reward"] = {"with": "rollout"}
    best = tune(costs, SIXTEEN).best
    assert best.plan["reward"].rows.accelerators() == best.accelerators["rollout"]


# --------------------------------------------------------------------------------------------------------------- layout


def leaf(name: str, size: int) -> Schedule:
    return Schedule("leaf", size, name)


def test_the_order_of_a_pipeline_crosses_few_nodes_then_moves_little_then_follows_the_schedule() -> None:
    pipe = Schedule("pipe", 14, children=(leaf("a", 2), leaf("b", 8), leaf("c", 4)))
    nodes = Network(Inventory.uniform(2, 8).core, (), {})
    assert Cluster(nodes, {}).place(pipe)[1] == {"a": 0, "b": 2, "c": 10}
    assert Cluster(nodes, {"b": 8}).place(pipe)[1] == {"b": 0, "a": 8, "c": 10}
    assert Cluster(nodes, {}, {"c": [0, 1, 2, 3]}).place(pipe) == ((0.0, 0, 0, 2), {"c": 0, "a": 4, "b": 6})
    assert Cluster(nodes, {"b": 8}, {"c": [0, 1, 2, 3]}).place(pipe)[1]["b"] == 0


def test_few_moves_from_the_present_plan() -> None:
    costs = {"batches": 64, "components": {name: {"seconds": {4: 8}, "sizes": "measured"} for name in "ab"}}
    nodes = Inventory.uniform(2, 4)
    first = tune(costs, nodes)
    assert first.best.accelerators == {"a": rankplan.RankSet("0-3"), "b": rankplan.RankSet("4-7")}
    now = {"cluster": {"num_nodes": 2, "component_placement": {"a": "4-7", "b": "0-3"}}}
    present = rankplan.ComponentPlacement(now, nodes).plan()
    again = tune(costs, nodes, present=present)
    assert again.best.moves is not None and not again.best.moves
    assert again.best.seconds == first.best.seconds
    assert len(tune(costs, nodes, present=first.plan).best.moves.moved) == 0  # type: ignore[union-attr]


# -------------------------------------------------------------------------------------------------------------- command


def test_json() -> None:
    done = tuned("conf.yaml --costs costs.yaml --nodes 16x8 --format json")
    content = json.loads(done.stdout)
    first = content["ranking"][0]
    assert first["components"]["actor"] == {"accelerators": 32, "ranks": "96-127"}
    assert (first["sharing"], first["idle"], round(first["seconds"], 2)) == ("disaggregated", 0, 288.52)
    assert content["sensitivity"]["component"] == "rollout" and content["component_placement"]["actor"] == "96-127"
    assert content["rejected"][0]["faults"][0]["code"] == "mode-unclear"


def test_the_function_gives_the_answer_of_the_command() -> None:
    for line, arguments in [
        ("conf.yaml --costs costs.yaml --nodes 16x8", ("costs.yaml", "16x8", "conf.yaml")),
        ("conf.yaml --costs costs.yaml", ("costs.yaml", None, "conf.yaml")),
        ("--costs costs.yaml --nodes 16x8", ("costs.yaml", "16x8")),
    ]:
        done = tuned(f"{line} --save plan.json")
        found = tune(*arguments)  # type: ignore[arg-type]
        assert done.exit_code == 0 and Plan.load("plan.json") == found.plan
    with pytest.raises(PlacementError, match="the config has no measured times"):
        tune(None, "16x8", "conf.yaml")
    with pytest.raises(ValueError, match="pass a config, or costs and nodes"):
        tune("costs.yaml")


def test_outputs_are_a_plot_a_config_and_a_plan() -> None:
    done = tuned("conf.yaml --costs costs.yaml --nodes 16x8 -o tune.svg -o new.yaml --save plan.json")
    assert done.exit_code == 0
    picture = Path("tune.svg").read_text()
    assert "Period by accelerators of rollout" in picture and "80: 289 s" in picture
    config = rankplan.load_config("new.yaml")
    assert config["cluster"]["component_placement"] == {"rollout": "0-79", "inference": "80-95", "actor": "96-127"}
    assert config["algorithm"] == {"recompute_logprobs": True}
    checked = run("check", "new.yaml", "--nodes", "16x8")
    assert checked.exit_code == 0 and "mode DISAGGREGATED" in checked.output
    assert Plan.load("plan.json") == tune("costs.yaml", SIXTEEN, rankplan.load_config("conf.yaml")).plan


def test_the_plot_of_the_guide_is_up_to_date() -> None:
    """If this fails, run the command of docs/tune.md with ``-o docs/tune.svg`` and look at the picture."""
    for block in re.findall(r"^```yaml\n(.*?)^```$", (DOCS / "tune.md").read_text(), re.DOTALL | re.MULTILINE):
        Path(block.split()[1]).write_text(block)
    tuned("conf.yaml --costs costs.yaml --nodes 16x8 -o tune.svg")
    assert Path("tune.svg").read_text() == (DOCS / "tune.svg").read_text()


def test_the_plot_has_the_best_point_of_each_number() -> None:
    costs = yaml.safe_load(COSTS) | {"sharing": ["disaggregated", "collocated"]}
    found = tune(costs, SIXTEEN)
    curves = sweep(found).curves
    assert min(seconds for _, seconds in curves["disaggregated"]) == found.best.seconds
    assert dict(curves["disaggregated"])[80] == found.best.seconds


def test_another_dialect() -> None:
    done = tuned("--costs costs.yaml --nodes 16x8 --to roll")
    config = yaml.safe_load(done.stdout.split("\n\n")[2])
    assert done.exit_code == 0 and config["rollout"]["device_mapping"] == "list(range(0,64))"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--costs costs.yaml", "without FILE, use --costs and one of --nodes"),
        ("", "without FILE, use --costs and one of --nodes"),
        ("conf.yaml -o tune.png --costs costs.yaml", "tune.png must end in .svg or .yaml"),
    ],
)
def test_wrong_usage(line: str, message: str) -> None:
    done = tuned(line)
    assert done.exit_code == 2 and message in done.stderr


def test_a_config_without_times_and_components_without_times() -> None:
    done = tuned("conf.yaml")
    assert done.exit_code == 1 and "error[missing-times]: the config has no measured times" in done.stderr
    Path("conf.yaml").write_text(CONFIG.replace("rollout: 0-63,", "rollout: 0-63, reward: 0-63,"))
    done = tuned("conf.yaml --costs costs.yaml")
    assert done.exit_code == 1
    assert "error[missing-times]: component `reward` of the config has no times" in done.stderr
    assert "costs.yaml:3:1" in done.stderr

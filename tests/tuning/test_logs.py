"""Times in the logs of trainers: lines as each of them prints them, colocated and on separate accelerators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from rankplan import PlacementError
from rankplan.tuning.logs import LoggedRun, read_log
from support.commands import run

RAY = "\x1b[36m(TaskRunner pid=4711)\x1b[0m "

VERL = "step:{n} - global_seqlen/mean:81920.0 - actor/pg_loss:0.01 - timing_s/gen:{gen} - timing_s/reward:1.0 - \
timing_s/old_log_prob:70.26 - timing_s/adv:0.5 - timing_s/update_actor:np.float64(133.41) - \
timing_s/update_weights:2.0 - timing_s/agent_loop/tool_calls/max:3.0 - timing_s/step:{step} - \
timing_per_token_ms/gen:0.04 - perf/time_per_step:{step}"
FULLY_ASYNC = "step:{n} - fully_async/count/stale_samples_processed:12 - timing_s/gen:28.46 - timing_s/adv:0.5 - \
timing_s/update_actor:156.98 - timing_s/step:186.9 - perf/throughput:100.0"
PARAM_SYNC = "step:{n} - timing_s/wait_last_valid:0.0 - timing_s/param_sync:2.36"
ONE_STEP_OFF = "step:{n} - timing_s/generate_async:80.0 - timing_s/gen:20.0 - timing_s/sync_rollout_weights:1.0 - \
timing_s/old_log_prob:10.0 - timing_s/update_actor:60.0 - timing_s/step:91.5"

SLIME_ROLLOUT = "[2026-08-21 17:14:19] rollout.py:506 - perf {n}: {{'rollout/response_len/mean': 9000.0, \
'perf/rollout_time': 120.5, 'perf/tokens_per_gpu_per_sec': 900.0}}"
SLIME_TRAIN = "[2026-08-21 17:16:19] train_metric_utils.py:401 - perf {n}: {{{more}'perf/train_wait_time': 130.5, \
'perf/ref_log_probs_time': 20.0, 'perf/actor_train_time': 70.0, 'perf/train_time': 95.5, \
'perf/update_weights_time': 4.5{step}, 'perf/actor_train_tflops': 300.0}}"

NEMO_RL = """
========================= Step {n}/100 =========================
⏱️  Timing:
  • Total step time: 91.00s
  • generation: 40.10s (44.1%)
  • policy_training: 30.00s (33.0%)
  • policy_and_reference_logprobs: 12.00s (13.2%)
  • prepare_for_generation/total: 3.00s (3.3%)
  • training_prep: 2.00s (2.2%)

  ⏱️  Validation Timing:
    • Total validation time: 12.00s
"""
NEMO_RL_ASYNC = """
⏱️  Timing:
  • Total step time: 74.60s
  • policy_training: 45.00s (60.3%)
  • exposed_generation: 14.00s (18.8%)
  • policy_and_reference_logprobs: 12.00s (16.1%)
  • idle/refit_bubble: 3.20s (4.3%)
  • weight_sync: 3.00s (4.0%)
"""


def skyrl(**seconds: float) -> str:
    """Return the lines of a step of SkyRL, whose timers end before that of the step."""
    line = "2026-08-21 18:02:38.000 | INFO     | skyrl.train.trainer:train:361 - Finished: '{}', time cost: {:.2f}s"
    return "\n".join(line.format(name, value) for name, value in seconds.items())


SKYRL = skyrl(
    generate=40, fwd_logprobs_values_reward=10, policy_train=29, train_critic_and_policy=30, sync_weights=4, step=85
)
SKYRL_ASYNC = skyrl(
    wait_for_generation_buffer=12,
    convert_to_training_input=1,
    fwd_logprobs_values_reward=10,
    train_critic_and_policy=30,
    run_training=40.5,
    sync_weights=4,
    step=58,
)
SKYRL_ONE_STEP = skyrl(generate=50, fwd_logprobs_values_reward=10, train_critic_and_policy=30, sync_weights=4, step=58)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(own_folder: Path) -> None:
    """Each test writes its log there."""


def logged(text: str, *args: Any, **more: Any) -> LoggedRun:
    Path("run.log").write_text(text, encoding="utf-8")
    return read_log(Path("run.log"), *args, **more)


def test_a_colocated_run_of_verl() -> None:
    """The first step is not counted; the old log probabilities are left out, and that is said."""
    steps = [VERL.format(n=n, gen=gen, step=step) for n, gen, step in ((1, 400, 700), (2, 150, 364), (3, 152, 366))]
    found = logged("\n".join(["starting", *(RAY + line for line in steps), "step:3 - val-core/reward:0.5"]), 64)
    assert (found.trainer, found.steps, found.sync) == ("verl", 2, 2.0)
    assert found.content() == {
        "runs": [{"cards": 64, "step": 365.0, "rollout": 151.0, "actor": 134.91}],
        "components": {"rollout": {}, "actor": {}},
    }
    assert any(note.startswith("left out: old_log_prob 70.26 s") for note in found.notes)
    assert "training: reward 1 s + adv 0.5 s + update_actor 133.4 s" in found.notes


def test_an_asynchronous_run_of_verl_whose_key_gen_is_the_wait() -> None:
    """The weights are sent after its step, in a line of its own; its other keys are sums over the parts of a batch."""
    text = "\n".join(line.format(n=n) for n in (1, 2, 3) for line in (FULLY_ASYNC, PARAM_SYNC))
    found = logged(text, 64, (32, 32), 0.5)
    assert found.content()["runs"] == [
        {"actor": 32, "rollout": 32, "staleness": 0.5, "step": 189.26, "wait": 28.46, "train": 157.48}
    ]
    assert found.sync == 2.36 and found.generation is None and found.steps == 2


def test_a_whole_batch_ahead_in_verl_tells_the_generation_too() -> None:
    found = logged(ONE_STEP_OFF.format(n=1), 64, (32, 32))
    assert found.content() == {
        "runs": [{"actor": 32, "rollout": 32, "step": 91.5, "wait": 20.0, "train": 70.0}],
        "components": {"rollout": {"seconds": {32: 80.0}}, "actor": {}},
    }


@pytest.mark.parametrize("step", ["", ", 'perf/step_time': 226.0"])
def test_slime_prints_rollout_and_training_apart(step: str) -> None:
    more = "'perf/sleep_time': 1.0, "
    lines = [SLIME_ROLLOUT, SLIME_TRAIN]
    found = logged("\n".join(line.format(n=n, more=more, step=step) for n in (0, 1) for line in lines), 64)
    assert found.content()["runs"] == [{"cards": 64, "step": 226.0, "rollout": 120.5, "actor": 95.5}]
    apart = logged("\n".join(line.format(n=n, more="", step=step) for n in (0, 1) for line in lines), 64, (32, 32), 1)
    assert apart.content() == {
        "runs": [{"actor": 32, "rollout": 32, "staleness": 1, "step": 226.0, "wait": 126.0, "train": 95.5}],
        "components": {"rollout": {"seconds": {32: 120.5}}, "actor": {}},
    }


def test_nemo_rl_prints_a_block_for_each_step() -> None:
    found = logged(NEMO_RL.format(n=1) + NEMO_RL.format(n=2), 32)
    assert found.trainer == "NeMo-RL" and found.steps == 1
    assert found.content()["runs"] == [{"cards": 32, "step": 91.0, "rollout": 40.1, "actor": 44.0}]
    apart = logged(NEMO_RL_ASYNC, 16, (8, 8), 1)
    assert apart.content()["runs"] == [
        {"actor": 8, "rollout": 8, "staleness": 1, "step": 74.6, "wait": 14.0, "train": 57.0}
    ]
    assert apart.sync == 3.0


def test_skyrl_prints_each_timer_before_its_step() -> None:
    found = logged("\n".join([SKYRL, SKYRL]), 8)
    assert found.content()["runs"] == [{"cards": 8, "step": 85.0, "rollout": 40.0, "actor": 40.0}]
    apart = logged(SKYRL_ASYNC, 8, (4, 4), 2)
    assert apart.content()["runs"] == [
        {"actor": 4, "rollout": 4, "staleness": 2, "step": 58.0, "wait": 12.0, "train": 40.0}
    ]
    ahead = logged(SKYRL_ONE_STEP, 8, (4, 4), 1)
    assert ahead.run.wait == 14 and ahead.generation == 50
    assert any(note.startswith("wait: what fwd_logprobs_values_reward, ") for note in ahead.notes)


@pytest.mark.parametrize(
    ("text", "split", "code", "message"),
    [
        ("nothing", None, "missing-times", "the log has no step with its times"),
        ("step:1 - timing_s/step:3.0", None, "missing-times", "have none of the times reward, ref, values"),
        ("step:1 - timing_s/step:3.0 - timing_s/update_actor:1.0", None, "missing-times", "none of the times gen"),
        (FULLY_ASYNC.format(n=1), None, "missing-key", "of a run on separate accelerators: it has fully_async"),
        (NEMO_RL_ASYNC, None, "missing-key", "it has exposed_generation, weight_sync"),
        (SKYRL_ASYNC, None, "missing-key", "it has run_training, wait_for_generation_buffer"),
        (VERL.format(n=1, gen=1, step=3), (4, 4), "invalid-value", "this log of verl is of a colocated run"),
        (NEMO_RL.format(n=1), (4, 4), "invalid-value", "this log of NeMo-RL is of a colocated run"),
    ],
)
def test_a_log_of_another_run_is_refused(text: str, split: Any, code: str, message: str) -> None:
    with pytest.raises(PlacementError) as caught:
        logged(text, 8, split)
    [fault] = caught.value.diagnostics
    assert fault.code == code and message in fault.message and fault.file == "run.log" and fault.help
    assert fault.help.isprintable()


def test_the_command_prints_a_run_to_paste() -> None:
    Path("run.log").write_text("\n".join(VERL.format(n=n, gen=151, step=365) for n in (1, 2, 3)))
    done = run("tune", "--log", "run.log", "--nodes", "8x8")
    assert done.exit_code == 0 and done.stdout.startswith("# verl: means of 2 steps\n# step: step 365 s\n")
    content = yaml.safe_load(done.stdout)
    assert content["runs"] == [{"cards": 64, "step": 365.0, "rollout": 151.0, "actor": 134.91}]
    Path("costs.yaml").write_text(f"async: {{rule: batch}}\n{done.stdout}")
    assert "32:32" in run("tune", "--costs", "costs.yaml", "--nodes", "8x8").stdout


def test_the_command_adds_the_run_to_costs() -> None:
    Path("run.log").write_text("\n".join(line.format(n=n) for n in (1, 2, 3) for line in (FULLY_ASYNC, PARAM_SYNC)))
    Path("costs.yaml").write_text("async: {rule: partial, staleness: [0.5, 1], samples: 8192}\n")
    options = ["--log", "run.log", "--split", "32:32", "--staleness", "0.5"]
    done = run("tune", "--costs", "costs.yaml", "--nodes", "8x8", *options)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert done.exit_code == 0 and rows[1][:4] == ["32:32", "0.5", "189", "s"] and rows[1][-1] == "measured"
    assert any(row[:2] == ["32:32", "1"] and row[-1] == "guess" for row in rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--log", "run.log"], "a log does not tell its accelerators"),
        (["--log", "run.log", "--split", "32"], "'32' is no split"),
        (["--log", "run.log", "--split", "0:8"], "'0:8' is no split"),
        (["--costs", "costs.yaml", "--nodes", "1x8", "--split", "4:4"], "--split and --staleness are of --log"),
    ],
)
def test_the_command_says_what_a_log_needs(options: list[str], message: str) -> None:
    Path("run.log").write_text(VERL.format(n=1, gen=1, step=3))
    done = run("tune", *options)
    assert done.exit_code == 2 and message in " ".join(done.stderr.split())


def _with_log(costs: str, *options: str) -> Any:
    Path("costs.yaml").write_text(costs)
    Path("v.log").write_text("\n".join(VERL.format(n=n, gen=150.72, step=365.28) for n in range(1, 4)))
    return run("tune", "--costs", "costs.yaml", "--log", "v.log", "--nodes", "8x8", *options)


@pytest.mark.parametrize("costs", ["components: [a, b]", "after: [actor]", "after: {actor: 5}", "runs: 5"])
def test_costs_of_another_form_are_faults_beside_a_log(costs: str) -> None:
    done = _with_log(f"async: {{rule: stream}}\n{costs}\n")
    assert done.exit_code == 1 and "error[" in done.stderr, done.output


@pytest.mark.parametrize(
    ("costs", "place"),
    [
        ("unit: none", "costs.yaml:2:7"),
        ("components: {actor: {seconds: {8: fast}}, rollout: {}}", "costs.yaml:2:35"),
        ("runs: [{accelerators: 64}]", "costs.yaml:2:9"),
        ("sharing: [sideways]", "costs.yaml:2:1"),
    ],
)
def test_a_fault_of_costs_beside_a_log_has_its_line(costs: str, place: str) -> None:
    done = _with_log(f"async: {{rule: stream}}\n{costs}\n")
    assert done.exit_code == 1 and f"--> {place}" in done.stderr, done.output


def test_the_run_of_a_log_has_the_names_of_the_costs() -> None:
    stated = "components: {learner: {}, sampler: {}}\nlend: {from: learner, to: sampler}\n"
    done = _with_log(f"async: {{rule: stream}}\n{stated}")
    assert done.exit_code == 0 and "actor" not in done.output, done.output


def test_options_of_a_search_need_costs() -> None:
    Path("v.log").write_text(VERL.format(n=1, gen=150.72, step=365.28))
    for options in (["conf.yaml"], ["--save", "y.json"], ["--format", "json"], ["--extrapolate"]):
        done = run("tune", "--log", "v.log", "--nodes", "8x8", *options)
        assert done.exit_code == 2 and "add --costs" in done.stderr and not Path("y.json").exists()

"""``rankplan pin`` on real raylets: programs that ask Ray for groups themselves, and get the nodes of the plan."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import ray
from rankplan import (
    Cluster,
    ClusterError,
    Costs,
    EmitOptions,
    Inventory,
    PlacementError,
    Plan,
    Request,
    emit,
    live,
    pin,
    pinned,
    plan,
)
from rankplan.launchers.exec.child import run_child
from rankplan.plans.topology import topology_faults
from rankplan.runtime.live.binding import Binding, check_nodes
from rankplan.runtime.nodes.processes import end, family
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.connection import head_of
from rankplan_hook.pins import NotPlanned
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from support.pinning import (
    ADDRESSES,
    FIRST,
    FOURTH,
    LATE,
    PROGRAM,
    RACKS,
    RETRIES,
    SECOND,
    THIRD,
    Bench,
    Machines,
    as_a_job,
    job_server,
    wait_until,
)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    folder = tempfile.mkdtemp(prefix="rpp-", dir="/tmp")
    before = {name: os.environ.get(name) for name in ("RAY_TMPDIR", "RAY_AUTH_MODE")}
    os.environ.update(RAY_TMPDIR=folder, RAY_AUTH_MODE="disabled")
    found = Machines(Path(folder) / "driver")
    try:
        yield found
    finally:
        found.shutdown()
        end(family(f"RAY_TMPDIR={folder}"), 5.0)
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture
def bench(machines: Machines, tmp_path: Path) -> Bench:
    head = head_of(str(machines.address))

    def is_free() -> bool:
        tables = head.tables()
        totals = [node.resources["GPU"] for node in tables.nodes if node.alive and "GPU" in node.resources]
        return sum(free.get("GPU", 0) for free in tables.free.values()) == sum(totals)

    wait_until(is_free)  # the programs of other tests have ended
    return Bench(tmp_path, str(machines.address))


def test_two_programs_get_the_nodes_of_their_plans(bench: Bench) -> None:
    """One by bash and ``-m`` with a whole environment of its own, one with the other's node left out."""
    script = bench.folder / "train.sh"
    words = bench.command("one", 2)
    script.write_text(f"set -e\n{sys.executable} -m {words[0][:-3]} {' '.join(map(repr, words[1:]))}\n")
    with bench.running("--format", "json", "-o", "report", "--", "bash", "train.sh") as first:
        assert bench.nodes("one") == [FIRST] * 2
        words = ["--peaks", "two.yaml", "--", sys.executable, *bench.command("two", 2)]
        with bench.running(*words, HOLD="yes") as second:
            assert bench.nodes("two") == [SECOND] * 2
            time.sleep(2 * timeouts.LOOK)
            second.send_signal(signal.SIGTERM)
            _, told = second.communicate()
        assert second.returncode, told
        assert "two.yaml: the program was interrupted after " in told
        assert Costs.load(bench.folder / "two.yaml").peaks["actor"][0].used == 3000 << 20
        assert f"other jobs hold accelerators, which the plan leaves out: {FIRST}: 0-1" in told
        assert "groups: 1 of 1 pinned" in told
        bench.go("one")
        out, told = first.communicate()
    assert (first.returncode, out) == (0, ""), told
    report = json.loads((bench.folder / "report").read_text())
    assert report["returncode"] == 0 and report["pinned"] == report["groups"] == 1 and report["faults"] == []
    if report["ranks"] is not None:  # else the program ended before it was looked at
        assert report["on_nodes"] == report["on_accelerators"] == report["ranks"]


def test_the_plan_that_is_shown_is_the_one_that_is_bound(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """What another job holds counts, and Ray's ids of the nodes: SkyRL sorts the bundles of its engines by them."""
    keys = "trainer.placement.colocate_all=true generator.inference_engine.num_engines=4"
    keys += " generator.inference_engine.tensor_parallel_size=1"
    keys += "".join(f" trainer.placement.{name}_num_nodes=2" for name in ("policy", "ref"))
    keys += "".join(f" trainer.placement.{name}_num_gpus_per_node=2" for name in ("policy", "ref"))
    left_out = f"other jobs hold accelerators, which the plan leaves out: {FIRST}: 0-1"
    (skyrl := bench.folder / "skyrl.sh").write_text(f"python3 -m skyrl.train.entrypoints.main_base {keys}\n")
    with bench.running("--", sys.executable, *bench.command("other", 2)) as other:
        assert bench.nodes("other") == [FIRST] * 2
        for config in (bench.config, skyrl):
            saved = bench.folder / f"{config.name}.json"
            words = ["plan", str(config), "--pinned", "--ray", bench.address, "--save", str(saved)]
            done = subprocess.run([sys.executable, "-m", "rankplan", *words], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert left_out in done.stderr
            shown = Plan.load(saved)
            assert shown == pin(config, ["true"], ray=bench.address).plan
            caplog.clear()
            with Cluster(address=bench.address) as cluster:
                assert plan(config, cluster, pinned=True) == shown
            assert caplog.messages.count(left_out) == 1
            job = {"job": config.name, "nodes": {"ray": bench.address}}
            (bench.folder / "run.job.yaml").write_text(json.dumps(job))
            assert plan(bench.folder / "run.job.yaml", pinned=True).inventory == shown.inventory
            used = {str(shown.inventory.node(node).ip) for one in shown.requests for node in one.nodes}
            assert used == ({SECOND} if config == bench.config else {SECOND, THIRD})
        bench.go("other")
        _, told = other.communicate()
    assert other.returncode == 0, told


def test_a_saved_plan_exchanges_its_nodes_and_a_job_uses_its_own(bench: Bench) -> None:
    """The plan names no nodes; the head has no accelerators, and verl sorts the others as text.

    A job file names its command, the nodes of the cluster that it may use, and those of a kind by their ranks there.
    """
    plan(bench.sized(2, 2), "2x2", pinned=True).save(bench.folder / "plan.json")
    words = ["--save", "ran.json", "--", sys.executable, *bench.command("saved", 2, 2)]
    with bench.running(*words, config=bench.folder / "plan.json") as process:
        assert bench.nodes("saved") == [SECOND] * 2 + [FIRST] * 2
        seen = live(bench.address, bench.folder / "ran.json")
        bench.go("saved")
        _, told = process.communicate()
    assert process.returncode == 0, told
    assert f"node rank 0: {FIRST} -> {SECOND}" in told and f"node rank 1: {SECOND} -> {FIRST}" in told
    ran = Plan.load(bench.folder / "ran.json")
    assert [ran.inventory.node(rank).ip for rank in range(2)] == [SECOND, FIRST]
    assert seen.compared is not None and seen.compared.on_nodes == seen.compared.ranks > 0 and not seen.differences

    (bench.folder / "nodes.yaml").write_text(
        f"nodes: [{{ranks: 0, ip: {FIRST}, accelerators: 2}}, {{ranks: 1, ip: {THIRD}, accelerators: 2}},\n"
        f"        {{ranks: 2, ip: {SECOND}, accelerators: 2}}]\n"
    )
    kind = {"label": "kind", "node_ranks": "1-2", "components": ["actor", "rollout"]}
    command = shlex.join([sys.executable, *bench.command("job", 2, 2)])
    job = {"job": "verl-2.yaml", "nodes": "nodes.yaml", "node_groups": [kind], "command": f"cd . && {command}"}
    (bench.folder / "run.job.yaml").write_text(json.dumps(job))
    with bench.running(config=bench.folder / "run.job.yaml") as process:
        assert bench.nodes("job") == [SECOND] * 2 + [THIRD] * 2
        bench.go("job")
        _, told = process.communicate()
    assert process.returncode == 0 and "groups: 2 of 2 pinned" in told, told


def test_a_console_script_in_a_submitted_job_with_actors_without_groups(bench: Bench) -> None:
    """OpenRLHF with one GPU per node, from a saved plan whose nodes are in an order of their own.

    The plan has each role on a kind of node, which OpenRLHF itself cannot have.
    """
    nodes = [{"ranks": rank, "ip": ip, "accelerators": 2} for rank, ip in enumerate((SECOND, THIRD, FIRST))]
    flags = "--vllm.num_engines 1 --vllm.tensor_parallel_size 2 --actor.num_nodes 2 --actor.num_gpus_per_node 1"
    rest = "--algo.kl.init_coef 0 --reward.remote_url http://r --algo.advantage.estimator rloo"
    (bench.folder / "run.sh").write_text(f"python3 -m openrlhf.cli.train_ppo_ray {flags} {rest}\n")
    Inventory.from_dict({"nodes": nodes}).save(bench.folder / "nodes.yaml")
    kinds = [
        {"label": "big", "node_ranks": 2, "components": ["actor"]},
        {"label": "small", "node_ranks": "0-1", "components": ["vllm"]},
    ]
    job_file = {"job": "run.sh", "nodes": "nodes.yaml", "exclude": [SECOND], "node_groups": kinds}
    (bench.folder / "run.job.yaml").write_text(json.dumps(job_file))
    planned = plan(bench.folder / "run.job.yaml", pinned=True)
    planned.save(bench.folder / "plan.json")
    (program := bench.folder / "train-it").write_text(
        f"#!{sys.executable}\nimport runpy\nrunpy.run_path('alone.py', run_name='__main__')\n"
    )
    program.chmod(0o755)
    job = as_a_job(bench.address, {"env_vars": {"OF_THE_JOB": "1"}}, {"of": "the job"})
    path = os.pathsep.join([str(bench.folder), os.environ["PATH"]])
    words = ["--verbose", "--peaks", "costs.yaml", "--", "train-it", *bench.command("alone")[1:]]
    with bench.running(*words, config=bench.folder / "plan.json", PATH=path, **job) as process:
        places = bench.nodes("alone")
        assert process.stderr is not None and process.stdout is not None
        report = "".join(until(process.stderr, "started in"))
        bench.go("alone")
        report += process.stderr.read()  # not by communicate(), which ignores what has been read ahead
        code, out = process.wait(), process.stdout.read()
    assert "left running: detached placement group 'engines'; remove it with" in report, report
    cure = report[report.index("left running") :].splitlines()[1]
    subprocess.run(cure, shell=True, check=True, capture_output=True, env={**os.environ, "RAY_ADDRESS": bench.address})
    assert not [group for group in head_of(bench.address).tables().groups if group.name == "engines"]
    assert (code, out) == (0, ""), report
    engine, actors = planned.requests
    assert actors.strategy is None and (*engine.nodes, *actors.nodes) == (1, 1, 2, 2)
    assert places == [[(SECOND, THIRD, FIRST)[node], "1"] for node in (*engine.nodes, *actors.nodes)]
    assert "memory of vllm: at most 4.9 of 79.6 GiB of an accelerator" in report, report
    costs = Costs.load(bench.folder / "costs.yaml")
    assert {name: [(peak.used, peak.of) for peak in peaks] for name, peaks in costs.peaks.items()} == {
        "actor": [(3000 << 20, 81559 << 20)],
        "vllm": [(5000 << 20, 81559 << 20)],
    }
    assert report.count("3 of 3 ranks on their nodes, ") == 1 and "groups and actors: 3 of 3 pinned" in report, report
    assert "wraps ray.util.placement_group.placement_group, " in report
    assert f"request 1: actor, 2 bundles of 1 without a group: node {actors.nodes[0]} (" in report


def until(lines: Iterable[str], part: str) -> Iterator[str]:
    """The lines up to one with this part."""
    for line in lines:
        yield line
        if part in line:
            return


def test_a_program_can_submit_a_job_that_asks_for_the_groups(bench: Bench) -> None:
    entrypoint = shlex.join([sys.executable, *bench.command("job", 2)])
    with job_server(bench.address, bench.folder) as url:
        words = ["--", sys.executable, "submits.py", entrypoint, str(bench.folder / "done")]
        with bench.running(*words, RAY_API_SERVER_ADDRESS=url) as process:
            assert bench.nodes("job") == [FIRST] * 2
            bench.go("job")
            _, told = process.communicate()
    assert process.returncode == 0 and "groups: 1 of 1 pinned" in told, told


def test_a_job_that_outlives_its_pin_is_refused(bench: Bench) -> None:
    """As by ``ray job submit --no-wait``: the job starts when ``rankplan pin`` has ended and removed its plan."""
    start, said, code, done = (bench.folder / name for name in ("start", "said", "code", "done"))
    done.touch()
    bench.go("late-job")
    program = shlex.join([sys.executable, *bench.command("late-job", 2)])
    entrypoint = f"until [ -e {start} ]; do sleep 0.1; done; {program} 2> {said}; echo $? > {code}"
    with job_server(bench.address, bench.folder) as url:
        words = ["--", sys.executable, "submits.py", entrypoint, str(done)]
        with bench.running(*words, RAY_API_SERVER_ADDRESS=url) as process:
            _, told = process.communicate()
        assert process.returncode == 1 and "error[not-pinned]: no Ray job of the command joined" in told, told
        start.touch()
        wait_until(lambda: code.exists() and code.read_text())
    assert code.read_text() == "1\n", "it ran without its plan"
    assert said.read_text().startswith("error[not-pinned]: this job belongs to run "), said.read_text()
    assert not (bench.folder / "late-job").exists()


def test_a_request_that_the_plan_lacks_is_refused_at_the_call(bench: Bench) -> None:
    with bench.running("--", sys.executable, *bench.command("big", 1, 1)) as process:
        _, told = process.communicate()
    assert process.returncode == 1
    refused = "error[plan-mismatch]: placement group `global_poolverl_group_1_1:0` asks for 1 bundle of 1 accelerator"
    assert told.count(f"{refused}; the plan has left: actor 2 bundles of 1") == 2, "by the program, and by the command"
    asks = PROGRAM.splitlines().index(next(line for line in PROGRAM.splitlines() if "placement_group([" in line)) + 1
    assert told.count(f"--> {bench.folder / 'program.py'}:{asks}\n") == 2, told
    assert "Traceback" not in told, told


def test_what_the_plan_lacks_can_go_to_what_it_leaves_free(bench: Bench) -> None:
    bench.go("more")
    with bench.running("--others", "pass", "--", sys.executable, *bench.command("more", 1, 1)) as process:
        nodes = bench.nodes("more")
        _, told = process.communicate()
    assert FIRST not in nodes
    assert process.returncode == 1 and "the command did not ask for actor 2 bundles of 1" in told


def test_a_python_that_ignores_the_hook_is_reported(bench: Bench) -> None:
    with bench.running("--", sys.executable, "-I", "direct.py") as process:
        _, told = process.communicate()
    assert process.returncode == 1
    assert "error[not-pinned]: placement group `global_poolverl_group_2:0` was created without the hook" in told


def test_peaks_need_a_driver_on_every_node_before_the_program_starts(bench: Bench, machines: Machines) -> None:
    (broken := machines.uses(2) / "broken").touch()
    try:
        with pytest.raises(ClusterError, match=rf"on every node of the plan: node 1 \({FIRST}\): NVML does not start"):
            pin(
                bench.config, ["touch", str(bench.folder / "ran")], ray=bench.address, peaks=bench.folder / "costs.yaml"
            )
    finally:
        broken.unlink()
    assert not list(bench.folder.glob("ran")) and not list(bench.folder.glob("costs.yaml"))


def test_signals_reach_the_command_and_a_killed_pin_leaves_it_pinned(bench: Bench) -> None:
    program = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print('up', flush=True); time.sleep(99)"
    )
    with bench.running("--", sys.executable, "-c", program) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 7
    waits = f"import time, os\nwhile not os.path.exists({str(bench.folder / 'start')!r}): time.sleep(0.05)\n"
    (bench.folder / "late.py").write_text(waits + PROGRAM)
    words = bench.command("late", 2)
    head = head_of(bench.address)
    with bench.running("--", sys.executable, "-u", "late.py", *words[1:]) as process:
        wait_until(lambda: b"late.py" in children(process.pid))
        live(bench.address)
        process.kill()
        process.wait()
        live(bench.address)
        assert head.keys(""), "the program runs, and may ask"
        (bench.folder / "start").touch()
        assert bench.nodes("late") == [FIRST] * 2
        live(bench.address)
        assert head.keys(""), "the job runs, and may ask"
        bench.go("late")
    wait_until(lambda: live(bench.address) and not head.keys(""))


def children(pid: int) -> bytes:
    """The command lines of the processes that a process has started."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return b" ".join(Path(f"/proc/{child}/cmdline").read_bytes() for child in found)
    except OSError:
        return b""


def test_a_group_that_ray_cannot_place_is_named_with_its_node(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job takes the node between the look and the request."""
    monkeypatch.setattr(timeouts, "WAITING", 0.5)
    monkeypatch.chdir(bench.folder)
    ray.init(address=bench.address, logging_level="ERROR", log_to_driver=False)
    (node,) = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeManagerAddress"] == FIRST]
    others: list[Any] = []
    told: list[str] = []

    def started(*arguments: Any) -> int:
        others.append(placement_group([{"GPU": 2}], bundle_label_selector=[{"ray.io/node-id": node}]))
        return run_child(*arguments)

    def tell(what: Any) -> None:
        told.append(str(what))
        if "waits" in told[-1]:
            remove_placement_group(others.pop())

    monkeypatch.setattr("rankplan.runtime.live.pinned.run_child", started)
    try:
        bench.go("wait")
        ran = pin(bench.config, [sys.executable, *bench.command("wait", 2)], ray=bench.address, tell=tell)
    finally:
        ray.shutdown()
    assert ran.returncode == 0 and bench.nodes("wait") == [FIRST] * 2
    waits = "placement group `global_poolverl_group_2:0` waits for 2 accelerators of node 1"
    assert told[-1].startswith(f"{waits} ({FIRST}), which has 0 free"), told


def test_a_program_can_bind_its_own_groups(bench: Bench) -> None:
    ray.init(address=bench.address, logging_level="ERROR", log_to_driver=False)
    try:
        ids = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        plain = ray.util.placement_group
        with pinned(bench.sized(2, 2)) as binding:
            with pytest.raises(
                NotPlanned, match=r"and 80 CPUs on node 1 of the plan, which has 16; the plan has 6 CPUs"
            ):
                ray.util.placement_group([{"GPU": 1, "CPU": 40}] * 2, "STRICT_PACK", "global_poolverl_group_2_2:0")
            assert [binding.name(node) for node in (1, 2)] == [f"node 1 ({SECOND})", f"node 2 ({FIRST})"]
            # verl sorts them as text: 127.0.0.10 is before 127.0.0.9
            for index, address in enumerate((SECOND, FIRST)):
                group = ray.util.placement_group([{"GPU": 1}] * 2, "STRICT_PACK", f"global_poolverl_group_2_2:{index}")
                ray.get(group.ready())
                assert {ids[node] for node in placement_group_table(group)["bundles_to_node_id"].values()} == {address}
                with pytest.raises(NotPlanned, match="asks for 1 bundle of 1 accelerator"):
                    ray.util.placement_group([{"GPU": 1}])
                remove_placement_group(group)
        assert ray.util.placement_group is plain and "RANKPLAN_PINS" not in os.environ
        with (
            pytest.raises(PlacementError, match="the program did not ask for actor 2 bundles of 1"),
            pinned(bench.config),
        ):
            pass
        with pytest.raises(PlacementError) as unbound, pinned(bench.sized(2, 2)):
            group = plain([{"GPU": 1}] * 2, "STRICT_PACK", "mine")  # a local name keeps what it was given
        remove_placement_group(group)
        missing, imported = unbound.value.diagnostics
        assert missing.code == "plan-mismatch" and "did not ask for actor 2 bundles of 1 (2 groups)" in missing.message
        assert imported.code == "not-pinned" and imported.message.startswith(
            "placement group `mine` is not bound: a func"
        )
    finally:
        ray.shutdown()


def test_every_node_needs_the_hook_and_the_same_ray(
    bench: Bench, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.folder / "sitecustomize.py").write_text("import sys\nsys.modules['rankplan_hook'] = None\n")
    without = os.pathsep.join([str(bench.folder), os.environ.get("PYTHONPATH", "")])
    late = machines.add_node(
        num_cpus=2, node_ip_address=LATE, object_store_memory=80 << 20, env_vars={"PYTHONPATH": without}
    )
    ray.init(address=bench.address, logging_level="ERROR", log_to_driver=False)
    try:
        with pytest.raises(PlacementError, match=f"node {LATE} .* lacks rankplan_hook") as caught:
            pin(bench.config, ["true"], ray=bench.address)
        assert [fault.code for fault in caught.value.diagnostics] == ["hook-missing"]
        machines.remove_node(late)
        wait_until(lambda: not alive(bench.address, LATE))
        ran = pin(bench.config, ["true"], ray=bench.address)
        assert ran.returncode == 1 and [fault.code for fault in ran.faults] == ["not-pinned"]
        assert ran.faults[0].message.startswith("no Ray job of the command joined the cluster at ")
        monkeypatch.setattr(ray, "__version__", "2.59.1")
        with pytest.raises(ClusterError, match=r"several versions of Ray: this program has 2\.59\.1, 127\."):
            pin(bench.config, ["true"], ray=bench.address)
    finally:
        ray.shutdown()


def test_a_node_that_runs_no_task_is_not_called_a_node_without_the_hook(
    bench: Bench, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "ENVIRONMENT", 2.0)
    late = machines.add_node(num_cpus=2, node_ip_address=LATE, object_store_memory=80 << 20)
    raylet = late.all_processes["raylet"][0].process
    ray.init(address=bench.address, logging_level="ERROR", log_to_driver=False)
    try:
        raylet.send_signal(signal.SIGSTOP)
        with pytest.raises(ClusterError) as caught:
            check_nodes()
        message = str(caught.value)
        assert message.startswith("cannot check the nodes for rankplan_hook: ")
        of_living = rf"{LATE} \(\S+\) did not run the task within 2 s"
        of_dead = rf"the task on {LATE} \(\S+\) could not start"
        assert re.search(f"{of_living}|{of_dead}", message)
    finally:
        raylet.send_signal(signal.SIGCONT)
        ray.shutdown()
        machines.remove_node(late)
        wait_until(lambda: not alive(bench.address, LATE))


TRAINERS = {
    "verl.yaml": (
        "trainer: {nnodes: 4, n_gpus_per_node: 2}\nalgorithm: {adv_estimator: grpo}\n"
        "actor_rollout_ref: {rollout: {tensor_model_parallel_size: 4}}\n"
    ),
    "slime.yaml": (
        "actor_num_nodes: 4\nactor_num_gpus_per_node: 2\nnum_gpus_per_node: 2\ncolocate: true\n"
        "rollout_num_gpus: 8\nrollout_num_gpus_per_engine: 4\n"
    ),
    "roll.yaml": (
        "num_gpus_per_node: 2\n"
        "actor_train: {device_mapping: 'list(range(0,8))', strategy_args: {strategy_name: megatron_train}}\n"
        "actor_infer:\n  device_mapping: list(range(0,8))\n"
        "  strategy_args: {strategy_name: vllm, strategy_config: {tensor_parallel_size: 4}}\n"
    ),
    "areal.yaml": (
        "cluster: {n_nodes: 4, n_gpus_per_node: 2}\n"
        "rollout: {backend: 'sglang:d2t2', scheduling_spec: [{cpu: 1, mem: 1}]}\n"
        "actor: {backend: 'megatron:t2p2', scheduling_spec: [{cpu: 1, mem: 1}]}\n"
    ),
    "nemo_rl.yaml": (
        "cluster: {num_nodes: 4, gpus_per_node: 2}\npolicy:\n  generation:\n    backend: vllm\n"
        "    colocated: {enabled: false, resources: {num_nodes: 2, gpus_per_node: 2}}\n"
        "    vllm_cfg: {tensor_parallel_size: 4}\n"
    ),
    "openrlhf.sh": (
        "python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 2 --actor.num_gpus_per_node 2 "
        "--ref.num_nodes 2 --ref.num_gpus_per_node 2 --vllm.num_engines 2 --vllm.tensor_parallel_size 2 "
        "--reward.remote_url http://rewards:5000 --algo.advantage.estimator rloo --train.colocate_all\n"
    ),
    "skyrl.sh": (
        "python3 -m skyrl.train.entrypoints.main_base trainer.placement.colocate_all=false "
        "trainer.placement.policy_num_nodes=2 trainer.placement.policy_num_gpus_per_node=2 "
        "trainer.placement.ref_num_nodes=2 trainer.placement.ref_num_gpus_per_node=2 "
        "generator.inference_engine.num_engines=1 generator.inference_engine.tensor_parallel_size=4\n"
    ),
}
"""A job of each trainer that `pin` binds: on four nodes, of which a component needs two in one rack."""
KEPT = {
    "verl.yaml": {"rollout": {"tp": "rack"}},
    "slime.yaml": {"rollout": {"tp": "rack"}},
    "roll.yaml": {"actor_infer": {"tp": "rack"}},
    "nemo_rl.yaml": {"generation": {"tp": "rack"}},
    "areal.yaml": {"actor": {"world": "rack"}},
    "openrlhf.sh": {"actor": {"world": "rack"}},
    "skyrl.sh": {"policy": {"world": "rack"}},
}
SORTED: dict[str, Callable[[str], Any]] = {"verl.yaml": str, "slime.yaml": lambda ip: int(ip.rpartition(".")[2])}
"""How two trainers sort all nodes: by addresses as text, and as numbers."""


def test_pods_with_addresses_in_any_order_keep_the_rules(bench: Bench, machines: Machines) -> None:
    """The end of the journey of a job: the plan of an emitted file, on a head without accelerators and four pods.

    It ends on the plan, or on an exchange: what must stay in a rack does, by the labels that the nodes show.
    """
    fourth = machines.start(ADDRESSES.index(FOURTH))
    wait_until(lambda: alive(bench.address, FOURTH))
    addresses = (FIRST, SECOND, THIRD, FOURTH)
    nodes: list[dict[str, Any]] = [{"ranks": rank, "hostname": f"n{rank}", "accelerators": 2} for rank in range(4)]
    for rank, node in enumerate(nodes):
        node["labels"] = {"rack": "xy"[rank % 2]}
    level = {"name": "rack", "label": "example.com/rack"}
    (bench.folder / "nodes.json").write_text(json.dumps({"levels": [level], "nodes": nodes}))
    ray.init(address=bench.address, logging_level="ERROR", log_to_driver=False)
    try:
        ids = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        for name, text in TRAINERS.items():
            (bench.folder / name).write_text(text)
            job = {"job": name, "nodes": "nodes.json", "command": "python3 train.py", "topology": {"keep": KEPT[name]}}
            (bench.folder / "run.job.yaml").write_text(json.dumps(job))
            emitted = bench.folder / "ray.yaml"
            of_job = plan(bench.folder / "run.job.yaml", pinned=True)
            emitted.write_text(emit(of_job, "kuberay", EmitOptions(queue="q")))
            of_file = plan(emitted)
            for order in list(permutations(addresses))[:: 1 if name in SORTED else 5]:
                records = [of_file.inventory.node(rank).changed(ip=ip) for rank, ip in enumerate(order)]
                with pinned(of_file.fitted(of_file.inventory.updated(records))) as binding:
                    check_exchange(name, order, binding)
                    groups = [asked_for(request) for request in binding.plan.requests if request.nodes]
                    used = [request for request in binding.plan.requests if request.nodes]
                    there = [str(binding.plan.inventory.node(rank).ip) for rank in range(4)]
                    for request, group in zip(used, groups, strict=True):
                        bundles = sorted(placement_group_table(group)["bundles_to_node_id"].items())
                        assert [ids[node] for _, node in bundles] == [there[node] for node in request.nodes]
                    for group in groups:
                        remove_placement_group(group)
                wait_until(lambda: ray.available_resources().get("GPU") == 8)
    finally:
        ray.shutdown()
        machines.remove_node(fourth, allow_graceful=False)
        wait_until(lambda: not alive(bench.address, FOURTH))


def check_exchange(trainer: str, order: Sequence[str], binding: Binding) -> None:
    """The nodes are those of the cluster, in the trainer's order; the rules hold, and each exchange is told."""
    found = binding.plan
    assert found.rules.topology()["keep"] == KEPT[trainer] and found.inventory.levels == ("rack",)
    assert not list(topology_faults(found.rules, dict(found), found.inventory))
    there = [str(found.inventory.node(rank).ip) for rank in range(4)]
    assert sorted(there) == sorted(order)
    if trainer in SORTED:
        assert there == sorted(order, key=SORTED[trainer])
    assert [found.inventory.node(rank).labels["rack"] for rank in range(4)] == [RACKS[ip] for ip in there]
    moved = {rank: ip for rank, ip in enumerate(there) if order[rank] != ip}
    assert {rank: now for rank, (_, now) in binding.moved.items()} == moved


def asked_for(request: Request) -> Any:
    """Ask Ray for a group as the trainer does, and wait for it."""
    bundles = [{"CPU": 1, "GPU": count} for count in request.accelerators]
    name = re.sub(r"\((\w+)\|[^)]*\)", r"\1", (request.name or "").removeprefix("(.*_)?"))  # one that a pattern allows
    group = ray.util.placement_group(bundles, str(request.strategy), name)
    ray.get(group.ready())
    return group


def test_a_lost_node_is_reported_and_not_asked_for_again(bench: Bench, machines: Machines) -> None:
    """Last in this file: the node does not come back."""
    (bench.folder / "program.py").write_text(RETRIES)
    with bench.running("--", sys.executable, *bench.command("lost", 2)) as process:
        assert bench.nodes("lost") == [FIRST]
        (node,) = [node for node in machines.worker_nodes if node.node_ip_address == FIRST]
        machines.remove_node(node, allow_graceful=False)
        wait_until(lambda: not alive(bench.address, FIRST))
        bench.go("lost")
        out, told = process.communicate()
    lost = f"node 1 ({FIRST}) of the plan has left the cluster"
    assert process.returncode == 1 and f"error[node-lost]: {lost}, with 2 ranks of actor" in told, told
    assert lost in out, out


def alive(address: str, node: str) -> bool:
    return any(one.alive and one.address == node for one in head_of(address).tables().nodes)

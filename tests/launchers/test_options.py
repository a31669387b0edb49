"""Options of `rankplan emit`: what they write, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from rankplan import EmitOptions, Inventory, PlacementError
from rankplan.launchers.embedded import digest
from support.commands import run
from support.launchers import documents, object_of, planned
from support.schemas.validate import faults

TWO = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "all"}}}
NAMED = {"nodes": [{"ranks": rank, "accelerators": 8, "hostname": f"gpu-{rank}"} for rank in (0, 1)]}

IMAGES = {"jobset": "a:1", "lws": "a:1"}


def plan_of(config: dict[str, Any] = TWO, nodes: dict[str, Any] = NAMED) -> rankplan.Plan:
    return rankplan.plan(config, Inventory.from_dict(nodes))


def test_pinned_pods_select_their_hosts(tmp_path: Path) -> None:
    text = rankplan.emit(plan_of(), "jobset", EmitOptions(command="python {}.py", image="a:1", pin=True))
    jobs = object_of(text, "JobSet")["spec"]["replicatedJobs"]
    assert [job["name"] for job in jobs] == ["actor-0", "actor-1"]
    hosts = [job["template"]["spec"]["template"]["spec"]["nodeSelector"] for job in jobs]
    assert hosts == [{"kubernetes.io/hostname": "gpu-0"}, {"kubernetes.io/hostname": "gpu-1"}]
    assert "gpu-0" not in object_of(text, "ConfigMap")["data"]["plan.json"]
    (file := tmp_path / "train.yaml").write_text(text)
    assert [rankplan.plan(file).inventory.node(rank).hostname for rank in (0, 1)] == ["gpu-0", "gpu-1"]
    assert rankplan.emit(file, "jobset") == text
    file.write_text(text.replace("kubernetes.io/hostname: gpu-1", "kubernetes.io/hostname: gpu-7"))
    assert rankplan.plan(file).inventory.node(1).hostname == "gpu-7"  # the only place of this fact


@pytest.mark.parametrize("length", range(1, 64))
def test_a_job_set_of_any_name_that_is_written_is_accepted(length: int) -> None:
    """Its webhook refuses pods, and the address of the coordinator, of more than 63 characters."""
    options = EmitOptions(command="python {}.py", image="a:1", name="n" * length)
    try:
        text = rankplan.emit(plan_of(), "jobset", options)
    except PlacementError as error:
        assert error.diagnostics[0].code == "emit-name" and length > 40
        return
    job = object_of(text, "JobSet")
    assert faults(job)[1] == [] and length <= 63 - len("-actor-0-1-abcde")
    pod = f"{options.name}-actor-0-0.{options.name}"
    assert ("coordinator" in job["spec"]) == (len(pod) <= 63)
    assert f"actor={pod}:29500" in str(job)  # the rendezvous of the ranks


def test_a_queue_of_two_vendors_takes_the_quota_of_cpus_once() -> None:
    """Kueue allows a resource in one group only."""
    labels = {"example.com/rack": "a"}
    kinds = ["NV_GPU", "AMD_GPU"]
    nodes = [
        {"ranks": rank, "accelerators": 8, "accelerator_type": kind, "labels": labels}
        for rank, kind in enumerate(kinds)
    ]
    config = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "0-7"}}}
    plan = plan_of(config, {"levels": ["example.com/rack"], "nodes": nodes})
    queue = next(one for one in documents(rankplan.emit(plan, "kueue")) if one["kind"] == "ClusterQueue")
    assert faults(queue)[1] == []
    (group,) = queue["spec"]["resourceGroups"]
    assert group["coveredResources"] == ["nvidia.com/gpu", "amd.com/gpu"]
    quotas = [[one["nominalQuota"] for one in flavor["resources"]] for flavor in group["flavors"]]
    assert quotas == [["8", "0"], ["0", "8"]]


def test_a_cluster_stays_and_has_no_entrypoint(tmp_path: Path) -> None:
    text = rankplan.emit(plan_of(), "kuberay", EmitOptions(image="a:1", kind="cluster", queue="gold", name="team"))
    (plan, cluster) = documents(text)
    assert (cluster["kind"], cluster["metadata"]["name"], plan["metadata"]["name"]) == (
        "RayCluster",
        "team",
        "team-plan",
    )
    assert cluster["spec"]["suspend"] is True and "entrypoint" not in cluster["spec"]
    (file := tmp_path / "train.yaml").write_text(text)
    assert rankplan.emit(file, "kuberay") == text
    # the pods are nodes, also for another config
    assert rankplan.plan(TWO, file) == rankplan.plan(TWO, "2x8")


def test_another_launcher_takes_the_plan_of_a_file(tmp_path: Path) -> None:
    (file := tmp_path / "train.yaml").write_text(
        rankplan.emit(plan_of(), "kuberay", EmitOptions(entrypoint="x", image="a:1"))
    )
    text = rankplan.emit(file, "jobset", EmitOptions(command="python {}.py", image="b:1"))
    assert text == rankplan.emit(plan_of(), "jobset", EmitOptions(command="python {}.py", image="b:1"))


NAMES = [
    ("kuberay", "a" * 48, "job {} is too long: {} has 48 characters, at most 47 are allowed"),
    ("kuberay", "Train", "job Train is not a DNS label"),
    ("kuberay", "1st", "job 1st is not a DNS label"),
    ("jobset", "a" * 48, "job {} is too long: {}-actor-0-1-abcde has 64 characters, at most 63 are allowed"),
    ("lws", "a" * 51, "job {} is too long: {}-0-0123456789 has 64 characters, at most 63 are allowed"),
]


@pytest.mark.parametrize(("target", "name", "message"), NAMES)
def test_names_that_kubernetes_refuses(target: str, name: str, message: str) -> None:
    given: dict[str, Any] = {"entrypoint": "x"} if target == "kuberay" else {"command": "x"}
    with pytest.raises(PlacementError) as refused:
        rankplan.emit(plan_of(), target, EmitOptions(name=name, image="a:1", **given))
    assert [one.message for one in refused.value.diagnostics] == [message.format(name, name)]
    if "long" in message:
        documents(rankplan.emit(plan_of(), target, EmitOptions(name=name[:-1], image="a:1", **given)))


def test_every_fact_that_a_launcher_cannot_hold_is_an_error_at_once() -> None:
    labels = {"rack": "a"}
    nodes = {"nodes": [{"ranks": 0, "accelerators": 8, "accelerator_type": "MUSA_GPU", "labels": labels}]}
    nodes["nodes"] += [{"ranks": "1-2", "accelerators": 8, "labels": labels}]
    config = {
        "cluster": {
            "num_nodes": 3,
            "topology": {"levels": ["rack"], "segment": {"actor": 2}},
            "component_placement": {"actor": "8-23", "rollout": "0-7"},
        }
    }
    plan = rankplan.plan(config, Inventory.from_dict(nodes))
    with pytest.raises(PlacementError) as refused:
        rankplan.emit(plan, "lws", EmitOptions(command="x", name="No", namespace="Team"))
    codes = {one.code for one in refused.value.diagnostics}
    assert codes == {"emit-uneven", "emit-resource-key", "emit-level-key", "emit-needs-queue", "emit-name"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "jobset"], "actor has no command; pass --command 'actor=COMMAND'"),
        (["--to", "jobset", "--command", "critic=x"], "unknown component 'critic'; the components are: actor"),
        (
            ["--to", "torchrun", "--entrypoint", "x"],
            "torchrun starts a command per component; use --command, not --entrypoint",
        ),
        (["--to", "kuberay", "--command", "x"], "kuberay starts one driver; use --entrypoint, not --command"),
        (["--to", "kuberay"], "kuberay needs --entrypoint COMMAND, or --kind cluster"),
        (
            ["--to", "kuberay", "--kind", "cluster", "--entrypoint", "x"],
            "a RayCluster has no entrypoint",
        ),
        (["--to", "kueue", "--kind", "cluster"], "only kuberay takes --kind"),
        (["--to", "kueue", "--entrypoint", "x"], "kueue starts no job; remove --entrypoint\n"),
        (["--to", "kueue", "--command", "x"], "kueue starts no job; remove --command\n"),
        (["--to", "jobset", "--command", "x", "--level", "rack"], "'rack' is not NAME=VALUE"),
        (
            ["--to", "jobset", "--command", "actor='x"],
            "the command of actor cannot be split into words",
        ),
    ],
)
def test_wrong_usage(words: list[str], message: str, tmp_path: Path) -> None:
    (conf := tmp_path / "conf.yaml").write_text(yaml.safe_dump(TWO))
    done = run("emit", str(conf), "--nodes", "2x8", *words)
    assert done.exit_code == 2 and message in done.stderr and not done.stdout


def test_a_refused_plan_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    (conf := tmp_path / "conf.yaml").write_text(yaml.safe_dump(TWO))
    (out := tmp_path / "train.yaml").write_text("before")
    words = ["emit", str(conf), "--nodes", "2x8", "--to", "jobset", "--command", "x", "--name", "X", "-o", str(out)]
    done = run(*words)
    assert done.exit_code == 1 and "error[emit-name]" in done.stderr and out.read_text() == "before"


@pytest.mark.parametrize(
    ("before", "after", "code", "message"),
    [
        ('"0-15:0-15"', '"0-15:0-7"', "emit-changed", "`rankplan.io/plan` of train"),
        ('"rankplan": 3', '"rankplan": 1', "invalid-plan", "the file is not a plan of version"),
        ('"components"', "components", "emit-changed", "the plan in the file is not JSON"),
        ("plan.json: |", "other.json: |", "emit-changed", "the ConfigMap with the plan is missing"),
        ("kind: JobSet", "kind: Job", "emit-changed", "the part that starts the job is missing"),
        ("sha256:", "sha256:0", "emit-changed", "`rankplan.io/plan` of train"),
        ("replicas: 1", "replicas: 1\n      replicas: 2", "duplicate-key", "duplicate key `replicas`"),
    ],
)
def test_a_damaged_file_is_an_error(before: str, after: str, code: str, message: str, tmp_path: Path) -> None:
    text = rankplan.emit(planned("v02"), "jobset", EmitOptions(command="python {}.py", image="a:1"))
    (file := tmp_path / "train.yaml").write_text(text.replace(before, after, 1))
    with pytest.raises(PlacementError) as refused:
        rankplan.plan(file)
    assert code in {one.code for one in refused.value.diagnostics} and message in str(refused.value)
    assert {one.file for one in refused.value.diagnostics} == {str(file)}
    assert run("check", str(file)).exit_code == 1


def test_commands_read_an_emitted_file_like_a_plan(tmp_path: Path) -> None:
    (conf := tmp_path / "conf.yaml").write_text(yaml.safe_dump(TWO))
    (file := tmp_path / "train.yaml").write_text(
        rankplan.emit(rankplan.plan(conf, "2x8"), "kuberay", EmitOptions(entrypoint="x", image="a:1"))
    )
    for words in (["plan"], ["show"], ["plan", "--format", "json"]):
        emitted = run(*words, str(file)).stdout
        assert emitted == run(*words, str(conf), "--nodes", "2x8").stdout != ""
    assert run("diff", str(file), str(conf), "--nodes", "2x8").output == "no difference\n"
    done = run("plan", str(file), "--nodes", "2x8")
    assert done.exit_code == 2 and "is a saved plan with its own nodes" in done.stderr


def test_a_file_of_a_release_that_wrote_other_defaults_is_read(tmp_path: Path) -> None:
    text = rankplan.emit(plan_of(), "jobset", EmitOptions(command="x", image="a:1"))
    before = object_of(text, "ConfigMap")["data"]["plan.json"]
    after = before.replace('"component_placement": {}, ', "")
    assert after != before
    indented = ["".join(f"    {line}\n" for line in one.splitlines()) for one in (before, after)]
    (file := tmp_path / "train.yaml").write_text(text.replace(*indented).replace(digest(before), digest(after)))
    assert rankplan.plan(file).components == ["actor"] and rankplan.emit(file, "jobset") == text


def test_every_command_reads_the_plan_of_an_emitted_file(tmp_path: Path) -> None:
    (file := tmp_path / "train.sbatch").write_text(rankplan.emit(plan_of(), "slurm", EmitOptions(command="x")))
    (costs := tmp_path / "costs.yaml").write_text("components: {actor: {seconds: {16: 1.0}}}\n")
    (conf := tmp_path / "conf.yaml").write_text(yaml.safe_dump(TWO))

    def told(*words: str | Path) -> str:
        return run(*[str(word) for word in words]).output

    assert told("replan", file) == "0 of 16 ranks move; 16 stay\n"
    beside = told("arrange", conf, "--nodes", "4x8", "--beside", file)
    assert "0  node-2" in beside and "1  node-3" in beside
    assert "`beside` has the plan itself" in told("replan", file, "--beside", file, "--without", "node-1")
    refused = told("tune", file, "--costs", costs)
    assert "this is a saved plan, not a config" in refused and f"1 fault in {file}" in refused
    assert "invalid JSON" not in told("tune", conf, "--nodes", "2x8", "--costs", costs, "--from", file)


@pytest.mark.parametrize("option", [{"cpus": "x"}, {"cpus": -1}, {"memory": "5X"}, {"memory": ""}, {"cpus": "0"}])
def test_an_amount_is_one_of_kubernetes(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not an amount of Kubernetes; write one such as"):
        rankplan.emit(plan_of(), "jobset", EmitOptions(command="x", image="a:1", **option))


@pytest.mark.parametrize("amount", ["32", "500m", "1.5", "512Gi", "1e3", "2E"])
def test_amounts_of_kubernetes_are_written(amount: str) -> None:
    assert amount in rankplan.emit(plan_of(), "jobset", EmitOptions(command="x", image="a:1", memory=amount))


@pytest.mark.parametrize("target", ["jobset", "lws", "slurm", "torchrun", "mpirun"])
def test_every_component_has_a_port_that_exists(target: str) -> None:
    two = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "all", "rollout": "all"}}}
    assert "65535" in rankplan.emit(plan_of(two), target, EmitOptions(command="x", port=65534))
    with pytest.raises(ValueError, match="the last is 65536, and ports end at 65535"):
        rankplan.emit(plan_of(two), target, EmitOptions(command="x", port=65535))


@pytest.mark.parametrize("target", ["jobset", "lws", "slurm", "torchrun", "mpirun"])
@pytest.mark.parametrize("port", ["0", "65536", "99999", "99999999", "9" * 5000])
def test_a_file_states_ports_that_exist(target: str, port: str, tmp_path: Path) -> None:
    text = rankplan.emit(plan_of(), target, EmitOptions(command="x", image=IMAGES.get(target)))
    (file := tmp_path / "train").write_text(text.replace("29500", port))
    with pytest.raises(PlacementError) as refused:
        rankplan.plan(file)
    fault = refused.value.diagnostics[0]
    lines = [number for number, line in enumerate(text.split("\n"), 1) if "29500" in line]
    assert (fault.code, fault.file) == ("emit-changed", str(file)) and fault.line in lines
    if len(port) <= 5:
        assert fault.message == f"the rendezvous of actor is at port {port}; ports are 1 to 65535"


def test_the_first_port_leaves_one_for_every_component(tmp_path: Path) -> None:
    two = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "all", "rollout": "all"}}}
    text = rankplan.emit(plan_of(two), "jobset", EmitOptions(command="x", image="a:1"))
    (file := tmp_path / "train").write_text(text.replace("29500", "65535").replace("29501", "65536"))
    with pytest.raises(PlacementError, match="the rendezvous of rollout is at port 65536"):
        rankplan.plan(file)


@pytest.mark.parametrize(
    ("target", "given", "named"),
    [
        ("slurm", {"queue": "q", "cpus": 3}, "--cpus and --queue"),
        ("torchrun", {"levels": {"rack": "a/b"}, "segment_level": "rack"}, "--level and --segment-level"),
        ("jobset", {"slurm_release": "24.05"}, "--slurm-release"),
    ],
)
def test_an_option_that_does_nothing_is_refused(target: str, given: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{target} does not take {named}$"):
        rankplan.emit(plan_of(), target, EmitOptions(command="x", **given))


@pytest.mark.parametrize(("nodes", "is_large"), [(100, False), (20000, True)])
def test_a_file_that_kubectl_cannot_apply_has_a_note(
    nodes: int, is_large: bool, caplog: pytest.LogCaptureFixture
) -> None:
    labelled = [{"ranks": rank, "accelerators": 8, "labels": {"rack": f"r{rank // 4}"}} for rank in range(nodes)]
    inventory = {"levels": ["rack"], "nodes": labelled}
    plan = plan_of({"cluster": {"num_nodes": nodes, "component_placement": {"actor": "all"}}}, inventory)
    with caplog.at_level("WARNING", "rankplan.notes"):
        text = rankplan.emit(plan, "jobset", EmitOptions(command="x", image="a:1"))
    assert (len(text) > 256 << 10) == is_large
    assert ("kubectl apply --server-side" in caplog.text) == is_large


@pytest.mark.parametrize(("kinds", "mode", "sets"), [(16, None, None), (17, None, 19), (17, "HTTPMode", None)])
def test_the_submitter_of_a_ray_job_is_a_pod_set(
    kinds: int, mode: str | None, sets: int | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    placed = {f"c{index}": str(index) for index in range(kinds)}
    placement = {name: {"node_group": "n" + name[1:], "placement": 0} for name in placed}
    groups = [{"label": f"n{index}", "node_ranks": index} for index in range(kinds)]
    config = {"cluster": {"num_nodes": kinds, "node_groups": groups, "component_placement": placement}}
    plan = rankplan.plan(config, f"{kinds}x1")
    given = EmitOptions(entrypoint="x", image="a:1", queue="q")
    if mode is not None:
        (base := tmp_path / "base.yaml").write_text(f"kind: RayJob\nspec: {{submissionMode: {mode}}}\n")
        given = EmitOptions(entrypoint="x", image="a:1", queue="q", base=base)
    with caplog.at_level("WARNING", "rankplan.notes"):
        if sets is None:
            assert "RayJob" in rankplan.emit(plan, "kuberay", given)
            assert ("500m CPU" in caplog.text) == (mode is None)
        else:
            with pytest.raises(PlacementError, match=f"the plan needs {sets} pod sets; Kueue allows 18"):
                rankplan.emit(plan, "kuberay", given)

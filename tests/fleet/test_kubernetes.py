"""A fleet through kubectl. SYNTHETIC: no cluster was to be had; the objects are built after the published OpenAPI of Kubernetes,
and validated by it, and a program stands in for kubectl. What it executes in a "pod" runs for real."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml
from tests.fleet.test_command import FakeService

from gpuready.fleet import kubernetes_objects as objects
from gpuready.model.fleet import FleetNode, FleetReport
from gpuready.model.plan import Plan
from gpuready.render import files
from gpuready.render.fleet import render_exclude_list, render_fleet_screen
from gpuready.render.layout import Screen

SCHEMA = json.loads((Path(__file__).parent / "kubernetes-schema.json").read_text())
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}

KUBECTL = r"""
import json, os, sys, subprocess
words = [w for w in sys.argv[1:]]
folder = os.environ["KUBE"]
def state():
    path = f"{folder}/state.json"
    return json.load(open(path)) if os.path.exists(path) else {"jobs": []}
with open(f"{folder}/log", "a") as log: log.write(json.dumps(words) + "\n")
if words[:1] == ["--namespace"]: words = words[2:]
def end(code, text): sys.stderr.write(text + "\n"); sys.exit(code)
if words[:2] == ["get", "nodes"]:
    if os.path.exists(f"{folder}/down"): end(1, "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?")
    print(open(f"{folder}/nodes.json").read())
elif words[:1] == ["create"]:
    made = json.load(open(words[2]))["items"]
    found = state(); found["jobs"] += made
    json.dump(found, open(f"{folder}/state.json", "w"))
elif words[:2] == ["get", "pods"]:
    found, rows = state(), []
    busy = os.environ.get("BUSY", "").split(",")
    for job in found["jobs"]:
        node = job["metadata"]["annotations"]["gpuready.fleet/node"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": job["metadata"]["name"] + "-x7k2p", **job["spec"]["template"]["metadata"]},
               "spec": {**job["spec"]["template"]["spec"], "nodeName": node},
               "status": {"phase": "Running", "podIP": "10.1.0.7", "conditions": [{"type": "Ready", "status": "True"}]}}
        if node in busy:
            del pod["spec"]["nodeName"]
            pod["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                             "message": "0/4 nodes are available: 1 Insufficient nvidia.com/gpu."}]}
        if node in os.environ.get("NO_IMAGE", "").split(","):
            pod["status"] = {"phase": "Pending", "conditions": [], "containerStatuses": [{"name": "node", "image": "i", "imageID": "", "ready": False,
                             "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}]}
        rows.append(pod)
    print(json.dumps({"apiVersion": "v1", "kind": "List", "items": rows}))
elif words[:1] == ["exec"]:
    os.execvp(words[4], words[4:])
elif words[:1] == ["delete"]:
    os.path.exists(f"{folder}/state.json") and os.rename(f"{folder}/state.json", f"{folder}/deleted.json")
else:
    end(1, f"error: unknown command {words}")
"""


@cache
def validator(kind: str) -> jsonschema.Draft202012Validator:
    """Made once: jsonschema.validate() checks the whole schema at each call, which takes a second."""
    name = next(name for name in SCHEMA["$defs"] if name.endswith(f".{kind}"))
    return jsonschema.Draft202012Validator(SCHEMA | {"$ref": f"#/$defs/{name}"})


def validate(kind: str, row: dict) -> dict:
    validator(kind).validate(row)
    return row


def node(name: str, gpus: int = 8, ready: str = "True", labels: dict | None = None, **spec: object) -> dict:
    amount = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    known = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": str(gpus)} if gpus else {}
    row = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": known | (labels or {})},
        "spec": spec,
        "status": {
            "capacity": amount,
            "allocatable": amount,
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletNotReady", "message": "no word"}],
        },
    }
    return validate("v1.Node", row)


@pytest.fixture
def cluster(tmp_path):
    service = FakeService(tmp_path)
    service.bin.put("kubectl", KUBECTL)
    service.kube = tmp_path / "kube"
    service.kube.mkdir()
    service.env["KUBE"] = str(service.kube)
    put_nodes(service, node("cpu-1", 0), *(node(f"gpu-{at}", 0, labels={"x": "y"}) for at in range(1, 4)))
    return service


def put_nodes(service, *rows: dict) -> None:
    (service.kube / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": rows}))


def ask(service, *words: str, **env: str) -> dict:
    reach = ("--engine", "kubernetes", "--python", sys.executable, "--retries", "0", "--timeout", "60")
    return service.json("drift", *reach, *words, **env)


def asked(service) -> list[list[str]]:
    return [json.loads(line) for line in (service.kube / "log").read_text().splitlines()]


# -- through the command ---------------------------------------------------------------------------------------


def test_every_node_gets_a_job_of_its_own_and_none_is_left(cluster):
    found = ask(cluster, "--image", "mine:1", "--namespace", "ml", "--nodes", "gpu-[1-2]")
    assert found["states"] == {"answered": "gpu-[1-2]"} and found["transport"] == "kubernetes"
    made = json.loads((cluster.kube / "deleted.json").read_text())["jobs"]
    assert [job["metadata"]["annotations"][objects.NODE_ANNOTATION] for job in made] == ["gpu-1", "gpu-2"]
    for job in made:
        validate("batch.v1.Job", job)
        assert job["spec"]["template"]["spec"]["containers"][0]["image"] == "mine:1"
    words = asked(cluster)
    assert words[-1][2:4] == ["delete", "jobs"] and all(one[:2] == ["--namespace", "ml"] for one in words[1:])
    (exec_words,) = (one for one in words if one[2:3] == ["exec"] and one[-1] == "gpu-1")
    assert exec_words[exec_words.index("--") + 1 :][:3] == [sys.executable, "-I", "-c"]


def test_a_node_without_room_is_busy_and_one_without_the_image_refuses(cluster, monkeypatch):
    found = ask(cluster, "--nodes", "gpu-[1-3]", BUSY="gpu-2", NO_IMAGE="gpu-3")
    assert found["states"] == {"answered": "gpu-1", "busy": "gpu-2", "refused": "gpu-3"}
    reasons = " ".join(found["reasons"])
    assert "Insufficient nvidia.com/gpu" in reasons and "ImagePullBackOff: Back-off pulling image" in reasons
    assert (found["verdict"], found["exclude"]) == ("undecided", "")
    assert (cluster.kube / "deleted.json").exists()


def test_running_pods_are_asked_where_they_are_named(cluster):
    pod = objects.build_job(FleetNode("gpu-1"), "train-0", "t", "i")
    (cluster.kube / "state.json").write_text(json.dumps({"jobs": [pod]}))
    found = ask(cluster, "--pods", "app=train")
    assert found["states"] == {"answered": "gpu-1"}
    assert not any(word in one for one in asked(cluster) for word in ("create", "delete")), (
        "nothing is started or removed"
    )


def test_a_server_that_does_not_answer_is_one_sentence(cluster):
    (cluster.kube / "down").touch()
    code, out, err = cluster.run("check", "--engine", "kubernetes")
    assert code == 2 and not out and err.count("\n") == 1 and "10.0.0.1:6443 was refused" in err


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"items": 7}', "[" * 100000, '{"items": [{"metadata": {"name": "-x"}}]}']
)
def test_what_is_no_list_of_nodes_is_one_sentence(cluster, text):
    (cluster.kube / "nodes.json").write_text(text)
    code, out, err = cluster.run("check", "--engine", "kubernetes")
    assert code == 2 and not out and err.count("\n") == 1, err


@pytest.mark.parametrize("words", [("--namespace=-x",), ("--nodes=a;b",), ("--nodes=--all",)])
def test_names_that_kubectl_would_take_for_flags_are_refused(cluster, words):
    code, out, err = cluster.run("check", "--engine", "kubernetes", *words)
    assert code == 2 and not out and err.count("\n") == 1, err
    assert not (cluster.kube / "log").exists(), "kubectl was not even started"


# -- objects ---------------------------------------------------------------------------------------------------


def test_the_job_of_a_node_passes_the_schema_and_is_pinned():
    gpu = objects.parse_node(node("gpu-1.example.com", taints=[TAINT]))
    job = validate("batch.v1.Job", objects.build_job(gpu, "gpuready-fleet-1", "0123456789abcdef", "python:3.12-slim"))
    spec = job["spec"]["template"]["spec"]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["gpu-1.example.com"]}]
    assert spec["tolerations"] == [{"operator": "Exists"}] and spec["automountServiceAccountToken"] is False
    assert spec["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    with pytest.raises(jsonschema.ValidationError):
        validate("batch.v1.Job", job | {"spec": job["spec"] | {"backOffLimit": 0}})


def test_the_state_of_a_node():
    states = {"up": node("a"), "drained": node("b", unschedulable=True), "down": node("c", ready="Unknown")}
    for state, row in states.items():
        assert objects.parse_node(row).state == state
    assert "no word" in objects.parse_node(states["down"]).why and objects.parse_node(states["up"]).gpus == 8


def test_what_the_control_plane_and_the_operator_know():
    less = node("gpu-2")
    less["status"]["allocatable"] = {"nvidia.com/gpu": "7"}
    other = node("gpu-3", labels={objects.DRIVER_LABEL: "550.54.15"}, taints=[TAINT])
    rows = [node("gpu-1", labels={objects.DRIVER_LABEL: "580.95.05"}, taints=[TAINT]), less, other]
    assert objects.describe_cluster(rows) == [
        "gpu-2: 7 of 8 GPUs are offered to jobs (device plugin)",
        "gpu-[1,3]: taint nvidia.com/gpu=present:NoSchedule: a job needs a toleration",
        "the GPU operator tells of 2 drivers: 550.54.15, 580.95.05",
    ]
    lost = node("gpu-4", 7, labels={"nvidia.com/gpu.count": "8"})
    assert objects.parse_node(lost).gpus == 8, "the feature discovery counted eight"


def test_bad_nodes_are_cordoned():
    report = FleetReport("check", "kubernetes", 3, exclude="gpu-[1,3]", states={"answered": "gpu-[1-3]"})
    assert "kubectl cordon gpu-1 gpu-3" in render_fleet_screen(report, Screen())
    assert render_exclude_list(report) == "gpu-1\ngpu-3\n"


@pytest.mark.parametrize("torch", ["2.8.0+cu129", "2.8.0+rocm6.4", "2.13.0+cpu"])
@pytest.mark.parametrize("name", ["vllm", "LLaMA_Factory"])
def test_the_job_of_a_plan_passes_the_schema(torch, name):
    cuda = "12.9" if "cu1" in torch else ""
    plan = Plan(
        name, "1.0", "plan", torch=torch, cuda=cuda, variables={"A": "1", "B": 'x "y" # z'}, start=("run", "a: b")
    )
    validate("batch.v1.Job", yaml.safe_load(files.render_plan_file(plan, "kubernetes")))

"""Objects of Kubernetes: what nodes and pods say of themselves, and the Job that is pinned to a node. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.fleet.transport import validate_host_name
from gpuready.model import node_names
from gpuready.model.fleet import BUSY, REFUSED, FleetNode
from gpuready.model.record import Record

KubernetesObject = Mapping[str, Any]


GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
RUN_LABEL, NODE_ANNOTATION, JOB_NAME = "gpuready.fleet/run", "gpuready.fleet/node", "gpuready-fleet"
JOB_SECONDS, KEPT_SECONDS = 3600, 300
"""After these seconds Kubernetes itself ends a Job of ours, and removes one that has ended."""
PRODUCT_LABEL, COUNT_LABEL = "nvidia.com/gpu.product", "nvidia.com/gpu.count"
DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"
"""Labels of NVIDIA's GPU feature discovery, which the GPU operator installs."""
LOST_PHRASES = ("unable to upgrade connection", "error dialing backend", "no route to host", "i/o timeout", "NotFound")
_REFUSING_REASONS = (
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError", "CrashLoopBackOff", "ContainerCannotRun", "StartError",
)  # fmt: skip


def parse_list(text: str) -> list[dict[str, Any]]:
    """Return the items of a list that kubectl wrote. ValueError, in a sentence, if it is none."""
    try:
        items = json.loads(text)["items"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("its answer is no list of Kubernetes") from None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def expand_names(node_list: str) -> list[str]:
    names = node_names.expand_nodelist(node_list) if node_list else ()
    return [validate_host_name(name, "--nodes") for name in names]


def select_named(nodes: Sequence[FleetNode], wanted: Sequence[str]) -> list[FleetNode]:
    if not wanted:
        return list(nodes)
    known = {node.name: node for node in nodes}
    return [known.get(name) or FleetNode(name, "down", "Kubernetes does not know it") for name in wanted]


# -- nodes -----------------------------------------------------------------------------------------------------


def parse_node(row: KubernetesObject) -> FleetNode:
    """Return a node with its state, its GPUs and the labels that tell its kind."""
    name = validate_host_name(str(_get(row, "metadata", "name") or ""), "kubectl get nodes")
    state, why = _node_state(row)
    labels = _table(row, "metadata", "labels")
    kept = {key: str(labels[key]) for key in (PRODUCT_LABEL, DRIVER_LABEL) if key in labels}
    offered = [one for one in GPU_RESOURCES if _whole(_table(row, "status", "capacity").get(one))]
    kept |= {"gpu": offered[0]} if offered else {}
    addresses = {one.get("type"): str(one.get("address")) for one in _rows(row, "status", "addresses")}
    return FleetNode(name, state, why, _expected_gpus(row), kept, addresses.get("InternalIP") or name)


def _node_state(row: KubernetesObject) -> tuple[str, str]:
    ready = next((one for one in _rows(row, "status", "conditions") if one.get("type") == "Ready"), {})
    if ready.get("status") != "True":
        said = str(ready.get("message") or ready.get("reason") or "it has no condition Ready")
        return "down", f"Kubernetes has it not ready: {said[:160]}"
    if _get(row, "spec", "unschedulable"):
        return "drained", "it is cordoned"
    return "up", ""


def count_gpus(row: KubernetesObject, where: str = "capacity") -> int:
    """Return how many GPUs a node has (capacity), or offers to jobs (allocatable)."""
    return sum(_whole(_table(row, "status", where).get(name)) for name in GPU_RESOURCES)


def _expected_gpus(row: KubernetesObject) -> int:
    return max(count_gpus(row), _whole(_table(row, "metadata", "labels").get(COUNT_LABEL)))


def describe_cluster(rows: Sequence[KubernetesObject]) -> list[str]:
    """Say what the control plane and the GPU operator know that a pod does not see: taints, GPUs that are not offered, drivers."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        name, expected = str(_get(row, "metadata", "name")), _expected_gpus(row)
        offered = count_gpus(row, "allocatable")
        if offered < expected:
            groups.setdefault(f"{offered} of {expected} GPUs are offered to jobs (device plugin)", []).append(name)
        for taint in _rows(row, "spec", "taints") if expected else ():
            text = f"{taint.get('key')}{'=' + str(taint['value']) if taint.get('value') else ''}:{taint.get('effect')}"
            groups.setdefault(f"taint {text}: a job needs a toleration", []).append(name)
        if expected and not _get(row, "metadata", "labels", PRODUCT_LABEL) and count_gpus(row):
            groups.setdefault("no labels of the GPU feature discovery", []).append(name)
    drivers = {str(_table(row, "metadata", "labels").get(DRIVER_LABEL, "")) for row in rows} - {""}
    notes = [f"{node_names.fold_node_names(names)[:160]}: {text}" for text, names in sorted(groups.items())]
    if len(drivers) > 1:
        notes.append(f"the GPU operator tells of {len(drivers)} drivers: {', '.join(sorted(drivers))[:160]}")
    return notes


# -- pods ------------------------------------------------------------------------------------------------------


class PodState(Record):
    """What Kubernetes says of one pod."""

    name: str
    node: str  # that it runs on
    wanted_node: str  # that its Job is pinned to
    phase: str
    is_ready: bool
    address: str
    unschedulable: str  # why the scheduler has no room
    waiting: tuple[str, str]  # reason and message of a container that does not start

    def explain_failure(self, has_waited: bool) -> tuple[str, str] | None:
        """Return why this pod will not run, as kind and reason; None where it may yet."""
        if self.waiting[0] in _REFUSING_REASONS:
            return REFUSED, f"its pod does not start: {self.waiting[0]}: {self.waiting[1][:160]}"
        if self.phase in ("Failed", "Succeeded"):
            return REFUSED, f"its pod has ended ({self.waiting[0] or self.phase}): {self.waiting[1][:160]}"
        if self.unschedulable and has_waited:
            return BUSY, f"Kubernetes has no room on it now: {self.unschedulable[:160]}"
        return None


def parse_pod(row: KubernetesObject) -> PodState:
    conditions = {one.get("type"): one for one in _rows(row, "status", "conditions")}
    scheduled = conditions.get("PodScheduled", {})
    waiting = [_table(one, "state", "waiting") for one in _rows(row, "status", "containerStatuses")]
    blocked = next((one for one in waiting if one.get("reason")), {})
    reason = str(blocked.get("reason") or _get(row, "status", "reason") or "")
    message = str(blocked.get("message") or _get(row, "status", "message") or "")
    return PodState(
        validate_host_name(str(_get(row, "metadata", "name") or ""), "kubectl get pods"),
        str(_get(row, "spec", "nodeName") or ""),
        str(_get(row, "metadata", "annotations", NODE_ANNOTATION) or ""),
        str(_get(row, "status", "phase") or ""),
        conditions.get("Ready", {}).get("status") == "True",
        str(_get(row, "status", "podIP") or ""),
        str(scheduled.get("message") or "") if scheduled.get("reason") == "Unschedulable" else "",
        (reason, message),
    )


# -- jobs ------------------------------------------------------------------------------------------------------


def run_selector(token: str) -> str:
    return f"{RUN_LABEL}={token}"


def build_job(node: FleetNode, name: str, token: str, image: str) -> dict[str, Any]:
    """Build the Job of one node: pinned as a DaemonSet pins, on tainted and cordoned nodes too, with all of its GPUs."""
    labels = {"app.kubernetes.io/name": JOB_NAME, RUN_LABEL: token}
    container: dict[str, Any] = {
        "name": "node",
        "image": image,
        "command": ["sleep", str(JOB_SECONDS)],
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    if node.gpus:
        container["resources"] = {"limits": {node.labels.get("gpu", GPU_RESOURCES[0]): str(node.gpus)}}
    field = {"key": "metadata.name", "operator": "In", "values": [node.name]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    annotations = {NODE_ANNOTATION: node.name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": JOB_SECONDS,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        },
    }


# -- reading ---------------------------------------------------------------------------------------------------


def _get(row: KubernetesObject, *path: str) -> Any:
    value: Any = row
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _table(row: KubernetesObject, *path: str) -> dict[str, Any]:
    value = _get(row, *path)
    return value if isinstance(value, dict) else {}


def _rows(row: KubernetesObject, *path: str) -> list[dict[str, Any]]:
    value = _get(row, *path)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _whole(value: object) -> int:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 5 else 0

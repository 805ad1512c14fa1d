"""Kubernetes through kubectl: a Job pinned to each node, or pods that run already; gpuready goes in by ``kubectl exec``."""

import json
import time
from collections.abc import Sequence
from typing import Any

from gpuready.fleet import kubernetes_objects as objects
from gpuready.fleet import node_payload
from gpuready.fleet.ssh_hosts import SshTransport, StdinFiles
from gpuready.fleet.transport import (
    GRACE_SECONDS,
    PARALLEL,
    OnAnswer,
    Request,
    TransportUnavailable,
    last_output_line,
    validate_host_name,
)
from gpuready.model.fleet import BUSY, DEAD, GARBLED, REFUSED, SLOW, FleetNode, NodeAnswer
from gpuready.system import HostAccess
from gpuready.system.live_host import LiveHost
from gpuready.system.own_folders import TemporaryFolder, write_scratch_file
from gpuready.system.process.parallel_programs import ProgramEnd, ProgramTask

KUBECTL_SECONDS = 30.0
START_SECONDS, UNSCHEDULABLE_SECONDS, POLL_SECONDS = 180.0, 5.0, 1.0
"""How long a pod may take to start, how long the scheduler may say that there is no room, and between two looks."""
DEFAULT_IMAGE = "python:3.12-slim"
MAX_LIST_BYTES = 256 << 20


class KubernetesTransport(SshTransport):
    name = "kubernetes"
    begin_seconds = 60.0

    def __init__(
        self,
        host: HostAccess,
        token: str,
        *,
        node_list: str = "",
        python: str = "",
        parallel: int = PARALLEL,
        namespace: str = "",
        image: str = "",
        pods: str = "",
    ):
        super().__init__([], token, python=python or "python3", parallel=parallel)
        self.host, self.image, self.pod_selector = host, image or DEFAULT_IMAGE, pods
        self.wanted = objects.expand_names(node_list)
        self.scope = ("--namespace", validate_host_name(namespace, "--namespace")) if namespace else ()
        self.pod_of: dict[str, str] = {}
        self.addresses: dict[str, str] = {}  # node -> address of its pod
        self.notes: list[str] = []
        self.job_of: dict[str, str] = {}
        self.job_count = 0

    # -- listing nodes ----------------------------------------------------------------------------------------

    def list_nodes(self) -> list[FleetNode]:
        """List the nodes that have GPUs, or all where none has any, each with what Kubernetes says of it."""
        rows = self._get_json("nodes", named=False)
        nodes = [objects.parse_node(row) for row in rows]
        self.notes = objects.describe_cluster(rows)
        if self.pod_selector:
            self._find_running_pods()
            nodes = [node for node in nodes if node.name in self.pod_of]
        elif any(node.gpus for node in nodes):
            nodes = [node for node in nodes if node.gpus]
        return objects.select_named(nodes, self.wanted)

    def _find_running_pods(self) -> None:
        for row in self._get_json("pods", "--selector", self.pod_selector):
            pod = objects.parse_pod(row)
            if pod.phase == "Running" and pod.node:
                self.pod_of.setdefault(pod.node, pod.name)
                self.addresses.setdefault(pod.node, pod.address)
        if not self.pod_of:
            raise TransportUnavailable(f"no running pod has the labels {self.pod_selector!r}")

    def _get_json(self, kind: str, *words: str, named: bool = True) -> list[dict[str, Any]]:
        argv = ("kubectl", *(self.scope if named else ()), "get", kind, *words, "--output=json")
        ran = self.host.run(argv, KUBECTL_SECONDS, MAX_LIST_BYTES)
        if ran.end == "not found":
            raise TransportUnavailable("there is no kubectl here")
        if ran.end or ran.rc:
            why = f"no answer within {KUBECTL_SECONDS:g} s" if ran.end == "deadline" else last_output_line(ran.err)
            raise TransportUnavailable(f"kubectl get {kind}: {why or ran.end or f'exit {ran.rc}'}")
        try:
            return objects.parse_list(ran.out)
        except ValueError as error:
            raise TransportUnavailable(f"kubectl get {kind}: {error}") from None

    # -- asking nodes -----------------------------------------------------------------------------------------

    def ask_nodes(self, nodes: Sequence[FleetNode], request: Request, deadline: float, on_answer: OnAnswer) -> None:
        """Start a pod where there is none, and ask in it. What has no pod is reported with Kubernetes' reason."""
        failures: dict[str, tuple[str, str]] = {}
        for node in nodes:
            if node.state == "down":
                failures[node.name] = DEAD, node.why
        missing = [node for node in nodes if node.name not in self.pod_of and node.name not in failures]
        if missing and not self.pod_selector:
            failures |= self._start_pods(missing)
        for name, (kind, why) in failures.items():
            on_answer(NodeAnswer(name, kind, why=why, for_now=kind in (BUSY, SLOW)))
        super().ask_nodes([node for node in nodes if node.name not in failures], request, deadline, on_answer)

    def _start_pods(self, nodes: Sequence[FleetNode]) -> dict[str, tuple[str, str]]:
        """Create one Job for each node and wait for its pod; return the nodes without a pod, and why."""
        earlier = [self.job_of[node.name] for node in nodes if node.name in self.job_of]
        if earlier:
            self._run_kubectl("delete", "jobs", *earlier, "--ignore-not-found", "--wait=false")
        for node in nodes:
            self.job_count += 1
            self.job_of[node.name] = f"{objects.JOB_NAME}-{self.token[:8]}-{self.job_count}"
        jobs = [objects.build_job(node, self.job_of[node.name], self.token, self.image) for node in nodes]
        with TemporaryFolder(LiveHost().variables) as folder:
            rows = {"apiVersion": "v1", "kind": "List", "items": jobs}
            path = write_scratch_file(f"{folder}/jobs.json", json.dumps(rows).encode())
            trouble = self._run_kubectl("create", "-f", path)
        if trouble:
            return {node.name: (REFUSED, f"kubectl create: {trouble}") for node in nodes}
        return self._wait_for_pods({node.name for node in nodes})

    def _wait_for_pods(self, waiting: set[str]) -> dict[str, tuple[str, str]]:
        started, failures = time.monotonic(), dict[str, tuple[str, str]]()
        while waiting:
            waited = time.monotonic() - started
            for row in self._get_json("pods", "--selector", objects.run_selector(self.token)):
                pod = objects.parse_pod(row)
                if pod.wanted_node not in waiting or not pod.name.startswith(f"{self.job_of[pod.wanted_node]}-"):
                    continue
                if pod.phase == "Running" and pod.is_ready:
                    self.pod_of[pod.wanted_node], self.addresses[pod.wanted_node] = pod.name, pod.address
                    waiting.discard(pod.wanted_node)
                elif failure := pod.explain_failure(waited > UNSCHEDULABLE_SECONDS):
                    failures[pod.wanted_node] = failure
                    waiting.discard(pod.wanted_node)
            if waited > START_SECONDS:
                late = SLOW, f"its pod did not start within {START_SECONDS:g} s"
                return failures | dict.fromkeys(waiting, late)
            if waiting:
                time.sleep(POLL_SECONDS)
        return failures

    def _run_kubectl(self, *words: str) -> str:
        """Return what went wrong; empty if nothing did."""
        ran = self.host.run(("kubectl", *self.scope, *words), KUBECTL_SECONDS)
        return "" if ran.rc == 0 and not ran.end else last_output_line(ran.err) or ran.end or f"exit {ran.rc}"

    def _node_task(self, node: FleetNode, files: StdinFiles, deadline: float) -> ProgramTask:
        pod = self.pod_of.get(node.name, "")
        words = ("kubectl", *self.scope, "exec", "--stdin", pod, "--", self.python, "-I", "-c", node_payload.STARTER)
        return ProgramTask(node.name, (*words, node.name), deadline + GRACE_SECONDS, files.path_for(self.send_package))

    def _classify_end(self, ended: ProgramEnd, has_begun: bool) -> tuple[str, str]:
        if ended.end == "deadline":
            stuck = "gpuready began there and did not end" if has_begun else "kubectl exec began nothing"
            return SLOW, f"{stuck} within {ended.seconds:.0f} s"
        if ended.end == "a line too long":
            return GARBLED, "it wrote without end"
        said = last_output_line(ended.err) or ended.end or f"exit {ended.rc}"
        if ended.rc in (126, 127) or "executable file not found" in ended.err:
            return REFUSED, f"no {self.python} in the image {self.image}: name another with --image or --python"
        if ended.rc == 0:
            return GARBLED, "no answer was in what it wrote"
        if any(phrase in ended.err for phrase in objects.LOST_PHRASES):
            return DEAD, f"kubectl exec: {said}"
        return (BUSY if not has_begun else REFUSED), f"kubectl exec: {said}"

    def close(self) -> None:
        """Remove the Jobs of this run; their own deadline removes them where this cannot."""
        if self.job_of:
            self._run_kubectl("delete", "jobs", "--selector", objects.run_selector(self.token), "--wait=false")

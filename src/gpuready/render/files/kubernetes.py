"""A Kubernetes Job: the plan's image, its variables, its GPUs, and the framework's own command."""

import json

from gpuready.model.plan import Plan
from gpuready.render.files import pins, quoting

GPU_RESOURCES = {"cuda": "nvidia.com/gpu", "rocm": "amd.com/gpu"}
"""The names under which NVIDIA's and AMD's device plugins offer GPUs."""


def render(plan: Plan) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in plan.framework.lower()).strip("-")
    lines = pins.header_comment(plan, "A Kubernetes job", "kubectl apply -f FILE")
    lines += [
        f"# Build the image first (gpuready plan {name} -o Dockerfile), push it, and name it here.",
        "# The claim workspace has the job's files.",
        "apiVersion: batch/v1",
        "kind: Job",
        "metadata:",
        f"  name: {name}",
        "spec:",
        "  backoffLimit: 0",
        "  template:",
        "    spec:",
        "      restartPolicy: Never",
        "      containers:",
        f"        - name: {name}",
        f"          image: {name}:latest",
        *([f"          command: {quoting.quote_json_list(plan.start)}"] if plan.start else []),
        "          workingDir: /workspace",
        *_variable_lines(plan),
        *_resource_lines(plan),
        "          volumeMounts:",
        "            - {name: workspace, mountPath: /workspace}",
        "            - {name: shm, mountPath: /dev/shm}",
        "      volumes:",
        "        - {name: workspace, persistentVolumeClaim: {claimName: workspace}}",
        "        - {name: shm, emptyDir: {medium: Memory}}",
    ]
    return pins.join_lines(lines)


def _variable_lines(plan: Plan) -> list[str]:
    rows = [
        f"            - {{name: {name}, value: {json.dumps(value, ensure_ascii=False)}}}"
        for name, value in sorted(plan.variables.items())
    ]
    return ["          env:", *rows] if rows else []


def _resource_lines(plan: Plan) -> list[str]:
    platform = "rocm" if "+rocm" in plan.torch else "cuda" if plan.cuda else ""
    if not platform:
        return []
    gpus = max(int(plan.host.get("gpus", 1)), 1)
    return ["          resources:", f"            limits: {{{GPU_RESOURCES[platform]}: {gpus}}}"]

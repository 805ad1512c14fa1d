"""A Dockerfile: the plan on a matching image, run as a non-root user.

The driver is the host's; the file contains no secrets.
"""

import shlex

from gpuready.model.plan import Plan
from gpuready.render.files import pins, quoting

VENV_PATH = "/opt/venv"
VENV_PYTHON = f"{VENV_PATH}/bin/python"
SYSTEM_PACKAGES = ("ca-certificates", "git", "python3", "python3-venv")
BUILD_PACKAGES = ("build-essential", "ninja-build")


def render(plan: Plan) -> str:
    lines = ["# syntax=docker/dockerfile:1", *pins.header_comment(plan, "A container"), *_usage_comment(plan), ""]
    return pins.join_lines([*lines, *image_layers(plan)])


def image_layers(plan: Plan) -> list[str]:
    """The instructions of the Dockerfile."""
    if not plan.image:
        why = f"on CUDA {plan.cuda}" if plan.cuda else "here: containers on a Mac run Linux, which has no Metal"
        raise ValueError(f"no container image is known for {plan.framework} {plan.version} {why}")
    lines = [f"FROM {plan.image}", "", 'SHELL ["/bin/bash", "-o", "pipefail", "-c"]']
    lines += _framework_image_layers(plan) if plan.image_has else _build_layers(plan)
    return [*lines, *_user_and_variables(plan)]


def _usage_comment(plan: Plan) -> list[str]:
    """How to build and start it, as the framework's documentation says."""
    name = plan.framework.lower()
    start = ("docker", "run", "--rm", "-it", *plan.image_flags, "-v", ".:/workspace", name)
    return [
        f"#   docker build -t {name} .",
        f"#   {shlex.join(start)}",
        *(["# The driver is the host's: the image has none, and needs NVIDIA's container toolkit there."]
          if plan.cuda else []),
    ]  # fmt: skip


def _build_layers(plan: Plan) -> list[str]:
    """System packages and uv, then the packages, one layer each."""
    uv = shlex.quote(f"uv=={plan.tools['uv']}" if "uv" in plan.tools else "uv")
    version = f"--python {shlex.quote(plan.python)} " if plan.python else ""
    commands = [
        f"python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir {uv}",
        "ln -s /opt/uv/bin/uv /usr/local/bin/uv",
        f"uv venv {version}{VENV_PATH}",
    ]
    return [
        "# hadolint ignore=DL3008",
        *_format_run_layer(
            "apt-get update",
            "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "
            + " ".join((*SYSTEM_PACKAGES, *BUILD_PACKAGES)),
            "rm -rf /var/lib/apt/lists/*",
        ),
        "ENV UV_NO_CACHE=1 UV_PYTHON_INSTALL_DIR=/opt/python",
        *(
            _hashed_install_layers(plan, commands)
            if pins.is_resolved(plan)
            else _format_run_layer(*commands, *_install_commands(plan))
        ),
        *_copy_local_packages(plan),
    ]


def _format_run_layer(*commands: str) -> list[str]:
    """One RUN of several commands, one per line."""
    return [f"{' &&' if i else 'RUN'} {c}" + (" \\" if i < len(commands) - 1 else "") for i, c in enumerate(commands)]


def _hashed_install_layers(plan: Plan, commands: list[str]) -> list[str]:
    """Packages by hash, from the file beside this one: the hashes are thousands of lines."""
    flags = shlex.join(pins.hashed_install_flags(plan))
    return [
        *_format_run_layer(*commands),
        f"# {pins.HASH_FILE} has every package with its hashes; `gpuready plan` writes it beside this file.",
        f"COPY {pins.HASH_FILE} /opt/{pins.HASH_FILE}",
        *_format_run_layer(
            f"uv pip install --python {VENV_PYTHON} {flags} -r /opt/{pins.HASH_FILE}",
            *(pins.retarget_install_command(words, VENV_PYTHON) for words in pins.kernel_build_commands(plan)),
        ),
    ]


def _install_commands(plan: Plan) -> list[str]:
    installs = [step.run for step in plan.steps if "install" in step.run and "pip" in step.run]
    if installs:
        return [pins.retarget_install_command(words, VENV_PYTHON) for words in installs]
    words = ("uv", "pip", "install", *pins.requirements_by_package(plan).values())
    return [
        pins.retarget_install_command(words, VENV_PYTHON),
        *(pins.retarget_install_command(words, VENV_PYTHON) for words in pins.kernel_build_commands(plan)),
    ]


def _copy_local_packages(plan: Plan) -> list[str]:
    """Packages that come from no index are copied from beside the Dockerfile."""
    lines = []
    for one in pins.packages_outside_indexes(plan):
        lines += quoting.wrap_comment(f"{one.name} comes from {one.origin}: put it beside this file.")
        lines += [f"COPY {one.name} /opt/{one.name}"]
        lines += [f"RUN uv pip install --python {VENV_PYTHON} --no-deps /opt/{one.name}"]
    return lines


def _framework_image_layers(plan: Plan) -> list[str]:
    """A framework's own image only lacks its sources."""
    name = plan.framework.lower()
    return [
        *quoting.wrap_comment(f"It holds {plan.image_has} already; the sources of {name} go on top, without dependencies."),
        *quoting.wrap_comment(f"Put this file into the checkout of {name} and build there."),
        f"COPY --chown=1001:1001 . /workspace/{name}",
        f"RUN python -m pip install --no-cache-dir --no-deps -e /workspace/{name}",
    ]  # fmt: skip


def _user_and_variables(plan: Plan) -> list[str]:
    lines = [f"ENV {name}={quoting.quote_docker_value(value)}" for name, value in sorted(plan.variables.items())]
    lines += [f"# {name} must not be set." for name in sorted(plan.unset)]
    path = [] if plan.image_has else [f'ENV VIRTUAL_ENV={VENV_PATH} PATH="{VENV_PATH}/bin:$PATH"']
    return [
        *lines,
        *path,
        "RUN useradd --create-home --uid 1001 trainer && mkdir -p /workspace && chown 1001 /workspace",
        "USER 1001",
        "WORKDIR /workspace",
        f"CMD {quoting.quote_json_list(plan.start or ('/bin/bash',))}",
    ]

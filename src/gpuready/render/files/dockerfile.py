"""A Dockerfile: the plan on a matching image, run as a non-root user.

BuildKit here-documents keep it in one file. The driver is the host's; the file contains no secrets.
"""

from __future__ import annotations

from gpuready.render.files import pins, quoting, requirements

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.planned import Plan

END = "GPUREADY_END"
VENV = "/opt/venv"
PYTHON = f"{VENV}/bin/python"
TOOLS = ("ca-certificates", "git", "python3", "python3-venv")
BUILD_TOOLS = ("build-essential", "ninja-build")


def document(plan: Plan) -> str:
    if not plan.image:
        raise ValueError(
            f"no container image is known for {plan.framework} {plan.version} on CUDA {plan.cuda}"
        )
    lines = ["# syntax=docker/dockerfile:1", *pins.head(plan, "A container"), *_run(plan), ""]
    lines += [f"FROM {plan.image}", "", 'SHELL ["/bin/bash", "-o", "pipefail", "-c"]']
    lines += _own(plan) if plan.image_has else _made(plan)
    return pins.listed([*lines, *_user(plan)])


def _run(plan: Plan) -> list[str]:
    """How to build and start it, as the framework's documentation says."""
    name = plan.framework.lower()
    start = ("docker", "run", "--rm", "-it", *plan.image_flags, name)
    return [
        f"#   docker build -t {name} .",
        f"#   {quoting.words(start)}",
        *(["# The driver is the host's: the image has none, and needs NVIDIA's container toolkit there."]
          if plan.cuda else []),
    ]  # fmt: skip


def _made(plan: Plan) -> list[str]:
    """System packages and uv, then the packages, one layer each."""
    uv = quoting.word(f"uv=={plan.tools['uv']}" if "uv" in plan.tools else "uv")
    version = f"--python {quoting.word(plan.python)} " if plan.python else ""
    commands = [
        f"python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir {uv}",
        "ln -s /opt/uv/bin/uv /usr/local/bin/uv",
        f"uv venv {version}{VENV}",
    ]
    return [
        "# hadolint ignore=DL3008",
        *_layer(
            "apt-get update",
            "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "
            + " ".join((*TOOLS, *BUILD_TOOLS)),
            "rm -rf /var/lib/apt/lists/*",
        ),
        "ENV UV_NO_CACHE=1 UV_PYTHON_INSTALL_DIR=/opt/python",
        *(_locked(plan, commands) if pins.is_resolved(plan) else _layer(*commands, *_steps(plan))),
        *_elsewhere(plan),
    ]


def _layer(*commands: str) -> list[str]:
    """One RUN of several commands, one per line."""
    return [
        f"{' &&' if i else 'RUN'} {c}" + (" \\" if i < len(commands) - 1 else "")
        for i, c in enumerate(commands)
    ]


def _locked(plan: Plan, commands: list[str]) -> list[str]:
    """Packages by hash; a Dockerfile line may not exceed 64 KiB, hence the file."""
    flags = quoting.words(pins.installing(plan))
    return [
        *_layer(*commands),
        f"COPY <<'{END}' /opt/requirements.txt",
        *requirements.lines(plan),
        END,
        "",
        *_layer(
            f"uv pip install --python {PYTHON} {flags} -r /opt/requirements.txt",
            *(pins.into(words, PYTHON) for words in pins.compilations(plan)),
        ),
    ]


def _steps(plan: Plan) -> list[str]:
    installs = [step.run for step in plan.steps if "install" in step.run and "pip" in step.run]
    if installs:
        return [pins.into(words, PYTHON) for words in installs]
    words = ("uv", "pip", "install", *pins.wanted(plan).values())
    return [pins.into(words, PYTHON), *(pins.into(words, PYTHON) for words in pins.compilations(plan))]


def _elsewhere(plan: Plan) -> list[str]:
    """Packages that come from no index are copied from beside the Dockerfile."""
    lines = []
    for one in pins.from_elsewhere(plan):
        lines += quoting.wrapped(f"{one.name} comes from {one.origin}: put it beside this file.")
        lines += [f"COPY {one.name} /opt/{one.name}"]
        lines += [f"RUN uv pip install --python {PYTHON} --no-deps /opt/{one.name}"]
    return lines


def _own(plan: Plan) -> list[str]:
    """A framework's own image only lacks its sources."""
    name = plan.framework.lower()
    return [
        *quoting.wrapped(f"It holds {plan.image_has} already; the sources of {name} go on top, without dependencies."),
        *quoting.wrapped(f"Put this file into the checkout of {name} and build there."),
        f"COPY --chown=1001:1001 . /workspace/{name}",
        f"RUN python -m pip install --no-cache-dir --no-deps -e /workspace/{name}",
    ]  # fmt: skip


def _user(plan: Plan) -> list[str]:
    lines = [f"ENV {name}={quoting.docker(value)}" for name, value in sorted(plan.variables.items())]
    lines += [f"# {name} must not be set." for name in sorted(plan.unset)]
    path = [] if plan.image_has else [f'ENV VIRTUAL_ENV={VENV} PATH="{VENV}/bin:$PATH"']
    return [
        *lines,
        *path,
        "RUN useradd --create-home --uid 1001 trainer && mkdir -p /workspace && chown 1001 /workspace",
        "USER 1001",
        "WORKDIR /workspace",
        'CMD ["/bin/bash"]',
    ]

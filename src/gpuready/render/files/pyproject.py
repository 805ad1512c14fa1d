"""pyproject.toml of a uv project: `uv sync` creates the environment, with torch only from its own index."""

from __future__ import annotations

from gpuready.render.files import pins, quoting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.planned import Plan


def document(plan: Plan) -> str:
    wanted = pins.wanted(plan)
    lines = pins.head(plan, "A uv project", "`uv sync` makes its environment.")
    lines += ["", "[project]", f"name = {quoting.text(plan.framework.lower() + '-environment')}"]
    lines += ['version = "0"', *_python(plan)]
    lines += ["dependencies = [", *(f"    {quoting.text(one)}," for one in wanted.values())]
    lines += [*(f"    {quoting.text(one)}," for one in _compiled(plan)), "]", ""]
    lines += _uv(plan)
    lines += _indexes(plan, wanted)
    return pins.listed(lines).rstrip("\n") + "\n"


def _compiled(plan: Plan) -> list[str]:
    return [f"{kernel.package}=={kernel.version}" for kernel in pins.compiled(plan).values()]


def _python(plan: Plan) -> list[str]:
    if not plan.python:
        return []
    minor = ".".join(plan.python.split(".")[:2])
    return [f"requires-python = {quoting.text(f'=={minor}.*')}"]


def _uv(plan: Plan) -> list[str]:
    """The target platform, and the packages to build against the project's torch."""
    machine = plan.platform.partition("-")[0]
    built = list(pins.compiled(plan))
    lines = ["[tool.uv]", "package = false"]
    if machine in ("x86_64", "aarch64"):
        marker = f"sys_platform == 'linux' and platform_machine == '{machine}'"
        lines += [f"environments = [{quoting.text(marker)}]"]
    if built:
        lines += ["# These are built against the torch above: uv installs that one first.",
                  f"no-build-isolation-package = [{', '.join(map(quoting.text, built))}]"]  # fmt: skip
    return [*lines, *_elsewhere(plan), ""]


def _elsewhere(plan: Plan) -> list[str]:
    lines = []
    for one in pins.from_elsewhere(plan):
        said = f"{one.name} {one.version} comes from no index: uv add {one.origin}"
        lines += quoting.wrapped(said)
    return lines


def _indexes(plan: Plan, wanted: dict[str, str]) -> list[str]:
    lines: list[str] = []
    own = pins.default_index(plan)
    if own:
        lines += ["[[tool.uv.index]]", f"url = {quoting.text(own)}", "default = true", ""]
    found = pins.indexes(plan)
    for name, address in found.items():
        lines += ["[[tool.uv.index]]", f"name = {quoting.text(name)}", f"url = {quoting.text(address)}"]
        lines += ["explicit = true  # only what is named below comes from here", ""]
    pinned = {name: pins.index_of(plan, name) for name in wanted}
    if any(index in found for index in pinned.values()):
        lines += ["[tool.uv.sources]"]
        lines += [
            f"{quoting.text(name)} = {{ index = {quoting.text(index)} }}"
            for name, index in pinned.items()
            if index in found
        ]
    for name in pins.without_address(plan):
        lines += quoting.wrapped(
            f"From the index {name}, whose address must be added under [[tool.uv.index]]."
        )
    return lines

"""pyproject.toml of a uv project: `uv sync` creates the environment, with torch only from its own index."""

from gpuready.model.plan import Plan
from gpuready.render.files import pins, quoting


def render(plan: Plan) -> str:
    wanted = pins.requirements_by_package(plan)
    lines = pins.header_comment(plan, "A uv project", "`uv sync` makes its environment.")
    lines += ["", "[project]", f"name = {quoting.quote_toml_string(plan.framework.lower() + '-environment')}"]
    lines += ['version = "0"', *_requires_python_line(plan)]
    lines += ["dependencies = [", *(f"    {quoting.quote_toml_string(one)}," for one in wanted.values())]
    lines += [*(f"    {quoting.quote_toml_string(one)}," for one in _kernel_pins(plan)), "]", ""]
    lines += _uv_table_lines(plan)
    lines += _index_table_lines(plan, wanted)
    return pins.join_lines(lines).rstrip("\n") + "\n"


def _kernel_pins(plan: Plan) -> list[str]:
    return [f"{kernel.package}=={kernel.version}" for kernel in pins.compiled_kernels(plan).values()]


def _requires_python_line(plan: Plan) -> list[str]:
    if not plan.python:
        return []
    minor = ".".join(plan.python.split(".")[:2])
    return [f"requires-python = {quoting.quote_toml_string(f'=={minor}.*')}"]


def _uv_table_lines(plan: Plan) -> list[str]:
    """The target platform, and the packages to build against the project's torch."""
    machine = plan.platform.partition("-")[0]
    compiled_names = list(pins.compiled_kernels(plan))
    lines = ["[tool.uv]", "package = false"]
    if machine in ("x86_64", "aarch64"):
        marker = f"sys_platform == 'linux' and platform_machine == '{machine}'"
        lines += [f"environments = [{quoting.quote_toml_string(marker)}]"]
    if compiled_names:
        lines += ["# These are built against the torch above: uv installs that one first.",
                  f"no-build-isolation-package = [{', '.join(map(quoting.quote_toml_string, compiled_names))}]"]  # fmt: skip
    return [*lines, *_non_index_comments(plan), ""]


def _non_index_comments(plan: Plan) -> list[str]:
    lines = []
    for one in pins.packages_outside_indexes(plan):
        instruction = f"{one.name} {one.version} comes from no index: uv add {one.origin}"
        lines += quoting.wrap_comment(instruction)
    return lines


def _index_table_lines(plan: Plan, wanted: dict[str, str]) -> list[str]:
    lines: list[str] = []
    default_url = pins.default_index_url(plan)
    if default_url:
        lines += ["[[tool.uv.index]]", f"url = {quoting.quote_toml_string(default_url)}", "default = true", ""]
    extra_indexes = pins.extra_index_urls(plan)
    for name, address in extra_indexes.items():
        lines += [
            "[[tool.uv.index]]",
            f"name = {quoting.quote_toml_string(name)}",
            f"url = {quoting.quote_toml_string(address)}",
        ]
        lines += ["explicit = true  # only what is named below comes from here", ""]
    pinned = {name: pins.find_package_index(plan, name) for name in wanted}
    if any(index in extra_indexes for index in pinned.values()):
        lines += ["[tool.uv.sources]"]
        lines += [
            f"{quoting.quote_toml_string(name)} = {{ index = {quoting.quote_toml_string(index)} }}"
            for name, index in pinned.items()
            if index in extra_indexes
        ]
    for name in pins.indexes_without_url(plan):
        lines += quoting.wrap_comment(f"From the index {name}, whose address must be added under [[tool.uv.index]].")
    return lines

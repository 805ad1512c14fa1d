"""requirements.txt with hashes, for pip and for uv."""

import shlex

from gpuready.model.plan import LockedPackage, Plan
from gpuready.model.visible_text import escape_unprintable
from gpuready.render.files import pins, quoting


def render(plan: Plan) -> str:
    text = pins.header_comment(plan, "Requirements, with the hash of every file that may be taken,")
    text += quoting.wrap_comment("Install with: " + shlex.join(requirements_command(plan)))
    text += ["", *_index_option_lines(plan)]
    for one in pins.packages_from_indexes(plan):
        text += _format_locked_package(plan, one)
    text += _later_install_comments(plan)
    return pins.join_lines(text)


def requirements_command(plan: Plan, file: str = "requirements.txt") -> tuple[str, ...]:
    """How uv installs the file."""
    return ("uv", "pip", "install", *pins.hashed_install_flags(plan), "-r", file)


def requirement_lines(plan: Plan, joined: bool = False) -> list[str]:
    """The requirements without comments; ``joined`` puts each one with its hashes on one line."""
    options = [line for line in _index_option_lines(plan) if line and not line.startswith("#")]
    every = [pins.hashed_requirement_lines(one) for one in pins.packages_from_indexes(plan)]
    if joined:
        return [*options, *(" ".join(part.strip(" \\") for part in one) for one in every)]
    return [*options, *(part for one in every for part in one)]


def _index_option_lines(plan: Plan) -> list[str]:
    lines = pins.index_options(plan)
    for name in pins.indexes_without_url(plan):
        lines += quoting.wrap_comment(f"From the index {name}, whose address must be given to the installer.")
    return [*lines, ""] if lines else []


def _format_locked_package(plan: Plan, package: LockedPackage) -> list[str]:
    where = pins.find_package_index(plan, package.name)
    remarks = [f"from the index {where}"] if where else []
    remarks += ["via " + ", ".join(package.via)] if package.via else []
    return [
        *pins.hashed_requirement_lines(package),
        *([f"    # {escape_unprintable('; '.join(remarks))}"] if remarks else []),
    ]


def _later_install_comments(plan: Plan) -> list[str]:
    lines = []
    for one in pins.packages_outside_indexes(plan):
        origin = escape_unprintable(one.origin)
        lines += ["", *quoting.wrap_comment(f"Not from an index, and so not here; afterwards install {one.name}:")]
        lines += [f"#   uv pip install --no-deps {shlex.quote(origin)}"]
    for words in pins.kernel_build_commands(plan):
        lines += ["", "# Against the torch above; afterwards:", f"#   {escape_unprintable(shlex.join(words))}"]
    return lines

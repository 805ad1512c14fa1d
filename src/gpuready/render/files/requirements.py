"""requirements.txt with hashes, for pip and for uv."""

from __future__ import annotations

from gpuready.render.files import pins, quoting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.planned import Locked, Plan


def document(plan: Plan) -> str:
    text = pins.head(plan, "Requirements, with the hash of every file that may be taken,")
    text += quoting.wrapped("Install with: " + quoting.words(command(plan)))
    text += ["", *_sources(plan)]
    for one in pins.from_indexes(plan):
        text += _one(plan, one)
    text += _elsewhere(plan)
    return pins.listed(text)


def command(plan: Plan, file: str = "requirements.txt") -> tuple[str, ...]:
    """How uv installs the file."""
    return ("uv", "pip", "install", *pins.installing(plan), "-r", file)


def lines(plan: Plan, joined: bool = False) -> list[str]:
    """The requirements without comments; ``joined`` puts each one with its hashes on one line."""
    kept = [line for line in _sources(plan) if line and not line.startswith("#")]
    every = [pins.hashed(one) for one in pins.from_indexes(plan)]
    if joined:
        return [*kept, *(" ".join(part.strip(" \\") for part in one) for one in every)]
    return [*kept, *(part for one in every for part in one)]


def _sources(plan: Plan) -> list[str]:
    own = pins.default_index(plan)
    lines = [f"--index-url {own}"] if own else []
    lines += [f"--extra-index-url {address}" for address in pins.indexes(plan).values()]
    for name in pins.without_address(plan):
        lines += quoting.wrapped(f"From the index {name}, whose address must be given to the installer.")
    return [*lines, ""] if lines else []


def _one(plan: Plan, one: Locked) -> list[str]:
    where = pins.index_of(plan, one.name)
    said = [f"from the index {where}"] if where else []
    said += ["via " + ", ".join(one.via)] if one.via else []
    return [*pins.hashed(one), *([f"    # {quoting.comment('; '.join(said))}"] if said else [])]


def _elsewhere(plan: Plan) -> list[str]:
    lines = []
    for one in pins.from_elsewhere(plan):
        origin = quoting.comment(one.origin)
        lines += ["", *quoting.wrapped(f"Not from an index, and so not here; afterwards install {one.name}:")]
        lines += [f"#   uv pip install --no-deps {quoting.word(origin)}"]
    for words in pins.compilations(plan):
        lines += [
            "",
            "# Against the torch above; afterwards:",
            f"#   {quoting.comment(quoting.words(words))}",
        ]
    return lines

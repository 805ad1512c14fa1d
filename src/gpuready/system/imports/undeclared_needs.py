"""What a framework may import beyond what its metadata requires, as far as it is installed.

transformers imports jax, scikit-learn or tensorflow, which its extras name, as soon as they are there, and fails with them.
"""

from collections.abc import Iterable

from gpuready.model.facts import NO_METADATA
from gpuready.model.metadata import parse_requirement
from gpuready.system.imports.hidden_modules import SearchedEnvironment

USUAL_MODULES = {
    "pyyaml": "yaml", "pillow": "PIL", "scikit-learn": "sklearn", "opencv-python": "cv2", "protobuf": "google",
    "python-dateutil": "dateutil", "beautifulsoup4": "bs4", "attrs": "attr", "gitpython": "git", "antlr4-python3-runtime": "antlr4",
    "opencv-python-headless": "cv2", "hydra-core": "hydra", "pytorch-lightning": "pytorch_lightning", "python-dotenv": "dotenv",
    "scikit-image": "skimage", "pycryptodome": "Crypto", "open-clip-torch": "open_clip", "ipython": "IPython",
}  # fmt: skip
"""Modules of distributions that have another name. What is not installed has no files that tell."""


def list_usual_modules(name: str) -> tuple[str, ...]:
    """The modules that a distribution most likely has."""
    plain = name.replace("-", "_")
    return (USUAL_MODULES.get(name, plain), plain, plain.removeprefix("python_").removesuffix("_python"))


UNUSED_EXTRAS = ("dev", "test", "doc", "lint", "quality", "build", "bench", "example", "all", "ruff", "typing", "mypy")
"""How extras begin that nobody's code imports: tools of its developers; what ``all`` names, another extra does."""


def describe_absence(survey: SearchedEnvironment, name: str) -> tuple[str, str]:
    """The kind and the words: not installed, or that only its metadata is missing: then it may import all the same."""
    folders = survey.path.folders
    modules = [module for module in list_usual_modules(name) if module not in survey.stdlib_names]
    is_there = any(survey.shadows.find_module_file(folder, module) for module in modules for folder in folders)
    return (NO_METADATA, "its metadata is missing") if is_there else ("absent", "not installed")


def list_optional_names(survey: SearchedEnvironment, names: Iterable[str]) -> list[str]:
    """Return the installed distributions that only extras of these name."""
    known = set(names)
    found: dict[str, None] = {}
    for name in known:
        for text in survey.copies[name][0].list_requirements():
            extra = text.partition("extra")[2].lstrip("= '\"")
            if not extra or extra.startswith(UNUSED_EXTRAS):
                continue
            wanted = parse_requirement(text)[0]
            if wanted in survey.copies and wanted not in known:
                found[wanted] = None
    return sorted(found)


def list_users(survey: SearchedEnvironment, name: str) -> list[str]:
    """Return the installed distributions that require one, whether they were looked at or not; what only an extra names does not count."""
    wanted = {
        user: [parse_requirement(text) for text in copies[0].list_requirements()]
        for user, copies in survey.copies.items()
    }
    return sorted(
        user for user, rows in wanted.items() if any(row[0] == name and "extra" not in row[3] for row in rows)
    )

"""A plan as a file for another tool: lock, requirements, pyproject, conda, Dockerfile, compose, Kubernetes, Slurm, shell script."""

from importlib import import_module

from gpuready.model.plan import Plan
from gpuready.render.files import pins
from gpuready.render.files.pins import is_resolved, unresolved_reason
from gpuready.render.files.quoting import validate_plan_values

FILE_FORMATS = (
    "lock", "requirements", "pyproject", "conda", "dockerfile", "compose", "kubernetes", "slurm", "shell",
)  # fmt: skip
HASHED_FORMATS = ("lock", "requirements")
"""Formats that pin every file by hash, so they need a resolved plan."""

FORMAT_BY_SUFFIX = {".lock": "lock", ".sbatch": "slurm", ".slurm": "slurm", ".sh": "shell", ".json": "json"}
FORMAT_BY_FILE_NAME = {"pyproject.toml": "pyproject", "environment.yml": "conda", "environment.yaml": "conda"}
YAML_NAMES = {
    "compose": "compose",
    "docker-compose": "compose",
    "kubernetes": "kubernetes",
    "k8s": "kubernetes",
    "job": "kubernetes",
}
"""Words in the name of a YAML file that tell its format: ``compose.yaml``, ``train.k8s.yml``."""


def render_plan_file(plan: Plan, file_format: str) -> str:
    """Render the plan in one format. ValueError, in a sentence, where the format cannot express it."""
    if file_format not in FILE_FORMATS:
        raise ValueError(
            f"a plan has no form {file_format!r}: choose {', '.join(FILE_FORMATS[:-1])} or {FILE_FORMATS[-1]}"
        )
    name = f"{plan.framework} {plan.version}"
    if plan.verdict != "plan":
        raise ValueError(f"there is no plan for {name} to write: it is impossible here, and the screen says why")
    if plan.is_image_alone:
        raise ValueError(
            f"{name} comes as the image {plan.image} here: there is nothing to install that {file_format} could say"
        )
    if not plan.torch and not plan.options.get("fix"):
        raise ValueError(f"{name} needs no torch: install it by the steps on the screen, not by a file")
    if plan.options.get("fix") and file_format != "shell":
        raise ValueError(
            f"a plan with --fix is a list of steps: write it as a shell script or as JSON, not as {file_format}"
        )
    if file_format in HASHED_FORMATS and not is_resolved(plan):
        what = "a lock" if file_format == "lock" else "requirements with hashes"
        raise ValueError(f"{what} of {name} cannot be written: {unresolved_reason(plan)}; other formats can")
    module = import_module(f"gpuready.render.files.{file_format}")
    text: str = module.render(validate_plan_values(plan))
    return text


def guess_file_format(path: str) -> str | None:
    """The format implied by a file name, if any."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    if name in FORMAT_BY_FILE_NAME:
        return FORMAT_BY_FILE_NAME[name]
    if name in ("dockerfile", "containerfile") or name.startswith("dockerfile.") or name.endswith(".dockerfile"):
        return "dockerfile"
    if name.startswith("requirements") and name.endswith(".txt"):
        return "requirements"
    stem, point, ending = name.rpartition(".")
    if ending in ("yaml", "yml"):
        return next((YAML_NAMES[word] for word in stem.split(".") if word in YAML_NAMES), None)
    return FORMAT_BY_SUFFIX.get(point + ending) if stem else None


def companion_files(plan: Plan, file_format: str) -> dict[str, str]:
    """The files that a file of this format reads from its own folder, by name."""
    text = "" if file_format not in ("dockerfile", "compose") else render_plan_file(plan, file_format)
    return {pins.HASH_FILE: render_plan_file(plan, "requirements")} if pins.HASH_FILE in text else {}

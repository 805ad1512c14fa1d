"""A plan as a file for another tool: lock, requirements, pyproject, conda, Dockerfile, Slurm, shell script."""

from __future__ import annotations

from gpuready.render.files.quoting import checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.planned import Plan

FORMS = ("lock", "requirements", "pyproject", "conda", "dockerfile", "slurm", "shell")
HASHED = ("lock", "requirements")
"""Formats that pin every file by hash, so they need a resolved plan."""

ENDINGS = {".lock": "lock", ".sbatch": "slurm", ".slurm": "slurm", ".sh": "shell", ".json": "json"}
NAMES = {"pyproject.toml": "pyproject", "environment.yml": "conda", "environment.yaml": "conda"}


def document(plan: Plan, form: str) -> str:
    """Render the plan in one format. ValueError, in a sentence, where the format cannot express it."""
    if form not in FORMS:
        raise ValueError(f"a plan has no form {form!r}: choose {', '.join(FORMS[:-1])} or {FORMS[-1]}")
    name = f"{plan.framework} {plan.version}"
    if plan.verdict != "plan":
        raise ValueError(
            f"there is no plan for {name} to write: it is impossible here, and the screen says why"
        )
    if plan.options.get("fix") and form != "shell":
        raise ValueError(
            f"a plan that mends is made of steps: write it as a shell script or as JSON, not as {form}"
        )
    from gpuready.render.files.pins import is_resolved, unresolved

    if form in HASHED and not is_resolved(plan):
        what = "a lock" if form == "lock" else "requirements with hashes"
        raise ValueError(f"{what} of {name} cannot be written: {unresolved(plan)}; other formats can")
    module = __import__(f"gpuready.render.files.{form}", fromlist=("document",))
    text: str = module.document(checked(plan))
    return text


def form_of(path: str) -> str | None:
    """The format implied by a file name, if any."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    if name in NAMES:
        return NAMES[name]
    if (
        name in ("dockerfile", "containerfile")
        or name.startswith("dockerfile.")
        or name.endswith(".dockerfile")
    ):
        return "dockerfile"
    if name.startswith("requirements") and name.endswith(".txt"):
        return "requirements"
    stem, point, ending = name.rpartition(".")
    return ENDINGS.get(point + ending) if stem else None

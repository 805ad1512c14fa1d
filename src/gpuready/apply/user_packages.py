"""What a user added to an environment of gpuready: what `install` was told, and what other tools installed there since."""

from __future__ import annotations

from collections.abc import Iterable

from gpuready.apply.audit import list_distributions
from gpuready.apply.generation import EnvironmentGeneration
from gpuready.catalog.packages import canonical_package_name, split_requirement
from gpuready.model import Record, versions
from gpuready.system import file_contents

ADDITIONS = "additions"
"""The key of ``Plan.options`` with the requirements beside the framework's own."""


class UserPackages(Record):
    """The packages of a generation that its plan does not have."""

    recorded: tuple[str, ...] = ()  # requirements of its lock, which the user named
    found: tuple[str, ...] = ()  # name==version: installed by other tools, and asked for by name
    lost: tuple[str, ...] = ()  # with the reason: what no lock can hold, or what has another version there


def find_user_packages(generation: EnvironmentGeneration | None) -> UserPackages:
    """Read what the user added to a generation; nothing where there is none."""
    manifest = generation.read_manifest() if generation is not None else {}
    plan, published = manifest.get("plan"), manifest.get("packages")
    if generation is None or not isinstance(plan, dict) or not isinstance(published, dict):
        return UserPackages()
    options = plan.get("options")
    recorded = options.get(ADDITIONS) if isinstance(options, dict) else ()
    found, asked, lost = [], [], []
    for one in list_distributions(generation.path):
        before = published.get(one.name)
        if before == one.version or not versions.is_version(one.version):
            continue
        if before is not None:
            lost.append(f"{one.name} {one.version}, which was {before}")
        elif file_contents.file_size(f"{one.info}/direct_url.json") is not None:
            lost.append(f"{one.name} {one.version}, which came from no index")
        else:
            found.append(f"{one.name}=={one.version}")
            asked += [found[-1]] if file_contents.file_size(f"{one.info}/REQUESTED") is not None else []
    texts = [text for text in recorded if isinstance(text, str)] if isinstance(recorded, list) else []
    return UserPackages(tuple(texts), tuple(sorted(asked or found)), tuple(sorted(lost)))


def merge_requirements(*lists: Iterable[str]) -> list[str]:
    """Join lists of requirements; what an earlier one says of a package counts."""
    merged: dict[str, str] = {}
    for text in (text for texts in lists for text in texts):
        merged.setdefault(canonical_package_name(split_requirement(text)[0]), text)
    return list(merged.values())


def parse_addition(text: str) -> str:
    """Return a requirement as a lock can hold it; ValueError, in a sentence, for anything but a name with a range."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        one = Requirement(text)
    except InvalidRequirement:
        raise ValueError(f"{text!r} is no package: write a name, or a name with a range such as 'peft>=0.18'") from None
    if one.url or one.marker:
        raise ValueError(f"{text!r} is not resolved by gpuready: name a package of the index, with a range at most")
    return str(one)

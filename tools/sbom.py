"""What gpuready brings along, as a CycloneDX document: ``python tools/sbom.py [--extra NAME ...] [-o FILE]``.

Read from what is installed in this Python, so run it where gpuready is: in the venv of a release.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(one: Distribution, extras: tuple[str, ...]) -> list[str]:
    """The names of what a distribution requires here."""
    from packaging.requirements import Requirement

    found = []
    for text in one.requires or ():
        requirement = Requirement(text)
        wanted = [{"extra": extra} for extra in ("", *extras)]
        if requirement.marker is None or any(requirement.marker.evaluate(requested) for requested in wanted):
            found.append(canonical(requirement.name))
    return list(dict.fromkeys(found))


def closure(root: str, extras: tuple[str, ...]) -> tuple[dict[str, Distribution], dict[str, list[str]], list[str]]:
    """Every distribution that is needed, who needs whom, and what is not installed."""
    seen: dict[str, Distribution] = {}
    edges: dict[str, list[str]] = {}
    missing: list[str] = []
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name in seen or name in missing:
            continue
        try:
            seen[name] = distribution(name)
        except PackageNotFoundError:
            missing.append(name)
            continue
        edges[name] = needed(seen[name], extras if name == root else ())
        waiting += edges[name]
    return seen, edges, missing


def component(name: str, one: Distribution) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "library", "name": name, "version": one.version, "bom-ref": ref(name, one)}
    entry["purl"] = entry["bom-ref"]
    licence = one.metadata.get("License-Expression") or one.metadata.get("License") or ""
    if licence and len(licence) < 100:
        entry["licenses"] = [{"license": {"name": licence}}]
    return entry


def ref(name: str, one: Distribution) -> str:
    return f"pkg:pypi/{name}@{one.version}"


def document(extras: tuple[str, ...] = ()) -> dict[str, Any]:
    """The bill of materials. ValueError where something that gpuready needs is not installed."""
    seen, edges, missing = closure("gpuready", extras)
    if missing:
        raise ValueError(f"not installed here: {', '.join(missing)}; install gpuready into this Python first")
    own = seen.pop("gpuready")
    links = {name: [ref(to, seen[to]) for to in sorted(edges[name])] for name in sorted(seen)}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**component("gpuready", own), "type": "application"}},
        "components": [component(name, seen[name]) for name in sorted(seen)],
        "dependencies": [
            {"ref": ref("gpuready", own), "dependsOn": [ref(to, seen[to]) for to in sorted(edges["gpuready"])]},
            *({"ref": ref(name, seen[name]), "dependsOn": to} for name, to in links.items()),
        ],
    }


def main() -> int:
    words = sys.argv[1:]
    extras = tuple(words[i + 1] for i, word in enumerate(words[:-1]) if word == "--extra")
    try:
        text = json.dumps(document(extras), indent=1, sort_keys=True) + "\n"
    except ValueError as bad:
        print(f"sbom: {bad}", file=sys.stderr)
        return 2
    if "-o" in words[:-1]:
        Path(words[words.index("-o") + 1]).write_text(text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Print rows of catalog/kernels.toml for the releases of a kernel package, from the workflow that publishes its wheels.

For maintainers: ``kernel_wheels.py CLONE NAME`` reads .github/workflows/publish.y*ml (the matrix and its exclusions) and
setup.py (how a wheel is called, which architectures it is compiled for) at every tag of a git clone that the catalogue
does not have. The rows are not confirmed: a build of the matrix may have failed, and wheels may have been added later.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

from gpuready.catalog import kernels  # noqa: E402
from gpuready.model import versions  # noqa: E402

REPOSITORIES = {
    "flash-attn": "Dao-AILab/flash-attention",
    "causal-conv1d": "Dao-AILab/causal-conv1d",
    "mamba-ssm": "state-spaces/mamba",
}
OLDEST = {"flash-attn": "2.5.6", "causal-conv1d": "1.2.0", "mamba-ssm": "1.2.0"}
KEYS = {
    "python-version": "python",
    "torch-version": "torch",
    "cuda-version": "cuda",
    "os": "machine",
    "cxx11_abi": "abi",
}


def main(words: list[str]) -> int:
    if len(words) != 2 or words[1] not in REPOSITORIES:
        print(f"usage: kernel_wheels.py CLONE {'|'.join(REPOSITORIES)}", file=sys.stderr)
        return 2
    clone, name = words
    known = kernels.list_kernel_releases(name)
    for tag in _git(clone, "tag").split():
        version = tag.removeprefix("v")
        if not versions.is_version(version) or versions.compare_versions(version, OLDEST[name]) < 0:
            continue
        if version not in known or kernels.find_prebuilt_wheels(name, version) is None:
            print(make_row(clone, name, tag), end="")
    return 0


def _git(clone: str, *words: str) -> str:
    return subprocess.run(["git", "-C", clone, *words], capture_output=True, text=True, check=False).stdout


def make_row(clone: str, name: str, tag: str) -> str:
    """Return the TOML row of a tag; empty where its workflow builds no wheels, or the package calls itself otherwise."""
    files = _git(clone, "ls-tree", "--name-only", tag, ".github/workflows/").split()
    path = next((file for file in files if "/publish.y" in file), "")
    if not path:
        return ""
    matrix = yaml.safe_load(_git(clone, "show", f"{tag}:{path}"))["jobs"]["build_wheels"]["strategy"]["matrix"]
    setup = _git(clone, "show", f"{tag}:setup.py")
    module = _git(clone, "show", f"{tag}:{name.replace('-', '_')}/__init__.py")
    stated = re.search(r'__version__ = "([^"]+)"', module)
    if stated is None or stated[1] != tag.removeprefix("v"):
        return ""
    return format_row(read_matrix(matrix, setup), read_architectures(setup), tag, f"{REPOSITORIES[name]} {path}")


def read_matrix(matrix: dict[str, Any], setup: str) -> dict[str, Any]:
    """Return the columns of a row: values, how a name writes each CUDA major, and what is left out."""
    cuda = {one.split(".")[0]: ".".join(one.split(".")[:2]) for one in matrix["cuda-version"]}
    in_full = re.search(r'^\s*cuda_version = f"\{\w+\.major\}\{\w+\.minor\}"', setup, re.M) is not None
    return {
        "torch": list(dict.fromkeys(_shorten("torch", one) for one in matrix["torch-version"] if one[0] != "1")),
        "cuda": {major: full.replace(".", "") if in_full else major for major, full in cuda.items()},
        "built": cuda,
        "python": matrix["python-version"],
        "machine": list(dict.fromkeys(_shorten("machine", one) for one in matrix["os"])),
        "abi": matrix["cxx11_abi"],
        "without": [
            {KEYS[key]: _shorten(KEYS[key], value) for key, value in row.items()}
            for row in matrix.get("exclude", ())
            if not row.get("torch-version", "2").startswith("1")
        ],
    }


def _shorten(key: str, value: str) -> str:
    if key == "machine":
        return "aarch64" if value.endswith("-arm") else "x86_64"
    parts = {"torch": 2, "cuda": 1}.get(key, 9)
    return ".".join(value.split(".")[:parts])


def read_architectures(setup: str) -> list[dict[str, str]]:
    """Return the compute capabilities that setup.py compiles for, and the CUDA from which on and until which."""
    lines, found = setup.splitlines(), []
    for number, line in enumerate(lines):
        code = re.search(r"arch=compute_(\d+)", line)
        if code and not line.lstrip().startswith("#"):
            row = {"cc": f"{code[1][:-1]}.{code[1][-1]}", "cuda": "11.6"}
            for condition in _conditions_above(lines, number):
                sign, cuda = condition
                row["until" if sign == "<=" else "cuda"] = cuda
            found.append(row)
    return [row for at, row in enumerate(found) if row not in found[:at]]


def _conditions_above(lines: list[str], number: int) -> list[tuple[str, str]]:
    """Return the conditions on nvcc's version of the blocks around a line, the outermost first."""
    depth, found = len(lines[number]) - len(lines[number].lstrip()), []
    for line in reversed(lines[:number]):
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent < depth:
            depth = indent
            found += re.findall(r'bare_metal_version (>=|<=) Version\("([\d.]+)"\)', line)
    return found[::-1]


def format_row(columns: dict[str, Any], arch: list[dict[str, str]], tag: str, source: str) -> str:
    def table(row: dict[str, str]) -> str:
        return "{ " + ", ".join(f'{key} = "{value}"' for key, value in row.items()) + " }"

    def plain(values: list[str]) -> str:
        return "[" + ", ".join(f'"{value}"' for value in values) + "]"

    lines = ["[[kernel.version]]", f'version = "{tag.removeprefix("v")}"']
    lines += [f"{key} = {plain(columns[key])}" for key in ("torch", "python", "machine", "abi")]
    lines += [f"{key} = {table(columns[key])}" for key in ("cuda", "built")]
    for key, rows in (("without", columns["without"]), ("arch", arch)):
        lines += [f"{key} = [", *(f"  {table(row)}," for row in rows), "]"] if rows else []
    lines += ["confirmed = false", f'source = "{source} and setup.py at {tag}"', "", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

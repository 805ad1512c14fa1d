"""Run the tests that a change touches, nearest first by the imports: ``make test-changed``, or with ``BASE=main``.

A changed module is tested by the files that import it, or import what imports it. Where none does, or more than MANY do, those of
its package's folder under tests/ stand for them. What reaches it from farther is left out, and counted: ``make test`` runs all.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ruff import find_ruff_bin

ROOT = Path(__file__).resolve().parent.parent
MANY = 12


def list_changed_files(root: Path, base: str) -> list[str]:
    """The files that differ from a commit, and those that git does not know yet."""
    asked = (["diff", "--name-only", base, "--"], ["ls-files", "--others", "--exclude-standard"])
    ran = [subprocess.run(["git", *words], cwd=root, capture_output=True, text=True) for words in asked]
    if failed := next((one for one in ran if one.returncode), None):
        raise SystemExit(f"git cannot say what changed against {base}: {failed.stderr.strip()}")
    return sorted({name for one in ran for name in one.stdout.splitlines()})


def read_importers(root: Path) -> dict[str, list[str]]:
    """For each file those that import it, as ruff finds them."""
    words = ["analyze", "graph", "--isolated", "--direction", "dependents", "--config", 'src = ["src", "tools", "."]']
    ran = subprocess.run([find_ruff_bin(), *words, "."], cwd=root, capture_output=True, text=True, check=True)
    importers: dict[str, list[str]] = json.loads(ran.stdout)
    return importers


def is_test(path: str) -> bool:
    return path.startswith("tests/") and path.rpartition("/")[2].startswith("test_")


def list_layers(path: str, importers: dict[str, list[str]]) -> Iterator[set[str]]:
    """The tests that import a file, then those that import what imports it, and so on."""
    seen = layer = {path}
    while layer := set().union(*(importers.get(one, ()) for one in layer)) - seen:
        seen = seen | layer
        yield {one for one in layer if is_test(one)}


def nearest_tests(root: Path, path: str, importers: dict[str, list[str]]) -> set[str]:
    """The tests of one changed file; empty where none is known."""
    if is_test(path):
        return {path} if (root / path).exists() else set()
    near = next(filter(None, list_layers(path, importers)), set())
    words = path.removeprefix("src/gpuready/").split("/")
    folder = root / "tests" / words[words[0] == "tests"]
    beside = {str(one.relative_to(root)) for one in folder.glob("test_*.py")}
    near |= {one for one in beside if one.endswith(f"/test_{Path(path).stem}.py")}
    return near if 0 < len(near) <= MANY else (near & beside) or beside


def main(words: list[str]) -> int:
    base = (words or ["HEAD"])[0]
    changed, importers = list_changed_files(ROOT, base), read_importers(ROOT)
    chosen = {path: nearest_tests(ROOT, path, importers) for path in changed}
    tests = {"tests/test_architecture.py"}.union(*chosen.values()) if changed else set()
    left = set().union(*(layer for path in changed for layer in list_layers(path, importers))) - tests
    print(
        f"{len(changed)} files differ from {base}: {len(tests)} files of tests run, {len(left)} that reach them through others do not"
    )
    print("".join(f"  no test is known of {path}\n" for path, found in chosen.items() if not found), end="", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", *sorted(tests)], cwd=ROOT).returncode if tests else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

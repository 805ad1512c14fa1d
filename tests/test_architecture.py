"""The house holds to docs/design.md: who may import whom, what is forbidden, what happens at import."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import gpuready

SRC = Path(gpuready.__file__).parent
FILES = sorted(SRC.rglob("*.py"))

DESIGN = SRC.parents[1] / "docs" / "design.md"
EVERYWHERE = {
    "model", "noun", "held", "versions", "planned", "diagnosed", "fitted", "fleeted", "proven", "benched", "reported",
}  # fmt: skip


def table() -> dict[str, set[str]]:
    """Who may import whom, as docs/design.md has it."""
    _, _, after = DESIGN.read_text().partition("### Who may import whom")
    rows = [line.split("|") for line in after.partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    words = [[{w.strip(" `") for w in cell.split(",")} - {""} for cell in row[1:3]] for row in rows]
    return {room: may for rooms, may in words for room in rooms} | {room: set() for room in EVERYWHERE}


MAY_IMPORT = table()
ALL = set(MAY_IMPORT) - EVERYWHERE - {"__init__", "__main__"}
FORBIDDEN_NAMES = {"utils", "helpers", "common", "core", "base", "manager"}
DOOR_ONLY = {"subprocess", "socket", "ctypes", "multiprocessing", "urllib", "http"}
HEAVY = {
    "typing", "dataclasses", "subprocess", "pathlib", "packaging", "threading", "logging", "inspect", "tomllib",
    "importlib.metadata", "contextlib", "tempfile", "shutil", "asyncio", "torch", "yaml", "rich", "jinja2", "ctypes",
    "socket", "urllib", "re", "json", "functools", "enum", "collections", "argparse",
}  # fmt: skip


def room(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def dotted(node: ast.AST) -> str:
    """``os.environ`` of a name or an attribute of one; nothing for any other expression."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@functools.cache
def imports(path: Path, *, typing_too: bool = False) -> frozenset[str]:
    """The modules a file imports, without those that only the type checker sees."""
    found: set[str] = set()

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.If) and dotted(node.test) == "TYPE_CHECKING" and not typing_too:
            for child in node.orelse:
                walk(child)
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):  # no expression imports anything
                walk(child)

    walk(tree(path))
    return frozenset(found)


def ours(path: Path, **options) -> set[str]:
    """The rooms of ours that a file imports."""
    names = {name.split(".")[1] for name in imports(path, **options) if name.startswith("gpuready.")}
    return names & (ALL | EVERYWHERE)


def test_the_import_table():
    for path in FILES:
        here = room(path)
        assert here in MAY_IMPORT, f"{here} is no room of docs/design.md"
        beyond = ours(path, typing_too=True) - (MAY_IMPORT[here] | EVERYWHERE | {here})
        assert not beyond, f"{path.relative_to(SRC)} may not import {beyond}"


def edges(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules of ours that a file imports; ``from room import file`` leads to the file, not to the room."""
    found = {name for name in imports(path) if name in modules}
    return {n for n in found if not any(other.startswith(f"{n}.") for other in found)}


def test_no_import_cycles():
    modules = {}
    for path in FILES:
        name = ".".join(("gpuready", *path.relative_to(SRC).with_suffix("").parts)).removesuffix(".__init__")
        modules[name] = path
    graph = {name: edges(path, modules) - {name} for name, path in modules.items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for other in graph[name]:
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_names():
    for path in FILES:
        assert not FORBIDDEN_NAMES & {part.removesuffix(".py") for part in path.relative_to(SRC).parts}, path


RUNS_CODE = {"eval", "exec", "os.system", "os.popen", "pickle.loads", "pickle.load"}
ENVIRONMENT = {"os.environ", "os.getenv", "os.environb"}


def test_one_door():
    for path in FILES:
        if room(path) in {"system", "rollcall", "launcher"} or path.parent.name in {"scripts", "data"}:
            continue  # the scripts run in the patient, started by the door; data is made of literals
        assert not {name.split(".")[0] for name in imports(path)} & DOOR_ONLY, path
        nodes = list(ast.walk(tree(path)))
        assert not RUNS_CODE & {dotted(node.func) for node in nodes if isinstance(node, ast.Call)}, path
        if room(path) not in {"cli", "mcp", "web", "prove", "runtime"}:
            used = {dotted(node) for node in nodes if isinstance(node, ast.Attribute)}
            assert not used & ENVIRONMENT, f"{path}: the environment is read through the door"


def test_torch_is_never_imported_by_gpuready_itself():
    for path in FILES:
        if room(path) not in {"runtime", "prove"} and path.parent.name != "scripts":
            assert "torch" not in {name.split(".")[0] for name in imports(path)}, path


def test_nothing_happens_at_import():
    """Importing every module of the check path pulls in nothing heavy and starts nothing."""
    names = [
        "gpuready.cli",
        "gpuready.workflow",
        "gpuready.check.evaluate",
        "gpuready.render.check_report",
        "gpuready.system",
    ]
    names += ["gpuready.probe", "gpuready.contracts", "gpuready.catalog.cuda", "gpuready.catalog.torch"]
    code = (
        "import sys, os\n"
        "before = set(sys.modules)\n"
        f"for name in {names!r}: __import__(name)\n"
        "from gpuready import rules\n"
        "list(rules.load_all_rules())\n"
        "print(' '.join(sorted(set(sys.modules) - before)))\n"
    )
    clean = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
                           capture_output=True, text=True, check=True)  # fmt: skip
    loaded = set(clean.stdout.split())
    assert not loaded & HEAVY


def test_every_rule_is_in_the_ledger_and_the_other_way_round():
    from gpuready.rules import RULE_MODULES

    on_disk = {f"{path.parent.name}.{path.stem}" for path in (SRC / "rules").glob("*/*.py") if path.stem != "__init__"}
    assert on_disk == set(RULE_MODULES.values())

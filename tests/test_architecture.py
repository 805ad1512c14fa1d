"""The laws of docs/explanation/design.md: who may import whom, where a verdict is computed, what is forbidden, what happens at import."""

from __future__ import annotations

import ast
import functools
import gc
import json
import re
import subprocess
import sys
from pathlib import Path

import gpuready

SRC = Path(gpuready.__file__).parent
FILES = sorted(SRC.rglob("*.py"))

DESIGN = SRC.parents[1] / "docs" / "explanation" / "design.md"
EVERYWHERE = {"model"}
"""Packages that every other one may import."""


def read_import_table() -> dict[str, set[str]]:
    """Who may import whom, as docs/explanation/design.md has it."""
    _, _, after = DESIGN.read_text().partition("### Who may import whom")
    rows = [line.split("|") for line in after.partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    words = [[{w.strip(" `") for w in cell.split(",")} - {""} for cell in row[1:3]] for row in rows]
    return {name: may for names, may in words for name in names} | {name: set() for name in EVERYWHERE}


MAY_IMPORT = read_import_table()
ALL = set(MAY_IMPORT) - EVERYWHERE - {"__init__", "__main__"}
FORBIDDEN_NAMES = {"utils", "helpers", "common", "core", "base", "manager"}
ACCESS_IMPORTS = {
    "subprocess", "socket", "ctypes", "multiprocessing", "urllib", "http", "pathlib", "shutil", "tempfile", "glob", "fcntl",
    "select", "signal", "resource", "pwd", "mmap",
}  # fmt: skip
"""Modules that touch processes, files or the network."""
OPTIONAL = {
    "anyio", "jinja2", "jsonschema", "markupsafe", "mcp", "mcp_types", "numpy", "packaging", "py_spy", "ray", "starlette", "tomli",
    "tomllib", "torch", "transformers", "typing_extensions", "uv", "uvicorn", "yaml",
}  # fmt: skip
"""Not of the standard library, or not of every Python: may be imported inside any function."""
HEAVY = {
    "ast", "asyncio", "base64", "concurrent", "ctypes", "difflib", "hashlib", "html", "http", "inspect", "json", "multiprocessing",
    "shlex", "shutil", "ssl", "subprocess", "tarfile", "tempfile", "threading", "traceback", "unicodedata", "urllib", "xml",
    "zipfile",
}  # fmt: skip
"""What most checks need not load: may be imported inside a function of a module that a check imports."""
ON_DEMAND = {
    "__init__.py": {"gpuready.commands"},
    "cli/__init__.py": {"gpuready.cli.help", "gpuready.render.json_document"},
    "cli/session.py": {"gpuready.cli.progress", "gpuready.render.run"},
    "commands/check.py": {f"gpuready.render.{name}" for name in ("facts", "html", "json_document", "junit", "prometheus", "sarif")},
    "commands/mcp.py": {"gpuready.mcp"},
    "commands/result.py": {"gpuready.render.html"},
    "commands/serve.py": {"gpuready.web"},
    "contracts/__init__.py": {"gpuready.contracts.contract_file"},
    "probe/gpu.py": {"gpuready.probe.nvidia_smi"},
    "probe/imports.py": {"gpuready.system.imports"},
    "probe/job.py": {"gpuready.jobs"},
    "probe/optional_probes.py": {"gpuready.probe"},
    "rules/__init__.py": {"gpuready.rules.log_rules"},
    "system/imports/survey_cache.py": {"gpuready.system.imports"},
    "system/live_host.py": {
        f"gpuready.system.{name}" for name in ("dynamic_loader", "elf", "imports", "nvml", "process.runner")
    },
    "workflow/__init__.py": {
        "gpuready.catalog.causes", "gpuready.catalog.facts", "gpuready.check.changes", "gpuready.contracts.diff", "gpuready.jobs",
        "gpuready.logs", "gpuready.rules", "gpuready.runtime.job_placement", "gpuready.workflow.fit", "gpuready.workflow.image_facts",
        "gpuready.contracts.catalogued_release", "gpuready.workflow.asked_file", "gpuready.workflow.index_contract",
    },
    "workflow/contract_choice.py": {"gpuready.contracts.catalogued_release", "gpuready.contracts.foreign"},
    "workflow/judge.py": {"gpuready.contracts.catalogued_release", "gpuready.model.plan", "gpuready.plan"},
    "workflow/refusal.py": {"gpuready.system.process.runner"},
    "workflow/trace_environment.py": {"gpuready.workflow.install"},
    "workflow/machine_facts.py": {
        "gpuready.catalog.facts", "gpuready.jobs", "gpuready.probe.job", "gpuready.probe.stated_machine", "gpuready.workflow.container_file",
    },
}  # fmt: skip
"""What only some flags of a check need, by the module that imports it inside a function."""
ELSEWHERE = {"apply/generation_hook.py", "launcher/rank_main.py", "launcher/ray_driver.py"}
"""Run in another Python, without gpuready; so do the folders ``scripts``."""


def package(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module, the module itself first; frozen, or the collector would walk over all that is kept again and again."""
    gc.disable()
    try:
        return tuple(ast.walk(ast.parse(path.read_text())))
    finally:
        gc.freeze()
        gc.enable()


@functools.cache
def nodes_of(path: Path, *kinds: type[ast.AST]) -> tuple[ast.AST, ...]:
    return tuple(node for node in nodes(path) if isinstance(node, kinds))


def dotted(node: ast.AST) -> str:
    """``os.environ`` of a name or an attribute of one; nothing for any other expression."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@functools.cache
def imports(path: Path, *, typing_too: bool = False) -> frozenset[str]:
    """The modules a file imports, without those that only the type checker sees."""
    typing = [node for node in nodes_of(path, ast.If) if dotted(node.test) == "TYPE_CHECKING" and not typing_too]
    hidden = {inner for node in typing for child in node.body for inner in ast.walk(child)}
    found: set[str] = set()
    for node in nodes_of(path, ast.Import, ast.ImportFrom):
        if node in hidden:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif node.level == 0 and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


def ours(path: Path, **options) -> set[str]:
    """The packages of ours that a file imports."""
    names = {name.split(".")[1] for name in imports(path, **options) if name.startswith("gpuready.")}
    return names & (ALL | EVERYWHERE)


def test_the_import_table():
    for path in FILES:
        here = package(path)
        assert here in MAY_IMPORT, f"{here} is not in the table of docs/explanation/design.md"
        beyond = ours(path, typing_too=True) - (MAY_IMPORT[here] | EVERYWHERE | {here})
        assert not beyond, f"{path.relative_to(SRC)} may not import {beyond}"


def edges(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules of ours that a file imports; ``from package import module`` leads to the module, not to the package."""
    found = {name for name in imports(path, typing_too=True) if name in modules}
    return {n for n in found if not any(other.startswith(f"{n}.") for other in found)}


def may_stand_inside(name: str, path: str) -> bool:
    """Whether a function of a file may import a module."""
    allowed = OPTIONAL | HEAVY | ON_DEMAND.get(path, set())
    return any(name == one or name.startswith(f"{one}.") for one in allowed)


def test_imports_stand_at_the_top():
    for path in FILES:
        where = path.relative_to(SRC).as_posix()
        if path.parent.name in {"scripts", "data"} or where in ELSEWHERE:
            continue
        assert "TYPE_CHECKING = False" not in path.read_text(), (
            f"{where}: take it from typing, for optional modules alone"
        )
        for function in nodes_of(path, ast.FunctionDef, ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    names = {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    names = (
                        {node.module}
                        if may_stand_inside(node.module, where)
                        else {f"{node.module}.{a.name}" for a in node.names}
                    )
                else:
                    continue
                assert all(may_stand_inside(name, where) for name in names), (
                    f"{where}:{node.lineno}: import {names} at the top"
                )


def test_no_import_cycles():
    modules = {}
    for path in FILES:
        name = ".".join(("gpuready", *path.relative_to(SRC).with_suffix("").parts)).removesuffix(".__init__")
        modules[name] = path
    graph = {name: edges(path, modules) - {name} for name, path in modules.items()}
    graph["gpuready"] = set()  # what it imports for the type checker alone are the commands
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


ACCESS_PACKAGES = {
    "system": "it is the access",
    "rollcall": "connects the ranks of a job over sockets, inside the training process",
    "launcher": "starts and watches the ranks; its agent runs in the target's Python with the standard library alone",
}
ACCESS_MODULES = {
    "apply/environment_copy.py": "os.access",
    "apply/generation.py": "os.access os.listdir os.path.isdir os.path.isfile os.path.islink os.path.lexists",
    "apply/generation_hook.py": "fcntl os.close os.open os.path.isfile os.path.realpath",
    "cli/__init__.py": "os._exit os.environ signal",
    "cli/progress.py": "os.write signal",
    "cli/terminal.py": "os.dup2 os.environ os.fstat os.get_terminal_size os.open",
    "commands/mcp.py": "os.getcwd",
    "commands/parameters.py": "os.environ",
    "contracts/contract_file.py": "os.path.isfile",
    "contracts/toml.py": "open os.path.exists os.path.isfile",
    "fleet/node_payload.py": "open os.scandir os.stat",
    "model/run.py": "signal",
    "render/sarif.py": "urllib",
    "runtime/configure.py": "os.environ os.listdir",
    "runtime/group.py": "open os.close socket",
    "runtime/code_fingerprints.py": "open os.listdir os.path.isfile",
    "runtime/launch.py": "os.environ",
    "web/server.py": "os.environ os.sched_getaffinity",
    "web/worker.py": "os.dup os.dup2 os.fdopen os.open",
}
"""What single modules may use themselves, because: apply tells apart why its own folder cannot be used, and its hook runs in the
installed environment without gpuready; cli, commands and web have the environment, the standard streams and the
processors of their own process; contracts reads the file that the user names, and imports nothing but the catalogue; fleet
reads gpuready's own source to send it; records of runs only name signals, and render quotes URLs; runtime runs inside the training process."""
HARMLESS = {
    "os.path", "os.sep", "os.pathsep", "os.devnull", "os.defpath", "os.name", "os.fspath", "os.fsencode", "os.fsdecode",
    "os.PathLike", "os.urandom", "os.strerror", "os.getpid", "os.path.join", "os.path.dirname", "os.path.basename",
    "os.path.split", "os.path.splitext", "os.path.normpath", "os.path.isabs", "os.path.abspath", "os.path.relpath",
}  # fmt: skip
"""What computes, or says nothing of the machine."""


def machine_access(path: Path) -> set[str]:
    """The functions and modules by which a file touches files, processes, the network or the environment."""
    found = {name.split(".")[0] for name in imports(path)} & ACCESS_IMPORTS
    found |= {name for name in imports(path) if name.startswith("os.")}
    if {"open", "io.open"} & {dotted(node.func) for node in nodes_of(path, ast.Call)}:
        found.add("open")
    for name in map(dotted, nodes_of(path, ast.Attribute)):
        if name.startswith("os."):
            parts = name.split(".")
            found.add(".".join(parts[: 3 if parts[1] == "path" else 2]))
    return {name for name in found - HARMLESS if not name.removeprefix("os.").isupper()}


def test_all_access_to_the_machine_goes_through_system():
    for path in FILES:
        if path.parent.name in {"scripts", "data"}:
            continue  # the scripts run in the target environment, started by system; data is made of literals
        if package(path) not in ACCESS_PACKAGES:
            assert not RUNS_CODE & {dotted(node.func) for node in nodes_of(path, ast.Call)}, path
            allowed = set(ACCESS_MODULES.get(path.relative_to(SRC).as_posix(), "").split())
            assert machine_access(path) == allowed, path


def test_torch_is_never_imported_by_gpuready_itself():
    for path in FILES:
        if package(path) not in {"runtime", "prove"} and path.parent.name != "scripts":
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
        "list(map(rules.load_rule, rules.list_rule_modules()))\n"
        "print(' '.join(sorted(set(sys.modules) - before)))\n"
    )
    clean = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
                           capture_output=True, text=True, check=True)  # fmt: skip
    loaded = set(clean.stdout.split())
    assert not loaded & (HEAVY | OPTIONAL | {"dataclasses", "argparse", "logging", "pathlib"} - {"typing_extensions"})
    assert not loaded & {"gpuready.catalog.data.patterns", "gpuready.catalog.data.log_rules"}, "only a log needs them"


def test_every_rule_is_in_the_table_of_codes():
    from gpuready.rules import list_rule_modules

    modules = [path for path in (SRC / "rules").glob("*/[a-z]*.py") if path.parent.name != "data"]
    assert {f"{path.parent.name}.{path.stem}" for path in modules} == set(list_rule_modules().values()), (
        "run: make catalog"
    )


def test_codes_are_never_removed():
    """The codes of a family are counted from 001 without a gap: one that was retired would be missing here."""
    from gpuready.rules import list_codes

    numbers: dict[str, list[int]] = {}
    for code in list_codes():
        numbers.setdefault(code[:3], []).append(int(code[3:]))
    for family, found in numbers.items():
        assert sorted(found) == list(range(1, len(found) + 1)), family


# -- laws ---------------------------------------------------------------------------------------------------

ROOT = SRC.parents[1]
MACHINES = sorted((ROOT / "tests" / "machines").glob("*.json"))


def test_the_table_names_packages_that_exist():
    assert set(MAY_IMPORT) - {"__init__", "__main__"} == {path.parent.name for path in SRC.glob("*/__init__.py")}


def test_every_test_named_in_the_laws_exists():
    """Each law of docs/explanation/design.md names the tests that keep it, here or by path."""
    laws = DESIGN.read_text().partition("## The laws")[2].partition("\n## ")[0]
    numbered = re.split(r"^(?=\d+\. )", laws, flags=re.M)[1:]
    here = Path(__file__).read_text()
    for law in numbered:
        named = re.findall(r"`((?:tests/[\w/.]+)?(?:::)?(?:test_\w+)?)`", law)
        named = [name for name in named if name]
        assert named, f"no test: {law[:60]}"
        for name in named:
            path, _, function = name.rpartition("::") if "::" in name else ("", "", name)
            path, function = (name, "") if name.endswith(".py") else (path, function)
            text = (ROOT / path).read_text() if path else here
            assert f"def {function}" in text, name


def test_every_recorded_fact_has_a_source():
    recorded = [json.loads(path.read_text()) for path in MACHINES]
    facts = [fact for one in recorded if "facts" in one for fact in one["facts"]]
    assert len(facts) > 500
    for fact in facts:
        assert fact["key"] and fact["source"] and fact.get("how", "read") in ("read", "run", "log", "stated"), fact
        assert not (fact.get("gap") and fact.get("value") is not None), fact


def test_probes_rules_and_renderers_are_apart():
    judges = {"rules", "check", "diagnose", "plan"}
    hosts = {"system", "probe", "prove", "jobs", "containers", "apply", "launcher", "fleet", "workflow"}
    apart = {"probe": judges, "prove": judges, "logs": judges, "rules": hosts, "render": hosts | judges - {"check"}}
    for path in FILES:
        assert not ours(path, typing_too=True) & apart.get(package(path), set()), path


CHECK_VERDICTS = {"not-ready", "clear"}


def produced_strings(node: ast.AST) -> set[str]:
    """The strings that a return or an assignment may produce; keys, comparisons and arguments are left out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.IfExp):
        return produced_strings(node.body) | produced_strings(node.orelse)
    if isinstance(node, ast.Tuple | ast.BoolOp):
        return set().union(*map(produced_strings, node.elts if isinstance(node, ast.Tuple) else node.values))
    return set()


def test_a_verdict_of_a_check_is_computed_in_one_place():
    """Others read ``Report.verdict`` or take the worst of several; nobody else writes one down."""
    found = set()
    for path in FILES:
        for node in nodes_of(path, ast.Return, ast.Assign, ast.AnnAssign):
            if isinstance(node.value, ast.Tuple) and isinstance(node, ast.Assign):
                continue  # a list of the words
            if node.value is not None and produced_strings(node.value) & CHECK_VERDICTS:
                found.add(path.relative_to(SRC).as_posix())
    assert found == {"model/report.py"}


def test_exit_codes_follow_from_verdicts():
    """Tables of exit codes and ``exit`` properties are in the records; a workflow only takes the worst of several."""
    for path in FILES:
        for node in nodes_of(path, ast.FunctionDef, ast.Assign):
            if isinstance(node, ast.FunctionDef) and node.name == "exit" and package(path) != "model":
                text = ast.unparse(node)
                assert ".exit" in text or "EXIT_CODES[" in text, f"{path.relative_to(SRC)} computes an exit code"
            if isinstance(node, ast.Assign) and "EXIT_CODES" in {dotted(target) for target in node.targets}:
                assert package(path) == "model", path.relative_to(SRC)


def test_the_labels_of_a_finding_are_its_fields():
    from gpuready.model import Fact, Finding, FixStep, Requirement
    from gpuready.render.finding import format_finding
    from gpuready.render.layout import Screen

    finding = Finding("SYS001", "error", "it is wrong", found=(Fact("a.b", 1, "/a"),), needs=(Requirement("a.b", ">1", cite="page"),),
                      so="the job ends at once", fix=(FixStep("do something"),))  # fmt: skip
    text = "\n".join(format_finding(finding, Screen(80)))
    labels = re.findall(r"^ +([a-z]+)  ", text, flags=re.M)
    assert labels == ["found", "needs", "so", "fix"]
    assert set(labels) <= set(finding.to_json())


def test_dependencies_have_no_upper_bounds():
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"^dependencies = \[(.*?)^\]", text, flags=re.S | re.M)
    assert listed is not None
    found = re.findall(r'^\s*"([^";]+)', listed[1], flags=re.M)
    assert 0 < len(found) <= 6 and "torch" not in " ".join(found)
    assert [one for one in found if "<" in one or "==" in one or "~=" in one] == []


def test_units_of_facts():
    """Sizes are bytes and times seconds by their type; a unit that is written out is a count or watts."""
    from gpuready.catalog import facts

    counts = {"", "errors", "links", "distributions", "files", "processes", "parameters"}
    rows = facts.load_catalog("facts")["fact"]
    assert {row.get("unit", "") for row in rows} <= counts | {"watts"}
    for row in rows:
        assert not re.search(r"_(kb|mb|gb|kib|mib|gib|ms|us|minutes|hours)\b", row["key"]), row["key"]


def test_help_needs_no_extra(tmp_path):
    for name in ("anyio", "jsonschema", "mcp", "mcp_types", "ray", "starlette", "torch", "uvicorn"):
        (tmp_path / f"{name}.py").write_text("raise ImportError\n")
    code = f"import sys; sys.path[:0] = {[str(tmp_path), *sys.path]!r}; from gpuready.cli import main; main(['--help-all'])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0 and "gpuready serve" in ran.stdout, ran.stderr

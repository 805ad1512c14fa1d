"""The battery of attacks, counted: ``python benchmarks/security_battery.py [-o FILE] [--only KIND]`` prints what was tried, held and broke.

Queries of ``serve`` and arguments of MCP tools are put together here, every hostile value in every parameter, and run under an
audit hook: it breaks where a planted file is opened, its text is in an answer, or a program is started with it. All other kinds are the
attacks of the tests, each parameter of a test for one. Minutes; as root more is tried.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
CANARY = "canary-7f3a91c2"
TESTS = {
    "redaction": ("tests/secrets", "tests/system/test_secret_names.py"),
    "serve": ("tests/web/test_security.py", "tests/web/test_connections.py", "tests/web/test_asked.py", "tests/web/test_uploads.py"),
    "mcp": ("tests/mcp", "tests/workflow/test_fencing.py"),
    "archives and wheels": ("tests/apply/test_audit.py", "tests/apply/test_bundle.py", "tests/faults/test_hostile_packages.py"),
    "readers": ("tests/fuzz", "tests/containers/test_expansion_bounds.py", "tests/faults/test_hostile_places.py"),
    "environments, recordings and projects of a stranger": ("tests/faults/test_hostile_environments.py",),
    "environments: small with a large result": ("tests/imports/test_bounds.py",),
    "install, killed": ("tests/apply/test_kill.py",),
    "state of a fix, planted": ("tests/workflow/test_planted_state.py",),
    "files of the current folder, planted": ("tests/workflow/test_folder_files.py", "tests/workflow/test_settings.py"),
    "logs: small with a large result": ("tests/logs/test_bounds.py", "tests/logs/test_hostile.py", "tests/system/test_log_streams.py"),
    "names of Slurm and Kubernetes": ("tests/workflow/test_hostile_names.py",),
    "projects and indexes": ("tests/apply/test_project_config.py", "tests/apply/test_two_users.py"),
    "contracts of a stranger": ("tests/contracts/test_foreign.py",),
    "nothing started, nothing imported": ("tests/probe/test_nothing_started.py", "tests/supply/test_isolated.py", "tests/supply/test_dry_runs.py"),
    "roll-call": ("tests/rollcall/test_secret.py", "tests/rollcall/test_munge.py", "tests/rollcall/test_strangers.py", "tests/rollcall/test_other_user.py", "tests/rollcall/test_parts.py"),
    "pages: markup": ("tests/render/test_html_hostile.py",),
    "every writer: what cannot be seen": ("tests/render/test_writers.py",),
    "other kinds": ("tests/faults/test_other_attacks.py",),
    "no network": ("tests/supply/test_no_network.py",),
    "releases": ("tests/supply/test_locks.py",),
}  # fmt: skip
SHELL = (
    "$(touch {m})",
    "`touch {m}`",
    "; touch {m}",
    "| touch {m}",
    "&& touch {m}",
    "\n touch {m}",
    "--contract={f}",
    "-o{m}",
)
PATHS = (
    "{f}",
    "../../..{f}",
    "file://{f}",
    "{f}%00.json",
    "~root/.ssh/id_rsa",
    "/proc/self/environ",
    "{d}/link",
    "{d}/./x/../secret",
    "\\\\host\\c$",
    "/dev/stdin",
)
ODD = ("\0", "a\0b", "{{7*7}}", "${{jndi:ldap://x}}", "<script>alert(1)</script>", "' OR 1=1 --", "%s%n", "{{0.__class__}}", "__import__('os').system('touch {m}')", "!!python/object/apply:os.system ['touch {m}']", "A" * 5000, "\u202e", "-1", "1e999", "NaN", "999999999999999999999")  # fmt: skip


class Watched:
    """An audit hook that notes planted files that are opened, and programs that are started."""

    def __init__(self, planted: str) -> None:
        self.planted, self.seen = planted, list[str]()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str) and self.planted in args[0]:
            self.seen.append(f"opened {args[0]}")
        is_start = event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn")
        if is_start and self.planted in str(args):
            self.seen.append(f"{event} {args[:2]}"[:200])


def hostile_values(folder: str) -> list[str]:
    names = {"m": f"{folder}/mark", "f": f"{folder}/secret", "d": folder}
    return [text.format(**names) for text in (*SHELL, *PATHS, *ODD)]


def judge(watched: Watched, folder: str, what: str, said: str, broke: list[str]) -> None:
    if watched.seen or CANARY in said or "Traceback" in said or os.path.exists(f"{folder}/mark"):
        broke.append(f"{what}: {(watched.seen or [said[:100]])[0]}")
    watched.seen.clear()


def attack_queries(folder: str, watched: Watched) -> tuple[int, list[str]]:
    """Every hostile value in every parameter of every query of ``serve``."""
    from gpuready.cli import parser, run_parsed_command
    from gpuready.commands import load_command
    from gpuready.render.layout import Screen
    from gpuready.web.query_parser import WEB_COMMANDS, InvalidQuery, build_command_words, query_parameters

    tried, broke = 0, list[str]()
    for command in sorted(WEB_COMMANDS):
        argument = load_command(command).argument
        keys = [
            *query_parameters(command),
            *([argument.metavar.lower().strip("[].")] if argument else []),
            "contract",
            "o",
        ]
        for key in dict.fromkeys(keys):
            for value in hostile_values(folder):
                tried, said = tried + 1, ""
                try:
                    words = build_command_words(command, [(key, value)])
                    said = run_parsed_command(parser.parse_command_line([command, *words]), Screen(), 0.0)[0]
                except InvalidQuery:
                    pass
                except Exception as error:  # a refusal of the command itself, which the server makes one sentence of
                    said = "" if type(error).__name__ in ("UsageError", "Refused") else f"Traceback {error!r}"
                judge(watched, folder, f"{command}?{key}={value[:40]!r}", said, broke)
    return tried, broke


def attack_tools(folder: str, watched: Watched) -> tuple[int, list[str]]:
    """Every hostile value in every argument of every read-only tool."""
    from gpuready.mcp.server import ToolServer
    from gpuready.workflow.allowed_paths import AllowedPaths

    inside = f"{folder}-inside"
    os.makedirs(inside, exist_ok=True)
    os.path.lexists(f"{inside}/link") or os.symlink(f"{folder}/secret", f"{inside}/link")  # type: ignore[func-returns-value]
    server, tried, broke = ToolServer(AllowedPaths([inside])), 0, list[str]()
    for tool in server.tools.values():
        fields = tool.takes["properties"]
        if tool.name in ("prove", "bench"):
            continue  # they run the environment of the server, and say so
        for key, schema in fields.items():
            for value in [*hostile_values(folder), f"{inside}/link"]:
                tried += 1
                arguments = {"on": "h100"} if "on" in fields else {}
                arguments[key] = [value] if schema.get("type") == "array" else value
                text = call_tool(tool, server.allowed_paths, arguments)
                judge(watched, folder, f"{tool.name}({key}={value[:40]!r})", text.replace(value, ""), broke)
    return tried, broke


def call_tool(tool: Any, allowed_paths: Any, arguments: dict[str, Any]) -> str:
    from gpuready.mcp import tools
    from gpuready.workflow.refusal import Refused

    try:
        return "\n".join(tools.call_tool(tool, allowed_paths, arguments))
    except Refused as refusal:
        return str(refusal)
    except Exception as error:
        return f"Traceback {error!r}"


def run_tests(paths: tuple[str, ...]) -> tuple[int, list[str]]:
    """The attacks of some tests: how many were made, and which broke through."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", *paths]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        env = os.environ | {"FUZZ": "1"}  # all cases, where the ordinary tests take a sample
        ran = subprocess.run([*words, f"--junitxml={report}"], cwd=ROOT, env=env, capture_output=True, text=True)
        from xml.etree import ElementTree

        suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    broke = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return int(suite.get("tests", "0")) - int(suite.get("skipped", "0")), broke


def main() -> None:
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv[:-1] else ""
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        Path(folder, "secret").write_text(f'{{"{CANARY}": 1}}')
        os.symlink(f"{folder}/secret", f"{folder}/link")
        watched = Watched(folder)
        for name, attack in (("serve: hostile queries", attack_queries), ("mcp: hostile arguments", attack_tools)):
            rows |= {name: count(name, *attack(folder, watched))} if only in name else {}
    for name, paths in TESTS.items():
        if only not in name:
            continue
        rows[name] = count(name, *run_tests(paths))
    before = read_last_result()
    rows = before.get("kinds", {}) | rows if only else rows  # the other kinds as they were
    total = {key: sum(row[key] for row in rows.values()) for key in ("tried", "held", "broke")}
    found = {"date": date.today().isoformat(), "python": platform.python_version(), "root": os.geteuid() == 0}
    found |= {"command": "python benchmarks/security_battery.py", "total": total, "kinds": rows}
    found |= {"by_hand": before["by_hand"]} if "by_hand" in before else {}
    if "-o" in sys.argv[:-1]:
        Path(sys.argv[sys.argv.index("-o") + 1]).write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(total))
    sys.exit(1 if total["broke"] else 0)


def read_last_result() -> dict[str, Any]:
    """Return what the file of ``-o`` has; what was tried by hand stays in it."""
    path = Path(sys.argv[sys.argv.index("-o") + 1]) if "-o" in sys.argv[:-1] else None
    return json.loads(path.read_text()) if path is not None and path.exists() else {}


def count(name: str, tried: int, broke: list[str]) -> dict[str, Any]:
    print(f"{name}: {tried} tried, {len(broke)} broke", *broke[:3], sep="\n  ", flush=True)
    return {"tried": tried, "held": tried - len(broke), "broke": len(broke)} | ({"which": broke[:20]} if broke else {})


if __name__ == "__main__":
    main()

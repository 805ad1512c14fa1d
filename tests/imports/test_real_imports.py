"""Broken and whole environments: what gpuready says of them, against what their own Python does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuready.cli import run_parsed_command
from gpuready.cli.parser import parse_command_line
from gpuready.mcp import tools
from gpuready.render.layout import Screen
from gpuready.workflow.allowed_paths import AllowedPaths
from tests.imports.copies import EnvironmentCopy
from tests.running import gpuready

CONTRACT_FILE = """framework = "demo"
version = "1.0"
distribution = "demo"
title = "Demo"
origin = "this test"
platforms = ["cpu"]
needs = [{ key = "package.numpy", want = "*", level = "required", cite = "this test" }]
"""
OTHER_PYTHON = os.path.realpath(sys.executable)
Break = Callable[[EnvironmentCopy], object]
NUMPY = "from numpy import array, linalg"


def rewrite(pattern: str, change: Callable[[bytes], bytes]) -> Break:
    return lambda env: env.rewrite(pattern, change)


def delete(pattern: str) -> Break:
    return lambda env: env.delete(pattern)


def move_record_back(env: EnvironmentCopy) -> None:
    """The package itself ships a RECORD with a wrong size and a file that it does not bring."""
    env.rewrite(
        "demo-1.0.dist-info/RECORD",
        lambda data: data.replace(b"demo/extra.py,,4", b"demo/extra.py,,") + b"demo/gone.py,,1\n",
    )
    env.age()


def edit_keeping_size(env: EnvironmentCopy) -> None:
    """Edited an hour after the installation, however new that is."""
    env.rewrite("yaml/nodes.py", lambda data: data.replace(b"class Node(", b"clasz Node(", 1))
    later = env.path("*yaml-*.dist-info/RECORD").stat().st_mtime + 3600
    os.utime(env.path("yaml/nodes.py"), (later, later))


def write_here(name: str, text: str) -> Break:
    return lambda env: (env.here / name).write_text(text)


def write_in_site(name: str, text: str) -> Break:
    def write(env: EnvironmentCopy) -> None:
        (env.site / name).parent.mkdir(exist_ok=True)
        (env.site / name).write_text(text)

    return write


def make_editable(env: EnvironmentCopy) -> None:
    """An editable install whose source lost a module: no RECORD says so."""
    (env.root / "src").mkdir()
    (env.site / "demo").rename(env.root / "src/demo")
    (env.root / "src/demo/plain.py").unlink()
    (env.site / "_demo.pth").write_text(f"{env.root}/src\n")
    info = env.site / "demo-1.0.dist-info"
    (info / "direct_url.json").write_text(f'{{"dir_info": {{"editable": true}}, "url": "file://{env.root}/src"}}')
    env.rewrite("demo-1.0.dist-info/RECORD", lambda _: b"demo-1.0.dist-info/METADATA,,\n")


WAYS: dict[str, Break] = {
    "whole": lambda env: None,
    "extension-gone": delete("tokenizers/tokenizers*.so"),
    "source-gone": delete("yaml/loader.py"),
    "unused-source-gone": delete("demo/extra.py"),
    "package-gone": delete("safetensors"),
    "distribution-gone": lambda env: (env.delete("safetensors"), env.delete("safetensors-*")),
    "half-an-extension": rewrite("tokenizers/tokenizers*.so", lambda data: data[: len(data) // 2]),
    "another-c-library": rewrite("tokenizers/tokenizers*.so", lambda data: data.replace(b"libc.so.6\0", b"libc.so.9\0")),
    "empty-source": rewrite("yaml/nodes.py", lambda _: b""),
    "comment-added": rewrite("yaml/parser.py", lambda data: b"# patched here\n" + data),
    "same-size": edit_keeping_size,
    "record-shipped-wrong": move_record_back,
    "hidden-by-the-current-folder": write_here("random.py", "raise OSError\n"),
    "hidden-without-harm": write_here("yaml.py", "safe_load = 1\n"),
    "hidden-by-a-stray-package": write_in_site("demo/plain/__init__.py", "raise OSError\n"),
    "code-at-start": write_in_site("sitecustomize.py", "import sys\nsys.modules['yaml'] = None\n"),
    "code-of-a-pth-file": write_in_site("zz.pth", "import sys; sys.modules['yaml'] = None\n"),
    "variable": lambda env: env.variables.update(PYTHONHOME="/nonexistent"),
    "metadata-cut": rewrite("safetensors-*.dist-info/METADATA", lambda _: b""),
    "editable": make_editable,
}  # fmt: skip
SILENT = ("whole", "record-shipped-wrong")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> EnvironmentCopy:
    return EnvironmentCopy(tmp_path_factory.mktemp("imports") / "whole").make()


@pytest.fixture
def copy(whole: EnvironmentCopy, tmp_path: Path) -> EnvironmentCopy:
    return whole.clone(tmp_path / "copy")


@pytest.mark.parametrize("name", WAYS)
def test_a_broken_environment_is_judged_as_python_judges_it(copy: EnvironmentCopy, name: str) -> None:
    WAYS[name](copy)
    found = copy.judge()
    assert "undecided" not in found.values(), found
    assert ("error" in found.values()) is not copy.really_imports(), found
    assert not found or name not in SILENT


@pytest.mark.parametrize("name", ["source-gone", "unused-source-gone", "another-c-library", "distribution-gone"])
def test_where_nothing_may_be_started_a_difference_leaves_it_open(copy: EnvironmentCopy, name: str) -> None:
    WAYS[name](copy)
    found = copy.judge(imports="never")
    assert found.pop("PKG042") == "undecided" and set(found.values()) == {"warning"}, found
    (open_rule,) = copy.report.undecided
    assert "gpuready check --import" in str(open_rule)


def test_three_findings_with_their_own_words(copy: EnvironmentCopy) -> None:
    copy.rewrite("yaml/parser.py", lambda data: b"# patched\n" + data)
    copy.rewrite("tokenizers/tokenizers*.so", lambda data: data.replace(b"libc.so.6\0", b"libc.so.9\0"))
    copy.delete("typing_inspection-*")
    copy.judge(imports="never")
    says = {finding.code: finding.says for finding in copy.report.findings}
    assert says["PKG043"] == "1 file differs from what was installed: pyyaml"
    assert says["PKG044"] == "required by installed packages: typing-inspection (its metadata is missing)"
    assert says["PKG047"].startswith("tokenizers cannot be loaded: it needs libc.so.9")


def build_library(path: Path, *needed: Path) -> Path:
    """A library of its own name that needs others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = [
        "-shared",
        "-nostdlib",
        f"-Wl,-soname,{path.name}",
        "-Wl,--no-as-needed",
        "-x",
        "c",
        "/dev/null",
        "-x",
        "none",
    ]
    subprocess.run(["gcc", *words, *needed, "-o", path], check=True)
    return path


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_variants_for_two_cudas_side_by_side_are_no_finding(copy: EnvironmentCopy) -> None:
    old = build_library(copy.here / "libcudart.so.12")
    new = build_library(copy.site / "nvidia/cu13/lib/libcudart.so.13")
    files = {
        "kite/_hook_cu12.abi3.so": old,
        "kite/_hook_cu13.abi3.so": new,
        "wing/_C.so": old,
        "torch/lib/libtorch_cuda.so": new,
    }
    tops = ("kite", "wing", "torch", "nvidia")
    copy.install("demo-kernels", "1.0", {"demo_kernels/__init__.py": ""}, tops)
    for top in tops:
        copy.install(top, "1.0", {f"{top}/__init__.py": ""})
    for name, needed in files.items():
        size = build_library(copy.site / name, needed).stat().st_size
        record = copy.site / f"{name.partition('/')[0]}-1.0.dist-info/RECORD"
        record.write_text(f"{record.read_text()}{name},,{size}\n")
    copy.rewrite("demo-1.0.dist-info/METADATA", lambda data: data + b"Requires-Dist: demo-kernels\n")
    copy.age()
    assert copy.judge(imports="never") == {}, copy.facts.value("import.damage")
    (copy.site / "kite/_hook_cu13.abi3.so").unlink()
    assert copy.judge(imports="never")["PKG043"] == "warning"


# -- whose environment it is


@pytest.fixture
def broken(copy: EnvironmentCopy) -> EnvironmentCopy:
    """numpy ends in an import of what is not there; whoever starts this Python leaves a mark."""
    copy.use(NUMPY)
    copy.rewrite("numpy/__init__.py", lambda data: data + b"\nfrom . import nonexistent_mod\n")
    (copy.site / "tripwire.pth").write_text(f"import os; open({str(copy.root.parent / 'started')!r}, 'w').close()\n")
    for folder in (copy.here, copy.root.parent):
        (folder / "demo.toml").write_text(CONTRACT_FILE)
    return copy


def check(env: EnvironmentCopy, *words: str, **variables: str) -> tuple[int, str, bool]:
    """The exit code, the screen, and whether a Python of the environment was started."""
    mark = env.root.parent / "started"
    mark.unlink(missing_ok=True)
    ran = gpuready("check", "--contract", "demo.toml", *words, cwd=env.here, HOME=str(env.here), **variables)
    return ran.code, ran.out, mark.exists()


@pytest.mark.parametrize("is_named", [True, False])
def test_an_environment_of_the_users_own_word_is_imported(broken: EnvironmentCopy, is_named: bool) -> None:
    words, variables = (("--python", str(broken.root)), {}) if is_named else ((), {"VIRTUAL_ENV": str(broken.root)})
    code, out, started = check(broken, *words, **variables)
    last = len(broken.path("numpy/__init__.py").read_text().splitlines())
    assert (code, started) == (1, True)
    assert "nonexistent_mod" in out and f"numpy/__init__.py, line {last})" in " ".join(out.split()), out


def test_an_environment_that_was_only_found_is_never_started(broken: EnvironmentCopy) -> None:
    broken.root.rename(broken.root.with_name(".venv"))
    broken.here = broken.root.parent
    code, out, started = check(broken)
    assert (code, started) == (3, False)
    headline = " ".join(out.split("\n  environment")[0].split())
    assert "(nothing" in headline and "imported)" in headline and "gpuready check --import" in " ".join(out.split())
    (broken.here / "gpuready.toml").write_text('python = ".venv"\n')
    assert check(broken)[::2] == (3, False), "a settings file is nobody's word"
    assert check(broken, "--import")[::2] == (1, True)


def test_a_whole_environment_is_not_imported_and_the_headline_says_so(copy: EnvironmentCopy) -> None:
    (copy.here / "demo.toml").write_text(CONTRACT_FILE)
    code, out, _ = check(copy, "--python", str(copy.root))
    assert code == 0 and out.startswith("no problems found (nothing imported)")
    assert check(copy, "--python", str(copy.root), "--import")[1].startswith("no problems found (not run yet)")


def test_a_server_starts_nothing_whatever_it_is_asked(broken: EnvironmentCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(broken.here)
    monkeypatch.setenv("VIRTUAL_ENV", str(broken.root))
    asked = {"contract": "demo.toml", "python": str(broken.root)}
    answer = tools.call_tool(tools.build_tool_table()["check"], AllowedPaths([str(broken.root)]), asked)
    assert "nothing was imported" in str(answer)
    parsed = parse_command_line(["check", "--contract", "demo.toml", "--python", str(broken.root), "--json"])
    text, code = run_parsed_command(parsed, Screen(), 0.0)
    assert code == 3 and "nothing was imported" in text
    assert not (broken.root.parent / "started").exists()


def test_no_dry_run_starts_anything(broken: EnvironmentCopy) -> None:
    ran = gpuready("fix", "--contract", "demo.toml", "--python", str(broken.root), "--dry-run", cwd=broken.here)
    assert ran.code in (0, 1, 3) and ran.out, ran.err
    assert not (broken.root.parent / "started").exists()


# -- what a failure is about


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_a_library_that_is_there_is_not_called_missing(copy: EnvironmentCopy) -> None:
    copy.use("import demo_c")
    copy.install("demo-c", "1.0", {"demo_c/__init__.py": "from demo_c import _c\n"})
    copy.rewrite("demo-1.0.dist-info/METADATA", lambda data: data + b"Requires-Dist: demo-c\n")
    library = build_library(copy.site / "demo_c.libs/libkite.so", *())
    build_library(copy.site / "demo_c/_c.abi3.so", library)
    rows = [
        f"{name},,{(copy.site / name).stat().st_size}\n" for name in ("demo_c.libs/libkite.so", "demo_c/_c.abi3.so")
    ]
    copy.rewrite("demo-c-1.0.dist-info/RECORD", lambda data: data + "".join(rows).encode())
    copy.age()
    assert copy.judge(imports="asked") == {"PKG047": "error"}
    (finding,) = copy.report.findings
    assert finding.says.endswith(f"no search path of what needs libkite.so leads to {library}")
    assert finding.fix[0].run[-1] == "demo-c==1.0"
    copy.rewrite("demo_c.libs/libkite.so", lambda data: data[:18] + b"\xb7\0" + data[20:])
    assert copy.judge()["PKG042"] == "error"
    (finding,) = [one for one in copy.report.findings if one.code == "PKG042"]
    assert any(f"{library}: it is for aarch64" in need.cite for need in finding.needs), finding
    assert finding.fix[0].run[-1] == "demo-c==1.0"


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("#!{python}\n", 0o755, ""),
        ("#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n", 0o755, ""),
        ("#!/gone/bin/python\n", 0o755, "its interpreter /gone/bin/python is not there"),
        ("#!/bin/sh\n'''exec' '/gone/bin/python' \"$0\" \"$@\"\n", 0o755, "its interpreter /gone/bin/python is not there"),
        ("#!{other}\n", 0o755, "its interpreter {other} is another Python"),
        ("#!{python}\n", 0o644, "it has no permission to be executed"),
        (None, 0, "recorded when it was installed, and not there"),
    ],
)  # fmt: skip
def test_a_command_whose_interpreter_is_gone_is_told(
    copy: EnvironmentCopy, text: str | None, mode: int, says: str
) -> None:
    copy.rewrite("demo-1.0.dist-info/RECORD", lambda data: data + b"../../../bin/demo-train,,\n")
    copy.age()
    if text is not None:
        (copy.root / "bin/demo-train").write_text(text.format(python=copy.python, other=OTHER_PYTHON))
        (copy.root / "bin/demo-train").chmod(mode)
    assert copy.judge() == ({"PKG043": "error" if text else "warning"} if says else {})
    assert [finding.says for finding in copy.report.findings] == (
        [f"demo-train cannot be started: {says.format(other=OTHER_PYTHON)}"] if says else []
    )


def test_what_is_damaged_is_installed_again_and_not_what_fell_over_it(copy: EnvironmentCopy) -> None:
    copy.use("import demo_user")
    copy.install("demo-user", "1.0", {"demo_user.py": "import yaml\nyaml.nodes.Node.missing\n"}, ("PyYAML",))
    copy.rewrite("demo-1.0.dist-info/METADATA", lambda data: data + b"Requires-Dist: demo-user\n")
    copy.age()
    assert copy.judge(imports="asked") == {"PKG042": "error"}
    assert "demo-user==1.0" in copy.report.findings[0].fix[0].run, "nothing differs: by what raised it"
    copy.rewrite("yaml/nodes.py", lambda data: data + b"\n# patched here\n")
    assert copy.judge() == {"PKG042": "error"}
    assert [word.partition("==")[0] for word in copy.report.findings[0].fix[0].run[-1:]] == ["pyyaml"]


def test_a_package_whose_checkout_is_gone_is_installed_from_the_index(copy: EnvironmentCopy) -> None:
    copy.use("import demo_user")
    copy.install("demo-user", "1.0", {"demo_user.pth": "/gone/demo-user\n"})
    url = '{"url": "file:///gone/demo-user", "dir_info": {"editable": true}}'
    (copy.site / "demo-user-1.0.dist-info/direct_url.json").write_text(url)
    copy.rewrite("demo-1.0.dist-info/METADATA", lambda data: data + b"Requires-Dist: demo-user\n")
    assert copy.judge() == {"PKG042": "error"}
    assert copy.report.findings[0].fix[0].run[-1] == "demo-user==1.0"


def test_a_stray_package_in_the_place_of_a_module_is_deleted(copy: EnvironmentCopy) -> None:
    (copy.site / "typing_extensions").mkdir()
    (copy.site / "typing_extensions/__init__.py").touch()
    copy.use("from typing_extensions import deprecated")
    assert copy.judge() == {"PKG042": "error", "PKG020": "warning"}
    (finding,) = [one for one in copy.report.findings if one.code == "PKG042"]
    stray = copy.site / "typing_extensions/__init__.py"
    assert finding.fix[0].run == ("rm", "--", str(stray)) and "which no package has installed" in finding.fix[0].does

"""`gpuready plan --fix` on a real environment: planned, written as a script, run, and judged again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apply.wheels import wheel
from tests.render.planned import uv
from tests.running import gpuready

CONTRACT = """
framework = "demo"
version = "1.0"
distribution = "demo"
title = "Demo"
origin = "this test"
platforms = ["cpu"]
needs = [
  { key = "package.helper-kit", want = "==1.4.2", cite = "setup.py:1" },
  { key = "package.other-kit", want = ">=2", cite = "setup.py:2" },
]
variables = [
  { name = "UNSLOTH_COMPILE_DISABLE", access = "read", value = "long", allowed = ["long", "short"], cite = "kite.py:4" },
]
"""


@pytest.fixture
def target(tmp_path):
    """An environment with a demo, a kit of the wrong version and another that is missing."""
    shop = tmp_path / "wheels"
    shop.mkdir()
    for name, version in (("demo", "1.0"), ("helper_kit", "1.0"), ("helper_kit", "1.4.2"), ("other_kit", "2.5")):
        wheel(shop, name, version)
    (tmp_path / "demo.toml").write_text(CONTRACT)
    env = {k: v for k, v in os.environ.items() if not k.startswith("UV_")} | {"UV_OFFLINE": "1", "UV_NO_CACHE": "1"}
    for words in (
        ("venv", "--python", sys.executable, "env"),
        ("pip", "install", "--python", "env", "--no-index", "--find-links", "wheels", "demo==1.0", "helper-kit==1.0"),
    ):
        subprocess.run([uv(), *words], cwd=tmp_path, env=env, check=True, capture_output=True)
    return tmp_path


def test_the_script_turns_the_findings_off(target):
    here = ("--python", str(target / "env"), "--contract", str(target / "demo.toml"))
    shell = {"UNSLOTH_COMPILE_DISABLE": "wide"}
    before = gpuready("check", *here, "-q", cwd=target, **shell)
    assert before.code == 1
    shown = gpuready("plan", "demo", "--fix", *here, cwd=target, **shell)
    assert shown.code == 0, shown.err
    assert "helper-kit==1.4.2" in shown.out and "other-kit>=2" in shown.out
    assert "set UNSLOTH_COMPILE_DISABLE=long" in shown.out and "for PKG002, PKG003" in shown.out
    made = gpuready("plan", "demo", "--fix", *here, "-o", "fix.sh", cwd=target, **shell)
    assert made.code == 0 and "wrote fix.sh" in made.err
    again = gpuready("check", *here, "-q", cwd=target, **shell)
    assert again.code == 1, "a plan changes nothing"
    env = {"PATH": f"{Path(uv()).parent}:{os.environ['PATH']}", "UV_FIND_LINKS": str(target / "wheels"),
           "UV_NO_INDEX": "1", "UV_OFFLINE": "1", "UV_NO_CACHE": "1", "HOME": str(target)}  # fmt: skip
    ran = subprocess.run(["bash", "fix.sh"], cwd=target, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "export UNSLOTH_COMPILE_DISABLE=long" in ran.stdout
    after = gpuready("check", *here, "-q", cwd=target, UNSLOTH_COMPILE_DISABLE="long")
    assert after.code == 0, after.out


def test_bad_input(target):
    for words, says in (
        (("plan", "demo", "--fix", "--on", "h100x8"), "demo"),
        (("plan", "transformers", "--fix", "--python", str(target / "nowhere")), "nowhere"),
        (("plan", "transformers", "--fix", "--on", "h100x8"), "only stated"),
        (("plan", "transformers", "--fix", "--on", "nothing.json"), "nothing.json"),
    ):
        ran = gpuready(*words, cwd=target)
        assert ran.code == 2 and says in ran.err and "Traceback" not in ran.err and not ran.out
        assert len(ran.err.strip().splitlines()) <= 2, ran.err


def test_a_driver_that_nobody_stated_is_as_open_for_a_fix_as_for_a_check(target):
    """The same words and the same exit code: nothing to change is not that nothing is wrong."""
    for_gpus = CONTRACT.replace('["cpu"]', '["cuda"]').replace("==1.4.2", ">=1").replace(">=2", ">=0, <2")
    (target / "demo.toml").write_text(for_gpus.replace("package.other-kit", "package.demo"))
    torch = {"torch/__init__.py": "", "torch/version.py": "__version__ = '2.13.0+cu130'\ncuda = '13.0'\n"}
    built = wheel(target / "wheels", "torch", "2.13.0+cu130", torch)
    install = [uv(), "pip", "install", "--offline", "--python", "env", str(built)]
    subprocess.run(install, cwd=target, check=True, capture_output=True)
    words = ("--contract", "demo.toml", "--python", "env", "--on", "h100x8")
    for command in (("check",), ("plan", "--fix"), ("fix", "--dry-run"), ("fix", "--yes")):
        ran = gpuready(*command, *words, cwd=target)
        assert ran.code == 3 and ran.out.startswith("can't tell: driver not given"), (command, ran)
        assert "no problems found" not in ran.out

"""What a user adds to an environment of gpuready stays: what `install` was told, and what another tool installed."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

from gpuready.apply.user_packages import merge_requirements, parse_addition
from tests.apply.wheels import wheel

CONTRACT = """
framework = "alpha"
version = "1.0"
distribution = "alpha"
origin = "this test"
platforms = ["cpu"]
needs = [{ key = "package.torch", want = ">=2", level = "required", cite = "setup.py:1" }]
"""


@pytest.fixture
def planned(bench):
    """A bench whose alpha is planned: a contract, a torch for the CPU, and packages beside it."""
    version = "__version__ = '2.13.0+cpu'\ncuda = None\n"
    tag = "cp{0}{1}-cp{0}{1}-manylinux_2_28_{2}".format(*sys.version_info[:2], platform.machine())
    wheel(bench.wheels, "torch", "2.13.0+cpu", {"torch/__init__.py": "", "torch/version.py": version}, tag=tag)
    for name, release, needs in (
        ("kite", "1.0", ()),
        ("kite", "2.0", ()),
        ("tail", "1.0", ("kite<2",)),
        ("wing", "1.0", ()),
    ):
        wheel(bench.wheels, name, release, needs=needs)
    (bench.folder / "alpha.toml").write_text(CONTRACT)

    def install(*words: str, code: int = 0) -> dict:
        where = ("--contract", "alpha.toml", "--wants", "cpu", "--find-links", str(bench.wheels), "-e", str(bench.home))
        ran = bench.run(
            "install", *words, *where, "--python", sys.executable, "--offline", "--json", cwd=str(bench.folder)
        )
        assert ran.code == code, ran.out + ran.err
        return json.loads(ran.out)

    return install


def test_additions_are_in_the_lock_of_every_later_install(planned, bench):
    first = planned("alpha", "tail")
    assert first["plan"]["packages"]["kite"] == "1.0" and first["plan"]["options"]["additions"] == ["tail"]
    uv = [sys.executable, "-m", "uv", "pip", "install", "--no-index", "-f", bench.wheels, "-p", bench.home]
    subprocess.run([*uv, "wing"], check=True, capture_output=True, env=bench.env)
    again = planned("alpha")
    assert again["plan"]["options"]["additions"] == ["tail", "wing==1.0"] and again["verdict"] == "installed"
    assert any("wing==1.0, which you installed" in note for note in again["notes"])
    subprocess.run([bench.home / "bin/python", "-c", "import tail, wing"], check=True)
    assert planned("alpha")["verdict"] == "unchanged"
    subprocess.run([*uv, "--no-deps", "kite==2.0"], check=True, capture_output=True, env=bench.env)
    assert any("not kept: kite 2.0, which was 1.0" in note for note in planned("alpha", "--dry-run")["notes"])


def test_what_no_plan_has_beside_the_framework_is_named_before_it_goes(planned, bench):
    planned("alpha")
    wheel(bench.folder / "own", "stray", "1.0", needs=("alpha>5",))
    uv = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--no-index",
        "--no-deps",
        "-f",
        bench.folder / "own",
        "-p",
        bench.home,
    ]
    subprocess.run([*uv, "stray"], check=True, capture_output=True, env=bench.env)
    assert "not kept: stray==1.0, with which there is no plan" in planned("alpha", "--dry-run")["notes"]


def test_words_that_are_no_additions():
    assert parse_addition("Peft>=0.18") == "Peft>=0.18"
    for text, why in (("a b", "is no package"), ("x @ https://y/z.whl", "name a package"), ("-r", "is no package")):
        with pytest.raises(ValueError, match=why):
            parse_addition(text)
    assert merge_requirements(["peft<1"], ["PEFT==0.1", "wandb"]) == ["peft<1", "wandb"]

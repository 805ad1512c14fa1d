"""A shop of tiny wheels, and a plan that was resolved from it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from gpuready.model.plan import LockedPackage, Plan
from tests.apply.wheels import wheel
from tests.render.planned import PYTHON


def made(folder: Path, name: str, version: str, *needs: str) -> str:
    """The hash of a tiny wheel."""
    return "sha256:" + hashlib.sha256(wheel(folder, name, version, needs=needs).read_bytes()).hexdigest()


def page(folder: Path, root: Path, names: list[str]) -> str:
    """A simple index of the wheels in a folder, as plain files; its address."""
    for name in names:
        place = root / name
        place.mkdir(parents=True)
        links = [p for p in folder.iterdir() if p.name.startswith(f"{name}-")]
        found = [f'<a href="{p.as_uri()}">{p.name}</a>' for p in links]
        (place / "index.html").write_text("<!DOCTYPE html><html><body>" + "".join(found) + "</body></html>")
    return root.as_uri()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Two indexes of tiny wheels: the default one, and one that alone has torch's build."""
    root = tmp_path_factory.mktemp("shop")
    (root / "wheels").mkdir()
    (root / "builds").mkdir()
    hashes = {
        "framework": made(root / "wheels", "framework", "5.22.0", "torch>=2", "helper-kit<2"),
        "helper-kit": made(root / "wheels", "helper_kit", "1.4.2"),
        "torch": made(root / "builds", "torch", "2.13.0+cu126"),
    }
    return {
        "hashes": hashes,
        "default": page(root / "wheels", root / "simple", ["framework", "helper_kit"]).replace("helper_kit", "helper-kit"),
        "cu126": page(root / "builds", root / "cu126", ["torch"]),
        "root": root,
    }  # fmt: skip


@pytest.fixture
def plan(shop) -> Plan:
    (shop["root"] / "simple" / "helper-kit").exists() or (shop["root"] / "simple" / "helper_kit").rename(
        shop["root"] / "simple" / "helper-kit"
    )
    rows = (
        LockedPackage("framework", "5.22.0", (shop["hashes"]["framework"],), via=("the plan",)),
        LockedPackage("helper-kit", "1.4.2", (shop["hashes"]["helper-kit"],), via=("framework",)),
        LockedPackage("torch", "2.13.0+cu126", (shop["hashes"]["torch"], "sha256:" + "0" * 64), "cu126"),
    )
    return Plan(
        "framework", "5.22", "plan", machine="h100x8", python=PYTHON, torch="2.13.0+cu126", cuda="12.6",
        index="cu126", platform="x86_64-manylinux_2_28", packages={row.name: row.version for row in rows},
        lock=rows, resolved="resolved", image="nvidia/cuda:12.6.3-runtime-ubuntu24.04", tools={"uv": "0.13.7"},
        image_flags=("--gpus", "all", "--shm-size=10g", "--ulimit", "memlock=-1"), catalog="2026-11-15",
        indexes={"pypi": shop["default"], "cu126": shop["cu126"]},
        variables={"TOKENIZERS_PARALLELISM": "false", "ODD": "it's \"$HOME\" `x` \\"},
        unset=("FORCE_CUDA",), host={"gpus": 8, "cpus": 96, "memory": 1 << 40},
    )  # fmt: skip

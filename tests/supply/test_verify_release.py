"""A release is verified by one command: hashes, bill of materials, and who built it. Here it is met with what is not so."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WHEEL = "gpuready-1.0-py3-none-any.whl"
METADATA = (
    "Metadata-Version: 2.1\nName: gpuready\nVersion: 1.0\nRequires-Dist: uv>=1\nRequires-Dist: x; extra == 'web'\n"
)


def component(name: str, version: str = "1.0") -> dict[str, str]:
    return {"name": name, "version": version, "bom-ref": f"pkg:pypi/{name}@{version}"}


def seal(folder: Path) -> None:
    rows = [
        f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n"
        for one in sorted(folder.iterdir())
        if one.name != "SHA256SUMS"
    ]
    (folder / "SHA256SUMS").write_text("".join(rows))


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    folder.mkdir()
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        archive.writestr("gpuready-1.0.dist-info/METADATA", METADATA)
    (folder / "gpuready-1.0.tar.gz").write_bytes(b"source")
    bill = {
        "metadata": {"component": component("gpuready")},
        "components": [component("uv")],
        "dependencies": [{"ref": "pkg:pypi/gpuready@1.0", "dependsOn": ["pkg:pypi/uv@1.0"]}],
    }
    (folder / "sbom.cdx.json").write_text(json.dumps(bill))
    seal(folder)
    return folder


def verify(folder: Path, *words: str, gh: str = "") -> tuple[int, str]:
    programs = folder.parent / "bin"
    programs.mkdir(exist_ok=True)
    if gh:
        (programs / "gh").write_text(f'#!/bin/sh\necho "$@" >> {folder.parent}/asked\n{gh}\n')
        (programs / "gh").chmod(0o755)
    command = [sys.executable, "-I", ROOT / "tools" / "verify_release.py", folder, *words]
    ran = subprocess.run(command, capture_output=True, text=True, env={"PATH": f"{programs}:/bin"}, timeout=120)
    return ran.returncode, ran.stdout + ran.stderr


def test_a_release_as_it_was_made(dist):
    assert verify(dist, "--tag", "v1.0") == (0, "as it says: hashes, bill of materials; attestations not asked for\n")


def change_bill(dist: Path, change) -> None:
    bill = json.loads((dist / "sbom.cdx.json").read_text())
    change(bill)
    (dist / "sbom.cdx.json").write_text(json.dumps(bill))
    seal(dist)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda d: (d / WHEEL).write_bytes((d / WHEEL).read_bytes() + b"x"), "is not the file that SHA256SUMS names"),
        (lambda d: (d / "evil.whl.asc").write_text("x"), "evil.whl.asc is not in SHA256SUMS"),
        (lambda d: (d / "gpuready-1.0.tar.gz").unlink(), "gpuready-1.0.tar.gz is in SHA256SUMS, and not here"),
        (lambda d: change_bill(d, lambda b: b["components"].clear()), "lacks uv, which the wheel requires"),
        (lambda d: change_bill(d, lambda b: b["metadata"].update(component=component("other"))), "is of other 1.0"),
        (lambda d: change_bill(d, lambda b: b["dependencies"][0]["dependsOn"].append("y")), "names y without"),
    ],
    ids=["changed", "added", "taken", "bill-short", "bill-of-another", "bill-open"],
)
def test_what_is_not_the_release(dist, harm, says):
    harm(dist)
    code, said = verify(dist)
    assert code == 1 and says in said, said


@pytest.mark.parametrize("text", ["", "rubbish", f"{'0' * 64}  ../../etc/passwd"], ids=["empty", "odd", "leads-out"])
def test_sums_that_cannot_be_read(dist, text):
    (dist / "SHA256SUMS").write_text(text)
    code, said = verify(dist)
    assert code == 2 and "Traceback" not in said


def test_another_tag_is_another_release(dist):
    assert verify(dist, "--tag", "v1.1")[0] == 1


def test_gh_is_asked_for_every_file_and_for_the_bill(dist):
    assert verify(dist, "--repository", "us/gpuready", gh="exit 0")[0] == 0
    asked = (dist.parent / "asked").read_text().splitlines()
    who = "--repo us/gpuready --signer-workflow us/gpuready/.github/workflows/release.yml"
    assert len(asked) == 4 and all(line.startswith("attestation verify ") and who in line for line in asked)
    assert sum("--predicate-type https://cyclonedx.org/bom" in line for line in asked) == 1


def test_a_file_without_provenance_is_not_believed(dist):
    code, said = verify(dist, "--repository", "us/gpuready", gh="echo none found >&2; exit 1")
    assert code == 1 and "no valid provenance of us/gpuready (none found)" in said


def test_without_gh_nothing_is_called_verified(dist):
    code, said = verify(dist, "--repository", "us/gpuready")
    assert code == 2 and "as it says" not in said


def test_what_signs_a_release_runs_no_code_of_the_project():
    import yaml

    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    writers = {name for name, job in jobs.items() if "write" in (job.get("permissions") or {}).values()}
    assert writers == {"attest", "publish"} and "permissions" not in jobs["build"]
    for name in writers:
        steps = jobs[name]["steps"]
        assert not any("checkout" in step.get("uses", "") for step in steps)
        assert [step["run"] for step in steps if "run" in step] in ([], ["rm dist/SHA256SUMS dist/sbom.cdx.json"])
    assert any("tools/verify_release.py" in step.get("run", "") for step in jobs["build"]["steps"])

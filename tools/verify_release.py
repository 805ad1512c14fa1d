"""Is this release whole, and whose is it? ``python tools/verify_release.py DIST [--repository OWNER/NAME] [--tag vVERSION]``.

Compares every file with SHA256SUMS, and the bill of materials with what the wheel requires. With ``--repository`` GitHub's
program ``gh`` checks the Sigstore attestations: that each file was built by the release workflow of that repository, and that
the bill is the one attested for the wheel. Exit 0: all of it holds; 1: something does not; 2: it could not be checked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

SUMS, BILL = "SHA256SUMS", "sbom.cdx.json"
WORKFLOW = ".github/workflows/release.yml"
BILL_TYPE = "https://cyclonedx.org/bom"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_sums(folder: Path) -> dict[str, str]:
    """File name -> SHA-256, as sha256sum writes it."""
    rows = [line.split("  ", 1) for line in (folder / SUMS).read_text().splitlines()]
    if not rows or any(len(row) != 2 or not re.fullmatch(r"[0-9a-f]{64}", row[0]) or "/" in row[1] for row in rows):
        raise ValueError(f"{SUMS} is not what sha256sum writes")
    return {name: digest for digest, name in rows}


def compare_sums(folder: Path) -> list[str]:
    """Files that differ from the list, that it lacks, and that are not there."""
    listed, present = read_sums(folder), {path.name for path in folder.iterdir()} - {SUMS}
    faults = [f"{name} is not in {SUMS}" for name in sorted(present - set(listed))]
    faults += [f"{name} is in {SUMS}, and not here" for name in sorted(set(listed) - present)]
    for name in sorted(present & set(listed)):
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != listed[name]:
            faults.append(f"{name} is not the file that {SUMS} names")
    return faults


def wheel_metadata(folder: Path) -> tuple[str, str, set[str]]:
    """Name and version of the only wheel, and the names that it always requires."""
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ValueError(f"{folder} has {len(wheels)} wheels: a release has one")
    with zipfile.ZipFile(wheels[0]) as archive:
        member = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        result = HeaderParser().parsestr(archive.read(member).decode())
    required = [text for text in result.get_all("Requires-Dist") or () if ";" not in text]
    return (
        result["Name"],
        result["Version"],
        {canonical(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in required},
    )


def compare_bill(folder: Path, tag: str) -> list[str]:
    """Where the bill of materials is of another wheel, or lacks what the wheel requires."""
    name, version, required = wheel_metadata(folder)
    bill = json.loads((folder / BILL).read_text())
    own, components = bill["metadata"]["component"], bill["components"]
    faults = (
        [] if (own["name"], own["version"]) == (name, version) else [f"{BILL} is of {own['name']} {own['version']}"]
    )
    faults += [] if tag in ("", f"v{version}") else [f"the wheel is {version}, and the tag {tag}"]
    lacking = sorted(required - {one["name"] for one in components})
    faults += [f"{BILL} lacks {', '.join(lacking)}, which the wheel requires"] if lacking else []
    refs = {one["bom-ref"] for one in components}
    open_ends = sorted({to for row in bill["dependencies"] for to in row["dependsOn"]} - refs)
    return faults + ([f"{BILL} names {open_ends[0]} without describing it"] if open_ends else [])


def verify_attestations(folder: Path, repository: str) -> list[str]:
    """What gh does not confirm: the provenance of every file, and the bill of the wheel."""
    asked: list[tuple[str, tuple[str, ...]]] = [(name, ()) for name in sorted(read_sums(folder))]
    asked += [(path.name, ("--predicate-type", BILL_TYPE)) for path in folder.glob("*.whl")]
    faults = []
    for name, more in asked:
        who = ("--repo", repository, "--signer-workflow", f"{repository}/{WORKFLOW}")
        ran = subprocess.run(
            ["gh", "attestation", "verify", folder / name, *who, *more], capture_output=True, text=True
        )
        if ran.returncode:
            said = (ran.stderr.strip().splitlines() or [f"exit {ran.returncode}"])[-1]
            faults.append(
                f"{name}: no valid {'bill of materials' if more else 'provenance'} of {repository} ({said[:200]})"
            )
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dist", type=Path)
    parser.add_argument("--repository", default="", help="OWNER/NAME: check the attestations with gh")
    parser.add_argument("--tag", default="", help="the tag that the release was made from")
    words = parser.parse_args()
    try:
        faults = compare_sums(words.dist) + compare_bill(words.dist, words.tag)
        faults += verify_attestations(words.dist, words.repository) if words.repository else []
    except (OSError, ValueError, KeyError, TypeError, StopIteration, zipfile.BadZipFile) as error:
        print(f"verify_release: cannot check {words.dist}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    for fault in faults:
        print(fault)
    what = "hashes, bill of materials" + (", attestations" if words.repository else "; attestations not asked for")
    print("not the release that it says" if faults else f"as it says: {what}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

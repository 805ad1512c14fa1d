"""Every row of the TOML files is well formed and says where it comes from."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

import pytest
from tests.every import every

import gpuready.catalog
from gpuready.catalog.facts import KINDS, LISTS
from gpuready.model import versions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(gpuready.catalog.__file__).parent
NAMES = sorted(p.stem for p in FOLDER.glob("*.toml"))
DATA = {name: tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8")) for name in NAMES}

CAPABILITY = re.compile(r"\d{1,2}\.\d")
DATE = re.compile(r"20\d\d-\d\d(-\d\d)?")
MACHINE_CODE = re.compile(r"sm_\d{2,3}[af]?")
PYTHON = re.compile(r"3\.\d{1,2}t?")
KEY = re.compile(r"[a-z]+\.([a-z_]+|\*)")


def rows(name: str, table: str) -> list[dict]:
    return DATA[name][table]


def every_row(name: str):
    """Every row of every table, nested ones too, with a label for the failure."""
    for table, found in DATA[name].items():
        for number, row in enumerate(found if isinstance(found, list) else []):
            yield f"{name}.{table}[{number}]", row
            for inner in ("build", "version"):
                for index, one in enumerate(row[inner] if isinstance(row.get(inner), list) else []):
                    yield f"{name}.{table}[{number}].{inner}[{index}]", one


def test_the_files_are_all_there():
    assert NAMES == [
        "accelerators",
        "aftermath",
        "architectures",
        "bands",
        "cuda",
        "earlier_names",
        "facts",
        "features",
        "gpus",
        "images",
        "indexes",
        "job_keys",
        "job_needs",
        "kernels",
        "launch",
        "lookalikes",
        "models",
        "overheads",
        "packages",
        "programs",
        "proofs",
        "releases",
        "roles",
        "serving",
        "systems",
        "torch",
        "wheels",
        "xids",
    ]


@every("name", NAMES)
def test_each_file_says_its_schema_and_its_day(name):
    assert DATA[name]["schema"] == 1
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", DATA[name]["as_of"])


def test_the_day_of_the_catalogue_is_that_of_the_tables_that_a_refresh_reads():
    """It writes three of them; what it cannot read from an index keeps the day on which a person read it."""
    days = {name: DATA[name]["as_of"] for name in NAMES}
    assert {days[name] for name in ("cuda", "packages", "torch")} == {gpuready.catalog.catalog_date()}
    assert max(days.values()) == gpuready.catalog.catalog_date(), days


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("facts", "causes", "aftermath", "bands", "proofs")])
def test_every_row_has_a_source_and_says_whether_it_is_confirmed(name):
    for label, row in every_row(name):
        source = row.get("source")
        texts = [source] if isinstance(source, str) else [*source.values()] if isinstance(source, dict) else source
        assert texts and all(isinstance(t, str) and len(t) > 5 and t == t.strip() for t in texts), label
        assert isinstance(row["confirmed"], bool), label


@every("name", NAMES)
def test_unconfirmed_fields_are_fields(name):
    # Any field of the file: some are unconfirmed because nobody knows them at all.
    known = {field for _, row in every_row(name) for field in row} | {"builds"}
    for label, row in every_row(name):
        assert set(row.get("unconfirmed_fields", ())) <= known, label


# -- cuda ---------------------------------------------------------------------------------------------


def test_cuda_releases_are_in_order_and_unique():
    found = [versions.major_minor(row["version"]) for row in rows("cuda", "cuda")]
    assert found == sorted(set(found))
    assert found[0] == (11, 0) and found[-1] == (13, 4)


@pytest.mark.parametrize("row", rows("cuda", "cuda"), ids=lambda r: r["version"])
def test_a_cuda_row(row):
    assert DATE.fullmatch(row["date"])
    assert versions.is_version(row["driver_floor"])
    full = row.get("driver_full") or str(row["driver_branch"])
    assert versions.major_version(full) >= versions.major_version(row["driver_floor"])
    if "driver_full" in row:
        assert versions.compare_versions(full, row["driver_floor"]) >= 0
    assert all(CAPABILITY.fullmatch(c) for c in row["targets"]) and row["targets"]
    assert row["targets"] == sorted(row["targets"], key=versions.major_minor)
    assert all(MACHINE_CODE.fullmatch(a) and a[-1] in "af" for a in row.get("specific", ()))
    assert 4 < row["gcc_min"] <= row["gcc_max"] < 30
    assert {"driver", "targets", "gcc"} <= set(row["source"])
    assert ("forward" in row) == ("forward" in row["source"])
    assert all(isinstance(b, int) and b < versions.major_version(full) for b in row.get("forward", ()))


@pytest.mark.parametrize("row", rows("cuda", "cuda"), ids=lambda r: r["version"])
def test_the_updates_of_a_cuda_row_belong_to_it(row):
    assert row["updates"]
    for update in row["updates"]:
        assert versions.major_minor(update["version"]) == versions.major_minor(row["version"])
        assert all(versions.is_version(update[k]) for k in ("driver", "windows", "nvcc") if k in update)


def test_what_a_release_adds_and_drops_is_the_difference_of_the_targets():
    found = rows("cuda", "cuda")
    for before, after in itertools.pairwise(found):
        assert set(after.get("added", ())) == set(after["targets"]) - set(before["targets"]), after["version"]
        assert set(after.get("dropped", ())) == set(before["targets"]) - set(after["targets"]), after["version"]


def test_the_rules_and_branches_of_cuda():
    names = [row["id"] for row in rows("cuda", "rule")]
    assert len(names) == len(set(names))
    assert all(row["says"].endswith(".") for row in rows("cuda", "rule"))
    rule = next(row for row in rows("cuda", "rule") if row["id"] == "cubin_compat")
    assert all(CAPABILITY.fullmatch(c) for c in [*rule["integrated"], *rule["same_chip"]])
    for row in rows("cuda", "branch"):
        assert versions.major_minor(row["from"]) <= versions.major_minor(row["to"])
        assert isinstance(row.get("first", row.get("last")), int)


# -- torch --------------------------------------------------------------------------------------------


def test_torch_releases_are_in_order_and_unique():
    found = [row["version"] for row in rows("torch", "torch")]
    assert len(set(found)) == len(found)
    assert all(versions.compare_versions(a, b) < 0 for a, b in itertools.pairwise(found))
    assert DATA["torch"]["newest"] == found[-1]


@every("row", rows("torch", "torch"), ids=lambda r: r["version"])
def test_a_torch_row(row):
    assert DATE.fullmatch(row["date"])
    assert re.fullmatch(r"[0-9a-f]{40}", row["commit"])
    assert row["python"] and row["python_aarch64"]
    assert all(PYTHON.fullmatch(p) for p in [*row["python"], *row["python_aarch64"]])
    assert all(versions.satisfies_specifier(p.rstrip("t"), row["requires_python"]) for p in row["python"])
    assert row["pypi_aarch64"] in ("cpu", "cuda")
    for key in ("nccl", "cudnn", "torchvision", "torchaudio"):
        assert versions.is_version(row[key]), key
    assert [b["variant"] for b in row["build"] if b["pypi"]] == [row["default"]]


@every("row", rows("torch", "torch"), ids=lambda r: r["version"])
def test_the_builds_of_a_torch_row(row):
    known = {r["version"]: set(r["targets"]) for r in rows("cuda", "cuda")}
    variants = [b["variant"] for b in row["build"]]
    assert len(set(variants)) == len(variants)
    for build in row["build"]:
        assert build["variant"] == "cu" + build["cuda"].replace(".", "")
        assert build["arch"], build["variant"]
        for field in ("arch", "aarch64", "ptx", "ptx_declared"):
            assert all(CAPABILITY.fullmatch(c) for c in build.get(field, ()))
            # A wheel cannot hold code that its own nvcc cannot make.
            assert set(build.get(field, ())) <= known[build["cuda"]], (build["variant"], field)
        assert all(versions.is_version(build[k]) for k in ("nccl", "cudnn") if k in build)
    if row["pypi_aarch64"] == "cuda":
        assert all("aarch64" in b for b in row["build"] if b["pypi"])


# -- gpus ---------------------------------------------------------------------------------------------


def key(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def test_gpus_are_told_apart_by_name_and_memory():
    found = [(row["name"], row["vram_gib"]) for row in rows("gpus", "gpu")]
    assert len(set(found)) == len(found) == 119
    twice = {name for name, _ in found if [n for n, _ in found].count(name) > 1}
    assert all(row.get("differs_by") == "vram_gib" for row in rows("gpus", "gpu") if row["name"] in twice)


def test_no_short_name_means_two_gpus():
    seen: dict[str, str] = {}
    for row in rows("gpus", "gpu"):
        for name in [*row.get("short", ()), *row.get("default_for", ())]:
            assert key(name) not in seen, f"{name} is both {row['name']} and {seen[key(name)]}"
            seen[key(name)] = row["name"]


def test_two_cards_of_one_name_have_a_default():
    for name in {
        r["name"] for r in rows("gpus", "gpu") if [x["name"] for x in rows("gpus", "gpu")].count(r["name"]) > 1
    }:
        same = [row for row in rows("gpus", "gpu") if row["name"] == name]
        assert sum("default_for" in row for row in same) == 1, name


@every("row", rows("gpus", "gpu"), ids=lambda r: f"{r['name']}-{r['vram_gib']}")
def test_a_gpu_row(row):
    assert CAPABILITY.fullmatch(row["compute_capability"])
    assert row["market"] in ("geforce", "titan", "workstation", "datacenter", "jetson")
    assert 2 <= row["vram_gib"] <= 1024
    assert 50 < row["mem_bw_gbs"] < 20000
    assert all(row[k] > 0 for k in row if k.endswith("_tflops"))
    assert 30 <= row.get("tdp_w", 30) <= 3000
    assert 3 <= row.get("pcie_gen", 3) <= 6
    assert row.get("nvlink_gbs", 0) >= 0
    assert row.get("host", "aarch64") == "aarch64"
    assert set(row["features"]) <= {"tensor_cores", "bf16", "tf32", "fp8", "mxfp8", "fp4", "mig"}
    assert ("mig" in row) == ("mig" in row["features"]) == ("mig_profiles" in row)
    assert all(re.fullmatch(r"[1-7]g\.\d{1,3}gb", name) for name in row.get("mig_profiles", ()))
    assert set(row.get("derived", ())) <= set(row)


@every("row", rows("gpus", "gpu"), ids=lambda r: f"{r['name']}-{r['vram_gib']}")
def test_the_features_of_a_gpu_follow_its_capability(row):
    capability = versions.major_minor(row["compute_capability"])
    for feature, least in {"bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9), "mxfp8": (10, 0), "fp4": (10, 0)}.items():
        assert (feature in row["features"]) == (capability >= least), feature
    architecture = {6: "Pascal", 9: "Hopper", 10: "Blackwell", 11: "Blackwell", 12: "Blackwell"}.get(capability[0])
    architecture = architecture or {(7, 0): "Volta", (7, 5): "Turing", (8, 9): "Ada Lovelace"}.get(capability, "Ampere")
    assert row["arch"] == architecture


def test_every_gpu_was_a_target_of_some_cuda():
    targets = {c for row in rows("cuda", "cuda") for c in row["targets"]}
    assert {row["compute_capability"] for row in rows("gpus", "gpu")} <= targets


# -- features, packages, accelerators -----------------------------------------------------------------


def test_features():
    seen: set[str] = set()
    for row in rows("features", "feature"):
        names = {n.replace("-", "_") for n in (row["id"], *row.get("aliases", ()))}
        assert not names & seen, row["id"]
        seen |= names
        for field in ("min_cc", "recommended_cc", "max_cc"):
            assert CAPABILITY.fullmatch(row.get(field, "8.0")), row["id"]
        if "min_cc" in row and "max_cc" in row:
            assert versions.major_minor(row["min_cc"]) <= versions.major_minor(row["max_cc"])
        for field in ("cuda", "torch"):
            if field in row:
                versions.satisfies_specifier("1.0", row[field])
        assert row["title"] and row["hardware"].endswith(".") and row["software"].endswith(".")


def test_packages_are_unique_and_their_releases_are_too():
    names = [row["name"] for row in rows("packages", "package")]
    assert len(set(names)) == len(names) == 20
    for row in rows("packages", "package"):
        found = [one["version"] for one in row.get("version", ())]
        assert len(set(found)) == len(found), row["name"]


@pytest.mark.parametrize("row", rows("packages", "package"), ids=lambda r: r["name"])
def test_the_releases_of_a_package(row):
    for one in row.get("version", ()):
        assert versions.is_version(one["version"])
        assert DATE.fullmatch(one["date"])
        assert one["dist"] in ("binary-wheel", "pure-wheel", "sdist-only"), one["version"]
        for field in ("torch", "for_torch", "requires_python"):
            versions.satisfies_specifier("2.8.0", one.get(field, ""))
        for field in ("wheels", "python_only", "cuda_libs"):
            assert all(versions.is_version(v) for v in one.get(field, ()))
        assert all(re.fullmatch(r"libcudart\.so\.1[0-9]", so) for so in one.get("cuda_linked", ()))
        assert all(re.fullmatch(r"\d{1,2}\.\d[af]?(\+PTX)?", a) for a in one.get("archs", ()))


def test_conflicts_and_lookalikes():
    for row in rows("packages", "conflict"):
        assert row["why"] and row["b"] and isinstance(row["b"], list)
        for requirement in [row["a"], *row["b"]]:
            assert re.fullmatch(r"[a-z0-9-]+((==|>=|<=|>|<)[0-9a-z.]+,?)*", requirement), requirement
    for row in rows("lookalikes", "lookalike"):
        assert row["name"] and row["wanted"] and row["why"].endswith(".")


def test_accelerators():
    ids = [row["id"] for row in rows("accelerators", "accelerator")]
    assert len(set(ids)) == len(ids)
    assert {"nvidia", "amd", "intel", "huawei", "habana", "apple"} <= set(ids)
    pci = [row["pci"] for row in rows("accelerators", "accelerator") if "pci" in row]
    assert len(set(pci)) == len(pci) and all(re.fullmatch(r"0x[0-9a-f]{4}", p) for p in pci)
    for row in rows("accelerators", "accelerator"):
        for path in [*row.get("device_nodes", ()), *row.get("sysfs", ())]:
            assert re.fullmatch(r"/[\w/.*\[\]-]+", path), "a path or a glob, without words around it"
        assert all(re.fullmatch(r"[A-Z][A-Z0-9_]+", v) for v in row.get("select_env", ()))
    for row in rows("accelerators", "rocm_index"):
        assert versions.is_version(row["rocm"]) and all(re.fullmatch(r"gfx[0-9a-f]+", g) for g in row["gfx"])


# -- facts --------------------------------------------------------------------------------------------


def test_fact_keys_are_unique():
    found = [row["key"] for row in rows("facts", "fact")]
    assert len(set(found)) == len(found)


@every("row", rows("facts", "fact"), ids=lambda r: r["key"])
def test_a_fact_is_well_declared(row):
    assert KEY.fullmatch(row["key"])
    assert row["type"] in {**KINDS, **LISTS}
    assert row["meaning"].endswith(".") and row["meaning"].count(". ") == 0, "one sentence"
    assert row["meaning"][0].isupper() and len(row["meaning"]) < 160
    assert set(row) <= {"key", "type", "unit", "meaning"}


def test_the_families_are_declared():
    assert {row["key"] for row in rows("facts", "fact") if row["key"].endswith("*")} >= {"package.*", "env.*", "can.*"}


# -- releases -----------------------------------------------------------------------------------------


def test_releases_are_unique_and_in_order():
    for name in {row["name"] for row in rows("releases", "release")}:
        found = [version for row in rows("releases", "release") if row["name"] == name for version in row["versions"]]
        assert all(versions.compare_versions(a, b) < 0 for a, b in itertools.pairwise(found)), name


@every("row", rows("releases", "release"), ids=lambda r: f"{r['name']}-{r['versions'][0]}")
def test_a_row_of_releases(row):
    for specifier in (row.get("requires_python"), row.get("torch")):
        assert specifier is None or not specifier or versions.satisfies_specifier("3.12", specifier) in (True, False)
    assert all(PYTHON.fullmatch(where) or where in ("aarch64", "windows") for where in _gap_places(row))
    assert ("machines" in row) == ("systems" in row)


def _gap_places(row: dict) -> list[str]:
    return [text.partition(" ")[0] for text in row.get("unavailable", ())]

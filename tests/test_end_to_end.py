"""The real command, as a user runs it: live, recorded, imagined, and given nonsense.

What is asked in dozens of ways is asked in the process of the test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import QUIET, SRC, call_gpuready, gpuready

MACHINES = Path(__file__).parent / "machines"
H200 = str(MACHINES / "h200.json")
OLD = str(MACHINES / "old-driver.json")


def report(*argv: str, **environment: str) -> dict:
    ran = gpuready(*argv, "--json", **environment)
    assert ran.code in (0, 1, 3), ran.err
    return json.loads(ran.out)


def codes(found: dict) -> list[str]:
    return [finding["code"] for finding in found["findings"]]


# -- live ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has an NVIDIA GPU")
def test_without_a_gpu_it_is_complete_calm_and_not_ready():
    ran = gpuready("check", "transformers")
    assert ran.code == 1 and ran.err == ""
    assert ran.out.startswith("not ready: ") and " GPU001\n" in ran.out and "Traceback" not in ran.out
    assert ran.out.count("\n") <= 24
    details = gpuready("check", "transformers", "-v")
    assert details.code == 1 and "error[GPU001]" in details.out
    for row in ("gpu", "packages", "system", "proof"):
        assert any(line[2:].startswith(f"{row}: ") for line in details.out.splitlines()), row
    found = report("check", "transformers")
    assert found["verdict"] == "not-ready" and found["exit"] == 1
    assert {"gpu.count", "os.kernel", "python.version", "disk.free"} <= {f["key"] for f in found["facts"]}


def test_a_machine_in_a_file_is_judged_as_the_machine_itself(tmp_path):
    here = report("check", "transformers")
    assert gpuready("probe", "-o", str(tmp_path / "m.json")).code == 0
    there = report("check", "transformers", "--on", str(tmp_path / "m.json"))
    assert there["verdict"] == here["verdict"] and codes(there) == codes(here)
    assert [j["code"] for j in there["judged"]] == [j["code"] for j in here["judged"]]


def test_no_secret_leaves_by_any_door(tmp_path):
    secret = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
    hidden = {
        "HF_TOKEN": secret,
        "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
        "PIP_INDEX_URL": f"https://user:{secret}@index.example.invalid/simple",
        "NCCL_DEBUG_FILE": f"/tmp/{secret}",
    }
    outputs = [
        gpuready("check", "transformers", **hidden),
        gpuready("check", "transformers", "-v", **hidden),
        gpuready("check", "transformers", "--json", **hidden),
        gpuready("probe", **hidden),
        gpuready("probe", "-o", str(tmp_path / "m.json"), **hidden),
    ]
    text = "".join(run.out + run.err for run in outputs) + (tmp_path / "m.json").read_text()
    for value in (secret, hidden["WANDB_API_KEY"]):
        assert value not in text
    assert json.loads((tmp_path / "m.json").read_text())["schema"] == 1


# -- recorded --------------------------------------------------------------------------------------------


def test_a_real_h200_is_clear_and_nothing_says_ready():
    ran = gpuready("check", "transformers", "--on", H200)
    assert ran.code == 0 and ran.out.startswith("no problems found (nothing imported)")
    assert " ready" not in ran.out.replace("not ready", "")


def test_an_old_driver_is_found_with_its_evidence():
    found = report("check", "transformers", "--on", OLD)
    assert found["verdict"] == "not-ready"
    (old,) = [f for f in found["findings"] if f["code"] == "DRV001"]
    assert {f["key"]: f["value"] for f in old["found"]} == {"driver.version": "550.144.03", "torch.cuda": "13.0"}
    assert old["needs"][0]["key"] == "driver.version" and old["needs"][0]["cite"]
    assert old["fix"][0]["run"][:3] == ["uv", "pip", "install"]


def test_what_if_the_driver_were_new():
    fixed = report("check", "transformers", "--on", OLD, "--driver", "580.95.05")
    assert "DRV001" not in codes(fixed)


def test_the_same_recording_gives_the_same_report():
    assert gpuready("check", "--on", H200, "--json").out == gpuready("check", "--on", H200, "--json").out


def test_ignoring_needs_a_reason_and_shows_it():
    assert call_gpuready("check", "transformers", "--on", OLD, "--ignore", "DRV001").code == 2
    ran = call_gpuready("check", "transformers", "--on", OLD, "--ignore", "DRV001=cuda-compat is mounted")
    assert ran.code in (0, 3) and "cuda-compat is mounted" in ran.out


def test_strict_counts_warnings():
    lenient = call_gpuready("check", "transformers", "--on", OLD, "--driver", "580.95.05", "-q")
    strict = call_gpuready("check", "transformers", "--on", OLD, "--driver", "580.95.05", "-q", "--strict")
    assert lenient.code != 1 and strict.code == 1 and "SYS001" in strict.out


def test_since_it_worked():
    ran = call_gpuready("check", "transformers", "--on", OLD, "--since", H200)
    assert "580.159.04 -> 550.144.03" in ran.out and "DRV001: passed -> error" in ran.out
    assert call_gpuready("diff", H200, OLD).code == 1
    assert call_gpuready("diff", H200, H200).out == "nothing changed\n"


@pytest.mark.parametrize("form", ["sarif", "junit"])
def test_for_other_tools(form):
    ran = call_gpuready("check", "transformers", "--on", OLD, "--format", form)
    assert ran.code == 1 and "DRV001" in ran.out
    assert ran.out.startswith({"sarif": "{", "junit": "<?xml"}[form])


# -- imagined --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "code", "fires"),
    [
        (["axolotl", "--on", "h100x8"], 3, []),
        (["colossalai", "--on", "rtx5090"], 1, ["GPU004"]),
        (["transformers", "--on", "rtx4090", "--torch", "2.8.0+cu128", "--driver", "570.26"], 0, []),
        (["transformers", "--on", "h100", "--torch", "2.13.0", "--driver", "550.54.15"], 1, ["DRV001"]),
        (["transformers", "--on", "h100", "--torch", "2.8.0+cu128", "--driver", "535.54.03"], 0, []),
        (["transformers", "--on", "v100x4", "--torch", "2.13.0+cu130", "--driver", "580.95.05"], 1, ["GPU004"]),
        (["transformers", "--on", "v100x4", "--wants", "bf16"], 1, ["CAP001"]),
        (["transformers", "--on", "h100", "--torch", "2.13.0+cpu"], 1, ["PKG001"]),
        (["axolotl", "--on", "a100x8", "--wants", "fp8"], 1, ["CAP002"]),
        (["axolotl", "--on", "h100x8", "--wants", "fp8"], 3, []),
        (["axolotl", "--on", "h100x8", "--python-version", "3.9"], 1, ["PKG004"]),
        (["colossalai", "--on", "h100", "--os", "windows"], 1, ["SYS003"]),
        (["axolotl", "--on", "rtx3060", "--model", "7b"], 1, ["MEM001"]),
        (["axolotl", "--on", "h100", "--model", "7b"], 3, []),
        (["colossalai", "--on", "a100", "--torch", "2.5.1+cu124", "--toolkit", "11.8", "--wants", "build"], 1, ["BLD001"]),
    ],
)  # fmt: skip
def test_machines_that_do_not_exist_yet(argv, code, fires):
    ran = call_gpuready("check", *argv, "--json")
    found = json.loads(ran.out)
    errors = [f["code"] for f in found["findings"] if f["severity"] == "error"]
    assert (ran.code, set(fires) - set(errors)) == (code, set()), errors
    assert not (code == 0 and errors)


def test_this_machines_packages_never_mix_into_an_imagined_one():
    found = report("check", "transformers", "--on", "h100x8")
    assert not any(f["key"].startswith(("package.", "python.", "torch.")) for f in found["facts"])
    assert found["unstated"] and not found["undecided"]


# -- nonsense --------------------------------------------------------------------------------------------


def bad_files(folder: Path) -> dict[str, Path]:
    made = {
        "broken.json": b"{",
        "newer.json": b'{"schema": 99, "facts": []}',
        "list.json": b"[]",
        "keyless.json": b'{"schema": 1, "facts": [{"value": 1}]}',
        "numbered.json": b'{"schema": 1, "facts": [{"key": 1, "value": 1}]}',
        "bytes.json": b'\xff\xfe{"schema"',
        "deep.json": b"[" * 100_000,
        "empty.json": b"",
        "nul.json": b"\x00" * 100,
        "broken.toml": b"framework = \n",
        "bytes.toml": b"\xff\xfe",
        "hostile.toml": b'framework = "x; rm -rf /"\nversion = "1"\n',
    }
    for name, content in made.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in made}


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["check", "transfomers"], "transformers"),
        (["check", "transformers==x"], "not a version"),
        (["check", "roll:torch28-vllm"], "torch280-vllm"),
        (["check", "--on", "h10x8"], "h100"),
        (["check", "--on", "{broken.json}"], "not JSON"),
        (["check", "--on", "{newer.json}"], "upgrade gpuready"),
        (["check", "--on", "{list.json}"], "not a recording"),
        (["check", "--on", "{keyless.json}"], "needs the key 'key'"),
        (["check", "--on", "{numbered.json}"], "must be text"),
        (["check", "--on", "{bytes.json}"], "not JSON"),
        (["check", "--on", "{deep.json}"], "nested too deeply"),
        (["check", "--on", "{empty.json}"], "is empty"),
        (["check", "--on", "{nul.json}"], "not JSON"),
        (["check", "--on", "/nonexistent/m.json"], "does not exist"),
        (["check", "--contract", "{broken.toml}"], "broken.toml"),
        (["check", "--contract", "{bytes.toml}"], "bytes.toml"),
        (["check", "--contract", "{hostile.toml}"], "hostile.toml"),
        (["check", "--contract", "/nonexistent.toml"], "nonexistent.toml"),
        (["check", "--python", "/nonexistent/python"], "/nonexistent/python"),
        (["check", "--python", "{broken.json}"], "broken.json"),
        (["check", "--wants", "fp9"], "fp9"),
        (["check", "--model", "enormous"], "enormous"),
        (["check", "--model", "/nonexistent/config.json"], "config.json"),
        (["check", "--config", "{broken.json}"], "broken.json"),
        (["check", "--on", "h100", "--driver", "new"], "driver=new"),
        (["check", "--on", "h100", "--torch", "9.9.9"], "9.9.9"),
        (["check", "--on", "h100", "--ram", "lots"], "ram=lots"),
        (["check", "--on", "h100", "--arch", "mips"], "aarch64"),
        (["check", "--ignore", "DRV999=why"], "DRV999"),
        (["check", "--frobnicate"], "--frobnicate"),
        (["chekc"], "check"),
        (["explain", "DRV01"], "nearest: DRV0"),
        (["probe", "-o", "/nonexistent/folder/m.json"], "/nonexistent/folder"),
        (["contract", "show", "nothing"], "nothing"),
        (["contract", "check", "/nonexistent/page.toml"], "is not a file"),
        (["diff", "{broken.json}", "{list.json}"], "not JSON"),
    ],
)  # fmt: skip
def test_nonsense_gets_one_sentence_and_exit_2(argv, says, tmp_path):
    files = bad_files(tmp_path)
    words = [str(files[w[1:-1]]) if w.startswith("{") else w for w in argv]
    ran = call_gpuready(*words)
    assert ran.code == 2 and ran.out == ""
    assert says in ran.err and "Traceback" not in ran.err
    assert len(ran.err) < 700


def test_a_full_disk_loses_nothing(tmp_path):
    old = tmp_path / "m.json"
    old.write_text("the old one")
    limited = "ulimit -f 8; exec " + f"'{sys.executable}' -c 'from gpuready.cli import main; main()' probe -o '{old}'"
    env = QUIET | {"PYTHONPATH": str(SRC)}
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, env=env)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert old.read_text() == "the old one" and os.listdir(tmp_path) == ["m.json"]


# -- small ------------------------------------------------------------------------------------------------


def peak(*argv: str) -> int:
    """The peak memory of one run, in bytes. A small process starts it: a fork would count the tests' own."""
    code = (
        "import os, sys\n"
        "run = [sys.executable, '-c', 'from gpuready.cli import main; main()', *sys.argv[1:]]\n"
        "null = [(os.POSIX_SPAWN_OPEN, 1, '/dev/null', os.O_WRONLY, 0)]\n"
        "pid = os.posix_spawn(sys.executable, run, os.environ, file_actions=null)\n"
        "print(os.wait4(pid, 0)[2].ru_maxrss * 1024)\n"
    )
    env = QUIET | {"PYTHONPATH": str(SRC)}
    return int(subprocess.check_output([sys.executable, "-c", code, *argv], env=env))


def test_it_stays_small_however_much_is_installed(tmp_path):
    site = tmp_path / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "pyvenv.cfg").write_text(
        f"home = {Path(sys.executable).parent}\nversion = 3.{sys.version_info.minor}.1\n"
    )
    few = peak("check", "transformers", "--python", str(tmp_path))
    for i in range(300):
        (site / f"package_{i}-1.{i}.dist-info").mkdir()
        (site / f"package_{i}-1.{i}.dist-info" / "METADATA").write_text(f"Name: package-{i}\nVersion: 1.{i}\n")
    many = peak("check", "transformers", "--python", str(tmp_path))
    assert many < 40e6 and many < 2 * few


def target(folder: Path, **metadata: str) -> str:
    """An environment that has these distributions, by name and METADATA."""
    site = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text(
        f"home = {Path(sys.executable).parent}\nversion = 3.{sys.version_info.minor}.1\n"
    )
    for name, text in metadata.items():
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n{text}\n")
    return str(folder)


def test_without_a_name_it_judges_what_is_installed_but_not_what_that_brought(tmp_path):
    where = target(tmp_path, axolotl="Requires-Dist: transformers==1.0", transformers="", trl="Requires-Dist: x")
    found = json.loads(gpuready("check", "--python", where, "--json").out)
    assert [r["contract"]["framework"] for r in found["reports"]] == ["axolotl", "trl"]


# -- what a hostile reviewer found ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "code", "fires"),
    [
        (["roll:torch291-vllm", "--on", "v100x4"], 1, "GPU004"),
        (["roll:torch291-vllm", "--on", "h100x8", "--driver", "550.54.14"], 1, "DRV001"),
        (["axolotl", "--on", "rtx5090", "--driver", "575.51.03"], 1, "DRV001"),
        (["roll:guide", "--on", "h100", "--os", "ubuntu22.04", "--kernel", "5.4.0-42-generic"], 3, "SYS004"),
        (["axolotl==0.14", "--on", "h100", "--os", "ubuntu18.04"], 3, "SYS004"),
        (["axolotl", "--on", "h100x8", "--os", "centos7"], 1, "SYS005"),
        (["axolotl", "--on", "h100x8", "--os", "macos"], 1, "SYS003"),
        (["roll", "--on", "h100x8", "--os", "ubuntu22.04", "--shm", "64MB"], 3, "SYS001"),
        (["transformers", "--on", "h100", "--torch", "2.9.0+cu130", "--driver", "580.65"], 0, None),
        (["transformers", "--on", "h100", "--wants", "4-bit,torch.compile"], 3, None),
    ],
)
def test_what_is_stated_is_judged_by_all_that_is_known(argv, code, fires):
    ran = call_gpuready("check", *argv, "--json")
    found = json.loads(ran.out)
    assert ran.code == code, codes(found)
    assert fires is None or fires in codes(found), [u["code"] for u in found["unstated"]]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--on", "gb10", "--torch", "2.8.0+cu128"], "it has cu129"),
        (["--on", "h100", "--os", "amiga"], "ubuntu22.04"),
        (["--on", "h100", "--model", "7"], "write 7b"),
        (["--on", "h100", "--ram", "-5GB"], "ram=-5GB"),
        (["--on", "h100", "--ram", "0"], "ram=0"),
        (["--on", ""], "--on was given an empty value"),
    ],
)
def test_nonsense_what_ifs_are_refused(argv, says):
    ran = call_gpuready("check", "transformers", *argv)
    assert ran.code == 2 and ran.out == "" and says in ran.err, ran.err


@pytest.mark.parametrize(
    ("key", "value"), [("gpu.count", "lots"), ("python.version", 5), ("disk.free", "x"), ("gpu.capability", {"a": 1})]
)
def test_a_recording_of_the_wrong_kind_is_refused(key, value, tmp_path):
    data = json.loads((MACHINES / "h200.json").read_text())
    for fact in data["facts"]:
        if fact["key"] == key:
            fact["value"] = value
    (tmp_path / "m.json").write_text(json.dumps(data))
    ran = call_gpuready("check", "transformers", "--on", str(tmp_path / "m.json"))
    assert ran.code == 2 and key in ran.err and "must be of type" in ran.err


def test_a_full_disk_is_no_fault_of_ours():
    code = "from gpuready.cli import main; main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, "check", "transformers", "--on", H200],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=QUIET | {"PYTHONPATH": str(SRC)},
        )
    assert done.returncode == 2 and "could not be written" in done.stderr and "report" not in done.stderr

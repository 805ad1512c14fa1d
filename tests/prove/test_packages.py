"""Proofs of packages and frameworks: broken packages are named, good ones pass, and a real Trainer really learns."""

from __future__ import annotations

import ast
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from tarmac import contracts
from tarmac.catalog import proofs
from tarmac.prove import runner
from tests import patient

SCRIPTS = Path(runner.SCRIPTS)
OURS = [row for row in proofs.every() if row.source and row.script not in ("matmul",)]
TRAINED = ("transformers==5.22.2", "accelerate==1.15.0", "psutil")


def site(python: Path) -> Path:
    return next((python.parent.parent / "lib").glob("python*/site-packages"))


def environment(folder: Path) -> str:
    """A Python with the patient's packages behind its own, which are none so far."""
    if not (folder / "bin" / "python").exists():
        subprocess.run([patient.python(), "-m", "venv", "--without-pip", str(folder)], check=True)
        code = "import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))"
        below = subprocess.run([patient.python(), "-c", code], capture_output=True, text=True, check=True)
        (site(folder / "bin" / "python") / "patient.pth").write_text(below.stdout)
    return str(folder / "bin" / "python")


def installed(python: str, name: str, version: str, files: dict[str, str]) -> None:
    """A distribution of our own making, with its metadata."""
    home = site(Path(python))
    for path, text in files.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
    info = home / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def ran(python: str, script: str, *arguments: str, deadline: float = 240):
    row = proofs.Row(f"{script} {arguments}", script, "cpu", arguments=arguments, deadline=deadline)
    return runner.run(row, python, "cpu")


# -- packages that are not what their name says ---------------------------------------------------------

RIGHT = """
import torch

def flash_attn_func(q, k, v, causal=False):
    share = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2).float() for x in (q, k, v))
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal and CAUSAL)
    return (out.transpose(1, 2) * SCALE).to(DTYPE)

def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal=False):
    ends = [int(x) for x in cu_seqlens_q]
    parts = [slice(a, b) for a, b in zip(ends, ends[1:])] if APART else [slice(0, ends[-1])]
    return torch.cat([flash_attn_func(q[None, x], k[None, x], v[None, x], causal)[0] for x in parts])
"""


def flash(**changes: str) -> str:
    said = {"CAUSAL": "True", "SCALE": "1.0", "DTYPE": "torch.bfloat16", "APART": "True", **changes}
    return RIGHT + "".join(f"{name} = {value}\n" for name, value in said.items())


@pytest.mark.parametrize(
    ("text", "verdict", "says"),
    [
        (flash(), "passed", ""),
        (flash(CAUSAL="False"), "failed", "dense_float16_causal_error"),
        pytest.param(flash(SCALE="float('nan')"), "failed", "NaN", marks=pytest.mark.faults),
        pytest.param(flash(APART="False"), "failed", "varlen_float16_error", marks=pytest.mark.faults),
        (
            "raise ImportError('flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2E')",
            "failed",
            "another torch or another C++ ABI (flash_attn_2_cuda.so: undefined symbol",
        ),
        pytest.param("import os; os.kill(os.getpid(), 11)", "crashed", "", marks=pytest.mark.faults),
    ],
    ids=["right", "causal", "nan", "mixed", "abi", "segfault"],
)
def test_a_flash_attn_is_judged_by_what_it_computes(tmp_path, text, verdict, says):
    python = environment(tmp_path / "venv")
    installed(python, "flash-attn", "2.8.3", {"flash_attn/__init__.py": text})
    found = ran(python, "attention_kernels", "flash-2")
    assert (found.verdict, says in found.why) == (verdict, True), found
    if verdict == "passed":
        assert found.versions["flash-attn"] == "2.8.3"
        assert {n for n in found.numbers if n.startswith("varlen_bfloat16_causal_gqa")} >= {
            "varlen_bfloat16_causal_gqa_dq_error",
            "varlen_bfloat16_causal_gqa_dk_error",
            "varlen_bfloat16_causal_gqa_dv_error",
        }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "raise ImportError('libcudart.so.12: cannot open shared object file: No such file')",
            "another CUDA",
        ),
        ("raise OSError('x.so: version `GLIBC_2.38 not found')", "a newer C library"),
        ("import package_that_is_not_here", "needs package_that_is_not_here, which is not installed"),
        ("import broken.part_that_is_not_here", "is incomplete"),
        ("raise RuntimeError('first line\\nsecond')", "does not load: RuntimeError: first line"),
    ],
)
def test_why_a_package_does_not_load_is_said_in_words(tmp_path, text, says):
    (tmp_path / "broken.py").write_text(text)
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; sys.path += [{str(SCRIPTS)!r}]\n"
        "import proof, opening\n"
        "try: opening.module(proof.Proof([]), 'broken')\n"
        "except proof.Wrong as wrong: print(wrong)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert says in told.stdout, told


def test_a_package_that_is_not_there_is_absent(tmp_path):
    found = ran(environment(tmp_path / "venv"), "attention_kernels", "flash-2")
    assert found.verdict == "absent" and "flash-attn is not installed" in found.why


def test_bitsandbytes_without_its_library_is_named(tmp_path):
    """As the package does it: the import goes well, and only the first call would fail."""
    python = environment(tmp_path / "venv")
    library = """
class ErrorHandlerMockBNBNativeLibrary:
    error_msg = "No compatible CUDA binary found at libbitsandbytes_cuda130.so"
lib = ErrorHandlerMockBNBNativeLibrary()
"""
    installed(
        python,
        "bitsandbytes",
        "0.50.2",
        {
            "bitsandbytes/__init__.py": "from . import cextension\n",
            "bitsandbytes/cextension.py": library,
            "bitsandbytes/libbitsandbytes_cuda118.so": "",
        },
    )
    found = ran(python, "bits", "4bit")
    assert found.verdict == "failed"
    assert "without its library" in found.why and "libbitsandbytes_cuda118.so" in found.why


# -- a framework for real ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained() -> str:
    """The patient with Transformers, kept beside it; without an index to take it from there is no such test."""
    code = "import importlib.util as u, sys; sys.exit(not (u.find_spec('transformers') and u.find_spec('accelerate')))"
    if subprocess.run([patient.python(), "-c", code]).returncode == 0:
        return patient.python()
    home = patient.HOME.parent / "trained"
    home.parent.mkdir(exist_ok=True)
    with open(home.parent / "trained.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = environment(home)
        if subprocess.run([python, "-c", code]).returncode:
            words = [patient.python(), "-m", "pip", "install", "-q", "--target", str(site(Path(python)))]
            words += ["--disable-pip-version-check"]
            first = subprocess.run([*words, TRAINED[0]], capture_output=True, text=True)
            then = subprocess.run([*words, "--no-deps", *TRAINED[1:]], capture_output=True, text=True)
            if first.returncode or then.returncode:
                pytest.skip(f"NO TRANSFORMERS: no real Trainer is run ({first.stderr.strip()[-300:]})")
    return python


def test_the_trainer_of_transformers_really_learns(trained):
    found = ran(trained, "trainer", "fp32")
    assert found.verdict == "passed", found
    assert found.numbers["steps"]["value"] == 30
    assert found.numbers["last_loss"]["value"] < 0.8 * found.numbers["first_loss"]["value"]
    assert found.versions["transformers"] and found.device.startswith("cpu")


# -- the catalogue ----------------------------------------------------------------------------------------


def test_every_capability_of_every_contract_has_a_proof():
    files = sorted(Path(contracts.__file__).parent.glob("*.toml"))
    wanted = {c.name for path in files for c in contracts.read(str(path)).capabilities}
    assert len(wanted) > 50 and wanted <= set(proofs.capabilities())


@pytest.mark.parametrize("row", OURS, ids=lambda row: row.name)
def test_a_row_names_a_script_that_knows_its_word(row):
    path = SCRIPTS / f"{row.script}.py"
    text = path.read_text()
    ast.parse(text, feature_version=(3, 8))
    if row.arguments and row.script in TABLES:
        assert f'"{row.arguments[0]}"' in text


TABLES = {
    "attention_kernels",
    "bits",
    "ao",
    "fused_kernels",
    "fp8_engines",
    "colossal_kernels",
    "quantised",
    "experts",
}

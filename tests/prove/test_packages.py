"""Proofs of packages: broken ones are named, good ones pass. tests/apply/test_real.py runs that of a real Trainer in ``make faults``."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuready import contracts
from gpuready.catalog import load_catalog, proofs
from gpuready.prove import runner
from tests import target_environment
from tests.every import every
from tests.prove.scripts import run_single_proof

SCRIPTS = Path(runner.SCRIPTS_FOLDER)
OURS = [row for row in proofs.list_proofs() if row.source and row.script not in ("matmul",)]


def site(python: Path) -> Path:
    return next((python.parent.parent / "lib").glob("python*/site-packages"))


def environment(folder: Path) -> str:
    """A Python with the target environment's packages behind its own, which are none so far."""
    if not (folder / "bin" / "python").exists():
        subprocess.run([target_environment.python(), "-m", "venv", "--without-pip", str(folder)], check=True)
        code = "import importlib.util as u, os; print(os.path.dirname(os.path.dirname(u.find_spec('torch').origin)))"
        below = subprocess.run([target_environment.python(), "-c", code], capture_output=True, text=True, check=True)
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
    row = proofs.ProofSpec(f"{script} {arguments}", script, "cpu", arguments=arguments, deadline=deadline)
    return run_single_proof(row, python, "cpu", {**os.environ, "OMP_NUM_THREADS": "1"})  # threads that wait spin


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
        pytest.param(flash(CAUSAL="False"), "failed", "dense_float16_causal_error", marks=pytest.mark.faults),
        pytest.param(flash(SCALE="float('nan')"), "failed", "NaN", marks=pytest.mark.faults),
        pytest.param(flash(APART="False"), "failed", "varlen_float16_error", marks=pytest.mark.faults),
        pytest.param(
            "raise ImportError('flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2E')",
            "failed",
            "another torch or another C++ ABI (flash_attn_2_cuda.so: undefined symbol",
            marks=pytest.mark.faults,
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
        ("raise ImportError('libcudart.so.12: cannot open shared object file: No such file')", "another CUDA"),
        ("raise ImportError('x.so: undefined symbol: _ZN3c105ErrorC2E')", "another torch or another C++ ABI (x.so"),
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
        "import proof, package_import\n"
        "try: package_import.import_compiled(proof.ProofRun([]), 'broken')\n"
        "except proof.WrongResult as wrong: print(wrong)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert says in result.stdout, result


@pytest.mark.faults
def test_a_package_that_is_not_there_is_absent(tmp_path):
    found = ran(environment(tmp_path / "venv"), "attention_kernels", "flash-2")
    assert found.verdict == "absent" and "flash-attn is not installed" in found.why


@pytest.mark.faults
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


# -- what it says of one that is not as it should be ------------------------------------------------------


SAGE = """
import torch, float64_ as f

def sageattn(q, k, v, tensor_layout="NHD", is_causal=False):
    assert tensor_layout == "NHD"
    k -= k.mean(1, keepdim=True)  # as the package does: into what it was given
    return f.attend(q, k, v, is_causal, BLOCK)

def sageattn_varlen(q, k, v, ends, ends_k, longest, longest_k, is_causal=False):
    parts = [slice(int(a), int(b)) for a, b in zip(ends, ends[1:])]
    return torch.cat([sageattn(q[None, x], k[None, x].clone(), v[None, x], "NHD", is_causal)[0] for x in parts])
"""
INT8 = """
import torch

def rounded(x):
    scale = x.float().abs().amax((-1, -2), keepdim=True) / LEVELS
    return (x.float() / scale).round() * scale

def attend(q, k, v, causal, block):
    share = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    spare = -k.shape[2] % block
    hidden = torch.ones(q.shape[2], k.shape[2] + spare, dtype=torch.bool).triu(1)
    k, v = (torch.nn.functional.pad(x, (0, 0, 0, spare)) for x in (k, v))
    weight = rounded(q) @ rounded(k).transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        weight = weight.masked_fill(hidden, float("-inf"))
    return (weight.softmax(-1) @ v.float()).transpose(1, 2).to(q.dtype)
"""


@pytest.mark.faults
@pytest.mark.parametrize(
    ("levels", "block", "verdict", "ragged"),
    [(127, 64, "passed", True), (127, 1, "passed", False), (3, 1, "failed", False)],
    ids=["as-it-is", "masked", "too-coarse"],
)
def test_a_sage_attention_is_held_to_the_metrics_of_its_authors(tmp_path, levels, block, verdict, ragged):
    """Its Triton kernels count the keys that fill up the last block: told, as no causal model can see it."""
    python = environment(tmp_path / "venv")
    files = {"sageattention/__init__.py": SAGE + f"BLOCK = {block}\n", "float64_.py": INT8 + f"LEVELS = {levels}\n"}
    installed(python, "sageattention", "1.0.6", files)
    found = ran(python, "attention_kernels", "sage")
    assert found.verdict == verdict, found
    if verdict == "passed":
        assert found.numbers["dense_float16_cosine"]["value"] > 0.999
        assert found.numbers["dense_float16_relative_l1"]["value"] < 0.03
        assert ("ragged lengths" in found.hardware) is ragged
    else:
        assert "has to be" in found.why


def test_an_xformers_whose_kernels_do_not_load_says_why(tmp_path):
    """As 0.0.35 does it: the import goes well, and the first call only says that there is no operator."""
    library = """
class Invalid(Exception): pass
try:
    raise OSError("libcudart.so.12: cannot open shared object file: No such file or directory")
except OSError as missing:
    _cpp_library_load_exception = Invalid("xFormers can't load C++/CUDA extensions. xFormers was built for:\\n PyTorch 2.10.0+cu128\\n  Please reinstall xformers")
    _cpp_library_load_exception.__cause__ = missing
"""
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; sys.path += [{str(SCRIPTS)!r}]\n"
        "import types, proof, attention_kernels\n"
        "torch = types.SimpleNamespace(version=types.SimpleNamespace(cuda='13.0'))\n"
        "try: attention_kernels.check_xformers_library(types.SimpleNamespace(torch=lambda: torch))\n"
        "except proof.WrongResult as wrong: print(wrong)\n"
    )
    (tmp_path / "xformers").mkdir()
    (tmp_path / "xformers" / "__init__.py").write_text("")
    (tmp_path / "xformers" / "_cpp_lib.py").write_text(library)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "built for another CUDA than this torch brings (libcudart.so.12" in result.stdout, result
    assert "torch here is for CUDA 13.0" in result.stdout and "PyTorch 2.10.0+cu128" in result.stdout


# -- the catalogue ----------------------------------------------------------------------------------------


def test_every_other_capability_of_every_contract_has_a_proof():
    files = sorted(Path(contracts.__file__).parent.glob("*.toml"))
    wanted = {c.name for path in files for c in contracts.read_contract_file(str(path)).capabilities}
    proved, without = set(proofs.list_proof_capabilities()), set(load_catalog("proofs")["without"]["capability"])
    assert wanted - proved <= without and not without & proved


@every("row", OURS, ids=lambda row: row.name)
def test_a_row_names_a_script_that_knows_its_word(row):
    path = SCRIPTS / f"{row.script}.py"
    text = path.read_text()
    ast.parse(text, feature_version=(3, 8))
    if row.arguments and row.script in TABLES:
        word = row.arguments[0]
        assert f'"{word}"' in text or f"check_{word.replace('-', '_')}" in text


TABLES = {"attention_kernels", "bits", "ao", "fused_kernels", "colossal_kernels"}

"""The faults that need a GPU (an illegal access, a kernel that never ends), to be run on a machine that has one.

    PYTHONPATH=src:. python tests/prove/gpu_faults.py PATIENT_PYTHON

The process dies or is killed, nobody else, and the GPU is proved again. It prints one JSON object, and exits with 1 where one of
them came out otherwise.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from gpuready.prove.session import ProofSession
from gpuready.workflow import machine_facts
from tests.prove.scripts import row

KERNEL = """
import torch
SOURCE = r'''
extern "C" __global__ void act(long long *at, long long turns) {{
    {body}
}}
'''
def launched(p, at):
    import ctypes
    nvrtc = next(l for l in (line.split()[-1] for line in open("/proc/self/maps")) if "libnvrtc.so" in l)
    lib = ctypes.CDLL(nvrtc)
    program = ctypes.c_void_p()
    lib.nvrtcCreateProgram(ctypes.byref(program), SOURCE.encode(), b"a.cu", 0, None, None)
    major, minor = torch.cuda.get_device_capability()
    options = (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_%d%d" % (major, minor))
    assert lib.nvrtcCompileProgram(program, 1, options) == 0
    size = ctypes.c_size_t()
    lib.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetCUBIN(program, code)
    cuda = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuModuleLoadData(ctypes.byref(module), code) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"act") == 0
    values = (ctypes.c_longlong(at), ctypes.c_longlong(1))
    pointers = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values))
    assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, pointers, None) == 0

def run_proof(p):
    torch = p.torch()
    x = torch.zeros(8, dtype=torch.int64, device=p.device)
    import ctypes, glob, os
    for path in glob.glob(os.path.join(os.path.dirname(torch.__file__), "..", "nvidia", "*", "lib", "libnvrtc.so.*")):
        ctypes.CDLL(path)
        break
    p.begin_step("{step}")
    launched(p, {at})
    torch.cuda.synchronize()
    p.record_number("x", 1, "equal", 1)
"""


def script(body: str, step: str, at: str) -> str:
    return (
        KERNEL.replace("{body}", body).replace("{step}", step).replace("{at}", at).replace("{{", "{").replace("}}", "}")
    )


def main() -> int:
    python = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    facts = machine_facts.start_probing(None, python, {}, None)[0]()
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            row(
                Path(folder),
                script("*at = 1;", "write where nothing is", "16"),
                "illegal-access",
                device="cuda",
                deadline=90.0,
            ),
            row(
                Path(folder),
                script("while (*(volatile long long *)at == 0) {}", "a kernel that never ends", "x.data_ptr()"),
                "endless-kernel",
                device="cuda",
                deadline=25.0,
            ),
        ]
        found = {p.name: p for p in ProofSession(facts, python, os.environ, jobs=1, cpus=4).run(rows)}
    wanted = {
        "illegal-access": ("failed", "crashed"),
        "endless-kernel": ("hung",),
        "cuda, after illegal-access": ("passed",),
        "cuda, after endless-kernel": ("passed",),
    }
    right = all(name in found and found[name].verdict in verdicts for name, verdicts in wanted.items())
    settings = {name: p.to_json() | {"output": p.output[-600:]} for name, p in found.items()}
    sys.stdout.write(json.dumps({"as_wanted": right, "proofs": settings}, indent=1) + "\n")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())

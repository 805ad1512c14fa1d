"""Compiled torch extensions: the CUDA runtime, torch and C++ ABI that each was linked with.

Read from ELF headers; nothing is loaded. An extension that does not match its torch fails only on import, with
an obscure missing symbol.
"""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe.keys import LINKAGE as KEYS
from gpuready.probe.libraries import read
from gpuready.probe.sight import glimpse
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.probe.patient import Patient
    from gpuready.system import Door

__all__ = ["KEYS", "abi", "look"]

BITSANDBYTES = "libbitsandbytes_cuda"
PLACES: dict[str, tuple[tuple[str, str], ...]] = {
    "apex": (("", "amp_C"), ("", "apex_C")),
    "auto_gptq": (("", "autogptq_cuda"), ("", "exllama")),
    "bitsandbytes": (("bitsandbytes", BITSANDBYTES),),
    "causal_conv1d": (("", "causal_conv1d_cuda"),),
    "colossalai": (("colossalai/_C", ""),),
    "deepspeed": (("deepspeed/ops/adam", ""), ("deepspeed/ops/transformer", "")),
    "fbgemm_gpu": (("fbgemm_gpu", "fbgemm_gpu_py"), ("fbgemm_gpu", "fbgemm_gpu")),
    "fbgemm_gpu_genai": (("fbgemm_gpu", "fbgemm_gpu_experimental"), ("fbgemm_gpu/experimental/gen_ai", "")),
    "flash_attn": (("", "flash_attn_2_cuda"),),
    "flash_attn_3": (("flash_attn_3", "_C"), ("", "flash_attn_3")),
    "mamba_ssm": (("", "selective_scan_cuda"),),
    "sgl_kernel": (("sgl_kernel", "common_ops"), ("sgl_kernel/sm90", "common_ops"), ("sgl_kernel/sm100", "")),
    "torchao": (("torchao", "_C"),),
    "torchaudio": (("torchaudio/lib", "libtorchaudio"), ("torchaudio/lib", "_torchaudio")),
    "torchvision": (("torchvision", "_C"),),
    "transformer_engine": (
        ("", "transformer_engine_torch"),
        ("transformer_engine", "transformer_engine_torch"),
        ("transformer_engine/wheel_lib", "transformer_engine_torch"),
    ),
    "vllm": (("vllm", "_C."), ("vllm", "_C")),
    "xformers": (("xformers", "_C"),),
}
"""Compiled files per distribution: a folder below the site folder, and the start of the file name."""

SYMBOLS = (
    "torchCheckFail",
    "torchInternalAssertFail",
    "_ZN3c105ErrorC",
    "_ZN3c107WarningC",
    "parseSchemaOrName",
)
"""torch functions with string parameters that every extension calls somewhere."""

MORE = ("_ZN3c10", "_ZNK3c10", "_ZN2at", "_ZNK2at", "_ZN5torch", "_ZNK5torch")
SYSTEM = ("libc.so", "libm.so", "libstdc++", "libgcc_s", "libpthread", "libdl.so", "librt.so", "libutil.so",
          "ld-linux", "linux-vdso", "libpython")  # fmt: skip


def look(door: Door, who: Patient, facts: list[Fact]) -> list[Fact]:
    """Return one row per installed distribution; ``file`` is None if it has no compiled file."""
    source = ", ".join(who.site) or who.prefix
    known = {fact.key: None if fact.gap else fact.value for fact in facts if fact.key.startswith("torch.")}
    rows: dict[str, Any] = {}
    try:
        for site in who.site:
            names = door.list(site) or ()
            for entry in (n for n in names if n.endswith((".dist-info", ".egg-info"))):
                name = entry.partition("-")[0].lower().replace(".", "_")
                if name in PLACES and name.replace("_", "-") not in rows:
                    rows[name.replace("_", "-")] = _row(door, site, name, names, known)
    except Blind as blind:
        return [Fact("extension.linked", None, source, gap=str(blind))]
    return [Fact("extension.linked", rows, source)]


def _row(door: Door, site: str, name: str, names: tuple[str, ...], known: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"file": None, "cudart": None, "torch": None, "abi": None, "missing": ()}
    try:
        files = _files(door, site, name, names)
        if name == "bitsandbytes":
            row["carries"] = tuple(version for file in files if (version := carried(file)))
            files = [file for file in files if carried(file) == known.get("torch.cuda")]
        row["file"] = files[0] if files else None
        header = door.elf(files[0]) if files else None
        return row | (_linked(door, site, files[0], header, known) if header else {})
    except Blind as blind:
        return row | {"gap": str(blind)}


def _files(door: Door, site: str, name: str, names: tuple[str, ...]) -> list[str]:
    """Return the compiled files of the first place that has any."""
    for folder, start in PLACES[name]:
        at = f"{site}/{folder}".rstrip("/")
        inside = names if not folder else door.list(at) or ()
        found = [f"{at}/{n}" for n in inside if n.startswith(start) and n.endswith(".so")]
        if found:
            return found
    return []


def carried(path: str) -> str | None:
    """``libbitsandbytes_cuda128.so`` -> ``12.8``."""
    digits = path.rpartition(BITSANDBYTES)[2].removesuffix(".so").partition("_")[0]
    return f"{digits[:-1]}.{digits[-1]}" if digits.isdecimal() and len(digits) > 2 else None


# -- one file -----------------------------------------------------------------------------------------


def _linked(
    door: Door, site: str, path: str, header: dict[str, Any], known: dict[str, Any]
) -> dict[str, Any]:
    one = read(path, header)
    torch = any(name.startswith(("libtorch", "libc10")) for name in one.needed)
    return {
        "cudart": next((v for name in one.needed if (v := runtime(name))), None),
        "torch": torch,
        "abi": _abi(door, path) if torch else None,
        "missing": _missing(door, site, one.needed, one.folders, known.get("torch.path")),
    }


def runtime(name: str) -> str | None:
    """``libcudart.so.12`` or ``libcudart.faf08d9a.so.12`` -> ``12``."""
    if not name.startswith(("libcudart.", "libcudart-")) or ".so." not in name:
        return None
    return name.rpartition(".so.")[2].partition(".")[0] or None


def _abi(door: Door, path: str) -> str | None:
    """By a few functions with string parameters, else by any torch symbol."""
    return abi(door.elf_text(path, ".dynstr", SYMBOLS)) or abi(door.elf_text(path, ".dynstr", MORE))


def abi(symbols: tuple[str, ...]) -> str | None:
    """Detect the ABI from the mangling of strings in symbols: cxx11, old, or None."""
    if any("__cxx11" in symbol for symbol in symbols):
        return "cxx11"
    return "old" if any(symbol.endswith("Ss") or "RKSs" in symbol for symbol in symbols) else None


def _missing(
    door: Door, site: str, needed: tuple[str, ...], folders: tuple[str, ...], torch: str | None
) -> tuple[str, ...]:
    """Libraries found neither beside torch, nor in the file's own folders, nor by the loader."""
    own = set(door.list(f"{torch}/lib") or ()) if torch else set()
    asked = [name for name in needed if not name.startswith(SYSTEM) and name not in own]
    pointed = {name for folder in folders for name in glimpse(door.list, folder) or ()} if asked else set()
    asked = [name for name in asked if name not in pointed]
    wheels = _wheels(door, site, torch) if asked else set()
    return tuple(name for name in asked if name not in wheels and not door.library(name))


def _wheels(door: Door, site: str, torch: str | None) -> set[str]:
    """Libraries of NVIDIA's wheels, without leftovers of an older CUDA: torch loads only its own."""
    folders = [f"{site}/nvidia/{name}/lib" for name in door.list(f"{site}/nvidia") or ()]
    found = {name for folder in folders for name in door.list(folder) or ()}
    header = glimpse(door.elf, f"{torch}/lib/libtorch_cuda.so") if torch else None
    taken = {name.partition(".so")[0]: name for name in (header or {}).get("needed", ())}
    return {name for name in found if taken.get(name.partition(".so")[0], name) == name}

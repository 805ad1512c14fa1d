"""Compiled torch extensions: the CUDA runtime, torch and C++ ABI that each was linked with.

Read from ELF headers; nothing is loaded. An extension that does not match its torch fails only on import, with
an obscure missing symbol.
"""

from typing import Any

from gpuready.model import Fact
from gpuready.probe.fact_helpers import LINKAGE as KEYS
from gpuready.probe.fact_helpers import read_if_present
from gpuready.probe.target_environment import TargetEnvironment
from gpuready.system import AccessError, HostAccess
from gpuready.system.dynamic_loader import Library

__all__ = ["KEYS", "detect_cxx_abi", "probe_extensions"]

BITSANDBYTES_PREFIX = "libbitsandbytes_cuda"
COMPILED_FILES: dict[str, tuple[tuple[str, str], ...]] = {
    "apex": (("", "amp_C"), ("", "apex_C")),
    "auto_gptq": (("", "autogptq_cuda"), ("", "exllama")),
    "bitsandbytes": (("bitsandbytes", BITSANDBYTES_PREFIX),),
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

STRING_SYMBOLS = (
    "torchCheckFail",
    "torchInternalAssertFail",
    "_ZN3c105ErrorC",
    "_ZN3c107WarningC",
    "parseSchemaOrName",
)
"""torch functions with string parameters that every extension calls somewhere."""

TORCH_SYMBOL_PREFIXES = ("_ZN3c10", "_ZNK3c10", "_ZN2at", "_ZNK2at", "_ZN5torch", "_ZNK5torch")
SYSTEM_LIBRARIES = ("libc.so", "libm.so", "libstdc++", "libgcc_s", "libpthread", "libdl.so", "librt.so", "libutil.so",
          "ld-linux", "linux-vdso", "libpython")  # fmt: skip


def probe_extensions(host: HostAccess, target: TargetEnvironment, facts: list[Fact]) -> list[Fact]:
    """Return one row per installed distribution; ``file`` is None if it has no compiled file."""
    source = ", ".join(target.site) or target.prefix
    known = {fact.key: None if fact.gap else fact.value for fact in facts if fact.key.startswith("torch.")}
    rows: dict[str, Any] = {}
    try:
        for site in target.site:
            names = host.list_directory(site) or ()
            for entry in (n for n in names if n.endswith((".dist-info", ".egg-info"))):
                name = entry.partition("-")[0].lower().replace(".", "_")
                if name in COMPILED_FILES and name.replace("_", "-") not in rows:
                    rows[name.replace("_", "-")] = _describe_extension(host, site, name, names, known)
    except AccessError as error:
        return [Fact("extension.linked", None, source, gap=str(error))]
    return [Fact("extension.linked", rows, source)]


def _describe_extension(
    host: HostAccess, site: str, name: str, names: tuple[str, ...], known: dict[str, Any]
) -> dict[str, Any]:
    row: dict[str, Any] = {"file": None, "cudart": None, "torch": None, "abi": None, "missing": ()}
    try:
        files = _find_compiled_files(host, site, name, names)
        if name == "bitsandbytes":
            row["carries"] = tuple(version for file in files if (version := parse_bitsandbytes_cuda(file)))
            files = [file for file in files if parse_bitsandbytes_cuda(file) == known.get("torch.cuda")]
        row["file"] = files[0] if files else None
        if name == "torchaudio":
            row["cuda"] = parse_build_cuda(host.read_text(f"{site}/torchaudio/version.py", 4096) or "")
        header = host.read_elf_headers(files[0]) if files else None
        return row | (_describe_linkage(host, site, files[0], header, known) if header else {})
    except AccessError as error:
        return row | {"gap": str(error)}


def _find_compiled_files(host: HostAccess, site: str, name: str, names: tuple[str, ...]) -> list[str]:
    """Return the compiled files of the first place that has any."""
    for folder, start in COMPILED_FILES[name]:
        at = f"{site}/{folder}".rstrip("/")
        inside = names if not folder else host.list_directory(at) or ()
        matches = [f"{at}/{n}" for n in inside if n.startswith(start) and n.endswith(".so")]
        if matches:
            return matches
    return []


def parse_build_cuda(text: str) -> str | None:
    """``__version__ = '2.11.0+cu130'`` -> ``13.0``; None for a build for the CPU or one that does not say."""
    digits = text.partition("__version__")[2].partition("\n")[0].partition("+cu")[2].rstrip("'\" ")
    return f"{digits[:-1]}.{digits[-1]}" if digits.isdecimal() and len(digits) > 2 else None


def parse_bitsandbytes_cuda(path: str) -> str | None:
    """``libbitsandbytes_cuda128.so`` -> ``12.8``."""
    digits = path.rpartition(BITSANDBYTES_PREFIX)[2].removesuffix(".so").partition("_")[0]
    return f"{digits[:-1]}.{digits[-1]}" if digits.isdecimal() and len(digits) > 2 else None


# -- one file -----------------------------------------------------------------------------------------


def _describe_linkage(
    host: HostAccess, site: str, path: str, header: dict[str, Any], known: dict[str, Any]
) -> dict[str, Any]:
    library = Library(path, header)
    torch = any(name.startswith(("libtorch", "libc10")) for name in library.needed)
    return {
        "cudart": next((v for name in library.needed if (v := parse_cudart_major(name))), None),
        "torch": torch,
        "abi": _read_cxx_abi(host, path) if torch else None,
        "missing": _find_missing_libraries(host, site, library.needed, library.folders, known.get("torch.path")),
    }


def parse_cudart_major(name: str) -> str | None:
    """``libcudart.so.12`` or ``libcudart.faf08d9a.so.12`` -> ``12``."""
    if not name.startswith(("libcudart.", "libcudart-")) or ".so." not in name:
        return None
    return name.rpartition(".so.")[2].partition(".")[0] or None


def _read_cxx_abi(host: HostAccess, path: str) -> str | None:
    """By a few functions with string parameters, else by any torch symbol."""
    return detect_cxx_abi(host.find_elf_strings(path, ".dynstr", STRING_SYMBOLS)) or detect_cxx_abi(
        host.find_elf_strings(path, ".dynstr", TORCH_SYMBOL_PREFIXES)
    )


def detect_cxx_abi(symbols: tuple[str, ...]) -> str | None:
    """Detect the ABI from the mangling of strings in symbols: cxx11, old, or None."""
    if any("__cxx11" in symbol for symbol in symbols):
        return "cxx11"
    return "old" if any(symbol.endswith("Ss") or "RKSs" in symbol for symbol in symbols) else None


def _find_missing_libraries(
    host: HostAccess, site: str, needed: tuple[str, ...], folders: tuple[str, ...], torch: str | None
) -> tuple[str, ...]:
    """Libraries found neither beside torch, nor in the file's own folders, nor by the loader."""
    torch_libraries = set(host.list_directory(f"{torch}/lib") or ()) if torch else set()
    wanted = [name for name in needed if not name.startswith(SYSTEM_LIBRARIES) and name not in torch_libraries]
    in_own_folders = (
        {name for folder in folders for name in read_if_present(host.list_directory, folder) or ()} if wanted else set()
    )
    wanted = [name for name in wanted if name not in in_own_folders]
    wheels = _list_wheel_libraries(host, site, torch) if wanted else set()
    return tuple(name for name in wanted if name not in wheels and not host.find_library(name))


def _list_wheel_libraries(host: HostAccess, site: str, torch: str | None) -> set[str]:
    """Libraries of NVIDIA's wheels, without leftovers of an older CUDA: torch loads only its own."""
    folders = [f"{site}/nvidia/{name}/lib" for name in host.list_directory(f"{site}/nvidia") or ()]
    libraries = {name for folder in folders for name in host.list_directory(folder) or ()}
    header = read_if_present(host.read_elf_headers, f"{torch}/lib/libtorch_cuda.so") if torch else None
    required = {name.partition(".so")[0]: name for name in (header or {}).get("needed", ())}
    return {name for name in libraries if required.get(name.partition(".so")[0], name) == name}

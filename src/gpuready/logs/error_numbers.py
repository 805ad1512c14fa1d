"""Errors of CUDA and HIP by their name or number in any wording, and the file in which a chain of NCCL begins to fail.

CUDA error 98 at /src/ggml-cuda.cu:6246: invalid device function
NCCL INFO transport/shm.cc:101 -> 2
"""

from __future__ import annotations

from gpuready.logs.lazy_regex import LazyRegex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuready.logs.log_lines import LogLine

CUDA_ERRORS = {
    2: "MemoryAllocation", 3: "InitializationError", 35: "InsufficientDriver", 46: "DevicesUnavailable",
    98: "InvalidDeviceFunction", 100: "NoDevice", 101: "InvalidDevice", 200: "InvalidKernelImage", 209: "NoKernelImageForDevice",
    214: "ECCUncorrectable", 217: "PeerAccessUnsupported", 218: "InvalidPtx", 220: "NvlinkUncorrectable",
    222: "UnsupportedPtxVersion", 700: "IllegalAddress", 701: "LaunchOutOfResources", 702: "LaunchTimeout",
    710: "Assert", 714: "HardwareStackError", 715: "IllegalInstruction", 716: "MisalignedAddress", 719: "LaunchFailure",
    802: "SystemNotReady", 803: "SystemDriverMismatch", 804: "CompatNotSupportedOnDevice", 805: "MpsConnectionFailed",
    806: "MpsRpcFailure", 807: "MpsServerNotReady", 999: "Unknown",
}  # fmt: skip
"""Source: ``enum cudaError`` of the CUDA Runtime API since 10.1; the driver's numbers are the same."""

_OTHER_NAMES = {
    "out_of_memory": 2, "outofmemory": 2, "not_initialized": 3, "notinitialized": 3, "no_device": 100, "invalid_device": 101,
    "no_binary_for_gpu": 209, "nobinaryforgpu": 209, "invalid_image": 200, "ecc_uncorrectable": 214,
    "peer_access_unsupported": 217, "invalid_ptx": 218, "nvlink_uncorrectable": 220, "unsupported_ptx_version": 222,
    "illegal_address": 700, "launch_timeout": 702, "launch_out_of_resources": 701, "assert": 710, "illegal_instruction": 715,
    "misaligned_address": 716, "launch_failed": 719, "launchfailure": 719, "system_not_ready": 802,
    "system_driver_mismatch": 803, "compat_not_supported_on_device": 804, "mps_connection_failed": 805, "unknown": 999,
}  # fmt: skip
"""Names of the driver (``CUDA_ERROR_NO_DEVICE``) and of HIP (``hipErrorNoBinaryForGpu``), where they differ."""

_NUMBER = LazyRegex(
    r"(?i)\b(?:cuda|hip|cudart)[\w ]{0,24}?(?:error|failure|err|exception)(?: code| number|code)?\s{0,2}[:=#]?\s{0,2}[(\[]?(\d{1,3})\b(?![.\d%])"
    r"|(?i:\bcu(?:da)?[A-Z]\w{2,40}\(?\)? (?:returned|failed with)(?: error| code| error code)?:?) (\d{1,3})\b(?![.\d])"
)
_NAME = LazyRegex(r"\b(?:cudaError|hipError|CUDA_ERROR_)([A-Za-z_]{4,40})\b")
_CHAIN = LazyRegex(r"NCCL INFO (?:\w{1,20}/)?([a-z_0-9]{2,30}\.(?:cc|h)):\d{1,6} -> ([1236])\b")


def parse_cuda_error(text: str) -> str:
    """``cudaErrorNoDevice``: the error that a text names or numbers; empty where there is none."""
    for found in _NAME.compiled.finditer(text[:2000]) if "rror" in text or "CUDA_ERROR_" in text else ():
        name = found[1].lower()
        number = next((n for n, known in CUDA_ERRORS.items() if known.lower() == name), _OTHER_NAMES.get(name))
        if number:
            return f"cudaError{CUDA_ERRORS[number]}"
    match = _NUMBER.search(text[:600])
    known = CUDA_ERRORS.get(int(match[1] or match[2]), "") if match else ""
    return f"cudaError{known}" if known else ""


def find_cuda_errors(lines: Sequence[LogLine]) -> Iterator[tuple[int, str]]:
    """The first line with each error of CUDA, of every rank, by its index."""
    seen = set()
    for i, line in enumerate(lines):
        low = line.text[:2000].lower()
        if not ("cuda" in low or "hip" in low) or line.level in ("I", "D") or line.place in ("kernel", "derived"):
            continue
        name = parse_cuda_error(line.text)
        if name and (line.source, line.rank, name) not in seen:
            seen.add((line.source, line.rank, name))
            yield i, f"CUDA reports {name}"


def find_nccl_chains(lines: Sequence[LogLine]) -> Iterator[tuple[int, str]]:
    """The file in which NCCL fails first, of every process: what it calls a chain goes from there outwards."""
    seen = set()
    for i, line in enumerate(lines):
        key = (line.source, line.host, line.pid, line.gpu)
        match = _CHAIN.search(line.text[:400]) if " -> " in line.text and key not in seen else None
        if match:
            seen.add(key)
            yield i, f"NCCL fails first in {match[1]} with {match[2]}"

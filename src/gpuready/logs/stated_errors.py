"""What a line states in one of many wordings, in one: patterns match it by ``stated:``, at the place of the line.

Errors of CUDA and HIP by name, number or message, and where a chain of NCCL fails first:

CUDA error 98 at /src/ggml-cuda.cu:6246: invalid device function
NCCL INFO transport/shm.cc:101 -> 2
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_lines import LogLine

CUDA_ERRORS = {
    2: "MemoryAllocation", 3: "InitializationError", 35: "InsufficientDriver", 36: "CallRequiresNewerDriver", 46: "DevicesUnavailable",
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

_MESSAGES = {
    "invalid device function": 98, "no cuda-capable device is detected": 100, "no rocm-capable device is detected": 100,
    "invalid device ordinal": 101, "device kernel image is invalid": 200, "no kernel image is available": 209,
    "driver version is insufficient for": 35, "not supported in the installed cuda driver": 36, "devices are busy or unavailable": 46, "uncorrectable ecc error": 214,
    "peer access is not supported": 217, "a ptx jit compilation failed": 218, "uncorrectable nvlink error": 220,
    "compiled with an unsupported toolchain": 222, "the launch timed out": 702, "device-side assert triggered": 710,
    "hardware stack error": 714, "an illegal instruction": 715, "an illegal memory access": 700, "misaligned address": 716, "unspecified launch failure": 719,
    "system not yet initialized": 802, "unsupported display driver": 803, "forward compatibility was attempted": 804,
    "failed to connect to the mps control daemon": 805,
}  # fmt: skip
"""What ``cudaGetErrorString`` and ``hipGetErrorString`` say."""

_SPEAKER = LazyRegex(r"(?i)\b(?:cuda|rocm|hip)[\w ]{0,24}?(?:error|failure|failed)|\b(?:cuda|hip|cu)[A-Z]\w{2,40}")
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
    match = _NUMBER.search(text[:600])  # numbers changed with CUDA 10.1, messages did not
    number = _parse_message(text) or (int(match[1] or match[2]) if match else 0)
    return f"cudaError{CUDA_ERRORS[number]}" if number in CUDA_ERRORS else ""


def _parse_message(text: str) -> int:
    """The number of the error whose message a text has after it names CUDA; 0 where there is none."""
    speaker = _SPEAKER.search(text[:600])
    rest = text[speaker.end() : 2000].lower() if speaker else ""
    return next((number for words, number in _MESSAGES.items() if words in rest), 0)


def find_cuda_errors(lines: Sequence[LogLine]) -> Iterator[tuple[int, str]]:
    """The first line with each error of CUDA, of every rank, by its index."""
    seen = set()
    for i, line in enumerate(lines):
        low = line.text[:2000].lower()
        if (
            not ("cuda" in low or "hip" in low or "rocm" in low)
            or line.level in ("I", "D")
            or line.place in ("kernel", "derived")
        ):
            continue
        name = parse_cuda_error(line.text)
        if name and (line.source, line.rank, name) not in seen:
            seen.add((line.source, line.rank, name))
            yield i, f"CUDA reports {name}."


def find_nccl_chains(lines: Sequence[LogLine]) -> Iterator[tuple[int, str]]:
    """The file in which NCCL fails first, of every process: what it calls a chain goes from there outwards."""
    seen = set()
    for i, line in enumerate(lines):
        key = (line.source, line.host, line.pid, line.gpu)
        match = _CHAIN.search(line.text[:400]) if " -> " in line.text and key not in seen else None
        if match:
            seen.add(key)
            yield i, f"NCCL fails first in {match[1]} with {match[2]}"


def state_errors(lines: Sequence[LogLine]) -> dict[int, str]:
    """``stated: CUDA reports cudaErrorNoDevice.``, by the index of the line."""
    found: dict[int, str] = {}
    readers = (find_cuda_errors, find_nccl_chains)
    for index, words in chain.from_iterable(reader(lines) for reader in readers):
        found[index] = f"{found[index]}; {words}" if index in found else f"stated: {words}"
    return found

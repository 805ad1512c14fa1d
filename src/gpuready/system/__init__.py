"""The only access to the machine: files, programs, environment, NVML. It can be recorded and replayed.

The names below are resolved on first access, so importing this package costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.system.host_access import AccessError, HostAccess, RunResult
    from gpuready.system.live_host import LiveHost, ReadOnlyHost
    from gpuready.system.private_files import make_private_folder, save_atomically
    from gpuready.system.process.probe_run import ProbeRun, run_probes, start_probes
    from gpuready.system.recording import RecordingHost, ReplayHost
    from gpuready.system.redaction.text import redact_text, redact_value

__all__ = [
    "AccessError",
    "HostAccess",
    "LiveHost",
    "ProbeRun",
    "ReadOnlyHost",
    "RecordingHost",
    "ReplayHost",
    "RunResult",
    "make_private_folder",
    "redact_text",
    "redact_value",
    "run_probes",
    "save_atomically",
    "start_probes",
]

_MODULE_OF_NAME = {
    "AccessError": "host_access",
    "HostAccess": "host_access",
    "RunResult": "host_access",
    "make_private_folder": "private_files",
    "save_atomically": "private_files",
    "ProbeRun": "process.probe_run",
    "start_probes": "process.probe_run",
    "run_probes": "process.probe_run",
    "LiveHost": "live_host",
    "ReadOnlyHost": "live_host",
    "RecordingHost": "recording",
    "ReplayHost": "recording",
    "redact_text": "redaction.text",
    "redact_value": "redaction.text",
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = __import__(f"{__name__}.{_MODULE_OF_NAME[name]}", fromlist=[name])
    globals()[name] = value = getattr(module, name)
    return value

"""The only access to the machine: files, programs, environment, NVML. It can be recorded and replayed."""

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

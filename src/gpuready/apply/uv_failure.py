"""Why a uv command of an install or a fix failed, in one sentence."""

from __future__ import annotations

import os
import re

from gpuready.apply.build_errors import explain_build_failure
from gpuready.apply.install_errors import format_os_error
from gpuready.apply.network_errors import LOGIN_WAY, find_host, find_network_cause
from gpuready.apply.uv_output import InconclusiveResolution, parse_uv_failure
from gpuready.system import RunResult

_FETCH_PHRASES = ("Failed to fetch", "Failed to download", "error sending request")
_OFFLINE_PHRASES = ("etwork connectivity is disabled", "etwork was disabled", "etwork is disabled")


def explain_uv_failure(ran: RunResult, what: str) -> str:
    if ran.end == "deadline":
        return f"uv {what} was not done in time ({ran.seconds:.0f} s), and was ended"
    if ran.end == "signal XFSZ":
        return f"uv {what} failed: EFBIG, file too large"
    if ran.end:
        return f"uv {what} failed: {ran.end}"
    text = _extract_uv_error(ran.err) or f"exit {ran.rc}"
    if "building from source is disabled" in " ".join(ran.err.split()):
        return (
            f"uv {what} failed: a package of the lock has no wheel for this machine, and building one runs its code: "
            f"agree with --allow-build, or make a wheel of it first and name its folder with --find-links; {text[:300]}"
        )
    known = explain_build_failure(ran.err) or _explain_unreachable(ran.err, what)
    if known:
        return known
    if "No solution found" in ran.err:
        return f"uv {what} failed: {_explain_no_solution(ran.err)}"
    match = re.search(r"os error (\d+)", ran.err)
    if match:
        number = int(match[1])
        return f"uv {what} failed: {format_os_error(OSError(number, os.strerror(number)))}; {text[:300]}"
    return f"uv {what} failed: {text[:600]}"


def _explain_no_solution(err: str) -> str:
    found = parse_uv_failure(err, "this request", {})
    if isinstance(found, InconclusiveResolution):
        return f"{found.why}; name a folder of wheels that has it with --find-links DIR"
    return found.says


def _explain_unreachable(err: str, what: str) -> str:
    """Say which host cannot be reached, why, and what to do; empty if the failure has another reason."""
    output = " ".join(err.split())
    cause = find_network_cause(err) if any(phrase in output for phrase in _FETCH_PHRASES) else ""
    ways = "install that Python first" if what == "venv" else "name a folder of wheels with --find-links DIR"
    if cause:
        host = find_host(err) or "the package index"
        check = LOGIN_WAY if cause.endswith(("(401)", "(403)")) else "check the network and the proxy"
        return f"nothing could be fetched from {host}: {cause}; {check}, or {ways}"
    if any(phrase in output for phrase in _OFFLINE_PHRASES):
        missing = re.search(r"Because (\S{1,100}) was not found in the ", output)
        named = f": {missing[1]}" if missing else ""
        return f"uv {what} failed: the network is off, and what is missing is not in uv's cache{named}; allow the network, or {ways}"
    return ""


def _extract_uv_error(err: str) -> str:
    """Return uv's error message on one line, from its first ``error`` on."""
    lines = [line.strip(" ×╰─▶│├╴") for line in err.splitlines()]
    starts = [i for i, line in enumerate(lines) if line.startswith("error")]
    kept = [line for line in lines[starts[0] if starts else 0 :] if line and not line.startswith("warning")]
    return "; ".join(kept).removeprefix("error: ")

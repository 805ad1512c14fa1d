"""munge, the authentication of Slurm clusters: its daemon says on every node which user has encoded a text."""

from __future__ import annotations

import os
import subprocess

MUNGE_SECONDS = 3.0
DECODED_STATUSES = (0, 17)
"""Success, and a replay: another rank of this node has decoded the same credential before."""


def encode_for_own_user(text: str) -> str:
    """Return a credential that only this user can decode, on nodes with the same munge key; empty without munge."""
    return _run_munge(("munge", "--ttl=-1", f"--restrict-uid={os.getuid()}"), text, (0,)).strip()


def decode_from_own_user(credential: object) -> str:
    """Return the text that this user has encoded; empty if it was another user, or there is no munge."""
    if not isinstance(credential, str) or not credential.startswith("MUNGE:"):
        return ""
    # STATUS:          Success (0)
    # UID:             root (0)
    head, _, text = _run_munge(("unmunge",), credential, DECODED_STATUSES).partition("\n\n")
    rows = dict(line.split(":", 1) for line in head.splitlines() if ":" in line)
    return text if rows.get("UID", "").endswith(f"({os.getuid()})") else ""


def _run_munge(command: tuple[str, ...], text: str, statuses: tuple[int, ...]) -> str:
    """Return the output; the text goes through a pipe, as arguments are visible to everybody."""
    try:
        ran = subprocess.run(command, input=text.encode(), capture_output=True, timeout=MUNGE_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return ran.stdout.decode("ascii", "replace") if ran.returncode in statuses else ""

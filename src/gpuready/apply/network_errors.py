"""Why uv could not fetch something: the host and the cause, from its error."""

from __future__ import annotations

_NETWORK_CAUSES = (
    ("failed to lookup address", "its name does not resolve from here"),
    ("dns error", "its name does not resolve from here"),
    ("Connection refused", "it refuses the connection"),
    ("connection closed", "it closed the connection in the middle of an answer"),
    ("connection reset", "it broke the connection off"),
    ("Connection reset", "it broke the connection off"),
    ("IncompleteMessage", "it closed the connection in the middle of an answer"),
    ("end of file before message length", "it closed the connection in the middle of an answer"),
    ("operation timed out", "it does not answer in time"),
    ("timed out", "it does not answer in time"),
    ("invalid peer certificate", "its certificate is not trusted here"),
    ("certificate", "its certificate is not trusted here"),
    ("401 Unauthorized", "it asks for a password (401)"),
    ("403 Forbidden", "it refuses the request (403)"),
    ("500 Internal", "it fails (500)"),
    ("502 Bad Gateway", "it fails (502)"),
    ("503 Service", "it is not in service (503)"),
)


def find_network_cause(output: str) -> str:
    """Return why a host did not answer, from uv's error; empty if that is not the reason."""
    return next((cause for phrase, cause in _NETWORK_CAUSES if phrase in output), "")


def find_host(output: str) -> str:
    """Return the host of the first address in uv's error, without login and path: both may be secret."""
    import re

    match = re.search(r"https?://(?:[^/\s`]*@)?([^/\s`):]+(?::\d+)?)", output)
    return match[1] if match else ""

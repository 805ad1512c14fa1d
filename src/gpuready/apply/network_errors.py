"""Why uv could not fetch something: the host and the cause, from its error."""

from __future__ import annotations

import re

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

LOGIN_WAY = "check its login (in ~/.netrc or in its address)"


def find_network_cause(output: str) -> str:
    """Return why a host did not answer, from uv's error; empty if that is not the reason."""
    return next((cause for phrase, cause in _NETWORK_CAUSES if phrase in output), "")


def find_host(output: str) -> str:
    """Return the host of the first address in uv's error, without login and path: both may be secret."""
    match = re.search(r"https?://(?:[^/\s`]*@)?((?:\[[\w:.%-]{2,60}\]|[^/\s`):]+)(?::\d+)?)", output)
    return match[1] if match else ""


def find_refusing_index(output: str) -> tuple[str, str]:
    """Return the address of an index that refused and how, from uv's hint; empty if none did.

    hint: An index URL (https://host/simple) could not be queried due to a lack of valid authentication credentials (401 Unauthorized)
    hint: An index (https://host/simple) returned a 403 Forbidden error. Check that the index URL is correct and …
    """
    flat = " ".join(output.split())
    match = re.search(
        r"An index(?: URL)? \(([^\s)]{1,500})\) (?:could not be queried[^()]{0,150}\(|returned a )"
        r"(401 Unauthorized|403 Forbidden)",
        flat,
    )
    return (match[1], find_network_cause(match[2])) if match else ("", "")

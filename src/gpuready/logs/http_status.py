"""The status with which a model hub refuses a file, in the words of any client.

RequestError(Status(403, Response[status: 403, status_text: Forbidden, url: https://huggingface.co/...]))
curl: (22) The requested URL returned error: 404
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_lines import LogLine

NEAR, MAX_ADDRESSES = 3, 400
"""Lines between the status and the address, and number of lines with an address that are looked at."""

_HUB = LazyRegex(
    r"(?i)\b(?:huggingface\.co|hf-mirror\.com|hf\.co|modelscope\.cn|[\w-]{1,20}\.llamameta\.net|api\.ngc\.nvidia\.com|cdn-lfs[\w.-]{0,40}\.hf\.co)\b|https?://[\w.-]{4,60}/[\w./-]{3,120}/resolve/"
)
"""Addresses of hubs; those of mirrors have the same paths."""
_STATUS = LazyRegex(
    r"(?i)\b(?:status(?:[ _]?(?:code|text))?|https?(?: error| status| response)?(?: code)?|http/\d(?:\.\d)?|response(?: code)?"
    r"|returned error|error(?: code)?|server returned|code|client error|server error)[\"']?[:=(\[ ]{1,3}[\"'(]?(401|403|404|416|429|50[0234])\b"
    r"|(?<![\w./:-])(401 unauthorized|403 forbidden|404 not found|416 range|429 too many requests|50[0234] (?:bad|service|gateway|internal)\b)"
)
_CALM = ("HTTP Request: ", '"HEAD ', '"GET ', 'HTTP/1.1"', 'HTTP/2"')
"""How clients log every request: a status there is often expected."""


def parse_http_status(text: str) -> str:
    """The status that a text tells as an error; empty where there is none."""
    if any(mark in text for mark in _CALM):
        return ""
    match = _STATUS.search(text[:2000])
    return (match[1] or match[2])[:3] if match else ""


def find_hub_refusals(lines: Sequence[LogLine]) -> Iterator[tuple[int, str]]:
    """The first line with each status, by its index, where the address of a hub is in it or beside it."""
    places = [i for i, line in enumerate(lines) if _may_be_hub(line.text) and _HUB.search(line.text[:4000])]
    seen = set()
    for place in places[:MAX_ADDRESSES]:
        for i in range(max(place - NEAR, 0), min(place + NEAR + 1, len(lines))):
            line = lines[i]
            if line.level in ("I", "D") or line.source != lines[place].source:
                continue
            status = parse_http_status(line.text)
            if status and status not in seen:
                seen.add(status)
                yield i, f"the hub answers {status}"


def _may_be_hub(text: str) -> bool:
    return any(mark in text for mark in ("hugging", "hf", "modelscope", "/resolve/", "llamameta", "ngc.nvidia"))

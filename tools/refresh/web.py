"""Answers of an index: pages, and pieces of files. Every byte is counted, and everything unexpected is one sentence."""

from __future__ import annotations

import base64
import http.client
import re
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

AGENT = "gpuready-refresh-catalog"
PAGE_LIMIT = 64 << 20
RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)\Z")


class Trouble(Exception):
    """An answer from which nothing can be learned; the text is a sentence for the maintainer."""


class Missing(Trouble):
    """The index does not have it."""


class Web:
    """One index, asked politely: it counts what it reads and never follows a page from https to http."""

    def __init__(self, index: str, timeout: float = 60) -> None:
        parts = _split(index)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Trouble(f"{shown(index)} is no index that can be asked: an http or https address is needed")
        self.index = without_user(index).rstrip("/") + "/"
        self._host, self._authority = parts.netloc.rpartition("@")[2], _authority(parts)
        self._timeout = timeout
        self.bytes = self.requests = 0

    def page(self, address: str, accept: str, limit: int = PAGE_LIMIT) -> tuple[bytes, str, str]:
        """A whole answer: its bytes, its content type, and the address where it was found in the end."""
        answer = self._open(address, {"Accept": accept})
        with answer:
            body = self._body(answer, limit, address)
            return body, answer.headers.get("Content-Type", "").lower(), answer.geturl()

    def piece(self, address: str, wanted: str) -> tuple[bytes, int, int]:
        """A range of a file (``100-199``, or ``-500`` for the end): its bytes, where they start, the whole size."""
        answer = self._open(address, {"Range": f"bytes={wanted}", "Accept-Encoding": "identity"})
        with answer:
            if answer.status != 206:  # do not read: the body is the whole wheel
                raise Trouble(f"{shown(address)}: the server ignores Range, and no wheel is downloaded whole")
            placed = RANGE.match(answer.headers.get("Content-Range", ""))
            if not placed:
                raise Trouble(f"{shown(address)}: the server does not say which range it sent")
            first, last, size = (int(number) for number in placed.groups())
            body = self._body(answer, last - first + 1, address)
        if len(body) != last - first + 1 or last >= size or not _asked(wanted, first, last, size):
            raise Trouble(f"{shown(address)}: the server sent another range than {wanted}")
        return body, first, size

    def _open(self, address: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        parts = _split(address)
        if parts.scheme not in ("http", "https") or (self.index.startswith("https") and parts.scheme != "https"):
            raise Trouble(f"{shown(address)}: not followed, it is no {self.index.partition(':')[0]} address")
        sent = {"User-Agent": AGENT} | headers
        if self._authority and parts.netloc == self._host:
            sent["Authorization"] = self._authority
        request = urllib.request.Request(address, headers=sent)
        self.requests += 1
        try:
            answer: http.client.HTTPResponse = _opener().open(request, timeout=self._timeout)
            return answer
        except urllib.error.HTTPError as bad:
            bad.close()
            if bad.code in (404, 410):
                raise Missing(f"{shown(address)}: not there ({bad.code})") from None
            raise Trouble(f"{shown(address)}: {_said(bad)}") from None
        except (OSError, http.client.HTTPException, ValueError) as bad:
            raise Trouble(f"{shown(address)}: no answer ({_said(bad)})") from None

    def _body(self, answer: http.client.HTTPResponse, limit: int, address: str) -> bytes:
        try:
            body = answer.read(limit + 1)
        except (OSError, http.client.HTTPException) as bad:
            raise Trouble(f"{shown(address)}: the answer broke off ({_said(bad)})") from None
        self.bytes += len(body)
        promised = answer.headers.get("Content-Length", "")
        if len(body) > limit:
            raise Trouble(f"{shown(address)}: the answer is larger than the {limit} bytes that were expected")
        if promised.isdigit() and len(body) != int(promised):
            raise Trouble(f"{shown(address)}: the answer broke off after {len(body)} of {promised} bytes")
        return body


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Redirects, but never from https to http, and never with the password to another host."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme != "https"):
            raise urllib.error.URLError("it redirects away from https")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request and new.netloc != old.netloc:
            request.remove_header("Authorization")
        return request


_made: list[urllib.request.OpenerDirector] = []


def _opener() -> urllib.request.OpenerDirector:
    if not _made:
        _made.append(urllib.request.build_opener(_SameHost()))
    return _made[0]


def _asked(wanted: str, first: int, last: int, size: int) -> bool:
    """Whether the range that came is the one that was asked for; a file may end before it does."""
    start, _, end = wanted.partition("-")
    if not start:
        return last == size - 1 and first == max(0, size - int(end))
    return first == int(start) and last == min(int(end), size - 1)


def _authority(parts: urllib.parse.SplitResult) -> str:
    if not parts.username:
        return ""
    pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _split(address: str) -> urllib.parse.SplitResult:
    """The parts of an address; of what is none, nothing."""
    try:
        parts = urllib.parse.urlsplit(address)
        parts.port  # noqa: B018  a port that is no number shows only now
        return parts
    except ValueError:
        return urllib.parse.SplitResult("", "", "", "", "")


def without_user(address: str) -> str:
    parts = _split(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def shown(address: str) -> str:
    """The last part of an address: enough to know the file, without host, user or token."""
    path = urllib.parse.unquote(_split(address).path).rstrip("/")
    return path.rpartition("/")[2] or "the index"


def _said(bad: BaseException) -> str:
    text = " ".join(str(getattr(bad, "reason", "") or bad).split()) or type(bad).__name__
    if "infinite loop" in text:
        return "it redirects in a circle"
    if isinstance(bad, urllib.error.HTTPError):
        return (
            f"it redirects to where nobody may follow ({bad.code})" if bad.code < 400 else f"{text[:80]} ({bad.code})"
        )
    return text[:160]

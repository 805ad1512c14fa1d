"""Normalize addresses and ports as people and templates write them, or reject them in a sentence."""

from __future__ import annotations

LAST_PORT = 65535
FREE_FROM, FREE_COUNT = 20000, 10000
# Ports below those that the kernel gives to outgoing connections.


def whole(text: str, name: str) -> int:
    """Parse at most nine ASCII digits; ValueError says what the variable contains instead."""
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    if not text.strip():
        raise ValueError(f"{name} is empty")
    raise ValueError(f"{name} is {text!r}, which is no whole number")


def port(text: str, name: str = "MASTER_PORT") -> int:
    """Parse a port from 1 to 65535."""
    try:
        found = whole(text, name)
    except ValueError as wrong:
        raise ValueError(f"{wrong}{_link(text)}: a port is a number from 1 to {LAST_PORT}") from None
    if not found:
        raise ValueError(f"{name} is 0, which means any port: the other ranks cannot guess it")
    if found > LAST_PORT:
        raise ValueError(f"{name} is {found}: a port is a number from 1 to {LAST_PORT}")
    return found


def _link(text: str) -> str:
    return " (Kubernetes links a service called master so: rename it)" if text.startswith("tcp://") else ""


def derived_port(key: str) -> int:
    """Derive a port that all ranks of one job agree on if the launcher gives none."""
    import zlib

    return FREE_FROM + zlib.crc32(key.encode("utf-8", "surrogateescape")) % FREE_COUNT


def host(text: str, name: str = "MASTER_ADDR") -> tuple[str, str]:
    """Return the normalized address, and a note if it was changed; ValueError if it is invalid."""
    plain = text.strip()
    if not plain:
        raise ValueError(f"{name} is empty")
    note = f"{name} is {text!r}: the spaces around it are dropped" if plain != text else ""
    if plain.startswith("[") and plain.endswith("]"):
        plain = plain[1:-1]
    if "://" in plain:
        raise ValueError(f"{name} is {text!r}, a URL: write the host alone")
    if ":" in plain or _dotted(plain):
        return _literal(plain, text, name), note
    return _named(plain, text, name), note


def _dotted(plain: str) -> bool:
    """Digits and dots alone are an IPv4 address or a mistake, never a name."""
    return all(c.isdigit() or c == "." for c in plain)


def _literal(plain: str, text: str, name: str) -> str:
    import ipaddress

    try:
        found = ipaddress.ip_address(plain)
    except ValueError:
        before, _, after = plain.rpartition(":")
        if before and ":" not in before and after.isdecimal():
            said = f"{name} is {text!r}: write {before} there, and {after} to MASTER_PORT"
            raise ValueError(said) from None
        raise ValueError(f"{name} is {text!r}, which is no address") from None
    if found.is_unspecified:
        raise ValueError(f"{name} is {text!r}, which means all addresses of a host: name one of them")
    if found.version == 6 and found.is_link_local and "%" not in plain:
        said = f"{name} is {text!r}, a link-local address: add the interface, such as {plain}%eth0"
        raise ValueError(said)
    return plain


def _named(plain: str, text: str, name: str) -> str:
    labels = plain.removesuffix(".").split(".")
    fits = all(0 < len(one) < 64 and all(c.isalnum() or c in "-_" for c in one) for one in labels)
    if not fits or len(plain) > 253:
        raise ValueError(f"{name} is {text!r}, which is no name of a host")
    return plain


def is_loopback(plain: str) -> bool:
    """Whether the text itself names this machine; a name may still resolve to it."""
    if plain.lower().rstrip(".") in ("localhost", "ip6-localhost", "localhost.localdomain"):
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(plain).is_loopback
    except ValueError:
        return False

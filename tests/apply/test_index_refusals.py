"""An index that cannot be asked proves nothing: its host and what to do are told, and no address."""

from __future__ import annotations

import pytest

from gpuready.apply.build_errors import find_host
from gpuready.apply.uv import explain_uv_failure
from gpuready.apply.uv_output import InconclusiveResolution, parse_uv_failure
from gpuready.system import RunResult

HINTS = {
    "401": "An index URL ({0}) could not be queried due to a lack of valid authentication credentials (401 Unauthorized)",
    "403": "An index ({0}) returned a 403 Forbidden error. Check that the index URL is correct and the credentials are valid.",
}  # fmt: skip
PROOFS = (
    "Because {0} was not found in the package registry and you require {0}, we can conclude that it is unsatisfiable.",
    "Because there are no versions of {0} and you require {0}, we can conclude that it is unsatisfiable.",
    "Because {0}==1.0 has no wheels with a matching Python ABI tag (e.g., `cp312`) and you require {0}, we can conclude.",
)
ADDRESS = "https://me:secret@host.example:81/team/simple"


def make_output(code: str, proof: str) -> str:
    hint = HINTS[code].format(ADDRESS)
    return f"error: No solution found when resolving dependencies\n  cause: {proof.format('kite')}\n\nhint: {hint}\n"


@pytest.mark.parametrize("proof", PROOFS)
@pytest.mark.parametrize("code", HINTS)
def test_an_index_that_asks_for_a_login_is_named_and_nothing_is_proved(code, proof):
    output = make_output(code, proof)
    found = parse_uv_failure(output, "kite", {})
    assert isinstance(found, InconclusiveResolution)
    assert "the index host.example:81" in found.why and f"({code})" in found.why and "~/.netrc" in found.why
    assert "no index that was asked" not in found.why and "secret" not in found.why and "team" not in found.why
    assert found.why in explain_uv_failure(RunResult(("uv",), 1, out="", err=output), "pip install")


def test_an_index_with_a_name_is_told_by_it():
    address = "https://host.example/simple"
    output = make_output("403", PROOFS[0]).replace(ADDRESS, address)
    found = parse_uv_failure(output, "kite", {address: "torch-cu128"})
    assert isinstance(found, InconclusiveResolution) and "the index torch-cu128, asked for kite:" in found.why
    found = parse_uv_failure(output, "kite", {"https://other.example": "torch-cu128"})
    assert isinstance(found, InconclusiveResolution) and "the index of your settings, asked for kite:" in found.why
    assert "example" not in found.why


@pytest.mark.parametrize("code", ["401 Unauthorized", "403 Forbidden"])
def test_a_download_that_is_refused_asks_for_a_login_and_not_for_a_proxy(code):
    output = f"error: Failed to download `kite==1.0`\n  cause: Failed to fetch: {ADDRESS}/kite.whl\n  cause: HTTP status client error ({code}) for url"
    found = explain_uv_failure(RunResult(("uv",), 1, out="", err=output), "pip install")
    assert "host.example:81" in found and "~/.netrc" in found and "proxy" not in found and "secret" not in found


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("http://[::1]:9/simple/kite/", "[::1]:9"),
        ("(https://me:secret@[fe80::1%25eth0]/simple)", "[fe80::1%25eth0]"),
        ("(https://host.example:81/simple)", "host.example:81"),
        ("`https://host.example`", "host.example"),
    ],
)
def test_the_host_of_an_address(address, host):
    assert find_host(f"error: Failed to fetch: {address}") == host

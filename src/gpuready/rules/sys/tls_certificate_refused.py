"""A certificate is not trusted.

The connection reaches someone, and the certificate that is shown cannot be trusted: a proxy that looks into the traffic signs with its own authority, which Python does
not know, or the bundle of authorities is missing or named wrongly (``SSL_CERT_FILE``, ``REQUESTS_CA_BUNDLE``). Python's libraries bring their own
bundle, so a browser or curl on the same machine may work.

Add the proxy's authority to a bundle and let ``REQUESTS_CA_BUNDLE`` and ``SSL_CERT_FILE`` name it. Turning the verification off is no fix. Where nothing answers at
all, the hub cannot be reached: another cause.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "SYS027"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "CERTIFICATE_VERIFY_FAILED",
    "certificate verify failed",
    "SSLCertVerificationError",
    "invalid peer certificate",
    "Could not find a suitable TLS CA certificate bundle",
    "unable to get local issuer certificate",
    "self signed certificate in certificate chain",
    "self-signed certificate in certificate chain",
    "server certificate verification failed",
    "SSL certificate problem:",
    "x509: certificate signed by unknown authority",
    {"says": "SSL: WRONG_VERSION_NUMBER", "in": "exception", "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)

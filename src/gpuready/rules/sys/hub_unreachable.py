"""The hub cannot be reached.

A model, a tokenizer or a dataset is asked for by its name, no copy is in the cache, and the hub cannot be reached: the node has no way out (compute nodes often
have none), the name cannot be resolved, a proxy refuses, or an offline variable is set. The library tries several times, then says that it could neither connect
nor find the files in the cache.

Fetch the files on a node with a network into a cache that the job sees (``hf download``), or set the proxy or ``HF_ENDPOINT``. A certificate that is not trusted and
access that was not granted have causes of their own.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "SYS026"
SEVERITY = "error"
READS = log_findings.READS
HUB_MARKERS = (
    "huggingface.co",
    "huggingface_hub",
    "hf_hub_",
    "hf-mirror",
    "transformers/utils/hub.py",
    "-packages/datasets/",
    "modelscope",
    "cdn-lfs",
    "xethub",
    "hf.co/",
)
"""Phrases in a traceback or address of the hub."""
DOWNLOAD_MARKERS = (
    "huggingface",
    "hf_hub",
    "hf-mirror",
    "transformers/utils/hub.py",
    "datasets/",
    "modelscope",
    "cdn-lfs",
    "xethub",
    "hf.co",
    "urlopen",
)
"""Broader phrases, for network errors that only a download causes."""
TLS_MARKERS = ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed")
"""Phrases of certificate errors, which have their own cause."""
PATTERNS = (
    {"says": "We couldn't connect to 'https://", "unless": TLS_MARKERS},
    {"says": "We couldn't connect to the Hugging Face Hub", "unless": TLS_MARKERS},
    {"says": "cannot find the requested files in the local cache", "unless": TLS_MARKERS},
    {"says": "cannot find the requested files in the disk cache", "unless": TLS_MARKERS},
    {"says": "cannot find an appropriate cached snapshot folder", "unless": TLS_MARKERS},
    {"says": "LocalEntryNotFoundError", "unless": TLS_MARKERS},
    {"says": "OfflineModeIsEnabled"},
    {"says": "Max retries exceeded with url", "in": "exception", "with": HUB_MARKERS, "unless": TLS_MARKERS},
    {"says": "(host='huggingface.co', port=443)", "in": "exception", "unless": TLS_MARKERS},
    {
        "says": "(host='{host}', port=443): Read timed out",
        "in": "exception",
        "with": HUB_MARKERS,
        "unless": TLS_MARKERS,
    },
    {"says": "Failed to resolve 'huggingface.co'", "unless": TLS_MARKERS},
    {"says": "Couldn't reach {what} on the Hub", "in": "exception", "unless": TLS_MARKERS},
    {"says": "Couldn't reach http", "in": "exception", "unless": TLS_MARKERS},
    {"says": "Cannot reach https://huggingface.co", "unless": TLS_MARKERS},
    {"says": "Name or service not known", "in": "exception", "with": HUB_MARKERS, "unless": TLS_MARKERS},
    {
        "says": "Temporary failure in name resolution",
        "in": "exception",
        "with": (*DOWNLOAD_MARKERS, "torch/hub.py"),
        "unless": TLS_MARKERS,
    },
    {"says": "nodename nor servname provided", "in": "exception", "with": HUB_MARKERS, "unless": TLS_MARKERS},
    {"says": "getaddrinfo failed", "in": "exception", "with": HUB_MARKERS, "unless": TLS_MARKERS},
    {"says": "Network is unreachable", "in": "exception", "with": DOWNLOAD_MARKERS, "unless": TLS_MARKERS},
    {"says": "Connection refused", "in": "exception", "with": HUB_MARKERS, "unless": TLS_MARKERS},
    {"says": "Cannot connect to proxy", "in": "exception", "unless": TLS_MARKERS},
    {"says": "Tunnel connection failed", "in": "exception"},
    {"says": "Cannot connect to host huggingface.co", "in": "exception", "unless": TLS_MARKERS},
    {"says": "Connection to huggingface.co timed out"},
    {"says": "UNEXPECTED_EOF_WHILE_READING", "in": "exception", "with": HUB_MARKERS, "unless": TLS_MARKERS},
    {"says": "EOF occurred in violation of protocol", "in": "exception", "with": HUB_MARKERS, "unless": TLS_MARKERS},
    {"says": "timed out", "in": "exception", "with": HUB_MARKERS, "as": "clue", "unless": TLS_MARKERS},
    {"says": "thrown while requesting HEAD https://huggingface.co", "as": "clue", "unless": TLS_MARKERS},
    {"says": "thrown while requesting GET https://huggingface.co", "as": "clue", "unless": TLS_MARKERS},
    {
        "says": "Can't load tokenizer for '{name}'. If you were trying to load it from",
        "in": "exception",
        "as": "clue",
        "unless": TLS_MARKERS,
    },
    {"says": "urlopen error [Errno -3]", "in": "exception", "unless": TLS_MARKERS},
    {"says": "urlopen error [Errno 101]", "in": "exception", "unless": TLS_MARKERS},
    {"says": "urlopen error [Errno 110]", "in": "exception", "as": "clue", "unless": TLS_MARKERS},
    {"says": "Connection aborted.", "in": "exception", "with": HUB_MARKERS, "unless": TLS_MARKERS},
    {"says": "RemoteDisconnected(", "in": "exception", "with": HUB_MARKERS, "unless": TLS_MARKERS},
    {"says": "peer closed connection without sending complete message body", "in": "exception", "with": HUB_MARKERS},
    {"says": "ConnectError: [Errno -2]", "as": "clue", "in": "exception"},
    {"says": "ConnectError: [Errno -3]", "as": "clue", "in": "exception"},
    {"says": "ConnectError: [Errno 101]", "as": "clue", "in": "exception"},
    {"says": "ConnectError: [Errno 110]", "as": "clue", "in": "exception"},
    {"says": "ConnectTimeout: ", "as": "clue", "in": "exception"},
    {"says": "Retrying in {}s [Retry {}/5].", "as": "clue", "with": ("huggingface",)},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)

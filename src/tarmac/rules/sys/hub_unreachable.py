"""The hub cannot be reached.

A model, a tokenizer or a dataset is asked for by its name, no copy is in the cache, and the hub cannot be reached: the node has no way out (compute nodes often
have none), the name cannot be resolved, a proxy refuses, or an offline variable is set. The library tries several times, then says that it could neither connect
nor find the files in the cache.

Fetch the files on a node with a network into a cache that the job sees (``hf download``), or set the proxy or ``HF_ENDPOINT``. A certificate that is not trusted and
access that was not granted have causes of their own.
"""

from __future__ import annotations

from tarmac.rules import told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarmac.model import Contract, Facts, Finding

CODE = "SYS026"
SEVERITY = "error"
READS = told.READS
SIGNS = (
    {
        "says": "We couldn't connect to 'https://",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "We couldn't connect to the Hugging Face Hub",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "cannot find the requested files in the local cache",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "cannot find the requested files in the disk cache",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "cannot find an appropriate cached snapshot folder",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "LocalEntryNotFoundError",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {"says": "OfflineModeIsEnabled"},
    {
        "says": "Max retries exceeded with url",
        "in": "exception",
        "with": (
            "huggingface",
            "hf_hub",
            "hf-mirror",
            "transformers/utils/hub.py",
            "datasets/",
            "modelscope",
            "cdn-lfs",
            "xethub",
            "hf.co",
        ),
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "(host='huggingface.co', port=443)",
        "in": "exception",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "(host='{host}', port=443): Read timed out",
        "with": (
            "huggingface",
            "hf_hub",
            "hf-mirror",
            "transformers/utils/hub.py",
            "datasets/",
            "modelscope",
            "cdn-lfs",
            "xethub",
            "hf.co",
        ),
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "Failed to resolve 'huggingface.co'",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "Couldn't reach {what} on the Hub",
        "in": "exception",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "Couldn't reach http",
        "in": "exception",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "Cannot reach https://huggingface.co",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "Name or service not known",
        "in": "exception",
        "with": (
            "huggingface",
            "hf_hub",
            "hf-mirror",
            "transformers/utils/hub.py",
            "datasets/",
            "modelscope",
            "cdn-lfs",
            "xethub",
            "hf.co",
        ),
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "Temporary failure in name resolution",
        "in": "exception",
        "with": (
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
            "torch/hub.py",
        ),
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "nodename nor servname provided",
        "in": "exception",
        "with": (
            "huggingface",
            "hf_hub",
            "hf-mirror",
            "transformers/utils/hub.py",
            "datasets/",
            "modelscope",
            "cdn-lfs",
            "xethub",
            "hf.co",
        ),
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "getaddrinfo failed",
        "in": "exception",
        "with": (
            "huggingface",
            "hf_hub",
            "hf-mirror",
            "transformers/utils/hub.py",
            "datasets/",
            "modelscope",
            "cdn-lfs",
            "xethub",
            "hf.co",
        ),
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "Network is unreachable",
        "in": "exception",
        "with": (
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
        ),
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "Connection refused",
        "in": "exception",
        "with": (
            "huggingface",
            "hf_hub",
            "hf-mirror",
            "transformers/utils/hub.py",
            "datasets/",
            "modelscope",
            "cdn-lfs",
            "xethub",
            "hf.co",
        ),
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "Cannot connect to proxy",
        "in": "exception",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {"says": "Tunnel connection failed", "in": "exception"},
    {
        "says": "Cannot connect to host huggingface.co",
        "in": "exception",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {"says": "Connection to huggingface.co timed out"},
    {
        "says": "UNEXPECTED_EOF_WHILE_READING",
        "in": "exception",
        "with": (
            "huggingface",
            "hf_hub",
            "hf-mirror",
            "transformers/utils/hub.py",
            "datasets/",
            "modelscope",
            "cdn-lfs",
            "xethub",
            "hf.co",
        ),
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "EOF occurred in violation of protocol",
        "in": "exception",
        "with": (
            "huggingface",
            "hf_hub",
            "hf-mirror",
            "transformers/utils/hub.py",
            "datasets/",
            "modelscope",
            "cdn-lfs",
            "xethub",
            "hf.co",
        ),
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "timed out",
        "in": "exception",
        "with": (
            "huggingface",
            "hf_hub",
            "hf-mirror",
            "transformers/utils/hub.py",
            "datasets/",
            "modelscope",
            "cdn-lfs",
            "xethub",
            "hf.co",
        ),
        "as": "clue",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "thrown while requesting HEAD https://huggingface.co",
        "as": "clue",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "thrown while requesting GET https://huggingface.co",
        "as": "clue",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "Can't load tokenizer for '{name}'. If you were trying to load it from",
        "in": "exception",
        "as": "clue",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "urlopen error [Errno -3]",
        "in": "exception",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "urlopen error [Errno 101]",
        "in": "exception",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
    {
        "says": "urlopen error [Errno 110]",
        "in": "exception",
        "as": "clue",
        "unless": ("CERTIFICATE_VERIFY_FAILED", "SSLCertVerificationError", "certificate verify failed"),
    },
)
BROKEN, HEALTHY = told.examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return told.finding(facts, contract, CODE, SEVERITY)

"""The hub does not give this repository to this user.

The repository exists, and its owner gives it only to those who asked and were accepted. The hub answers 401 to someone who is not logged in, and 403 to
someone who is and has not been let in, or whose token may not read gated repositories. In a job the token is often missing only there: another user, a
container, a node without the home directory.

Ask for access on the page of the model, log in with a token that may read, and give the job ``HF_TOKEN``. A name that does not exist gives the same 401
without a token: see whether it is spelt right.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "SYS025"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "You are trying to access a gated repo",
    "Cannot access gated repo for url",
    "GatedRepoError: 40",
    {"says": "GatedRepoError", "in": "exception"},
    "is gated. You must be authenticated to access it",
    "is restricted. You must have access to it and be authenticated",
    "is restricted and you are not in the authorized list",
    "is awaiting a review from the repo authors",
    "is a gated dataset on the Hub",
    "Please enable access to public gated repositories in your fine-grained token",
    {"says": "pass a token having permission to this repo", "as": "clue"},
    {"says": "401 Client Error: Unauthorized for url: https://huggingface.co"},
    {"says": "401 Client Error: Unauthorized for url: https://hf-mirror"},
    {"says": "403 Client Error: Forbidden for url: https://huggingface.co"},
    {"says": "403 Forbidden: {}gated", "in": "exception"},
    {"says": "Invalid credentials in Authorization header"},
    {"says": "Invalid user token", "in": "exception"},
    {"says": "Token is required (`token=True`), but no token found"},
    {"says": "Token is required to call the /whoami-v2 endpoint"},
    {"says": "LocalTokenNotFoundError"},
    {"says": "RepositoryNotFoundError: 401 Client Error"},
    {"says": "Repository Not Found for url", "with": ("401 Client Error",)},
    {"says": "is not a local folder and is not a valid model identifier", "with": ("401 Client Error",)},
    {
        "says": "is not a local folder and is not a valid model identifier",
        "in": "exception",
        "without": ("401 Client Error",),
        "cause": "not-environment",
    },
    {"says": "Repository Not Found for url", "with": ("404 Client Error",), "cause": "not-environment"},
    {"says": "Revision Not Found for url", "cause": "not-environment", "in": "exception"},
    {"says": "Entry Not Found for url", "cause": "not-environment", "in": "exception"},
    {"says": "Repo id must be in the form", "in": "exception", "cause": "not-environment"},
    {"says": "Repo id must use alphanumeric chars", "in": "exception", "cause": "not-environment"},
    {"says": "Incorrect path_or_model_id:", "in": "exception", "cause": "not-environment"},
    {
        "says": "does not appear to have a file named",
        "in": "exception",
        "without": ("-of-",),
        "as": "clue",
        "cause": "not-environment",
    },
    "is restricted. You must be authenticated to access it",
    {"says": "You must be authenticated to access it", "as": "clue"},
    {"says": "Your request to access model {} is awaiting a review"},
    {"says": "Access to this resource is disabled"},
    {"says": "You need to agree to share your contact information to access this"},
    {"says": "Access to dataset {} is restricted"},
    {"says": "Access to model {} is restricted"},
    {"says": "401 Client Error{...}huggingface.co"},
    {"says": "403 Client Error{...}huggingface.co"},
    {"says": "You have been authenticated, but your token is not allowed"},
    {"says": "does not have the correct permissions", "in": "exception", "with": ("hugging", "token")},
    {"says": "Authorization error."},
    {"says": "Invalid username or password.", "in": "exception", "with": ("huggingface", "hf")},
    {"says": "huggingface-cli login", "in": "exception", "as": "clue"},
    {"says": "hf auth login", "in": "exception", "as": "clue"},
    {"says": "private repository", "in": "exception", "as": "clue"},
    {"says": "Make sure to have access to it at https://huggingface.co"},
    {"says": "HfHubHTTPError: 403 Client Error", "without": ("rate limit", "storage")},
    {"says": "HfHubHTTPError: 401 Client Error"},
    {"says": "make sure you have been granted access"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)

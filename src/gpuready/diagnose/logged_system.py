"""What a log shows of the machine that wrote it: its operating system, and the versions of packages."""

from collections.abc import Iterator

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.line_forms import sample_lines
from gpuready.logs.log_summary import LogSummary

MAX_TEXT = 600
"""Characters of a line that are looked at."""

_WINDOWS = LazyRegex(
    r'(?:^|[\s"\'(=])[A-Za-z]:\\{1,2}[\w .~-]{1,80}\\|\\site-packages\\|\bWinError \d|\bwin_amd64\b|\\Lib\\[a-z]'
)
_WSL = LazyRegex(r"/mnt/[a-z]/(?:Users|users|Program)|microsoft-standard|\bWSL2?\b|/usr/lib/wsl/")
_MAC = LazyRegex(r"(?:^|[\s\"'(=])/Users/[\w.-]{1,60}/|\bDarwin\b|macosx_\d|/opt/homebrew/")
_RED_HAT = LazyRegex(r"\.el[6-9]\b|\.el10\b|\b(?:Rocky|CentOS|AlmaLinux|Red Hat|RHEL|Fedora)\b|\b(?:dnf|yum) install\b")
_LINUX = LazyRegex(r"(?:^|[\s\"'(=])/(?:home|usr|opt|root|workspace|mnt|data|tmp|lib|dev|proc|var|scratch|srv)/|\.so\b")
_SIGNS = {
    "windows": (("\\", "WinError", "win_amd64"), _WINDOWS),
    "wsl": (("/mnt/", "microsoft-", "WSL", "/wsl/"), _WSL),
    "macos": (("/Users/", "Darwin", "macosx_", "homebrew"), _MAC),
    "rhel": ((".el", "Rocky", "CentOS", "Alma", "Red Hat", "RHEL", "Fedora", "dnf ", "yum "), _RED_HAT),
    "linux": (("/", ".so"), _LINUX),
}
"""Each system with words of which a line needs one before its pattern is tried."""

_VERSION = LazyRegex(
    r"(?i)\b(torch|pytorch|torchvision|transformers|accelerate|peft|trl|datasets|tokenizers|huggingface[_-]hub|vllm|triton|numpy|deepspeed"
    r"|sglang|axolotl|flash[_-]attn|xformers|bitsandbytes|llamafactory|unsloth|lightning)"
    r"(?: ?(?:==|=|:) ?v?| (?:API server |LLM engine )?(?:version:? )?\(?v?|-)(\d{1,4}(?:\.\d{1,4}){1,3})\b(?!%| ?(?:MB|GB|GiB|MiB|s\b))"
)


def detect_systems(summary: LogSummary) -> frozenset[str]:
    """``windows``, ``macos``, or ``linux`` with ``wsl``, ``rhel`` or ``debian``; empty where the log does not show it."""
    counts = dict.fromkeys(_SIGNS, 0)
    for text in _texts(summary):
        for name, (hints, pattern) in _SIGNS.items():
            counts[name] += any(hint in text for hint in hints) and bool(pattern.search(text))
    if counts["wsl"]:
        return frozenset(("linux", "wsl", "debian"))
    family = max(("linux", "windows", "macos"), key=lambda name: counts[name])
    if not counts[family]:
        return frozenset(("linux", "rhel")) if counts["rhel"] else frozenset()
    if family != "linux":
        return frozenset((family,))
    return frozenset(("linux", "rhel" if counts["rhel"] else "debian"))


def find_logged_versions(summary: LogSummary) -> dict[str, str]:
    """Versions that the log states, by import package; one that is stated twice differently is not known."""
    found: dict[str, set[str]] = {}
    for text in _texts(summary):
        for name, version in _VERSION.compiled.findall(text):
            package = name.lower().replace("-", "_").replace("pytorch", "torch")
            found.setdefault(package, set()).add(version)
    return {package: versions.pop() for package, versions in found.items() if len(versions) == 1}


def _texts(summary: LogSummary) -> Iterator[str]:
    return (text[:MAX_TEXT] for text in sample_lines([line.text for line in summary.lines if line.place != "derived"]))

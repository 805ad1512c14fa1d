"""What the path of a log says: its rank, and whether it is a log at all."""

from gpuready.logs.lazy_regex import LazyRegex

_RANK_PATTERNS = (
    LazyRegex(r"(?:^|/)attempt_\d{1,12}/(\d{1,6})/(?:stdout|stderr)\.log"),
    LazyRegex(r"(?:^|[^A-Za-z])(?:global_)?rank[_.=-]?(\d{1,6})(?:[^0-9]|$)", 2),
    LazyRegex(r"(?:^|/)[\w.-]{0,80}_dump_(\d{1,6})(?:\.\w+)?$"),
    LazyRegex(r"(?:^|/)(?:out|err|stdout|stderr|log|task|worker|trainer|proc)[_.-](\d{1,6})(?:\.\w{2,6}){0,2}$"),
    LazyRegex(r"(?:^|/)slurm-\d{1,12}[_.-](\d{1,6})\.(?:out|err)"),
    LazyRegex(r"(?:^|/)(\d{1,6})(?:\.(?:log|out|err|txt|stdout|stderr))(?:\.(?:gz|xz|bz2|zst))?$"),
    LazyRegex(r"(?:^|/)(\d{1,6})/(?:stdout|stderr)(?:\.log|\.txt)?$"),
)
_NOT_LOG_SUFFIXES = (
    ".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".npy", ".npz", ".parquet", ".arrow", ".so", ".whl", ".zip", ".tar", ".png", ".jpg",
    ".onnx", ".pyc", ".db", ".sqlite", ".h5", ".model", ".py", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".csv", ".md", ".html", ".sh",
)  # fmt: skip


def rank_from_path(name: str) -> int | None:
    """``attempt_0/3/stderr.log`` -> 3, ``rank_7.log`` -> 7, ``out-2`` -> 2."""
    path = name.replace("\\", "/")
    for pattern in _RANK_PATTERNS:
        if found := pattern.search(path):
            return int(found[1])
    return None


def may_be_log(name: str, head: bytes) -> bool:
    """Whether a file of a folder is worth reading: text, or compressed, and no weights or code."""
    if name.lower().endswith(_NOT_LOG_SUFFIXES) or (name.endswith((".json", ".jsonl")) and b"Traceback" not in head):
        return False
    if head[:4] in (b"\x28\xb5\x2f\xfd", b"\xfd7zX") or head[:2] == b"\x1f\x8b" or head[:3] == b"BZh":
        return True
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return True
    return head[:4] != b"\x7fELF" and head.count(0) <= len(head) // 8

"""Failures that a bare Python can show; the tests provoke these anew on every machine."""

from __future__ import annotations

from tests.induce.stage import Provoke

BASE = """
import logging, os, sys
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
log = logging.getLogger("prepare")
log.info("preparing the run")
"""


def bare(name: str, cause: str, decisive: str, source: str, **more: object) -> Provoke:
    settings = {"command": "python3 train.py", "room": "here", "deadline": 60, **more}
    return Provoke(name, cause, (decisive,), BASE + source, **settings)  # type: ignore[arg-type]


EVERYWHERE = (
    bare("bare-disk-full", "disk-full", r"OSError: \[Errno 28\] No space left on device", """
with open("/dev/full", "wb", buffering=0) as checkpoint:
    checkpoint.write(bytes(1 << 16))
"""),
    bare("bare-too-many-files", "too-many-open-files", r"OSError: \[Errno 24\] Too many open files", """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
shards = [open(__file__) for _ in range(64)]
"""),
    bare("bare-port-taken", "program-port-in-use", r"OSError: \[Errno 98\] Address already in use", """
import socket
first, second = socket.socket(), socket.socket()
first.bind(("127.0.0.1", 0))
first.listen()
second.bind(first.getsockname())
"""),
    bare("bare-missing-package", "missing-python-package", r"ModuleNotFoundError: No module named 'deepspeed_kernels_cpu'", """
import deepspeed_kernels_cpu
"""),
    bare("bare-flash-attn-missing", "flash-attn-missing", r"ModuleNotFoundError: No module named 'flash_attn'", """
from flash_attn import flash_attn_func
"""),
    bare("bare-no-launcher", "launcher-env-missing", r"KeyError: 'LOCAL_RANK'", """
local_rank = int(os.environ["LOCAL_RANK"])
"""),
    bare("bare-python-too-old", "python-version-unsupported", r"current Python version .* does not satisfy Python>=3\.99", "",
         command="uv pip install --offline --python $(command -v python3) --target there .",
         files={"pyproject.toml": '[project]\nname = "our-trainer"\nversion = "0.1"\nrequires-python = ">=3.99"\n'}),
    bare("bare-own-keyerror", "not-environment", r"KeyError: 'labels'", """
rows = [{"text": "a"}]
print([row["labels"] for row in rows])
"""),
    bare("bare-own-exit", "not-environment", r"no rows left after filtering", """
log.error("no rows left after filtering, check the path of the data")
sys.exit(2)
"""),
    bare("bare-healthy", "healthy", r"prepared 3 shards", """
try:
    import flash_attn
except ImportError:
    log.warning("flash_attn is not there, going on without it", exc_info=True)
log.info("prepared 3 shards")
""", ends="ok"),
)  # fmt: skip

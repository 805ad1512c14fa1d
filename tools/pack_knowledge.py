"""Write gpuready's tables as one dated knowledge file, for ``gpuready COMMAND --knowledge FILE``.

The tables are the compiled ones: run tools/compile_catalog.py first. The file is verified as its readers will do it,
and its SHA-256 is printed, for ``--knowledge FILE#sha256=HEX``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

from gpuready.workflow.knowledge import pack_knowledge, verify_knowledge  # noqa: E402


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-o", metavar="FILE", default="", help="where to; else gpuready-knowledge-DATE.json")
    args = parser.parse_args(words)
    packed = pack_knowledge()
    path = Path(args.o or f"gpuready-knowledge-{packed['date']}.json")
    text = json.dumps(packed, sort_keys=True, separators=(",", ":")) + "\n"
    verify_knowledge(text, str(path))
    path.write_text(text, encoding="utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    print(f"{path}: knowledge of {packed['date']}, {len(packed['parts'])} parts, {len(text):,} bytes, sha256={digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

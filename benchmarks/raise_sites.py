"""What does ``gpuready diagnose`` make of every message that a package can raise? Read from its source, none of it is run.

Each ``raise`` and ``assert`` with words becomes a traceback that ends in that file; formatted values are filled with plausible ones.
Nobody wrote down what the answers should be: the table counts the messages without an answer, and ``-v`` shows all to be read.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src")]

from gpuready.workflow.diagnose import diagnose_logs  # noqa: E402

VALUES = {
    "version": "2.1.0", "dtype": "torch.float16", "path": "/data/model", "dir": "/data/out", "file": "/data/a.json", "device": "cuda:0",
    "url": "http://10.0.0.1:8000", "port": "29500", "size": "16", "num": "8", "rank": "1", "shape": "(2, 4)", "module": "mesh_lib",
}  # fmt: skip
"""What stands for a formatted value, by a word of its expression."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="+", type=Path, help="import packages, as source trees or installed")
    parser.add_argument("--every", type=int, default=1, help="take each Nth message")
    parser.add_argument("-v", action="store_true", help="show every message and its answer")
    parser.add_argument("-o", "--output", type=Path, help="write the table")
    asked = parser.parse_args()
    table = {folder.name: score_package(folder, asked.every, asked.v) for folder in asked.folder}
    text = json.dumps(table, indent=1) + "\n"
    print(text, end="")
    if asked.output:
        asked.output.write_text(text)
    return 0


def score_package(folder: Path, every: int, verbose: bool) -> dict[str, int]:
    """How many messages there are, and how many get no cause, are the program's own, or a cause of the environment."""
    counts = {"messages": 0, "no cause found": 0, "not-environment": 0, "a cause of the environment": 0}
    for message, log in list(find_messages(folder).items())[::every]:
        found = diagnose_logs([[log.encode()]], look=False)
        name = found.cause or found.verdict
        counts["messages"] += 1
        kind = {"unknown": "no cause found"}.get(name, name)
        counts[kind if kind in counts else "a cause of the environment"] += 1
        if verbose:
            print(f"{name:26} {found.confidence:.2f} {message[:200]}")
    return counts


def find_messages(folder: Path) -> dict[str, str]:
    """Every message with its type, and the traceback that shows it; each once."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder.parent)
        if any(part.startswith("test") for part in place.parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        for line, kind, words, code in find_raises(tree):
            log = (
                f'Traceback (most recent call last):\n  File "/opt/venv/bin/{folder.name}", line 8, in <module>\n    sys.exit(main())\n'
                f'  File "/opt/venv/lib/python3.12/site-packages/{place}", line {line}, in check\n    {code}\n{kind}: {words}\n'
            )
            found.setdefault(f"{kind}: {' '.join(words.split())}", log)
    return found


def find_raises(tree: ast.AST) -> Iterator[tuple[int, str, str, str]]:
    """Line, type, message and code of each raise and assert whose words can be read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            kind, words = ast.unparse(node.exc.func), read_words(node.exc.args[0])
            if words.strip() and kind.endswith(("Error", "Exception")):
                yield node.lineno, kind.rpartition(".")[2], words.strip(), f"raise {kind}("
        elif isinstance(node, ast.Assert) and node.msg is not None and (words := read_words(node.msg)).strip():
            yield node.lineno, "AssertionError", words.strip(), f"assert {ast.unparse(node.test)[:120]}"


def read_words(node: ast.expr) -> str:
    """The text of an expression, with values filled in; empty where it has none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(read_words(value) or fill_value(ast.unparse(value)) for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return read_words(node.left) + read_words(node.right)
    return ""


def fill_value(expression: str) -> str:
    low = expression.lower()
    return next((value for word, value in VALUES.items() if word in low), "mesh")


if __name__ == "__main__":
    sys.exit(main())

"""How much of installation pages that it has never seen does ``gpuready contract import`` keep?

The exam (benchmarks/exams/pages-*.json) has the address, the hash and the true statements of each page; the texts stay in their
repositories and are read from a folder (ID.md or ID.rst). A statement is *placed* as the row of a contract, *kept* in another row or
among the unplaced lines, or *lost*. A lost line is one of the page whose words are nowhere in the answer.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src")]

from gpuready.contracts.page import import_page  # noqa: E402
from gpuready.contracts.page_layout import strip_markup  # noqa: E402
from gpuready.model import Contract  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("exam", type=Path, help="the frozen exam, JSON")
    parser.add_argument("texts", type=Path, help="a folder with the pages, each under its id")
    parser.add_argument("-o", "--output", type=Path, help="write the score and the misses")
    asked = parser.parse_args()
    exam = json.loads(asked.exam.read_text())
    pages = [score_page(page, next(asked.texts.glob(f"{page['id']}.*"))) for page in exam["pages"]]
    score = {"exam": asked.exam.name, "all": sum_up(pages)}
    score |= {part: sum_up([p for p in pages if p["part"] == part]) for part in ("seen", "held")}
    text = json.dumps(score | {"pages": pages}, indent=1, ensure_ascii=False) + "\n"
    print(text, end="")
    if asked.output:
        asked.output.write_text(text)
    return 0


def sum_up(pages: list[dict[str, Any]]) -> dict[str, Any]:
    counted = ("statements", "placed", "kept", "lost", "lost_lines")
    totals: dict[str, Any] = {key: sum(page[key] for page in pages) for key in counted}
    return totals | {"pages": len(pages), "frameworks_right": sum(page["framework_right"] for page in pages)}


def score_page(page: dict[str, Any], path: Path) -> dict[str, Any]:
    """Import one page and compare the answer with its true statements."""
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != page["sha256"]:
        raise SystemExit(f"{path} is not the page of the exam: take {page['address']}")
    contract, unplaced, refusal = import_or_refuse(data.decode(), path.name)
    words = json.dumps(contract.to_json(), ensure_ascii=False) + "\n".join(text for _, text in unplaced)
    answer = squeeze(words)
    results = {truth: judge_statement(truth, contract, answer) for truth in page["truth"]}
    lost_lines = [n for n, line in content_lines(data.decode()) if not is_kept(line, answer)]
    return {
        "id": page["id"],
        "part": page["part"],
        "framework": contract.framework,
        "framework_right": contract.framework in page["framework"],
        "statements": len(results),
        **{word: sum(result == word for result in results.values()) for word in ("placed", "kept", "lost")},
        "not_placed": [t for t, result in results.items() if result == "kept" and not t.startswith("kept ")],
        "lost_statements": [truth for truth, result in results.items() if result == "lost"],
        "lost_lines": len(lost_lines),
        "first_lost_lines": lost_lines[:10],
        "refused": refusal,
    }


def import_or_refuse(text: str, name: str) -> tuple[Contract, list[tuple[int, str]], str]:
    try:
        return *import_page(text, name), ""
    except ValueError as error:
        return Contract("", "0"), [], str(error)


def content_lines(text: str) -> list[tuple[int, str]]:
    """The lines with words of their own: neither blank, nor a heading, a fence, a table's head, an image or markup."""
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        below = lines[number].strip() if number < len(lines) else ""
        is_head = bool(below) and set(below) <= set("|-: =~^\"'`#*+") and len(below) > 2
        is_markup = re.match(r"\s*(?:#{1,6} |```|````|:\w+:|\.\. |[|:=~\-]+$|<[^>]*>$|\[?!\[|</?\w)", line)
        if len(squeeze(strip_markup(line))) > 3 and not is_head and not is_markup:
            found.append((number, line))
    return found


def is_kept(line: str, answer: str) -> bool:
    """Whether the words of a line are in the answer, with or without the addresses of its links; a number of a list is no word."""
    words = re.sub(r"^\s*(?:[>*-]\s+)*(?:\d{1,3}[.)]\s+)?", "", line)
    return squeeze(words) in answer or squeeze(strip_markup(words)) in answer


def squeeze(text: str) -> str:
    """Letters and digits alone: quotes, dashes and spacing may differ."""
    return re.sub(r"[\W_]+", "", text.replace("\\n", " ").replace('\\"', "")).casefold()


def judge_statement(truth: str, contract: Contract, answer: str) -> str:
    """Say whether a statement is placed, kept or lost."""
    kind, _, rest = truth.partition(" ")
    if kind == "kept":
        return "kept" if squeeze(rest) in answer else "lost"
    words = rest.split(" ")
    if (is_need_placed if kind == "need" else is_variable_placed)(words, contract):
        return "placed"
    name = words[0].partition(".")[2] if words[0].startswith("package.") else "" if kind == "need" else words[0]
    number = re.sub(r"[^\w.]", "", words[1].partition(",")[0]) if len(words) > 1 else ""
    return "kept" if squeeze(name) in answer and squeeze(number) in answer else "lost"


def is_need_placed(words: list[str], contract: Contract) -> bool:
    key, want, *rest = words
    level, when = (rest[0] if rest else ""), (rest[1] if len(rest) > 1 else "")
    rows = [n for n in contract.needs if n.key == key and when in n.when and level in (n.level, "")]
    return any(n.want == want or (want[0].isdigit() and want in n.want) for n in rows)


def is_variable_placed(words: list[str], contract: Contract) -> bool:
    value = words[1] if len(words) > 1 else None
    return any(v.name == words[0] and value in (None, v.value) for v in contract.variables)


if __name__ == "__main__":
    sys.exit(main())

"""Import environment pages as contracts: place every row, package, variable, error and step, or list it as unplaced.

A page is read by its layout and words (headings, tables, bullets, code), never by which page it is. Each imported
row cites its line, so that nothing is lost where the text says more than a need can.
"""

from __future__ import annotations

import re

import gpuready.contracts.page_rows as rows
import gpuready.contracts.phrases as phrases
from gpuready.contracts.layout import blocks, is_content, is_furniture
from gpuready.model import Capability, Contract, KnownError, Need, Step, Variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuready.contracts.layout import Block
    from gpuready.model import Noun

LARGEST = 1 << 20
LONGEST = 8000
MOST_CELLS = 100
LONGEST_CITE = 2000
LOOKS = (
    "an environment page has a title and sections such as System Requirements, Dependencies or Credentials"
)
TOPICS = (
    "cuda|gpu|nvidia|python|pytorch|distributed|environment|runtime|docker|training|rocm|multi|kubernetes"
)


def import_page(text: str, name: str) -> tuple[Contract, list[tuple[int, str]]]:
    """Return the contract that a page describes, and the numbered lines that could not be placed."""
    if len(text) > LARGEST:
        raise ValueError(f"{name} is larger than 1 MiB, which no environment page is")
    if any(len(line) > LONGEST for line in text.splitlines()):
        raise ValueError(
            f"{name} has a line of more than {LONGEST} characters, which no environment page has"
        )
    _readable(text, name)
    found = blocks(re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text.replace("\r\n", "\n").replace("\r", "\n")))
    if any(b.kind == "row" and (len(b.text) > LONGEST or len(b.cells) > MOST_CELLS) for b in found):
        raise ValueError(
            f"{name} has a row of more than {LONGEST} characters or {MOST_CELLS} cells, which no environment page has"
        )
    if not any(b.kind == "heading" and is_content(b.section) for b in found):
        raise ValueError(f"{name} is not an environment page, it has no section of one: {LOOKS}")
    titles = [b.text for b in found if b.kind == "title"]
    dates = re.findall(
        r"\b(20\d\d-\d\d-\d\d)\b", " ".join(b.text for b in found if b.kind in ("head", "chrome"))
    )
    framework = _framework(titles[0] if titles else _stem(name))
    page = _Page(f"environment page ({framework}{', ' + dates[0] if dates else ''})", _site(found))
    for block in found:
        page.place(block)
    return page.contract(
        framework, dates[0] if dates else "", titles[0] if titles else _stem(name)
    ), page.unplaced


def _readable(text: str, name: str) -> None:
    """Reject what is not text: non-UTF-8 bytes arrive as four-character escapes."""
    if not text.strip():
        raise ValueError(f"{name} is empty: {LOOKS}")
    unseen = len(re.findall(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]", text))
    escaped = 4 * len(re.findall(r"\\x[0-9a-f]{2}", text))
    if "\0" in text or 100 * unseen > len(text) or 4 * escaped > len(text):
        raise ValueError(f"{name} is not text, it holds bytes of another kind of file: {LOOKS}")


def _site(found: Iterable[Block]) -> str:
    """Return the name of the site that a page was copied from, as in its banners (``From NAME``)."""
    heads = (b.text for b in found if b.kind == "head" and not b.section)
    return next((text.removeprefix("From ") for text in heads if text.startswith("From ")), "")


def _framework(title: str) -> str:
    """Parse ``Environment:Org Name CUDA GPU`` -> ``name``: the last word before the first topic word."""
    words = re.findall(
        r"[A-Za-z][A-Za-z0-9.-]*", title.partition(":")[2].replace("_", " ") or title.replace("_", " ")
    )
    topic = next((i for i, w in enumerate(words) if re.fullmatch(TOPICS, w, re.I)), len(words))
    return (words[topic - 1] if topic else words[0] if words else "page").lower()


def _stem(name: str) -> str:
    return re.sub(r"\.\w{1,5}$", "", re.split(r"[/\\]", name)[-1])


class _Page:
    """The tables of a contract while its page is imported."""

    def __init__(self, origin: str, site: str = ""):
        self.origin, self.site = origin, site
        self.needs: list[Need] = []
        self.capabilities: list[Capability] = []
        self.variables: list[Variable] = []
        self.errors: list[KnownError] = []
        self.steps: list[Step] = []
        self.notes: list[list[str]] = []
        self.spoken: list[Variable] = []
        self.unplaced: list[tuple[int, str]] = []

    def place(self, block: Block) -> None:
        """Place one block by its section; list it as unplaced where nothing takes it."""
        if block.kind in ("title", "heading") or self._around(block):
            return
        if not is_content(block.section):
            self.unplaced.append((block.line, block.text))
            return
        taken = self._by_section(block)(block)
        if not taken:
            self.unplaced.append((block.line, block.text))
        self.capabilities += (
            phrases.capabilities(block.text, self._cite(block)) if block.kind != "code" else []
        )

    def _around(self, block: Block) -> bool:
        """Return whether a block is the site's own text; before the first heading it must look like that."""
        if block.section:
            return block.kind in ("head", "chrome")
        banner = block.kind == "chrome" and self.site and self.site in block.text
        return bool(banner or (block.kind != "code" and is_furniture(block.text)))

    def _by_section(self, block: Block) -> Callable[[Block], bool]:
        section = block.section.casefold()
        if block.kind == "item":
            return self._item
        for words, handler in (
            ("error|troubleshoot", self._error),
            ("credential|variable", self._variable),
            ("install|setup", self._install),
            ("evidence", self._evidence),
            ("compatib", self._compatibility),
            ("package|dependenc|optional|inherit|additional", self._dependency),
            ("requirement|hardware", self._requirement),
        ):
            if re.search(words, section):
                return handler
        return self._prose

    def _cite(self, block: Block) -> str:
        words = " ".join(block.text[:LONGEST_CITE].split())
        return f"{self.origin}, {block.section.casefold()}, line {block.line}: {words}"

    # -- sections -----------------------------------------------------------------------------------

    def _requirement(self, block: Block) -> bool:
        if block.kind == "text":
            return self._prose(block)
        return self._add(self.needs, rows.requirement(block, self._cite(block)))

    def _dependency(self, block: Block) -> bool:
        if block.kind == "text":
            return self._prose(block)
        level = "optional" if "optional" in block.section.casefold() else "required"
        return self._add(self.needs, rows.dependency(block, level, self._cite(block)))

    def _variable(self, block: Block) -> bool:
        if block.kind == "text":
            return self._prose(block)
        return self._add(self.variables, rows.variable(block, self._cite(block)))

    def _error(self, block: Block) -> bool:
        if block.kind == "text":
            return self._prose(block)
        return self._add(self.errors, rows.error(block, self._cite(block)))

    def _install(self, block: Block) -> bool:
        if block.kind != "code":
            return self._prose(block)
        return self._add(self.steps, rows.commands(block, self.origin))

    def _evidence(self, block: Block) -> bool:
        if block.kind != "code" or not self.notes:
            return self._prose(block)
        self.notes[-1].append(block.text)
        self._add(self.variables, rows.mentioned(block, self._cite(block)))
        return True

    def _compatibility(self, block: Block) -> bool:
        self._add(self.needs, rows.compatibility(block, self._cite(block)))
        return self._prose(block)

    def _item(self, block: Block) -> bool:
        self.steps.append(
            Step(block.text, note=f"{self.origin}, {block.section.casefold()}, line {block.line}")
        )
        return True

    def _prose(self, block: Block) -> bool:
        self.notes.append([block.text])
        self.variables += rows.mentioned(block, self._cite(block))
        self.spoken += rows.spoken_of(block, self._cite(block))
        return True

    def _add(self, table: list[Any], found: Iterable[Noun]) -> bool:
        before = len(table)
        table.extend(found)
        return len(table) > before

    def _only_spoken(self) -> list[Variable]:
        told = {variable.name for variable in self.variables}
        return [variable for variable in self.spoken if variable.name not in told]

    # -- the contract --------------------------------------------------------------------------------------

    def contract(self, framework: str, date: str, title: str) -> Contract:
        digits = [str(int(part)) for part in date.split("-") if part]
        notes = ["\n".join(note) for note in self.notes]
        whole = " ".join([*notes, *dict.fromkeys(n.cite for n in self.needs)])
        cuda = re.search(r"\bcuda\b|\bnvidia\b", whole, re.I)
        first = [Capability("cuda", "required", cite=f"{self.origin}, overview")] if cuda else []
        if re.search(r"\bnccl\b", whole, re.I):
            first.append(Capability("collectives", when="gpus>1", cite=f"{self.origin}, NCCL"))
        return Contract(
            framework=framework,
            version=".".join(digits) or "0",
            variant="page",
            distribution=framework,
            title=title,
            origin=self.origin,
            platforms=_platforms(f"{title} {whole} {' '.join(c.cite for c in self.capabilities)}"),
            needs=_once(self.needs, "key", "want", "when"),
            capabilities=_once([*first, *self.capabilities], "name"),
            variables=_once([*self.variables, *self._only_spoken()], "name", "when"),
            errors=tuple(self.errors),
            steps=tuple(self.steps),
            notes=tuple(notes),
        )


def _platforms(words: str) -> tuple[str, ...]:
    """Return the platform that a page names, as a tuple; empty where it names none."""
    named = (("cuda", "cuda|nvidia"), ("rocm", "rocm"), ("npu", "npu|ascend"), ("tpu", "tpu"))
    spoken = (platform for platform, names in named if re.search(rf"(?<![A-Za-z])(?:{names})", words, re.I))
    return tuple(spoken)[:1]


def _once(table: Iterable[Any], *fields: str) -> tuple[Any, ...]:
    """Merge rows with equal fields; the first one stays, and cites the others as well."""
    firsts: dict[tuple[object, ...], Any] = {}
    cites: dict[tuple[object, ...], dict[str, None]] = {}
    for row in table:
        subject = tuple(getattr(row, f) for f in fields)
        firsts.setdefault(subject, row)
        cites.setdefault(subject, {})[row.cite] = None
    return tuple(row.but(cite="; ".join(cites[subject])) for subject, row in firsts.items())

"""Import environment pages as contracts: place every row, package, variable, error and step, or list it as unplaced.

A page is read by its layout and words (headings, tables, bullets, code), never by which page it is. Each imported
row cites its line, so that nothing is lost where the text says more than a need can.
"""

from __future__ import annotations

import json
import re

import gpuready.contracts.page_rows as rows
import gpuready.contracts.phrases as phrases
from gpuready.contracts.page_commands import find_command_needs, find_command_variables, is_command_text
from gpuready.contracts.page_layout import is_content_heading, is_site_furniture, parse_blocks
from gpuready.contracts.page_markup import normalize_markup
from gpuready.contracts.page_name import name_framework
from gpuready.contracts.toml import TABLES
from gpuready.contracts.validate import find_problems
from gpuready.model import Capability, Contract, ContractVariable, FixStep, KnownError, Requirement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuready.contracts.page_layout import PageBlock
    from gpuready.model import Record

MAX_PAGE_CHARS = 1 << 20
MAX_LINE_LENGTH = 8000
MAX_CELLS = 100
MAX_CITE_LENGTH = 2000
PAGE_DESCRIPTION = (
    "an environment page has a title and sections such as System Requirements, Dependencies or Credentials"
)


def import_page(text: str, name: str) -> tuple[Contract, list[tuple[int, str]]]:
    """Return the contract that a page describes, and the numbered lines that could not be placed."""
    if len(text) > MAX_PAGE_CHARS:
        raise ValueError(f"{name} is larger than 1 MiB, which no environment page is")
    if any(len(line) > MAX_LINE_LENGTH for line in text.splitlines()):
        raise ValueError(f"{name} has a line of more than {MAX_LINE_LENGTH} characters, which no environment page has")
    _check_is_text(text, name)
    page_blocks = parse_blocks(normalize_markup(_plain_lines(text)))
    if any(b.kind == "row" and (len(b.text) > MAX_LINE_LENGTH or len(b.cells) > MAX_CELLS) for b in page_blocks):
        raise ValueError(
            f"{name} has a row of more than {MAX_LINE_LENGTH} characters or {MAX_CELLS} cells, which no environment page has"
        )
    if not any(b.kind == "heading" and is_content_heading(b.section) for b in page_blocks):
        raise ValueError(f"{name} is not an environment page, it has no section of one: {PAGE_DESCRIPTION}")
    titles = [b.text for b in page_blocks if b.kind == "title"]
    dates = re.findall(r"\b(20\d\d-\d\d-\d\d)\b", " ".join(b.text for b in page_blocks if b.kind in ("head", "chrome")))
    title = titles[0] if titles else _file_stem(name)
    framework = name_framework(title, [b.text for b in page_blocks if b.kind == "code"], _file_stem(name))
    page = _PageImport(f"environment page ({framework}{', ' + dates[0] if dates else ''})", _site_name(page_blocks))
    for block in page_blocks:
        page.place_block(block)
    return page.build_contract(framework, dates[0] if dates else "", title), sorted(page.unplaced)


def _plain_lines(text: str) -> str:
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text.replace("\r\n", "\n").replace("\r", "\n"))


def _check_is_text(text: str, name: str) -> None:
    """Reject what is not text: non-UTF-8 bytes arrive as four-character escapes."""
    if not text.strip():
        raise ValueError(f"{name} is empty: {PAGE_DESCRIPTION}")
    unseen = len(re.findall(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]", text))
    escaped = 4 * len(re.findall(r"\\x[0-9a-f]{2}", text))
    if "\0" in text or 100 * unseen > len(text) or 4 * escaped > len(text):
        raise ValueError(f"{name} is not text, it holds bytes of another kind of file: {PAGE_DESCRIPTION}")


def _site_name(page_blocks: Iterable[PageBlock]) -> str:
    """Return the name of the site that a page was copied from, as in its banners (``From NAME``)."""
    heads = (b.text for b in page_blocks if b.kind == "head" and not b.section)
    return next((text.removeprefix("From ") for text in heads if text.startswith("From ")), "")


def _file_stem(name: str) -> str:
    return re.sub(r"\.\w{1,5}$", "", re.split(r"[/\\]", name)[-1])


class _PageImport:
    """The tables of a contract while its page is imported."""

    def __init__(self, origin: str, site: str = ""):
        self.origin, self.site = origin, site
        self.needs: list[Requirement] = []
        self.capabilities: list[Capability] = []
        self.variables: list[ContractVariable] = []
        self.errors: list[KnownError] = []
        self.steps: list[FixStep] = []
        self.notes: list[list[str]] = []
        self.named_variables: list[ContractVariable] = []
        self.unplaced: list[tuple[int, str]] = []

    def place_block(self, block: PageBlock) -> None:
        """Place one block by its section; list it as unplaced where nothing takes it."""
        if block.kind in ("title", "heading") or self._is_site_text(block):
            return
        if block.kind == "code" and "evidence" not in block.section.casefold():
            stated, block = rows.split_requirement_lines(block, self._cite_block(block))
            self.needs += stated
            if not block.text.strip():
                return
            self.needs += find_command_needs(block.text, self._cite_block(block))
            self.variables += find_command_variables(block.text, self._cite_block(block))
        if not is_content_heading(block.section):
            self.unplaced.append((block.line, block.text))
            return
        is_placed = self._section_handler(block)(block)
        if not is_placed:
            self.unplaced.append((block.line, block.text))
        if block.kind != "code":
            self._add_mentions(block)

    def _add_mentions(self, block: PageBlock) -> None:
        """Add what words mention in passing, wherever they stand: features, and variables."""
        cite = self._cite_block(block)
        self.capabilities += phrases.find_capabilities(block.text, cite)
        self.variables += [*rows.variables_with_values(block, cite), *find_command_variables(block.text, cite)]
        self.named_variables += rows.variables_without_values(block, cite)

    def _is_site_text(self, block: PageBlock) -> bool:
        """Return whether a block is the site's own text; before the first heading it must look like that."""
        if block.section:
            return block.kind in ("head", "chrome")
        banner = block.kind == "chrome" and self.site and self.site in block.text
        return bool(banner or (block.kind != "code" and is_site_furniture(block.text)))

    def _section_handler(self, block: PageBlock) -> Callable[[PageBlock], bool]:
        if block.kind == "item":
            return self._place_item
        own = block.section.casefold().rpartition(": ")[2]
        handler = self._find_handler(own) or self._find_handler(block.section.casefold()) or self._place_prose
        is_table = handler in (self._place_requirement, self._place_dependency)
        return self._place_install if block.kind == "code" and is_table else handler

    def _find_handler(self, section: str) -> Callable[[PageBlock], bool] | None:
        for words, handler in (
            ("error|troubleshoot", self._place_error),
            ("credential|variable", self._place_variable),
            ("install|setup", self._place_install),
            ("evidence", self._place_evidence),
            ("compatib", self._place_compatibility),
            ("package|dependenc|optional|inherit|additional", self._place_dependency),
            ("requirement|hardware|software|pre-?requisite|environment", self._place_requirement),
            ("docker|container", self._place_install),
        ):
            if re.search(words, section):
                return handler
        return None

    def _cite_block(self, block: PageBlock) -> str:
        words = " ".join(block.text[:MAX_CITE_LENGTH].split())
        return f"{self.origin}, {block.section.casefold()}, line {block.line}: {words}"

    # -- sections -----------------------------------------------------------------------------------

    def _place_requirement(self, block: PageBlock) -> bool:
        if block.kind == "text":
            return self._place_prose(block)
        return self._add_rows(self.needs, rows.parse_requirement_row(block, self._cite_block(block)))

    def _place_dependency(self, block: PageBlock) -> bool:
        if block.kind == "text":
            return self._place_prose(block)
        level = "optional" if "optional" in block.section.casefold() else "required"
        return self._add_rows(self.needs, rows.parse_dependency_row(block, level, self._cite_block(block)))

    def _place_variable(self, block: PageBlock) -> bool:
        if block.kind == "text":
            return self._place_prose(block)
        return self._add_rows(self.variables, rows.parse_variable_row(block, self._cite_block(block)))

    def _place_error(self, block: PageBlock) -> bool:
        if block.kind == "text":
            return self._place_prose(block)
        return self._add_rows(self.errors, rows.parse_error_row(block, self._cite_block(block)))

    def _place_install(self, block: PageBlock) -> bool:
        if block.kind != "code":
            return self._place_prose(block)
        found = rows.parse_commands(block, self.origin) if is_command_text(block.text) else ()
        return self._add_rows(self.steps, found)

    def _place_evidence(self, block: PageBlock) -> bool:
        if block.kind != "code" or not self.notes:
            return self._place_prose(block)
        self.notes[-1].append(block.text)
        self._add_rows(self.variables, rows.variables_with_values(block, self._cite_block(block)))
        return True

    def _place_compatibility(self, block: PageBlock) -> bool:
        self._add_rows(self.needs, rows.parse_compatibility_note(block, self._cite_block(block)))
        return self._place_prose(block)

    def _place_item(self, block: PageBlock) -> bool:
        self.steps.append(FixStep(block.text, note=f"{self.origin}, {block.section.casefold()}, line {block.line}"))
        return True

    def _place_prose(self, block: PageBlock) -> bool:
        self.notes.append([block.text])
        self.needs += phrases.find_stated_minimums(block.text, self._cite_block(block))
        self.needs += phrases.find_package_advice(block.text, self._cite_block(block))
        return True

    def _add_rows(self, table: list[Any], rows_found: Iterable[Record]) -> bool:
        before = len(table)
        table.extend(rows_found)
        return len(table) > before

    def _named_only_variables(self) -> list[ContractVariable]:
        known = {variable.name for variable in self.variables}
        return [variable for variable in self.named_variables if variable.name not in known]

    # -- the contract --------------------------------------------------------------------------------------

    def _drop_unsound_rows(self) -> None:
        """Move rows that no contract may have, such as a step with signs of a shell, to the unplaced lines."""
        for table in TABLES:
            rows_found = getattr(self, table)
            unsound = [bool(find_problems(_single_row(table, row), "")) for row in rows_found]
            setattr(self, table, [row for row, bad in zip(rows_found, unsound, strict=True) if not bad])
            texts = [
                json.dumps(row.to_json(), ensure_ascii=False)
                for row, bad in zip(rows_found, unsound, strict=True)
                if bad
            ]
            self.unplaced += [(_cited_line(text), text) for text in texts]

    def build_contract(self, framework: str, date: str, title: str) -> Contract:
        self._drop_unsound_rows()
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
            platforms=_find_platform(f"{title} {whole} {' '.join(c.cite for c in self.capabilities)}"),
            needs=_merge_duplicates(self.needs, "key", "want", "when"),
            capabilities=_merge_duplicates([*first, *self.capabilities], "name"),
            variables=_merge_duplicates([*self.variables, *self._named_only_variables()], "name", "when"),
            errors=tuple(self.errors),
            steps=tuple(self.steps),
            notes=tuple(notes),
        )


def _single_row(table: str, row: Record) -> dict[str, Any]:
    fields: dict[str, Any] = row.to_json()
    return {"framework": "page", "version": "0", table: [fields]}


def _cited_line(text: str) -> int:
    """Return the line that a row cites: ``..., line 12: words``."""
    found = re.search(r", line (\d+)", text)
    return int(found[1]) if found else 0


def _find_platform(words: str) -> tuple[str, ...]:
    """Return the platform that a page names, as a tuple; empty where it names none."""
    patterns = (("cuda", "cuda|nvidia"), ("rocm", "rocm"), ("npu", "npu|ascend"), ("tpu", "tpu"))
    mentioned = (platform for platform, names in patterns if re.search(rf"(?<![A-Za-z])(?:{names})", words, re.I))
    return tuple(mentioned)[:1]


def _merge_duplicates(table: Iterable[Any], *fields: str) -> tuple[Any, ...]:
    """Merge rows with equal fields; the first one stays, and cites the others as well."""
    firsts: dict[tuple[object, ...], Any] = {}
    cites: dict[tuple[object, ...], dict[str, None]] = {}
    for row in table:
        subject = tuple(getattr(row, f) for f in fields)
        firsts.setdefault(subject, row)
        cites.setdefault(subject, {})[row.cite] = None
    return tuple(row.replace(cite="; ".join(cites[subject])) for subject, row in firsts.items())

"""Parse the layout of an environment page: plain text, wiki markup or Markdown as blocks under headings.

Plain text is what a browser copies: headings stand alone between blank lines, tables have lost their cell
borders, bullets are dots. The meaning of a block is up to page.py.
"""

from __future__ import annotations

import re

from gpuready.model.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SITE_HEADINGS = (
    "related page",
    "page connection",
    "see also",
    "navigation",
    "categor",
    "further reading",
    "external link",
)
CONTENT_HEADINGS = (
    "overview", "description", "usage", "requirement", "dependenc", "package", "credential", "variable",
    "install", "evidence", "error", "compatib", "basis", "step", "optional", "inherit", "note",
    "troubleshoot", "hardware", "software", "prerequisite", "pre-requisite", "environment", "docker", "container",
    "getting started", "quick start", "quickstart", "faq", "setup", "set up", "setting up",
)  # fmt: skip
TABLE_COLUMNS = (
    "requirement", "value", "notes", "note", "category", "package", "version", "constraint", "source",
    "variable", "required", "description", "error", "message", "cause", "solution", "fix", "name", "purpose",
    "default", "component", "minimum", "recommended", "type", "environment", "setting", "specification",
    "details",
)  # fmt: skip
"""Words that head table columns; a line of nothing else is a table head."""

_TITLE = r"(?:#\s*)?(Environment|Principle|Implementation|Heuristic|Workflow)\s*:\s*(\S.*)"
_FURNITURE = r"(?:Jump to|From|Knowledge Sources|Domains|Last Updated|Contents|Toggle|Main Page)\b|__[A-Z]+__$"
_LINK = r"\[\[(?:[^\[\]|]{0,300}::)?(?:[^\[\]|]{0,300}\|)?([^\[\]|]{0,300})(?:\|[^\[\]]{0,300})?\]\]"
_STATEMENT = r"(?:try|else|finally|if|for|while|with|def|class|elif|except|async|return|import|from)\b.*|@.*|[)\]}].*"


class PageBlock(Record):
    """A piece of a page: title, heading, row, bullet, item, code, text or chrome."""

    kind: str
    section: str
    line: int
    text: str = ""
    cells: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


def is_content_heading(section: str) -> bool:
    """Return whether a heading is one of an environment page's content sections."""
    return _contains_any(section, CONTENT_HEADINGS)


def is_site_furniture(text: str) -> bool:
    """Return whether a line is one that a site puts above a page: sources, domains, date of the last change."""
    return not re.search(r"\w", text) or re.match(_FURNITURE, text) is not None


def parse_blocks(text: str) -> list[PageBlock]:
    """Return the page's blocks in order; every line that is not blank is in exactly one."""
    return list(_PageReader(text.splitlines()).read_blocks())


def strip_markup(text: str) -> str:
    """Remove wiki and Markdown markup; backquotes stay, they mark names and commands."""
    text = re.sub(_LINK, r"\1", text)
    text = re.sub(r"\[([^\[\]]{1,300})\]\([^()]{0,300}\)", r"\1", text)
    return re.sub(r"'''|''|\*\*|</?[a-zA-Z][^<>]{0,80}>", "", text).strip()


class _PageReader:
    """One pass over the lines; the state is the position and the current heading."""

    def __init__(self, lines: list[str]):
        self.lines, self.at = lines, 0
        self.section, self.ended, self.titled = "", False, False
        self.parents: list[tuple[int, str]] = []
        self.is_marked = any(line.startswith("## ") for line in lines)
        self.is_fenced = any(line.lstrip().startswith("```") for line in lines)

    def read_blocks(self) -> Iterator[PageBlock]:
        while self.at < len(self.lines):
            line = self.lines[self.at].strip()
            if not line:
                self.at += 1
            elif self._opens_code(line):
                yield from self._read_fenced_code()
            elif line.startswith("{|"):
                yield from self._read_wiki_table()
            elif self._heading_text(line) is not None:
                yield self._enter_section(self._heading_text(line) or "", line)
            elif not (self.titled or re.fullmatch(_TITLE, line)) and (match := re.fullmatch(r"#\s+(\S.*)", line)):
                yield self._enter_page(strip_markup(match[1]))
            elif self.ended or not (self.titled or re.fullmatch(_TITLE, line)):
                yield self._take_line("chrome", line)
            else:
                yield from self._read_content(line)

    def _read_content(self, line: str) -> Iterator[PageBlock]:
        section = self.section.casefold()
        if re.fullmatch(_TITLE, line) and not self.titled:
            self.titled = True
            yield self._take_line("title", strip_markup(line.lstrip("# ")))
        elif not self.section:
            yield self._take_line("head", strip_markup(line))
        elif match := re.match(r"[•*·‣-]\s+(.*)", line):
            yield self._take_line("bullet", strip_markup(match[1]))
        elif match := re.match(r"\d{1,3}[.)]\s+(.*)", line):
            yield self._take_line("item", strip_markup(match[1]))
        elif line.startswith("|"):
            yield from self._read_pipe_table()
        elif not self.is_fenced and re.search("install|evidence", section) and not self._starts_evidence(line):
            yield from self._read_loose_code()
        elif _parse_column_heads(line) and self._next_line():
            yield from self._read_loose_table(_parse_column_heads(line))
        else:
            yield self._take_line("text", strip_markup(line))

    # -- one line -------------------------------------------------------------------------------------

    def _take_line(self, kind: str, text: str, **more: tuple[str, ...]) -> PageBlock:
        self.at += 1
        return PageBlock(kind, self.section, self.at, text, **more)

    def _next_line(self) -> str:
        return self.lines[self.at + 1].strip() if self.at + 1 < len(self.lines) else ""

    def _heading_text(self, line: str) -> str | None:
        """Return the text of a heading, or None: marked as one, or short and alone between blank lines."""
        if marked := _marked_heading(line.strip()):
            return marked
        # Where code is fenced, a line such as "# Prerequisites" after the title is no comment.
        if self.titled and self.is_fenced and (match := re.fullmatch(r"#\s+(\S.*)", line)):
            return match[1]
        alone = not self._next_line() and (self.at == 0 or not self.lines[self.at - 1].strip())
        raw = self.lines[self.at]
        if not self.titled or not alone or raw[:1].isspace() or len(line) > 60:
            return None
        if self.is_marked:
            return None
        titled = re.fullmatch(r"[A-Z][\w()/&' -]*", line) and _contains_any(line, CONTENT_HEADINGS + SITE_HEADINGS)
        under_chrome = self.ended and re.fullmatch(r"[A-Z][\w ]*", line)
        return line if titled or under_chrome else None

    def _enter_page(self, title: str) -> PageBlock:
        """Begin a Markdown page by its title, which is a section where it names one: ``# Installation``."""
        self.titled = True
        block = self._take_line("title", title)
        self.section = title if is_content_heading(title) else ""
        return block

    def _enter_section(self, heading: str, line: str) -> PageBlock:
        if _contains_any(heading, SITE_HEADINGS):
            self.ended = True
        elif _contains_any(heading, CONTENT_HEADINGS):
            self.ended = False
        self.titled, self.section = True, self._section_in_parents(strip_markup(heading), line)
        return self._take_line("chrome" if self.ended else "heading", self.section)

    def _section_in_parents(self, heading: str, line: str) -> str:
        """Return ``System Requirements: Software`` for a heading that says little without the one above it."""
        level = len(line) - len(line.lstrip(line[:1])) if line[:1] in "=#" else 2
        self.parents = [one for one in self.parents if one[0] < level]
        parent = next((text for _, text in reversed(self.parents) if is_content_heading(text)), "")
        self.parents.append((level, heading))
        return f"{parent}: {heading}" if parent and not is_content_heading(heading) else heading

    def _starts_evidence(self, line: str) -> bool:
        """Return whether a line is a caption in an evidence section: it ends the code before it."""
        return "evidence" in self.section.casefold() and self._is_caption(line)

    def _is_caption(self, line: str) -> bool:
        """Return whether a line introduces code, or is prose between two pieces of it."""
        before = self.lines[self.at - 1].strip() if self.at else ""
        raw = self.lines[self.at]
        cites_line = re.search(r"\.\w+:\d+(?:-\d+)?[`)]*:$", line)
        prose = re.match(r"[A-Z`][\w`'/.-]*,?\s+\S+\s+\S+", line) and line.endswith((":", "."))
        is_prose = cites_line or (prose and not re.fullmatch(_STATEMENT, line))
        return bool(not before and not raw[:1].isspace() and is_prose)

    # -- code -----------------------------------------------------------------------------------------

    def _opens_code(self, line: str) -> bool:
        return line.startswith("```") or re.match(r"<(syntaxhighlight|pre|source)\b", line) is not None

    def _read_fenced_code(self) -> Iterator[PageBlock]:
        fence = self.lines[self.at].strip()
        closing = "```" if fence.startswith("```") else f"</{fence[1:].split()[0].split('>')[0]}>"
        start = self.at + 1
        self.at = start
        while self.at < len(self.lines) and self.lines[self.at].strip() != closing:
            self.at += 1
        body = "\n".join(self.lines[start : self.at])
        self.at += 1
        yield PageBlock("chrome" if self.ended else "code", self.section, start, body)

    def _read_loose_code(self) -> Iterator[PageBlock]:
        """Read unmarked code: to the next heading, caption or end."""
        start = self.at
        while self.at < len(self.lines):
            line = self.lines[self.at].strip()
            stops = line and (self._heading_text(line) is not None or self._opens_code(line) or line.startswith("{|"))
            if stops or (line and self._starts_evidence(line)):
                break
            self.at += 1
        yield PageBlock("code", self.section, start + 1, "\n".join(self.lines[start : self.at]).rstrip())

    # -- tables ---------------------------------------------------------------------------------------

    def _read_wiki_table(self) -> Iterator[PageBlock]:
        columns: tuple[str, ...] = ()
        kind = "row" if self.section and not self.ended else "head"
        self.at += 1
        row, start = list[list[str]](), self.at
        while self.at < len(self.lines):
            line = self.lines[self.at].strip()
            self.at += 1
            if line.startswith(("|}", "|-", "|+")):
                yield from self._make_row(kind, row, columns, start)
                row = []
                if line.startswith("|}"):
                    return
            elif line.startswith("!") and kind == "row":
                columns = tuple(strip_markup(c).casefold() for c in line[1:].split("!!"))
            elif line.startswith(("|", "!")):
                start = start if row else self.at
                row += [[cell] for cell in line.lstrip("|!").split("||")]
            elif line:
                row = row or [[""]]
                row[-1].append(line.lstrip("* "))
        yield from self._make_row(kind, row, columns, start)

    def _make_row(self, kind: str, row: list[list[str]], columns: tuple[str, ...], line: int) -> Iterator[PageBlock]:
        cells = tuple(strip_markup(" ".join(cell)) for cell in row)
        if any(cells):
            yield PageBlock(kind, self.section, line, " ".join(cells).strip(), cells, columns)

    def _read_pipe_table(self) -> Iterator[PageBlock]:
        columns: tuple[str, ...] = ()
        while self.at < len(self.lines) and (line := self.lines[self.at].strip()).startswith("|"):
            cells = tuple(strip_markup(c) for c in line.strip("|").split("|"))
            if set(line) <= set("|-: "):
                self.at += 1
            elif not columns:
                columns, self.at = tuple(c.casefold() for c in cells), self.at + 1
            else:
                yield self._take_line("row", " ".join(cells), cells=cells, columns=columns)

    def _read_loose_table(self, columns: tuple[str, ...]) -> Iterator[PageBlock]:
        self.at += 1
        while self.at < len(self.lines) and (line := self.lines[self.at].strip()):
            cells = tuple(strip_markup(c) for c in re.split(r"\t+| {2,}", line))
            yield self._take_line("row", strip_markup(line), cells=cells if len(cells) > 1 else (), columns=columns)


def _contains_any(heading: str, words: tuple[str, ...]) -> bool:
    text = heading.casefold()
    return any(word in text for word in words)


def _parse_column_heads(line: str) -> tuple[str, ...]:
    """Return the columns of a table head; empty for any other line."""
    words = line.split()
    if not 2 <= len(words) <= 8 or not all(w.casefold() in TABLE_COLUMNS and w[0].isupper() for w in words):
        return ()
    joined = re.sub(r"\b(error) message|(version) constraint|environment (variable)", r"\1\2\3", line.casefold())
    return tuple(joined.split())


def _marked_heading(line: str) -> str:
    """Return the text of a marked heading, ``== words ==`` or ``## words``; else empty."""
    lead = len(line) - len(line.lstrip(line[:1]))
    if line.startswith("=="):
        marks = min(lead, len(line) - len(line.rstrip("=")), 6)
        return line[marks:-marks].strip() if marks >= 2 else ""
    if line.startswith("##") and lead <= 6 and line[lead : lead + 1].isspace():
        return line[lead:].strip().rstrip("#").rstrip() or line[lead:].strip()[:1]
    return ""

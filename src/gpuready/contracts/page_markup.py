"""Turn reStructuredText, quotations and directives of a page into plain Markdown, line for line.

Every line keeps its number, so that what is imported cites the page as it is.
"""

from __future__ import annotations

import re

_UNDERLINE = r"([=\-~^\"':#*+`.])\1{2,}"
_DIRECTIVE = r"(\s{0,40})\.\. (?:code|code-block|sourcecode)::\s{0,40}(\S{0,100})\s{0,40}"
_ADMONITION = r"^\s{0,40}\.\. (?:note|tip|warning|important|attention|caution|hint|seealso)::\s{0,40}"


def normalize_markup(text: str) -> str:
    """Return a page as Markdown with as many lines as it has."""
    lines = [re.sub(r"^\s{0,3}>\s?", "", line) for line in text.split("\n")]
    lines = _mark_directive_fences(lines)
    if any(re.match(r"\s*\.\. \w[\w-]*::", line) for line in lines):
        lines = [_strip_roles(line) for line in _mark_rst_code(_mark_underlined_headings(lines))]
    return "\n".join(lines)


def _mark_directive_fences(lines: list[str]) -> list[str]:
    """Open fences such as ```` ```{note} ````: their body is prose; that of ``{code-block} shell`` is code."""
    found, closing = list[str](), ""
    for line in lines:
        words = line.strip()
        if closing and words == closing:
            found, closing = [*found, ""], ""
        elif match := re.fullmatch(r"(`{3,9})\{(\w[\w-]{0,40})\}\s{0,9}(\S{0,300})(?:\s.*)?", words):
            is_code = match[2] in ("code", "code-block", "sourcecode")
            found.append(f"{match[1]}{match[3]}" if is_code else "")
            closing = "" if is_code else match[1]
        elif match := re.fullmatch(r":(\w+):\s*(.*)", words):
            found.append(f"# {match[2]}" if match[1] == "caption" else "")
        else:
            found.append(line)
    return found


def _mark_underlined_headings(lines: list[str]) -> list[str]:
    """``Title`` above a line of ``====`` -> ``## Title``; the sign that comes first is the highest level."""
    found, signs = list(lines), list[str]()
    for at in range(1, len(lines)):
        title, line = lines[at - 1], lines[at].rstrip()
        if not re.fullmatch(_UNDERLINE, line) or len(line) < len(title.rstrip()) or not re.match(r"[\w\[`(]", title):
            continue
        signs += [line[0]] if line[0] not in signs else []
        found[at - 1], found[at] = f"{'#' * min(signs.index(line[0]) + 2, 6)} {title.strip()}", ""
    return found


def _mark_rst_code(lines: list[str]) -> list[str]:
    """``.. code:: bash`` and what is indented below it -> a fence; an admonition loses its own line."""
    found: list[str] = []
    indent = -1
    for line in lines:
        is_inside = indent >= 0 and (not line.strip() or len(line) - len(line.lstrip()) > indent)
        if indent >= 0 and not is_inside:
            found[_last_blank(found)] = "```"
            indent = -1
        if match := re.fullmatch(_DIRECTIVE, line):
            indent = len(match[1])
            found.append(f"```{match[2]}")
        else:
            found.append(re.sub(_ADMONITION, "", line) if indent < 0 else line)
    if indent >= 0:
        found[_last_blank(found)] = "```"
    return found


def _last_blank(lines: list[str]) -> int:
    """Return where a fence can close: the first of the blank lines at the end; a new line where there is none."""
    at = len(lines)
    while at and not lines[at - 1].strip():
        at -= 1
    if at == len(lines):
        lines.append("")
    return at


def _strip_roles(line: str) -> str:
    """``:doc:`Words<target>` `` -> ``Words``; ```` ``code`` ```` -> `` `code` ``; ```Words <address>`_`` -> ``Words <address>``."""
    line = re.sub(r":\w+:`([^`<]{1,200})(?:<[^`<>]{0,200}>)?`", r"\1", line)
    line = re.sub(r"`([^`<>]{1,200}) <([^`<>]{1,300})>`_+", r"[\1](\2)", line)
    return re.sub(r"``([^`]{1,300})``", r"`\1`", line)

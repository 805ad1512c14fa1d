"""Quote and validate values for the file that contains them: nothing from a plan can end its quotes.

Names, versions and hashes have a grammar; a value outside it is refused in a sentence, because quoting cannot make it
valid. Other text is quoted, and comments are kept to one line.
"""

import json
import re
import textwrap
from collections.abc import Callable, Iterable

from gpuready.model.plan import Plan
from gpuready.model.visible_text import escape_unprintable

URL_SCHEMES = ("https://", "http://", "file://")


def _matches(pattern: str) -> Callable[[str], bool]:
    test = re.compile(pattern, re.ASCII)
    return lambda text: test.fullmatch(text) is not None


is_package_name = _matches(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?")
"""A valid name of a distribution, an index or a framework."""
is_version_text = _matches(r"[A-Za-z0-9][\w.+!-]*")
is_package_hash = _matches(r"sha(256|384|512):[0-9a-f]{64,}")
is_variable_name = _matches(r"[A-Za-z_]\w*")
is_image_reference = _matches(r"([A-Za-z0-9][\w.:/@-]*)?")


def is_single_line(text: str) -> bool:
    """On one line, with nothing in it that cannot be seen."""
    return escape_unprintable(text) == text


def is_plain_url(text: str) -> bool:
    """A URL or path without blanks and without credentials."""
    bare = text.partition("://")[2].partition("/")[0]
    return is_single_line(text) and " " not in text and text.startswith((*URL_SCHEMES, "/")) and "@" not in bare


def validate_plan_values(plan: Plan) -> Plan:
    """Return the plan if every value fits its grammar. ValueError names the one that does not."""
    for what, test, values in _values_by_grammar(plan):
        for value in values:
            if not isinstance(value, str) or not test(value):
                raise ValueError(f"the plan names a {what} that no file can hold: {escape_unprintable(value)[:80]!r}")
    return plan


def _values_by_grammar(plan: Plan) -> list[tuple[str, Callable[[str], bool], Iterable[str]]]:
    names = [*plan.packages, *(one.name for one in plan.lock), *(k.package for k in plan.kernels)]
    numbers = [*plan.packages.values(), *(one.version for one in plan.lock), *plan.tools.values()]
    own = [plan.version, plan.python, plan.torch, plan.cuda, *(k.version for k in plan.kernels)]
    lists = [*(k.arch_list for k in plan.kernels), *plan.variables.values(), *plan.image_flags, *plan.start]
    words = [w for s in (*plan.steps, *(s for k in plan.kernels for s in k.steps)) for w in s.run]
    return [
        ("package", is_package_name, names),
        ("framework", is_package_name, [plan.framework]),
        ("version", is_version_text, [*numbers, *(text for text in own if text)]),
        ("hash", is_package_hash, [digest for one in plan.lock for digest in one.hashes]),
        ("index", is_package_name, [*plan.indexes, *(one.index for one in plan.lock if one.index)]),
        ("address of an index", is_plain_url, plan.indexes.values()),
        ("origin", is_single_line, [one.origin for one in plan.lock]),
        ("variable", is_variable_name, [*plan.variables, *plan.unset]),
        ("container image", is_image_reference, [plan.image]),
        ("value", is_single_line, [*lists, *words]),
    ]


def quote_json_list(words: Iterable[str]) -> str:
    """A list of words as Dockerfiles and YAML take it: ``["a", "b"]``."""
    return json.dumps(list(words), ensure_ascii=False)


def wrap_comment(text: object, mark: str = "# ", width: int = 100) -> list[str]:
    """Comment lines of a sentence, broken between words."""
    return textwrap.wrap(
        escape_unprintable(text), width, initial_indent=mark, subsequent_indent=mark, break_long_words=False,
        break_on_hyphens=False,
    ) or [mark.rstrip()]  # fmt: skip


def quote_toml_string(value: str) -> str:
    """A double-quoted string valid in both TOML and YAML."""
    return '"' + "".join(_escape_string_character(c) for c in value) + '"'


def _escape_string_character(char: str) -> str:
    if " " <= char <= "~":
        return f"\\{char}" if char in '"\\' else char
    return f"\\u{ord(char):04X}" if char <= "\uffff" else f"\\U{ord(char):08X}"


def quote_docker_value(value: str) -> str:
    """A value for ENV in a Dockerfile: double quotes, no expansion."""
    return '"' + "".join("\\" + c if c in '"\\$' else c for c in value) + '"'

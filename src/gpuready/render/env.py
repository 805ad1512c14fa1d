"""Environment variables for a shell, a container, a batch script or a service, each with its origin and reason.

Values are untrusted data: each is quoted for its reader, and one that a format cannot express is refused. Comments cannot
be ended by their content.
"""

from gpuready.model.plan import EnvironmentSettings, VariableConflict, VariableSetting
from gpuready.model.visible_text import escape_unprintable, is_visible
from gpuready.render.escape import quote_command_words
from gpuready.render.layout import Screen

COMMENT_SCREEN = Screen(width=78)  # two columns are for the comment mark


def render_env_script(settings: EnvironmentSettings, shell: str, words: tuple[str, ...]) -> str:
    """The lines for one reader. ValueError, in a sentence, where a value cannot be written for it."""
    line = _LINE_FORMATTERS[shell]
    blocks = [_env_header_comment(settings, shell, words)]
    blocks += [[*_setting_comment(one), line(_check_variable_name(one.name), one.value)] for one in settings.variables]
    blocks += [_clash_comment(one) for one in settings.conflicts]
    blocks += [_comment_lines(f"! {note}", 2) for note in settings.notes]
    if settings.left:
        names = ", ".join(dict.fromkeys(one.name for one in settings.left))
        blocks.append(_comment_lines(f"set by {settings.framework} itself: {names}"))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


# -- comments -------------------------------------------------------------------------------------------


def _env_header_comment(settings: EnvironmentSettings, shell: str, words: tuple[str, ...]) -> list[str]:
    title = settings.name + (f", {settings.role}" if settings.role else "")
    title += f", on {settings.machine}" if settings.machine else ""
    title += f", torch {settings.torch}" if settings.torch else ""
    lines = _comment_lines(title)
    lines += _comment_lines(settings.contract_note) if settings.contract_note else []
    others = [role for role in settings.roles if role != settings.role]
    if others:
        lines += _comment_lines(f"for other processes: --role {' or '.join(others)}")
    again = " ".join(quote_command_words(words))
    use = _USAGE_HINTS[shell].format(again=again)
    lines += [f"# {use}"] if shell in ("bash", "fish") else _comment_lines(use)
    return lines + (["[Service]"] if shell == "systemd" else [])


def _setting_comment(one: VariableSetting) -> list[str]:
    state = " (already set)" if one.state == "held" else ""
    lines = _comment_lines(f"{one.by}: {one.why}{state}", 2)
    return lines + (_comment_lines(f"  [{one.cite}]", 4) if one.cite else [])


def _clash_comment(one: VariableConflict) -> list[str]:
    have = escape_unprintable(one.have)
    lines = _comment_lines(f"conflict: {one.name} is set to {have!r} here; {one.by} needs {one.wants!r}.", 2)
    lines += _comment_lines(f"  Nothing is changed: {one.then}. Reason: {one.why}", 2)
    return lines + (_comment_lines(f"  [{one.cite}]", 4) if one.cite else [])


def _comment_lines(comment: str, hang: int = 0) -> list[str]:
    """Text as comment lines; control characters cannot end a line early."""
    lead = len(comment) - len(comment.lstrip(" "))
    return [
        f"# {line}" for line in COMMENT_SCREEN.format_paragraph(escape_unprintable(comment), lead, max(hang - lead, 0))
    ]


# -- values ---------------------------------------------------------------------------------------------


def _check_variable_name(name: str) -> str:
    if name and name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit():
        return name
    raise ValueError(f"{name!r} is not the name of an environment variable")


def _reject_nul(name: str, value: str) -> str:
    if "\0" in value:
        raise ValueError(f"the value of {name} has a NUL in it, which no environment can carry")
    return value


def bash_export_line(name: str, value: str) -> str:
    """``export NAME='value'``; unprintable characters are written as ``$'\\x1b'``."""
    return f"export {name}={_quote_for_bash(_reject_nul(name, value))}"


def _quote_for_bash(value: str) -> str:
    if all(map(is_visible, value.replace("\n", ""))):
        return "'" + value.replace("'", "'\\''") + "'"
    return "$'" + "".join(_escape_bytes(char, "\\'") for char in value) + "'"


def _escape_bytes(char: str, special: str, prefix: str = "\\x") -> str:
    """A backslash before a special character; each byte of an unprintable one as ``\\x1b``."""
    if is_visible(char):
        return "\\" + char if char in special else char
    return "".join(f"{prefix}{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def fish_set_line(name: str, value: str) -> str:
    """``set -gx NAME 'value'``: inside quotes fish only treats a backslash before itself or a quote specially."""
    parts, plain = [], ""
    for char in _reject_nul(name, value):
        if is_visible(char) or char == "\n":
            plain += "\n" if char == "\n" else _escape_bytes(char, "\\'")
        else:
            parts += [f"'{plain}'"] if plain else []
            parts.append(_escape_bytes(char, "", "\\X"))
            plain = ""
    parts += [f"'{plain}'"] if plain or not parts else []
    return f"set -gx {name} {''.join(parts)}"


def docker_env_line(name: str, value: str) -> str:
    """A line of an ``--env-file``, which has no quoting: one line, taken literally."""
    _reject_nul(name, value)
    if not all(map(is_visible, value)):
        shown = escape_unprintable(value)[:80]
        raise ValueError(
            f"the value of {name} has what docker's --env-file cannot carry, a line break or an unseen character: {shown}"
        )
    return f"{name}={value}"


def systemd_env_line(name: str, value: str) -> str:
    """``Environment="NAME=value"``: quotes, backslashes, percent signs and control characters are escaped."""
    escaped = (_escape_bytes(char, '\\"').replace("%", "%%") for char in _reject_nul(name, value))
    return f'Environment="{name}={"".join(escaped)}"'


_LINE_FORMATTERS = {
    "bash": bash_export_line,
    "slurm": bash_export_line,
    "fish": fish_set_line,
    "docker": docker_env_line,
    "systemd": systemd_env_line,
}
_USAGE_HINTS = {
    "bash": 'use: eval "$({again})"',
    "fish": "use: {again} | source",
    "slurm": "put these lines into the batch script, before srun; sbatch passes them on (--export=ALL)",
    "docker": "save as a file: docker run --env-file FILE ...; docker takes the values as they stand",
    "systemd": "save as /etc/systemd/system/NAME.service.d/env.conf, then systemctl daemon-reload",
}

"""Environment variables for a shell, a container, a batch script or a service, each with its origin and reason.

Values are untrusted data: each is quoted for its reader, and one that a format cannot express is refused. Comments cannot
be ended by their content.
"""

from __future__ import annotations

from gpuready.render.escape import command, visible
from gpuready.render.layout import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.planned import Clash, Setting, Settings

SCREEN = Screen(width=78)  # two columns are for the comment mark


def text(found: Settings, shell: str, words: tuple[str, ...]) -> str:
    """The lines for one reader. ValueError, in a sentence, where a value cannot be written for it."""
    line = _LINES[shell]
    blocks = [_head(found, shell, words)]
    blocks += [[*_reason(one), line(_checked(one.name), one.value)] for one in found.variables]
    blocks += [_conflict(one) for one in found.conflicts]
    blocks += [_comment(f"! {note}", 2) for note in found.notes]
    if found.left:
        names = ", ".join(dict.fromkeys(one.name for one in found.left))
        blocks.append(_comment(f"left to {found.framework}, which sets them where they are due: {names}"))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


# -- comments -------------------------------------------------------------------------------------------


def _head(found: Settings, shell: str, words: tuple[str, ...]) -> list[str]:
    title = found.name + (f", {found.role}" if found.role else "")
    title += f", on {found.machine}" if found.machine else ""
    title += f", torch {found.torch}" if found.torch else ", torch not known"
    lines = _comment(title)
    others = [role for role in found.roles if role != found.role]
    if others:
        lines += _comment(f"for other processes: --role {' or '.join(others)}")
    again = " ".join(command(words))
    use = _USE[shell].format(again=again)
    lines += [f"# {use}"] if shell in ("bash", "fish") else _comment(use)
    return lines + (["[Service]"] if shell == "systemd" else [])


def _reason(one: Setting) -> list[str]:
    state = " (it is set so already)" if one.state == "held" else ""
    lines = _comment(f"{one.by}: {one.why}{state}", 2)
    return lines + (_comment(f"  [{one.cite}]", 4) if one.cite else [])


def _conflict(one: Clash) -> list[str]:
    have = visible(one.have)
    lines = _comment(f"conflict: {one.name} is set to {have!r} here, and {one.by} wants {one.wants!r}.", 2)
    lines += _comment(f"  Nothing is changed: {one.then}. Why it is wanted: {one.why}", 2)
    return lines + (_comment(f"  [{one.cite}]", 4) if one.cite else [])


def _comment(said: str, hang: int = 0) -> list[str]:
    """Text as comment lines; control characters cannot end a line early."""
    lead = len(said) - len(said.lstrip(" "))
    return [f"# {line}" for line in SCREEN.paragraph(visible(said), lead, max(hang - lead, 0))]


# -- values ---------------------------------------------------------------------------------------------


def _checked(name: str) -> str:
    if name and name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit():
        return name
    raise ValueError(f"{name!r} is not the name of an environment variable")


def _whole(name: str, value: str) -> str:
    if "\0" in value:
        raise ValueError(f"the value of {name} has a NUL in it, which no environment can carry")
    return value


def bash(name: str, value: str) -> str:
    """``export NAME='value'``; unprintable characters are written as ``$'\\x1b'``."""
    return f"export {name}={_bash(_whole(name, value))}"


def _bash(value: str) -> str:
    if value.isprintable() or value.replace("\n", "").isprintable():
        return "'" + value.replace("'", "'\\''") + "'"
    return "$'" + "".join(_ansi(char) for char in value) + "'"


def _ansi(char: str) -> str:
    if char in "\\'":
        return "\\" + char
    return char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in _bytes(char))


def _bytes(char: str) -> bytes:
    return char.encode("utf-8", "surrogateescape")


def fish(name: str, value: str) -> str:
    """``set -gx NAME 'value'``: inside quotes fish only treats a backslash before itself or a quote specially."""
    parts, plain = [], ""
    for char in _whole(name, value):
        if char.isprintable() or char == "\n":
            plain += "\\" + char if char in "\\'" else char
        else:
            parts += [f"'{plain}'"] if plain else []
            parts.append("".join(f"\\X{byte:02x}" for byte in _bytes(char)))
            plain = ""
    parts += [f"'{plain}'"] if plain or not parts else []
    return f"set -gx {name} {''.join(parts)}"


def docker(name: str, value: str) -> str:
    """A line of an ``--env-file``, which has no quoting: one line, taken literally."""
    _whole(name, value)
    if "\n" in value or "\r" in value:
        raise ValueError(f"the value of {name} has a line break, which docker's --env-file cannot carry")
    if not value.isprintable() and any("\udc80" <= char <= "\udcff" for char in value):
        raise ValueError(f"the value of {name} is not UTF-8, which docker's --env-file has to be")
    return f"{name}={value}"


def systemd(name: str, value: str) -> str:
    """``Environment="NAME=value"``: quotes, backslashes, percent signs and control characters are escaped."""
    inside = "".join(_unit(char) for char in _whole(name, value))
    return f'Environment="{name}={inside}"'


def _unit(char: str) -> str:
    if char in '\\"':
        return "\\" + char
    if char == "%":
        return "%%"
    return char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in _bytes(char))


_LINES = {"bash": bash, "slurm": bash, "fish": fish, "docker": docker, "systemd": systemd}
SHELLS = tuple(_LINES)
_USE = {
    "bash": 'use: eval "$({again})"',
    "fish": "use: {again} | source",
    "slurm": "put these lines into the batch script, before srun; sbatch passes them on (--export=ALL)",
    "docker": "save as a file: docker run --env-file FILE ...; docker takes the values as they stand",
    "systemd": "save as /etc/systemd/system/NAME.service.d/env.conf, then systemctl daemon-reload",
}

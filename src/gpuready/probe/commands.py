"""Parse the simple commands of a shell script. Nothing is executed.

Words are split as a shell does it: quotes, escapes, known variables and command separators. A command is
``sure`` if it runs whenever the script runs: not after ``||``, and not inside an if, loop, case or function.
"""

from __future__ import annotations

from gpuready.model import Noun
from gpuready.probe.dockerfile import UNKNOWN, variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OPENS = {"if", "for", "while", "until", "case", "select", "function"}
CLOSES = {"fi", "done", "esac"}
LEADS = {
    "then",
    "do",
    "else",
    "elif",
    "{",
    "}",
    "!",
    "time",
    "exec",
    "command",
    "sudo",
    "nohup",
    "env",
    "nice",
}
ENDS = "\n;&|()"
MOST = 20_000


class Command(Noun):
    """One simple command; ``sure`` if it runs whenever the script does."""

    words: tuple[str, ...]
    sure: bool = True


def commands(script: str, known: Mapping[str, str]) -> Iterator[Command]:
    """Yield every simple command; variables that the script sets apply from there on."""
    values = dict(known)
    depth, doubt = 0, False
    for words, end in _simple(script, values):
        while words and (words[0] in LEADS or words[0] in CLOSES or words[0] in OPENS):
            depth += (words[0] in OPENS) - (words[0] in CLOSES)
            words = words[1:]
        body, own = _without_assignments(words)
        sure = depth <= 0 and not doubt
        if not body or body[0] in ("export", "declare", "readonly", "local"):
            values.update({name: value if sure else UNKNOWN for name, value in _set(own, body)})
        elif depth >= 0:
            yield Command(tuple(body), sure)
        doubt = end == "||" or (doubt and end == "&&")


def _without_assignments(words: list[str]) -> tuple[list[str], dict[str, str]]:
    own: dict[str, str] = {}
    while words and _is_assignment(words[0]):
        name, _, value = words[0].partition("=")
        own[name] = value
        words = words[1:]
        while words and words[0] in LEADS:  # FOO=1 sudo pip ...
            words = words[1:]
    return words, own


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier() and name.isascii()


def _set(own: Mapping[str, str], body: list[str]) -> list[tuple[str, str]]:
    exported = [word.partition("=")[::2] for word in body[1:] if _is_assignment(word)]
    return [*own.items(), *exported]


def _simple(script: str, values: Mapping[str, str]) -> Iterator[tuple[list[str], str]]:
    """Yield the words of each command and the separator that ended it."""
    reader = _Reader(script, values)
    while not reader.over():
        words, end = reader.command()
        if words or end == "||":
            yield words, end
        if reader.count > MOST:
            return


class _Reader:
    def __init__(self, script: str, values: Mapping[str, str]):
        self.text, self.values, self.at, self.count = script, values, 0, 0

    def over(self) -> bool:
        return self.at >= len(self.text)

    def command(self) -> tuple[list[str], str]:
        words: list[str] = []
        while not self.over():
            self.count += 1
            letter = self.text[self.at]
            if letter in " \t\r":
                self.at += 1
            elif letter == "#":
                self._to_end_of_line()
            elif letter in ENDS:
                return words, self._operator()
            elif letter in "<>":
                self._redirection(words)
            else:
                words.append(self._word())
        return words, ""

    def _to_end_of_line(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _operator(self) -> str:
        size = 2 if self.text[self.at : self.at + 2] in ("&&", "||", ";;") else 1
        found = self.text[self.at : self.at + size]
        self.at += size
        return found

    def _redirection(self, words: list[str]) -> None:
        """Skip ``> file`` and ``2>&1``; the number before it was read as a word."""
        if words and words[-1].isdigit():
            words.pop()
        while not self.over() and self.text[self.at] in "<>&-":
            self.at += 1
        while not self.over() and self.text[self.at] in " \t":
            self.at += 1
        if not self.over() and self.text[self.at] not in ENDS:
            self._word()

    def _word(self) -> str:
        out, start = "", self.at
        while not self.over():
            letter = self.text[self.at]
            if letter in " \t\r<>" or letter in ENDS:
                break
            out += self._piece(letter)
        self.at += self.at == start  # always advance
        return out

    def _piece(self, letter: str) -> str:
        if letter == "'":
            return self._single()
        if letter == '"':
            return self._double()
        if letter == "\\":
            self.at += 2
            return self.text[self.at - 1 : self.at].replace("\n", "")
        if letter in "$`":
            return self._value()
        self.at += 1
        return letter

    def _single(self) -> str:
        end = self.text.find("'", self.at + 1)
        end = len(self.text) if end < 0 else end
        inside, self.at = self.text[self.at + 1 : end], end + 1
        return inside

    def _double(self) -> str:
        out = ""
        self.at += 1
        while not self.over() and self.text[self.at] != '"':
            letter = self.text[self.at]
            if letter == "\\":
                escaped = self.text[self.at + 1 : self.at + 2]
                out += escaped if escaped in '$`"\\' else "\\" + escaped
                self.at += 2
            elif letter in "$`":
                out += self._value()
            else:
                out, self.at = out + letter, self.at + 1
        self.at += 1
        return out

    def _value(self) -> str:
        if self.text[self.at] == "`":
            end = self.text.find("`", self.at + 1)
            self.at = len(self.text) if end < 0 else end + 1
            return UNKNOWN
        if self.text[self.at + 1 : self.at + 2] == "(":
            self.at = _closing(self.text, self.at + 1)
            return UNKNOWN
        value, self.at = variable(self.text, self.at, self.values)
        return value


def _closing(text: str, at: int) -> int:
    """Return the index after the bracket that closes the one at ``at``."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return len(text)

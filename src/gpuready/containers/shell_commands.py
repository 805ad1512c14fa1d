"""Parse the simple commands of a shell script. Nothing is executed.

Words are split as a shell does it: quotes, escapes, known variables and command separators. A command is
``sure`` if it runs whenever the script runs: not after ``||``, and not inside an if, loop, case or function.
"""

from __future__ import annotations

from gpuready.containers.dockerfile import UNKNOWN, BuildValues, expand_variable_at
from gpuready.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BLOCK_OPENERS = {"if", "for", "while", "until", "case", "select", "function"}
BLOCK_CLOSERS = {"fi", "done", "esac"}
PREFIX_WORDS = {"then", "do", "else", "elif", "{", "}", "!", "time", "exec", "command", "sudo", "nohup", "env", "nice"}
COMMAND_ENDS = "\n;&|()"
MAX_STEPS = 20_000


class ShellCommand(Record):
    """One simple command; ``sure`` if it runs whenever the script does."""

    words: tuple[str, ...]
    sure: bool = True
    path: str = ""  # PATH as the script has it there
    assigned: tuple[tuple[str, str], ...] = ()  # its variables: exported before it, or for it alone: A=1 pip install x
    end: str = ""  # what follows it: && || ; | and a line's end


def parse_shell_commands(script: str, known: BuildValues) -> Iterator[ShellCommand]:
    """Yield every simple command; variables that the script sets apply from there on."""
    values = BuildValues(known, known)
    exported: dict[str, str] = {}
    depth, doubt = 0, False
    for words, end in _split_simple_commands(script, values):
        while words and (words[0] in PREFIX_WORDS or words[0] in BLOCK_CLOSERS or words[0] in BLOCK_OPENERS):
            depth += (words[0] in BLOCK_OPENERS) - (words[0] in BLOCK_CLOSERS)
            words = words[1:]
        body, assigned = _split_assignments(words)
        sure = depth <= 0 and not doubt
        if not body or body[0] in ("export", "declare", "readonly", "local"):
            changed = {name: value if sure else UNKNOWN for name, value in _list_assignments(assigned, body)}
            values.update(changed)
            exported.update(changed if body[:1] == ["export"] else {})
        elif depth >= 0:
            own = tuple((exported | assigned).items())
            yield ShellCommand(tuple(body), sure, values.get("PATH", ""), own, end)
        doubt = end == "||" or (doubt and end == "&&")


def _split_assignments(words: list[str]) -> tuple[list[str], dict[str, str]]:
    assigned: dict[str, str] = {}
    while words and _is_assignment(words[0]):
        name, _, value = words[0].partition("=")
        assigned[name] = value
        words = words[1:]
        while words and words[0] in PREFIX_WORDS:  # FOO=1 sudo pip ...
            words = words[1:]
    return words, assigned


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier() and name.isascii()


def _list_assignments(assigned: Mapping[str, str], body: list[str]) -> list[tuple[str, str]]:
    exported = [word.partition("=")[::2] for word in body[1:] if _is_assignment(word)]
    return [*assigned.items(), *exported]


def _split_simple_commands(script: str, values: BuildValues) -> Iterator[tuple[list[str], str]]:
    """Yield the words of each command and the separator that ended it."""
    reader = _ShellReader(script, values)
    while not reader.at_end():
        words, end = reader.read_command()
        if words or end == "||":
            yield words, end
        if reader.count > MAX_STEPS:
            return


class _ShellReader:
    def __init__(self, script: str, values: BuildValues):
        self.text, self.values, self.position, self.count = script, values, 0, 0

    def at_end(self) -> bool:
        return self.position >= len(self.text)

    def read_command(self) -> tuple[list[str], str]:
        words: list[str] = []
        while not self.at_end():
            self.count += 1
            letter = self.text[self.position]
            if letter in " \t\r":
                self.position += 1
            elif letter == "#":
                self._skip_comment()
            elif letter in COMMAND_ENDS:
                return words, self._read_operator()
            elif letter in "<>":
                self._skip_redirection(words)
            else:
                words.append(self._read_word())
        return words, ""

    def _skip_comment(self) -> None:
        end = self.text.find("\n", self.position)
        self.position = len(self.text) if end < 0 else end

    def _read_operator(self) -> str:
        size = 2 if self.text[self.position : self.position + 2] in ("&&", "||", ";;") else 1
        operator = self.text[self.position : self.position + size]
        self.position += size
        return operator

    def _skip_redirection(self, words: list[str]) -> None:
        """Skip ``> file`` and ``2>&1``; the number before it was read as a word."""
        if words and words[-1].isdigit():
            words.pop()
        while not self.at_end() and self.text[self.position] in "<>&-":
            self.position += 1
        while not self.at_end() and self.text[self.position] in " \t":
            self.position += 1
        if not self.at_end() and self.text[self.position] not in COMMAND_ENDS:
            self._read_word()

    def _read_word(self) -> str:
        out, start = "", self.position
        while not self.at_end():
            letter = self.text[self.position]
            if letter in " \t\r<>" or letter in COMMAND_ENDS:
                break
            out += self._read_piece(letter)
        self.position += self.position == start  # always advance
        return out

    def _read_piece(self, letter: str) -> str:
        if letter == "'":
            return self._read_single_quoted()
        if letter == '"':
            return self._read_double_quoted()
        if letter == "\\":
            self.position += 2
            return self.text[self.position - 1 : self.position].replace("\n", "")
        if letter in "$`":
            return self._read_substitution()
        self.position += 1
        return letter

    def _read_single_quoted(self) -> str:
        end = self.text.find("'", self.position + 1)
        end = len(self.text) if end < 0 else end
        inside, self.position = self.text[self.position + 1 : end], end + 1
        return inside

    def _read_double_quoted(self) -> str:
        out = ""
        self.position += 1
        while not self.at_end() and self.text[self.position] != '"':
            letter = self.text[self.position]
            if letter == "\\":
                escaped = self.text[self.position + 1 : self.position + 2]
                out += escaped if escaped in '$`"\\' else "\\" + escaped
                self.position += 2
            elif letter in "$`":
                out += self._read_substitution()
            else:
                out, self.position = out + letter, self.position + 1
        self.position += 1
        return out

    def _read_substitution(self) -> str:
        if self.text[self.position] == "`":
            end = self.text.find("`", self.position + 1)
            self.position = len(self.text) if end < 0 else end + 1
            return UNKNOWN
        if self.text[self.position + 1 : self.position + 2] == "(":
            self.position = _find_closing_bracket(self.text, self.position + 1)
            return UNKNOWN
        value, self.position = expand_variable_at(self.text, self.position, self.values)
        return value


def _find_closing_bracket(text: str, at: int) -> int:
    """Return the index after the bracket that closes the one at ``at``."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return len(text)

"""Records that declare a command, and the conversion of words and Python values to what the workflows take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuready.commands.result import Result
from gpuready.model import sizes
from gpuready.model.record import Record
from gpuready.render.layout import Screen
from gpuready.workflow.refusal import Refused, call_dry
from gpuready.workflow.settings import Settings


class UsageError(Exception):
    """A command, or a Python call, that asks for what a command does not take; one sentence."""


class Parameter(Record):
    """One parameter of a command, for every face. Without a ``metavar`` it is a switch.

    ``kind``: text; log (text of any length); list (words with commas between); pairs (CODE=REASON); count (a whole
    number from ``least`` to ``most``); number, whole (above 0, below ``most``). ``web`` names the pattern of a value in a query (see web/query_parser.py),
    ``path`` the check of a path that an MCP client names (a method of AllowedPaths without its ``check_``).
    """

    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    kind: str = "text"
    name: str = ""  # in Python; set by collect_parameters
    flag: str = ""  # on the command line; --name where it is empty
    least: int = 1
    most: int = 0
    many: bool = False
    bare: bool = False  # the value is optional, and only follows =
    inverted: bool = False  # the switch sets False
    default: Any = None
    cli: bool = True
    python: bool = True
    mcp: bool = False
    web: str = ""
    path: str = ""
    completes: tuple[
        str, ...
    ] = ()  # what completes its value, where the metavar does not tell (commands/completion.py)
    details: str = ""  # description for MCP, where it says more than the help
    max_length: int = 400
    group: str = ""  # parameters of a group are shown together, and are one object for MCP

    @property
    def query(self) -> str:
        """The name in a query, and the key of a parsed flag: the flag without its dashes."""
        return self.flag.lstrip("-")


class Command(Record):
    """One command: its arguments, their minimum and maximum number, and its parameters by name."""

    name: str
    help: str
    run: Callable[[Request], Result]
    parameters: Mapping[str, Parameter]
    arguments: str = ""
    least: int = 0
    most: int = 0
    rest: str = ""  # placeholder for the words after --, where a command takes them
    argument: Parameter | None = None  # the arguments, where MCP or the web offers them
    examples: tuple[str, ...] = ()  # for the reference page; each begins after ``gpuready NAME``
    other_keywords: bool = False  # Python passes further keywords on, which the command checks itself
    interrupted: str = "nothing was changed"  # what Ctrl-C leaves, where the workflow does not say it
    usual: str = ""  # the flags that --help shows, without dashes; --help-all shows the others too
    settings: tuple[str, ...] = ()  # what the command line takes from the settings file of the current folder

    @property
    def flags(self) -> list[Parameter]:
        return [one for one in self.parameters.values() if one.cli]


def collect_parameters(*groups: Any, group: str = "") -> dict[str, Parameter]:
    """Return the parameters of groups (annotated classes, or mappings) by name, each with its name and flag set."""
    found = {}
    for one in groups:
        named = (
            {key: kind.__metadata__[0] for key, kind in one.__annotations__.items()} if isinstance(one, type) else one
        )
        for name, parameter in named.items():
            flag = parameter.flag or "--" + name.replace("_", "-")
            found[name] = parameter.replace(name=name, flag=flag, group=parameter.group or group)
    return found


class Session:
    """What a command may use of the face that called it. This one, for Python and MCP, shows nothing."""

    is_command_line = False  # then an interrupted check still gives a report, and no log is the log on stdin
    is_live = False  # whether a person watches the notes
    may_start_python = False  # whether the Python of an environment that the user named or activated may be started
    started: float | None = None  # perf_counter when the command line began
    screen: Screen

    def write_answer(self, text: str) -> None: ...
    def write_note(self, text: str, *, confided: bool = False) -> None: ...
    def write_sentence(self, text: str) -> None: ...
    def show_progress(self, what: str, done: int = 0, total: int = 0, *, at_once: bool = False) -> None:
        """Show what is under way: what, how much is done, and of how much (0: not known)."""

    def clear_progress(self) -> None: ...
    def ask_person(self, note: Callable[[], str], question: str) -> bool:
        """Show a note and ask, where a person is there to answer; without one, the caller has agreed."""
        return True

    def make_run_reporter(self, job: Any, book: Any, request: Request) -> Any: ...


class Request:
    """The arguments and options of one call of a command, converted."""

    def __init__(
        self,
        command: Command,
        arguments: Iterable[str],
        options: dict[str, Any],
        session: Session | None = None,
        rest: tuple[str, ...] = (),
    ):
        self.command, self.arguments, self.options, self.rest = command, list(arguments), options, rest
        self.session = session or Session()
        self.settings: Settings | None = None  # the settings file, where the command line has applied one

    def get_option(self, name: str, default: Any = None) -> Any:
        value = self.options.get(name)
        return default if value is None else value

    def has_switch(self, name: str) -> bool:
        return bool(self.options.get(name))

    def run_command(self) -> Result:
        """Run the command; a dry run starts none but the system's programs, whatever the command does."""
        return call_dry(self.command.run, self) if self.has_switch("dry_run") else self.command.run(self)

    def pick_options(self, *names: str) -> dict[str, Any]:
        return {name: self.options.get(name) for name in names}

    def flag_values(self, group: str | None = None) -> dict[str, Any]:
        """Return the options by the names of their flags, without dashes."""
        known = self.command.parameters
        return {
            known[name].query: value
            for name, value in self.options.items()
            if value is not None and group in (None, known[name].group)
        }

    @property
    def show_progress(self) -> Callable[..., None]:
        """What a workflow reports its progress to: nobody with -q."""
        return Session().show_progress if self.has_switch("quiet") else self.session.show_progress

    @property
    def can_ask(self) -> bool:
        """Whether a person is there to answer a question."""
        return self.session.is_live and sys.stdin is not None and sys.stdin.isatty()

    @property
    def what_if(self) -> dict[str, str]:
        return self.flag_values("what_if")

    def format_result(self, result: Result) -> str:
        """Return what the command line prints: JSON, one line, or the page for the screen of this session."""
        return result.format_text(
            self.session.screen,
            json=self.has_switch("json"),
            quiet=self.has_switch("quiet"),
            verbose=self.has_switch("verbose"),
        )

    @property
    def first_argument(self) -> str:
        return self.arguments[0] if self.arguments else ""


def reject_together(request: Request, *names: str, why: str = "choose one") -> None:
    """UsageError where more than one of these options is present."""
    present = [
        request.command.parameters[name].flag for name in names if request.options.get(name) not in (None, False)
    ]
    if len(present) > 1:
        raise UsageError(f"{present[0]} and {present[1]} cannot be combined: {why}")


_ANSWER_OPTIONS = ("json", "color", "quiet", "verbose")


def reject_unread(request: Request, mode: str, *read: str) -> None:
    """UsageError where an option is present that is not read beside ``mode``; those of a settings file are nobody's words."""
    known, applied = request.command.parameters, request.settings.applied if request.settings else ()
    for name, value in request.options.items():
        is_present = value is not None and value is not False and value != known[name].default
        if is_present and name not in (mode, *read, *_ANSWER_OPTIONS, *applied):
            raise UsageError(f"{known[name].flag} is not read with {known[mode].flag}: leave it out")


# -- words of a command line --------------------------------------------------------------------------------


def convert_words(command: Command, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Convert parsed flags to options."""
    known = {one.query: one for one in command.flags}
    return {known[key].name: _convert_word(known[key], value) for key, value in flags.items()}


def _convert_word(parameter: Parameter, word: Any) -> Any:
    if word is True:
        return not parameter.inverted
    if parameter.kind == "pairs":
        return dict(_parse_reason(parameter, text) for text in word)
    if parameter.kind == "count":
        return parse_count(parameter, word)
    return _parse_number(parameter, word) if parameter.kind in ("number", "whole") else word


def _parse_reason(parameter: Parameter, text: str) -> tuple[str, str]:
    code, _, reason = (part.strip() for part in text.partition("="))
    if not code or not reason:
        flag = f"{parameter.flag} {code or 'CODE'}"
        raise UsageError(f'{flag} needs a reason: {flag}="why it does not matter here"')
    return code.upper(), reason


def parse_count(parameter: Parameter, word: str) -> int:
    """Parse a whole number; ``8k`` is 8192, as sequence lengths are written."""
    count = None if "." in word else sizes.parse_count(word, sizes.CONTEXT_UNITS)
    if count is None or not parameter.least <= count <= parameter.most:
        raise UsageError(
            f"{parameter.flag} takes a whole number from {parameter.least} to {parameter.most}, not {word!r}"
        )
    return count


def _parse_number(parameter: Parameter, word: str) -> float:
    is_plain = word.isascii() and "_" not in word  # Python also takes other digits, and 1_000
    try:
        value = (float(word) if parameter.kind == "number" else int(word)) if is_plain else 0
    except ValueError:
        value = 0
    if not 0 < value < parameter.most:
        raise UsageError(f"{parameter.flag} takes a number above 0, not {word!r}")
    return value


# -- values of a Python call --------------------------------------------------------------------------------


def convert_values(command: Command, values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the keywords of a Python call to options. TypeError for an unknown one, UsageError for a bad value."""
    known = {name: one for name, one in command.parameters.items() if one.python}
    options = {}
    for name, value in values.items():
        if name not in known and not command.other_keywords:
            raise TypeError(f"{command.name}() got an unexpected keyword argument {name!r}")
        options[name] = _convert_value(known[name], value) if name in known and value is not None else value
    return options


def _convert_value(parameter: Parameter, value: Any) -> Any:
    if not parameter.metavar or parameter.group == "job" or value == parameter.default:
        return value  # the fields of a job are checked as a whole
    if parameter.kind == "pairs":
        return {code.upper(): reason for code, reason in value.items()}
    if parameter.many:
        return [
            path_text(one) for one in ([value] if isinstance(value, str) or hasattr(value, "__fspath__") else value)
        ]
    if parameter.kind == "list":
        return value if isinstance(value, str) else ",".join(value)
    if parameter.kind == "count":
        if not _is_number(value, int) or not parameter.least <= value <= parameter.most:
            range_text = f"from {parameter.least} to {parameter.most}"
            raise UsageError(f"{parameter.name} is a whole number {range_text}, not {value!r}")
        return value
    if parameter.choices and value not in parameter.choices:
        raise UsageError(f"{parameter.name} is one of {', '.join(parameter.choices)}, not {value!r}")
    if parameter.kind in ("number", "whole"):
        if not _is_number(value, (int, float) if parameter.kind == "number" else int) or not 0 < value < parameter.most:
            raise UsageError(f"{parameter.name} is a number above 0, not {value!r}")
        return value
    if parameter.choices:
        return value
    return str(value) if parameter.group == "what_if" else path_text(value)


def _is_number(value: Any, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def path_text(value: Any) -> str:
    """Return a path or a name as text; UsageError where it is neither."""
    text = value if isinstance(value, str) else getattr(value, "__fspath__", lambda: None)()
    if not isinstance(text, str):
        raise UsageError(f"a path is text, not {type(value).__name__}")
    return text


def call_command(command: Command, arguments: Iterable[Any], values: Mapping[str, Any]) -> Result:
    """Run a command as a Python call does: bad input raises Refused."""
    try:
        words = [path_text(word) for word in arguments]
        return Request(command, words, convert_values(command, values)).run_command()
    except UsageError as error:
        raise Refused(str(error)) from None

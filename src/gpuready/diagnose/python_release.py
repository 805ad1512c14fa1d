"""An error that says that Python itself is too old or too new: a name of the standard library that came or went with a release."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.logged_exception import LoggedException
from gpuready.model.record import Record

_CAME = {
    "3.6": "secrets enum:Flag,IntFlag,auto contextlib:AbstractContextManager typing:NoReturn",
    "3.7": """contextvars dataclasses importlib.resources contextlib:nullcontext,asynccontextmanager,AsyncExitStack
        asyncio:run,create_task,get_running_loop typing:ForwardRef,OrderedDict,_GenericAlias time:time_ns,perf_counter_ns
        os:register_at_fork str.isascii datetime.fromisoformat""",
    "3.8": """importlib.metadata multiprocessing.shared_memory _posixshmem typing:Final,Literal,Protocol,TypedDict,SupportsIndex
        typing:final,runtime_checkable,get_args,get_origin functools:cached_property,singledispatchmethod math:prod,dist,comb
        unittest:IsolatedAsyncioTestCase unittest.mock:AsyncMock shlex:join""",
    "3.9": """zoneinfo graphlib typing:Annotated functools:cache asyncio:to_thread math:lcm types:GenericAlias
        importlib.resources:files,as_file str.removeprefix str.removesuffix PosixPath.is_relative_to PosixPath.readlink""",
    "3.10": """typing:ParamSpec,Concatenate,TypeAlias,TypeGuard,is_typeddict itertools:pairwise types:NoneType,UnionType
        dataclasses:KW_ONLY inspect:get_annotations importlib.metadata:packages_distributions builtins:aiter,anext int.bit_count""",
    "3.11": """tomllib asyncio.taskgroups asyncio.timeouts importlib.resources.abc contextlib:chdir datetime:UTC operator:call
        typing:Self,Never,Unpack,Required,NotRequired,LiteralString,TypeVarTuple,reveal_type,assert_never,dataclass_transform
        enum:StrEnum,ReprEnum,EnumType,member,nonmember asyncio:TaskGroup,timeout,Runner,Barrier hashlib:file_digest
        builtins:ExceptionGroup,BaseExceptionGroup""",
    "3.12": "typing:override,TypeAliasType itertools:batched collections.abc:Buffer PosixPath.walk",
    "3.13": "pathlib._local typing:TypeIs,ReadOnly,NoDefault warnings:deprecated copy:replace queue:ShutDown",
    "3.14": "annotationlib compression compression.zstd concurrent.interpreters string.templatelib typing:evaluate_forward_ref",
}
_GONE = {
    "3": """urllib2 ConfigParser cPickle cStringIO StringIO Tkinter HTMLParser SocketServer BaseHTTPServer httplib urlparse
        commands __builtin__ itertools:izip,imap,ifilter string:letters,maketrans urllib:urlencode,urlopen,quote,urlretrieve
        sys:maxint,setdefaultencoding""",
    "3.7": "typing:GenericMeta,_ForwardRef re:_pattern_type",
    "3.8": "time:clock platform:linux_distribution,dist cgi:escape,parse_qs",
    "3.9": "xml.etree.cElementTree fractions:gcd base64:encodestring,decodestring Thread.isAlive Element.getchildren",
    "3.10": """parser symbol formatter collections:Mapping,MutableMapping,Sequence,MutableSequence,Iterable,Iterator,Callable,Set
        collections:MutableSet,Hashable,Sized,Container,Generator""",
    "3.11": "binhex asyncio:coroutine inspect:getargspec,formatargspec,ArgSpec",
    "3.12": """imp distutils asyncore asynchat smtpd pkgutil:ImpImporter ssl:wrap_socket,match_hostname
        configparser:SafeConfigParser locale:format importlib:find_loader unittest:_TextTestResult""",
    "3.13": """aifc audioop cgi cgitb chunk crypt imghdr lib2to3 mailcap nntplib pipes sndhdr telnetlib uu xdrlib typing.io
        typing.re unittest:makeSuite re:template""",
    "3.14": "ast:Num,Str,Bytes,NameConstant,Ellipsis pkgutil:get_loader,find_loader",
}
PLAIN_MODULES = frozenset(("parser", "symbol", "formatter", "chunk", "pipes", "commands", "compression"))
"""Modules of such plain names that a missing one may be the user's own."""


@cache
def load_python_names() -> dict[str, tuple[str, str]]:
    """Every name (``tomllib``, ``datetime:UTC``, ``str.removeprefix``) with the release that it came with and the one it left in."""
    came = {name: (release, "") for release, text in _CAME.items() for name in _split_names(text)}
    gone = {name: ("", release) for release, text in _GONE.items() for name in _split_names(text)}
    return came | gone


def _split_names(text: str) -> list[str]:
    """``math:prod,dist`` -> math:prod, math:dist."""
    names = []
    for word in text.split():
        module, colon, members = word.partition(":")
        names += [f"{module}:{member}" for member in members.split(",")] if colon else [module]
    return names


PYTHON_VERSION = "python-version-unsupported"

_MODULE = LazyRegex(r"No module named ['\"]?(\w{1,60}(?:\.\w{1,60}){0,4})\b")
_IMPORT = LazyRegex(r"cannot import name ['\"]?(\w{1,80})['\"]?(?: from ['\"]?(\w[\w.]{0,80}\w))?")
_ATTRIBUTE = LazyRegex(r"module ['\"]?(\w[\w.]{0,80})['\"]? has no attribute ['\"]?(\w{1,80})")
_MEMBER = LazyRegex(r"'(?:\w{1,40}\.)?(\w{1,40})' (?:object )?has no attribute '(\w{1,80})'")
_UNDEFINED = LazyRegex(r"name '(\w{1,80})' is not defined")
_FROM = LazyRegex(r"from ([A-Za-z_][\w.]{0,80}) import ")
_VERSION = LazyRegex(r"[/\\][Pp]ython(3)\.?(\d{1,2})t?[/\\]|[/\\]cpython-(3)\.(\d{1,2})[.-]")


class PythonRelease(Record):
    """A name that this Python does not have: where it is used, and the release that it came with or left in."""

    symbol: str
    came: str = ""
    gone: str = ""
    have: str = ""  # the Python of the paths in the traceback

    @property
    def captures(self) -> dict[str, str]:
        wanted = f"Python {self.came} or newer" if self.came else f"a Python before {self.gone}"
        known = {"symbol": self.symbol, "want": wanted, "have": self.have}
        return {key: value for key, value in known.items() if value}


def find_python_release(failure: LoggedException) -> PythonRelease | None:
    """The release of Python that an error asks for; None where its name is none of the standard library, or was there."""
    have = _find_python(failure)
    for name in _missing_names(failure):
        came, gone = load_python_names().get(name, ("", ""))
        if not (came or gone) or (name in PLAIN_MODULES and not have):
            continue
        at = _parse_release(came or gone)
        if have and (_parse_release(have) >= at if came else _parse_release(have) < at):
            return None
        return PythonRelease(name.replace(":", "."), came, gone, have)
    return None


def _missing_names(failure: LoggedException) -> Iterator[str]:
    """The names that an error may mean, as the table has them."""
    text = failure.message[:600]
    if match := _MODULE.search(text):
        parts = match[1].split(".")
        yield from (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    elif match := _IMPORT.search(text):
        module = match[2] or _imported_module(failure)
        yield from (f"{module}:{match[1]}", f"{module}.{match[1]}")
    elif match := _ATTRIBUTE.search(text):
        yield from (f"{match[1]}:{match[2]}", f"{match[1]}.{match[2]}")
    elif match := _MEMBER.search(text):
        yield f"{match[1]}.{match[2]}"
    elif match := _UNDEFINED.search(text):
        yield f"builtins:{match[1]}"


def _imported_module(failure: LoggedException) -> str:
    """``from contextlib import nullcontext``: Python before 3.7 does not name the module in its message."""
    code = failure.frames[-1].code if failure.frames else ""
    match = _FROM.match(code)
    return match[1] if match else ""


def _find_python(failure: LoggedException) -> str:
    """The version in the path of the innermost frame that has one: ``/usr/lib/python3.6/``, ``Python311``."""
    for path in (*(frame.file for frame in reversed(failure.frames)), failure.message[:600]):
        if match := _VERSION.search(path):
            return ".".join(group for group in match.groups() if group)
    return ""


def _parse_release(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))

"""An error that says that Python itself is too old or too new: a name of the standard library that came or went with a release."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.logged_exception import LoggedException
from gpuready.model.record import Record

_CAME = {
    "3.6": "secrets enum:Flag,IntFlag,auto contextlib:AbstractContextManager typing:NoReturn math:tau",
    "3.7": """contextvars dataclasses importlib.resources asyncio.runners _py_abc
        contextlib:nullcontext,asynccontextmanager,AsyncExitStack,AbstractAsyncContextManager
        asyncio:run,create_task,current_task,all_tasks,get_running_loop typing:ForwardRef,OrderedDict,_GenericAlias
        time:time_ns,perf_counter_ns,monotonic_ns,process_time_ns math:remainder os:register_at_fork str.isascii
        datetime.fromisoformat types:WrapperDescriptorType,MethodDescriptorType""",
    "3.8": """importlib.metadata multiprocessing.shared_memory _posixshmem unittest.async_case
        typing:Final,Literal,Protocol,TypedDict,SupportsIndex,final,runtime_checkable,get_args,get_origin
        functools:cached_property,singledispatchmethod math:prod,dist,comb,perm,isqrt types:CellType
        unittest:IsolatedAsyncioTestCase unittest.mock:AsyncMock shlex:join zipfile:Path os:add_dll_directory
        statistics:fmean,NormalDist,geometric_mean,quantiles,multimode threading:excepthook,get_native_id""",
    "3.9": """zoneinfo graphlib typing:Annotated functools:cache asyncio:to_thread math:lcm,nextafter,ulp types:GenericAlias
        importlib.resources:files,as_file os:pidfd_open,waitstatus_to_exitcode random:randbytes
        str.removeprefix str.removesuffix bytes.removeprefix PosixPath.is_relative_to PosixPath.with_stem PosixPath.readlink
        WindowsPath.is_relative_to WindowsPath.with_stem""",
    "3.10": """typing:ParamSpec,ParamSpecArgs,Concatenate,TypeAlias,TypeGuard,is_typeddict itertools:pairwise
        types:NoneType,EllipsisType,NotImplementedType,UnionType contextlib:aclosing,AsyncContextDecorator
        dataclasses:KW_ONLY inspect:get_annotations importlib.metadata:packages_distributions
        statistics:correlation,covariance,linear_regression builtins:aiter,anext,EncodingWarning int.bit_count
        PosixPath.hardlink_to""",
    "3.11": """tomllib wsgiref.types asyncio.taskgroups asyncio.timeouts importlib.resources.abc
        typing:Self,Never,Unpack,Required,NotRequired,LiteralString,TypeVarTuple,reveal_type,assert_never,assert_type
        typing:clear_overloads,get_overloads,dataclass_transform contextlib:chdir datetime:UTC
        enum:StrEnum,ReprEnum,EnumCheck,EnumType,FlagBoundary,member,nonmember,verify,global_enum
        asyncio:TaskGroup,timeout,timeout_at,Runner,Barrier math:cbrt,exp2 operator:call hashlib:file_digest
        logging:getLevelNamesMapping sys:exception re:NOFLAG locale:getencoding inspect:getmembers_static
        builtins:ExceptionGroup,BaseExceptionGroup""",
    "3.12": """typing:override,TypeAliasType itertools:batched math:sumprod types:get_original_bases
        inspect:markcoroutinefunction,BufferFlags logging:getHandlerByName,getHandlerNames random:binomialvariate
        collections.abc:Buffer threading:setprofile_all_threads,settrace_all_threads PosixPath.walk WindowsPath.walk""",
    "3.13": """pathlib._local typing:TypeIs,ReadOnly,NoDefault,is_protocol,get_protocol_members warnings:deprecated copy:replace
        queue:ShutDown types:CapsuleType math:fma enum:EnumDict re:PatternError unittest.mock:ThreadingMock
        builtins:PythonFinalizationError""",
    "3.14": """annotationlib compression compression.zstd concurrent.interpreters string.templatelib
        typing:evaluate_forward_ref functools:Placeholder concurrent.futures:InterpreterPoolExecutor inspect:ispackage""",
}
_GONE = {
    "3": """urllib2 ConfigParser cPickle cStringIO StringIO Tkinter HTMLParser SocketServer BaseHTTPServer httplib urlparse
        commands __builtin__ itertools:izip,imap,ifilter,izip_longest string:letters,maketrans,uppercase,lowercase
        urllib:urlencode,urlopen,quote,unquote,urlretrieve sys:maxint,setdefaultencoding os:getcwdu""",
    "3.7": "typing:GenericMeta,_ForwardRef re:_pattern_type",
    "3.8": "macpath time:clock platform:linux_distribution,dist cgi:escape,parse_qs,parse_qsl",
    "3.9": """dummy_threading _dummy_threading xml.etree.cElementTree fractions:gcd base64:encodestring,decodestring
        sys:setcheckinterval,getcheckinterval Thread.isAlive Element.getchildren""",
    "3.10": """parser symbol formatter collections:Mapping,MutableMapping,Sequence,MutableSequence,Iterable,Iterator,Callable,Set
        collections:MutableSet,Hashable,Sized,Container,Generator,Awaitable,Coroutine,KeysView,ItemsView,ValuesView,MappingView
        collections:ByteString,Reversible,Collection,AsyncIterable,AsyncIterator""",
    "3.11": """binhex asyncio:coroutine inspect:getargspec,formatargspec,ArgSpec
        gettext:lgettext,ldgettext,lngettext,ldngettext""",
    "3.12": """imp distutils asyncore asynchat smtpd pkgutil:ImpImporter,ImpLoader ssl:wrap_socket,match_hostname
        configparser:SafeConfigParser locale:format importlib:find_loader importlib.abc:Finder
        importlib.util:set_loader,set_package,module_for_loader unittest:_TextTestResult""",
    "3.13": """aifc audioop cgi cgitb chunk crypt imghdr lib2to3 mailcap msilib nis nntplib ossaudiodev pipes sndhdr spwd sunau
        telnetlib tkinter.tix uu xdrlib typing.io typing.re unittest:makeSuite,findTestCases,getTestCaseNames
        re:template,TEMPLATE locale:resetlocale configparser:LegacyInterpolation""",
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
        if have and not _is_without(_parse_release(have), came, gone):
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


def _is_without(have: tuple[int, ...], came: str, gone: str) -> bool:
    """Whether that Python does not have the name."""
    return have < _parse_release(came) if came else have >= _parse_release(gone)


def _parse_release(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))

"""Write what releases cannot do together, from the files of an index: what one imports and another has not.

Of every release of the last five years the files that an import runs are read by ranges; only what they import without a
condition counts. A name is lacking where the text of its module does not have the word, and that of another release has.
Also the torch below which a release of transformers turns PyTorch off, and the CUDA for which each bitsandbytes has a
library. Nothing is imported or run. Run tools/compile_catalog.py afterwards.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import re
import sys
import tarfile
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).resolve().parent
sys.path[:0] = [path for path in (str(HERE), str(HERE.parent / "src")) if path not in sys.path]

from packaging.specifiers import SpecifierSet  # noqa: E402
from packaging.utils import canonicalize_name  # noqa: E402
from packaging.version import Version  # noqa: E402
from refresh.index import File, Index, best, configured  # noqa: E402
from refresh.text import loads  # noqa: E402
from refresh.wheel import Trouble  # noqa: E402

from gpuready.catalog import catalog_date  # noqa: E402
from gpuready.probe.torch_extensions import parse_bitsandbytes_cuda  # noqa: E402
from gpuready.system.imports.numpy_abi import KNOWS_NUMPY_TWO, USES_NUMPY  # noqa: E402

TARGET = HERE.parent / "src" / "gpuready" / "catalog" / "wheels.toml"
HEAD = "# Read from the files of an index by tools/list_wheel_conflicts.py; do not edit by hand.\nschema = 1\n"
MONTHS = 60
NAMES = loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PROVIDERS: dict[str, str] = NAMES["providers"]
STARTS: dict[str, str] = dict.fromkeys(NAMES["compiled"]["names"], "") | NAMES["starts"]
MANY_FILES = 700
"""Of a wheel with fewer files all are read at once, instead of one request for each."""
TORCH_FLOOR = re.compile(r"Disabling PyTorch because PyTorch >=? ?v?(\d+\.\d+)")
DYNAMIC = re.compile(
    r"^\s*(?:def __getattr__|exec\(|globals\(\)|sys\.modules\[__name__\])|_LazyModule|_attach\(|define_import_", re.M
)
STAR = re.compile(r"^([ \t]*)from\s+(\S+)\s+import\s+\*", re.M)
IMPORT = re.compile(r"^(?:from[ \t]+(\S+)[ \t]+import[ \t]+(\([^)]*\)|(?:[^\n\\]|\\\n)*)|import[ \t]+([^\n;]+))", re.M)
LONG_STRING = re.compile(r"(?s)(\"{3}|'{3}).*?\1")
COMMENT = re.compile(r"#[^\n]*")
BASES = re.compile(r"^class .*", re.M)
USE = re.compile(r"(?<![\w.])(\w+)\.([A-Za-z_]\w*)")
WITH_TORCH = re.compile(r"^if is_torch_(?:elastic_compatible|available)\(\):\n((?:[ \t]+.*\n|\n)+)", re.M)
ALL = re.compile(r"__all__\s*\+?=\s*[\[(]([^\])]*)[\])]")
NUMPY_USER, NUMPY_TWO = re.compile(re.escape(USES_NUMPY)), re.compile(re.escape(KNOWS_NUMPY_TWO))
QUOTED = re.compile(r"[\"'](\w+)[\"']")
T = TypeVar("T")
EXPORTED: dict[tuple[str, int], frozenset[str]] = {}
Has = dict[tuple[str, str], bool | None]  # module and name: whether a release has it; None where its text does not tell
Wanted = dict[tuple[str, str, str], str]  # distribution and specifier of what is lacking, the part: the reason


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="list_wheel_conflicts", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "packages", nargs="*", default=[*STARTS, "bitsandbytes"], help="all of them, where none is named"
    )
    parser.add_argument("--index", metavar="URL", default="", help="a simple index; else that of pip or uv")
    parser.add_argument("-o", "--output", type=Path, default=TARGET)
    asked = parser.parse_args(words)
    try:
        index = Index(asked.index or configured())
        rows = list_rows(index, asked.packages)
    except Trouble as bad:
        print(f"list_wheel_conflicts: {bad}; nothing was written", file=sys.stderr)
        return 2
    known = loads(asked.output.read_text(encoding="utf-8")) if asked.output.exists() else {}
    kept = [
        row for row in (*known.get("import", ()), *known.get("libraries", ())) if _subject(row) not in asked.packages
    ]
    text = "".join(map(format_row, sorted([*kept, *rows], key=_subject)))
    asked.output.write_text(f'{HEAD}as_of = "{catalog_date()}"\n{text}', encoding="utf-8")
    return 0


def list_rows(index: Index, packages: list[str]) -> list[dict[str, Any]]:
    """The rows: first what each release imports, then which releases of the others have that, each opened once."""
    imports = {name: _read_releases(index, name, read_imports) for name in packages if name in STARTS}
    wanted = {
        one[1:] for read in imports.values() for found in read.values() for c in found.chains.values() for one in c
    }
    has: dict[str, dict[Version, Has]] = {}
    for top, name in PROVIDERS.items():
        asked = sorted(one for one in wanted if one[0].partition(".")[0] == top)
        has[name] = _read_releases(index, name, partial(_find, asked)) if asked else {}
    rows = [row for name, read in imports.items() for row in _join_releases(name, read, has)]
    if "bitsandbytes" in packages:
        cuda = _read_releases(index, "bitsandbytes", lambda *given: read_libraries(given[-1]))
        rows += _join_spans("bitsandbytes", {version: {found: ""} for version, found in cuda.items() if found[1]})
    return rows


def _read_releases(index: Index, name: str, read: Callable[[Index, str, File, Release], T]) -> dict[Version, T]:
    """What is read in one file of every release of the last years: its wheel, else its sdist. The oldest comes first."""
    since = (datetime.now(timezone.utc) - timedelta(days=30.4 * MONTHS)).date().isoformat()
    files = {
        v: best(each) or next((f for f in each if f.name.endswith(".tar.gz")), None)
        for v, each in index.releases(name).items()
    }
    recent = [(v, file) for v, file in files.items() if file and (file.day >= since or name == "bitsandbytes")]

    def read_one(file: File) -> T | None:
        with suppress(Trouble, tarfile.TarError, EOFError):
            return read(own := Index(index.given), name, file, Release(own, file))
        return None

    with ThreadPoolExecutor(6) as pool:
        found = zip((version for version, _ in recent), pool.map(read_one, (file for _, file in recent)), strict=True)
        known = {version: what for version, what in found if what is not None}
    print(f"{name}: {len(known)} releases", file=sys.stderr, flush=True)
    return known


def _find(asked: list[tuple[str, str]], *given: Any) -> Has:
    release: Release = given[-1]
    return {one: release.has(*one) for one in asked}


def _join_releases(name: str, read: dict[Version, Imports], has: dict[str, dict[Version, Has]]) -> list[dict[str, Any]]:
    spans: dict[Version, Wanted] = {}
    for version, found in read.items():
        floor = found.torch_floor
        why = f"it turns PyTorch off below {floor}, and then has no models"
        spans[version] = {("torch", f"<{floor}", ""): why} if floor else {}
        why = f"the modules of {name} are compiled for numpy 1"
        spans[version] |= {("numpy", ">=2", ""): why} if found.is_for_numpy_one else {}
        spans[version] |= _widest(dict(_list_lacking(name, found, has)))
    return _join_spans(name, spans)


def _join_spans(name: str, found: dict[Version, Wanted]) -> list[dict[str, Any]]:
    """Releases in a row that say the same share one row."""
    rows = []
    for what in dict.fromkeys(key for one in found.values() for key in one):
        marked = [(version, what in keys) for version, keys in found.items()]
        for said, run in itertools.groupby(marked, lambda one: one[1]):
            span = [version for version, _ in run]
            if said:
                row = {"a": f"{name}>={span[0]},<={span[-1]}", "b": f"{what[0]}{what[1]}", "why": found[span[-1]][what]}
                row |= {"part": what[2]} if what[2] else {}
                rows.append(row | {"source": f"files of {name} {span[0]} to {span[-1]}"})
    return rows


def read_libraries(release: Release) -> tuple[str, str, str]:
    """The CUDA releases for which a wheel has a library, as one fact."""
    cuda = sorted({v for member in release.names if (v := parse_bitsandbytes_cuda(member))}, key=Version)
    return "cuda", " ".join(cuda), ""


class Release:
    """The Python files of one release by module, read when asked; of a release without a wheel those of its sdist."""

    def __init__(self, index: Index, file: File) -> None:
        self._wheel = index.wheel(file) if file.tags else None
        self._texts = {} if file.tags else _sdist_texts(index.read(file.address, 1 << 27))
        self.names = list(self._wheel.members if self._wheel else self._texts)
        self.files = {_module_name(path): path for path in self.names if path.endswith((".py", ".so"))}

    def text(self, module: str) -> str:
        path, wheel = self.files[module], self._wheel
        if path not in self._texts and wheel is not None:
            sources = [one for one in self.files.values() if one.endswith(".py")]
            few = sources if len(sources) < MANY_FILES else [path]
            self._texts |= wheel.texts(few) if len(few) > 1 else {path: wheel.text(path) or ""}
        return self._texts.get(path, "")

    @cached_property
    def exported(self) -> set[str]:
        """What any ``__all__`` names: what a table of lazy names may have. A file that releases share is read once."""
        wheel = self._wheel
        if wheel is None:
            return {word for text in self._texts.values() for word in _exports(text)}
        crcs = {path: (path, wheel.members[path].CRC) for path in self.files.values() if path.endswith(".py")}
        for path, text in wheel.texts([path for path, crc in crcs.items() if crc not in EXPORTED]):
            EXPORTED[crcs[path]] = frozenset(_exports(text))
        return set().union(*(EXPORTED.get(crc, ()) for crc in crcs.values()))

    def is_for_numpy_one(self) -> bool:
        """Whether the first compiled module that uses numpy knows nothing of numpy 2."""
        wheel = self._wheel
        sizes = {path: wheel.members[path].file_size for path in self.names if path.endswith(".so")} if wheel else {}
        users = (
            path for path in sorted(sizes, key=lambda path: sizes[path])[:16] if wheel and wheel.find(path, NUMPY_USER)
        )
        first = next(users, "")
        return bool(first and wheel and wheel.find(first, NUMPY_TWO) is None)

    def has(self, module: str, name: str, depth: int = 0) -> bool | None:
        """Whether a name can be imported from a module; None where its text does not tell."""
        if module not in self.files:
            inside = any(one.startswith(f"{module}.") for one in self.files)  # a folder without __init__.py
            return (f"{module}.{name}" in self.files if name else True) if inside else False
        if not name or f"{module}.{name}" in self.files:
            return True
        if self.files[module].endswith(".so") or depth > 8:
            return None
        text = self.text(module)
        if re.search(rf"\b{re.escape(name)}\b", text):
            return True
        lazy = DYNAMIC.search(text) is not None
        stars = [(indent, _absolute(star, self.folder(module))) for indent, star in STAR.findall(text)]
        found = [
            None if indent or star not in self.files else self.has(star, name, depth + 1)
            for indent, star in stars
            if not (indent and lazy)
        ]
        if True in found or (lazy and name in self.exported):
            return True
        return None if None in found else False

    def folder(self, module: str) -> str:
        return module if self.files[module].endswith("__init__.py") else module.rpartition(".")[0]


def _absolute(target: str, folder: str) -> str:
    dots = len(target) - len(target.lstrip("."))
    above = folder.split(".")[: len(folder.split(".")) - dots + 1] if dots else []
    return ".".join([*above, *filter(None, [target.lstrip(".")])])


def _sdist_texts(data: bytes) -> dict[str, str]:
    """``name-1.0/src/package/module.py`` by its path below the package's parent."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            path = member.name.partition("/")[2].removeprefix("src/").removeprefix("python/")
            stream = archive.extractfile(member) if path.endswith(".py") else None
            if stream is not None:
                found[path] = stream.read().decode("utf-8", "replace")
    return found


@dataclass
class Imports:
    """What a release imports of others without a condition, by the module that a user imports."""

    chains: dict[str, set[tuple[str, str, str]]]
    allowed: dict[str, SpecifierSet]
    torch_floor: str
    is_for_numpy_one: bool


def read_imports(index: Index, name: str, file: File, release: Release) -> Imports:
    try:
        allowed = {str(canonicalize_name(one.name)): one.specifier for one in index.metadata(file).wants()}
    except Trouble:
        allowed = {}
    starts = [one for one in STARTS[name].split() if one in release.files]
    texts = (release.text(one) for one in release.files if name == "transformers" and one.endswith("import_utils"))
    floor = next((hit[1] for text in texts if (hit := TORCH_FLOOR.search(text))), "")
    chains = {start: set(_walk_imports(release, start)) for start in starts}
    takes_two = SpecifierSet("" if "numpy" not in allowed else str(allowed["numpy"])).contains("2.0")
    return Imports(chains, allowed, floor, not STARTS[name] and takes_two and release.is_for_numpy_one())


def _list_lacking(
    name: str, found: Imports, has: dict[str, dict[Version, Has]]
) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield what some releases of others lack that the metadata allows, and the part that needs it, if not every use does."""
    always = found.chains.get(STARTS[name].partition(" ")[0], set())
    for start, chain in found.chains.items():
        for by, module, wanted in sorted(chain):
            other = PROVIDERS[module.partition(".")[0]]
            takes = found.allowed.get(other, SpecifierSet())
            for lacking, versions in _spans_without(has[other], (module, wanted)) if other != name else ():
                if any(version in takes for version in versions):
                    what = f"{module}.{wanted}" if wanted else module
                    part = "" if (by, module, wanted) in always else start
                    yield (other, lacking, part), f"{by} imports {what}, which {other}{lacking} does not have"


def _spans_without(has: dict[Version, Has], asked: tuple[str, str]) -> Iterator[tuple[str, list[Version]]]:
    """Yield ``>=5.0`` and its releases, where the text of another release has the name."""
    versions = list(has)
    if not any(one[asked] for one in has.values()):
        return
    for lacks, run in itertools.groupby(range(len(versions)), lambda at: has[versions[at]][asked] is False):
        span = list(run)
        if lacks:
            low = [f">={versions[span[0]]}"] if span[0] else []
            high = [f"<{versions[span[-1] + 1]}"] if span[-1] + 1 < len(versions) else []
            yield ",".join(low + high), [versions[at] for at in span]


def _widest(found: Wanted) -> Wanted:
    """Of the ends below which, or from which, the releases of a package lack something: the widest, first of every use."""
    kept: Wanted = {}
    for key in sorted(found, key=lambda one: (one[2], _reach(one[1]))):
        other, lacking, _ = key
        told = [_reach(one[1]) for one in kept if one[0] == other and one[1][0] == lacking[0] and "," not in one[1]]
        if "," in lacking or not told or _reach(lacking) < min(told):
            kept[key] = found[key]
    return kept


def _reach(lacking: str) -> tuple[int, ...]:
    """Smaller for what takes in more: ``<5`` before ``<4``, ``>=4`` before ``>=5``."""
    release = Version(lacking.partition(",")[0].lstrip("<>=")).release
    sign = 1 if lacking[0] == ">" else -1
    return tuple(sign * part for part in (*release, 0, 0, 0)[:4])


def _walk_imports(release: Release, start: str) -> Iterator[tuple[str, str, str]]:
    """Yield (module, module of another package, name) for what runs unconditionally when a module is imported."""
    left, seen, own = _with_parents(start), set[str](), start.partition(".")[0]
    while left:
        module = left.pop()
        if module in seen or module not in release.files:
            continue
        seen.add(module)
        for target, names in _top_imports(release.text(module), release.folder(module)):
            for one in names or [""]:
                if target.partition(".")[0] in PROVIDERS and target.partition(".")[0] != own:
                    yield module, target, one
                elif target.partition(".")[0] == own:
                    left += _with_parents(f"{target}.{one}" if f"{target}.{one}" in release.files else target)


@lru_cache(1 << 14)
def _top_imports(text: str, folder: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The imports of a file outside of try, with, functions and if, but for that of torch, and its classes' bases: ``class X(pa.Y)``."""
    text = WITH_TORCH.sub(lambda block: textwrap.dedent(block[1]), COMMENT.sub("", LONG_STRING.sub("''", text)))
    found: list[tuple[str, tuple[str, ...]]] = []
    for source, names, plain in IMPORT.findall(text):
        words = [one.split()[0] for one in re.sub(r"[()\\\\]", " ", names or plain).split(",") if one.split()]
        found += (
            [(_absolute(source, folder), tuple(w for w in words if w != "*"))] if source else [(w, ()) for w in words]
        )
    aliases = (one.split() for _, _, plain in IMPORT.findall(text) for one in plain.split(","))
    for module, alias in ((words[0], words[-1]) for words in aliases if words):
        used = [USE.findall(line) for line in BASES.findall(text) if f"{alias}." in line]
        found += [(module, tuple({name for one in used for of, name in one if of == alias}))] if any(used) else []
    return tuple(found)


def _exports(text: str) -> Iterator[str]:
    return (word for listed in ALL.findall(text) for word in QUOTED.findall(listed))


def _with_parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[: at + 1]) for at in range(len(parts))]


def _module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _subject(row: dict[str, Any]) -> str:
    return str(row.get("a") or row["package"]).partition(">")[0]


def format_row(row: dict[str, Any]) -> str:
    if row.get("why") == "":
        row = {"package": row["a"], "cuda": row["b"].removeprefix("cuda").split(), "source": row["source"]}
    kind = "import" if "why" in row else "libraries"
    return f"\n[[{kind}]]\n" + "".join(
        f"{key} = {json.dumps(value)}\n" for key, value in (row | {"confirmed": True}).items()
    )


if __name__ == "__main__":
    sys.exit(main())

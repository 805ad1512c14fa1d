"""When public names, attributes and parameters of packages came and went, read from the syntax trees in their wheels.

One wheel of every minor release of the last 24 months is looked into by range requests: only its Python files are read,
and a file that two releases share is read once. Writes ``catalog/symbols.txt.gz``, which only ``diagnose`` loads. What
every release has is not written.
"""

import argparse
import gzip
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [path for path in (str(HERE), str(HERE.parent / "src")) if path not in sys.path]

from refresh.index import File, Index, best, configured  # noqa: E402
from refresh.symbols import FileSymbols, read_symbols  # noqa: E402
from refresh.wheel import Trouble, Wheel  # noqa: E402

PACKAGES = (
    "torch", "torchvision", "transformers", "accelerate", "peft", "trl", "datasets", "tokenizers", "huggingface_hub",
    "vllm", "triton", "numpy",
)  # fmt: skip
TARGET = HERE.parent / "src" / "gpuready" / "catalog" / "symbols.txt.gz"
MONTHS = 24
SKIPPED_FOLDERS = ("tests", "testing", "test", "templates", "examples", "benchmarks", "third_party", "_vendor", "f2py")
SKIPPED_FILES = ("convert_", "modular_", "test_", "conftest", "setup")
MAX_PLACES = 3
"""Modules in which a name may stand, where it is defined and where it is passed on."""
Groups = dict[tuple[str, int, int], list[str]]  # kind, first release with it, first without: the symbols
KINDS = ("module", "name", "attribute", "parameter")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="symbol_history", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("packages", nargs="*", default=PACKAGES, help="all of them, where none is named")
    parser.add_argument("--index", metavar="URL", default="", help="a simple index; else that of pip or uv")
    parser.add_argument("--months", type=int, default=MONTHS, help=f"how far back ({MONTHS})")
    parser.add_argument("--write", metavar="FILE", default=str(TARGET))
    args = parser.parse_args(words)
    warnings.simplefilter("ignore")  # of the syntax of others
    today = datetime.now(timezone.utc).date()
    since = (today - timedelta(days=30.4 * args.months)).isoformat()
    target = Path(args.write)
    sections = _read_sections(target)
    try:
        index = Index(args.index or configured())
        sections |= {name: _package_section(index, name, since) for name in args.packages}
    except Trouble as bad:
        print(f"symbol_history: {bad}; nothing was written", file=sys.stderr)
        return 2
    head = f"# tools/symbol_history.py, as of {today}, from the wheels of the index\n"
    text = head + "".join(sections[name] for name in sorted(sections))
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"wrote {target.stat().st_size} bytes")
    return 0


def _read_sections(target: Path) -> dict[str, str]:
    """The sections that are there already: packages that are not named keep theirs."""
    if not target.is_file():
        return {}
    parts = gzip.decompress(target.read_bytes()).decode().split("\npackage ")[1:]
    return {part.partition(" ")[0]: f"package {part.rstrip()}\n" for part in parts}


def _package_section(index: Index, package: str, since: str) -> str:
    """One package: its releases, then a line for each kind and span, with the symbols of that span."""
    chosen = list(_one_per_minor(index, package, since))
    masks: dict[tuple[str, str], int] = {}
    read: dict[tuple[str, int], FileSymbols] = {}
    for bit, (version, file) in enumerate(chosen):
        print(f"{package} {version}", file=sys.stderr, flush=True)
        for key in _wheel_symbols(index.wheel(file), package, read):
            masks[key] = masks.get(key, 0) | 1 << bit
    spans = {(kind, symbol): _span(_extend_mask(kind, symbol, mask, masks)) for (kind, symbol), mask in masks.items()}
    groups: Groups = {}
    for (kind, symbol), span in spans.items():
        if kind in KINDS and span != (0, len(chosen)) and spans.get(_owner(kind, symbol)) != span:
            groups.setdefault((kind, *span), []).append(symbol)
    lines = [f"package {package} {' '.join(version for version, _ in chosen)}\n"]
    for (kind, came, gone), symbols in sorted(_drop_imports(groups).items()):
        lines.append(f"{kind} {came} {gone} {' '.join(sorted(symbols))}\n")
    return "".join(lines)


def _drop_imports(groups: Groups) -> Groups:
    """Without the names that many inner modules import from elsewhere: nobody imports them from there."""
    names = [symbol for (kind, _, _), symbols in groups.items() if kind == "name" for symbol in symbols]
    places = Counter(symbol.partition(":")[2] for symbol in names)
    kept = {
        key: [
            one for one in symbols if key[0] != "name" or _is_outer(one) or places[one.partition(":")[2]] <= MAX_PLACES
        ]
        for key, symbols in groups.items()
    }
    return {key: symbols for key, symbols in kept.items() if symbols}


def _is_outer(symbol: str) -> bool:
    """``lib:X`` and ``lib.part:X``"""
    return symbol.partition(":")[0].count(".") <= 1


def _one_per_minor(index: Index, package: str, since: str) -> Iterator[tuple[str, File]]:
    """The last patch of every minor release since a day, and the last release before it to compare with."""
    wheels: dict[str, tuple[str, File]] = {}
    for version, files in index.releases(package.replace("_", "-")).items():
        wheel = best(files)
        if wheel is not None:
            first_day = min((file.day for file in files if file.day), default="")
            wheels[f"{version.major}.{version.minor}"] = (first_day, wheel)
    minors = list(wheels)
    recent = [i for i, minor in enumerate(minors) if wheels[minor][0] >= since]
    start = max(recent[0] - 1, 0) if recent else len(minors)
    for minor in minors[start:]:
        yield minor, wheels[minor][1]


def _extend_mask(kind: str, symbol: str, mask: int, masks: dict[tuple[str, str], int]) -> int:
    """A parameter is taken as long as the function takes any: ``def call(**kwargs)``."""
    if kind != "parameter":
        return mask
    any_taken = masks.get((kind, symbol.partition("(")[0] + "(**"), 0)
    while any_taken >> mask.bit_length() & 1:
        mask |= 1 << mask.bit_length()
    return mask


def _span(mask: int) -> tuple[int, int]:
    """The first release that has it, and the first after the last that has it."""
    return (mask & -mask).bit_length() - 1, mask.bit_length()


def _owner(kind: str, symbol: str) -> tuple[str, str]:
    """What a symbol is part of: where that came and went with it, it says nothing more."""
    if kind == "module":
        return "module", symbol.rpartition(".")[0]
    if kind == "name":
        return "module", symbol.partition(":")[0]
    if kind == "attribute":
        return "class", symbol.partition(".")[0]
    function = symbol.partition("(")[0]
    return ("attribute", function) if "." in function else ("callable", function)


# -- one wheel ------------------------------------------------------------------------------------


def _wheel_symbols(wheel: Wheel, package: str, read: dict[tuple[str, int], FileSymbols]) -> set[tuple[str, str]]:
    """Every public symbol of a wheel; the parts that other releases share are taken from ``read``."""
    paths = {path: _module_name(path) for path in wheel.members if _is_wanted(path, package)}
    now = {path: (path, wheel.members[path].CRC) for path in paths}
    for path, text in wheel.texts([path for path in paths if now[path] not in read and _is_public(paths[path])]):
        read[now[path]] = read_symbols(text, package)
    modules = {paths[path]: read.get(now[path], FileSymbols()) for path in paths}
    found = {("module", module) for module in modules}
    found |= {("module", _module_name(path)) for path in wheel.members if _is_extension(path, package)}
    for module, symbols in modules.items():
        found |= {("name", f"{module}:{name}") for name in _module_names(module, modules)}
        found |= {("attribute", name) for name in symbols.attributes}
        found |= {("parameter", name) for name in symbols.parameters}
        found |= {("class", name) for name in symbols.classes}
        found |= {("callable", name) for name in symbols.callables}
    return found


def _module_names(module: str, modules: dict[str, FileSymbols], depth: int = 0) -> set[str]:
    """What can be imported from a module, also through ``import *`` and through a lazy ``__init__``."""
    symbols = modules.get(module)
    if symbols is None or depth > 6:
        return set()
    names = set(symbols.names)
    for star in symbols.stars:
        source = f"{module}.{star.lstrip('.')}" if star.startswith(".") else star
        exported = modules[source].exported if source in modules else ()
        names |= set(exported) or {n for n in _module_names(source, modules, depth + 1) if not n.startswith("_")}
    if symbols.lazy and "." not in module:  # transformers: every __all__ below is importable from the top
        names |= {name for below, other in modules.items() if below != module for name in other.exported}
    return names


def _is_wanted(path: str, package: str) -> bool:
    folders = path.split("/")
    stubs = package == "torch" and path in ("torch/_C/__init__.pyi", "torch/_C/_VariableFunctions.pyi")
    if folders[0] != package or not (path.endswith(".py") or stubs):
        return False
    return not set(folders) & set(SKIPPED_FOLDERS) and not folders[-1].startswith(SKIPPED_FILES)


def _is_extension(path: str, package: str) -> bool:
    return path.startswith(package + "/") and path.endswith(".so") and "/lib/" not in path


def _module_name(path: str) -> str:
    """``torch/nn/__init__.py`` -> ``torch.nn``; the stubs of torch's C part are names of torch itself."""
    if path.endswith(".pyi"):
        return "torch._VF_stub" if "_Variable" in path else "torch._C"
    stem = path.removesuffix(".py").partition(".")[0] if path.endswith(".so") else path.removesuffix(".py")
    return stem.removesuffix("/__init__").replace("/", ".")


def _is_public(module: str) -> bool:
    """Private modules count only as modules, but for those whose names are torch's own."""
    return module in ("torch._C", "torch._VF_stub") or not any(part.startswith("_") for part in module.split("."))


if __name__ == "__main__":
    sys.exit(main())

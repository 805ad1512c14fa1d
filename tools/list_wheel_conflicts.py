"""Write what wheels cannot do together, from the wheels of an index: names that a package imports and another has no more.

Of every release of the last 24 months the files that an import runs are read by ranges, and only what they import without a
condition counts; when a name came and went is in ``catalog/symbols.txt.gz`` (tools/symbol_history.py). Also the torch below
which a release of transformers turns PyTorch off, and the CUDA for which each bitsandbytes has a library. Nothing is
imported or run. Run tools/compile_catalog.py afterwards.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
sys.path[:0] = [path for path in (str(HERE), str(HERE.parent / "src")) if path not in sys.path]

from packaging.specifiers import SpecifierSet  # noqa: E402
from packaging.utils import canonicalize_name  # noqa: E402
from packaging.version import Version  # noqa: E402
from refresh.index import File, Index, best, configured  # noqa: E402
from refresh.wheel import Trouble, Wheel  # noqa: E402
from symbol_history import MONTHS, PACKAGES  # noqa: E402

from gpuready.catalog import catalog_date  # noqa: E402
from gpuready.catalog.symbols import find_symbol_spans, list_symbol_releases  # noqa: E402
from gpuready.probe.torch_extensions import parse_bitsandbytes_cuda  # noqa: E402

TARGET = HERE.parent / "src" / "gpuready" / "catalog" / "wheels.toml"
HEAD = "# Read from the wheels of an index by tools/list_wheel_conflicts.py; do not edit by hand.\nschema = 1\n"
STARTS = {
    "accelerate": ("accelerate",), "peft": ("peft",), "datasets": ("datasets",), "deepspeed": ("deepspeed",),
    "trl": ("trl", "trl.trainer.sft_trainer", "trl.trainer.grpo_trainer", "trl.trainer.dpo_trainer"),
    "transformers": (),
    "axolotl": ("axolotl.cli.main", "axolotl.train"), "llamafactory": ("llamafactory.train.tuner",),
    "verl": ("verl", "verl.trainer.main_ppo"), "openrlhf": ("openrlhf.cli.train_sft",),
    "sentence-transformers": ("sentence_transformers",), "lm-eval": ("lm_eval",), "optimum": ("optimum",),
    "diffusers": ("diffusers.models.modeling_utils",), "ms-swift": ("swift.llm",),
    "unsloth-zoo": ("unsloth_zoo",), "llmcompressor": ("llmcompressor",), "liger-kernel": ("liger_kernel.transformers",),
    "torchtune": ("torchtune",), "autoawq": ("awq",),
}  # fmt: skip
"""The modules that a user of each package imports: what these run on import is read; of transformers its floor of torch alone."""
MODULES = {name: canonicalize_name(name) for name in PACKAGES}
MANY_FILES = 700
"""Of a wheel with fewer files all are read at once, instead of one request for each."""
TORCH_FLOOR = re.compile(r"Disabling PyTorch because PyTorch >=? ?v?(\d+\.\d+)")
Wanted = dict[tuple[str, str], str]  # distribution and specifier of what is lacking: the reason


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="list_wheel_conflicts", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "packages", nargs="*", default=[*STARTS, "bitsandbytes"], help="all of them, where none is named"
    )
    parser.add_argument("--index", metavar="URL", default="", help="a simple index; else that of pip or uv")
    parser.add_argument("-o", "--output", type=Path, default=TARGET)
    asked = parser.parse_args(words)
    since = (datetime.now(timezone.utc) - timedelta(days=30.4 * MONTHS)).date().isoformat()
    try:
        index = Index(asked.index or configured())
        rows = [row for name in asked.packages for row in read_project(index, name, since)]
    except Trouble as bad:
        print(f"list_wheel_conflicts: {bad}; nothing was written", file=sys.stderr)
        return 2
    known = tomllib.loads(asked.output.read_text(encoding="utf-8")) if asked.output.exists() else {}
    kept = [
        row for row in (*known.get("import", ()), *known.get("libraries", ())) if _subject(row) not in asked.packages
    ]
    text = "".join(map(format_row, sorted([*kept, *rows], key=_subject)))
    asked.output.write_text(f'{HEAD}as_of = "{catalog_date()}"\n{text}', encoding="utf-8")
    return 0


def read_project(index: Index, name: str, since: str) -> list[dict[str, Any]]:
    """The rows of one project: releases in a row that say the same share one."""
    wheels = [(version, best(files)) for version, files in index.releases(name).items()]
    known = [
        (version, file)
        for version, file in wheels
        if file is not None and (file.day >= since or name == "bitsandbytes")
    ]
    read = read_libraries if name == "bitsandbytes" else read_conflicts
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: read(Index(index.given), name, one[1]), known))
    print(f"{name}: {len(known)} releases", file=sys.stderr, flush=True)
    return [*_join_releases(name, [version for version, _ in known], found)]


def _join_releases(name: str, releases: list[Version], found: list[Wanted]) -> Iterator[dict[str, Any]]:
    for what in dict.fromkeys(key for one in found for key in one):
        at = 0
        while at < len(releases):
            first = at
            while at < len(releases) and what in found[at]:
                at += 1
            if at > first:
                span = [str(version) for version in releases[first:at]]
                source = f"wheels of {name} {span[0]} to {span[-1]}"
                yield {
                    "a": f"{name}>={span[0]},<={span[-1]}",
                    "b": f"{what[0]}{what[1]}",
                    "why": found[at - 1][what],
                    "source": source,
                }
            at += 1


def read_libraries(index: Index, name: str, file: File) -> Wanted:
    """The CUDA releases for which a wheel has a library, as one fact."""
    members = index.wheel(file).members
    cuda = sorted({v for member in members if (v := parse_bitsandbytes_cuda(member))}, key=Version)
    return {("cuda", " ".join(cuda)): ""} if cuda else {}


def read_conflicts(index: Index, name: str, file: File) -> Wanted:
    """What a release imports without a condition from packages of which some releases lack it, and its floor of torch."""
    wheel, metadata = index.wheel(file), index.metadata(file)
    allowed = {str(canonicalize_name(one.name)): one.specifier for one in metadata.wants()}
    files = {_module_name(path): path for path in wheel.members if path.endswith(".py")}
    found: Wanted = {}
    for module, imported in _walk_imports(wheel, files, STARTS[name]):
        package, distribution = imported.partition(":")[0].partition(".")[0], ""
        distribution = MODULES.get(package, "")
        if not distribution or distribution == name:
            continue
        for lacking in _list_lacking(imported):
            span = SpecifierSet(lacking).filter(f"{one}.0" for one in list_symbol_releases(package))
            if any(version in allowed.get(distribution, SpecifierSet()) for version in span):
                found.setdefault(
                    (distribution, lacking),
                    f"{module} imports {imported.replace(':', '.')}, which {distribution}{lacking} does not have",
                )
    if name == "transformers":
        texts = (
            wheel.text(path) or ""
            for path in wheel.members
            if path.startswith("transformers/utils/") and "import_utils" in path
        )
        floors = [hit[1] for text in texts if (hit := TORCH_FLOOR.search(text))]
        found |= {
            ("torch", f"<{floor}"): f"it turns PyTorch off below {floor}, and then has no models"
            for floor in floors[:1]
        }
    return found


@cache
def _list_lacking(imported: str) -> list[str]:
    """Return the releases that lack a name (``transformers:HybridCache``) or the module that it is in."""
    module = imported.partition(":")[0]
    parts = module.split(".")
    asked = [("module", ".".join(parts[: at + 1])) for at in range(1, len(parts))]
    lacking = []
    for kind, symbol in [*asked, *([("name", imported)] if ":" in imported else [])]:
        spans = [span for span in find_symbol_spans(kind, symbol) if span["symbol"] == symbol]
        if len(spans) == 1 and spans[0]["came"]:
            lacking.append(f"<{spans[0]['came']}")
        if len(spans) == 1 and spans[0]["gone"]:
            lacking.append(f">={spans[0]['gone']}")
    return lacking


def _walk_imports(wheel: Wheel, files: dict[str, str], starts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield (module, ``package.module:name``) for every import that runs unconditionally when the starts are imported."""
    texts = dict(wheel.texts(files.values())) if len(files) < MANY_FILES else {}
    left, seen = [part for start in starts for part in _with_parents(start)], set[str]()
    own = {start.partition(".")[0] for start in starts}
    while left:
        module = left.pop()
        if module in seen or module not in files:
            continue
        seen.add(module)
        for target, names in _top_imports(
            texts.get(files[module]) or wheel.text(files[module]) or "", module, files[module]
        ):
            for one in names or ("",):
                if target.partition(".")[0] not in own:
                    yield module, f"{target}:{one}" if one else target
                else:
                    left += _with_parents(f"{target}.{one}" if f"{target}.{one}" in files else target)


def _top_imports(text: str, module: str, path: str) -> Iterator[tuple[str, list[str]]]:
    """The imports of a file outside of try, if, with and functions."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return
    folder = module if path.endswith("__init__.py") else module.rpartition(".")[0]
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = folder.split(".")[: len(folder.split(".")) - node.level + 1] if node.level else []
            target = ".".join([*above, *([node.module] if node.module else [])])
            yield target, [alias.name for alias in node.names if alias.name != "*"]


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

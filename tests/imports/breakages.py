"""Ways to break an environment, and ways to change one that stays whole. What each does is asked of a real import."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from tests.imports.copies import MINOR, EnvironmentCopy

Break = Callable[[EnvironmentCopy], None]
WAYS: dict[str, Break] = {}
OTHER_MACHINE = (62).to_bytes(2, "little")  # x86_64
if sys.platform == "linux" and __import__("platform").machine() == "x86_64":
    OTHER_MACHINE = (183).to_bytes(2, "little")


def way(function: Break) -> Break:
    WAYS[function.__name__.replace("_", "-")] = function
    return function


def _add(name: str, function: Break, pattern: str = "") -> None:
    """Add a way; one that concerns numpy or pydantic lets the framework import it."""
    used = next((top for top in USES if pattern.startswith(top)), "")

    def run(env: EnvironmentCopy) -> None:
        if used:
            env.use(USES[used])
        function(env)

    WAYS[name] = run


USES = {
    "numpy": "from numpy import array, linalg",
    "pydantic": "from pydantic import BaseModel",
    "typing_ext": "import pydantic",
}


DELETED = {
    "package": "numpy",
    "package-init": "numpy/__init__.py",
    "core-extension": "numpy/_core/_multiarray_umath*.so",
    "linalg-extension": "numpy/linalg/_umath_linalg*.so",
    "tokenizers-extension": "tokenizers/tokenizers*.so",
    "safetensors-extension": "safetensors/_safetensors_rust*.so",
    "pydantic-core-extension": "pydantic_core/_pydantic_core*.so",
    "guarded-extension": "yaml/_yaml*.so",
    "bundled-libraries": "numpy.libs",
    "source": "yaml/loader.py",
    "deep-source": "pydantic/_internal/_generics.py",
    "unused-source": "numpy/f2py/crackfortran.py",
    "single-module": "typing_extensions.py",
    "source-that-c-imports": "numpy/dtypes.py",
    "own-source": "demo/plain.py",
    "own-late-source": "demo/extra.py",
    "framework": "demo",
    "metadata": "numpy-*.dist-info",
    "record": "numpy-*.dist-info/RECORD",
    "stubs": "numpy/**/*.pyi",
    "subpackage": "numpy/linalg",
    "unused-subpackage": "numpy/f2py",
}
for _name, _pattern in DELETED.items():
    _add(f"delete-{_name}", partial(EnvironmentCopy.delete, pattern=_pattern), _pattern)


REWRITTEN: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "half-an-extension": ("tokenizers/tokenizers*.so", lambda data: data[: len(data) // 2]),
    "start-of-an-extension": ("safetensors/_safetensors_rust*.so", lambda data: data[:1024]),
    "empty-extension": ("numpy/_core/_multiarray_umath*.so", lambda _: b""),
    "text-for-an-extension": ("tokenizers/tokenizers*.so", lambda _: b"version https://git-lfs.github.com/spec/v1\n"),
    "zeroed-head": ("pydantic_core/_pydantic_core*.so", lambda data: b"\0" * 4096 + data[4096:]),
    "half-a-library": ("numpy.libs/lib*openblas*", lambda data: data[: len(data) // 2]),
    "empty-source": ("yaml/nodes.py", lambda _: b""),
    "empty-init": ("yaml/__init__.py", lambda _: b""),
    "half-an-init": ("yaml/__init__.py", lambda data: data[: len(data) // 2]),
    "half-a-source": ("numpy/_core/numeric.py", lambda data: data[: len(data) // 2]),
    "half-of-a-late-source": ("demo/extra.py", lambda data: data[: len(data) // 2]),
    "garbage-source": ("yaml/reader.py", lambda data: b"\0\1\2" * 100),
    "conflict-marks": ("yaml/parser.py", lambda data: b"<<<<<<< HEAD\n" + data),
    "comment-added": ("yaml/parser.py", lambda data: b"# patched here\n" + data),
    "line-removed": ("yaml/dumper.py", lambda data: data.replace(b"\n\n", b"\n")),
    "other-machine": ("tokenizers/tokenizers*.so", lambda data: data[:18] + OTHER_MACHINE + data[20:]),
    "other-machine-library": ("numpy.libs/lib*openblas*", lambda data: data[:18] + OTHER_MACHINE + data[20:]),
    "thirty-two-bits": ("safetensors/_safetensors_rust*.so", lambda data: data[:4] + b"\1" + data[5:]),
    "library-nobody-has": (
        "numpy/_core/_multiarray_umath*.so",
        lambda data: data.replace(b"libm.so.6\0", b"libm.so.9\0"),
    ),
    "other-c-library": ("tokenizers/tokenizers*.so", lambda data: data.replace(b"libc.so.6\0", b"libc.so.9\0")),
    "newer-c-library": (
        "tokenizers/tokenizers*.so",
        lambda data: data.replace(b"\0GLIBC_2.17\0", b"\0GLIBC_9.17\0").replace(b"\0GLIBC_2.2.5\0", b"\0GLIBC_9.2.5\0"),
    ),
    "appended-to-an-extension": ("tokenizers/tokenizers*.so", lambda data: data + b"signature"),
}
for _name, (_pattern, _change) in REWRITTEN.items():
    _add(f"rewrite-{_name}", partial(EnvironmentCopy.rewrite, pattern=_pattern, change=_change), _pattern)


OTHER_TAG = f"cpython-{MINOR.replace('.', '')}", "cpython-36"
for _name, _pattern in {
    "numpy": "numpy/_core/_multiarray_umath*.so",
    "pydantic-core": "pydantic_core/_pydantic_core*.so",
    "guarded": "yaml/_yaml*.so",
}.items():

    def _retag(env: EnvironmentCopy, pattern: str = _pattern) -> None:
        path = env.path(pattern)
        path.rename(path.with_name(path.name.replace(*OTHER_TAG)))
        for record in env.site.glob(f"{pattern.split('/')[0].replace('yaml', 'pyyaml')}-*.dist-info/RECORD"):
            text = record.read_text().replace(path.name, path.name.replace(*OTHER_TAG))
            record.unlink()
            record.write_text(text)

    _add(f"other-python-{_name}", _retag, _pattern)


SHADOWS = {
    "package": ("numpy.py", "x = 1\n"),
    "package-folder": ("yaml/__init__.py", "x = 1\n"),
    "own-name": ("demo.py", "print('my script')\nraise SystemExit(3)\n"),
    "folder-without-init": ("numpy/notes.txt", "x\n"),
    "random": ("random.py", "x = 1\n"),
    "random-that-serves": (
        "random.py",
        "from _random import Random\nSystemRandom = Random\nrandom = choice = seed = getrandbits = None\n",
    ),
    "json": ("json.py", "x = 1\n"),
    "typing": ("typing.py", "x = 1\n"),
    "logging": ("logging.py", "x = 1\n"),
    "test-module": ("test.py", "raise SystemExit(3)\n"),
    "unrelated": ("utils.py", "raise SystemExit(3)\n"),
    "os": ("os.py", "raise SystemExit(3)\n"),
    "standard-module-nobody-imports": ("chunk.py" if MINOR < "3.13" else "mailbox.py", "raise SystemExit(3)\n"),
    "dependency-of-a-dependency": ("typing_extensions.py", "x = 1\n"),
}
for _name, (_path, _text) in SHADOWS.items():

    def _shadow(env: EnvironmentCopy, path: str = _path, text: str = _text) -> None:
        (env.here / path).parent.mkdir(exist_ok=True)
        (env.here / path).write_text(text)

    _add(f"shadow-{_name}", _shadow, _path)


def require(env: EnvironmentCopy, *needs: str) -> None:
    env.rewrite(
        "demo-1.0.dist-info/METADATA", lambda data: data + "".join(f"Requires-Dist: {n}\n" for n in needs).encode()
    )


@way
def missing_requirement(env: EnvironmentCopy) -> None:
    for pattern in ("yaml", "_yaml", "pyyaml-*", "PyYAML-*"):
        env.delete(pattern)


@way
def missing_requirement_of_a_requirement(env: EnvironmentCopy) -> None:
    env.use(USES["pydantic"])
    env.delete("annotated_types")
    env.delete("annotated_types-*")


@way
def missing_requirement_that_is_guarded(env: EnvironmentCopy) -> None:
    require(env, "left-pad>=1")


@way
def requirement_of_an_extra(env: EnvironmentCopy) -> None:
    require(env, "left-pad ; extra == 'all'", "win-pad ; sys_platform == 'win32'", "old-pad ; python_version < '3'")


@way
def requirement_of_another_version(env: EnvironmentCopy) -> None:
    require(env, "numpy<1")


@way
def metadata_of_two_versions(env: EnvironmentCopy) -> None:
    env.install("numpy", "1.0", {}, ())


@way
def leftover_of_pip(env: EnvironmentCopy) -> None:
    (env.site / "~umpy").mkdir()


@way
def half_removed(env: EnvironmentCopy) -> None:
    env.use(USES["pydantic"])
    env.delete("pydantic/*.py")


@way
def link_to_nothing(env: EnvironmentCopy) -> None:
    env.delete("yaml/loader.py")
    (env.site / "yaml" / "loader.py").symlink_to("/nowhere/loader.py")


@way
def links_to_a_store(env: EnvironmentCopy) -> None:
    """As uv's link mode symlink, or a package manager with a store, makes them."""
    store = env.root / "store"
    (env.site / "yaml").rename(store)
    (env.site / "yaml").mkdir()
    for path in store.iterdir():
        (env.site / "yaml" / path.name).symlink_to(path)


@way
def file_for_a_folder(env: EnvironmentCopy) -> None:
    env.use(USES["numpy"])
    env.delete("numpy/linalg")
    (env.site / "numpy" / "linalg").write_text("")


@way
def folder_renamed(env: EnvironmentCopy) -> None:
    (env.site / "yaml").rename(env.site / "Yaml")


@way
def byte_code_without_sources(env: EnvironmentCopy) -> None:
    import py_compile

    for path in list((env.site / "yaml").glob("*.py")):
        py_compile.compile(str(path), cfile=str(path) + "c", doraise=True)
        path.unlink()


@way
def python_path_with_another_yaml(env: EnvironmentCopy) -> None:
    (env.root / "more").mkdir()
    (env.root / "more" / "yaml.py").write_text("x = 1\n")
    env.variables["PYTHONPATH"] = str(env.root / "more")


@way
def python_path_with_the_same_package(env: EnvironmentCopy) -> None:
    """As ``pip install --target`` makes it: a complete copy that comes first."""
    more = env.root / "more"
    more.mkdir()
    for name in ("yaml", "_yaml"):
        (env.site / name).rename(more / name)
    env.path("[pP]y[yY][aA][mM][lL]-*").rename(more / env.path("[pP]y[yY][aA][mM][lL]-*").name)
    env.variables["PYTHONPATH"] = str(more)


@way
def target_folder_that_is_not_on_the_path(env: EnvironmentCopy) -> None:
    python_path_with_the_same_package(env)
    env.variables.clear()


@way
def folder_of_a_pth_line(env: EnvironmentCopy) -> None:
    python_path_with_the_same_package(env)
    env.variables.clear()
    (env.site / "more.pth").write_text(f"# a comment\n\n{env.root}/more\n")


@way
def folder_of_a_pth_line_is_gone(env: EnvironmentCopy) -> None:
    folder_of_a_pth_line(env)
    (env.root / "more").rename(env.root / "moved")


@way
def nothing_broken(env: EnvironmentCopy) -> None:
    pass


ALIKE = {
    "delete-package": "missing-requirement",
    "delete-unused-subpackage": "delete-unused-source",
    "delete-subpackage": "file-for-a-folder",
    "delete-deep-source": "delete-source",
    "delete-stubs": "delete-unused-source",
    "delete-linalg-extension": "delete-core-extension",
    "delete-pydantic-core-extension": "delete-core-extension",
    "delete-tokenizers-extension": "delete-safetensors-extension",
    "rewrite-empty-extension": "rewrite-text-for-an-extension",
    "rewrite-zeroed-head": "rewrite-text-for-an-extension",
    "rewrite-start-of-an-extension": "rewrite-half-an-extension",
    "rewrite-half-a-source": "rewrite-half-an-init",
    "rewrite-half-of-a-late-source": "delete-own-late-source",
    "rewrite-conflict-marks": "rewrite-garbage-source",
    "rewrite-line-removed": "rewrite-comment-added",
    "rewrite-empty-init": "rewrite-empty-source",
    "rewrite-other-machine-library": "rewrite-other-machine",
    "rewrite-thirty-two-bits": "rewrite-other-machine",
    "rewrite-other-c-library": "rewrite-library-nobody-has",
    "other-python-pydantic-core": "other-python-numpy",
    "shadow-random": "shadow-json",
    "shadow-logging": "shadow-json",
    "shadow-typing": "shadow-os",
    "shadow-test-module": "shadow-unrelated",
    "shadow-dependency-of-a-dependency": "shadow-package",
    "namespace-package-in-two-folders": "namespace-package",
}
"""Ways, and the one that each is most like; `make test` tries only that one."""

"""Ways that users break environments: packages of two releases over each other, libraries that the system lacks."""

from __future__ import annotations

import shutil

from tests.imports.breakages import require, way
from tests.imports.copies import EnvironmentCopy

BOOTSTRAP = """import importlib
import os
import sys

def bootstrap():
    home = os.path.dirname(__file__)
    sys.path.insert(0, home)
    package = sys.modules.pop("tokenizers")
    native = importlib.import_module("tokenizers")
    sys.modules["tokenizers"] = package
    sys.path.remove(home)
    for name in dir(native):
        setattr(package, name, getattr(native, name))

bootstrap()
"""
AVAILABLE = """import importlib.util

def is_glass_available():
    try:
        import glass.lens
        return True
    except ImportError:
        return False

def is_lens_available():
    return is_glass_available() and importlib.util.find_spec("lens") is not None
"""


def _load_own_name(env: EnvironmentCopy) -> None:
    """Let tokenizers load the extension module of its own name, as cv2 does."""
    env.rewrite("tokenizers/__init__.py", lambda _: BOOTSTRAP.encode())
    size = str(len(BOOTSTRAP)).encode()
    env.rewrite("tokenizers-*.dist-info/RECORD", lambda data: _record_size(data, b"tokenizers/__init__.py", size))


def _record_size(data: bytes, name: bytes, size: bytes) -> bytes:
    lines = data.splitlines()
    return b"\n".join(name + b",," + size if line.startswith(name + b",") else line for line in lines) + b"\n"


@way
def package_that_loads_its_own_name(env: EnvironmentCopy) -> None:
    _load_own_name(env)


@way
def package_that_loads_its_own_name_without_a_library(env: EnvironmentCopy) -> None:
    _load_own_name(env)
    env.rewrite("tokenizers/tokenizers*.so", lambda data: data.replace(b"libc.so.6\0", b"libc.so.9\0"))


@way
def older_metadata_beside_newer_files(env: EnvironmentCopy) -> None:
    """As a release that is unpacked over another one leaves it; the older one's name comes first."""
    (new,) = env.site.glob("numpy-*.dist-info")
    old = env.site / "numpy-0.9.dist-info"
    shutil.copytree(new, old)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.9\n")
    (old / "RECORD").write_text("numpy/__init__.py,,7\nnumpy/core/gone.py,,9\n")
    env.use("from numpy import array")
    env.install("arrow", "1.0", {"arrow/__init__.py": "import numpy\n"}, ("numpy>=1",))
    require(env, "arrow")


@way
def source_of_another_release_beside_a_compiled_module(env: EnvironmentCopy) -> None:
    env.rewrite("safetensors/__init__.py", lambda data: data + b"from ._safetensors_rust import NameOfALaterRelease\n")


@way
def attribute_of_another_release_of_a_compiled_module(env: EnvironmentCopy) -> None:
    text = b"from safetensors import _safetensors_rust\nLATER = _safetensors_rust.name_of_a_later_release\n"
    env.rewrite("safetensors/__init__.py", lambda data: data + text)


@way
def changed_source_beside_a_compiled_module_that_suits_it(env: EnvironmentCopy) -> None:
    text = b"from safetensors import _safetensors_rust\nSAME = _safetensors_rust.SafetensorError\n"
    env.rewrite("safetensors/__init__.py", lambda data: data + text)


@way
def available_function_that_needs_more_than_its_name(env: EnvironmentCopy) -> None:
    """``lens`` is broken and installed, and the function says that it is not available without ``glass``."""
    env.install("lens", "1.0", {"lens/__init__.py": "import glass.lens\n"}, ("glass",))
    env.install("checks", "1.0", {"checks/__init__.py": AVAILABLE})
    require(env, "lens", "checks")
    env.use("from checks import is_lens_available\nif is_lens_available():\n    import lens")


@way
def available_function_of_another_name_than_its_package(env: EnvironmentCopy) -> None:
    """As transformers' ``is_jinja_available``, which asks for jinja2."""
    text = (
        "import importlib.util\n\n"
        "def _is_package_available(name):\n    return importlib.util.find_spec(name) is not None, None\n\n"
        "def is_pad_available():\n    return _is_package_available('left_pad')[0]\n"
    )
    env.install("checks", "1.0", {"checks/__init__.py": text})
    require(env, "left-pad", "checks")
    env.use("from checks import is_pad_available\nif is_pad_available():\n    import left_pad.core")


@way
def shadow_that_a_safe_path_passes_over(env: EnvironmentCopy) -> None:
    """From Python 3.11 on PYTHONSAFEPATH keeps the current folder off the path; an older one takes no notice."""
    (env.here / "numpy.py").write_text("x = 1\n")
    env.variables["PYTHONSAFEPATH"] = "1"

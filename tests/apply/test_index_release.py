"""What a release on an index requires: from a wheel's metadata or an sdist's, and no code is run."""

from __future__ import annotations

import io
import tarfile

import pytest

from gpuready.apply import uv
from gpuready.apply.index_release import find_index_release, search_code
from gpuready.model.metadata import parse_requires_file
from gpuready.system import AccessError
from gpuready.system.release_metadata import COMPILES_CUDA, IMPORTS_TORCH, fetch_release_metadata
from gpuready.workflow.index_contract import make_torch_finder
from tests.apply.asking import default
from tests.apply.wheels import wheel


def sdist(folder, name, version, files):
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / f"{name}-{version}.tar.gz", "w:gz") as file:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text)
            file.addfile(member, io.BytesIO(text.encode()))
    return folder / f"{name}-{version}.tar.gz"


def find(world, name, specifier=""):
    return find_index_release(world, name, specifier, "3.12", uv.make_uv_settings(world))


def test_the_newest_release_inside_a_specifier_says_what_it_needs(world, index):
    index.add("kite", "1.7.0", ["torch>=2.9", "reel; extra == 'long'"])
    index.add("kite", "1.8.0", ["torch>=2.12"])
    found = find(world, "kite", "==1.7.*")
    assert (found.version, found.has_wheel) == ("1.7.0", True)
    assert [line.replace(" ", "") for line in found.requires_dist] == ["torch>=2.9", "reel;extra=='long'"]
    assert find(world, "kite").version == "1.8.0"
    assert find(world, "nosuch") is None and find(world, "kite", "==9.*") is None


def test_an_sdist_is_read_and_not_built(world, index, tmp_path):
    mark = tmp_path / "built"
    files = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: kite\nVersion: 0.4\nRequires-Python: >=3.9\n",
        "kite.egg-info/requires.txt": "torch<=2.5.1,>=2.2\n\n[fast]\nninja\n\n[:os_name == 'nt']\nwinch\n",
        "setup.py": f"open({str(mark)!r}, 'w')\n",
    }
    sdist(index.folder / "main", "kite", "0.4", files)
    found = find(world, "kite")
    assert not found.has_wheel and found.requires_python == ">=3.9" and not mark.exists()
    assert found.requires_dist == ("torch<=2.5.1,>=2.2", 'ninja; extra == "fast"', "winch; os_name == 'nt'")


@pytest.mark.parametrize(
    ("code", "expected"),
    [("import os\n    from torch.utils import cpp_extension\n", True), ("import torchvision  # import torch\n", False)],
)
def test_what_its_metadata_does_not_name_is_seen_in_its_code(world, index, code, expected):
    sdist(index.folder / "main", "kite", "0.4", {"PKG-INFO": "Name: kite\nVersion: 0.4\n", "setup.py": code})
    found = search_code(world, find(world, "kite"), uv.make_uv_settings(world), IMPORTS_TORCH)
    assert found == ("kite-0.4/setup.py" if expected else "")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"setup.py": "from torch.utils.cpp_extension import CUDAExtension\n"}, "kite-0.4/setup.py"),
        ({"csrc/CMakeLists.txt": "project(kite LANGUAGES CXX CUDA)\n"}, "kite-0.4/csrc/CMakeLists.txt"),
        ({"setup.py": "setup()\n", "kite/ops.py": "CUDAExtension\n"}, ""),
    ],
)
def test_an_sdist_whose_set_up_compiles_cuda_code(world, index, files, expected):
    sdist(index.folder / "main", "kite", "0.4", {"PKG-INFO": "Name: kite\nVersion: 0.4\n", **files})
    assert search_code(world, find(world, "kite"), uv.make_uv_settings(world), COMPILES_CUDA) == expected


def test_the_file_of_setuptools_has_extras_and_markers():
    text = "a\n# no\n[x:python_version < '3']\nb>=1\n[y]\nc\n"
    assert parse_requires_file(text) == ["a", "b>=1; extra == \"x\" and (python_version < '3')", 'c; extra == "y"']


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 not a zip", b"\x1f\x8b nothing"])
@pytest.mark.parametrize("name", ["a-1-py3-none-any.whl", "a-1.tar.gz"])
def test_a_broken_file_is_one_error(tmp_path, data, name):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(AccessError):
        fetch_release_metadata(str(tmp_path / name))


def test_the_newest_torch_below_a_version_is_that_of_the_asked_index_or_folder(world, index, tmp_path):
    index.add("torch", "2.9.0")
    index.add("torch", "2.11.0")
    options = {"find_links": (), "offline": False, "use_project_config": False}
    find_torch = make_torch_finder(world, options)
    assert find_torch(default(), "2.13.0") == "2.11.0"
    assert find_torch(default(), "2.11.0") == "2.9.0"
    wheel(tmp_path / "wheels", "torch", "2.12.1")
    assert (
        make_torch_finder(world, options | {"find_links": (str(tmp_path / "wheels"),)})(default(), "2.13.0") == "2.12.1"
    )
    assert make_torch_finder(world, options)(default(), "2.0") == ""

"""What a source archive says it is built with."""

from __future__ import annotations

import io
import tarfile

import pytest

from gpuready.apply.source_checkout import LEGACY_BACKEND, read_build_requirements


def make_archive(path, files: dict[str, str]) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return str(path)


@pytest.mark.parametrize(
    ("files", "requires"),
    [
        ({"a-1/setup.py": ""}, LEGACY_BACKEND),
        ({"a-1/pyproject.toml": "[build-system]\nrequires = ['hatchling', 'x>=2']\n"}, ("hatchling", "x>=2")),
        ({"a-1/pyproject.toml": "[tool.black]\nline-length = 9\n"}, LEGACY_BACKEND),
        ({"a-1/sub/pyproject.toml": "[build-system]\nrequires = ['evil']\n"}, LEGACY_BACKEND),
        ({"a-1/pyproject.toml": "[build-system]\nrequires = 'text'\n"}, LEGACY_BACKEND),
    ],
)
def test_build_requirements(tmp_path, files, requires):
    assert read_build_requirements(make_archive(tmp_path / "a-1.tar.gz", files)) == requires
